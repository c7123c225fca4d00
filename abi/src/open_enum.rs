//! Open enumerations.

use core::fmt;

/// Defines a C enumeration as an integer with names, so that a value nobody named is representable.
macro_rules! open_enum {
    ($(#[$meta:meta])* pub enum $name:ident: $base:ident { $($(#[$value_meta:meta])* $value:ident = $number:literal,)* }) => {
        $(#[$meta])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $base);

        impl $name {
            $($(#[$value_meta])* pub const $value: Self = Self($number);)*

            /// Every enumerator with its name, in the order of the table.
            pub const VALUES: &[(Self, &str)] = &[$((Self::$value, stringify!($value))),*];

            /// The name of this value: the first one, if several enumerators have it.
            pub fn name(self) -> Option<&'static str> {
                Self::VALUES.iter().find(|(value, _)| *value == self).map(|&(_, name)| name)
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                $crate::open_enum::debug(f, stringify!($name), self.name(), self.0 as i64)
            }
        }

        $crate::plain::plain_integer! { $name }
    };
}
pub(crate) use open_enum;

/// Prints a value: its name, or the type and the number.
pub(crate) fn debug(f: &mut fmt::Formatter<'_>, type_name: &str, name: Option<&str>, value: i64) -> fmt::Result {
    match name {
        Some(name) => f.write_str(name),
        None => write!(f, "{type_name}({value})"),
    }
}
