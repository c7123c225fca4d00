//! Packets: what a ring, a command buffer or a paging buffer holds (SPEC §5).
//!
//! A packet is an 8-byte header and a body, little-endian, a multiple of 8 bytes, at an 8-byte boundary of the stream.
//! [`Packet::decode`] takes a private copy of exactly one packet and gives back a value; there is no other way from
//! bytes to an operation. Unknown opcodes, lengths and operand shapes are a [`FaultKind`], never ignored.

mod encoded;

pub use self::encoded::Encoded;

use crate::GpuVa;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a header.
pub const HEADER_SIZE: usize = 8;
/// Largest packet other than NOP, in bytes: what the engine's private copy holds.
pub const MAX_SIZE: usize = 256;
/// Largest NOP, in bytes. Its body is never read.
pub const MAX_NOP_SIZE: u32 = 1 << 20;
/// Page table entries that one [`TableWrite`] carries at most.
pub const MAX_TABLE_ENTRIES: usize = (MAX_SIZE - HEADER_SIZE - size_of::<TableWrite>()) / 8;
/// Largest command buffer an INDIRECT packet may name, in bytes.
pub const MAX_INDIRECT_SIZE: u64 = 16 << 20;

/// Operation codes. Values at and above 0x80 are for paging buffers only.
pub mod opcode {
    /// Skips its length. Padding.
    pub const NOP: u16 = 0x00;
    /// Stores 4 or 8 bytes. Never notifies anyone.
    pub const STORE: u16 = 0x01;
    /// Fills bytes with a 32-bit pattern.
    pub const FILL: u16 = 0x02;
    /// Copies bytes between ranges that do not overlap.
    pub const COPY: u16 = 0x03;
    /// Copies rows.
    pub const COPY_RECT: u16 = 0x04;
    /// Convolves a rectangle of RGBA8 with a 3×3 kernel.
    pub const FILTER_RECT: u16 = 0x05;
    /// Waits until a native fence reached a value; parks the queue, not the engine.
    pub const FENCE_WAIT: u16 = 0x10;
    /// Stores a native fence's CurrentValue and leaves a notification pending.
    pub const FENCE_SIGNAL: u16 = 0x11;
    /// Writes an entry of the fence log and resolves the pending notification.
    pub const LOG: u16 = 0x12;
    /// Stores the GPU clock.
    pub const TIMESTAMP: u16 = 0x13;
    /// Jumps to a command buffer. There is no stack: inside a command buffer it replaces it.
    pub const INDIRECT: u16 = 0x14;
    /// Stores a monitored fence's value and raises the monitored-fence interrupt.
    pub const MONITORED_SIGNAL: u16 = 0x15;
    /// FENCE_WAIT and its LOG in one.
    pub const FENCE_WAIT_LOGGED: u16 = 0x16;
    /// FENCE_SIGNAL and its LOG in one.
    pub const FENCE_SIGNAL_LOGGED: u16 = 0x17;
    /// FENCE_SIGNAL to the progress fence of the queue, and its LOG, in one.
    pub const PROGRESS: u16 = 0x18;
    /// Paging: writes page table entries.
    pub const TABLE_WRITE: u16 = 0x80;
    /// Paging: drops cached translations of a process and waits until no engine uses them.
    pub const TLB_FLUSH: u16 = 0x81;
    /// Paging: copies page table entries between tables that the packet's address space shows.
    pub const TABLE_COPY: u16 = 0x82;
}

/// Values of [`Header::flags`].
pub mod flags {
    /// STORE: 4 bytes instead of 8.
    pub const STORE_32: u16 = 1;
    /// TABLE_WRITE: one entry follows and is written to every slot.
    pub const TABLE_REPEAT: u16 = 1;
}

/// What is wrong with a packet or with what it named. The number is what the ring's control page and debug blobs show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum FaultKind {
    /// The opcode is not known.
    BadOpcode = 1,
    /// The length does not fit the opcode, is not a multiple of 8, or runs past what was published.
    BadLength = 2,
    /// A flag that the opcode does not have.
    BadFlags = 3,
    /// An operand is misaligned, out of the 48-bit space, or two ranges overlap.
    BadOperand = 4,
    /// Not permitted here: the opcode is for paging buffers, or the signal for another node.
    NotPermitted = 5,
    /// No translation, or a store to a read-only page.
    Address = 6,
    /// The published write pointer cannot be true.
    BadWritePointer = 7,
    /// The address is not that of a fence that this process has open.
    UnknownFence = 8,
    /// A LOG packet that does not follow a wait or signal, or names an unknown operation.
    BadLog = 9,
    /// Nothing runs any more: the kernel-mode driver stopped the adapter.
    AdapterStopped = 10,
}

impl FaultKind {
    /// All kinds, in order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::BadOpcode,
        Self::BadLength,
        Self::BadFlags,
        Self::BadOperand,
        Self::NotPermitted,
        Self::Address,
        Self::BadWritePointer,
        Self::UnknownFence,
        Self::BadLog,
        Self::AdapterStopped,
    ];

    /// The kind with this number.
    pub fn from_raw(raw: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.raw() == raw)
    }

    /// The number.
    pub const fn raw(self) -> u32 {
        self as u32
    }

    /// In words, for messages.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::BadOpcode => "unknown opcode",
            Self::BadLength => "bad packet length",
            Self::BadFlags => "unknown packet flag",
            Self::BadOperand => "bad operand",
            Self::NotPermitted => "packet reserved to paging buffers",
            Self::Address => "GPU address fault",
            Self::BadWritePointer => "impossible write pointer",
            Self::UnknownFence => "address is not a fence of this process",
            Self::BadLog => "bad log packet",
            Self::AdapterStopped => "the adapter was stopped",
        }
    }
}

/// First 8 bytes of every packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// One of [`opcode`].
    pub opcode: u16,
    /// Of [`flags`]; unknown bits fault.
    pub flags: u16,
    /// Bytes of the packet, header included; a multiple of 8.
    pub length: u32,
}

macro_rules! body {
    ($(#[$doc:meta])* $name:ident, $opcode:ident, $bytes:literal { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $name { $($(#[$fdoc])* pub $field: $type,)* }

        const _: () = assert!(size_of::<$name>() == $bytes && size_of::<$name>() % 8 == 0);

        impl $name {
            /// The packet's bytes with no flags set.
            pub fn to_packet(self) -> Encoded {
                Encoded::new(opcode::$opcode, 0, self.as_bytes())
            }
        }
    };
}

body! {
    /// STORE: `value` at `address`, which is aligned to its width.
    Store, STORE, 16 {
        /// GPU address, aligned to 8 (4 with [`flags::STORE_32`]).
        address: u64,
        /// The value; its low half with [`flags::STORE_32`].
        value: u64,
    }
}
body! {
    /// FILL: `length` bytes from `address`.
    Fill, FILL, 24 {
        /// GPU address, aligned to 4.
        address: u64,
        /// Bytes, a multiple of 4.
        length: u64,
        /// Written to every 4 bytes.
        pattern: u32,
        /// Zero.
        reserved: u32,
    }
}
body! {
    /// COPY: `length` bytes. The ranges must not overlap.
    Copy, COPY, 24 {
        /// GPU address.
        source: u64,
        /// GPU address.
        destination: u64,
        /// Bytes.
        length: u64,
    }
}
body! {
    /// COPY_RECT: `rows` rows of `row_bytes`. The spanned ranges must not overlap.
    CopyRect, COPY_RECT, 32 {
        /// GPU address of the first source row.
        source: u64,
        /// GPU address of the first destination row.
        destination: u64,
        /// Bytes from one source row to the next, at least `row_bytes`.
        source_pitch: u32,
        /// Bytes from one destination row to the next, at least `row_bytes`.
        destination_pitch: u32,
        /// Bytes of a row.
        row_bytes: u32,
        /// Rows.
        rows: u32,
    }
}
body! {
    /// FILTER_RECT: for every pixel of a rectangle, the 3×3 sum of its neighbours' colour times the coefficients,
    /// shifted right and biased, each channel clamped to 0..=255; alpha is the source's. Neighbours outside the image
    /// are those of its nearest edge pixel. Pixels are 4 bytes; channels 0–2 are filtered.
    FilterRect, FILTER_RECT, 72 {
        /// GPU address of pixel (0, 0) of the source image, aligned to 4.
        source: u64,
        /// GPU address of pixel (0, 0) of the destination image, aligned to 4. Must not overlap the source.
        destination: u64,
        /// Bytes per source row, a multiple of 4.
        source_pitch: u32,
        /// Bytes per destination row, a multiple of 4.
        destination_pitch: u32,
        /// Pixels per row of both images.
        image_width: u32,
        /// Rows of both images.
        image_height: u32,
        /// First column of the rectangle.
        x: u32,
        /// First row of the rectangle.
        y: u32,
        /// Columns of the rectangle.
        width: u32,
        /// Rows of the rectangle.
        height: u32,
        /// Row-major coefficients, −1024..=1024.
        coefficients: [i16; 9],
        /// Added after the shift, −256..=256.
        bias: i16,
        /// Right shift of the sum, 0..=16 (arithmetic).
        shift: u16,
        /// Zero.
        reserved: u16,
    }
}
body! {
    /// FENCE_WAIT and FENCE_SIGNAL: the fence whose CurrentValue this process has mapped at `fence`.
    Fence, FENCE_SIGNAL, 16 {
        /// GPU address of CurrentValue, aligned to 8.
        fence: u64,
        /// Value to wait for, or to store.
        value: u64,
    }
}
body! {
    /// LOG: payload of a log entry, directly after the FENCE_WAIT or FENCE_SIGNAL that it describes.
    Log, LOG, 24 {
        /// The user's D3DKMT handle of the fence; copied, never resolved.
        fence_handle: u32,
        /// One of [`log_operation`].
        operation: u32,
        /// Fence value of the operation; copied.
        value: u64,
        /// The entry that the producer believes to be next. A hint: the engine's own count decides.
        index_hint: u32,
        /// Zero.
        reserved: u32,
    }
}
body! {
    /// FENCE_WAIT_LOGGED and FENCE_SIGNAL_LOGGED: a [`Fence`] operation with what its [`Log`] says.
    FenceLogged, FENCE_SIGNAL_LOGGED, 24 {
        /// GPU address of CurrentValue, aligned to 8.
        fence: u64,
        /// Value to wait for, or to store; the entry's, too.
        value: u64,
        /// As in [`Log`].
        fence_handle: u32,
        /// As in [`Log`].
        index_hint: u32,
    }
}
body! {
    /// PROGRESS: the signal that ends a submission, with what its [`Log`] says. The fence is the queue's own.
    Progress, PROGRESS, 16 {
        /// Value to store; the entry's, too.
        value: u64,
        /// As in [`Log`].
        fence_handle: u32,
        /// As in [`Log`].
        index_hint: u32,
    }
}
body! {
    /// TIMESTAMP: the GPU clock at `address`.
    Timestamp, TIMESTAMP, 8 {
        /// GPU address, aligned to 8.
        address: u64,
    }
}
body! {
    /// INDIRECT: go on at `address` for `length` bytes; then with the ring packet after the one that left the ring.
    Indirect, INDIRECT, 16 {
        /// GPU address, aligned to 8.
        address: u64,
        /// Bytes, a multiple of 8, at most [`MAX_INDIRECT_SIZE`].
        length: u64,
    }
}
body! {
    /// MONITORED_SIGNAL: stores `value` at `address` and raises the monitored-fence interrupt.
    MonitoredSignal, MONITORED_SIGNAL, 16 {
        /// GPU address of the fence's value, aligned to 8.
        address: u64,
        /// Value to store.
        value: u64,
    }
}
body! {
    /// TABLE_WRITE: entries `first..first + count` of a table; the entries follow the body.
    TableWrite, TABLE_WRITE, 16 {
        /// The table, as [`crate::pte::Pte::table`] writes it.
        table: u64,
        /// Index of the first entry.
        first: u32,
        /// Entries written.
        count: u32,
    }
}
body! {
    /// TLB_FLUSH: drops the translations of a process in `start..end`, and one that begins at `end`; all of the process
    /// when `start` and `end` are zero.
    TlbFlush, TLB_FLUSH, 24 {
        /// The engine's number of the process, [`EVERY_PROCESS`] or [`OWN_PROCESS`].
        process: u64,
        /// First address.
        start: u64,
        /// Address after the last.
        end: u64,
    }
}

body! {
    /// TABLE_COPY: `count` entries, as if all were read before the first is written: the ranges may overlap. Each lies
    /// within one page table.
    TableCopy, TABLE_COPY, 24 {
        /// GPU address of the first entry to read, aligned to 8.
        source: u64,
        /// GPU address of the first entry to write, aligned to 8.
        destination: u64,
        /// Entries.
        count: u32,
        /// Zero.
        reserved: u32,
    }
}

/// In a [`TlbFlush`]: every process.
pub const EVERY_PROCESS: u64 = 0;
/// In a [`TlbFlush`]: the process that the packet runs for. The paging process stands for every process.
pub const OWN_PROCESS: u64 = u64::MAX;

/// Operations of a [`Log`] packet. Source: `DXGK_NATIVE_FENCE_LOG_OPERATION` (d3dukmdt.h).
pub mod log_operation {
    /// `DXGK_NATIVE_FENCE_LOG_OPERATION_SIGNAL_EXECUTED`.
    pub const SIGNAL_EXECUTED: u32 = 0;
    /// `DXGK_NATIVE_FENCE_LOG_OPERATION_WAIT_UNBLOCKED`.
    pub const WAIT_UNBLOCKED: u32 = 1;
}

/// A decoded packet: shape proved, contents alleged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packet<'a> {
    /// Padding.
    Nop,
    /// 8 bytes.
    Store(Store),
    /// 4 bytes.
    Store32(Store),
    /// Fill.
    Fill(Fill),
    /// Copy.
    Copy(Copy),
    /// Copy of rows.
    CopyRect(CopyRect),
    /// 3×3 convolution.
    FilterRect(FilterRect),
    /// Wait.
    FenceWait(Fence),
    /// Signal.
    FenceSignal(Fence),
    /// Log entry.
    Log(Log),
    /// GPU clock.
    Timestamp(Timestamp),
    /// Jump.
    Indirect(Indirect),
    /// Monitored fence.
    MonitoredSignal(MonitoredSignal),
    /// Wait with its log entry.
    FenceWaitLogged(FenceLogged),
    /// Signal with its log entry.
    FenceSignalLogged(FenceLogged),
    /// Signal of the progress fence with its log entry.
    Progress(Progress),
    /// Page table entries: 8 bytes each, little-endian.
    TableWrite(TableWrite, Entries<'a>),
    /// TLB flush.
    TlbFlush(TlbFlush),
    /// Copy of page table entries.
    TableCopy(TableCopy),
}

/// The entries of a [`TableWrite`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entries<'a> {
    bytes: &'a [u8],
    repeat: bool,
}

impl Entries<'_> {
    /// Entry for the `i`-th slot written.
    pub fn get(&self, i: u32) -> Option<crate::pte::Pte> {
        let at = if self.repeat { 0 } else { i as usize * 8 };
        let bytes = self.bytes.get(at..at + 8)?;
        Some(crate::pte::Pte(u64::from_le_bytes(bytes.try_into().ok()?)))
    }
}

/// Who wrote the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Privilege {
    /// User mode: opcodes at and above 0x80 fault.
    User,
    /// The kernel-mode driver, for a paging buffer.
    Paging,
}

impl Header {
    /// The header in the first 8 bytes of `bytes`.
    pub fn read(bytes: &[u8; HEADER_SIZE]) -> Self {
        zerocopy::transmute!(*bytes)
    }

    /// Checks the length against the opcode-independent limits and against `available` published bytes.
    ///
    /// # Errors
    /// [`FaultKind::BadLength`].
    pub fn check_length(self, available: u64) -> Result<u64, FaultKind> {
        let limit = if self.opcode == opcode::NOP { MAX_NOP_SIZE } else { MAX_SIZE as u32 };
        // CAST: MAX_SIZE is 256.
        if (self.length as usize) < HEADER_SIZE
            || !self.length.is_multiple_of(8)
            || self.length > limit
            || u64::from(self.length) > available
        {
            return Err(FaultKind::BadLength);
        }
        Ok(self.length.into())
    }
}

impl<'a> Packet<'a> {
    /// Decodes one packet from a private copy of exactly its bytes (for NOP: at least its header).
    ///
    /// # Errors
    /// The [`FaultKind`] that the queue faults with.
    pub fn decode(bytes: &'a [u8], privilege: Privilege) -> Result<Self, FaultKind> {
        let head = bytes.first_chunk::<HEADER_SIZE>().ok_or(FaultKind::BadLength)?;
        let header = Header::read(head);
        if header.opcode >= 0x80 && privilege != Privilege::Paging {
            return Err(if header.opcode <= opcode::TABLE_COPY {
                FaultKind::NotPermitted
            } else {
                FaultKind::BadOpcode
            });
        }
        if header.opcode == opcode::NOP {
            return if header.flags == 0 { Ok(Self::Nop) } else { Err(FaultKind::BadFlags) };
        }
        let body = bytes.get(HEADER_SIZE..header.length as usize).ok_or(FaultKind::BadLength)?;
        let known = match header.opcode {
            opcode::STORE => flags::STORE_32,
            opcode::TABLE_WRITE => flags::TABLE_REPEAT,
            _ => 0,
        };
        if header.flags & !known != 0 {
            return Err(FaultKind::BadFlags);
        }
        match header.opcode {
            opcode::STORE => {
                let b: Store = exact(body)?;
                Ok(if header.flags & flags::STORE_32 != 0 { Self::Store32(b) } else { Self::Store(b) })
            }
            opcode::FILL => Ok(Self::Fill(exact(body)?)),
            opcode::COPY => Ok(Self::Copy(exact(body)?)),
            opcode::COPY_RECT => Ok(Self::CopyRect(exact(body)?)),
            opcode::FILTER_RECT => Ok(Self::FilterRect(exact(body)?)),
            opcode::FENCE_WAIT => Ok(Self::FenceWait(exact(body)?)),
            opcode::FENCE_SIGNAL => Ok(Self::FenceSignal(exact(body)?)),
            opcode::LOG => Ok(Self::Log(exact(body)?)),
            opcode::TIMESTAMP => Ok(Self::Timestamp(exact(body)?)),
            opcode::INDIRECT => Ok(Self::Indirect(exact(body)?)),
            opcode::MONITORED_SIGNAL => Ok(Self::MonitoredSignal(exact(body)?)),
            opcode::FENCE_WAIT_LOGGED => Ok(Self::FenceWaitLogged(exact(body)?)),
            opcode::FENCE_SIGNAL_LOGGED => Ok(Self::FenceSignalLogged(exact(body)?)),
            opcode::PROGRESS => Ok(Self::Progress(exact(body)?)),
            opcode::TABLE_WRITE => {
                let (head, bytes) = TableWrite::read_from_prefix(body).map_err(|_| FaultKind::BadLength)?;
                let repeat = header.flags & flags::TABLE_REPEAT != 0;
                let want = if repeat { 1 } else { head.count as usize };
                let last = head.first.checked_add(head.count).ok_or(FaultKind::BadOperand)?;
                if last > crate::pte::ENTRIES {
                    return Err(FaultKind::BadOperand);
                }
                if bytes.len() != want * 8 {
                    return Err(FaultKind::BadLength);
                }
                Ok(Self::TableWrite(head, Entries { bytes, repeat }))
            }
            opcode::TLB_FLUSH => Ok(Self::TlbFlush(exact(body)?)),
            opcode::TABLE_COPY => Ok(Self::TableCopy(exact(body)?)),
            _ => Err(FaultKind::BadOpcode),
        }
    }
}

impl Packet<'_> {
    /// The operation that the packet is, and the LOG that follows it: a packet with its entry in it is both in one. Any
    /// other is itself. `progress` is the address of the progress fence of the queue that it is in.
    ///
    /// # Errors
    /// [`FaultKind::NotPermitted`] for PROGRESS where there is no queue.
    pub fn split(self, progress: Option<GpuVa>) -> Result<(Self, Option<Log>), FaultKind> {
        let (fence, value, fence_handle, index_hint) = match self {
            Self::FenceWaitLogged(b) | Self::FenceSignalLogged(b) => (b.fence, b.value, b.fence_handle, b.index_hint),
            Self::Progress(b) => {
                let fence = progress.ok_or(FaultKind::NotPermitted)?;
                (fence.0, b.value, b.fence_handle, b.index_hint)
            }
            other => return Ok((other, None)),
        };
        let body = Fence { fence, value };
        let (packet, operation) = match self {
            Self::FenceWaitLogged(_) => (Self::FenceWait(body), log_operation::WAIT_UNBLOCKED),
            _ => (Self::FenceSignal(body), log_operation::SIGNAL_EXECUTED),
        };
        Ok((packet, Some(Log { fence_handle, operation, value, index_hint, reserved: 0 })))
    }
}

fn exact<T: FromBytes>(body: &[u8]) -> Result<T, FaultKind> {
    T::read_from_bytes(body).map_err(|_| FaultKind::BadLength)
}

#[cfg(test)]
mod tests;
