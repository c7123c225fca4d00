//! What a setting is: its name, the values it takes, its default, its meaning.

use core::fmt::{Display, Formatter, Result};
use gpu_engine::fence_log::Barriers;
use gpu_wire::doorbell::Model;
use gpu_wire::private::Rung;

/// A setting, as the documentation has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Name of the registry value.
    pub name: &'static str,
    /// What it is for.
    pub part: Part,
    /// Values that it takes.
    pub values: Values,
    /// The value that it has when the registry has none, or one that it does not take.
    pub default: u64,
    /// What it does, in words.
    pub meaning: &'static str,
}

/// What a setting is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// What the software GPU is like.
    Usual,
    /// An answer to the OS about which documents, or drivers known to start, disagree.
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
    /// Bytes: whole megabytes from the first to the second, which count megabytes; the second is whole gigabytes.
    Megabytes(u64, u64),
    /// These, each with its name.
    Named(&'static [(u64, &'static str)]),
}

impl Values {
    /// Whether `value` is among them.
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

/// A member of the settings, from a number that is within its values.
pub trait FromValue {
    /// The member.
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
