//! What the user-mode driver, the kernel-mode driver and the engine of the Fencepost GPU agree on.
//!
//! Formats only: packets, the ring and its control page, the doorbell value, page table entries, and the private data
//! blocks that travel through Dxgkrnl uninterpreted. There is no behaviour here beyond arithmetic on those formats.
//! `SPEC.md` beside this crate is the programming manual; the comments cite it as "SPEC §n".
//!
//! Every number that arrives from the other side is an *allegation*: types here say what shape it has, never that it is
//! true. The engine copies a packet to private memory, validates the copy and executes the copy.
//!
//! What this crate does not do: it allocates nothing, touches no shared memory, and knows no WDDM structure.
#![no_std]
#![forbid(unsafe_code)]

pub mod debug_blob;
pub mod doorbell;
pub mod packet;
pub mod private;
pub mod pte;
pub mod ring;

/// Version of everything in this crate. The user-mode driver and the kernel-mode driver exchange it at open and refuse
/// each other when it differs (SPEC §1).
pub const INTERFACE_VERSION: u32 = 4;

/// Bytes in a GPU page, which is also the CPU's.
pub const PAGE_SIZE: u64 = 4096;

/// An address in one process's GPU address space. 48 bits are significant; the rest must be zero (SPEC §6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct GpuVa(pub u64);

impl GpuVa {
    /// Significant address bits.
    pub const BITS: u32 = 48;

    /// Whether the bits above [`Self::BITS`] are zero.
    pub const fn is_canonical(self) -> bool {
        self.0 >> Self::BITS == 0
    }

    /// `self + offset`, or `None` where that leaves the 48-bit space.
    pub const fn checked_add(self, offset: u64) -> Option<Self> {
        match self.0.checked_add(offset) {
            Some(v) if v >> Self::BITS == 0 => Some(Self(v)),
            _ => None,
        }
    }

    /// Whether the address is a multiple of `align`, a power of two.
    pub const fn is_aligned(self, align: u64) -> bool {
        self.0 & (align - 1) == 0
    }

    /// The address of the page that holds this address.
    pub const fn page(self) -> Self {
        Self(self.0 & !(PAGE_SIZE - 1))
    }
}

impl core::fmt::LowerHex for GpuVa {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::LowerHex::fmt(&self.0, f)
    }
}

/// Index of a node of the adapter, as `DXGKARG_CREATEHWCONTEXT::NodeOrdinal` carries it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(transparent)]
pub struct NodeOrdinal(pub u32);

impl NodeOrdinal {
    /// As an index; of a node that may not exist.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// 3D and compute: hardware-scheduled, user-mode submission.
pub const NODE_COMPUTE: NodeOrdinal = NodeOrdinal(0);
/// Copy: hardware-scheduled, user-mode submission.
pub const NODE_COPY: NodeOrdinal = NodeOrdinal(1);
/// Copy, packet mode, the paging node.
pub const NODE_PAGING: NodeOrdinal = NodeOrdinal(2);
/// Number of nodes.
pub const NODE_COUNT: usize = 3;
