//! The operating system's side: handles, memory, fences, queues, doorbells.
#![expect(unsafe_code, reason = "hands out memory as the operating system does")]

use gpu_wire::packet::Packet;
use gpu_wire::private::{AdapterInfo, AllocationData, MAGIC, Rung};
use gpu_wire::{GpuVa, INTERFACE_VERSION, PAGE_SIZE};
use std::alloc::{Layout, alloc_zeroed};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use umd_core::thunks::Thunk;
use wddm_abi::{D3DKMT_DEVICEEXECUTION_STATE, NTSTATUS};

/// An adapter of the mock.
#[derive(Clone)]
pub struct Adapter {
    /// What the driver says; `None` for somebody else's adapter.
    pub info: Option<AdapterInfo>,
    /// `HwSchEnabled`.
    pub scheduling: bool,
    /// `NativeGpuFenceSupported`.
    pub native_fences: bool,
    /// LUID, low half.
    pub luid: u32,
}

impl Adapter {
    /// One of ours, on a rung.
    pub fn ours(rung: Rung) -> Self {
        let info = AdapterInfo {
            magic: MAGIC,
            interface_version: INTERFACE_VERSION,
            rung: rung.raw(),
            doorbell_model: 0,
            physical_doorbells: 64,
            node_count: 3,
            local_segment_size: 256 << 20,
            gpu_clock_frequency: 1_000_000_000,
            software_signal_nodes: 0,
            flags: 0,
        };
        Self {
            info: Some(info),
            scheduling: rung >= Rung::HardwareQueues,
            native_fences: rung >= Rung::NativeFences,
            luid: 77,
        }
    }

    /// Somebody else's.
    pub fn foreign(luid: u32) -> Self {
        Self { info: None, scheduling: true, native_fences: false, luid }
    }
}

/// Memory that lives for ever.
#[derive(Clone, Copy)]
pub struct Block {
    pub base: *mut u8,
    pub len: u64,
}
// SAFETY: leaked memory that everyone accesses atomically or as raw bytes.
unsafe impl Send for Block {}

impl Block {
    pub fn new(len: u64) -> Self {
        let layout = Layout::from_size_align(len as usize, PAGE_SIZE as usize).unwrap();
        // SAFETY: the layout is not empty; the block is never freed.
        Self { base: unsafe { alloc_zeroed(layout) }, len }
    }

    pub fn word(self, offset: u64) -> &'static AtomicU64 {
        assert!(offset + 8 <= self.len && offset.is_multiple_of(8));
        let at = self.base.wrapping_add(offset as usize).cast();
        // SAFETY: inside the leaked block, aligned (the base is), accessed atomically.
        unsafe { AtomicU64::from_ptr(at) }
    }

    pub fn read(self, offset: u64, to: &mut [u8]) {
        assert!(offset + to.len() as u64 <= self.len);
        let from = self.base.wrapping_add(offset as usize);
        // SAFETY: inside the leaked block.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
    }

    pub fn write(self, offset: u64, from: &[u8]) {
        assert!(offset + from.len() as u64 <= self.len);
        let to = self.base.wrapping_add(offset as usize);
        // SAFETY: inside the leaked block.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    }
}

/// An allocation.
#[derive(Clone)]
pub struct Memory {
    pub block: Block,
    pub data: AllocationData,
    pub gpu_va: Option<GpuVa>,
    pub resident: bool,
    pub locked: bool,
    pub resource: u32,
    pub shared_by_handle: bool,
}

/// A fence: native or monitored.
#[derive(Clone)]
pub struct Fence {
    pub word: &'static AtomicU64,
    pub gpu_va: GpuVa,
    pub native: bool,
    pub shared_by_handle: bool,
    pub private_data: [u8; 64],
}

/// A doorbell.
pub struct Doorbell {
    pub handle: u32,
    pub word: &'static AtomicU64,
    pub status: &'static AtomicU64,
    pub last_queued: &'static AtomicU64,
    pub ring: u32,
    pub control: u32,
    pub connected: bool,
}

/// A hardware queue or a packet context.
pub struct Queue {
    pub user_mode: bool,
    pub progress: u32,
    pub doorbell: Option<Doorbell>,
    /// Kernel-mode submissions: command buffers and waits.
    pub submitted: VecDeque<Submission>,
    pub consumed: u64,
    /// A fence wait that is not met.
    pub parked: Option<(GpuVa, u64)>,
    /// What was executed, as it decoded.
    pub executed: Vec<Packet<'static>>,
    pub waits: u64,
    pub signals: u64,
    /// The last progress value that was signaled.
    pub last_progress: u64,
    /// Position of a command buffer that a parked queue goes on with.
    pub resume: Option<(GpuVa, u64)>,
}

/// What was submitted through the kernel.
#[derive(Clone, Copy)]
pub enum Submission {
    Buffer { address: GpuVa, length: u64, progress: u64 },
    Wait { fence: u32, value: u64 },
    Signal { fence: u32, value: u64 },
}

/// A CPU wait that is not met.
pub struct Waiter {
    pub fence: u32,
    pub value: u64,
    pub event: u64,
}

/// Everything.
pub struct World {
    pub adapters: Vec<Adapter>,
    /// Exports that gdi32 lacks.
    pub missing: Vec<String>,
    /// Exports beyond the known ones.
    pub more: Vec<String>,
    /// Whether thunks read and write the longer records of the 28000 kit.
    pub newer_kit: bool,
    /// Status that the next connects leave behind, in order; CONNECTED when there are none.
    pub connect_statuses: VecDeque<u64>,
    /// The device is lost, with this state, while `D3DKMTNotifyWorkSubmission` runs next.
    pub lost_by_notify: Option<D3DKMT_DEVICEEXECUTION_STATE>,
    /// Refuse the next call of a thunk.
    pub refuse: Vec<(Thunk, NTSTATUS)>,
    /// Whether paging operations stay pending until somebody waits.
    pub paging_pending: bool,
    /// Whether MakeResident without CantTrimFurther does half of what it is asked for and refuses the rest.
    pub over_budget: bool,
    /// Events of the next waits that are set before the value is reached.
    pub early_events: usize,
    /// How many allocations each call of MakeResident named.
    pub residency: Vec<usize>,
    /// What the progress fence of a new queue starts with.
    pub first_progress: u64,
    /// Whether the KMD leaves the private data of doorbells as they are.
    pub silent_driver: bool,
    /// Whether the GPU runs when a CPU wait is made. Off: it hangs.
    pub gpu_runs: bool,
    pub state: D3DKMT_DEVICEEXECUTION_STATE,
    pub calls: Vec<Thunk>,
    pub complaints: Vec<String>,
    pub next_handle: u32,
    pub open: BTreeMap<u32, &'static str>,
    pub memory: BTreeMap<u32, Memory>,
    pub fences: BTreeMap<u32, Fence>,
    pub queues: BTreeMap<u32, Queue>,
    pub shared: BTreeMap<u64, u32>,
    pub events: BTreeMap<u64, bool>,
    pub waiters: Vec<Waiter>,
    pub time: u64,
    /// What was queued last, by each of the times that were asked for.
    pub queued_at: BTreeMap<u64, u64>,
    next_va: u64,
    fence_page: Block,
    fence_page_va: GpuVa,
    fence_slots: u64,
    /// Fence of the paging queue, and the value that was promised last.
    pub paging: Option<(u32, u64)>,
}

impl World {
    pub fn new(adapters: Vec<Adapter>) -> Self {
        let fence_page = Block::new(16 * PAGE_SIZE);
        Self {
            adapters,
            missing: vec![],
            more: vec![],
            newer_kit: false,
            connect_statuses: VecDeque::new(),
            lost_by_notify: None,
            refuse: vec![],
            paging_pending: false,
            over_budget: false,
            early_events: 0,
            residency: vec![],
            first_progress: 0,
            silent_driver: false,
            gpu_runs: true,
            state: D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ACTIVE,
            calls: vec![],
            complaints: vec![],
            next_handle: 0x40,
            open: BTreeMap::new(),
            memory: BTreeMap::new(),
            fences: BTreeMap::new(),
            queues: BTreeMap::new(),
            shared: BTreeMap::new(),
            events: BTreeMap::new(),
            waiters: vec![],
            time: 1000,
            queued_at: BTreeMap::new(),
            next_va: 0x10_0000,
            fence_page,
            fence_page_va: GpuVa(0x8_0000),
            fence_slots: 0,
            paging: None,
        }
    }

    pub fn complain(&mut self, what: impl Into<String>) {
        self.complaints.push(what.into());
    }

    /// A handle for a new object.
    pub fn create(&mut self, kind: &'static str) -> u32 {
        self.next_handle += 0x40;
        self.open.insert(self.next_handle, kind);
        self.next_handle
    }

    /// A handle for the `n`-th adapter, a new one each time.
    pub fn open_adapter(&mut self, n: usize) -> u32 {
        self.next_handle += 4;
        let handle = (n as u32 + 1) * 0x10_0000 + self.next_handle;
        self.open.insert(handle, "adapter");
        handle
    }

    /// Ends an object's life.
    pub fn destroy(&mut self, handle: u32, kind: &'static str) {
        if self.open.remove(&handle) != Some(kind) {
            self.complain(format!("{handle:#x} is no {kind}"));
        }
    }

    /// What is alive, by kind.
    pub fn live(&self) -> Vec<String> {
        let handles = self.open.iter().map(|(handle, kind)| format!("{kind} {handle:#x}"));
        handles.chain(self.events.keys().map(|event| format!("event {event:#x}"))).collect()
    }

    /// GPU addresses for so many bytes.
    pub fn map(&mut self, bytes: u64) -> GpuVa {
        let va = GpuVa(self.next_va);
        self.next_va += bytes.next_multiple_of(PAGE_SIZE) + PAGE_SIZE;
        va
    }

    /// A new fence with a word of its own.
    pub fn new_fence(&mut self, native: bool, initial: u64, shared_by_handle: bool) -> u32 {
        let offset = self.fence_slots * 64;
        self.fence_slots += 1;
        let word = self.fence_page.word(offset);
        word.store(initial, Ordering::Relaxed);
        let handle = self.create("fence");
        let gpu_va = GpuVa(self.fence_page_va.0 + offset);
        self.fences.insert(handle, Fence { word, gpu_va, native, shared_by_handle, private_data: [0; 64] });
        handle
    }

    /// Where a GPU address lies, if it is mapped and resident.
    pub fn translate(&mut self, va: GpuVa, len: u64) -> Option<(Block, u64)> {
        let end = va.0 + len;
        if va.0 >= self.fence_page_va.0 && end <= self.fence_page_va.0 + self.fence_page.len {
            return Some((self.fence_page, va.0 - self.fence_page_va.0));
        }
        let inside = |m: &&Memory| m.gpu_va.is_some_and(|base| va.0 >= base.0 && end <= base.0 + m.block.len);
        let memory = self.memory.values().find(inside)?.clone();
        if !memory.resident {
            self.complain(format!("GPU access to {va:x}, which is not resident"));
        }
        if self.paging.is_some_and(|(fence, promised)| self.value(fence) < promised) {
            self.complain("GPU access before the paging fence was waited for");
        }
        Some((memory.block, va.0 - memory.gpu_va?.0))
    }

    /// The fence whose value the GPU finds at `va`.
    pub fn fence_at(&self, va: GpuVa) -> Option<u32> {
        self.fences.iter().find(|(_, fence)| fence.gpu_va == va).map(|(handle, _)| *handle)
    }

    pub fn value(&self, fence: u32) -> u64 {
        self.fences.get(&fence).map_or(u64::MAX, |fence| fence.word.load(Ordering::Acquire))
    }

    /// Stores a fence's value and wakes who waits for it.
    pub fn signal(&mut self, fence: u32, value: u64) {
        if let Some(fence) = self.fences.get(&fence) {
            fence.word.store(value, Ordering::Release);
        }
        let met: Vec<u64> = self.waiters.iter().filter(|w| self.value(w.fence) >= w.value).map(|w| w.event).collect();
        self.waiters.retain(|waiter| !met.contains(&waiter.event));
        for event in met {
            self.set(event);
        }
    }

    /// Sets an event, if it is still open.
    pub fn set(&mut self, event: u64) {
        if let Some(state) = self.events.get_mut(&event) {
            *state = true;
        }
    }

    /// The only user-mode queue's doorbell.
    pub fn doorbell(&mut self) -> &mut Doorbell {
        self.queues.values_mut().find_map(|queue| queue.doorbell.as_mut()).expect("no doorbell")
    }

    /// What the OS does when it takes a doorbell away: rotate the page, then write the status.
    pub fn disconnect(&mut self, status: u64) {
        let doorbell = self.doorbell();
        doorbell.connected = false;
        doorbell.status.store(status, Ordering::Release);
    }

    /// What a reset does to the process: the device is in error, doorbells are aborted, fences are signaled with the
    /// largest value.
    pub fn lose_device(&mut self, state: D3DKMT_DEVICEEXECUTION_STATE) {
        self.state = state;
        let progress: Vec<u32> = self.queues.values().map(|queue| queue.progress).collect();
        for queue in self.queues.values_mut() {
            if let Some(doorbell) = &mut queue.doorbell {
                doorbell.connected = false;
                doorbell.status.store(3, Ordering::Release);
            }
        }
        for fence in progress {
            self.signal(fence, u64::MAX);
        }
    }
}
