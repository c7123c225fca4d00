//! Functions of the table that no ordinary life of an adapter without displays comes to: each is called once, with arguments as
//! its page has them and every [out] member poisoned, and what it returns and fills is judged.
//!
//! [`Personality::every_slot`](crate::personality::Personality::every_slot) turns it on. It happens while everything still
//! lives, at the beginning of a stop: a function that needs a hardware context, a queue or an allocation gets one of those that
//! processes have, and is not called where there is none.
//!
//! Chosen: presents and command buffers of GDI are empty, with a DMA buffer of a page behind them; the system's paging context
//! stands for the context that GDI would make. Not called are StopDevice's neighbours and what has a place of its own:
//! SubmitCommand, which an adapter with GPU virtual addresses is given no work by, and
//! NotifySurpriseRemoval when a device goes ([`Os::remove_by_surprise`](crate::os::Os::remove_by_surprise)).

use std::sync::Arc;

use wddm_abi::{
    DXGK_CHILD_STATUS, DXGK_CHILD_STATUS_TYPE, DXGK_DEVICE_DESCRIPTOR, DXGK_EVENT_TYPE, DXGK_HISTORY_BUFFER,
    DXGK_KERNEL_SUBMISSION_TYPE, DXGKARG_BEGINEXCLUSIVEACCESS, DXGKARG_CALIBRATEGPUCLOCK, DXGKARG_DESCRIBEALLOCATION,
    DXGKARG_ENDEXCLUSIVEACCESS, DXGKARG_FORMATHISTORYBUFFER, DXGKARG_PATCH, DXGKARG_PRESENT, DXGKARG_QUERYCURRENTFENCE,
    DXGKARG_QUERYDEPENDENTENGINEGROUP, DXGKARG_QUERYENGINESTATUS, DXGKARG_RENDER, DXGKARG_RENDERGDI,
    DXGKARG_SETSTABLEPOWERSTATE, DXGKARG_SETVIRTUALMACHINEDATA, DXGKARG_SIGNALMONITOREDFENCE,
    DXGKARG_SWITCHTOHWCONTEXTLIST, DXGKARG_UPDATEHWCONTEXTSTATE, DXGKARG_UPDATEMONITORLINKINFO, HANDLE, NTSTATUS,
    Plain, VIDEO_REQUEST_PACKET, ntstatus,
};

use super::Adapter;
use super::query::Buffer;
use crate::ddi::{NoCall, call_ddi};
use crate::rules::slot::{SLOT_MEMBERS, SLOT_STATUS};
use crate::statuses::{self, Answer};

/// What [out] members hold before a call.
const POISON: u32 = 0xA5A5_A5A5;
/// Bytes of the buffers that a call may write to.
const ROOM: usize = 4096;

/// What the calls name.
struct Objects {
    /// The driver's context.
    miniport: HANDLE,
    /// A context of packets.
    context: HANDLE,
    hw_context: Option<HANDLE>,
    hw_queue: Option<HANDLE>,
    allocation: Option<HANDLE>,
    node: u32,
}

impl Adapter {
    /// Calls them all.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(super) fn call_every_slot(self: &Arc<Self>) {
        if !self.personality().every_slot || self.rules().is_stopped() {
            return;
        }
        let handle = core::ptr::with_exposed_provenance_mut::<core::ffi::c_void>;
        let hw_context = self.hw_contexts().into_iter().next();
        let queue = hw_context.as_ref().and_then(|context| context.queues().into_iter().next());
        let objects = Objects {
            miniport: self.context(),
            context: handle(self.memory.system_context()),
            hw_context: hw_context.map(|context| handle(context.driver_handle())),
            hw_queue: queue.map(|queue| handle(queue.driver_handle())),
            allocation: self.any_allocation().map(handle),
            node: self.known_caps().paging_node(),
        };
        self.notices(&objects);
        self.children_of_no_display(&objects);
        self.drawing(&objects);
        self.presents(&objects);
        self.scheduling(&objects);
        self.questions(&objects);
    }

    /// The driver's handle of some allocation of some process.
    fn any_allocation(self: &Arc<Self>) -> Option<usize> {
        let processes = self.shared().processes();
        processes.iter().flat_map(|process| process.allocations_on(self)).map(|one| one.driver_handle()).next()
    }

    /// Judges a status. `true`: the function was called and succeeded.
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

    /// Judges a member: `right`, and the words for it.
    fn member(&self, right: bool, what: impl FnOnce() -> String) {
        self.rules().check(&SLOT_MEMBERS, right, what);
    }

    /// What tells the driver something.
    fn notices(&self, objects: &Objects) {
        let miniport = objects.miniport;
        let kind = DXGK_EVENT_TYPE::DxgkAcpiEvent;
        let mut flags = POISON;
        let (argument, pointer) = (core::ptr::null_mut(), &raw mut flags);
        let status = call_ddi!(self, DxgkDdiNotifyAcpiEvent(miniport, kind, 0, argument, pointer));
        if self.returned("DxgkDdiNotifyAcpiEvent", status) {
            self.member(flags != POISON, || "DxgkDdiNotifyAcpiEvent left AcpiFlags as it was".to_owned());
        }
        let _ = call_ddi!(self, DxgkDdiControlEtwLogging(0, 0, 0));
        let stable = DXGKARG_SETSTABLEPOWERSTATE::zeroed();
        let pointer = &raw const stable;
        let _ = call_ddi!(self, DxgkDdiSetStablePowerState(miniport, pointer));
        self.exclusive_access(objects);
        let _ = call_ddi!(self, DxgkDdiResetDevice(miniport));
    }

    /// What belongs to virtual machines and to access by one process alone: begun and ended with no work in between.
    fn exclusive_access(&self, objects: &Objects) {
        let miniport = objects.miniport;
        let machine = DXGKARG_SETVIRTUALMACHINEDATA::zeroed();
        let pointer = &raw const machine;
        let status = call_ddi!(self, DxgkDdiSetVirtualMachineData(miniport, pointer));
        self.returned("DxgkDdiSetVirtualMachineData", status);
        let mut begin = DXGKARG_BEGINEXCLUSIVEACCESS::zeroed();
        let pointer = &raw mut begin;
        let status = call_ddi!(self, DxgkDdiBeginExclusiveAccess(miniport, pointer));
        if self.returned("DxgkDdiBeginExclusiveAccess", status) {
            let mut end = DXGKARG_ENDEXCLUSIVEACCESS::zeroed();
            let pointer = &raw mut end;
            let status = call_ddi!(self, DxgkDdiEndExclusiveAccess(miniport, pointer));
            self.returned("DxgkDdiEndExclusiveAccess", status);
        }
    }

    /// Questions after children and links, of which there are none.
    fn children_of_no_display(&self, objects: &Objects) {
        let miniport = objects.miniport;
        let mut child = DXGK_CHILD_STATUS::zeroed();
        child.Type = DXGK_CHILD_STATUS_TYPE::StatusConnection;
        let pointer = &raw mut child;
        let status = call_ddi!(self, DxgkDdiQueryChildStatus(miniport, pointer, 1));
        self.returned("DxgkDdiQueryChildStatus", status);
        let mut block = Buffer::new(128, 0);
        let mut descriptor = DXGK_DEVICE_DESCRIPTOR::zeroed();
        descriptor.DescriptorLength = 128;
        descriptor.DescriptorBuffer = block.pointer().cast();
        let pointer = &raw mut descriptor;
        let status = call_ddi!(self, DxgkDdiQueryDeviceDescriptor(miniport, 0, pointer));
        self.returned("DxgkDdiQueryDeviceDescriptor", status);
        let whole = block.overrun().is_none();
        self.member(whole, || "DxgkDdiQueryDeviceDescriptor wrote more than DescriptorLength".to_owned());
        let mut link = DXGKARG_UPDATEMONITORLINKINFO::zeroed();
        let pointer = &raw mut link;
        let status = call_ddi!(self, DxgkDdiUpdateMonitorLinkInfo(miniport, pointer));
        self.returned("DxgkDdiUpdateMonitorLinkInfo", status);
        let mut request = Buffer::new(64, 0);
        let pointer: *mut VIDEO_REQUEST_PACKET = request.pointer().cast();
        let status = call_ddi!(self, DxgkDdiDispatchIoRequest(miniport, 0, pointer));
        self.returned("DxgkDdiDispatchIoRequest", status);
    }

    /// Command buffers of GDI and of user mode's old way.
    fn drawing(&self, objects: &Objects) {
        let context = objects.context;
        let (mut commands, mut dma, mut private) = (Buffer::new(64, 0), Buffer::new(ROOM, 0), Buffer::new(256, 0));
        let mut gdi = DXGKARG_RENDERGDI::zeroed();
        gdi.pCommand = commands.pointer().cast_const().cast();
        gdi.pDmaBuffer = dma.pointer().cast();
        gdi.DmaSize = ROOM as u32;
        gdi.pDmaBufferPrivateData = private.pointer().cast();
        gdi.DmaBufferPrivateDataSize = 256;
        let pointer = &raw mut gdi;
        let status = call_ddi!(self, DxgkDdiRenderGdi(context, pointer));
        if self.returned("DxgkDdiRenderGdi", status) {
            let more = gdi.MultipassOffset;
            self.member(more == 0, || format!("DxgkDdiRenderGdi has nothing to do and wants pass {more}"));
        }
        let mut render = DXGKARG_RENDER::zeroed();
        render.pCommand = commands.pointer().cast_const().cast();
        render.pDmaBuffer = dma.pointer().cast();
        render.DmaSize = ROOM as u32;
        render.pDmaBufferPrivateData = private.pointer().cast();
        render.DmaBufferPrivateDataSize = 256;
        let (mut km, first) = (render, &raw mut render);
        let status = call_ddi!(self, DxgkDdiRender(context, first));
        self.returned("DxgkDdiRender", status);
        let second = &raw mut km;
        let status = call_ddi!(self, DxgkDdiRenderKm(context, second));
        self.returned("DxgkDdiRenderKm", status);
        let patch = DXGKARG_PATCH::zeroed();
        let (miniport, pointer) = (objects.miniport, &raw const patch);
        let status = call_ddi!(self, DxgkDdiPatch(miniport, pointer));
        self.returned("DxgkDdiPatch", status);
        let whole = [&dma, &private].iter().all(|buffer| buffer.overrun().is_none());
        self.member(whole, || "a DMA buffer was written beyond its end".to_owned());
    }

    /// A present of nothing, on a context and on a queue; what an allocation looks like.
    fn presents(&self, objects: &Objects) {
        let (mut lists, mut dma) = (Buffer::new(256, 0), Buffer::new(ROOM, 0));
        let mut present = DXGKARG_PRESENT::zeroed();
        present.pDmaBuffer = dma.pointer().cast();
        present.DmaSize = ROOM as u32;
        present.pPatchLocationListOut = lists.pointer().cast();
        present.Flags.set_Blt(true);
        let (mut other, context, first) = (present, objects.context, &raw mut present);
        let status = call_ddi!(self, DxgkDdiPresent(context, first));
        self.returned("DxgkDdiPresent", status);
        if let Some(queue) = objects.hw_queue {
            let second = &raw mut other;
            let status = call_ddi!(self, DxgkDdiPresentToHwQueue(queue, second));
            self.returned("DxgkDdiPresentToHwQueue", status);
        }
        if let Some(allocation) = objects.allocation {
            let mut description = DXGKARG_DESCRIBEALLOCATION::zeroed();
            description.as_bytes_mut().fill(0xA5);
            description.hAllocation = allocation;
            let (miniport, pointer) = (objects.miniport, &raw mut description);
            let status = call_ddi!(self, DxgkDdiDescribeAllocation(miniport, pointer));
            if self.returned("DxgkDdiDescribeAllocation", status) {
                let sizes = (description.Width, description.Height);
                self.member(sizes.0 != POISON && sizes.1 != POISON, || {
                    format!("DxgkDdiDescribeAllocation: {sizes:x?}")
                });
            }
        }
    }

    /// The older hardware contexts, and signals that the driver builds.
    fn scheduling(&self, objects: &Objects) {
        let miniport = objects.miniport;
        if let Some(context) = objects.hw_context {
            let mut list = DXGKARG_SWITCHTOHWCONTEXTLIST::zeroed();
            list.hHwContextFirst = context;
            let pointer = &raw const list;
            let status = call_ddi!(self, DxgkDdiSwitchToHwContextList(miniport, pointer));
            self.returned("DxgkDdiSwitchToHwContextList", status);
            let mut state = DXGKARG_UPDATEHWCONTEXTSTATE::zeroed();
            state.hHwContext = context;
            let pointer = &raw const state;
            let status = call_ddi!(self, DxgkDdiUpdateHwContextState(miniport, pointer));
            self.returned("DxgkDdiUpdateHwContextState", status);
        }
        let mut dma = Buffer::new(ROOM, 0);
        let mut signal = DXGKARG_SIGNALMONITOREDFENCE::zeroed();
        signal.KernelSubmissionType = DXGK_KERNEL_SUBMISSION_TYPE::DXGK_KERNEL_SUBMISSION_RENDERGDI;
        signal.pDmaBuffer = dma.pointer().cast();
        signal.DmaSize = ROOM as u32;
        signal.MonitoredFenceValue = 1;
        let (context, pointer) = (objects.context, &raw mut signal);
        let status = call_ddi!(self, DxgkDdiSignalMonitoredFence(context, pointer));
        self.returned("DxgkDdiSignalMonitoredFence", status);
        let whole = dma.overrun().is_none();
        self.member(whole, || "DxgkDdiSignalMonitoredFence wrote beyond its DMA buffer".to_owned());
    }

    /// Questions that have an answer.
    fn questions(&self, objects: &Objects) {
        let (miniport, node) = (objects.miniport, objects.node);
        let mut fence = DXGKARG_QUERYCURRENTFENCE::zeroed();
        (fence.CurrentFence, fence.NodeOrdinal) = (POISON, node);
        let pointer = &raw mut fence;
        let status = call_ddi!(self, DxgkDdiQueryCurrentFence(miniport, pointer));
        if self.returned("DxgkDdiQueryCurrentFence", status) {
            let (current, which) = (fence.CurrentFence, fence.NodeOrdinal);
            self.member(current != POISON && which == node, || {
                format!("DxgkDdiQueryCurrentFence: CurrentFence {current:#x}, NodeOrdinal {which} for node {node}")
            });
        }
        let mut group = DXGKARG_QUERYDEPENDENTENGINEGROUP::zeroed();
        (group.NodeOrdinal, group.DependentNodeOrdinalMask) = (node, u64::MAX);
        let pointer = &raw mut group;
        let status = call_ddi!(self, DxgkDdiQueryDependentEngineGroup(miniport, pointer));
        if self.returned("DxgkDdiQueryDependentEngineGroup", status) {
            let (mask, which) = (group.DependentNodeOrdinalMask, group.NodeOrdinal);
            self.member(mask != u64::MAX && which == node, || {
                format!("DxgkDdiQueryDependentEngineGroup: mask {mask:#x}, NodeOrdinal {which} for node {node}")
            });
        }
        let mut engine = DXGKARG_QUERYENGINESTATUS::zeroed();
        engine.as_bytes_mut().fill(0xA5);
        (engine.NodeOrdinal, engine.EngineOrdinal) = (node, 0);
        let pointer = &raw mut engine;
        let status = call_ddi!(self, DxgkDdiQueryEngineStatus(miniport, pointer));
        if self.returned("DxgkDdiQueryEngineStatus", status) {
            let filled = engine.as_bytes()[8..12] != [0xA5; 4];
            self.member(filled, || "DxgkDdiQueryEngineStatus left EngineStatus as it was".to_owned());
        }
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
        format.NumTimestamps = POISON;
        format.Precision.PrecisionBits = POISON;
        let (context, pointer) = (objects.context, &raw mut format);
        let status = call_ddi!(self, DxgkDdiFormatHistoryBuffer(context, pointer));
        if self.returned("DxgkDdiFormatHistoryBuffer", status) {
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

    /// The flag asks for the clock of the context management processor: an input in a record that is filled otherwise.
    fn clock(&self, objects: &Objects) {
        let mut data = DXGKARG_CALIBRATEGPUCLOCK::zeroed();
        data.as_bytes_mut()[..24].fill(0xA5);
        data.Flags.set_ContextManagementProcessor(true);
        let asked = data.Flags.as_bytes().to_vec();
        let (miniport, node, pointer) = (objects.miniport, objects.node, &raw mut data);
        let status = call_ddi!(self, DxgkDdiCalibrateGpuClock(miniport, node, 0, pointer));
        if self.returned("DxgkDdiCalibrateGpuClock", status) {
            let words = data.as_bytes()[..24].as_chunks::<8>().0.iter().all(|word| *word != [0xA5; 8]);
            let kept = data.Flags.as_bytes() == asked.as_slice();
            self.member(words && kept, || format!("DxgkDdiCalibrateGpuClock: filled {words}, flags left {kept}"));
        }
    }
}
