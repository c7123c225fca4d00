//! Paging operations: asking the driver to encode them, and running what it encoded.
//!
//! Operations are packed into one paging buffer until the driver says that it is full; then that is submitted, and the
//! operation goes on in a fresh one with its `MultipassOffset` kept. A buffer into which nothing was written is not
//! submitted: the driver did the work itself. Bytes behind the buffer and behind its private data are watched.
//!
//! Chosen: STATUS_GRAPHICS_ALLOCATION_BUSY has no meaning for the operations here, none of which has an
//! `AllocationIsIdle` flag, and breaks a rule.

mod immediate;
mod notice;
mod shown;

use std::any::Any;
use std::sync::Arc;

use wddm_abi::{
    D3DGPU_PHYSICAL_ADDRESS, DXGK_BUILDPAGINGBUFFER_COPY_RANGE, DXGK_BUILDPAGINGBUFFER_OPERATION,
    DXGK_MEMORY_TRANSFER_DIRECTION, DXGK_PAGETABLEUPDATEMODE, DXGKARG_BUILDPAGINGBUFFER, NTSTATUS, ntstatus,
};

use super::page_table::Update;
use super::pages::Block;
use super::va::PAGE;
use crate::memory::VidMm;
use crate::memory::completion::Completion;
use crate::port::ddi::{self, call_ddi};
use crate::port::miniport::Miniport;
use crate::port::poison;
use crate::port::query::Buffer as Guarded;
use crate::port::rules::paging::{PAGING_BUSY, PAGING_OVERRUN, PAGING_PRIVATE, PAGING_PROGRESS, PAGING_STATUS};
use crate::port::sync::{Lock, Rank};

/// Buffers an operation may be split over before it is given up.
const MAX_PASSES: u32 = 100_000;

/// A paging operation. Handles are the driver's.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Update {
        update: Update,
        process: usize,
        mode: DXGK_PAGETABLEUPDATEMODE,
    },
    Flush {
        process: usize,
        root: (u32, u64),
        start: u64,
        end: u64,
    },
    Fill {
        allocation: usize,
        offset: u64,
        size: u64,
        pattern: u32,
        destination: u64,
    },
    Transfer {
        allocation: usize,
        offset: u64,
        size: u64,
        source: u64,
        destination: u64,
        direction: DXGK_MEMORY_TRANSFER_DIRECTION,
    },
    MapAperture {
        range: ApertureRange,
        mdl: usize,
    },
    UnmapAperture {
        range: ApertureRange,
        dummy: u64,
    },
    NotifyResidency {
        allocation: usize,
        segment: u32,
        address: u64,
        resident: bool,
    },
    Signal {
        address: u64,
        value: u64,
    },
    /// The content of an allocation that lies in a segment is lost.
    Lost {
        allocation: usize,
        segment: u32,
        address: u64,
        by_address: bool,
    },
    /// Copies of entries between page tables that the privileged space of a process shows.
    CopyEntries(Vec<DXGK_BUILDPAGINGBUFFER_COPY_RANGE>),
    /// One that the driver need not know, with a record of zeros but for the size of a transfer.
    Stray(DXGK_BUILDPAGINGBUFFER_OPERATION),
}

/// Pages of an aperture that an allocation is mapped to, or a buffer of the system's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ApertureRange {
    /// The driver's handle; 0: a DMA buffer, which the driver has not made.
    pub(crate) allocation: usize,
    pub(crate) segment: u32,
    pub(crate) first: u64,
    pub(crate) pages: u64,
}

/// Stores an aperture's range in the operation that maps or unmaps it: two records with the same members. `hDevice`
/// stays NULL.
macro_rules! store_range {
    ($op:expr, $range:expr) => {{
        let (op, range) = ($op, $range);
        op.hAllocation = core::ptr::with_exposed_provenance_mut(range.allocation);
        op.SegmentId = range.segment;
        // CAST: page counts fit an address.
        op.OffsetInPages = range.first as usize;
        op.NumberOfPages = range.pages as usize;
        op
    }};
}

impl Op {
    fn operation(&self) -> DXGK_BUILDPAGINGBUFFER_OPERATION {
        use DXGK_BUILDPAGINGBUFFER_OPERATION as Operation;
        match self {
            Self::Update { .. } => Operation::DXGK_OPERATION_UPDATE_PAGE_TABLE,
            Self::Flush { .. } => Operation::DXGK_OPERATION_FLUSH_TLB,
            Self::Fill { .. } => Operation::DXGK_OPERATION_VIRTUAL_FILL,
            Self::Transfer { .. } => Operation::DXGK_OPERATION_VIRTUAL_TRANSFER,
            Self::MapAperture { .. } => Operation::DXGK_OPERATION_MAP_APERTURE_SEGMENT,
            Self::UnmapAperture { .. } => Operation::DXGK_OPERATION_UNMAP_APERTURE_SEGMENT,
            Self::NotifyResidency { .. } => Operation::DXGK_OPERATION_NOTIFY_RESIDENCY,
            Self::Signal { .. } => Operation::DXGK_OPERATION_SIGNAL_MONITORED_FENCE,
            Self::Lost { by_address: true, .. } => Operation::DXGK_OPERATION_VIRTUAL_TRANSFER,
            Self::Lost { .. } => Operation::DXGK_OPERATION_TRANSFER,
            Self::CopyEntries(_) => Operation::DXGK_OPERATION_COPY_PAGE_TABLE_ENTRIES,
            Self::Stray(operation) => *operation,
        }
    }

    /// The driver's handle of the allocation that it is about.
    fn allocation(&self) -> Option<usize> {
        match self {
            Self::Update { update, .. } => update.allocation.map(|(allocation, _)| allocation),
            Self::Fill { allocation, .. }
            | Self::Transfer { allocation, .. }
            | Self::Lost { allocation, .. }
            | Self::NotifyResidency { allocation, .. } => Some(*allocation),
            Self::MapAperture { range, .. } | Self::UnmapAperture { range, .. } => {
                Some(range.allocation).filter(|allocation| *allocation != 0)
            }
            Self::Flush { .. } | Self::Signal { .. } | Self::CopyEntries(_) | Self::Stray(_) => None,
        }
    }

    /// Returns whether it says that content is lost.
    fn is_of_lost_content(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// Puts the operation's members into the arguments. Pointers lead into `self`.
    fn fill(&self, arguments: &mut DXGKARG_BUILDPAGINGBUFFER) {
        let handle = core::ptr::with_exposed_provenance_mut;
        arguments.Operation = self.operation();
        match self {
            Self::Update { update, process, mode } => {
                let op = arguments.UpdatePageTable_mut();
                // CAST: levels and indices are small.
                op.PageTableLevel = update.level as u32;
                op.StartIndex = update.start as u32;
                op.NumPageTableEntries = update.count as u32;
                op.pPageTableEntries = update.entries.as_ptr().cast_mut();
                op.Flags = update.odd_flags;
                op.Flags.set_Repeat(update.entries.len() == 1 && update.count != 1);
                op.Flags.set_InitialUpdate(update.initial);
                op.Flags.set_NativeFence(update.native_fence);
                op.DriverProtection = update.driver_protection;
                op.hProcess = handle(*process);
                op.UpdateMode = *mode;
                op.FirstPteVirtualAddress = update.address;
                if let Some((allocation, offset)) = update.allocation {
                    op.hAllocation = handle(allocation);
                    op.AllocationOffsetInBytes = offset;
                }
                match *mode {
                    DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_CPU_VIRTUAL => {
                        let address = update.memory.kernel_address();
                        op.PageTableAddress.set_CpuVirtual(handle(address));
                    }
                    DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_GPU_VIRTUAL => {
                        op.PageTableAddress.set_GpuVirtual(update.window);
                    }
                    _ => op.PageTableAddress.set_GpuPhysical(physical(update.memory.physical())),
                }
            }
            Self::Flush { process, root, start, end } => {
                let op = arguments.FlushTlb_mut();
                op.RootPageTableAddress = physical(*root);
                op.hProcess = handle(*process);
                op.StartVirtualAddress = *start;
                op.EndVirtualAddress = *end;
            }
            Self::Fill { allocation, offset, size, pattern, destination } => {
                let op = arguments.FillVirtual_mut();
                op.hAllocation = handle(*allocation);
                op.AllocationOffsetInBytes = *offset;
                op.FillSizeInBytes = *size;
                op.FillPattern = *pattern;
                op.DestinationVirtualAddress = *destination;
            }
            Self::Transfer { allocation, offset, size, source, destination, direction } => {
                let op = arguments.TransferVirtual_mut();
                op.hAllocation = handle(*allocation);
                op.AllocationOffsetInBytes = *offset;
                op.TransferSizeInBytes = *size;
                op.SourceVirtualAddress = *source;
                op.DestinationVirtualAddress = *destination;
                op.TransferDirection = *direction;
            }
            Self::MapAperture { range, mdl } => {
                store_range!(arguments.MapApertureSegment_mut(), range).pMdl =
                    core::ptr::with_exposed_provenance_mut(*mdl);
            }
            Self::UnmapAperture { range, dummy } => {
                store_range!(arguments.UnmapApertureSegment_mut(), range).DummyPage.QuadPart = dummy.cast_signed();
            }
            Self::NotifyResidency { allocation, segment, address, resident } => {
                let op = arguments.NotifyResidency_mut();
                op.hAllocation = handle(*allocation);
                op.PhysicalAddress = physical((*segment, *address));
                op.set_Resident(*resident);
            }
            Self::Signal { address, value } => {
                let op = arguments.SignalMonitoredFence_mut();
                op.MonitoredFenceGpuVa = *address;
                op.MonitoredFenceValue = *value;
            }
            Self::CopyEntries(ranges) => {
                let op = arguments.CopyPageTableEntries_mut();
                // CAST: a few ranges.
                op.NumRanges = ranges.len() as u32;
                op.pRanges = ranges.as_ptr().cast_mut();
            }
            Self::Lost { allocation, by_address: true, .. } => {
                let op = arguments.TransferVirtual_mut();
                op.hAllocation = handle(*allocation);
                op.TransferDirection = DXGK_MEMORY_TRANSFER_DIRECTION::DXGK_MEMORY_TRANSFER_LOCAL_TO_SYSTEM;
            }
            Self::Lost { allocation, segment, address, .. } => {
                let op = arguments.Transfer_mut();
                op.hAllocation = handle(*allocation);
                op.Source.SegmentId = *segment;
                op.Source.SegmentAddress_mut().QuadPart = address.cast_signed();
            }
            // Without bytes it would be a notice.
            Self::Stray(DXGK_BUILDPAGINGBUFFER_OPERATION::DXGK_OPERATION_TRANSFER) => {
                arguments.Transfer_mut().TransferSize = PAGE as usize
            }
            Self::Stray(_) => (),
        }
    }
}

fn physical((segment, offset): (u32, u64)) -> D3DGPU_PHYSICAL_ADDRESS {
    let mut address = D3DGPU_PHYSICAL_ADDRESS::zeroed();
    address.SegmentId = segment;
    address.SegmentOffset = offset;
    address
}

/// Why a sequence of operations was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PagingError {
    /// The driver broke a rule or returned an error.
    Driver(NTSTATUS),
    /// The adapter was reset or stopped.
    Lost,
}

/// A paging buffer.
#[derive(Debug)]
pub(crate) struct Buffer {
    block: Block,
    gpu: u64,
    private: Guarded,
    used: usize,
    private_used: usize,
    /// The driver's handles of the allocations that its operations refer to.
    refers: Vec<usize>,
}

impl Buffer {
    fn reset(&mut self, size: usize) {
        self.used = 0;
        self.private_used = 0;
        self.refers.clear();
        let tail = self.block.object().pages() * PAGE as usize - size;
        crate::port::raw::copy_to(self.block.address() + size, &vec![poison::BYTE; tail]);
        self.private.bytes_mut().fill(0);
    }

    fn overrun(&self, size: usize) -> bool {
        let tail = self.block.object().pages() * PAGE as usize - size;
        crate::port::raw::bytes_at(self.block.address() + size, tail).iter().any(|byte| *byte != poison::BYTE)
    }
}

/// Paging buffers of one adapter.
#[derive(Debug)]
pub(crate) struct Pager {
    size: usize,
    free: Lock<Vec<Buffer>>,
    /// What operations are built in that tell the driver of lost memory.
    spare: Lock<Option<Buffer>>,
}

impl Pager {
    /// Without buffers; `size` bytes each.
    pub(crate) fn new(size: usize) -> Self {
        Self { size: size.max(16), free: Lock::new(Rank::Leaf, Vec::new()), spare: Lock::new(Rank::Leaf, None) }
    }

    /// Pages of a buffer that the GPU sees.
    pub(crate) fn pages(&self) -> usize {
        self.size.div_ceil(PAGE as usize)
    }

    /// Adds a buffer that the paging process sees at `gpu`. Its last page is not for the GPU.
    pub(crate) fn add(&self, block: Block, gpu: u64, private: usize) {
        let buffer = Self::buffer(block, gpu, private);
        self.free.lock().push(buffer);
    }

    /// Adds the buffer for notices, as [`add`](Self::add).
    pub(crate) fn add_spare(&self, block: Block, gpu: u64, private: usize) {
        self.keep_spare(Self::buffer(block, gpu, private));
    }

    fn buffer(block: Block, gpu: u64, private: usize) -> Buffer {
        Buffer { block, gpu, private: Guarded::new(private, 0), used: 0, private_used: 0, refers: Vec::new() }
    }

    /// Drops the buffers.
    pub(crate) fn clear(&self) {
        let buffers = std::mem::take(&mut *self.free.lock());
        let spare = self.spare.lock().take();
        drop((buffers, spare));
    }

    /// Builds and runs operations in order, and waits for their end.
    ///
    /// IRQL: PASSIVE_LEVEL; one thread at a time.
    pub(crate) fn run(&self, adapter: &Arc<Miniport>, ops: &[Op]) -> Result<(), PagingError> {
        self.run_on(adapter, None, ops)
    }

    /// [`run`](Self::run) on a companion context, whose address space has the buffers; `None`: on the system context.
    ///
    /// IRQL: PASSIVE_LEVEL; one thread at a time.
    pub(crate) fn run_on(
        &self,
        adapter: &Arc<Miniport>,
        context: Option<&Arc<dyn PagingContext>>,
        ops: &[Op],
    ) -> Result<(), PagingError> {
        let mut flights = Flights { pager: self, adapter, context, flights: Vec::new() };
        let mut buffer = flights.fresh().ok_or(PagingError::Lost)?;
        let mut result = Ok(());
        for op in ops {
            result = self.encode(op, &mut buffer, &mut flights);
            if result.is_err() {
                break;
            }
        }
        let submitted = flights.submit(buffer);
        let ended = flights.finish();
        result.and(submitted).and(ended)
    }

    fn encode(&self, op: &Op, buffer: &mut Buffer, flights: &mut Flights<'_>) -> Result<(), PagingError> {
        let adapter = flights.adapter;
        let mut offset = 0;
        for _ in 0..MAX_PASSES {
            let (before, used) = (offset, buffer.used);
            buffer.refers.extend(op.allocation());
            let status = self.call(adapter, flights.context, op, buffer, &mut offset);
            match status {
                ntstatus::STATUS_SUCCESS => {
                    adapter.rules().count(&PAGING_STATUS);
                    return Ok(());
                }
                ntstatus::STATUS_GRAPHICS_INSUFFICIENT_DMA_BUFFER => {
                    let progressed = used != 0 || buffer.used != used || offset != before;
                    adapter.rules().check(&PAGING_PROGRESS, progressed, || {
                        format!("{op}: an empty buffer of {} bytes is not enough", self.size)
                    });
                    if !progressed {
                        return Err(PagingError::Driver(status));
                    }
                    let next = flights.fresh().ok_or(PagingError::Lost)?;
                    let full = std::mem::replace(buffer, next);
                    flights.submit(full)?;
                }
                ntstatus::STATUS_SYSTEM_SHUTDOWN => return Err(PagingError::Lost),
                ntstatus::STATUS_GRAPHICS_ALLOCATION_BUSY => {
                    adapter.rules().check(&PAGING_BUSY, false, || format!("{op}"));
                    return Err(PagingError::Driver(status));
                }
                other => {
                    adapter.rules().check(&PAGING_STATUS, false, || format!("{op}: {other:?}"));
                    return Err(PagingError::Driver(other));
                }
            }
        }
        Err(PagingError::Driver(ntstatus::STATUS_GRAPHICS_INSUFFICIENT_DMA_BUFFER))
    }

    /// One call of the driver for one operation.
    fn call(
        &self,
        adapter: &Miniport,
        context: Option<&Arc<dyn PagingContext>>,
        op: &Op,
        buffer: &mut Buffer,
        offset: &mut u32,
    ) -> NTSTATUS {
        let mut arguments = DXGKARG_BUILDPAGINGBUFFER::zeroed();
        op.fill(&mut arguments);
        let start = buffer.block.address();
        let private_size = buffer.private.bytes().len();
        let private = buffer.private.pointer().expose_provenance();
        let handle = core::ptr::with_exposed_provenance_mut;
        arguments.pDmaBuffer = handle(start + buffer.used);
        // CAST: buffers are far smaller than 4 GiB.
        arguments.DmaSize = (self.size - buffer.used) as u32;
        arguments.pDmaBufferPrivateData = handle(private + buffer.private_used);
        arguments.DmaBufferPrivateDataSize = (private_size - buffer.private_used) as u32;
        arguments.MultipassOffset = *offset;
        let system = || VidMm::of(adapter).system_context();
        arguments.hSystemContext = handle(context.map_or_else(system, |context| context.driver_handle()));
        arguments.DmaBufferGpuVirtualAddress = buffer.gpu + buffer.used as u64;
        arguments.DmaBufferWriteOffset = buffer.used as u32;
        let status = build(adapter, &mut arguments);
        *offset = arguments.MultipassOffset;
        let end = (arguments.pDmaBuffer.expose_provenance()).wrapping_sub(start);
        let inside = (buffer.used..=self.size).contains(&end) && !buffer.overrun(self.size);
        adapter.rules().check(&PAGING_OVERRUN, inside, || {
            format!("{op}: pDmaBuffer is {end} bytes from the start of {}, from {}", self.size, buffer.used)
        });
        let private_end = arguments.pDmaBufferPrivateData.expose_provenance().wrapping_sub(private);
        let private_inside =
            (buffer.private_used..=private_size).contains(&private_end) && buffer.private.overrun().is_none();
        adapter.rules().check(&PAGING_PRIVATE, private_inside, || {
            format!("{op}: pDmaBufferPrivateData is {private_end} bytes from the start of {private_size}")
        });
        if inside {
            buffer.used = end;
        }
        if private_inside {
            buffer.private_used = private_end;
        }
        status
    }
}

fn build(adapter: &Miniport, arguments: &mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
    let context = adapter.context();
    let arguments = core::ptr::from_mut(arguments);
    ddi::status(call_ddi!(adapter, DxgkDdiBuildPagingBuffer(context, arguments)))
}

/// A context that paging buffers run on beside the system context: a companion.
pub(crate) trait PagingContext: Any + Send + Sync {
    /// The driver's handle, as a number.
    fn driver_handle(&self) -> usize;
}

/// Submits the paging buffer at an address, of a size, behind all others, on a companion context or on the system's,
/// with the address and size of its private data, and the allocations that it refers to. `None`: there is no system
/// context, or the scheduler's worker has ended.
pub(crate) type Submit = fn(
    &Miniport,
    Option<&Arc<dyn PagingContext>>,
    (u64, usize),
    (usize, usize),
    Arc<[usize]>,
) -> Option<Arc<Completion>>;

/// Hands a paging buffer over, as [`Submit`] has it.
fn submit(
    adapter: &Miniport,
    context: Option<&Arc<dyn PagingContext>>,
    buffer: (u64, usize),
    private: (usize, usize),
    refers: Arc<[usize]>,
) -> Option<Arc<Completion>> {
    let manager = VidMm::of(adapter).manager()?;
    (manager.hooks()?.submit)(adapter, context, buffer, private, refers)
}

/// Buffers on their way.
struct Flights<'a> {
    pager: &'a Pager,
    adapter: &'a Arc<Miniport>,
    /// The companion that they run on; `None`: the system context.
    context: Option<&'a Arc<dyn PagingContext>>,
    flights: Vec<(Buffer, Arc<Completion>)>,
}

impl Flights<'_> {
    /// An empty buffer; waits for one on its way when there is none. `None`: there are none at all.
    fn fresh(&mut self) -> Option<Buffer> {
        let free = self.pager.free.lock().pop();
        let mut buffer = match free {
            Some(buffer) => buffer,
            None if self.flights.is_empty() => return None,
            None => {
                let (buffer, completion) = self.flights.remove(0);
                if !completion.wait(self.adapter) {
                    self.pager.free.lock().push(buffer);
                    return None;
                }
                buffer
            }
        };
        buffer.reset(self.pager.size);
        Some(buffer)
    }

    fn submit(&mut self, mut buffer: Buffer) -> Result<(), PagingError> {
        if buffer.used == 0 {
            self.pager.free.lock().push(buffer);
            return Ok(());
        }
        let private = buffer.private.pointer().expose_provenance();
        let completion = submit(
            self.adapter,
            self.context,
            (buffer.gpu, buffer.used),
            (private, buffer.private.bytes().len()),
            buffer.refers.iter().copied().collect(),
        );
        match completion {
            Some(completion) => {
                self.flights.push((buffer, completion));
                Ok(())
            }
            None => {
                self.pager.free.lock().push(buffer);
                Err(PagingError::Lost)
            }
        }
    }

    fn finish(self) -> Result<(), PagingError> {
        let mut result = Ok(());
        for (buffer, completion) in self.flights {
            if !completion.wait(self.adapter) {
                result = Err(PagingError::Lost);
            }
            self.pager.free.lock().push(buffer);
        }
        result
    }
}
