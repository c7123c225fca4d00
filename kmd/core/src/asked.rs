//! What the OS asked of an adapter before and while it started, and what it was told: the half of a start that no debugger
//! shows afterwards. The start line prints it, the escape `START` answers it.

use crate::features::OURS;
use crate::plan::Plan;
use core::fmt::{Display, Formatter, Result};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use wddm_abi::{DXGK_FEATURE_ID, DXGK_QUERYADAPTERINFOTYPE};

/// Questions and answers, from AddDevice to RemoveDevice. Bits of features are in the order of [`OURS`].
#[derive(Default)]
pub struct Asked {
    features: AtomicU32,
    supported: AtomicU32,
    strangers: AtomicU32,
    queries: AtomicU64,
    refused: AtomicU64,
}

/// What was asked and told until now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Questions {
    /// A bit per feature of ours that the OS asked the driver about.
    pub features: u32,
    /// Those that were last answered as supported.
    pub supported: u32,
    /// Questions about features that mean nothing here.
    pub strangers: u32,
    /// A bit per type below 64 that `DxgkDdiQueryAdapterInfo` was asked for.
    pub queries: u64,
    /// Those that were refused at least once.
    pub refused: u64,
}

impl Asked {
    /// The OS asked about a feature.
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

    /// The OS asked by `DxgkDdiQueryAdapterInfo`.
    pub fn query(&self, kind: DXGK_QUERYADAPTERINFOTYPE, refused: bool) {
        let bit = bit_of(kind);
        self.queries.fetch_or(bit, Ordering::Relaxed);
        if refused {
            self.refused.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Everything until now.
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

/// The bit of a type; 0 for types from 64 on.
pub fn bit_of(kind: DXGK_QUERYADAPTERINFOTYPE) -> u64 {
    u32::try_from(kind.0).ok().and_then(|kind| 1u64.checked_shl(kind)).unwrap_or(0)
}

/// Features in words: asked or not, as what it was answered, what the OS granted.
pub struct Features<'a>(pub Questions, pub &'a Plan);

impl Display for Features<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let names = ["hardware scheduling", "native fences", "user-mode submission"];
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
