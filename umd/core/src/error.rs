//! What can go wrong, as one `Copy` value: what was attempted and how it was answered. Text is made on demand.
#![forbid(unsafe_code)]

use crate::thunks::Thunk;
use core::fmt;
use gpu_wire::packet::FaultKind;
use gpu_wire::ring::ALIGN;
use wddm_abi::ntstatus::{
    STATUS_CONNECTION_ABORTED, STATUS_DEVICE_BUSY, STATUS_DEVICE_REMOVED, STATUS_GRAPHICS_DRIVER_MISMATCH,
    STATUS_INVALID_BUFFER_SIZE, STATUS_INVALID_HANDLE, STATUS_INVALID_PARAMETER, STATUS_IO_TIMEOUT, STATUS_NO_MEMORY,
    STATUS_NO_SUCH_DEVICE, STATUS_NOT_SUPPORTED, STATUS_RETRY,
};
use wddm_abi::{D3DKMT_DEVICEEXECUTION_STATE, NTSTATUS};

/// What the engine wrote into the ring's control page before it stopped the queue. For messages; user mode can forge
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingFault {
    /// A [`FaultKind`] number.
    pub kind: u32,
    /// Position in the stream, in bytes.
    pub position: u64,
    /// The faulting GPU address, 0 where the fault is not of an address.
    pub address: u64,
}

/// Something that this adapter, device or queue cannot do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsupported {
    /// The rung has no native fences.
    NativeFences,
    /// A user-mode queue cannot wait for or signal a monitored fence.
    MonitoredFenceOnUserQueue,
    /// A packet context cannot execute native fence operations.
    NativeFenceOnPacketContext,
    /// The adapter or the node has no user-mode submission.
    UserModeSubmission,
    /// The memory is not visible to the CPU.
    CpuAccess,
    /// The object was not created to be shared.
    Sharing,
    /// The queue has no ring.
    Resize,
}

/// An error of the user-mode driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UmdError {
    /// A thunk was refused.
    Thunk {
        /// Which.
        thunk: Thunk,
        /// Its answer.
        status: NTSTATUS,
    },
    /// A thunk succeeded, but what it returned cannot be used: a missing address or a reply block that contradicts.
    BadReply {
        /// Which.
        thunk: Thunk,
    },
    /// gdi32 does not export a function that this path needs.
    NoExport {
        /// Which.
        thunk: Thunk,
    },
    /// No adapter of ours.
    NoAdapter,
    /// The kernel-mode driver speaks another version of the formats.
    InterfaceVersion {
        /// `gpu_wire::INTERFACE_VERSION` of the kernel-mode driver.
        kernel: u32,
        /// `gpu_wire::INTERFACE_VERSION` of this driver.
        user: u32,
    },
    /// It cannot be done here.
    NotSupported(Unsupported),
    /// An argument is wrong; the text says which.
    InvalidArgument(&'static str),
    /// A handle of the C ABI is null, of another kind, or destroyed.
    InvalidHandle,
    /// Another thread is using the command list.
    Busy,
    /// Out of memory.
    NoMemory,
    /// A command list does not fit the ring or the command buffer pool.
    ListTooLarge {
        /// Bytes that it would take.
        bytes: u64,
        /// Bytes that there may be.
        limit: u64,
    },
    /// The doorbell's status is ABORT, or it could not be connected: the queue is gone. Recreate it, if the device
    /// lives.
    QueueLost {
        /// State of the device when it was noticed.
        state: D3DKMT_DEVICEEXECUTION_STATE,
        /// What the engine reported, if it did.
        fault: Option<RingFault>,
    },
    /// The device is in error. Destroy it and what belongs to it, and create another.
    DeviceLost {
        /// Its state.
        state: D3DKMT_DEVICEEXECUTION_STATE,
    },
    /// The doorbell was disconnected again after every one of this many connects. The work is published; the next
    /// submission rings again.
    RetryLimit {
        /// Connects tried.
        attempts: u32,
    },
    /// Time ran out. What was waited for may still happen.
    Timeout,
}

impl UmdError {
    /// The status that the C ABI returns: always negative.
    pub const fn status(self) -> NTSTATUS {
        match self {
            Self::Thunk { status, .. } => status,
            Self::BadReply { .. } | Self::InterfaceVersion { .. } => STATUS_GRAPHICS_DRIVER_MISMATCH,
            Self::NoExport { .. } | Self::NotSupported(_) => STATUS_NOT_SUPPORTED,
            Self::NoAdapter => STATUS_NO_SUCH_DEVICE,
            Self::InvalidArgument(_) => STATUS_INVALID_PARAMETER,
            Self::InvalidHandle => STATUS_INVALID_HANDLE,
            Self::Busy => STATUS_DEVICE_BUSY,
            Self::NoMemory => STATUS_NO_MEMORY,
            Self::ListTooLarge { .. } => STATUS_INVALID_BUFFER_SIZE,
            Self::QueueLost { .. } => STATUS_CONNECTION_ABORTED,
            Self::DeviceLost { .. } => STATUS_DEVICE_REMOVED,
            Self::RetryLimit { .. } => STATUS_RETRY,
            Self::Timeout => STATUS_IO_TIMEOUT,
        }
    }
}

impl From<alloc::collections::TryReserveError> for UmdError {
    fn from(_: alloc::collections::TryReserveError) -> Self {
        Self::NoMemory
    }
}

impl Unsupported {
    const fn text(self) -> &'static str {
        match self {
            Self::NativeFences => "the adapter has no native fences",
            Self::MonitoredFenceOnUserQueue => "a user-mode queue cannot use a monitored fence",
            Self::NativeFenceOnPacketContext => "a packet context cannot use a native fence",
            Self::UserModeSubmission => "there is no user-mode submission here",
            Self::CpuAccess => "the memory is not visible to the CPU",
            Self::Sharing => "the object was not created to be shared",
            Self::Resize => "the queue has no ring: it submits through the kernel",
        }
    }
}

/// The state's name, without the prefix that all have.
fn state_name(state: D3DKMT_DEVICEEXECUTION_STATE) -> &'static str {
    state.name().map_or("unknown", |name| name.strip_prefix("D3DKMT_DEVICEEXECUTION_").unwrap_or(name))
}

impl fmt::Display for UmdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            // Numbers, not names: the table of all status names would make half of the image.
            Self::Thunk { thunk, status } => write!(f, "{} returned {status:#010x}", thunk.name()),
            Self::BadReply { thunk } => write!(f, "{} succeeded, but its answer cannot be used", thunk.name()),
            Self::NoExport { thunk } => write!(f, "gdi32 does not export {}", thunk.name()),
            Self::NoAdapter => f.write_str("there is no Fencepost adapter"),
            Self::InterfaceVersion { kernel, user } => write!(
                f,
                "the kernel-mode driver has interface version {kernel}, this user-mode driver has {user}: \
                 install both from one package"
            ),
            Self::NotSupported(what) => f.write_str(what.text()),
            Self::InvalidArgument(what) => write!(f, "invalid argument: {what}"),
            Self::InvalidHandle => f.write_str("not a live handle of this kind"),
            Self::Busy => f.write_str("another thread is using the command list"),
            Self::NoMemory => f.write_str("out of memory"),
            Self::ListTooLarge { bytes, limit } => {
                write!(f, "the command list takes {bytes} bytes, and {limit} is the limit (multiples of {ALIGN})")
            }
            Self::QueueLost { state, fault } => {
                write!(f, "the queue is lost, device state {}", state_name(state))?;
                let Some(fault) = fault else { return Ok(()) };
                let kind = FaultKind::from_raw(fault.kind).map_or("unknown fault", FaultKind::describe);
                write!(f, ": {kind} at stream position {:#x}", fault.position)?;
                if fault.address == 0 { Ok(()) } else { write!(f, ", GPU address {:#x}", fault.address) }
            }
            Self::DeviceLost { state } => write!(f, "the device is in error: {}", state_name(state)),
            Self::RetryLimit { attempts } => write!(f, "the doorbell was disconnected again after {attempts} connects"),
            Self::Timeout => f.write_str("timed out"),
        }
    }
}

impl core::error::Error for UmdError {}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;

    #[test]
    fn every_status_is_an_error_and_texts_name_what_was_attempted() {
        let thunk = Thunk::ConnectDoorbell;
        let state = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_HUNG;
        let fault = Some(RingFault { kind: FaultKind::Address.raw(), position: 0x40, address: 0x1000 });
        let cases = [
            (UmdError::Thunk { thunk, status: STATUS_NO_MEMORY }, "D3DKMTConnectDoorbell returned 0xc0000017"),
            (UmdError::BadReply { thunk }, "D3DKMTConnectDoorbell"),
            (UmdError::NoExport { thunk }, "does not export D3DKMTConnectDoorbell"),
            (UmdError::NoAdapter, "no Fencepost adapter"),
            (UmdError::InterfaceVersion { kernel: 7, user: 1 }, "version 7, this user-mode driver has 1"),
            (UmdError::NotSupported(Unsupported::Sharing), "shared"),
            (UmdError::InvalidArgument("size"), "size"),
            (UmdError::InvalidHandle, "handle"),
            (UmdError::Busy, "another thread"),
            (UmdError::NoMemory, "memory"),
            (UmdError::ListTooLarge { bytes: 5000, limit: 4096 }, "5000 bytes, and 4096"),
            (
                UmdError::QueueLost { state, fault },
                "HUNG: GPU address fault at stream position 0x40, GPU address 0x1000",
            ),
            (UmdError::DeviceLost { state }, "HUNG"),
            (UmdError::RetryLimit { attempts: 3 }, "3 connects"),
            (UmdError::Timeout, "timed out"),
        ];
        for (error, part) in cases {
            assert!(error.status().0 < 0, "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
