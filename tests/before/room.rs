//! Room for as many packets as the OS requires of each node (`DXGK_START_INFO.RequiredDmaQueueEntry`).
//!
//! The model gives a node a few packets at a time, so this case gives it the rest: behind the packet that holds the
//! node, inside the same call. None of them may be refused, and the driver may not allocate room for them then: it may
//! be called at DISPATCH_LEVEL with no memory left. Then each other node, held by a reset, is given as many that run
//! nothing; and one of them again, behind preemptions and resets that have taken them back.
#![expect(unsafe_code, reason = "allocations are counted; functions of the driver's table are given records")]

use anyhow::{Context, ensure};
use core::cell::Cell;
use core::ffi::c_void;
use dxgkrnl_model::personality::Personality;
use fencepost::scenario::{Played, same};
use fencepost::setting;
use fencepost::world::{Decorator, Form, World};
use fencepost::wrap::{copy, decorate, own};
use gpu_wire::NODE_COUNT;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use umd_core::ffi::types::FP_KIND_SYSTEM;
use wddm_abi::{
    DRIVER_INITIALIZATION_DATA, DXGK_START_INFO, DXGKARG_PREEMPTCOMMAND, DXGKARG_RESETENGINE, DXGKARG_RESETHWENGINE,
    DXGKARG_SUBMITCOMMANDVIRTUAL, DXGKRNL_INTERFACE, HANDLE, NTSTATUS,
};

/// The name of the case.
pub const NAME: &str = "room";

/// Packets that the OS requires room for.
const REQUIRED: u32 = 1000;

/// Bytes of a page.
const PAGE: usize = 4096;

/// What brings the mistake back; this process plays one.
static MISTAKE: OnceLock<Decorator> = OnceLock::new();
/// The driver's handle of the adapter.
static ADAPTER: AtomicUsize = AtomicUsize::new(0);
/// Whether the packets were given.
static GIVEN: AtomicBool = AtomicBool::new(false);
/// How many of them were refused.
static REFUSED: AtomicU32 = AtomicU32::new(0);
/// How many allocations they took.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Allocations of this thread, of a page or more: what the model allocates to wake a thread is smaller, and what
    /// holds packets beyond the usual number is larger.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, which counts for each thread.
pub struct Counting;

// SAFETY: the system's allocator does everything.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends has no count any more.
        let _ = COUNT.try_with(|count| count.set(count.get() + u64::from(layout.size() >= PAGE)));
        // SAFETY: the caller's promises, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

decorate! {
    /// `RequiredDmaQueueEntry` was not read.
    required_room_unread: DxgkDdiStartDevice(
        context: *mut c_void,
        info: *mut DXGK_START_INFO,
        interface: *mut DXGKRNL_INTERFACE,
        sources: *mut u32,
        children: *mut u32,
    ) -> NTSTATUS {
        let mut mine = copy!(info);
        mine.RequiredDmaQueueEntry = 0;
        own!(DxgkDdiStartDevice(context, &raw mut mine, interface, sources, children))
    }

    /// Gives node 0 the packets that are required, all but one behind the first that it gets.
    fills_node: DxgkDdiSubmitCommandVirtual(
        adapter: HANDLE,
        args: *const DXGKARG_SUBMITCOMMANDVIRTUAL,
    ) -> NTSTATUS {
        let status = own!(DxgkDdiSubmitCommandVirtual(adapter, args));
        let mut packet = copy!(args);
        if packet.NodeOrdinal == 0 && !GIVEN.load(Ordering::Relaxed) {
            ADAPTER.store(adapter.expose_provenance(), Ordering::Relaxed);
            let before = COUNT.get();
            for _ in 1..REQUIRED {
                packet.SubmissionFenceId += 1;
                let status = own!(DxgkDdiSubmitCommandVirtual(adapter, &raw const packet));
                REFUSED.fetch_add(u32::from(!status.is_success()), Ordering::Relaxed);
            }
            ALLOCATIONS.store(COUNT.get() - before, Ordering::Relaxed);
            GIVEN.store(true, Ordering::Release);
        }
        status
    }
}

/// What takes back the packets that a node has.
#[derive(Clone, Copy, Debug)]
enum TakenBack {
    /// Nothing has.
    Not,
    Preemption,
    EngineReset,
    AdapterReset,
}

/// How often packets are taken back, one behind another: the driver has room for two times.
const TIMES: u32 = 3;

/// Holds node `node` as a reset does.
fn hold(node: u32) -> bool {
    let mut reset = DXGKARG_RESETHWENGINE::zeroed();
    reset.NodeOrdinal = node;
    own!(DxgkDdiResetHwEngine(adapter(), &raw mut reset)).is_success()
}

/// The driver's handle of the adapter.
fn adapter() -> HANDLE {
    core::ptr::with_exposed_provenance_mut(ADAPTER.load(Ordering::Relaxed))
}

/// Takes back the packets of a node that is held, which is held behind that, too. Returns whether the driver has.
/// `fence`: an id that no packet has had.
fn take_back(node: u32, how: TakenBack, fence: u32) -> bool {
    match how {
        TakenBack::Not => true,
        TakenBack::Preemption => {
            let mut preempt = DXGKARG_PREEMPTCOMMAND::zeroed();
            (preempt.NodeOrdinal, preempt.PreemptionFenceId) = (node, fence);
            own!(DxgkDdiPreemptCommand(adapter(), &raw const preempt)).is_success()
        }
        TakenBack::EngineReset => {
            let mut reset = DXGKARG_RESETENGINE::zeroed();
            reset.NodeOrdinal = node;
            own!(DxgkDdiResetEngine(adapter(), &raw mut reset)).is_success() && hold(node)
        }
        // Every engine is held until the restart.
        TakenBack::AdapterReset => own!(DxgkDdiResetFromTimeout(adapter())).is_success(),
    }
}

/// Gives node `node`, which is held, the packets that are required, which run nothing, and takes them back, several
/// times. Returns how much of that was refused, and how many allocations the packets took. The node stays held.
fn held(node: u32, how: TakenBack, fence: &mut u32) -> (u32, u64) {
    let mut refused = u32::from(!hold(node));
    let mut packet = DXGKARG_SUBMITCOMMANDVIRTUAL::zeroed();
    packet.NodeOrdinal = node;
    packet.Flags.set_NullRendering(true);
    let mut allocations = 0;
    for _ in 0..TIMES {
        let before = COUNT.get();
        for _ in 0..REQUIRED {
            *fence += 1;
            packet.SubmissionFenceId = *fence;
            let status = own!(DxgkDdiSubmitCommandVirtual(adapter(), &raw const packet));
            refused += u32::from(!status.is_success());
        }
        allocations += COUNT.get() - before;
        if matches!(how, TakenBack::Not) {
            break;
        }
        *fence += 1;
        refused += u32::from(!take_back(node, how, *fence));
    }
    (refused, allocations)
}

/// Plays the case on a driver with `mistake`, or without one.
pub fn play(mistake: Option<Decorator>) -> Played {
    if let Some(mistake) = mistake {
        MISTAKE.get_or_init(|| mistake);
    }
    let form = Form::Decorated(|table: &mut DRIVER_INITIALIZATION_DATA| {
        if let Some(decorate) = MISTAKE.get() {
            decorate(table);
        }
        fills_node(table);
    });
    let mut personality = Personality::collecting();
    personality.required_dma_queue_entries = REQUIRED;
    let world = World::boot(&form, personality)?;
    let started = world.adapter(setting::adapter(&[("MaxRung".to_owned(), 0)]))?;
    let device = world.process("client")?.open()?.device()?;
    let (queue, memory) = (device.queue(0, 64 << 10, 0, 0)?, device.allocate(FP_KIND_SYSTEM, 4096, 0)?);
    // A buffer that jumps to itself.
    let mut jump = queue.list()?;
    jump.indirect(memory.gpu_va()?, 8)?;
    let length = jump.bytes()?.len() as u64;
    jump.reset()?;
    jump.indirect(memory.gpu_va()?, length)?;
    memory.write(0, &jump.bytes()?)?;
    queue.run(|list| list.indirect(memory.gpu_va()?, length))?;
    let end = Instant::now() + Duration::from_secs(20);
    while !GIVEN.load(Ordering::Acquire) {
        ensure!(Instant::now() < end, "no packet came to node 0");
        std::thread::park_timeout(Duration::from_millis(1));
    }
    let mut fence = 0;
    let mut of = |node, how| (node, how, world.os.run(|| held(node, how, &mut fence)));
    let mut others = (1..).take(NODE_COUNT - 1).map(|node| of(node, TakenBack::Not)).collect::<Vec<_>>();
    // The first of those has its room full by now.
    others.extend([TakenBack::AdapterReset, TakenBack::Preemption, TakenBack::EngineReset].map(|how| {
        world.os.run(|| take_back(1, TakenBack::AdapterReset, 0));
        of(1, how)
    }));
    // The model knows nothing of these packets: the machine ends with the process.
    std::mem::forget((jump, queue, memory, device, started, world));
    same("packets that were refused", REFUSED.load(Ordering::Relaxed), 0)?;
    same("allocations of packets", ALLOCATIONS.load(Ordering::Relaxed), 0).context("the required room")?;
    let wrong: Vec<_> = others.into_iter().filter(|(.., got)| *got != (0, 0)).collect();
    ensure!(
        wrong.is_empty(),
        "the required room: node, how packets are taken back, refusals and allocations: {wrong:?}"
    );
    Ok(())
}
