//! Processes, devices, packet contexts, allocations and paging buffers.

use wddm_abi::ntstatus::{
    STATUS_GRAPHICS_ALLOCATION_BUSY, STATUS_GRAPHICS_INSUFFICIENT_DMA_BUFFER, STATUS_INVALID_PARAMETER,
    STATUS_NOT_SUPPORTED, STATUS_SUCCESS, STATUS_UNSUCCESSFUL,
};
use wddm_abi::{
    DRIVER_INITIALIZATION_DATA, DXGK_BUILDPAGINGBUFFER_OPERATION, DXGK_PAGETABLEUPDATEMODE, DXGK_PTE,
    DXGKARG_BUILDPAGINGBUFFER, DXGKARG_CLOSEALLOCATION, DXGKARG_CREATEALLOCATION, DXGKARG_CREATECONTEXT,
    DXGKARG_CREATEDEVICE, DXGKARG_CREATEPROCESS, DXGKARG_DESTROYALLOCATION, DXGKARG_ESCAPE, DXGKARG_GETROOTPAGETABLESIZE,
    DXGKARG_OPENALLOCATION, DXGKARG_SETROOTPAGETABLE, DXGKARG_SUBMITCOMMANDVIRTUAL, HANDLE, NTSTATUS, win_extern,
};

use super::gpu::{self, opcode};
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
        argument(arguments).hKmdProcess = raw(toy.own());
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
        let handle = toy.own();
        let context = Context {
            device: number(device),
            node: arguments.NodeOrdinal,
            os: number(arguments.hContext) as u64,
            ..Context::default()
        };
        toy.state().contexts.insert(handle, context);
        arguments.hContext = raw(handle);
        arguments.ContextInfo.DmaBufferPrivateDataSize = 32;
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
            let handle = toy.own();
            toy.state().allocations.insert(handle, size);
            info.hAllocation = raw(handle);
            info.Size = if toy.is("alloc-size") { 0 } else { size as usize };
            info.AllocationPriority = 0x7800_0000;
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
        for handle in array(arguments.pAllocationList, arguments.NumAllocations as usize) {
            toy.state().allocations.remove(&number(*handle));
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
            info.hDeviceSpecificAllocation = raw(toy.own());
        }
        STATUS_SUCCESS
    }

    fn close_allocation(device: HANDLE, arguments: *const DXGKARG_CLOSEALLOCATION) -> NTSTATUS {
        let Some(toy) = owner(device) else { return UNKNOWN };
        let arguments = input(arguments);
        for handle in array(arguments.pOpenHandleList, arguments.NumAllocations as usize) {
            toy.disown(number(*handle));
        }
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
            Some(context) => context.root = Some((arguments.Address.SegmentId, arguments.Address.SegmentOffset)),
            None => {
                drop(state);
                toy.error(format!("root of unknown context {:p}", arguments.hContext));
            }
        }
    }

    fn build_paging_buffer(adapter: HANDLE, arguments: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        build(&toy, argument(arguments))
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
        toy.state().packets.push_back(Packet {
            fence: arguments.SubmissionFenceId,
            context: number(arguments.hContext),
            address: arguments.DmaBufferVirtualAddress,
            size: arguments.DmaBufferSize.into(),
            at: 0,
            paging,
        });
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
        "ddi-time" => machine(&|machine| drop(machine.delay_execution(-3_000_000))),
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

/// Room in a paging buffer, in words.
struct Writer {
    at: *mut u64,
    room: usize,
}

impl Writer {
    fn of(arguments: &DXGKARG_BUILDPAGINGBUFFER) -> Self {
        Self { at: arguments.pDmaBuffer.cast(), room: arguments.DmaSize as usize / 8 }
    }

    /// Writes everything, or nothing.
    fn put(&mut self, words: &[u64]) -> bool {
        if words.len() > self.room {
            return false;
        }
        for word in words {
            // SAFETY: there is room, by Dxgkrnl's word.
            unsafe { self.at.write_unaligned(*word) };
            self.at = self.at.wrapping_add(1);
        }
        self.room -= words.len();
        true
    }
}

fn build(toy: &Toy, arguments: &mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
    use DXGK_BUILDPAGINGBUFFER_OPERATION as Operation;
    let immediate = arguments.pDmaBuffer.is_null();
    if !immediate {
        match toy.options.mutant {
            "paging-status" => return STATUS_UNSUCCESSFUL,
            "paging-busy" => return STATUS_GRAPHICS_ALLOCATION_BUSY,
            "paging-progress" => return STATUS_GRAPHICS_INSUFFICIENT_DMA_BUFFER,
            "paging-overrun" => {
                let end: *mut u8 = arguments.pDmaBuffer.cast();
                // SAFETY: none: this mutant writes behind the buffer, where the model watches.
                unsafe { end.add(arguments.DmaSize as usize).write(0) };
            }
            "paging-private" => {
                let end: *mut u8 = arguments.pDmaBufferPrivateData.cast();
                // SAFETY: as above.
                unsafe { end.add(arguments.DmaBufferPrivateDataSize as usize).write(0) };
            }
            _ => (),
        }
    }
    let mut writer = Writer::of(arguments);
    let fits = match arguments.Operation {
        Operation::DXGK_OPERATION_UPDATE_PAGE_TABLE => return update(toy, arguments),
        Operation::DXGK_OPERATION_FLUSH_TLB => writer.put(&[opcode::FLUSH]),
        Operation::DXGK_OPERATION_VIRTUAL_FILL => {
            let op = *arguments.FillVirtual();
            toy.count("fill");
            writer.put(&[opcode::FILL, op.DestinationVirtualAddress, op.FillSizeInBytes, op.FillPattern.into()])
        }
        Operation::DXGK_OPERATION_VIRTUAL_TRANSFER => {
            let op = *arguments.TransferVirtual();
            toy.count("transfer");
            writer.put(&[opcode::COPY, op.SourceVirtualAddress, op.DestinationVirtualAddress, op.TransferSizeInBytes])
        }
        Operation::DXGK_OPERATION_SIGNAL_MONITORED_FENCE => {
            let op = *arguments.SignalMonitoredFence();
            writer.put(&[opcode::WRITE, op.MonitoredFenceGpuVa, op.MonitoredFenceValue])
        }
        Operation::DXGK_OPERATION_MAP_APERTURE_SEGMENT => {
            toy.count("map aperture");
            true
        }
        Operation::DXGK_OPERATION_UNMAP_APERTURE_SEGMENT => {
            toy.count("unmap aperture");
            true
        }
        Operation::DXGK_OPERATION_NOTIFY_RESIDENCY => {
            toy.count("notify residency");
            true
        }
        _ => true,
    };
    if !fits {
        return STATUS_GRAPHICS_INSUFFICIENT_DMA_BUFFER;
    }
    arguments.pDmaBuffer = writer.at.cast();
    STATUS_SUCCESS
}

/// An entry as the GPU has it: valid, writable, segment, address; or the zero page.
fn entry(pte: &DXGK_PTE) -> u64 {
    if pte.Zero() {
        return gpu::ZERO;
    }
    if !pte.Valid() {
        return 0;
    }
    let write = if pte.ReadOnly() { 0 } else { gpu::WRITE };
    gpu::VALID | write | pte.Segment() << gpu::SEGMENT_SHIFT | pte.PageAddress() << 12
}

fn update(toy: &Toy, arguments: &mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
    let op = *arguments.UpdatePageTable();
    let count = op.NumPageTableEntries as usize;
    let repeat = op.Flags.Repeat();
    let source = array(op.pPageTableEntries.cast_const(), if repeat { 1 } else { count });
    let value = |index: usize| entry(&source[if repeat { 0 } else { index }]);
    if op.UpdateMode == DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_CPU_VIRTUAL {
        if toy.is("paging-immediate") && arguments.pDmaBuffer.is_null() {
            return STATUS_GRAPHICS_INSUFFICIENT_DMA_BUFFER;
        }
        let table: *mut u64 = op.PageTableAddress.CpuVirtual().cast();
        for index in 0..count {
            // SAFETY: the table is mapped there, and the indices are its.
            unsafe { table.add(op.StartIndex as usize + index).write_volatile(value(index)) };
        }
        return STATUS_SUCCESS;
    }
    let (segment, address) = if op.UpdateMode == DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_GPU_VIRTUAL {
        (gpu::BY_ADDRESS, op.PageTableAddress.GpuVirtual())
    } else {
        let place = op.PageTableAddress.GpuPhysical();
        (u64::from(place.SegmentId), place.SegmentOffset)
    };
    let mut writer = Writer::of(arguments);
    // Entries that earlier buffers took.
    let mut done = arguments.MultipassOffset as usize;
    let mut status = STATUS_SUCCESS;
    while done < count {
        let head = 5;
        if writer.room <= head {
            status = STATUS_GRAPHICS_INSUFFICIENT_DMA_BUFFER;
            break;
        }
        let part = if repeat { count - done } else { (writer.room - head).min(count - done) };
        let values: Vec<_> = if repeat { vec![value(0)] } else { (done..done + part).map(value).collect() };
        let first = u64::from(op.StartIndex) + done as u64;
        let code = if repeat { opcode::REPEAT } else { opcode::ENTRIES };
        if !writer.put(&[code, segment, address, first, part as u64]) || !writer.put(&values) {
            status = STATUS_GRAPHICS_INSUFFICIENT_DMA_BUFFER;
            break;
        }
        done += part;
    }
    arguments.MultipassOffset = done as u32;
    arguments.pDmaBuffer = writer.at.cast();
    status
}
