//! Functions of the table that an adapter without displays does not need in its ordinary life: each is called once, and
//! what it returns and fills is judged. Records are zero but for inputs; each \[out\] member that is judged holds a
//! poison before the call.
//!
//! [`Personality::every_slot`](crate::port::personality::Personality::every_slot) turns the calls on. They come at the
//! beginning of a stop, while every object still lives: a function that needs a hardware context, a queue or an
//! allocation gets one of those that processes have, and is not called where there is none.
//!
//! Chosen: command buffers of GDI are empty, others are zeros, and a present is of one pixel; each has a DMA buffer
//! of a page. The system's paging context stands for the context that GDI would make, also where an allocation is
//! named that a process has open. What is built is not submitted. SubmitCommand gets one empty paging buffer, since an
//! adapter with GPU virtual addresses has no other work for it; NotifySurpriseRemoval is called when a device goes
//! ([`Os::remove_by_surprise`](crate::entry::os::Os::remove_by_surprise)). Functions of displays are not called.

use std::sync::Arc;

use core::ffi::c_void;

use wddm_abi::{
    D3DDDI_PATCHLOCATIONLIST, DXGK_ALLOCATIONLIST, DXGK_CHILD_STATUS, DXGK_CHILD_STATUS_TYPE, DXGK_CREATECONTEXTFLAGS,
    DXGK_DEVICE_DESCRIPTOR, DXGK_EVENT_TYPE, DXGK_HISTORY_BUFFER, DXGK_KERNEL_SUBMISSION_TYPE,
    DXGKARG_BEGINEXCLUSIVEACCESS, DXGKARG_CALIBRATEGPUCLOCK, DXGKARG_DESCRIBEALLOCATION, DXGKARG_ENDEXCLUSIVEACCESS,
    DXGKARG_FORMATHISTORYBUFFER, DXGKARG_PATCH, DXGKARG_PRESENT, DXGKARG_QUERYCURRENTFENCE,
    DXGKARG_QUERYDEPENDENTENGINEGROUP, DXGKARG_QUERYENGINESTATUS, DXGKARG_RENDER, DXGKARG_RENDERGDI,
    DXGKARG_SETSTABLEPOWERSTATE, DXGKARG_SETVIRTUALMACHINEDATA, DXGKARG_SIGNALMONITOREDFENCE,
    DXGKARG_SWITCHTOHWCONTEXTLIST, DXGKARG_UPDATEHWCONTEXTSTATE, DXGKARG_UPDATEMONITORLINKINFO, HANDLE, NTSTATUS,
    Plain, RECT, VIDEO_REQUEST_PACKET, ntstatus,
};

use crate::memory::VidMm;
use crate::memory::space::root_size;
use crate::objects::context;
use crate::objects::hw_context::HwContext;
use crate::objects::process::ProcessInner;
use crate::port::ddi::{NoCall, call_ddi};
use crate::port::handle::KernelHandle;
use crate::port::miniport::Miniport;
use crate::port::poison;
use crate::port::query::Buffer;
use crate::port::rules::slot::{SLOT_MEMBERS, SLOT_STATUS};
use crate::port::statuses::{self, Answer};
use crate::port::sync::{Lock, Rank, Signal};
use crate::port::worker::Worker;
use crate::recovery::collect;
use crate::sched::vidsch::VidSch;

/// Bytes of each DMA buffer that a call may write to.
const ROOM: usize = 4096;
/// Bytes of a DMA buffer's private data.
const PRIVATE: usize = 256;
/// Elements of each list of patch locations.
const LOCATIONS: usize = 8;

/// What `MultipassOffset` of a GDI command buffer holds before the call: some progress of passes before.
const PASSES: u32 = 0x0007_0003;
/// Where a history buffer is to be formatted from.
const HISTORY_FROM: u32 = 16;

/// Calls a function of an adapter's table, judges its status, and returns whether it succeeded.
macro_rules! ask {
    ($adapter:expr, $slot:ident($first:expr, $second:expr)) => {{
        let (first, second) = ($first, $second);
        $adapter.returned(stringify!($slot), call_ddi!($adapter, $slot(first, second)))
    }};
    ($adapter:expr, $slot:ident($first:expr, $second:expr, $third:expr)) => {{
        let (first, second, third) = ($first, $second, $third);
        $adapter.returned(stringify!($slot), call_ddi!($adapter, $slot(first, second, third)))
    }};
    ($adapter:expr, $slot:ident($first:expr, $second:expr, $third:expr, $fourth:expr)) => {{
        let (first, second, third, fourth) = ($first, $second, $third, $fourth);
        $adapter.returned(stringify!($slot), call_ddi!($adapter, $slot(first, second, third, fourth)))
    }};
}

/// The handles and the node that the calls name. No handle is NULL.
struct Objects {
    /// The driver's context of the adapter.
    miniport: HANDLE,
    /// The driver's handle of the system's paging context.
    context: HANDLE,
    hw_context: Option<HANDLE>,
    hw_queue: Option<HANDLE>,
    /// Handles of an allocation: of `DxgkDdiCreateAllocation`, of `DxgkDdiOpenAllocation`.
    allocation: Option<(HANDLE, HANDLE)>,
    node: u32,
}

/// What a function builds a DMA buffer in: the buffer, its private data, and lists.
struct Room {
    commands: Buffer,
    dma: Buffer,
    private: Buffer,
    locations: Buffer,
    allocations: [DXGK_ALLOCATIONLIST; 3],
}

impl Room {
    fn new() -> Self {
        Self {
            commands: Buffer::new(64, 0),
            dma: Buffer::of_pages(ROOM),
            private: Buffer::new(PRIVATE, 0),
            locations: Buffer::new(LOCATIONS * size_of::<D3DDDI_PATCHLOCATIONLIST>(), 0),
            allocations: [DXGK_ALLOCATIONLIST::zeroed(); 3],
        }
    }

    /// Describes a store behind one of the buffers. `None`: there was none.
    fn overrun(&self) -> Option<&'static str> {
        let all = [(&self.dma, "the DMA buffer"), (&self.private, "its private data"), (&self.locations, "a list")];
        all.into_iter().find(|(buffer, _)| buffer.overrun().is_some()).map(|(_, name)| name)
    }
}

impl Miniport {
    /// Calls each function once, where the personality asks for it and the rulebook has not stopped the machine. The
    /// objects that the calls name stay in the driver meanwhile.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(super) fn call_every_slot(self: &Arc<Self>) {
        if !self.personality().every_slot || self.rules().is_stopped() || VidMm::of(self).system_context() == 0 {
            return;
        }
        let handle = |number: usize| (number != 0).then(|| crate::port::handle::of_driver(number));
        let Some(context) = handle(VidMm::of(self).system_context()) else { return };
        let hw_context = HwContext::all_of(self).into_iter().next();
        let kept = hw_context.as_ref().map(|context| context.hold());
        let queue = hw_context.as_ref().and_then(|context| context.queues().into_iter().next());
        let named = queue.as_ref().and_then(|queue| queue.name());
        let open = ProcessInner::all_of(self.shared()).iter().flat_map(|process| process.allocations_on(self)).next();
        if let Some(open) = &open {
            open.hold();
        }
        let objects = Objects {
            miniport: self.context(),
            context,
            hw_context: hw_context.as_ref().and_then(|context| handle(context.driver_handle())),
            hw_queue: queue.as_ref().filter(|_| named.is_some()).and_then(|queue| handle(queue.driver_handle())),
            allocation: open
                .as_ref()
                .and_then(|open| handle(open.allocation().driver_handle()).zip(handle(open.device_specific()))),
            node: self.known_caps().paging_node(),
        };
        self.notices(&objects);
        self.children_of_no_display(&objects);
        self.gdi_context();
        self.drawing(&objects);
        self.presents(&objects);
        self.scheduling(&objects);
        self.submission();
        self.questions(&objects);
        drop(named);
        drop(kept);
        if let Some(open) = open {
            open.release();
        }
    }

    /// Judges a status against the list of the function's page. Returns whether the function was called and succeeded.
    fn returned(&self, function: &'static str, status: Result<NTSTATUS, NoCall>) -> bool {
        let Ok(status) = status else { return false };
        if status == ntstatus::STATUS_SYSTEM_SHUTDOWN {
            return false;
        }
        let entry = statuses::of(function);
        let answer = entry.map_or(Answer::Fits, |entry| entry.judge(status));
        if answer == Answer::Note {
            self.note_event(format!("{function}: {status:?} is none of the examples of its page"));
        }
        self.rules().check(&SLOT_STATUS, answer != Answer::Breaks, || {
            let listed = entry.map(|entry| entry.statuses.join(", ")).unwrap_or_default();
            format!("{function} returned {status:?}; its page has {listed}")
        });
        status.is_success()
    }

    /// Judges what a call left in its record: `right` says whether that is sound, `what` describes the fault.
    fn member(&self, right: bool, what: impl FnOnce() -> String) {
        self.rules().check(&SLOT_MEMBERS, right, what);
    }

    /// Judges where a function that built a DMA buffer left its pointers: in the buffer and in the list, or behind
    /// their last bytes. `kept`: whether the members that the page marks \[in\] are as they were.
    fn built(&self, function: &str, room: &Room, dma: *mut c_void, list: *mut D3DDDI_PATCHLOCATIONLIST, kept: bool) {
        let within = room.dma.holds(dma) && room.locations.holds(list);
        self.member(within && kept, || {
            format!("{function}: pDmaBuffer {dma:p}, pPatchLocationListOut {list:p}, inputs as they were: {kept}")
        });
    }

    /// Judges that a call has written behind none of its buffers, whatever it returned.
    fn whole(&self, function: &str, room: &Room) {
        let overrun = room.overrun();
        self.member(overrun.is_none(), || format!("{function} wrote behind {}", overrun.unwrap_or_default()));
    }

    /// Notices: an ACPI event, ETW logging, stable power, exclusive access, reset of the display device.
    fn notices(&self, objects: &Objects) {
        let miniport = objects.miniport;
        let kind = DXGK_EVENT_TYPE::DxgkAcpiEvent;
        let mut flags = poison::WORD;
        let (argument, pointer) = (core::ptr::null_mut::<core::ffi::c_void>(), &raw mut flags);
        let status = call_ddi!(self, DxgkDdiNotifyAcpiEvent(miniport, kind, 0, argument, pointer));
        if self.returned("DxgkDdiNotifyAcpiEvent", status) {
            self.member(flags != poison::WORD, || "DxgkDdiNotifyAcpiEvent left AcpiFlags as it was".to_owned());
        }
        let _ = call_ddi!(self, DxgkDdiControlEtwLogging(0, 0, 0));
        let stable = DXGKARG_SETSTABLEPOWERSTATE::zeroed();
        let pointer = &raw const stable;
        let _ = call_ddi!(self, DxgkDdiSetStablePowerState(miniport, pointer));
        let machine = DXGKARG_SETVIRTUALMACHINEDATA::zeroed();
        ask!(self, DxgkDdiSetVirtualMachineData(miniport, &raw const machine));
        // A switch of IOMMU domains, with no work in between. The records have reserved members only.
        let mut begin = DXGKARG_BEGINEXCLUSIVEACCESS::zeroed();
        if ask!(self, DxgkDdiBeginExclusiveAccess(miniport, &raw mut begin)) {
            let mut end = DXGKARG_ENDEXCLUSIVEACCESS::zeroed();
            ask!(self, DxgkDdiEndExclusiveAccess(miniport, &raw mut end));
        }
        let _ = call_ddi!(self, DxgkDdiResetDevice(miniport));
    }

    /// Questions about children and monitor links, of which a render-only adapter has none; an I/O request.
    fn children_of_no_display(&self, objects: &Objects) {
        let miniport = objects.miniport;
        let mut child = DXGK_CHILD_STATUS::zeroed();
        child.as_bytes_mut().fill(poison::BYTE);
        (child.Type, child.ChildUid) = (DXGK_CHILD_STATUS_TYPE::StatusConnection, 0);
        if ask!(self, DxgkDdiQueryChildStatus(miniport, &raw mut child, 1)) {
            let (connected, uid) = (child.HotPlug().Connected, child.ChildUid);
            let kept = child.Type == DXGK_CHILD_STATUS_TYPE::StatusConnection && uid == 0;
            self.member(connected <= 1 && kept, || {
                format!("DxgkDdiQueryChildStatus: Connected {connected:#x}, {:?} of child {uid}", child.Type)
            });
        }
        let mut block = Buffer::new(128, 0);
        let mut descriptor = DXGK_DEVICE_DESCRIPTOR::zeroed();
        descriptor.DescriptorLength = 128;
        descriptor.DescriptorBuffer = block.pointer().cast();
        ask!(self, DxgkDdiQueryDeviceDescriptor(miniport, 0, &raw mut descriptor));
        let whole = block.overrun().is_none();
        self.member(whole, || "DxgkDdiQueryDeviceDescriptor wrote more than DescriptorLength".to_owned());
        let mut link = DXGKARG_UPDATEMONITORLINKINFO::zeroed();
        ask!(self, DxgkDdiUpdateMonitorLinkInfo(miniport, &raw mut link));
        let mut request = Buffer::new(64, 0);
        let packet: *mut VIDEO_REQUEST_PACKET = request.pointer().cast();
        ask!(self, DxgkDdiDispatchIoRequest(miniport, 0, packet));
    }

    /// A context of GDI's on the paging node, with no private data: made, judged as every context, and destroyed.
    fn gdi_context(&self) {
        let Some(system) = VidSch::of(self).system_context() else { return };
        let mut flags = DXGK_CREATECONTEXTFLAGS::zeroed();
        flags.set_GdiContext(true);
        let handle = KernelHandle::<context::Context>::reserve();
        let place = (self.known_caps().paging_node(), 0);
        if let Ok(made) = context::create_in_driver(system.device(), &handle, place, &mut [], flags) {
            context::destroy_in_driver(self, made.driver);
        }
    }

    /// Command buffers by RenderGdi, Render and RenderKm, and Patch of a DMA buffer with nothing submitted.
    fn drawing(&self, objects: &Objects) {
        let mut room = Room::new();
        let mut gdi = DXGKARG_RENDERGDI::zeroed();
        gdi.pCommand = room.commands.pointer().cast_const().cast();
        gdi.CommandLength = 64;
        gdi.pDmaBuffer = room.dma.pointer().cast();
        gdi.DmaSize = ROOM as u32;
        gdi.pDmaBufferPrivateData = room.private.pointer().cast();
        gdi.DmaBufferPrivateDataSize = PRIVATE as u32;
        // As behind passes of the driver's own, of which it alone knows what the number means.
        gdi.MultipassOffset = PASSES;
        // Its elements name no allocation.
        // CAST: a few elements.
        (gdi.pAllocationList, gdi.AllocationListSize) = (room.allocations.as_mut_ptr(), room.allocations.len() as u32);
        if ask!(self, DxgkDdiRenderGdi(objects.context, &raw mut gdi)) {
            let passes = gdi.MultipassOffset;
            self.member(passes == PASSES || passes == 0, || {
                format!("DxgkDdiRenderGdi has nothing to do and wants pass {passes:#x} behind {PASSES:#x}")
            });
            let list = room.locations.pointer().cast();
            self.built("DxgkDdiRenderGdi", &room, gdi.pDmaBuffer, list, gdi.DmaSize == ROOM as u32);
        }
        self.whole("DxgkDdiRenderGdi", &room);
        self.render(objects, false);
        self.render(objects, true);
        let mut room = Room::new();
        let mut patch = DXGKARG_PATCH::zeroed();
        patch.set_hContext(objects.context);
        patch.pDmaBuffer = room.dma.pointer().cast();
        patch.DmaBufferSize = ROOM as u32;
        patch.pDmaBufferPrivateData = room.private.pointer().cast();
        patch.DmaBufferPrivateDataSize = PRIVATE as u32;
        patch.pAllocationList = room.allocations.as_ptr();
        // CAST: a few elements.
        patch.AllocationListSize = room.allocations.len() as u32;
        patch.pPatchLocationList = room.locations.pointer().cast_const().cast();
        ask!(self, DxgkDdiPatch(objects.miniport, &raw const patch));
        self.whole("DxgkDdiPatch", &room);
    }

    /// A command buffer of 64 zero bytes, of user mode or (`kernel`) of kernel mode.
    fn render(&self, objects: &Objects, kernel: bool) {
        let mut room = Room::new();
        let mut render = DXGKARG_RENDER::zeroed();
        render.pCommand = room.commands.pointer().cast_const().cast();
        render.CommandLength = 64;
        render.pDmaBuffer = room.dma.pointer().cast();
        render.DmaSize = ROOM as u32;
        render.pDmaBufferPrivateData = room.private.pointer().cast();
        render.DmaBufferPrivateDataSize = PRIVATE as u32;
        render.pAllocationList = room.allocations.as_mut_ptr();
        render.pPatchLocationListOut = room.locations.pointer().cast();
        // CAST: a few elements of each.
        (render.AllocationListSize, render.PatchLocationListOutSize) =
            (room.allocations.len() as u32, LOCATIONS as u32);
        let (context, asked) = (objects.context, render);
        let (name, done) = if kernel {
            ("DxgkDdiRenderKm", ask!(self, DxgkDdiRenderKm(context, &raw mut render)))
        } else {
            ("DxgkDdiRender", ask!(self, DxgkDdiRender(context, &raw mut render)))
        };
        if done {
            let kept = render.pCommand == asked.pCommand
                && (render.CommandLength, render.DmaSize) == (asked.CommandLength, asked.DmaSize);
            self.built(name, &room, render.pDmaBuffer, render.pPatchLocationListOut, kept);
        }
        self.whole(name, &room);
    }

    /// A present of one pixel of an allocation onto another one of it, on a context and on a hardware queue; the
    /// description of the allocation. Without an allocation there is nothing to present.
    fn presents(&self, objects: &Objects) {
        let Some((allocation, opened)) = objects.allocation else { return };
        self.present(objects.context, opened, false);
        if let Some(queue) = objects.hw_queue {
            self.present(queue, opened, true);
        }
        let mut description = DXGKARG_DESCRIBEALLOCATION::zeroed();
        description.as_bytes_mut().fill(poison::BYTE);
        description.hAllocation = allocation;
        if ask!(self, DxgkDdiDescribeAllocation(objects.miniport, &raw mut description)) {
            let sizes = (description.Width, description.Height);
            let kept = description.hAllocation == allocation;
            self.member(kept && sizes.0 != poison::WORD && sizes.1 != poison::WORD, || {
                format!("DxgkDdiDescribeAllocation: {sizes:x?}")
            });
        }
    }

    fn present(&self, target: HANDLE, opened: HANDLE, to_queue: bool) {
        let mut room = Room::new();
        // Elements 1 and 2 are the source and the destination.
        for element in &mut room.allocations[1..] {
            element.hDeviceSpecificAllocation = opened;
        }
        let pixel = RECT { left: 0, top: 0, right: 1, bottom: 1 };
        let mut present = DXGKARG_PRESENT::zeroed();
        present.pDmaBuffer = room.dma.pointer().cast();
        present.DmaSize = ROOM as u32;
        present.pDmaBufferPrivateData = room.private.pointer().cast();
        present.DmaBufferPrivateDataSize = PRIVATE as u32;
        present.set_pAllocationList(room.allocations.as_mut_ptr());
        present.pPatchLocationListOut = room.locations.pointer().cast();
        // CAST: a few elements.
        present.PatchLocationListOutSize = LOCATIONS as u32;
        (present.SrcRect, present.DstRect) = (pixel, pixel);
        (present.SubRectCnt, present.pDstSubRects) = (1, &raw const pixel);
        present.Flags.set_Blt(true);
        let (name, done) = if to_queue {
            ("DxgkDdiPresentToHwQueue", ask!(self, DxgkDdiPresentToHwQueue(target, &raw mut present)))
        } else {
            ("DxgkDdiPresent", ask!(self, DxgkDdiPresent(target, &raw mut present)))
        };
        if done {
            let kept = present.DmaSize == ROOM as u32 && present.SubRectCnt == 1;
            self.built(name, &room, present.pDmaBuffer, present.pPatchLocationListOut, kept);
        }
        self.whole(name, &room);
    }

    /// SwitchToHwContextList and UpdateHwContextState, and a signal that the driver builds in a DMA buffer, which is
    /// not submitted.
    fn scheduling(&self, objects: &Objects) {
        let miniport = objects.miniport;
        if let Some(context) = objects.hw_context {
            let mut list = DXGKARG_SWITCHTOHWCONTEXTLIST::zeroed();
            list.hHwContextFirst = context;
            ask!(self, DxgkDdiSwitchToHwContextList(miniport, &raw const list));
            let mut state = DXGKARG_UPDATEHWCONTEXTSTATE::zeroed();
            state.hHwContext = context;
            ask!(self, DxgkDdiUpdateHwContextState(miniport, &raw const state));
        }
        let mut room = Room::new();
        let mut signal = DXGKARG_SIGNALMONITOREDFENCE::zeroed();
        signal.KernelSubmissionType = DXGK_KERNEL_SUBMISSION_TYPE::DXGK_KERNEL_SUBMISSION_RENDERGDI;
        signal.pDmaBuffer = room.dma.pointer().cast();
        signal.DmaBufferGpuVirtualAddress = 0x10_0000;
        signal.DmaSize = ROOM as u32;
        signal.pDmaBufferPrivateData = room.private.pointer().cast();
        signal.DmaBufferPrivateDataSize = PRIVATE as u32;
        (signal.MonitoredFenceGpuVa, signal.MonitoredFenceValue) = (0x20_0000, 1);
        if ask!(self, DxgkDdiSignalMonitoredFence(objects.context, &raw mut signal)) {
            let kept = (signal.MonitoredFenceGpuVa, signal.MonitoredFenceValue) == (0x20_0000, 1);
            let list = room.locations.pointer().cast();
            self.built("DxgkDdiSignalMonitoredFence", &room, signal.pDmaBuffer, list, kept);
        }
        self.whole("DxgkDdiSignalMonitoredFence", &room);
    }

    /// An empty paging buffer by `DxgkDdiSubmitCommand`, the way of contexts without GPU virtual addresses.
    fn submission(self: &Arc<Self>) {
        let node = VidSch::of(self).node(self.known_caps().paging_node());
        let (Some(node), Some(context)) = (node, VidSch::of(self).system_context()) else { return };
        if self.table().DxgkDdiSubmitCommand.is_none() || node.is_hardware_scheduled {
            return;
        }
        // On the scheduler's worker, as every other submission: ids reach the driver in their order.
        let slot = Arc::new((Lock::new(Rank::Leaf, None), Signal::new()));
        let answer = slot.clone();
        let work = move |adapter: &Arc<Self>| {
            let submitted = node.packet.submit_physical(adapter, &context);
            *answer.0.lock() = Some(submitted);
            answer.1.notify(adapter.kernel());
        };
        Worker::of(self).defer(self, Box::new(work));
        let Some((status, completion)) = slot.1.wait_for(self.kernel(), None, || slot.0.lock().take()) else { return };
        if self.returned("DxgkDdiSubmitCommand", status) {
            completion.wait(self);
        }
    }

    /// Functions that answer: current fence, dependent engines, engine status, the size of a root page table, debug
    /// information, history buffer, GPU clock.
    fn questions(&self, objects: &Objects) {
        let (miniport, node) = (objects.miniport, objects.node);
        let mut fence = DXGKARG_QUERYCURRENTFENCE::zeroed();
        (fence.CurrentFence, fence.NodeOrdinal) = (poison::WORD, node);
        if ask!(self, DxgkDdiQueryCurrentFence(miniport, &raw mut fence)) {
            let (current, which) = (fence.CurrentFence, fence.NodeOrdinal);
            self.member(current != poison::WORD && which == node, || {
                format!("DxgkDdiQueryCurrentFence: CurrentFence {current:#x}, NodeOrdinal {which} for node {node}")
            });
        }
        let mut group = DXGKARG_QUERYDEPENDENTENGINEGROUP::zeroed();
        (group.NodeOrdinal, group.DependentNodeOrdinalMask) = (node, u64::MAX);
        if ask!(self, DxgkDdiQueryDependentEngineGroup(miniport, &raw mut group)) {
            let (mask, which) = (group.DependentNodeOrdinalMask, group.NodeOrdinal);
            self.member(mask != u64::MAX && which == node, || {
                format!("DxgkDdiQueryDependentEngineGroup: mask {mask:#x}, NodeOrdinal {which} for node {node}")
            });
        }
        let mut engine = DXGKARG_QUERYENGINESTATUS::zeroed();
        engine.as_bytes_mut().fill(poison::BYTE);
        (engine.NodeOrdinal, engine.EngineOrdinal) = (node, 0);
        if ask!(self, DxgkDdiQueryEngineStatus(miniport, &raw mut engine)) {
            let filled = engine.as_bytes()[8..12] != [poison::BYTE; 4];
            self.member(filled, || "DxgkDdiQueryEngineStatus left EngineStatus as it was".to_owned());
        }
        // Windows asks it where page tables have two levels, and takes the debug information by the newer function.
        if self.table().DxgkDdiGetRootPageTableSize.is_some() {
            root_size(self, 1);
        }
        collect::older(self);
        self.history(objects);
        self.clock(objects);
    }

    fn history(&self, objects: &Objects) {
        let (mut raw, mut formatted) = (Buffer::new(64, 0), Buffer::new(64, 0));
        let mut format = DXGKARG_FORMATHISTORYBUFFER::zeroed();
        format.pHistoryBuffer = raw.pointer().cast::<DXGK_HISTORY_BUFFER>();
        format.HistoryBufferSize = 64;
        format.pFormattedBuffer = formatted.pointer().cast();
        format.FormattedBufferSize = 64;
        format.NumTimestamps = poison::WORD;
        format.Precision.PrecisionBits = poison::WORD;
        // An input as well: the rest of a history that another call has begun.
        format.Offset = HISTORY_FROM;
        if ask!(self, DxgkDdiFormatHistoryBuffer(objects.context, &raw mut format)) {
            // A history of no time stamps is formatted at once.
            let precise = (1..=64).contains(&format.Precision.PrecisionBits);
            self.member(format.NumTimestamps == 0 && precise && format.Offset == 0, || {
                let (bits, number) = (format.Precision.PrecisionBits, format.NumTimestamps);
                format!(
                    "DxgkDdiFormatHistoryBuffer: {number:#x} time stamps of {bits:#x} bits, offset {}",
                    format.Offset
                )
            });
        }
    }

    /// Calibrates with `ContextManagementProcessor`: the flag is an input in a record whose other members are outputs.
    fn clock(&self, objects: &Objects) {
        let mut data = DXGKARG_CALIBRATEGPUCLOCK::zeroed();
        data.as_bytes_mut()[..24].fill(poison::BYTE);
        data.Flags.set_ContextManagementProcessor(true);
        let asked = data.Flags.as_bytes().to_vec();
        if ask!(self, DxgkDdiCalibrateGpuClock(objects.miniport, objects.node, 0, &raw mut data)) {
            let words = data.as_bytes()[..24].as_chunks::<8>().0.iter().all(|word| *word != [poison::BYTE; 8]);
            let kept = data.Flags.as_bytes() == asked.as_slice();
            self.member(words && kept, || format!("DxgkDdiCalibrateGpuClock: filled {words}, flags left {kept}"));
        }
    }
}
