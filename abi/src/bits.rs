//! Printing of flag words.

use core::fmt;

/// Prints a flag word: its value, then the bit-fields that are not zero. Each field is a name, its lowest bit, its
/// width.
pub(crate) fn debug(f: &mut fmt::Formatter<'_>, name: &str, value: u64, fields: &[(&str, u32, u32)]) -> fmt::Result {
    write!(f, "{name}({value:#x}")?;
    let mut separator = ":";
    for &(field, shift, width) in fields {
        match (value >> shift) & (u64::MAX >> (64 - width)) {
            0 => continue,
            1 if width == 1 => write!(f, "{separator} {field}")?,
            number => write!(f, "{separator} {field}={number}")?,
        }
        separator = ",";
    }
    f.write_str(")")
}
