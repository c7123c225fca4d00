//! A thread that takes engines out of what never ends, where they must leave the processors to others.
//!
//! An engine that has nothing else to do stays with its work, and does not come back to its thread, which keeps its
//! duty ([`crate::duty`]). So where there is a duty, this thread looks when the pause of a period begins, and a few
//! times in it, since work may begin there, and has every engine come off that is at work then. It has the engines'
//! priority, and sleeps while all of them sleep.

use crate::duty::Periods;
use crate::irql::Passive;
use crate::platform::{Event, Platform, ThisThread, Timer};
use core::sync::atomic::{AtomicBool, Ordering};
use gpu_engine::gpu::Gpu;
use gpu_engine::host::Host;
use gpu_engine::node::Control;
use gpu_wire::NODE_COUNT;

/// Looks in a pause.
const LOOKS: u64 = 4;

/// What an engine's thread is at.
#[derive(Default)]
struct Engine {
    /// It is in a step.
    at_work: AtomicBool,
    /// It sleeps until it is woken.
    asleep: AtomicBool,
}

/// What the thread and those of the engines share.
pub(crate) struct Keeper<P: Platform> {
    event: P::Event,
    engines: [Engine; NODE_COUNT],
}

impl<P: Platform> Keeper<P> {
    /// `event` is not set, and nothing else sets it.
    pub fn new(event: P::Event) -> Self {
        Self { event, engines: Default::default() }
    }

    /// An engine's thread: it does a step.
    pub fn during<R>(&self, node: usize, step: impl FnOnce() -> R) -> R {
        self.engines[node].at_work.store(true, Ordering::Relaxed);
        let result = step();
        self.engines[node].at_work.store(false, Ordering::Relaxed);
        result
    }

    /// An engine's thread: it sleeps until it is woken.
    pub fn sleeping(&self, node: usize, sleep: impl FnOnce()) {
        self.engines[node].asleep.store(true, Ordering::SeqCst);
        sleep();
        self.engines[node].asleep.store(false, Ordering::SeqCst);
        self.event.set();
    }

    /// The engines were told to stop.
    pub fn end(&self) {
        self.event.set();
    }
}

/// Runs until the engines are told to stop.
pub(crate) fn run<P: Platform, H: Host>(
    irql: &Passive,
    platform: &P,
    keeper: &Keeper<P>,
    gpu: &Gpu<H>,
    timer: &P::Timer,
    priority: u32,
    periods: &Periods,
) {
    if let Some(me) = platform.this_thread(irql) {
        me.set_priority(irql, priority);
    }
    // The period, and what part of its pause was looked at.
    let mut seen = None;
    while gpu.nodes.iter().any(|node| node.control() != Control::Stop) {
        let now = gpu.host.clock();
        let (number, begun, mut next) = periods.pause(now);
        let (part, left) = periods.part(now, LOOKS);
        if begun {
            next = next.min(left);
        }
        if begun && seen != Some((number, part)) {
            seen = Some((number, part));
            for (node, engine) in keeper.engines.iter().enumerate() {
                if engine.at_work.load(Ordering::Relaxed) {
                    gpu.ask_rest(node);
                }
            }
        }
        if keeper.engines.iter().all(|engine| engine.asleep.load(Ordering::SeqCst)) {
            keeper.event.wait(None);
        } else {
            timer.wait(irql, &keeper.event, next);
        }
    }
}
