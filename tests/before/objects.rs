//! Mistakes of earlier states of the driver about contexts, allocations and page tables.

use fencepost::wrap::{array, copy, decorate, own, record};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use wddm_abi::ntstatus::{
    STATUS_GRAPHICS_DRIVER_MISMATCH, STATUS_INVALID_PARAMETER, STATUS_NOT_SUPPORTED, STATUS_SUCCESS,
};
use wddm_abi::{
    DXGK_BUILDPAGINGBUFFER_OPERATION as Operation, DXGK_BUILDPAGINGBUFFER_UPDATEPAGETABLE, DXGK_PAGETABLEUPDATEMODE,
    DXGK_PTE, DXGK_UPDATEPAGETABLEFLAGS, DXGKARG_BUILDPAGINGBUFFER, DXGKARG_CREATEALLOCATION, DXGKARG_CREATECONTEXT,
    DXGKARG_CREATEHWQUEUE, DXGKARG_CREATEPROCESS, DXGKARG_DESTROYALLOCATION, DXGKARG_OPENNATIVEFENCE,
    DXGKARG_SETROOTPAGETABLE, DXGKARG_SUBMITCOMMANDTOHWQUEUE, DXGKARG_SUBMITCOMMANDVIRTUAL, HANDLE, NTSTATUS,
};

/// GPU addresses of CurrentValue of the native fences that were opened.
static OPENED: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// The driver's handles of processes that were made or destroyed, and whether they live.
static PROCESSES: Mutex<BTreeMap<usize, bool>> = Mutex::new(BTreeMap::new());

/// The driver's first aperture segment.
const APERTURE: u64 = 1;
/// Entries of a page table of the driver's.
const ENTRIES: u32 = 512;

decorate! {
    /// `HwQueueSupported` was not read: every context was a packet context.
    packets_whatever_the_flag: DxgkDdiCreateContext(device: HANDLE, args: *mut DXGKARG_CREATECONTEXT) -> NTSTATUS {
        record!(args).Flags.set_HwQueueSupported(false);
        own!(DxgkDdiCreateContext(device, args))
    }

    /// hContext was an output only: Dxgkrnl's handle, which comes in there, was lost.
    incoming_handle_lost: DxgkDdiCreateContext(device: HANDLE, args: *mut DXGKARG_CREATECONTEXT) -> NTSTATUS {
        record!(args).hContext = core::ptr::null_mut();
        own!(DxgkDdiCreateContext(device, args))
    }

    /// A context without private data was refused as another driver's.
    private_data_demanded: DxgkDdiCreateContext(device: HANDLE, args: *mut DXGKARG_CREATECONTEXT) -> NTSTATUS {
        let asked = copy!(args);
        if asked.PrivateDriverDataSize == 0 && !asked.Flags.SystemContext() {
            return STATUS_GRAPHICS_DRIVER_MISMATCH;
        }
        own!(DxgkDdiCreateContext(device, args))
    }

    /// The companion of every context was node 0, which takes no packets from rung 1 on.
    companion_is_node_0: DxgkDdiCreateContext(device: HANDLE, args: *mut DXGKARG_CREATECONTEXT) -> NTSTATUS {
        let status = own!(DxgkDdiCreateContext(device, args));
        record!(args).ContextInfo.PagingCompanionNodeId = 0;
        status
    }

    /// Lists and reserved members of the answer stayed as they were found.
    context_outputs_left: DxgkDdiCreateContext(device: HANDLE, args: *mut DXGKARG_CREATECONTEXT) -> NTSTATUS {
        let found = copy!(args).ContextInfo;
        let status = own!(DxgkDdiCreateContext(device, args));
        let info = &mut record!(args).ContextInfo;
        info.AllocationListSize = found.AllocationListSize;
        info.PatchLocationListSize = found.PatchLocationListSize;
        info.Reserved = found.Reserved;
        status
    }

    /// A context of GDI's had an empty list of allocations, as every other.
    gdi_list_is_empty: DxgkDdiCreateContext(device: HANDLE, args: *mut DXGKARG_CREATECONTEXT) -> NTSTATUS {
        let status = own!(DxgkDdiCreateContext(device, args));
        record!(args).ContextInfo.AllocationListSize = 0;
        status
    }

    /// The second word of flags of an allocation stayed as it was found.
    allocation_flags_left: DxgkDdiCreateAllocation(adapter: HANDLE, args: *mut DXGKARG_CREATEALLOCATION) -> NTSTATUS {
        let asked = copy!(args);
        let infos = array!(asked.pAllocationInfo, asked.NumAllocations);
        let found: Vec<u32> = infos.iter().map(|info| info.Flags2.Value).collect();
        let status = own!(DxgkDdiCreateAllocation(adapter, args));
        for (index, flags) in found.into_iter().enumerate() {
            record!(asked.pAllocationInfo.wrapping_add(index)).Flags2.Value = flags;
        }
        status
    }

    /// The first bad handle ended DestroyAllocation, and the allocations behind it stayed.
    destroys_up_to_a_bad_handle: DxgkDdiDestroyAllocation(
        adapter: HANDLE,
        args: *const DXGKARG_DESTROYALLOCATION,
    ) -> NTSTATUS {
        let mut one = copy!(args);
        for handle in array!(one.pAllocationList, one.NumAllocations) {
            (one.NumAllocations, one.pAllocationList) = (1, handle);
            let status = own!(DxgkDdiDestroyAllocation(adapter, &raw const one));
            if !status.is_success() {
                return status;
            }
        }
        STATUS_SUCCESS
    }

    /// `SystemContext` was not read, so packets that name no context had no address space.
    system_context_unread: DxgkDdiCreateContext(device: HANDLE, args: *mut DXGKARG_CREATECONTEXT) -> NTSTATUS {
        record!(args).Flags.set_SystemContext(false);
        own!(DxgkDdiCreateContext(device, args))
    }

    /// Large pages were taken for pages of 4 KB.
    large_pages_mapped: DxgkDdiBuildPagingBuffer(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        with_entries(adapter, args, |entry| entry.set_LargePage(false))
    }

    /// Zero pages were taken for the pages of their addresses.
    zero_pages_mapped: DxgkDdiBuildPagingBuffer(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        with_entries(adapter, args, |entry| entry.set_Zero(false))
    }

    /// Segments that were never described were taken for system memory.
    unknown_segments_mapped: DxgkDdiBuildPagingBuffer(
        adapter: HANDLE,
        args: *mut DXGKARG_BUILDPAGINGBUFFER,
    ) -> NTSTATUS {
        with_entries(adapter, args, |entry| if entry.Segment() > 3 { entry.set_Segment(0) })
    }

    /// The segment behind the last one was taken for system memory, as of an older Windows.
    segment_behind_last_mapped: DxgkDdiBuildPagingBuffer(
        adapter: HANDLE,
        args: *mut DXGKARG_BUILDPAGINGBUFFER,
    ) -> NTSTATUS {
        with_entries(adapter, args, |entry| if entry.Segment() == 3 { entry.set_Segment(0) })
    }

    /// Offsets into the aperture were taken for addresses of system memory.
    aperture_entries_mapped: DxgkDdiBuildPagingBuffer(
        adapter: HANDLE,
        args: *mut DXGKARG_BUILDPAGINGBUFFER,
    ) -> NTSTATUS {
        with_entries(adapter, args, |entry| if entry.Segment() == APERTURE { entry.set_Segment(0) })
    }

    /// Tables of a level that there is not were taken for leaf tables.
    unknown_levels_mapped: DxgkDdiBuildPagingBuffer(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        with_update(adapter, args, |update| if update.PageTableLevel > 3 { update.PageTableLevel = 0 })
    }

    /// Of a range that leaves its table, the part within the table was stored.
    ranges_behind_tables_cut: DxgkDdiBuildPagingBuffer(
        adapter: HANDLE,
        args: *mut DXGKARG_BUILDPAGINGBUFFER,
    ) -> NTSTATUS {
        with_update(adapter, args, |update| {
            update.NumPageTableEntries = update.NumPageTableEntries.min(ENTRIES - update.StartIndex);
        })
    }

    /// Tables in segments that were never described were taken for tables in system memory.
    tables_in_unknown_segments_written: DxgkDdiBuildPagingBuffer(
        adapter: HANDLE,
        args: *mut DXGKARG_BUILDPAGINGBUFFER,
    ) -> NTSTATUS {
        with_table(adapter, args, |segment| if *segment > 2 { *segment = 0 })
    }

    /// Tables in the aperture were taken for tables in system memory.
    tables_in_the_aperture_written: DxgkDdiBuildPagingBuffer(
        adapter: HANDLE,
        args: *mut DXGKARG_BUILDPAGINGBUFFER,
    ) -> NTSTATUS {
        with_table(adapter, args, |segment| if u64::from(*segment) == APERTURE { *segment = 0 })
    }

    /// An update of a table at NULL failed, which no paging operation may.
    tables_at_null_refused: DxgkDdiBuildPagingBuffer(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        if is_at_null(&copy!(args)) { STATUS_INVALID_PARAMETER } else { own!(DxgkDdiBuildPagingBuffer(adapter, args)) }
    }

    /// An update of a table at NULL did nothing, and the adapter went on.
    tables_at_null_succeed: DxgkDdiBuildPagingBuffer(
        adapter: HANDLE,
        args: *mut DXGKARG_BUILDPAGINGBUFFER,
    ) -> NTSTATUS {
        if is_at_null(&copy!(args)) { STATUS_SUCCESS } else { own!(DxgkDdiBuildPagingBuffer(adapter, args)) }
    }

    /// Roots in segments that were never described were taken for roots in system memory.
    roots_in_unknown_segments_taken: DxgkDdiSetRootPageTable(adapter: HANDLE, args: *const DXGKARG_SETROOTPAGETABLE) {
        let mut root = copy!(args);
        if root.Address.SegmentId > 2 {
            root.Address.SegmentId = 0;
        }
        own!(DxgkDdiSetRootPageTable(adapter, &raw const root))
    }

    /// Roots in the aperture were taken for roots in system memory.
    roots_in_the_aperture_taken: DxgkDdiSetRootPageTable(adapter: HANDLE, args: *const DXGKARG_SETROOTPAGETABLE) {
        let mut root = copy!(args);
        if u64::from(root.Address.SegmentId) == APERTURE {
            root.Address.SegmentId = 0;
        }
        own!(DxgkDdiSetRootPageTable(adapter, &raw const root))
    }

    /// Pages of another physical adapter were taken for this one's.
    other_adapters_mapped: DxgkDdiBuildPagingBuffer(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        with_entries(adapter, args, |entry| entry.set_PhysicalAdapterIndex(0))
    }

    /// Reserved bits were not looked at.
    reserved_bits_mapped: DxgkDdiBuildPagingBuffer(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        with_entries(adapter, args, |entry| entry.set_Reserved(0))
    }

    /// Tables of 64 KB pages were taken for tables of 4 KB pages.
    large_tables_mapped: DxgkDdiBuildPagingBuffer(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        with_entries(adapter, args, |entry| entry.set_PageTablePageSize(0))
    }

    /// An update of a table of 64 KB pages was taken for one of a table of 4 KB pages.
    large_updates_mapped: DxgkDdiBuildPagingBuffer(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        with_flags(adapter, args, |flags| flags.set_Use64KBPages(false))
    }

    /// Reserved flags of an update were not looked at.
    reserved_flags_mapped: DxgkDdiBuildPagingBuffer(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        with_flags(adapter, args, |flags| flags.set_Reserved(0))
    }

    /// A paging operation that is not carried out failed, which no paging operation may.
    unknown_operations_fail: DxgkDdiBuildPagingBuffer(
        adapter: HANDLE,
        args: *mut DXGKARG_BUILDPAGINGBUFFER,
    ) -> NTSTATUS {
        match is_known(copy!(args).Operation) {
            true => own!(DxgkDdiBuildPagingBuffer(adapter, args)),
            false => STATUS_NOT_SUPPORTED,
        }
    }

    /// A paging operation that is not carried out was counted nowhere.
    unknown_operations_uncounted: DxgkDdiBuildPagingBuffer(
        adapter: HANDLE,
        args: *mut DXGKARG_BUILDPAGINGBUFFER,
    ) -> NTSTATUS {
        match is_known(copy!(args).Operation) {
            true => own!(DxgkDdiBuildPagingBuffer(adapter, args)),
            false => STATUS_SUCCESS,
        }
    }

    /// `EndVirtualAddress` of a flush was taken to lie behind the range, so a last page's address left that page
    /// unflushed.
    flush_ends_before_its_end: DxgkDdiBuildPagingBuffer(
        adapter: HANDLE,
        args: *mut DXGKARG_BUILDPAGINGBUFFER,
    ) -> NTSTATUS {
        if copy!(args).Operation != Operation::DXGK_OPERATION_FLUSH_TLB {
            return own!(DxgkDdiBuildPagingBuffer(adapter, args));
        }
        let flush = record!(args).FlushTlb_mut();
        let theirs = flush.EndVirtualAddress;
        if theirs == flush.StartVirtualAddress {
            return STATUS_SUCCESS;
        }
        flush.EndVirtualAddress = theirs - 1;
        let status = own!(DxgkDdiBuildPagingBuffer(adapter, args));
        record!(args).FlushTlb_mut().EndVirtualAddress = theirs;
        status
    }

    /// A flush for a process that is not known did nothing.
    stray_flush_ignored: DxgkDdiBuildPagingBuffer(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        let asked = copy!(args);
        if asked.Operation == Operation::DXGK_OPERATION_FLUSH_TLB && asked.FlushTlb().hProcess.is_null() {
            return STATUS_SUCCESS;
        }
        own!(DxgkDdiBuildPagingBuffer(adapter, args))
    }

    /// A flush for an object that is no process did nothing.
    flush_for_another_object_ignored: DxgkDdiBuildPagingBuffer(
        adapter: HANDLE,
        args: *mut DXGKARG_BUILDPAGINGBUFFER,
    ) -> NTSTATUS {
        let asked = copy!(args);
        let process = asked.FlushTlb().hProcess.expose_provenance();
        let is_flush = asked.Operation == Operation::DXGK_OPERATION_FLUSH_TLB;
        if is_flush && process != 0 && PROCESSES.lock().is_ok_and(|known| !known.contains_key(&process)) {
            return STATUS_SUCCESS;
        }
        own!(DxgkDdiBuildPagingBuffer(adapter, args))
    }

    /// A flush for a process that is gone did nothing.
    flush_for_a_gone_process_ignored: DxgkDdiBuildPagingBuffer(
        adapter: HANDLE,
        args: *mut DXGKARG_BUILDPAGINGBUFFER,
    ) -> NTSTATUS {
        let asked = copy!(args);
        let process = asked.FlushTlb().hProcess.expose_provenance();
        let is_flush = asked.Operation == Operation::DXGK_OPERATION_FLUSH_TLB;
        if is_flush && PROCESSES.lock().is_ok_and(|known| known.get(&process) == Some(&false)) {
            return STATUS_SUCCESS;
        }
        own!(DxgkDdiBuildPagingBuffer(adapter, args))
    }

    /// Fills [`PROCESSES`].
    notes_processes: DxgkDdiCreateProcess(adapter: HANDLE, args: *mut DXGKARG_CREATEPROCESS) -> NTSTATUS {
        let status = own!(DxgkDdiCreateProcess(adapter, args));
        if let Ok(mut known) = PROCESSES.lock() {
            known.insert(copy!(args).hKmdProcess.expose_provenance(), true);
        }
        status
    }

    /// Notes in [`PROCESSES`] which are gone.
    notes_gone_processes: DxgkDdiDestroyProcess(adapter: HANDLE, process: HANDLE) -> NTSTATUS {
        if let Ok(mut known) = PROCESSES.lock() {
            known.insert(process.expose_provenance(), false);
        }
        own!(DxgkDdiDestroyProcess(adapter, process))
    }

    /// `NullRendering` of a packet was not read, so what it holds ran.
    null_packets_run: DxgkDdiSubmitCommandVirtual(
        adapter: HANDLE,
        args: *const DXGKARG_SUBMITCOMMANDVIRTUAL,
    ) -> NTSTATUS {
        let mut packet = copy!(args);
        packet.Flags.set_NullRendering(false);
        own!(DxgkDdiSubmitCommandVirtual(adapter, &raw const packet))
    }

    /// `NullRendering` of a command buffer of a hardware queue was not read, so what it holds ran.
    null_buffers_run: DxgkDdiSubmitCommandToHwQueue(
        adapter: HANDLE,
        args: *const DXGKARG_SUBMITCOMMANDTOHWQUEUE,
    ) -> NTSTATUS {
        let mut buffer = copy!(args);
        buffer.Flags.set_NullRendering(false);
        own!(DxgkDdiSubmitCommandToHwQueue(adapter, &raw const buffer))
    }

    /// A packet that was refused left no trace: neither its fence nor that it came was noted.
    refused_packets_unnoted: DxgkDdiSubmitCommandVirtual(
        adapter: HANDLE,
        args: *const DXGKARG_SUBMITCOMMANDVIRTUAL,
    ) -> NTSTATUS {
        let packet = copy!(args);
        if !packet.DmaBufferVirtualAddress.is_multiple_of(8) || !packet.DmaBufferSize.is_multiple_of(8) {
            return STATUS_INVALID_PARAMETER;
        }
        own!(DxgkDdiSubmitCommandVirtual(adapter, args))
    }

    /// A native progress fence had to be opened before its queue was made.
    only_opened_progress_fences: DxgkDdiCreateHwQueue(context: HANDLE, args: *mut DXGKARG_CREATEHWQUEUE) -> NTSTATUS {
        let asked = copy!(args);
        let address = asked.HwQueueProgressFenceGPUVirtualAddress;
        let opened = OPENED.lock().is_ok_and(|opened| opened.contains(&address));
        if asked.Flags.NativeProgressFence() && !opened {
            return STATUS_INVALID_PARAMETER;
        }
        own!(DxgkDdiCreateHwQueue(context, args))
    }

    /// A progress fence had to be at a multiple of 8.
    odd_progress_refused: DxgkDdiCreateHwQueue(context: HANDLE, args: *mut DXGKARG_CREATEHWQUEUE) -> NTSTATUS {
        if !copy!(args).HwQueueProgressFenceGPUVirtualAddress.is_multiple_of(8) {
            return STATUS_INVALID_PARAMETER;
        }
        own!(DxgkDdiCreateHwQueue(context, args))
    }

    /// Fills [`OPENED`], for [`only_opened_progress_fences`].
    notes_opened_fences: DxgkDdiOpenNativeFence(adapter: HANDLE, args: *mut DXGKARG_OPENNATIVEFENCE) -> NTSTATUS {
        if let Ok(mut opened) = OPENED.lock() {
            opened.insert(copy!(args).CurrentValueGpuVa);
        }
        own!(DxgkDdiOpenNativeFence(adapter, args))
    }
}

/// Whether the driver carries the operation out, or has nothing to do for it.
fn is_known(operation: Operation) -> bool {
    use Operation as O;
    matches!(
        operation,
        O::DXGK_OPERATION_UPDATE_PAGE_TABLE
            | O::DXGK_OPERATION_FLUSH_TLB
            | O::DXGK_OPERATION_VIRTUAL_TRANSFER
            | O::DXGK_OPERATION_VIRTUAL_FILL
            | O::DXGK_OPERATION_SIGNAL_MONITORED_FENCE
            | O::DXGK_OPERATION_MAP_APERTURE_SEGMENT
            | O::DXGK_OPERATION_UNMAP_APERTURE_SEGMENT
            | O::DXGK_OPERATION_NOTIFY_RESIDENCY
            | O::DXGK_OPERATION_COPY_PAGE_TABLE_ENTRIES
    )
}

/// Whether it is an update by the CPU of a table at NULL.
fn is_at_null(asked: &DXGKARG_BUILDPAGINGBUFFER) -> bool {
    let update = asked.UpdatePageTable();
    asked.Operation == Operation::DXGK_OPERATION_UPDATE_PAGE_TABLE
        && update.UpdateMode == DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_CPU_VIRTUAL
        && update.PageTableAddress.CpuVirtual().is_null()
}

/// [`flush_for_another_object_ignored`], and what it needs to know.
pub fn stray_flush_of_another_object(table: &mut wddm_abi::DRIVER_INITIALIZATION_DATA) {
    flush_for_another_object_ignored(table);
    notes_processes(table);
}

/// [`flush_for_a_gone_process_ignored`], and what it needs to know.
pub fn stray_flush_of_a_gone_process(table: &mut wddm_abi::DRIVER_INITIALIZATION_DATA) {
    flush_for_a_gone_process_ignored(table);
    notes_gone_processes(table);
}

/// [`only_opened_progress_fences`] and [`notes_opened_fences`].
pub fn unopened_progress_refused(table: &mut wddm_abi::DRIVER_INITIALIZATION_DATA) {
    only_opened_progress_fences(table);
    notes_opened_fences(table);
}

/// `DxgkDdiBuildPagingBuffer` of the driver, told of other flags of an update than Dxgkrnl has.
fn with_flags(
    adapter: HANDLE,
    args: *mut DXGKARG_BUILDPAGINGBUFFER,
    change: impl FnOnce(&mut DXGK_UPDATEPAGETABLEFLAGS),
) -> NTSTATUS {
    with_update(adapter, args, |update| change(&mut update.Flags))
}

/// `DxgkDdiBuildPagingBuffer` of the driver, told of another segment of a table that it names by its physical address.
fn with_table(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER, change: impl FnOnce(&mut u32)) -> NTSTATUS {
    with_update(adapter, args, |update| {
        if update.UpdateMode == DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_GPU_PHYSICAL {
            let mut address = *update.PageTableAddress.GpuPhysical();
            change(&mut address.SegmentId);
            update.PageTableAddress.set_GpuPhysical(address);
        }
    })
}

/// `DxgkDdiBuildPagingBuffer` of the driver, told of another update than Dxgkrnl has.
fn with_update(
    adapter: HANDLE,
    args: *mut DXGKARG_BUILDPAGINGBUFFER,
    change: impl FnOnce(&mut DXGK_BUILDPAGINGBUFFER_UPDATEPAGETABLE),
) -> NTSTATUS {
    if copy!(args).Operation != Operation::DXGK_OPERATION_UPDATE_PAGE_TABLE {
        return own!(DxgkDdiBuildPagingBuffer(adapter, args));
    }
    let theirs = *record!(args).UpdatePageTable();
    change(record!(args).UpdatePageTable_mut());
    let status = own!(DxgkDdiBuildPagingBuffer(adapter, args));
    *record!(args).UpdatePageTable_mut() = theirs;
    status
}

/// `DxgkDdiBuildPagingBuffer` of the driver, told of other entries of page tables than Dxgkrnl has.
fn with_entries(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER, change: impl FnMut(&mut DXGK_PTE)) -> NTSTATUS {
    if copy!(args).Operation != Operation::DXGK_OPERATION_UPDATE_PAGE_TABLE {
        return own!(DxgkDdiBuildPagingBuffer(adapter, args));
    }
    let update = record!(args).UpdatePageTable_mut();
    let count = if update.Flags.Repeat() { 1 } else { update.NumPageTableEntries };
    let mut entries: Vec<DXGK_PTE> = array!(update.pPageTableEntries, count).to_vec();
    entries.iter_mut().for_each(change);
    let theirs = std::mem::replace(&mut update.pPageTableEntries, entries.as_mut_ptr());
    let status = own!(DxgkDdiBuildPagingBuffer(adapter, args));
    record!(args).UpdatePageTable_mut().pPageTableEntries = theirs;
    status
}
