//! What drivers print: `DbgPrint` and its kin, kept per machine.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::kernel::Machine;
use crate::records::{AnsiString, UnicodeString};
use crate::shim::{self, In, VaList};

/// Lines kept.
const KEPT: usize = 10_000;
/// Longest message of `DbgPrint`, in bytes.
const MAX_MESSAGE: usize = 512;

type Listener = Arc<dyn Fn(&str) + Send + Sync>;

/// The log of one machine.
#[derive(Default)]
pub(crate) struct DebugLog {
    lines: Mutex<VecDeque<String>>,
    listener: Mutex<Option<Listener>>,
}

impl Machine {
    /// Adds a message to the log, as `DbgPrint` does.
    ///
    /// IRQL: any.
    pub fn debug_print(&self, message: &str) {
        let message = message.trim_end_matches(['\n', '\r']);
        {
            let mut lines = self.debug_log.lines.lock();
            if lines.len() == KEPT {
                lines.pop_front();
            }
            lines.push_back(message.to_owned());
        }
        if self.config().echo_debug_print {
            eprintln!("{message}");
        }
        let listener = self.debug_log.listener.lock().clone();
        if let Some(listener) = listener {
            listener(message);
        }
    }

    /// Called for every message.
    pub fn on_debug_print(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        *self.debug_log.listener.lock() = Some(Arc::new(listener));
    }

    /// The last messages, oldest first.
    pub fn debug_messages(&self) -> Vec<String> {
        self.debug_log.lines.lock().iter().cloned().collect()
    }

    pub(crate) fn print_formatted(&self, prefix: &str, format: In<u8>, arguments: &mut VaList) {
        let format = shim::read_c_string(format.address());
        let mut text = format_message(&format, arguments);
        text.truncate(MAX_MESSAGE);
        self.debug_print(&format!("{prefix}{}", String::from_utf8_lossy(&text)));
    }
}

/// One conversion: `%[flags][width][.precision][size]type`.
#[derive(Debug, Default)]
struct Conversion {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
    size: Size,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Size {
    /// `int`.
    #[default]
    Plain,
    /// `hh`.
    Byte,
    /// `h`.
    Short,
    /// `l`: 32 bits for numbers, wide for strings; also `w`.
    Long,
    /// `ll`, `I64`, `z`, `j`, `t`, `I`.
    Quad,
}

/// Formats as the kernel's `printf` family does. Unknown conversions are copied; a bad pointer is the driver's.
///
/// Source: Microsoft C library, "Format specification syntax"; wdm.h `DbgPrint` (`%Z`, `%wZ`).
pub(crate) fn format_message(format: &[u8], arguments: &mut VaList) -> Vec<u8> {
    format_as(format, arguments, false)
}

/// As [`format_message`], for the functions whose format is UTF-16: of `%s` and `%S`, `%c` and `%C` each takes what the
/// other one takes there.
///
/// Source: Microsoft C library, "Format specification syntax", type field characters `c`, `C`, `s`, `S`.
pub(crate) fn format_wide(format: &[u16], arguments: &mut VaList) -> Vec<u16> {
    let text = format_as(String::from_utf16_lossy(format).as_bytes(), arguments, true);
    String::from_utf8_lossy(&text).encode_utf16().collect()
}

fn format_as(format: &[u8], arguments: &mut VaList, is_wide: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(format.len());
    let mut rest = format;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        rest = convert(&mut out, rest, arguments, is_wide);
    }
    out
}

/// Formats one conversion; returns what follows it.
fn convert<'a>(out: &mut Vec<u8>, format: &'a [u8], arguments: &mut VaList, is_wide: bool) -> &'a [u8] {
    let (conversion, kind, rest) = parse(format, arguments);
    let kind = match kind {
        b's' | b'S' | b'c' | b'C' if is_wide => kind ^ 0x20,
        kind => kind,
    };
    let body = match kind {
        b'%' => vec![b'%'],
        b'd' | b'i' => return signed(out, &conversion, arguments.next_word(), rest),
        b'u' => unsigned(&conversion, arguments.next_word(), 10, false),
        b'x' => unsigned(&conversion, arguments.next_word(), 16, false),
        b'X' => unsigned(&conversion, arguments.next_word(), 16, true),
        b'o' => unsigned(&conversion, arguments.next_word(), 8, false),
        b'p' => format!("{:016X}", arguments.next_word()).into_bytes(),
        b'c' => vec![arguments.next_word().to_le_bytes()[0]],
        b'C' => wide(&[arguments.next_word() as u16]),
        b's' | b'S' => string(&conversion, kind, arguments.next_word()),
        b'Z' => counted(&conversion, arguments.next_word()),
        other => {
            out.push(b'%');
            out.push(other);
            return rest;
        }
    };
    pad(out, &conversion, body, false);
    rest
}

fn parse<'a>(format: &'a [u8], arguments: &mut VaList) -> (Conversion, u8, &'a [u8]) {
    let mut c = Conversion::default();
    let mut rest = format;
    let next = |rest: &mut &'a [u8]| -> u8 {
        let Some((&byte, tail)) = rest.split_first() else { return b'%' };
        *rest = tail;
        byte
    };
    let mut byte = next(&mut rest);
    loop {
        match byte {
            b'-' => c.left = true,
            b'+' => c.plus = true,
            b' ' => c.space = true,
            b'#' => c.alternate = true,
            b'0' => c.zero = true,
            _ => break,
        }
        byte = next(&mut rest);
    }
    let number = |byte: &mut u8, rest: &mut &'a [u8], arguments: &mut VaList| -> usize {
        if *byte == b'*' {
            *byte = next(rest);
            // CAST: an `int` argument; absurd widths are cut by `pad`.
            return arguments.next_word() as u32 as usize;
        }
        let mut value = 0usize;
        while byte.is_ascii_digit() {
            value = value.saturating_mul(10).saturating_add(usize::from(*byte - b'0'));
            *byte = next(rest);
        }
        value
    };
    c.width = number(&mut byte, &mut rest, arguments);
    if byte == b'.' {
        byte = next(&mut rest);
        c.precision = Some(number(&mut byte, &mut rest, arguments));
    }
    loop {
        c.size = match (byte, c.size) {
            (b'h', Size::Short) => Size::Byte,
            (b'h', _) => Size::Short,
            (b'l', Size::Long) => Size::Quad,
            (b'l' | b'w', _) => Size::Long,
            (b'z' | b'j' | b't', _) => Size::Quad,
            (b'I', _) => {
                if let Some(tail) = rest.strip_prefix(b"32") {
                    rest = tail;
                    Size::Plain
                } else {
                    rest = rest.strip_prefix(b"64").unwrap_or(rest);
                    Size::Quad
                }
            }
            _ => return (c, byte, rest),
        };
        byte = next(&mut rest);
    }
}

fn signed<'a>(out: &mut Vec<u8>, c: &Conversion, raw: u64, rest: &'a [u8]) -> &'a [u8] {
    // CAST: the argument's low bits, read as the C type that the size names.
    let value = match c.size {
        Size::Byte => i64::from(raw as i8),
        Size::Short => i64::from(raw as i16),
        Size::Plain | Size::Long => i64::from(raw as i32),
        Size::Quad => raw as i64,
    };
    let sign: &[u8] = match (value < 0, c.plus, c.space) {
        (true, ..) => b"-",
        (_, true, _) => b"+",
        (_, _, true) => b" ",
        _ => b"",
    };
    let mut body = sign.to_vec();
    body.extend(digits(c, value.unsigned_abs().to_string()));
    pad(out, c, body, true);
    rest
}

fn unsigned(c: &Conversion, raw: u64, radix: u32, upper: bool) -> Vec<u8> {
    // CAST: as in `signed`.
    let value = match c.size {
        Size::Byte => u64::from(raw as u8),
        Size::Short => u64::from(raw as u16),
        Size::Plain | Size::Long => u64::from(raw as u32),
        Size::Quad => raw,
    };
    let text = match (radix, upper) {
        (16, false) => format!("{value:x}"),
        (16, true) => format!("{value:X}"),
        (8, _) => format!("{value:o}"),
        _ => value.to_string(),
    };
    let mut body = Vec::new();
    if c.alternate && radix == 16 && value != 0 {
        body.extend_from_slice(if upper { b"0X" } else { b"0x" });
    }
    body.extend(digits(c, text));
    if c.zero && !c.left && c.precision.is_none() {
        let missing = c.width.min(MAX_MESSAGE).saturating_sub(body.len());
        let at = body.len() - body.iter().rev().take_while(|byte| byte.is_ascii_hexdigit()).count();
        body.splice(at..at, std::iter::repeat_n(b'0', missing));
    }
    body
}

fn digits(c: &Conversion, text: String) -> Vec<u8> {
    let missing = c.precision.unwrap_or(0).min(MAX_MESSAGE).saturating_sub(text.len());
    let mut body = vec![b'0'; missing];
    body.extend(text.into_bytes());
    body
}

fn string(c: &Conversion, kind: u8, pointer: u64) -> Vec<u8> {
    // CAST: a pointer.
    let address = pointer as usize;
    if address == 0 {
        return b"(null)".to_vec();
    }
    // %s takes bytes unless it says l or w; %S the other way round, unless it says h.
    let is_wide = match kind {
        b's' => c.size == Size::Long,
        _ => c.size != Size::Short,
    };
    let limit = c.precision.unwrap_or(usize::MAX);
    if is_wide {
        let units = shim::read_wide_string(address);
        wide(&units[..units.len().min(limit)])
    } else {
        let mut bytes = shim::read_c_string(address);
        bytes.truncate(limit);
        bytes
    }
}

fn counted(c: &Conversion, pointer: u64) -> Vec<u8> {
    // CAST: a pointer.
    let address = pointer as usize;
    if address == 0 {
        return b"(null)".to_vec();
    }
    if c.size == Size::Long {
        wide(&crate::shims::pointer::<UnicodeString>(address).get().units())
    } else {
        crate::shims::pointer::<AnsiString>(address).get().bytes()
    }
}

fn wide(units: &[u16]) -> Vec<u8> {
    String::from_utf16_lossy(units).into_bytes()
}

fn pad(out: &mut Vec<u8>, c: &Conversion, body: Vec<u8>, signed: bool) {
    let missing = c.width.min(MAX_MESSAGE).saturating_sub(body.len());
    let fill = std::iter::repeat_n(b' ', missing);
    if c.left {
        out.extend(body);
        out.extend(fill);
    } else if signed && c.zero && c.precision.is_none() {
        let sign = usize::from(matches!(body.first(), Some(b'-' | b'+' | b' ')));
        out.extend_from_slice(&body[..sign]);
        out.extend(std::iter::repeat_n(b'0', missing));
        out.extend_from_slice(&body[sign..]);
    } else {
        out.extend(fill);
        out.extend(body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shims::pointer;

    fn format(text: &str, arguments: &[u64]) -> String {
        let mut slots = arguments.to_vec();
        slots.push(0);
        let mut list = VaList::from_in(pointer(slots.as_ptr().expose_provenance()));
        String::from_utf8_lossy(&format_message(text.as_bytes(), &mut list)).into_owned()
    }

    #[test]
    fn a_wide_format_takes_wide_strings() {
        let wide: Vec<u16> = "wide\0".encode_utf16().collect();
        let words = [wide.as_ptr().expose_provenance(), c"narrow".as_ptr().expose_provenance()];
        let mut slots: Vec<u64> = [words[0], words[1], words[1], 7, 0].map(|word| word as u64).to_vec();
        slots.push(0);
        let mut list = VaList::from_in(pointer(slots.as_ptr().expose_provenance()));
        let format: Vec<u16> = "%s %S %hs %d".encode_utf16().collect();
        let said = String::from_utf16_lossy(&format_wide(&format, &mut list));
        assert_eq!(said, "wide narrow narrow 7");
    }

    #[test]
    fn numbers() {
        assert_eq!(format("%d %u %x %X %o", &[u64::MAX, 7, 255, 255, 8]), "-1 7 ff FF 10");
        assert_eq!(
            format("%I64x|%llu|%ld|%lu|%zu", &[u64::MAX, 1 << 40, u64::MAX, 5, 6]),
            format!("{:x}|{}|-1|5|6", u64::MAX, 1u64 << 40)
        );
        assert_eq!(
            format("[%5d][%-5d][%05d][%#x][%08x]", &[42, 42, 42, 42, 42]),
            "[   42][42   ][00042][0x2a][0000002a]"
        );
        assert_eq!(format("%*d|%.3d|%+d|%hu|%hhu", &[4, 7, 7, 7, 0x1_FFFF, 0x1FF]), "   7|007|+7|65535|255");
        assert_eq!(format("%#010x|%-#6x|", &[0x2a, 0x2a]), "0x0000002a|0x2a  |");
    }

    #[test]
    fn pointers_characters_and_percent() {
        assert_eq!(format("%p %c %% %q", &[0x1234, 65]), "0000000000001234 A % %q");
        assert_eq!(format("100%", &[]), "100%");
    }

    #[test]
    fn strings() {
        let narrow = b"narrow\0";
        let units: Vec<u16> = "wide\0".encode_utf16().collect();
        let (n, w) = (narrow.as_ptr().expose_provenance() as u64, units.as_ptr().expose_provenance() as u64);
        assert_eq!(format("%s|%ws|%ls|%S|%hs|%.3s", &[n, w, w, w, n, n]), "narrow|wide|wide|wide|narrow|nar");
        assert_eq!(format("%s|%8s|%-8s|", &[0, n, n]), "(null)|  narrow|narrow  |");
        let counted = UnicodeString { length: 6, maximum_length: 8, buffer: units.as_ptr().cast_mut() };
        let ansi = AnsiString { length: 3, maximum_length: 6, buffer: narrow.as_ptr().cast_mut() };
        let at = (&raw const counted).expose_provenance() as u64;
        let ansi_at = (&raw const ansi).expose_provenance() as u64;
        assert_eq!(format("%wZ|%Z|%wZ", &[at, ansi_at, 0]), "wid|nar|(null)");
    }
}
