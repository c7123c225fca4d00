//! Mistakes about address spaces: root page tables, copies of entries, operations that cannot be carried out.

use fencepost::wrap::{copy, decorate, own, record};
use std::collections::BTreeMap;
use std::sync::Mutex;
use wddm_abi::ntstatus::STATUS_SUCCESS;
use wddm_abi::{
    DRIVER_INITIALIZATION_DATA, DXGK_BUILDPAGINGBUFFER_OPERATION as Operation, DXGKARG_BUILDPAGINGBUFFER,
    DXGKARG_CREATECONTEXT, DXGKARG_SETROOTPAGETABLE, HANDLE, NTSTATUS,
};

/// The driver's handles of contexts, with that of their device.
static CONTEXTS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// Bytes of the packet that drops translations: a header and three words.
const FLUSH: usize = 32;

decorate! {
    /// A copy of page table entries did nothing.
    copies_dropped: DxgkDdiBuildPagingBuffer(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        match copy!(args).Operation {
            Operation::DXGK_OPERATION_COPY_PAGE_TABLE_ENTRIES => STATUS_SUCCESS,
            _ => own!(DxgkDdiBuildPagingBuffer(adapter, args)),
        }
    }

    /// A copy of page table entries left what engines had cached: the OS was trusted to flush.
    copies_unflushed: DxgkDdiBuildPagingBuffer(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        let asked = copy!(args);
        let status = own!(DxgkDdiBuildPagingBuffer(adapter, args));
        let is_copy = asked.Operation == Operation::DXGK_OPERATION_COPY_PAGE_TABLE_ENTRIES;
        if is_copy && status == STATUS_SUCCESS && asked.CopyPageTableEntries().NumRanges != 0 {
            let args = record!(args);
            args.pDmaBuffer = args.pDmaBuffer.wrapping_byte_sub(FLUSH);
        }
        status
    }

    /// Of several ranges of entries only the first was copied.
    first_copy_alone: DxgkDdiBuildPagingBuffer(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        let asked = record!(args);
        if asked.Operation == Operation::DXGK_OPERATION_COPY_PAGE_TABLE_ENTRIES {
            let copy = asked.CopyPageTableEntries_mut();
            copy.NumRanges = copy.NumRanges.min(1);
        }
        own!(DxgkDdiBuildPagingBuffer(adapter, args))
    }

    /// Operations of which the driver knew nothing succeeded, and work went on.
    strange_operations_succeed: DxgkDdiBuildPagingBuffer(
        adapter: HANDLE,
        args: *mut DXGKARG_BUILDPAGINGBUFFER,
    ) -> NTSTATUS {
        match copy!(args).Operation.0 {
            0 | 1 | 7 | 19 | 20 | 23.. => STATUS_SUCCESS,
            _ => own!(DxgkDdiBuildPagingBuffer(adapter, args)),
        }
    }

    /// A transfer of no bytes, which tells of lost memory, stopped the adapter: it was an operation of WDDM 1.
    losses_stop: DxgkDdiBuildPagingBuffer(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        let asked = record!(args);
        if asked.Operation == Operation::DXGK_OPERATION_TRANSFER {
            asked.Transfer_mut().TransferSize = 4096;
        }
        own!(DxgkDdiBuildPagingBuffer(adapter, args))
    }

    /// A transfer of no bytes was built as a copy.
    losses_copied: DxgkDdiBuildPagingBuffer(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        let asked = record!(args);
        if asked.Operation == Operation::DXGK_OPERATION_VIRTUAL_TRANSFER {
            let size = &mut asked.TransferVirtual_mut().TransferSizeInBytes;
            *size = (*size).max(8);
        }
        own!(DxgkDdiBuildPagingBuffer(adapter, args))
    }

    /// Fills [`CONTEXTS`].
    notes_contexts: DxgkDdiCreateContext(device: HANDLE, args: *mut DXGKARG_CREATECONTEXT) -> NTSTATUS {
        let status = own!(DxgkDdiCreateContext(device, args));
        if status == STATUS_SUCCESS && let Ok(mut known) = CONTEXTS.lock() {
            known.insert(copy!(args).hContext.expose_provenance(), device.expose_provenance());
        }
        status
    }

    /// Every context of a device got the root page table that the OS gave one of them.
    root_spreads: DxgkDdiSetRootPageTable(adapter: HANDLE, args: *const DXGKARG_SETROOTPAGETABLE) {
        let mut root = copy!(args);
        own!(DxgkDdiSetRootPageTable(adapter, args));
        let known = CONTEXTS.lock().map(|known| known.clone()).unwrap_or_default();
        let device = known.get(&root.hContext.expose_provenance()).copied();
        for context in known.iter().filter(|(_, its)| Some(**its) == device).map(|(context, _)| *context) {
            root.hContext = core::ptr::with_exposed_provenance_mut(context);
            own!(DxgkDdiSetRootPageTable(adapter, &raw const root));
        }
    }
}

/// The root page table was the process's.
pub fn root_per_process(table: &mut DRIVER_INITIALIZATION_DATA) {
    notes_contexts(table);
    root_spreads(table);
}
