//! Events of event tracing in words: what a provider wrote, by the metadata that each of its events brings
//! (TraceLogging). Nothing here knows a provider: an event that does not describe itself is refused.
//!
//! Source: windows.h/traceloggingprovider.h and evntprov.h of the SDK: an event is written as items, of which the first
//! is the provider's metadata (`EVENT_DATA_DESCRIPTOR_TYPE_PROVIDER_METADATA`) and the second the event's; what follows
//! are its fields' values, one behind another.

use dxgkrnl_model::os::Os;
use nt_model::etw::EtwEvent;
use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The channel of events that describe themselves (`WINEVENT_CHANNEL_TRACELOGGING`).
const CHANNEL: u8 = 11;

thread_local! {
    static LISTENING: RefCell<Option<Arc<Collector>>> = const { RefCell::new(None) };
}

/// Keeps what providers write: a trace with every level and keyword on.
#[derive(Default)]
pub struct Collector {
    kept: Mutex<Vec<EtwEvent>>,
}

impl Collector {
    /// Runs `f`; machines that this thread boots meanwhile have a trace, which is kept here.
    pub fn listening<R>(self: &Arc<Self>, f: impl FnOnce() -> R) -> R {
        let before = LISTENING.replace(Some(self.clone()));
        let result = f();
        LISTENING.set(before);
        result
    }

    /// Takes what was written so far, in the order in which it was.
    pub fn take(&self) -> Vec<EtwEvent> {
        std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Begins a trace on a machine, if a collector listens on this thread. Before a driver is loaded: it is told of the
/// trace when it registers its provider.
pub fn watch(os: &Os) {
    let Some(collector) = LISTENING.with_borrow(Clone::clone) else { return };
    os.kernel().on_etw_event(move |event| {
        collector.kept.lock().unwrap_or_else(PoisonError::into_inner).push(event.clone());
    });
    const VERBOSE: u8 = 5;
    os.kernel().enable_etw(VERBOSE, u64::MAX);
}

/// An event in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The provider's name.
    pub provider: String,
    /// The event's name.
    pub name: String,
    /// 1 critical, 2 error, 3 warning, 4 informational, 5 verbose.
    pub level: u8,
    /// 0 information, 1 start, 2 stop.
    pub opcode: u8,
    /// Its keywords.
    pub keyword: u64,
    /// The performance counter when it was written.
    pub time: u64,
    /// Its fields, in order.
    pub fields: Vec<(String, Value)>,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number without a sign, in as many bytes as its type has.
    Number(u64),
    /// A number with a sign.
    Signed(i64),
    /// Text.
    Text(String),
}

impl Value {
    /// The number; `None` for text and for what is negative.
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Signed(number) => (*number).try_into().ok(),
            Self::Text(_) => None,
        }
    }
}

/// Why an event is not shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    /// It is none that describes itself.
    #[error("the event's channel is {0}, where events that describe themselves have 11")]
    Channel(u8),
    /// An item is missing, or shorter than it says.
    #[error("{0} ends early")]
    Short(&'static str),
    /// The size at the beginning of metadata is not that of the item.
    #[error("{what} says that it has {said} bytes, and has {there}")]
    Size {
        /// Whose metadata.
        what: &'static str,
        /// The size that it says.
        said: usize,
        /// The size that it has.
        there: usize,
    },
    /// A name is no UTF-8.
    #[error("a name of {0} is no UTF-8")]
    Name(&'static str),
    /// A field's type is one that this reader does not know.
    #[error("field {name} has type {kind:#x}, which is not known here")]
    Type {
        /// The field.
        name: String,
        /// The type.
        kind: u8,
    },
    /// Values are left over.
    #[error("{0} bytes of values belong to no field")]
    TooLong(usize),
}

/// Bytes, read from the front.
struct Reader<'b> {
    rest: &'b [u8],
    what: &'static str,
}

impl<'b> Reader<'b> {
    fn take(&mut self, bytes: usize) -> Result<&'b [u8], Undecodable> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(Undecodable::Short(self.what))?;
        self.rest = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Undecodable> {
        Ok(self.take(1)?[0])
    }

    /// Up to a zero, which is taken as well.
    fn name(&mut self) -> Result<String, Undecodable> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or(Undecodable::Short(self.what))?;
        let name = self.take(end)?;
        self.take(1)?;
        String::from_utf8(name.to_vec()).map_err(|_| Undecodable::Name(self.what))
    }

    /// A little-endian number of that many bytes, at most eight.
    fn number(&mut self, bytes: usize) -> Result<u64, Undecodable> {
        let mut number = [0; 8];
        number[..bytes].copy_from_slice(self.take(bytes)?);
        Ok(u64::from_le_bytes(number))
    }

    /// A number of a byte after whose high bit another follows.
    fn chained(&mut self) -> Result<u8, Undecodable> {
        let first = self.byte()?;
        let mut last = first;
        while last & 0x80 != 0 {
            last = self.byte()?;
        }
        Ok(first & 0x7F)
    }
}

/// Metadata behind its size, which must be the item's.
fn metadata<'b>(item: Option<&'b Vec<u8>>, what: &'static str) -> Result<Reader<'b>, Undecodable> {
    let mut reader = Reader { rest: item.ok_or(Undecodable::Short(what))?, what };
    let there = reader.rest.len();
    // CAST: 16 bits.
    let said = reader.number(2)? as usize;
    if said == there { Ok(reader) } else { Err(Undecodable::Size { what, said, there }) }
}

/// The value of a field of that type.
fn value(kind: u8, name: &str, values: &mut Reader<'_>) -> Result<Value, Undecodable> {
    let signed = |number: u64, bits: u32| Value::Signed((number << (64 - bits)).cast_signed() >> (64 - bits));
    Ok(match kind {
        3 => signed(values.number(1)?, 8),
        4 => Value::Number(values.number(1)?),
        5 => signed(values.number(2)?, 16),
        6 => Value::Number(values.number(2)?),
        7 => signed(values.number(4)?, 32),
        8 | 13 | 20 => Value::Number(values.number(4)?),
        9 => signed(values.number(8)?, 64),
        10 | 21 => Value::Number(values.number(8)?),
        23 => {
            // CAST: 16 bits.
            let length = values.number(2)? as usize;
            Value::Text(String::from_utf8_lossy(values.take(length)?).into_owned())
        }
        kind => return Err(Undecodable::Type { name: name.to_owned(), kind }),
    })
}

/// The event in words.
///
/// # Errors
/// [`Undecodable`].
pub fn decode(event: &EtwEvent) -> Result<Event, Undecodable> {
    let [_, _, _, channel, level, opcode, ..] = event.descriptor;
    if channel != CHANNEL {
        return Err(Undecodable::Channel(channel));
    }
    let mut keyword = [0; 8];
    keyword.copy_from_slice(&event.descriptor[8..]);
    let mut items = event.data.iter();
    let provider = metadata(items.next(), "the provider's metadata")?.name()?;
    let mut about = metadata(items.next(), "the event's metadata")?;
    about.chained()?;
    let name = about.name()?;
    let payload: Vec<u8> = items.flatten().copied().collect();
    let mut values = Reader { rest: &payload, what: "the values" };
    let mut fields = Vec::new();
    while !about.rest.is_empty() {
        let name = about.name()?;
        let kind = about.byte()?;
        if kind & 0x80 != 0 {
            about.chained()?;
        }
        fields.push((name.clone(), value(kind & 0x7F, &name, &mut values)?));
    }
    match values.rest.len() {
        0 => {
            let (keyword, time) = (u64::from_le_bytes(keyword), event.time);
            Ok(Event { provider, name, level, opcode, keyword, time, fields })
        }
        left => Err(Undecodable::TooLong(left)),
    }
}

impl Event {
    /// The field of that name.
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// The number in the field of that name.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.number()
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number:#x}"),
            Self::Signed(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// `Fencepost HwQueue/Start hContext=0x5 …`.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let opcode = match self.opcode {
            1 => "/Start",
            2 => "/Stop",
            _ => "",
        };
        write!(f, "{} {}{opcode}", self.provider, self.name)?;
        self.fields.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event `E` of provider `P` with a field `n` of type `kind`, whose value are `bytes`.
    fn event(kind: u8, bytes: &[u8]) -> EtwEvent {
        let mut descriptor = [0; 16];
        (descriptor[3], descriptor[4], descriptor[5], descriptor[8]) = (11, 4, 1, 2);
        let data = vec![b"\x04\0P\0".to_vec(), vec![8, 0, 0, b'E', 0, b'n', 0, kind], bytes.to_vec()];
        EtwEvent { provider: [1; 16], process: None, descriptor, data, time: 0, thread: 0 }
    }

    #[test]
    fn an_event_is_told_by_what_it_brings() {
        let decoded = decode(&event(8, &[5, 0, 0, 0])).unwrap();
        assert_eq!(decoded.to_string(), "P E/Start n=0x5");
        assert_eq!((decoded.level, decoded.keyword, decoded.number("n"), decoded.number("m")), (4, 2, Some(5), None));
        assert_eq!(decode(&event(7, &[0xFF; 4])).unwrap().to_string(), "P E/Start n=-1");
        assert_eq!(decode(&event(23, &[2, 0, b'o', b'k'])).unwrap().to_string(), "P E/Start n=ok");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(decode(&event(8, &[5, 0])), Err(Undecodable::Short("the values")));
        assert_eq!(decode(&event(8, &[5, 0, 0, 0, 0])), Err(Undecodable::TooLong(1)));
        assert_eq!(decode(&event(1, &[])), Err(Undecodable::Type { name: "n".into(), kind: 1 }));
        let mut other = event(8, &[5, 0, 0, 0]);
        other.descriptor[3] = 0;
        assert_eq!(decode(&other), Err(Undecodable::Channel(0)));
        let mut cut = event(8, &[5, 0, 0, 0]);
        cut.data[1].pop();
        let what = "the event's metadata";
        assert_eq!(decode(&cut), Err(Undecodable::Size { what, said: 8, there: 7 }));
        cut.data.truncate(1);
        assert_eq!(decode(&cut), Err(Undecodable::Short(what)));
    }
}
