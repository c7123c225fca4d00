//! Contexts of packet nodes, and the system context.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use nt_model::sched::Ticks;
use wddm_abi::{
    DXGK_CONTEXTINFO, DXGK_CREATECONTEXTFLAGS, DXGKARG_CANCELCOMMAND, DXGKARG_CREATECONTEXT, DXGKARG_SETROOTPAGETABLE,
    NTSTATUS, Plain, ntstatus,
};

use crate::memory::VidMm;
use crate::memory::page_table::Described;
use crate::memory::paging::PagingContext;
use crate::objects::command::Commands;
use crate::objects::companion::Update;
use crate::objects::device::{Device, judge_creation};
use crate::objects::hw_queue::STANDSTILL;
use crate::objects::priority::Priority;
use crate::port::alive::make_room;
use crate::port::caps::Caps;
use crate::port::ddi::{self, call_ddi};
use crate::port::handle::{DriverHandle, KernelHandle, KernelObject};
use crate::port::hook::Hook;
use crate::port::miniport::Miniport;
use crate::port::personality::StrayRoot;
use crate::port::poison;
use crate::port::rules::paging::{
    CANCEL_STATUS, CONTEXT_COMPANION, CONTEXT_INFO, CONTEXT_OUTPUT, CONTEXT_SEGMENT, OBJECT_HANDLE,
};
use crate::port::sync::{Lock, Rank};
use crate::port::tdr::DeviceState;
use crate::port::worker::Worker;

/// A context of a packet node.
#[derive(Debug)]
pub(crate) struct Context {
    device: Arc<Device>,
    node: u32,
    handle: KernelHandle<Context>,
    driver: DriverHandle,
    private_size: u32,
    companion_node: u32,
    has_segment: bool,
    /// Whether it is another context's companion, in the space of companions.
    is_companion: bool,
    /// As clients have set it.
    priority: Lock<Priority>,
    commands: Commands,
}

impl KernelObject for Context {
    const KIND: &'static str = "context";
}

/// Waits until no buffer of a context is with the driver: the scheduler enters it as a [`Hook`]. IRQL: PASSIVE_LEVEL.
pub(crate) type Retire = fn(&Arc<Miniport>, &Arc<Context>);

impl PagingContext for Context {
    fn driver_handle(&self) -> usize {
        self.driver.number()
    }
}

/// Contexts of packet nodes that processes have on an adapter, by node.
#[derive(Debug)]
struct Contexts(Lock<BTreeMap<u32, Vec<Weak<Context>>>>);

impl Default for Contexts {
    fn default() -> Self {
        Self(Lock::new(Rank::Registry, BTreeMap::new()))
    }
}

impl Context {
    /// The contexts that processes have on a node, in the order in which they came, those among them that were
    /// destroyed and are in use still.
    pub(crate) fn on_node(adapter: &Miniport, node: u32) -> Vec<Arc<Self>> {
        let Contexts(lists) = adapter.extension();
        lists.lock().get(&node).map(|list| list.iter().filter_map(Weak::upgrade).collect()).unwrap_or_default()
    }

    /// Enters it among those of its node, which gives it turns from here on.
    pub(crate) fn enter(self: &Arc<Self>) {
        let Contexts(lists) = self.device.adapter().extension();
        let mut lists = lists.lock();
        let list = lists.entry(self.node).or_default();
        make_room(list);
        list.push(Arc::downgrade(self));
    }

    /// The nodes go: the adapter stops.
    pub(crate) fn leave_nodes(adapter: &Miniport) {
        let Contexts(lists) = adapter.extension();
        let gone = std::mem::take(&mut *lists.lock());
        drop(gone);
    }

    /// Makes a context for a process.
    ///
    /// # Errors
    /// What the driver returned.
    pub(crate) fn create(
        device: &Arc<Device>,
        node: u32,
        affinity: u32,
        private: &mut [u8],
        flags: DXGK_CREATECONTEXTFLAGS,
    ) -> Result<Arc<Self>, NTSTATUS> {
        let context = Self::make(device, (node, affinity), private, flags, false)?;
        device.process().admit(device, context.driver_handle(), || device.add_context(&context));
        Ok(context)
    }

    /// Makes the companion of a context: `root` is that of the process's privileged address space.
    ///
    /// # Errors
    /// What the driver returned.
    pub(crate) fn create_companion(
        device: &Arc<Device>,
        node: u32,
        flags: DXGK_CREATECONTEXTFLAGS,
        root: Option<Root>,
    ) -> Result<Arc<Self>, NTSTATUS> {
        let context = Self::make(device, (node, 0), &mut [], flags, true)?;
        set_root(device, context.driver_handle(), root);
        device.add_context(&context);
        context.enter();
        Ok(context)
    }

    /// Makes the system context, without a root page table.
    pub(crate) fn create_system(device: &Arc<Device>, node: u32) -> Result<Arc<Self>, NTSTATUS> {
        let mut flags = DXGK_CREATECONTEXTFLAGS::zeroed();
        flags.set_SystemContext(true);
        Self::make(device, (node, 0), &mut [], flags, false)
    }

    /// Has the root page table of its process, if there is one.
    pub(crate) fn give_root(&self) {
        set_root(&self.device, self.driver_handle(), self.device.process().address_space().root());
    }

    fn make(
        device: &Arc<Device>,
        place: (u32, u32),
        private: &mut [u8],
        flags: DXGK_CREATECONTEXTFLAGS,
        is_companion: bool,
    ) -> Result<Arc<Self>, NTSTATUS> {
        let handle = KernelHandle::reserve();
        let made = create_in_driver(device, &handle, place, private, flags)?;
        let context = Arc::new(Self {
            device: device.clone(),
            node: place.0,
            handle,
            driver: DriverHandle::of_number(made.driver),
            private_size: made.private_size,
            companion_node: made.companion_node,
            has_segment: made.has_segment,
            is_companion,
            priority: Lock::new(Rank::Leaf, Priority::default()),
            commands: Commands::new(),
        });
        context.handle.bind(&context);
        Ok(context)
    }

    /// The priorities that clients have set.
    pub(crate) fn priority(&self) -> Priority {
        *self.priority.lock()
    }

    /// Changes the priorities: the next buffer goes by them.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn set_priority(&self, change: impl FnOnce(&mut Priority)) {
        change(&mut self.priority.lock());
        Worker::of(self.device.adapter()).kick(self.device.adapter());
    }

    /// Returns whether it is another context's companion.
    pub(crate) fn is_companion(&self) -> bool {
        self.is_companion
    }

    /// `PagingCompanionNodeId`.
    pub(crate) fn companion_node(&self) -> u32 {
        self.companion_node
    }

    /// Has the paging worker make changes of page tables on this companion.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn update(self: &Arc<Self>, adapter: &Arc<Miniport>, update: Update) {
        let Some(manager) = VidMm::of(adapter).manager() else { return self.commands.completed(adapter.kernel()) };
        let this = self.clone();
        manager.post(
            adapter,
            Box::new(move |adapter, manager| {
                if update.make(adapter, manager, &this).is_err() {
                    let device = this.device.clone();
                    // Failing a device may need the worker that this is.
                    Worker::of(adapter).defer(adapter, Box::new(move |_| device.fail(DeviceState::Stopped)));
                }
                this.commands.completed(adapter.kernel());
                Worker::of(adapter).kick(adapter);
            }),
        );
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns whether it names a segment for DMA buffers, or need not.
    pub(crate) fn has_segment(&self) -> bool {
        self.has_segment
    }

    /// Its node.
    pub(crate) fn node(&self) -> u32 {
        self.node
    }

    /// The driver's handle, as a number; 0 once it is destroyed.
    pub(crate) fn driver_handle(&self) -> usize {
        self.driver.number()
    }

    /// Whether it has this handle, in Dxgkrnl's numbers or in the driver's.
    pub(crate) fn has_handle(&self, handle: usize) -> bool {
        self.driver_handle() == handle || self.handle.raw().expose_provenance() == handle
    }

    /// Returns whether a packet of it may begin now.
    pub(crate) fn may_begin(&self) -> bool {
        self.device.usable().is_ok() && self.device.process().runs_packets()
    }

    /// Returns whether the context can be given packets: on a hardware-scheduled node nothing schedules them.
    pub(crate) fn takes_commands(&self) -> bool {
        self.device.adapter().known_caps().node(self.node).is_some_and(|node| !node.is_hardware_scheduled())
    }

    /// Bytes of private data that the driver wants with each submission.
    pub(crate) fn private_size(&self) -> usize {
        self.private_size as usize
    }

    /// What was submitted and has not been done.
    pub(crate) fn commands(&self) -> &Commands {
        &self.commands
    }

    /// Waits until everything that was submitted is done, is given up, or the device fails.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn drain(&self, until: Ticks) {
        let adapter = self.device.adapter();
        let standstill = STANDSTILL * adapter.personality().tdr.delay;
        let over = || self.device.usable().is_err() || !adapter.is_working();
        if !self.commands.drain(adapter.kernel(), standstill, until, over) {
            self.cancel();
        }
    }

    /// Waits until nothing that was begun is under way, also of a lost device.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn settle(&self) {
        let adapter = self.device.adapter();
        self.commands
            .changed
            .wait_for(adapter.kernel(), None, || (self.commands.is_settled() || !adapter.is_working()).then_some(()));
    }

    /// Its device is lost: what never got to the driver is dropped, and the driver told of it where it wants to be.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn cancel(&self) {
        let dropped = self.commands.drop_all();
        let adapter = self.device.adapter();
        if !adapter.known_caps().driver.SchedulingCaps.CancelCommandAware() || self.driver_handle() == 0 {
            return;
        }
        for submission in dropped {
            let mut arguments = DXGKARG_CANCELCOMMAND::zeroed();
            arguments.hContext = self.driver.raw();
            arguments.DmaBufferSize = submission.size;
            arguments.DmaBufferSubmissionEndOffset = submission.size;
            arguments.pDmaBufferPrivateData = submission.private.as_ptr().cast_mut().cast();
            arguments.DmaBufferPrivateDataSize = submission.private_size;
            arguments.DmaBufferPrivateDataSubmissionEndOffset = submission.private_size;
            arguments.DmaBufferVirtualAddress = submission.address;
            arguments.DmaBufferUmdPrivateDataSize = submission.private_user;
            let (miniport, pointer) = (adapter.context(), &raw const arguments);
            let status = ddi::status(call_ddi!(adapter, DxgkDdiCancelCommand(miniport, pointer)));
            let fine = ddi::succeeded(status);
            adapter.rules().check(&CANCEL_STATUS, fine, || format!("{status:?}"));
        }
    }

    /// `DxgkDdiDestroyContext`, when nothing of it runs any more. A second call does nothing.
    pub(crate) fn destroy(self: &Arc<Self>) {
        if let Some(driver) = self.retire() {
            destroy_in_driver(self.device.adapter(), driver);
        }
    }

    /// As [`destroy`](Self::destroy), and the driver is not told: its device is destroyed next.
    pub(crate) fn forsake(self: &Arc<Self>) {
        self.retire();
    }

    /// Waits until nothing of it runs any more. Returns the driver's handle, once.
    fn retire(self: &Arc<Self>) -> Option<usize> {
        self.commands.drop_all();
        self.device.process().forget_companion(self.driver_handle());
        let adapter = self.device.adapter();
        if let Some(retire) = Hook::<Retire>::of(adapter) {
            retire(adapter, self);
        }
        let driver = self.driver.take()?;
        self.device.forget_context(self);
        Some(driver)
    }
}

/// What a driver made of a context.
pub(crate) struct Made {
    /// Its handle, as a number.
    pub(crate) driver: usize,
    /// Bytes of private data that it wants with each submission.
    pub(crate) private_size: u32,
    /// `PagingCompanionNodeId`.
    pub(crate) companion_node: u32,
    /// It names a segment for DMA buffers, or need not.
    pub(crate) has_segment: bool,
}

/// Calls `DxgkDdiCreateContext`: for packet contexts, and with `HwQueueSupported` for hardware contexts. `place`: node
/// and engine affinity as user mode names it. hContext goes in with Dxgkrnl's handle, by which the driver names the
/// context in callbacks.
///
/// Source: DDI page DXGKARGCB_INVALIDATEHWCONTEXT, hHwContext (its own page knows the member as an output alone).
///
/// # Errors
/// What the driver returned.
pub(crate) fn create_in_driver<T>(
    device: &Arc<Device>,
    handle: &KernelHandle<T>,
    place: (u32, u32),
    private: &mut [u8],
    mut flags: DXGK_CREATECONTEXTFLAGS,
) -> Result<Made, NTSTATUS> {
    let adapter = device.adapter();
    let caps = adapter.known_caps();
    flags.set_VirtualAddressing(caps.is_gpu_mmu() || caps.is_io_mmu());
    let mut arguments = DXGKARG_CREATECONTEXT::zeroed();
    arguments.hContext = handle.raw();
    // ContextInfo is an output as a whole: the poison shows which members the driver did not write.
    arguments.ContextInfo.as_bytes_mut().fill(poison::BYTE);
    let at = caps.place(place.0);
    (arguments.NodeOrdinal, arguments.EngineAffinity) =
        (at.node, adapter.personality().affinity.of(place.1, at.engine));
    adapter.note_affinity(arguments.EngineAffinity);
    arguments.Flags = flags;
    if !private.is_empty() {
        arguments.pPrivateDriverData = private.as_mut_ptr().cast();
        // CAST: limited by the thunk.
        arguments.PrivateDriverDataSize = private.len() as u32;
    }
    let owner = crate::port::handle::of_driver(device.driver_handle());
    let pointer = &raw mut arguments;
    let status = ddi::status(call_ddi!(adapter, DxgkDdiCreateContext(owner, pointer)));
    let listed = [ntstatus::STATUS_NO_MEMORY, ntstatus::STATUS_GRAPHICS_DRIVER_MISMATCH];
    judge_creation(adapter, "DxgkDdiCreateContext", status, &listed)?;
    let made = arguments.hContext;
    adapter.rules().check(&OBJECT_HANDLE, !made.is_null() && made != handle.raw(), || {
        "DxgkDdiCreateContext stored no hContext".to_owned()
    });
    let info = judge_info(adapter, &arguments);
    let (private_size, companion_node) = (info.DmaBufferPrivateDataSize, info.PagingCompanionNodeId);
    let has_segment = info.DmaBufferSegmentSet != 0 || !wants_segment(&caps);
    Ok(Made { driver: made.expose_provenance(), private_size, companion_node, has_segment })
}

/// `AllocationListSize` that a GDI context has to have.
const GDI_ALLOCATIONS: u32 = 256;

/// Calls `DxgkDdiDestroyContext` and judges its status. `driver`: the driver's handle, as a number.
pub(crate) fn destroy_in_driver(adapter: &Miniport, driver: usize) {
    let handle = crate::port::handle::of_driver(driver);
    let status = ddi::status(call_ddi!(adapter, DxgkDdiDestroyContext(handle)));
    adapter.judge_destroy("DxgkDdiDestroyContext", status);
}

/// Returns whether the system's contexts of an adapter have to name a segment for their DMA buffers.
fn wants_segment(caps: &Caps) -> bool {
    caps.is_gpu_mmu() && !caps.is_compute_only()
}

/// Judges what the driver says of a context. Returns that, with zero in the members that the driver did not write.
fn judge_info(adapter: &Miniport, arguments: &DXGKARG_CREATECONTEXT) -> DXGK_CONTEXTINFO {
    let caps = adapter.known_caps();
    let info = &arguments.ContextInfo;
    let written = !info.as_bytes().chunks_exact(4).any(|word| word == [poison::BYTE; 4]);
    let gdi = !arguments.Flags.GdiContext() || info.AllocationListSize == GDI_ALLOCATIONS;
    adapter.rules().check(&CONTEXT_OUTPUT, written && info.Reserved == 0 && gdi, || format!("{info:x?}"));
    let mut info = DXGK_CONTEXTINFO::zeroed();
    let words = arguments.ContextInfo.as_bytes().chunks_exact(4).zip(info.as_bytes_mut().chunks_exact_mut(4));
    words.filter(|(word, _)| *word != [poison::BYTE; 4]).for_each(|(word, to)| to.copy_from_slice(word));
    let set = info.DmaBufferSegmentSet;
    let is_aperture = |bit: u32| caps.segment(bit + 1).is_some_and(crate::port::caps::Segment::is_aperture);
    let fine = (0..32).filter(|bit| set & (1 << bit) != 0).all(is_aperture);
    adapter.rules().check(&CONTEXT_INFO, fine, || format!("DmaBufferSegmentSet is {set:#x}"));
    if arguments.Flags.SystemContext() && wants_segment(&caps) {
        adapter.rules().check(&CONTEXT_SEGMENT, set != 0, || "DmaBufferSegmentSet is 0".to_owned());
    }
    let companion = info.PagingCompanionNodeId;
    let takes_packets = caps.node(companion).is_some_and(|node| !node.is_hardware_scheduled());
    // An adapter without GPU page tables has no entries that a companion context would write.
    let right = takes_packets || !caps.is_gpu_mmu();
    adapter.rules().check(&CONTEXT_COMPANION, right, || format!("PagingCompanionNodeId is {companion:#x}"));
    info
}

/// Segment, address and number of entries of a root page table.
pub(crate) type Root = ((u32, u64), u64);

/// `DxgkDdiSetRootPageTable` for a context, by the driver's handle.
///
/// Chosen: called right after a context was created, whichever way ("before a graphics context of a process can be set
/// for execution"); the page of the record knows only handles of `DxgkDdiCreateContext`.
pub(crate) fn set_root(device: &Device, context: usize, root: Option<Root>) {
    let adapter = device.adapter();
    let Some(((mut segment, address), entries)) = root else { return };
    let stray = adapter.personality().faults.stray_root;
    segment = match stray.filter(|_| !device.process().address_space().is_paging()) {
        Some(StrayRoot::Segment) => 31,
        Some(StrayRoot::Aperture) => Described::new(&adapter.known_caps()).aperture.unwrap_or(segment),
        None => segment,
    };
    let mut arguments = DXGKARG_SETROOTPAGETABLE::zeroed();
    arguments.hContext = crate::port::handle::of_driver(context);
    arguments.Address.SegmentId = segment;
    arguments.Address.SegmentOffset = address;
    // CAST: a root has at most 2^32 entries.
    arguments.NumEntries = entries as u32;
    let (miniport, pointer) = (adapter.context(), &raw const arguments);
    let _ = call_ddi!(adapter, DxgkDdiSetRootPageTable(miniport, pointer));
}
