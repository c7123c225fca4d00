//! Status values.

use core::fmt;

use crate::plain::plain_integer;

pub use crate::generated::ntstatus::*;

/// How a call ended. `Debug` prints the name; an unknown value prints as a number.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[must_use = "a status says whether the call worked"]
pub struct NTSTATUS(pub i32);

plain_integer! { NTSTATUS }

impl NTSTATUS {
    /// `NT_SUCCESS`: success (0…) or information (0x4…).
    #[inline]
    pub const fn is_success(self) -> bool {
        self.0 >= 0
    }

    /// `NT_ERROR`: severity 3. A warning (0x8…) is neither a success nor an error.
    #[inline]
    pub const fn is_error(self) -> bool {
        self.code() >> 30 == 3
    }

    /// The value as headers write it.
    #[inline]
    pub const fn code(self) -> u32 {
        self.0.cast_unsigned()
    }

    /// The name of this value. Pulls in the table of all names.
    pub fn name(self) -> Option<&'static str> {
        let index = NAMES.binary_search_by_key(&self.code(), |&(value, _)| value).ok()?;
        Some(NAMES[index].1)
    }

    /// Returns the status that the headers call `name` (such as `STATUS_NO_MEMORY`); `None` for a name that they do
    /// not have. Links the table of all names, as [`Self::name`] does.
    pub fn from_name(name: &str) -> Option<Self> {
        let (value, _) = NAMES.iter().find(|(_, known)| *known == name)?;
        Some(Self(value.cast_signed()))
    }
}

/// Prints the number, as in `0xc000000d`: without the table of names.
impl fmt::LowerHex for NTSTATUS {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.code(), f)
    }
}

impl fmt::Debug for NTSTATUS {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "NTSTATUS({:#010x})", self.code()),
        }
    }
}
