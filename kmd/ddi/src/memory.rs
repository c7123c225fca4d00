//! Allocations and paging buffers.

use crate::arguments::{array, array_mut, bytes, bytes_mut, object, record_mut, started};
use crate::thunk::ddi;
use gpu_engine::address_space::EVERY_PROCESS;
use gpu_engine::memory::Span;
use gpu_wire::GpuVa;
use kmd_core::adapter::Started;
use kmd_core::allocation::{Allocation, OpenAllocation};
use kmd_core::device::Device;
use kmd_core::halt::{self, Reason, Verdict, verdict};
use kmd_core::handle::Handle;
use kmd_core::irql::Passive;
use kmd_core::paging::{self, Buffer, Operation, Reading, TableEntries, table_at};
use kmd_core::platform::Platform;
use kmd_core::process::Process;
use kmd_core::segments;
use kmd_core::status::{Error, Result, of};
use wddm_abi::ntstatus::{STATUS_GRAPHICS_INSUFFICIENT_DMA_BUFFER, STATUS_SUCCESS};
use wddm_abi::{
    D3DKMDT_STANDARDALLOCATION_TYPE, DXGK_ALLOCATIONINFO, DXGK_BUILDPAGINGBUFFER_OPERATION,
    DXGK_BUILDPAGINGBUFFER_UPDATEPAGETABLE, DXGK_PAGETABLEUPDATEMODE, DXGKARG_BUILDPAGINGBUFFER,
    DXGKARG_CLOSEALLOCATION, DXGKARG_CREATEALLOCATION, DXGKARG_DESTROYALLOCATION,
    DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA, DXGKARG_OPENALLOCATION, HANDLE, NTSTATUS,
};

/// `D3DDDI_ALLOCATIONPRIORITY_NORMAL`.
const PRIORITY_NORMAL: u32 = 0x7800_0000;

ddi! {
    /// `DxgkDdiCreateAllocation`, `PASSIVE_LEVEL`.
    fn create_allocation[P: Platform](adapter: HANDLE) at irql: Passive,
        with args: write *mut DXGKARG_CREATEALLOCATION, answers of {
        let started = started::<P>(adapter)?;
        // SAFETY: Dxgkrnl's array, of that many elements.
        let infos = unsafe { array_mut(args.pAllocationInfo, args.NumAllocations as usize) }?;
        let mut made = 0;
        let mut result = Ok(());
        for info in infos.iter_mut() {
            // SAFETY: Dxgkrnl's copy of the private data, of that size.
            let private = unsafe { bytes(info.pPrivateDriverData.cast_const(), info.PrivateDriverDataSize) };
            match private.and_then(|private| Allocation::create(&irql, &started, private)) {
                Ok((handle, placement)) => {
                    place(info, handle, &placement);
                    made += 1;
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        if result.is_err() {
            // All or none: what was made before is taken back.
            for info in infos.iter_mut().take(made) {
                let _gone = Allocation::<P>::destroy(&irql, Handle::from_ptr(info.hAllocation));
                info.hAllocation = core::ptr::null_mut();
            }
        }
        result
    }

    /// `DxgkDdiDestroyAllocation`, `PASSIVE_LEVEL`.
    fn destroy_allocation[P: Platform](_adapter: HANDLE) at irql: Passive,
        with args: read *const DXGKARG_DESTROYALLOCATION, answers of {
        // SAFETY: Dxgkrnl's array, of that many elements.
        let handles = unsafe { array(args.pAllocationList, args.NumAllocations as usize) }?;
        each(handles, |h| Allocation::<P>::destroy(&irql, h))
    }

    /// `DxgkDdiOpenAllocation`, `PASSIVE_LEVEL`.
    fn open_allocation[P: Platform](device: HANDLE) at irql: Passive,
        with args: read *const DXGKARG_OPENALLOCATION, answers of {
        let device = object::<Device<P>>(device)?;
        // SAFETY: Dxgkrnl's array, of that many elements, to be filled.
        let infos = unsafe { array_mut(args.pOpenAllocation, args.NumAllocations as usize) }?;
        for i in 0..infos.len() {
            // SAFETY: Dxgkrnl's copy of the private data, of that size.
            let private = unsafe { bytes(infos[i].pPrivateDriverData.cast_const(), infos[i].PrivateDriverDataSize) };
            let opened = private.and_then(|private| OpenAllocation::open(&irql, &device, infos[i].hAllocation, private));
            match opened {
                Ok(handle) => infos[i].hDeviceSpecificAllocation = handle.as_ptr(),
                Err(error) => {
                    for info in infos.iter_mut().take(i) {
                        let handle = Handle::from_ptr(info.hDeviceSpecificAllocation);
                        let _gone = OpenAllocation::<P>::close(&irql, handle);
                        info.hDeviceSpecificAllocation = core::ptr::null_mut();
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// `DxgkDdiCloseAllocation`, `PASSIVE_LEVEL`.
    fn close_allocation[P: Platform](_device: HANDLE) at irql: Passive,
        with args: read *const DXGKARG_CLOSEALLOCATION, answers of {
        // SAFETY: Dxgkrnl's array, of that many elements.
        let handles = unsafe { array(args.pOpenHandleList, args.NumAllocations as usize) }?;
        each(handles, |h| OpenAllocation::<P>::close(&irql, h))
    }

    /// `DxgkDdiGetStandardAllocationDriverData`, `PASSIVE_LEVEL`: segments for values of native fences. Nothing else is
    /// created by the OS alone on this adapter: no primaries, shadows or staging surfaces.
    fn get_standard_allocation[P: Platform](adapter: HANDLE) with args: write *mut DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA,
        answers of {
        let started = started::<P>(adapter)?;
        let for_fences = D3DKMDT_STANDARDALLOCATION_TYPE::D3DKMDT_STANDARDALLOCATION_FENCESTORAGE;
        if args.StandardAllocationType != for_fences || args.PhysicalAdapterIndex != 0 {
            // The page lists no other refusal.
            return Err(Error::NoMemory);
        }
        // SAFETY: with this type the member is Dxgkrnl's record, valid for the call.
        let data = unsafe { record_mut(args.pCreateFenceStorageData()) }?;
        let segment = segments::of_fence(data.FenceStorageType, &started.settings);
        let segment = segment.ok_or(Error::NoMemory)?;
        // Private data are not looked at, and the rest is the OS's.
        data.AllocationInfo.SupportedWriteSegmentSet = segments::set_of(segment);
        data.AllocationInfo.EvictionSegmentSet = 0;
        data.AllocationInfo.PreferredSegment.Value = 0;
        data.AllocationInfo.PreferredSegment.set_SegmentId0(segment);
        args.AllocationPrivateDriverDataSize = 0;
        args.ResourcePrivateDriverDataSize = 0;
        Ok(())
    }
}

ddi! {
    /// `DxgkDdiBuildPagingBuffer`, `PASSIVE_LEVEL`. Three statuses, no others.
    fn build_paging_buffer[P: Platform](adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER) at irql: Passive,
        answers built {
        let started = started::<P>(adapter)?;
        // SAFETY: Dxgkrnl's record, whose buffers and arrays have the sizes that it says.
        unsafe { build::<P>(&irql, &started, args) }
    }
}

/// The status of BuildPagingBuffer.
fn built(result: Result<()>) -> NTSTATUS {
    match result {
        Err(Error::InsufficientDmaBuffer) => STATUS_GRAPHICS_INSUFFICIENT_DMA_BUFFER,
        // Nothing else may be said. What could not be done has stopped the adapter.
        _ => STATUS_SUCCESS,
    }
}

/// Calls `f` for every handle, also behind one that failed, since the OS forgets all of them. Returns the first error.
fn each(handles: &[HANDLE], mut f: impl FnMut(Handle) -> Result<()>) -> Result<()> {
    let mut result = Ok(());
    for handle in handles {
        result = result.and(f(Handle::from_ptr(*handle)));
    }
    result
}

fn place(info: &mut DXGK_ALLOCATIONINFO, handle: Handle, placement: &kmd_core::allocation::Placement) {
    // CAST: the image is 64-bit.
    info.Size = placement.size as usize;
    info.PitchAlignedSize = 0;
    info.HintedBank.Value = 0;
    info.PreferredSegment.Value = 0;
    info.PreferredSegment.set_SegmentId0(placement.preferred);
    info.set_SupportedReadSegmentSet(placement.segments);
    info.SupportedWriteSegmentSet = placement.segments;
    info.EvictionSegmentSet = 0;
    info.set_PhysicalAdapterIndex(0);
    info.set_Alignment(0);
    info.hAllocation = handle.as_ptr();
    info.Flags2.Value = 0;
    let mut flags = *info.FlagsWddm2();
    flags.Value = 0;
    flags.set_CpuVisible(placement.cpu_visible);
    flags.set_Cached(placement.cpu_visible);
    info.set_FlagsWddm2(flags);
    info.pAllocationUsageHint = core::ptr::null_mut();
    info.AllocationPriority = PRIORITY_NORMAL;
}

/// The body of BuildPagingBuffer.
///
/// # Safety
/// `args` is NULL or points at a record whose buffers and arrays have the sizes that it says.
unsafe fn build<P: Platform>(irql: &Passive, started: &Started<P>, args: *mut DXGKARG_BUILDPAGINGBUFFER) -> Result<()> {
    // SAFETY: the caller's promise.
    let args = unsafe { record_mut(args) }?;
    // SAFETY: the caller's promise.
    let operation = match unsafe { operation::<P>(started, args) } {
        Ok(operation) => operation,
        Err(reason) => {
            halt::halt(irql, started, reason);
            return Ok(());
        }
    };
    // NULL with updates of the paging process's own page tables; where a buffer comes with them, it stays as it is.
    let bytes = match args.pDmaBuffer.is_null() {
        true => &mut [],
        // SAFETY: the caller's promise.
        false => unsafe { bytes_mut(args.pDmaBuffer, args.DmaSize) }?,
    };
    let mut buffer = Buffer::new(bytes);
    let mut multipass = args.MultipassOffset;
    let result = paging::build(irql, &operation, &mut buffer, &mut multipass);
    args.MultipassOffset = multipass;
    if !args.pDmaBuffer.is_null() {
        args.pDmaBuffer = args.pDmaBuffer.wrapping_byte_add(buffer.used);
    }
    result
}

/// The operation that a record describes.
///
/// # Errors
/// Why it cannot be carried out: the adapter is to be stopped.
///
/// # Safety
/// The record's arrays have the sizes that it says.
unsafe fn operation<'a, P: Platform>(
    started: &Started<P>,
    args: &'a DXGKARG_BUILDPAGINGBUFFER,
) -> core::result::Result<Operation<'a>, Reason> {
    use DXGK_BUILDPAGINGBUFFER_OPERATION as O;
    Ok(match args.Operation {
        O::DXGK_OPERATION_UPDATE_PAGE_TABLE => {
            // SAFETY: the caller's promise.
            unsafe { update(started, args.UpdatePageTable(), args.MultipassOffset == 0) }?
        }
        O::DXGK_OPERATION_FLUSH_TLB => {
            let flush = args.FlushTlb();
            match object::<Process<P>>(flush.hProcess) {
                Ok(process) => Operation::Flush {
                    process: process.engine.number,
                    start: flush.StartVirtualAddress,
                    end: flush.EndVirtualAddress,
                },
                // A known case is a root table that no context has. The driver cannot say whose translations are
                // meant, so it flushes those of every process.
                Err(_) => {
                    let (strays, process) = (&started.strays, flush.hProcess);
                    strays.note(
                        &strays.flushes,
                        1,
                        &started.platform,
                        format_args!("FLUSH_TLB for process {process:?}: all"),
                    );
                    Operation::Flush { process: EVERY_PROCESS, start: 0, end: 0 }
                }
            }
        }
        O::DXGK_OPERATION_VIRTUAL_TRANSFER => {
            let transfer = args.TransferVirtual();
            Operation::Transfer {
                source: GpuVa(transfer.SourceVirtualAddress),
                destination: GpuVa(transfer.DestinationVirtualAddress),
                size: transfer.TransferSizeInBytes,
            }
        }
        O::DXGK_OPERATION_VIRTUAL_FILL => {
            let fill = args.FillVirtual();
            Operation::Fill {
                destination: GpuVa(fill.DestinationVirtualAddress),
                size: fill.FillSizeInBytes,
                pattern: fill.FillPattern,
            }
        }
        O::DXGK_OPERATION_SIGNAL_MONITORED_FENCE => {
            let signal = args.SignalMonitoredFence();
            Operation::Signal { fence: GpuVa(signal.MonitoredFenceGpuVa), value: signal.MonitoredFenceValue }
        }
        O::DXGK_OPERATION_COPY_PAGE_TABLE_ENTRIES => {
            let copy = args.CopyPageTableEntries();
            // SAFETY: the caller's promise.
            let ranges = unsafe { array(copy.pRanges.cast_const(), copy.NumRanges as usize) };
            let ranges = ranges.ok().filter(|ranges| paging::copies_within_tables(ranges)).ok_or(Reason::Copy)?;
            Operation::Copy { ranges }
        }
        // Under GpuMmu the page tables say where things are; the aperture has none of its own, and no code caches
        // residency.
        O::DXGK_OPERATION_MAP_APERTURE_SEGMENT
        | O::DXGK_OPERATION_UNMAP_APERTURE_SEGMENT
        | O::DXGK_OPERATION_NOTIFY_RESIDENCY
        | O::DXGK_OPERATION_NOTIFY_FENCE_RESIDENCY => Operation::Nothing,
        // So VidMm says, between the functions of an adapter's reset, that an allocation has lost its content.
        O::DXGK_OPERATION_TRANSFER if args.Transfer().TransferSize == 0 => Operation::Nothing,
        // Of WDDM 1, or for a feature that the driver does not report.
        other => {
            started.strays.note_operation(other.0, &started.platform);
            match verdict(other) {
                Verdict::Nothing => Operation::Nothing,
                Verdict::Done | Verdict::Impossible => return Err(Reason::Operation(other)),
            }
        }
    })
}

/// The operation of an update of a page table, or why there is none. Entries and ranges that the driver does not know
/// become invalid entries: an access faults, and nothing is mapped. They are counted on the first pass only
/// (`first_pass`), since the OS repeats an update that did not fit its buffer.
///
/// # Safety
/// The record's array has the size that it says, and a CPU address is that of a page table that stays mapped.
unsafe fn update<'a, P: Platform>(
    started: &Started<P>,
    update: &'a DXGK_BUILDPAGINGBUFFER_UPDATEPAGETABLE,
    first_pass: bool,
) -> core::result::Result<Operation<'a>, Reason> {
    let (strays, platform) = (&started.strays, &started.platform);
    let (level, start, number) = (update.PageTableLevel, update.StartIndex, update.NumPageTableEntries);
    let flags = update.Flags;
    let repeat = flags.Repeat();
    let count = if repeat { 1 } else { number as usize };
    // SAFETY: the caller's promise.
    let from = unsafe { array(update.pPageTableEntries.cast_const(), count) };
    let sane = level < gpu_wire::pte::LEVELS && !flags.Use64KBPages() && flags.Reserved() == 0;
    let reading = Reading::of(&started.settings);
    let entries = from.ok().and_then(|from| TableEntries::new(from, start, number, repeat, reading)).filter(|_| sane);
    if first_pass {
        let unknown = entries.map_or(0, |entries| entries.unknown(level));
        strays.note(&strays.entries, unknown, platform, format_args!("unknown page table entries of level {level}"));
        let range = format_args!("unknown range {start}+{number} of level {level}, flags {flags:?}");
        strays.note(&strays.ranges, entries.is_none().into(), platform, range);
    }
    let entries = entries.unwrap_or_else(|| TableEntries::invalid(start, number, reading));
    if update.UpdateMode == DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_CPU_VIRTUAL {
        let table = update.PageTableAddress.CpuVirtual();
        if table.is_null() {
            return Err(Reason::NoTable);
        }
        // SAFETY: a page table of 4 KB, mapped for the call (the caller's promise).
        let table = unsafe { Span::new(table.cast(), u64::from(gpu_wire::pte::TABLE_SIZE)) };
        let table = started.as_cached(table, "a page table");
        return Ok(Operation::UpdateNow { table, level, entries });
    }
    if update.UpdateMode != DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_GPU_PHYSICAL {
        return Err(Reason::NoTable);
    }
    let address = update.PageTableAddress.GpuPhysical();
    let table = table_at(reading.order, address).ok_or(Reason::Table { segment: address.SegmentId })?;
    Ok(Operation::Update { table, level, entries })
}
