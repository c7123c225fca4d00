//! What debug information shows of queues and fences: words on the plates of their slots ([`crate::slots`]), written
//! where they change, and read without a reference to the object, which may be destroyed meanwhile.
//!
//! A turn that ends with its work done, or for another's turn, writes two words; what else a turn was is written where
//! it ends otherwise, which no stream of work does often.

use crate::command_processor::FenceRef;
use crate::exec::{Binding, Exec};
use crate::gpu::Gpu;
use crate::host::Host;
use crate::queue::Queue;
use crate::slots::{PLATE, SlotId};
use gpu_wire::debug_blob::{FENCE, FenceState, Line, QUEUE, QueueState};

/// The first word: what the plate is of.
const OF_QUEUE: u64 = 1;
const OF_FENCE: u64 = 2;

const _: () = assert!(QUEUE < PLATE && FENCE < PLATE, "a word more says what it is of");

/// Places of the words of a [`QueueState`], behind the first word.
mod at {
    use gpu_wire::debug_blob::{LINE, QUEUE};

    pub const RING: usize = 5;
    pub const BYTES: usize = 6;
    pub const FENCE: usize = 7;
    pub const WANTED: usize = 8;
    pub const TURN: usize = 1 + QUEUE - LINE;
    pub const END: usize = TURN + 1;
    pub const POSITIONS: usize = TURN + 5;
}

/// Places of the words of a [`FenceState`], behind the first word.
mod of_fence {
    pub const OPENED: usize = 3;
    pub const ADDRESS: usize = 4;
    pub const ALWAYS_SIGNALED: usize = 5;
    pub const FROM_CPU: usize = 6;
}

/// A plate as it is read. Slots stand in place of handles, but for the object's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plate {
    /// A hardware queue.
    Queue(QueueState),
    /// A native fence.
    Fence(FenceState),
}

impl Plate {
    /// From the words of a slot; `None` for an object of another kind.
    pub fn read(words: &[u64; PLATE]) -> Option<Self> {
        let (of, rest) = words.split_first()?;
        match *of {
            OF_QUEUE => Some(Self::Queue(QueueState::from_words(*rest.first_chunk()?))),
            OF_FENCE => Some(Self::Fence(FenceState::from_words(*rest.first_chunk()?))),
            _ => None,
        }
    }
}

/// Something of a fence that debug information shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfFence {
    /// It is there.
    Made,
    /// It was opened so many times, the last time with CurrentValue at this GPU address.
    Opened(u64, u64),
    /// Its device is in error.
    AlwaysSignaled,
    /// The processor has stored this value.
    FromCpu(u64),
}

impl<H: Host> Gpu<H> {
    /// A queue was made.
    pub fn show_queue(&self, queue: &Queue<H>) {
        let turn = Line { queue: queue.slot.pack(), context: queue.context.slot.pack(), ..Line::default() };
        let state = QueueState {
            number: queue.slot.index.into(),
            node: queue.context.node as u64,
            flags: u64::from(queue.user_mode) | u64::from(queue.native_progress) << 1,
            progress: queue.progress.0,
            turn,
            ..QueueState::default()
        };
        self.slots.show(queue.slot, (0..).zip([OF_QUEUE].into_iter().chain(state.words())));
    }

    /// Binds or unbinds the ring of a queue ([`Queue::bind`]).
    pub fn bind(&self, queue: &Queue<H>, binding: Option<Binding>) {
        queue.bind(binding);
        self.show_ring(queue, binding);
    }

    /// A queue has another first ring.
    pub(crate) fn show_ring(&self, queue: &Queue<H>, binding: Option<Binding>) {
        let (ring, bytes) = binding.map_or((0, 0), |binding| (binding.ring.0, binding.geometry.size()));
        self.slots.show(queue.slot, [(at::RING, ring), (at::BYTES, bytes)]);
    }

    /// A queue's turn has ended: how, and where it is, if that is worth more words.
    pub(crate) fn show_turn(&self, queue: &Queue<H>, exec: &Exec<FenceRef<H>>, end: u64, line: Option<&Line>) {
        let Some(line) = line else {
            return self.slots.show(queue.slot, [(at::END, end), (at::POSITIONS, positions(exec))]);
        };
        let (fence, wanted) = exec.wait.as_ref().map_or((0, 0), |wait| (wait.open.fence.slot.pack(), wait.value));
        let waits = [(at::FENCE, fence), (at::WANTED, wanted)];
        self.slots.show(queue.slot, waits.into_iter().chain((at::TURN..).zip(line.words())));
    }

    /// Something of the fence with this slot.
    pub fn show_fence(&self, fence: SlotId, what: OfFence) {
        match what {
            OfFence::Made => self.slots.show(fence, [(0, OF_FENCE), (1, fence.index.into())]),
            OfFence::Opened(times, address) => {
                self.slots.show(fence, [(of_fence::OPENED, times), (of_fence::ADDRESS, address)]);
            }
            OfFence::AlwaysSignaled => self.slots.show(fence, [(of_fence::ALWAYS_SIGNALED, 1)]),
            OfFence::FromCpu(value) => self.slots.show(fence, [(of_fence::FROM_CPU, value)]),
        }
    }
}

/// The ring's positions as a [`Line`] has them: their low halves.
pub(crate) fn positions<F>(exec: &Exec<F>) -> u64 {
    exec.consumed & u64::from(u32::MAX) | exec.published << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places are those of the words.
    #[test]
    fn each_word_is_where_it_is_written() {
        let words = core::array::from_fn(|at| if at == 0 { OF_QUEUE } else { at as u64 });
        let Some(Plate::Queue(queue)) = Plate::read(&words) else { panic!("a queue") };
        let places = [at::RING, at::BYTES, at::FENCE, at::WANTED, at::TURN, at::END, at::POSITIONS];
        let turn = queue.turn;
        let values = [queue.ring, queue.bytes, queue.fence, queue.wanted, turn.stream, turn.end, turn.ring];
        assert_eq!(places.map(|at| at as u64), values);
        let words = core::array::from_fn(|at| if at == 0 { OF_FENCE } else { at as u64 });
        let Some(Plate::Fence(fence)) = Plate::read(&words) else { panic!("a fence") };
        let places = [of_fence::OPENED, of_fence::ADDRESS, of_fence::ALWAYS_SIGNALED, of_fence::FROM_CPU];
        assert_eq!(places.map(|at| at as u64), [fence.opened, fence.address, fence.always_signaled, fence.from_cpu]);
        assert_eq!(Plate::read(&[0; PLATE]), None);
    }
}
