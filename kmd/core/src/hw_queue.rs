//! Hardware queues. Source: `DxgkDdiCreateHwQueue`, `DxgkDdiSubmitCommandToHwQueue`.

use crate::adapter::{Counted, EngineHost};
use crate::gone;
use crate::habit::Habit;
use crate::handle::{Handle, Tag, object};
use crate::hw_context::HwContext;
use crate::irql::{AtMostDispatch, Passive};
use crate::nodes;
use crate::platform::Platform;
use crate::status::{Error, Result};
use crate::tracing::{self, Event};
use gpu_engine::host::Lock;
use gpu_engine::queue::Submission;
use gpu_engine::shared::Shared;
use gpu_wire::{GpuVa, NodeOrdinal};

/// The engine's side.
pub type EngineQueue<P> = gpu_engine::queue::Queue<EngineHost<P>>;

/// A hardware queue.
pub struct HwQueue<P: Platform> {
    /// What the engine knows of it.
    pub engine: Shared<EngineQueue<P>>,
    /// Its context.
    pub context: Shared<HwContext<P>>,
    /// Dxgkrnl's handle.
    pub os: u64,
    /// Its doorbells.
    pub(crate) doorbells: P::Lock<Doorbells>,
    /// It is for kernel-mode tests: no user-mode driver ends its buffers with the progress fence.
    is_for_tests: bool,
    /// How it submits.
    pub(crate) habit: Shared<Habit>,
    /// Counted in the census, and a reference to the adapter.
    pub counted: Counted<P>,
}

object!(HwQueue: HwQueue<P>);

/// Doorbells of a queue: one, and a second one while the ring is being resized.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Doorbells {
    count: u32,
    /// The number of the one that was created last: its ring is the last of the queue's.
    pub newest: u64,
    /// Those that there are.
    known: [Option<Known>; 2],
}

/// A doorbell, by its names.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// The number that the pool of doorbells has given it.
    key: u64,
    /// Dxgkrnl's handle of it.
    os: u64,
    /// The handle that this driver has given Dxgkrnl for it.
    handle: Handle,
}

impl Doorbells {
    /// Counts one more. Returns `false`, and does nothing, where there is one; `resizes`: where there are two.
    pub fn add(&mut self, resizes: bool) -> bool {
        let may = self.count < if resizes { 2 } else { 1 };
        self.count += u32::from(may);
        may
    }

    /// The one with the number `key` has these handles, Dxgkrnl's and the driver's, and the last ring of the queue's.
    pub fn know(&mut self, key: u64, os: u64, handle: Handle) {
        self.newest = key;
        if let Some(place) = self.known.iter_mut().find(|known| known.is_none()) {
            *place = Some(Known { key, os, handle });
        }
    }

    /// The driver's handle of the one that Dxgkrnl names by `os`, if there is one.
    pub fn of(&self, os: u64) -> Option<Handle> {
        self.known.iter().flatten().find(|known| known.os == os).map(|known| known.handle)
    }

    /// Counts one less, which has the number `key`. Returns what is left.
    pub fn remove(&mut self, key: u64) -> Left {
        self.count = self.count.saturating_sub(1);
        for place in self.known.iter_mut().filter(|known| known.is_some_and(|known| known.key == key)) {
            *place = None;
        }
        if self.newest != key {
            return Left::Newer;
        }
        match self.known.iter().flatten().next() {
            Some(older) => {
                self.newest = older.key;
                Left::Older
            }
            None => Left::Nothing,
        }
    }
}

/// What is left of a queue's doorbells when one is destroyed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// One of a ring that was made behind that of the one that is gone.
    Newer,
    /// One of a ring before it.
    Older,
    /// None.
    Nothing,
}

/// What CreateHwQueue asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewQueue {
    /// Dxgkrnl's handle.
    pub os: u64,
    /// `UserModeSubmission`.
    pub user_mode: bool,
    /// `NativeProgressFence`.
    pub native_progress_fence: bool,
    /// `TestQueue`.
    pub is_for_tests: bool,
    /// `HwQueueProgressFenceGPUVirtualAddress`.
    pub progress: GpuVa,
}

impl<P: Platform> HwQueue<P> {
    /// Creates a queue of `context`. With `NativeProgressFence` the engine finds the progress fence by its address
    /// among the fences that the process has open, not by the handle: no public header shows where the native handle
    /// is. While no fence is open at the address the progress value is a plain word, and the queue is counted in
    /// `Strays::plain_progress`: the documents promise only that the fence was created.
    ///
    /// No address is refused, since the page lists no such reason. A queue whose address is no multiple of 8 is counted
    /// there, too, and a store to that address faults: no word is written in part, and no other one instead.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for user-mode submission on a node without it, for a test queue without kernel-mode
    /// testing, and for a queue that is both; [`Error::NoMemory`].
    pub fn create(irql: &Passive, context: &Shared<HwContext<P>>, new: &NewQueue) -> Result<Handle> {
        let started = &context.counted.started;
        // CAST: a node index.
        if new.user_mode && !nodes::takes_doorbells(&started.plan, NodeOrdinal(context.engine.node as u32)) {
            return Err(Error::InvalidParameter);
        }
        if new.is_for_tests && (new.user_mode || !started.plan.testing) {
            return Err(Error::InvalidParameter);
        }
        let (strays, platform, at) = (&started.strays, &started.platform, new.progress.0);
        if !new.progress.is_aligned(8) {
            let what = format_args!("progress fences at no fence's address, the last at {at:#x}: stores there fault");
            strays.note(&strays.plain_progress, 1, platform, what);
        } else if new.native_progress_fence && context.engine.space.process.fences.find(new.progress).is_none() {
            let what = format_args!("native progress fences that are not open, the last at {at:#x}: plain words");
            strays.note(&strays.plain_progress, 1, platform, what);
        }
        let gpu = &started.gpu;
        let node = context.engine.node;
        let member = gpu.admit(node)?;
        let slot = gpu.slots.allocate(new.os)?;
        let made = (|| {
            let engine = EngineQueue::<P>::new(
                member,
                slot,
                context.engine.clone(),
                new.user_mode,
                new.progress,
                new.native_progress_fence,
            )?;
            let engine = Shared::try_new(engine)?;
            let counted = Counted::new(started.clone(), |c| &c.hw_queues);
            let doorbells = P::Lock::new(Doorbells::default());
            let habit = Shared::try_new(Habit::default())?;
            let is_for_tests = new.is_for_tests;
            let queue = Self { engine, context: context.clone(), os: new.os, doorbells, is_for_tests, habit, counted };
            let queue = Shared::try_new(queue)?;
            context.adopt(&queue)?;
            gpu.show_queue(&queue.engine);
            Handle::create(queue.clone()).map_err(|e| {
                context.disown(&queue);
                Error::from(e)
            })
        })();
        let handle = made.inspect_err(|_| {
            gpu.slots.kill(slot);
            gpu.slots.free(slot);
        })?;
        gpu.slots.set_driver_handle(slot, handle.raw());
        // CAST: a node index.
        let told =
            tracing::HwQueue { context: context.os, hw_queue: new.os, node: node as u32, is_user_mode: new.user_mode };
        platform.trace(|| Event::HwQueueStart(told));
        context.device.adopt(Tag::HwQueue, handle, Self::destroy).inspect_err(|_| {
            let _gone = Self::destroy(irql, handle);
        })?;
        Ok(handle)
    }

    /// Destroys it. Its doorbell was destroyed before; work that is left is dropped.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`].
    pub fn destroy(irql: &Passive, handle: Handle) -> Result<()> {
        let queue = handle.take::<Self>()?;
        queue.context.device.disown(handle);
        let started = &queue.counted.started;
        started.gpu.destroy_queue(&queue.engine);
        gone::queue(irql, started, &queue.engine);
        started.gpu.let_go_of(&queue.engine);
        started.gpu.bind(&queue.engine, None);
        for log in queue.engine.logs() {
            log.with(gpu_engine::fence_log::Log::clear);
        }
        crate::interrupt::retire(irql, started, queue.engine.slot);
        // CAST: a node index.
        let node = queue.engine.context.node as u32;
        let told = tracing::HwQueue {
            context: queue.context.os,
            hw_queue: queue.os,
            node,
            is_user_mode: queue.engine.user_mode,
        };
        started.platform.trace(|| Event::HwQueueStop(told));
        queue.context.disown(&queue);
        Ok(())
    }

    /// A command buffer from the kernel. Up to `DISPATCH_LEVEL`; allocates nothing. Where it lies is the application's
    /// word: an address or a length that cannot be is the engine's to report as a fault, since a failed submission is a
    /// bug check. Behind a buffer of a test queue the engine writes the progress fence, which such a buffer does not.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] on a user-mode queue, or beyond the depth that was reported.
    pub fn submit(&self, _irql: &impl AtMostDispatch, submission: Submission) -> Result<()> {
        let (hw_queue, progress) = (self.os, submission.progress);
        self.counted.started.platform.trace(|| Event::DmaPacketToHwQueue { hw_queue, progress });
        if self.engine.user_mode || !self.engine.submit(submission) {
            return Err(Error::InvalidParameter);
        }
        let signal = Submission { null: true, ..submission };
        // There is room: a queue holds twice as many as the OS has in flight.
        if self.is_for_tests && !submission.null && !self.engine.submit(signal) {
            return Err(Error::InvalidParameter);
        }
        self.counted.started.gpu.make_ready(&self.engine);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handles(doorbells: &Doorbells) -> [Option<u64>; 3] {
        [10, 20, 30].map(|os| doorbells.of(os).map(Handle::raw))
    }

    #[test]
    fn a_queue_has_one_doorbell_and_a_second_while_it_is_resized() {
        let mut doorbells = Doorbells::default();
        assert!(doorbells.add(true), "a resize makes the only one as well");
        doorbells.know(1, 10, Handle::from_raw(101));
        assert!(!doorbells.add(false));
        assert!(doorbells.add(true));
        doorbells.know(2, 20, Handle::from_raw(102));
        assert!(!doorbells.add(true) && !doorbells.add(false), "there are two");
        assert_eq!((handles(&doorbells), doorbells.newest), ([Some(101), Some(102), None], 2));
        // The older one goes, and the next resize may be.
        assert_eq!(doorbells.remove(1), Left::Newer);
        assert!(!doorbells.add(false) && doorbells.add(true));
        doorbells.know(3, 30, Handle::from_raw(103));
        assert_eq!((handles(&doorbells), doorbells.newest), ([None, Some(102), Some(103)], 3));
    }

    #[test]
    fn the_ring_of_what_is_left_is_the_last_one() {
        let mut doorbells = Doorbells::default();
        for (key, os) in [(1, 10), (2, 20)] {
            assert!(doorbells.add(true));
            doorbells.know(key, os, Handle::from_raw(100 + key));
        }
        // The newer one goes first.
        assert_eq!((doorbells.remove(2), doorbells.newest), (Left::Older, 1));
        assert_eq!((doorbells.remove(1), handles(&doorbells)), (Left::Nothing, [None; 3]));
        assert!(doorbells.add(false));
    }
}
