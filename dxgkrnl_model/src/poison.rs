//! What outputs and watched bytes hold before a driver is called: a value that no driver writes by chance.
//!
//! Logs have patterns of their own, since a pattern says there which log a word comes from.

/// The byte that memory is filled with before a driver writes it.
pub(crate) const BYTE: u8 = 0xB7;
/// A 32-bit member.
pub(crate) const WORD: u32 = u32::from_le_bytes([BYTE; 4]);
