//! What outputs and watched bytes hold before a driver is called: a value that no driver writes by chance.
//!
//! Logs have patterns of their own, since a pattern says there which log a word comes from.

use wddm_abi::Plain;

/// The byte that memory is filled with before a driver writes it.
pub(crate) const BYTE: u8 = 0xB7;
/// A record in which every byte holds the pattern.
pub(crate) fn record<T: Plain>() -> T {
    T::from_bytes(&vec![BYTE; size_of::<T>()]).unwrap_or_else(|| unreachable!("as many bytes as the record has"))
}

/// A 32-bit member.
pub(crate) const WORD: u32 = u32::from_le_bytes([BYTE; 4]);
