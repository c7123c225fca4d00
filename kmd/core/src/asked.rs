//! The OS's questions to an adapter before and while it started, and the driver's answers: a debugger that is attached
//! later does not show them. `StartDevice` prints them; the escape `START` returns them.

use crate::features::OURS;
use crate::plan::Plan;
use core::fmt::{Display, Formatter, Result};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use wddm_abi::{DXGK_FEATURE_ID, DXGK_QUERYADAPTERINFOTYPE};

/// Questions and answers from AddDevice on, never reset. Bits of features are in the order of [`OURS`]. Any IRQL.
#[derive(Default)]
pub struct Asked {
    features: AtomicU32,
    supported: AtomicU32,
    strangers: AtomicU32,
    queries: AtomicU64,
    refused: AtomicU64,
}

/// A copy of [`Asked`] at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Questions {
    /// A bit per feature of [`OURS`] that the OS asked the driver about.
    pub features: u32,
    /// A bit per feature of [`OURS`] that the driver last answered as supported.
    pub supported: u32,
    /// How many questions were about other features.
    pub strangers: u32,
    /// A bit per type below 64 that `DxgkDdiQueryAdapterInfo` was asked for.
    pub queries: u64,
    /// A bit per type below 64 that was refused at least once.
    pub refused: u64,
}

impl Asked {
    /// Notes that the OS asked about `feature` by `DxgkDdiQueryFeatureSupport`, and whether the driver answered that
    /// it supports it.
    pub fn feature(&self, feature: DXGK_FEATURE_ID, supported: bool) {
        let Some(bit) = OURS.iter().position(|known| *known == feature).map(|index| 1 << index) else {
            self.strangers.fetch_add(1, Ordering::Relaxed);
            return;
        };
        self.features.fetch_or(bit, Ordering::Relaxed);
        if supported {
            self.supported.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.supported.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Notes that the OS asked for type `kind` by `DxgkDdiQueryAdapterInfo`, and whether the driver refused.
    pub fn query(&self, kind: DXGK_QUERYADAPTERINFOTYPE, refused: bool) {
        let bit = bit_of(kind);
        self.queries.fetch_or(bit, Ordering::Relaxed);
        if refused {
            self.refused.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// A copy of what was noted until now.
    pub fn questions(&self) -> Questions {
        Questions {
            features: self.features.load(Ordering::Relaxed),
            supported: self.supported.load(Ordering::Relaxed),
            strangers: self.strangers.load(Ordering::Relaxed),
            queries: self.queries.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

/// The bit of type `kind` in [`Questions::queries`] and in the setting `RefuseQueries`; 0 for types from 64 on.
pub fn bit_of(kind: DXGK_QUERYADAPTERINFOTYPE) -> u64 {
    u32::try_from(kind.0).ok().and_then(|kind| 1u64.checked_shl(kind)).unwrap_or(0)
}

/// Prints each feature of [`OURS`] in words: whether the OS asked the driver, what the driver answered, whether the OS
/// granted it and in which version.
pub struct Features<'a>(pub Questions, pub &'a Plan);

impl Display for Features<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let names = ["hardware scheduling", "native fences", "user-mode submission", "kernel-mode testing"];
        for (index, (name, granted)) in names.iter().zip(self.1.granted).enumerate() {
            let bit = 1 << index;
            let answer = match (self.0.features & bit != 0, self.0.supported & bit != 0) {
                (false, _) => "not asked",
                (true, true) => "answered yes",
                (true, false) => "answered no",
            };
            let comma = if index == 0 { "" } else { "; " };
            match granted.enabled {
                true => write!(f, "{comma}{name} {answer}, granted in version {}", granted.version)?,
                false => write!(f, "{comma}{name} {answer}, not granted")?,
            }
        }
        Ok(())
    }
}
