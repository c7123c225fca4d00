//! Settings as values: the name, the values, the default and the meaning of one, and its conversion from a number.

use core::fmt::{Display, Formatter, Result};
use gpu_engine::fence_log::Barriers;
use gpu_wire::doorbell::Model;
use gpu_wire::private::Rung;

/// A setting: one row of `docs/settings.md`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Name of the registry value.
    pub name: &'static str,
    /// The table of `docs/settings.md` that it is in.
    pub part: Part,
    /// Values that are in range.
    pub values: Values,
    /// The value when the registry has none, or one that is out of range.
    pub default: u64,
    /// One line of `docs/settings.md`: what it does. Without `|`.
    pub meaning: &'static str,
}

/// A table of `docs/settings.md`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Values under the service's key, which `DriverEntry` reads.
    Service,
    /// Properties of the software GPU and of its driver.
    Usual,
    /// Answers to the OS about which documents, or drivers that are known to start, disagree.
    FirstBoot,
    /// Faults that are injected for tests.
    Fault,
}

/// Values that a setting takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Values {
    /// Any number of 64 bits.
    Any,
    /// From the first to the second, both included.
    Between(u64, u64),
    /// 0, or from the first to the second, both included.
    ZeroOr(u64, u64),
    /// Multiples of the first, from 0 up to the second.
    Multiples(u64, u64),
    /// Bytes: a whole number of MiB, from the first to the second number of MiB. The second is a multiple of 1024.
    Megabytes(u64, u64),
    /// These values, each with its name.
    Named(&'static [(u64, &'static str)]),
}

impl Values {
    /// Returns whether `value` is in range.
    pub fn take(self, value: u64) -> bool {
        match self {
            Self::Any => true,
            Self::Between(least, most) => (least..=most).contains(&value),
            Self::ZeroOr(least, most) => value == 0 || (least..=most).contains(&value),
            Self::Multiples(of, most) => value <= most && value.is_multiple_of(of),
            Self::Megabytes(least, most) => value.is_multiple_of(1 << 20) && (least..=most).contains(&(value >> 20)),
            Self::Named(named) => named.iter().any(|(known, _)| *known == value),
        }
    }
}

impl Display for Values {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Any => f.write_str("any number"),
            Self::Between(least, most) if least + 1 == *most => write!(f, "{least}, {most}"),
            Self::Between(least, most) => write!(f, "{least} to {most}"),
            Self::ZeroOr(least, most) => write!(f, "0, or {least} to {most}"),
            Self::Multiples(of, most) => write!(f, "multiples of {of} up to {most}"),
            Self::Megabytes(least, most) => write!(f, "{least} MiB to {} GiB, whole megabytes", most >> 10),
            Self::Named(named) => named
                .iter()
                .enumerate()
                .try_for_each(|(i, (value, name))| write!(f, "{}{value} {name}", if i == 0 { "" } else { ", " })),
        }
    }
}

/// A type that a member of the settings can have.
pub trait FromValue {
    /// Converts `value`, which [`Values::take`] accepted.
    fn from_value(value: u64) -> Self;
}

impl FromValue for u64 {
    fn from_value(value: u64) -> Self {
        value
    }
}

impl FromValue for u32 {
    fn from_value(value: u64) -> Self {
        // CAST: values of such settings have 32 bits.
        value as Self
    }
}

impl FromValue for bool {
    fn from_value(value: u64) -> Self {
        value != 0
    }
}

impl FromValue for Rung {
    fn from_value(value: u64) -> Self {
        Self::from_raw(u32::from_value(value)).unwrap_or(Self::Packet)
    }
}

impl FromValue for Model {
    fn from_value(value: u64) -> Self {
        Self::from_raw(u32::from_value(value)).unwrap_or(Self::Dedicated)
    }
}

impl FromValue for Barriers {
    fn from_value(value: u64) -> Self {
        if value == 1 { Self::OneInUpdate } else { Self::Two }
    }
}
