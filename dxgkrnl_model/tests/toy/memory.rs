//! Processes, devices, packet contexts, allocations and paging buffers.

use wddm_abi::ntstatus::{
    STATUS_INVALID_PARAMETER, STATUS_NO_MEMORY, STATUS_NOT_IMPLEMENTED, STATUS_NOT_SUPPORTED, STATUS_SUCCESS,
    STATUS_UNSUCCESSFUL,
};
use wddm_abi::{
    D3DDDI_NATIVEFENCE_TYPE, D3DKMDT_STANDARDALLOCATION_TYPE, DRIVER_INITIALIZATION_DATA, DXGKARG_BUILDPAGINGBUFFER,
    DXGKARG_CLOSEALLOCATION, DXGKARG_CREATEALLOCATION, DXGKARG_CREATECONTEXT, DXGKARG_CREATEDEVICE,
    DXGKARG_CREATEPROCESS, DXGKARG_DESTROYALLOCATION, DXGKARG_ESCAPE, DXGKARG_GETROOTPAGETABLESIZE,
    DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA, DXGKARG_OPENALLOCATION, DXGKARG_SETROOTPAGETABLE,
    DXGKARG_SUBMITCOMMANDVIRTUAL, HANDLE, NTSTATUS, win_extern,
};

use super::start::{contiguous, free_contiguous};
use super::{Context, Packet, Toy, UNKNOWN, argument, array, input, number, owner, raw};

pub fn fill(table: &mut DRIVER_INITIALIZATION_DATA) {
    table.DxgkDdiCreateProcess = Some(create_process);
    table.DxgkDdiDestroyProcess = Some(destroy_process);
    table.DxgkDdiCreateDevice = Some(create_device);
    table.DxgkDdiDestroyDevice = Some(destroy_device);
    table.DxgkDdiCreateContext = Some(create_context);
    table.DxgkDdiDestroyContext = Some(destroy_context);
    table.DxgkDdiCreateAllocation = Some(create_allocation);
    table.DxgkDdiDestroyAllocation = Some(destroy_allocation);
    table.DxgkDdiOpenAllocation = Some(open_allocation);
    table.DxgkDdiCloseAllocation = Some(close_allocation);
    table.DxgkDdiGetStandardAllocationDriverData = Some(standard_allocation);
    table.DxgkDdiGetRootPageTableSize = Some(root_size);
    table.DxgkDdiSetRootPageTable = Some(set_root);
    table.DxgkDdiBuildPagingBuffer = Some(build_paging_buffer);
    table.DxgkDdiSubmitCommandVirtual = Some(submit);
    table.DxgkDdiEscape = Some(escape);
}

/// The size that user mode asks for in its private data: 64-bit bytes, then 64-bit flags.
pub mod want {
    pub const LOCAL: u64 = 1;
    pub const PHYSICAL: u64 = 2;
}

win_extern! {
    fn create_process(adapter: HANDLE, arguments: *mut DXGKARG_CREATEPROCESS) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        let arguments = argument(arguments);
        let pasids = array(arguments.pPasid.cast_const(), arguments.NumPasid as usize);
        if toy.is("process-pasid") && !pasids.is_empty() {
            return STATUS_INVALID_PARAMETER;
        }
        for (index, pasid) in pasids.iter().enumerate() {
            let is_known = *pasid == 0 || pasids[..index].contains(pasid);
            if !arguments.Flags.SystemProcess() || is_known || *pasid >= 1 << 20 {
                toy.error(format!("identifiers {pasids:?} of a process"));
            }
        }
        if !pasids.is_empty() {
            toy.count("pasid");
        }
        arguments.hKmdProcess = raw(toy.own_for(arguments.hDxgkProcess, "object-handle-process"));
        STATUS_SUCCESS
    }

    fn destroy_process(adapter: HANDLE, process: HANDLE) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        toy.disown(number(process));
        STATUS_SUCCESS
    }

    fn create_device(adapter: HANDLE, arguments: *mut DXGKARG_CREATEDEVICE) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        let arguments = argument(arguments);
        let user = !arguments.Flags().SystemDevice();
        if user && toy.is("object-status") {
            return STATUS_NOT_SUPPORTED;
        }
        if user && toy.is("object-handle") {
            return STATUS_SUCCESS;
        }
        if user {
            disturb(&toy);
        }
        let handle = toy.own();
        toy.state().devices.insert(handle, number(arguments.hKmdProcess));
        arguments.hDevice = raw(handle);
        STATUS_SUCCESS
    }

    fn destroy_device(device: HANDLE) -> NTSTATUS {
        let Some(toy) = owner(device) else { return UNKNOWN };
        toy.disown(number(device));
        toy.state().devices.remove(&number(device));
        STATUS_SUCCESS
    }

    fn create_context(device: HANDLE, arguments: *mut DXGKARG_CREATECONTEXT) -> NTSTATUS {
        let Some(toy) = owner(device) else { return UNKNOWN };
        let arguments = argument(arguments);
        if arguments.Flags.SystemContext() && toy.is("system-context") {
            return STATUS_NOT_IMPLEMENTED;
        }
        if arguments.Flags.TestContext() && toy.is("testing-context") {
            return STATUS_NO_MEMORY;
        }
        let handle = toy.own_for(arguments.hContext, "object-handle-context");
        let context = Context {
            engine: toy.engine(arguments.EngineAffinity),
            os: if toy.is("context-in") { handle } else { number(arguments.hContext) } as u64,
            ..Context::default()
        };
        let mut state = toy.state();
        state.contexts.insert(handle, context);
        // The first is the paging process's; a companion of another process's context may be called one as well.
        if arguments.Flags.SystemContext() && state.system_context == 0 {
            state.system_context = handle;
        }
        drop(state);
        arguments.hContext = raw(handle);
        if !toy.is("context-output") {
            arguments.ContextInfo = wddm_abi::DXGK_CONTEXTINFO::zeroed();
        }
        arguments.ContextInfo.DmaBufferSegmentSet = u32::from(!toy.is("context-segment"));
        arguments.ContextInfo.DmaBufferPrivateDataSize = 32;
        arguments.ContextInfo.AllocationListSize = if arguments.Flags.GdiContext() { 256 } else { 0 };
        // Node 0 schedules itself.
        arguments.ContextInfo.PagingCompanionNodeId = u32::from(!toy.is("context-companion"));
        if toy.is("context-info") && !arguments.Flags.SystemContext() {
            arguments.ContextInfo.DmaBufferSegmentSet = 2;
        }
        STATUS_SUCCESS
    }

    fn destroy_context(context: HANDLE) -> NTSTATUS {
        let Some(toy) = owner(context) else { return UNKNOWN };
        toy.state().contexts.remove(&number(context));
        toy.disown(number(context));
        if toy.is("object-destroy") { STATUS_UNSUCCESSFUL } else { STATUS_SUCCESS }
    }

    fn create_allocation(adapter: HANDLE, arguments: *mut DXGKARG_CREATEALLOCATION) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        let arguments = argument(arguments);
        for index in 0..arguments.NumAllocations as usize {
            // SAFETY: Dxgkrnl passed so many.
            let info = argument(unsafe { arguments.pAllocationInfo.add(index) });
            if info.PrivateDriverDataSize < 16 {
                return STATUS_INVALID_PARAMETER;
            }
            let private = array(info.pPrivateDriverData.cast::<u64>().cast_const(), 2);
            let (size, flags) = (private[0], private[1]);
            if size == 0 {
                return STATUS_INVALID_PARAMETER;
            }
            let handle = if toy.is("object-handle-allocation") { 0 } else { toy.own() };
            toy.state().allocations.insert(handle, size);
            if toy.options.pages_of_its_own {
                let Some((page, _)) = contiguous(&toy, 4096) else { return STATUS_NO_MEMORY };
                toy.state().own_pages.insert(handle, page);
            }
            info.hAllocation = raw(if toy.is("cross-handle") { 0 } else { handle });
            info.Size = if toy.is("alloc-size") { 0 } else { size as usize };
            info.AllocationPriority = 0x7800_0000;
            if !toy.is("alloc-output") {
                info.Flags2.Value = 0;
            }
            info.SupportedWriteSegmentSet = if flags & want::LOCAL != 0 { 3 } else { 1 };
            info.PreferredSegment.Value = if flags & want::LOCAL != 0 { 2 } else { 1 };
            info.FlagsWddm2_mut().set_CpuVisible(true);
            if flags & want::PHYSICAL != 0 {
                info.FlagsWddm2_mut().set_AccessedPhysically(true);
                info.FlagsWddm2_mut().set_ExplicitResidencyNotification(true);
            }
            match toy.options.mutant {
                "alloc-segment" => info.SupportedWriteSegmentSet |= 0x100,
                "alloc-cpu-visible" => {
                    info.SupportedWriteSegmentSet = 0;
                    info.PreferredSegment.Value = 0;
                }
                "alloc-flags" => info.FlagsWddm2_mut().set_ExplicitResidencyNotification(flags & want::PHYSICAL == 0),
                _ => (),
            }
        }
        if arguments.Flags.Resource() && arguments.hResource.is_null() {
            arguments.hResource = raw(toy.own());
        }
        STATUS_SUCCESS
    }

    fn destroy_allocation(adapter: HANDLE, arguments: *const DXGKARG_DESTROYALLOCATION) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        let arguments = input(arguments);
        // The pages of an allocation that is destroyed concern no process any more.
        let frame = std::mem::take(&mut toy.state().last_frame);
        if frame != 0 {
            super::paging::map(frame);
        }
        let kept = toy.state().kept.take();
        if let Some(kept) = kept {
            super::paging::let_go(kept);
        }
        for handle in array(arguments.pAllocationList, arguments.NumAllocations as usize) {
            if toy.state().allocations.remove(&number(*handle)).is_none() {
                // A handle that names nothing: the others go all the same.
                toy.count("stray handle");
                if toy.is("batch-stops") {
                    return STATUS_INVALID_PARAMETER;
                }
            }
            let page = toy.state().own_pages.remove(&number(*handle));
            if let Some(page) = page {
                free_contiguous(&toy, page);
            }
            toy.disown(number(*handle));
        }
        STATUS_SUCCESS
    }

    fn open_allocation(device: HANDLE, arguments: *const DXGKARG_OPENALLOCATION) -> NTSTATUS {
        let Some(toy) = owner(device) else { return UNKNOWN };
        let arguments = input(arguments);
        for index in 0..arguments.NumAllocations as usize {
            // SAFETY: Dxgkrnl passed so many.
            let info = argument(unsafe { arguments.pOpenAllocation.add(index) });
            let mut data = wddm_abi::DXGKARGCB_GETHANDLEDATA::zeroed();
            data.hObject = info.hAllocation;
            data.Type = wddm_abi::DXGK_HANDLE_TYPE::DXGK_HANDLE_ALLOCATION;
            let found = super::callback!(toy, DxgkCbGetHandleData(&raw const data)).unwrap_or(raw(0));
            if !toy.state().allocations.contains_key(&found.expose_provenance()) {
                toy.error(format!("handle {:#x} leads to {found:p}", info.hAllocation));
            }
            let opened = toy.own();
            toy.state().opened.insert(opened, number(found));
            info.hDeviceSpecificAllocation = raw(opened);
        }
        STATUS_SUCCESS
    }

    fn close_allocation(device: HANDLE, arguments: *const DXGKARG_CLOSEALLOCATION) -> NTSTATUS {
        let Some(toy) = owner(device) else { return UNKNOWN };
        let arguments = input(arguments);
        for handle in array(arguments.pOpenHandleList, arguments.NumAllocations as usize) {
            toy.state().opened.remove(&number(*handle));
            toy.disown(number(*handle));
        }
        STATUS_SUCCESS
    }

    fn standard_allocation(adapter: HANDLE, arguments: *mut DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        let arguments = argument(arguments);
        let storage = D3DKMDT_STANDARDALLOCATION_TYPE::D3DKMDT_STANDARDALLOCATION_FENCESTORAGE;
        if toy.options.cross_adapter && arguments.StandardAllocationType != storage {
            return cross_adapter(&toy, arguments);
        }
        if arguments.StandardAllocationType != storage || toy.is("nf-storage-status") {
            return STATUS_NOT_SUPPORTED;
        }
        toy.count("fence storage");
        let data = argument(arguments.pCreateFenceStorageData());
        let intra = data.FenceStorageType == D3DDDI_NATIVEFENCE_TYPE::D3DDDI_NATIVEFENCE_TYPE_INTRA_GPU;
        let segment = if intra == toy.is("nf-storage-segment") { 2 } else { 3 };
        data.AllocationInfo.SupportedWriteSegmentSet = 1 << (segment - 1);
        data.AllocationInfo.PreferredSegment.Value = segment;
        STATUS_SUCCESS
    }

    fn root_size(adapter: HANDLE, arguments: *mut DXGKARG_GETROOTPAGETABLESIZE) -> usize {
        let Some(toy) = owner(adapter) else { return 0 };
        let arguments = argument(arguments);
        if toy.is("root-table-size") {
            return 100;
        }
        let bytes = (arguments.NumberOfPte as usize * 8).next_multiple_of(4096);
        arguments.NumberOfPte = (bytes / 8) as u32;
        bytes
    }

    fn set_root(adapter: HANDLE, arguments: *const DXGKARG_SETROOTPAGETABLE) {
        let Some(toy) = owner(adapter) else { return };
        let arguments = input(arguments);
        let mut state = toy.state();
        match state.contexts.get_mut(&number(arguments.hContext)) {
            Some(context) => {
                let root = Some((arguments.Address.SegmentId, arguments.Address.SegmentOffset));
                let is_another = context.root.is_some_and(|old| Some(old) != root);
                context.root = root;
                let (handle, suspended) = (number(arguments.hContext), context.suspended);
                let packets = state.engines.iter().flat_map(|engine| &engine.packets);
                let has_packets = packets.into_iter().any(|packet| packet.context == handle);
                let has_queues = state.queues.values().any(|queue| queue.context == handle);
                let runs = is_another && (has_packets || has_queues && !suspended);
                drop(state);
                if is_another {
                    toy.count("another root");
                }
                if runs {
                    toy.error(format!("another root for context {handle:#x}, which runs"));
                }
            }
            None => {
                drop(state);
                toy.error(format!("root of unknown context {:p}", arguments.hContext));
            }
        }
    }

    fn build_paging_buffer(adapter: HANDLE, arguments: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        super::paging::build(&toy, argument(arguments))
    }

    fn submit(adapter: HANDLE, arguments: *const DXGKARG_SUBMITCOMMANDVIRTUAL) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        let arguments = input(arguments);
        let paging = arguments.Flags.Paging();
        if !paging && toy.is("submit-status") {
            return STATUS_UNSUCCESSFUL;
        }
        toy.count(if paging { "paging packet" } else { "packet" });
        if arguments.Flags.Resubmission() {
            toy.count("resubmission");
        }
        if paging && toy.is("paging-end") {
            return STATUS_SUCCESS;
        }
        let mut state = toy.state();
        let context = match number(arguments.hContext) {
            0 => state.system_context,
            context => context,
        };
        let engine = arguments.EngineOrdinal as usize;
        if engine >= toy.options.engines || state.contexts.get(&context).is_none_or(|known| known.engine != engine) {
            drop(state);
            toy.error(format!("packet {:#x} on engine {engine}", arguments.SubmissionFenceId));
            return STATUS_INVALID_PARAMETER;
        }
        state.engines[engine].packets.push_back(Packet {
            fence: arguments.SubmissionFenceId,
            context,
            address: arguments.DmaBufferVirtualAddress,
            size: arguments.DmaBufferSize.into(),
            at: 0,
            paging,
        });
        drop(state);
        toy.poke();
        STATUS_SUCCESS
    }

    fn escape(adapter: HANDLE, arguments: *const DXGKARG_ESCAPE) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        let arguments = input(arguments);
        if toy.is("escape-status") {
            return STATUS_NOT_SUPPORTED;
        }
        if toy.is("tdr-ddi-delay") {
            nt_model::Machine::with_current(|machine| machine.map(|machine| machine.delay_execution(-20_000_000)));
        }
        if arguments.PrivateDriverDataSize < 4 {
            return STATUS_INVALID_PARAMETER;
        }
        let word = argument(arguments.pPrivateDriverData.cast::<u32>());
        *word = !*word;
        STATUS_SUCCESS
    }
}

/// Sizes or data of the allocation that is shared with another adapter: what user mode would pass.
fn cross_adapter(toy: &Toy, arguments: &mut DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA) -> NTSTATUS {
    toy.count("cross adapter");
    let private: *mut u64 = arguments.pAllocationPrivateDriverData.cast();
    if private.is_null() {
        arguments.AllocationPrivateDriverDataSize = 16;
        return STATUS_SUCCESS;
    }
    let words: &[u64] = if toy.is("cross-overrun") { &[4096, 0, 7] } else { &[4096, 0] };
    for (index, word) in words.iter().enumerate() {
        // SAFETY: 16 bytes that Dxgkrnl has made as they were asked for; for the mutant behind them, where the model
        // watches.
        unsafe { private.wrapping_add(index).write(*word) };
    }
    STATUS_SUCCESS
}

/// What some mutants do while a device is created.
fn disturb(toy: &std::sync::Arc<Toy>) {
    let machine = |f: &dyn Fn(&nt_model::Machine)| {
        nt_model::Machine::with_current(|machine| {
            if let Some(machine) = machine {
                f(machine);
            }
        });
    };
    match toy.options.mutant {
        "ddi-time" => machine(&|machine| {
            machine.delay_execution(-3_000_000);
        }),
        "int-level" => super::interrupt::notify_alone(toy, 1),
        "int-reentrant" => machine(&|machine| {
            let other = toy.clone();
            let thread = machine.spawn_system_thread("toy", move || super::interrupt::notify_alone(&other, 30));
            super::interrupt::notify_alone(toy, 30);
            machine.wait_for_object(thread.header(), None);
        }),
        _ => (),
    }
}
