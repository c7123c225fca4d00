//! Errors, and the one place where they become NTSTATUS.
//!
//! Every DDI documents which statuses it may return; anything else is a bug check for some of them. So an error here
//! says what went wrong, and [`Error::status`] gives the status; DDIs that allow fewer have a function of their own.

use gpu_engine::NoMemory;
use wddm_abi::NTSTATUS;
use wddm_abi::ntstatus;

/// Why a DDI refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// A handle, size, flag or value that the caller may not pass.
    InvalidParameter,
    /// The allocator has nothing left.
    NoMemory,
    /// The other side speaks another version of the private interface.
    DriverMismatch,
    /// The adapter does not do this.
    NotSupported,
    /// A buffer is too small for the answer.
    BufferTooSmall,
    /// Buffers are too small for what is to be built (BuildTestCommandBuffer only): the record says how large they must
    /// be.
    BufferOverflow,
    /// More paging buffer is needed (BuildPagingBuffer only).
    InsufficientDmaBuffer,
    /// The device is not started, or is stopping.
    DeviceNotReady,
    /// An engine did not answer in time.
    Timeout,
    /// No physical doorbell could be had: the OS refused to disconnect any.
    DoorbellsExhausted,
    /// A callback of Dxgkrnl failed.
    Callback(NTSTATUS),
}

/// What functions of this crate return.
pub type Result<T> = core::result::Result<T, Error>;

impl Error {
    /// The status for DDIs that document "an appropriate NTSTATUS error code".
    pub const fn status(self) -> NTSTATUS {
        match self {
            Self::InvalidParameter => ntstatus::STATUS_INVALID_PARAMETER,
            Self::NoMemory => ntstatus::STATUS_NO_MEMORY,
            Self::DriverMismatch => ntstatus::STATUS_GRAPHICS_DRIVER_MISMATCH,
            Self::NotSupported => ntstatus::STATUS_NOT_SUPPORTED,
            // What `DxgkDdiQueryAdapterInfo` lists; nobody else has this error.
            Self::BufferTooSmall => ntstatus::STATUS_INVALID_PARAMETER,
            Self::BufferOverflow => ntstatus::STATUS_BUFFER_OVERFLOW,
            Self::InsufficientDmaBuffer => ntstatus::STATUS_GRAPHICS_INSUFFICIENT_DMA_BUFFER,
            Self::DeviceNotReady => ntstatus::STATUS_DEVICE_NOT_READY,
            Self::Timeout => ntstatus::STATUS_IO_TIMEOUT,
            Self::DoorbellsExhausted => ntstatus::STATUS_INSUFFICIENT_RESOURCES,
            Self::Callback(status) => status,
        }
    }
}

impl From<NoMemory> for Error {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

/// The status of a result without a value.
pub fn of(result: Result<()>) -> NTSTATUS {
    match result {
        Ok(()) => ntstatus::STATUS_SUCCESS,
        Err(error) => error.status(),
    }
}
