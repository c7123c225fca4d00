//! Priorities that clients give their contexts, and what they are for the driver or for the model's own scheduler.
//!
//! | value | of a hardware context | of a packet context |
//! |---|---|---|
//! | relative, -6 to 7 | normal band, `inProcessPriority` | goes before lower ones, those of other processes, too |
//! | relative, -7; absolute, 0 | idle band | goes behind all others, without a share |
//! | absolute, 1 | normal band | as relative, 0 |
//! | absolute, 16 to 30 | real-time band, `realtimeBandPriorityLevel` | goes before all that are lower |
//! | in-process, 1 | `inProcessPriority` 7 | among its process's of one priority, first |
//!
//! Source: d3dkmthk.h, D3DKMT_SETCONTEXTSCHEDULINGPRIORITY_ABSOLUTE; pages D3DKMTSetContextSchedulingPriority,
//! D3DKMT_SETCONTEXTINPROCESSSCHEDULINGPRIORITY (0 or 1), IDXGIDevice::SetGPUThreadPriority (the values and their
//! meaning), DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES (ranges; the focus and real-time bands need
//! SE_INC_BASE_PRIORITY_NAME).
//!
//! Chosen: a relative value of a hardware context is its priority within its process, which has the same range; an
//! in-process priority of 1 is the highest there; -7, which the page calls idle, is the idle band. What is reserved or
//! for internal use (absolute 2 to 15, 31, bits 5 to 29) is no parameter; without the privilege the answer is
//! STATUS_PRIVILEGE_NOT_HELD. The packet scheduler's share for lower contexts is that of the normal band.

use wddm_abi::{
    D3DKMT_SETCONTEXTSCHEDULINGPRIORITY_ABSOLUTE, DXGK_SCHEDULING_PRIORITY_BAND,
    DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES, NTSTATUS, ntstatus,
};

/// The idle priority among relative ones.
const IDLE: i32 = -7;
/// The highest relative one, and the highest within a process.
const HIGHEST: i32 = 7;
/// The lowest absolute one of the real-time band.
const REAL_TIME: i32 = 16;

/// What clients have set of a context.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Priority {
    /// As `D3DKMTSetContextSchedulingPriority` takes it.
    pub(crate) scheduling: i32,
    /// As `D3DKMTSetContextInProcessSchedulingPriority` takes it.
    pub(crate) in_process: i32,
}

/// A scheduling priority's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    Idle,
    /// -6 to 7.
    Normal(i32),
    /// 16 to 30.
    RealTime(i32),
}

impl Standing {
    /// The meaning of a value; `None`: it has none.
    fn of(value: i32) -> Option<Self> {
        // CAST: a flag, below the sign.
        let flag = D3DKMT_SETCONTEXTSCHEDULINGPRIORITY_ABSOLUTE as i32;
        let is_absolute = value >= 0 && value & flag != 0;
        match (is_absolute, if is_absolute { value & !flag } else { value }) {
            (false, IDLE) | (true, 0) => Some(Self::Idle),
            (true, 1) => Some(Self::Normal(0)),
            (true, level @ REAL_TIME..=30) => Some(Self::RealTime(level)),
            (false, value @ IDLE..=HIGHEST) => Some(Self::Normal(value)),
            _ => None,
        }
    }
}

impl Priority {
    /// Checks a value for `D3DKMTSetContextSchedulingPriority`; `may_raise`: the process has the privilege.
    ///
    /// # Errors
    /// STATUS_INVALID_PARAMETER for a value without a meaning, STATUS_PRIVILEGE_NOT_HELD.
    pub(crate) fn check_scheduling(value: i32, may_raise: bool) -> Result<(), NTSTATUS> {
        match Standing::of(value) {
            None => Err(ntstatus::STATUS_INVALID_PARAMETER),
            Some(Standing::RealTime(_)) if !may_raise => Err(ntstatus::STATUS_PRIVILEGE_NOT_HELD),
            Some(_) => Ok(()),
        }
    }

    /// Checks a value for `D3DKMTSetContextInProcessSchedulingPriority`.
    ///
    /// # Errors
    /// STATUS_INVALID_PARAMETER.
    pub(crate) fn check_in_process(value: i32) -> Result<(), NTSTATUS> {
        if (0..=1).contains(&value) { Ok(()) } else { Err(ntstatus::STATUS_INVALID_PARAMETER) }
    }

    /// Returns whether both are what a context begins with.
    pub(crate) fn is_usual(&self) -> bool {
        self.scheduling == 0 && self.in_process == 0
    }

    /// The scheduling priority's meaning.
    pub(crate) fn standing(&self) -> Standing {
        // What is stored was checked.
        Standing::of(self.scheduling).unwrap_or(Standing::Normal(0))
    }

    /// Stores it for the driver.
    pub(crate) fn store(&self, properties: &mut DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES) {
        use DXGK_SCHEDULING_PRIORITY_BAND as Band;
        let (band, level, within) = match self.standing() {
            Standing::Idle => (Band::DXGK_SCHEDULING_PRIORITY_BAND_IDLE, 0, 0),
            Standing::Normal(value) => (Band::DXGK_SCHEDULING_PRIORITY_BAND_NORMAL, 0, value),
            Standing::RealTime(level) => (Band::DXGK_SCHEDULING_PRIORITY_BAND_REALTIME, level, 0),
        };
        properties.priorityBand = band;
        properties.realtimeBandPriorityLevel = level;
        properties.inProcessPriority = if self.in_process == 0 { within } else { HIGHEST };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_mean_what_the_page_says() {
        const ABSOLUTE: i32 = 1 << 30;
        let standing = |value| Standing::of(value);
        assert_eq!(standing(0), Some(Standing::Normal(0)));
        assert_eq!(standing(-7), Some(Standing::Idle));
        assert_eq!(standing(-6), Some(Standing::Normal(-6)));
        assert_eq!(standing(7), Some(Standing::Normal(7)));
        assert_eq!(standing(ABSOLUTE), Some(Standing::Idle));
        assert_eq!(standing(ABSOLUTE | 1), Some(Standing::Normal(0)));
        assert_eq!(standing(ABSOLUTE | 16), Some(Standing::RealTime(16)));
        assert_eq!(standing(ABSOLUTE | 30), Some(Standing::RealTime(30)));
        for none in [-8, 8, i32::MIN, i32::MAX, ABSOLUTE | 2, ABSOLUTE | 15, ABSOLUTE | 31, ABSOLUTE | 32, i32::MIN | 1]
        {
            assert_eq!(standing(none), None, "{none:#x}");
        }
        assert!(Standing::Idle < Standing::Normal(-6) && Standing::Normal(7) < Standing::RealTime(16));
    }
}
