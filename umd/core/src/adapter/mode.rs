//! The decision how work is submitted: a function of what the KMD, the OS and gdi32 say.
//!
//! Source: *User-mode work submission*, "Discover user-mode work submission support"; for the doorbell calls that
//! changed under the same names, `d3dkmthk.h` of the SDK 10.0.28000 (`wddm_abi::kit_28000`, `abi/facts/remarks.tsv`).
#![forbid(unsafe_code)]

use crate::thunks::Thunk;
use gpu_wire::private::Rung;
use wddm_abi::{D3DKMT_NODEMETADATA, DXGK_ENGINE_TYPE};

/// Where gdi32 has this export, a doorbell belongs to the queue, and `D3DKMTConnectDoorbell` takes another record.
pub const NEWER_DOORBELLS: &str = "D3DKMTCreateHwQueueForUserModeSubmission";

/// How work reaches a node, from the oldest way to the newest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub enum Mode {
    /// Packet contexts: `D3DKMTSubmitCommand`.
    Packet = 0,
    /// Hardware queues, submitted to by `D3DKMTSubmitCommandToHwQueue`.
    KernelMode = 1,
    /// Hardware queues, submitted to by ring and doorbell.
    UserMode = 2,
}

impl Mode {
    /// The mode with this number.
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            0 => Some(Self::Packet),
            1 => Some(Self::KernelMode),
            2 => Some(Self::UserMode),
            _ => None,
        }
    }
}

/// Why there is no user-mode submission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fallback {
    /// There is.
    None,
    /// The KMD negotiated no more than this rung with the OS.
    Rung(Rung),
    /// Hardware scheduling is off, whatever the rung says.
    SchedulingOff,
    /// The OS exposes no native fences, whatever the rung says.
    NativeFencesOff,
    /// gdi32 has the doorbell calls of a later kit: `D3DKMTCreateHwQueueForUserModeSubmission` is there, so
    /// `D3DKMTConnectDoorbell` is not the one that we know.
    NewerDoorbells,
    /// gdi32 lacks a call that is needed.
    NoExport(Thunk),
    /// The application asked for less.
    Requested,
}

impl Fallback {
    /// Number for the C ABI.
    pub const fn raw(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Rung(_) => 1,
            Self::SchedulingOff => 2,
            Self::NativeFencesOff => 3,
            Self::NewerDoorbells => 4,
            Self::NoExport(_) => 5,
            Self::Requested => 6,
        }
    }

    /// In words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::None => "user-mode submission is on",
            Self::Rung(Rung::Packet) => "the driver negotiated packet mode only",
            Self::Rung(Rung::HardwareQueues) => "the driver negotiated hardware queues without native fences",
            Self::Rung(_) => "the driver negotiated native fences without user-mode submission",
            Self::SchedulingOff => "hardware scheduling is off on this system",
            Self::NativeFencesOff => "this system exposes no native fences",
            Self::NewerDoorbells => {
                "gdi32 exports D3DKMTCreateHwQueueForUserModeSubmission: its doorbells are not those of 24H2"
            }
            Self::NoExport(_) => "gdi32 lacks a function of 24H2",
            Self::Requested => "the application asked for kernel-mode submission",
        }
    }
}

/// What the decision rests on.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// `AdapterInfo::rung`.
    pub rung: Rung,
    /// `WDDM_2_7_CAPS::HwSchEnabled`.
    pub scheduling: bool,
    /// `WDDM_3_1_CAPS::NativeGpuFenceSupported`.
    pub native_fences: bool,
    /// gdi32 exports [`NEWER_DOORBELLS`].
    pub newer_doorbells: bool,
    /// An optional thunk that gdi32 does not export.
    pub missing_export: Option<Thunk>,
}

impl Caps {
    /// Whether fences are native: the KMD has them, the OS exposes them, the calls are there.
    pub fn has_native_fences(&self) -> bool {
        let exported =
            !matches!(self.missing_export, Some(Thunk::CreateNativeFence | Thunk::OpenNativeFenceFromNtHandle));
        self.rung >= Rung::NativeFences && self.scheduling && self.native_fences && exported
    }
}

/// The highest mode that everybody agrees on, at most `highest`, and why it is not user-mode submission.
pub fn decide(caps: &Caps, highest: Mode) -> (Mode, Fallback) {
    let (mode, why) = if caps.rung < Rung::HardwareQueues {
        (Mode::Packet, Fallback::Rung(caps.rung))
    } else if !caps.scheduling {
        (Mode::Packet, Fallback::SchedulingOff)
    } else if caps.rung < Rung::UserModeSubmission {
        (Mode::KernelMode, Fallback::Rung(caps.rung))
    } else if !caps.native_fences {
        (Mode::KernelMode, Fallback::NativeFencesOff)
    } else if caps.newer_doorbells {
        (Mode::KernelMode, Fallback::NewerDoorbells)
    } else if let Some(thunk) = caps.missing_export {
        (Mode::KernelMode, Fallback::NoExport(thunk))
    } else {
        (Mode::UserMode, Fallback::None)
    };
    if mode > highest { (highest, Fallback::Requested) } else { (mode, why) }
}

/// A node, as its metadata describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeInfo {
    /// Kind of engine.
    pub engine: DXGK_ENGINE_TYPE,
    /// How work reaches it on this adapter.
    pub mode: Mode,
    /// `DXGK_NODEMETADATA_FLAGS`, as the OS reports them.
    pub flags: u32,
}

/// The OS lets user mode create hardware queues on nodes with `ContextSchedulingSupported`, and user-mode queues and
/// doorbells on nodes with `UserModeSubmission`, only.
pub fn node_info(adapter: Mode, metadata: &D3DKMT_NODEMETADATA) -> NodeInfo {
    let data = metadata.NodeData;
    let flags = data.Flags;
    let mode = match adapter {
        Mode::UserMode if flags.UserModeSubmission() && flags.ContextSchedulingSupported() => Mode::UserMode,
        Mode::UserMode | Mode::KernelMode if flags.ContextSchedulingSupported() => Mode::KernelMode,
        _ => Mode::Packet,
    };
    NodeInfo { engine: data.EngineType, mode, flags: flags.Value }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Caps = Caps {
        rung: Rung::UserModeSubmission,
        scheduling: true,
        native_fences: true,
        newer_doorbells: false,
        missing_export: None,
    };

    #[test]
    fn each_missing_piece_lowers_the_mode_and_is_named() {
        let decide = |caps| super::decide(&caps, Mode::UserMode);
        assert_eq!(decide(ALL), (Mode::UserMode, Fallback::None));
        for rung in [Rung::HardwareQueues, Rung::NativeFences] {
            assert_eq!(decide(Caps { rung, ..ALL }), (Mode::KernelMode, Fallback::Rung(rung)));
        }
        assert_eq!(decide(Caps { rung: Rung::Packet, ..ALL }), (Mode::Packet, Fallback::Rung(Rung::Packet)));
        assert_eq!(decide(Caps { scheduling: false, ..ALL }), (Mode::Packet, Fallback::SchedulingOff));
        assert_eq!(decide(Caps { native_fences: false, ..ALL }), (Mode::KernelMode, Fallback::NativeFencesOff));
        assert_eq!(decide(Caps { newer_doorbells: true, ..ALL }), (Mode::KernelMode, Fallback::NewerDoorbells));
        let thunk = Thunk::ConnectDoorbell;
        let lacking = Caps { missing_export: Some(thunk), ..ALL };
        assert_eq!(decide(lacking), (Mode::KernelMode, Fallback::NoExport(thunk)));
        assert_eq!(super::decide(&ALL, Mode::KernelMode), (Mode::KernelMode, Fallback::Requested));
        let packet = Caps { rung: Rung::Packet, ..ALL };
        assert_eq!(super::decide(&packet, Mode::KernelMode), (Mode::Packet, Fallback::Rung(Rung::Packet)));
    }

    #[test]
    fn native_fences_need_the_driver_the_system_and_the_calls() {
        assert!(ALL.has_native_fences());
        assert!(Caps { missing_export: Some(Thunk::CreateDoorbell), ..ALL }.has_native_fences());
        assert!(!Caps { missing_export: Some(Thunk::CreateNativeFence), ..ALL }.has_native_fences());
        assert!(!Caps { native_fences: false, ..ALL }.has_native_fences());
        assert!(!Caps { rung: Rung::HardwareQueues, ..ALL }.has_native_fences());
    }

    #[test]
    fn a_node_is_used_as_its_flags_allow() {
        let mut metadata = D3DKMT_NODEMETADATA::zeroed();
        assert_eq!(node_info(Mode::UserMode, &metadata).mode, Mode::Packet);
        metadata.NodeData.Flags = metadata.NodeData.Flags.with_ContextSchedulingSupported(true);
        assert_eq!(node_info(Mode::UserMode, &metadata).mode, Mode::KernelMode);
        assert_eq!(node_info(Mode::Packet, &metadata).mode, Mode::Packet);
        metadata.NodeData.Flags = metadata.NodeData.Flags.with_UserModeSubmission(true);
        assert_eq!(node_info(Mode::UserMode, &metadata).mode, Mode::UserMode);
        assert_eq!(node_info(Mode::KernelMode, &metadata).mode, Mode::KernelMode);
    }
}
