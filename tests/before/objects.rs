//! Contexts, allocations and page tables as the driver of before made them.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use crate::wrap::{array, copy, decorate, own, record};
use std::collections::BTreeSet;
use std::sync::Mutex;
use wddm_abi::ntstatus::{STATUS_GRAPHICS_DRIVER_MISMATCH, STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use wddm_abi::{
    DXGK_BUILDPAGINGBUFFER_OPERATION as Operation, DXGK_PTE, DXGKARG_BUILDPAGINGBUFFER, DXGKARG_CREATEALLOCATION,
    DXGKARG_CREATECONTEXT, DXGKARG_CREATEHWQUEUE, DXGKARG_DESTROYALLOCATION, DXGKARG_OPENNATIVEFENCE,
    DXGKARG_SUBMITCOMMANDVIRTUAL, HANDLE, NTSTATUS,
};

/// Addresses of native fences that were opened.
static OPENED: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

decorate! {
    /// `HwQueueSupported` was not looked at: every context was one of packets.
    packets_whatever_the_flag: DxgkDdiCreateContext(device: HANDLE, args: *mut DXGKARG_CREATECONTEXT) -> NTSTATUS {
        record!(args).Flags.set_HwQueueSupported(false);
        own!(DxgkDdiCreateContext(device, args))
    }

    /// hContext was an output only: Dxgkrnl's handle, which comes in there, was lost.
    incoming_handle_lost: DxgkDdiCreateContext(device: HANDLE, args: *mut DXGKARG_CREATECONTEXT) -> NTSTATUS {
        record!(args).hContext = core::ptr::null_mut();
        own!(DxgkDdiCreateContext(device, args))
    }

    /// A context without private data was none of ours.
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

    /// The second word of flags of an allocation stayed as it was found.
    allocation_flags_left: DxgkDdiCreateAllocation(adapter: HANDLE, args: *mut DXGKARG_CREATEALLOCATION) -> NTSTATUS {
        let asked = copy!(args);
        let found: Vec<u32> = array!(asked.pAllocationInfo, asked.NumAllocations).iter().map(|info| info.Flags2.Value).collect();
        let status = own!(DxgkDdiCreateAllocation(adapter, args));
        for (index, flags) in found.into_iter().enumerate() {
            record!(asked.pAllocationInfo.wrapping_add(index)).Flags2.Value = flags;
        }
        status
    }

    /// A bad handle ended a batch.
    destroys_up_to_a_bad_handle: DxgkDdiDestroyAllocation(adapter: HANDLE, args: *const DXGKARG_DESTROYALLOCATION) -> NTSTATUS {
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

    /// Which of several system processes is the paging process was told by their order, not by the system context.
    system_context_unread: DxgkDdiCreateContext(device: HANDLE, args: *mut DXGKARG_CREATECONTEXT) -> NTSTATUS {
        record!(args).Flags.set_SystemContext(false);
        own!(DxgkDdiCreateContext(device, args))
    }

    /// Entries were taken for pages of 4 KB, whatever else they said.
    odd_entries_mapped: DxgkDdiBuildPagingBuffer(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        if copy!(args).Operation != Operation::DXGK_OPERATION_UPDATE_PAGE_TABLE {
            return own!(DxgkDdiBuildPagingBuffer(adapter, args));
        }
        let update = record!(args).UpdatePageTable_mut();
        let count = if update.Flags.Repeat() { 1 } else { update.NumPageTableEntries };
        let mut entries: Vec<DXGK_PTE> = array!(update.pPageTableEntries, count).to_vec();
        for entry in &mut entries {
            entry.set_LargePage(false);
            entry.set_Zero(false);
            entry.set_PhysicalAdapterIndex(0);
            entry.set_PageTablePageSize(0);
            entry.set_Reserved(0);
        }
        let theirs = std::mem::replace(&mut update.pPageTableEntries, entries.as_mut_ptr());
        let status = own!(DxgkDdiBuildPagingBuffer(adapter, args));
        record!(args).UpdatePageTable_mut().pPageTableEntries = theirs;
        status
    }

    /// The end of a flush was taken to lie behind the range.
    flush_ends_before_its_end: DxgkDdiBuildPagingBuffer(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
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

    /// `NullRendering` was not read.
    null_packets_run: DxgkDdiSubmitCommandVirtual(adapter: HANDLE, args: *const DXGKARG_SUBMITCOMMANDVIRTUAL) -> NTSTATUS {
        let mut packet = copy!(args);
        packet.Flags.set_NullRendering(false);
        own!(DxgkDdiSubmitCommandVirtual(adapter, &raw const packet))
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

    /// What the one above goes by.
    notes_opened_fences: DxgkDdiOpenNativeFence(adapter: HANDLE, args: *mut DXGKARG_OPENNATIVEFENCE) -> NTSTATUS {
        if let Ok(mut opened) = OPENED.lock() {
            opened.insert(copy!(args).CurrentValueGpuVa);
        }
        own!(DxgkDdiOpenNativeFence(adapter, args))
    }
}

/// [`only_opened_progress_fences`], and what it goes by.
pub fn unopened_progress_refused(table: &mut wddm_abi::DRIVER_INITIALIZATION_DATA) {
    only_opened_progress_fences(table);
    notes_opened_fences(table);
}
