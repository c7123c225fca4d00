//! Generation-checked numbers for what interrupts name.
//!
//! An interrupt must carry the OS's handle of a live object: a destroyed native fence in the array is a bug check. So
//! the engine never stores such handles. It stores a [`SlotId`]; the interrupt routine turns it into the handle at the
//! moment of notifying, and only if the slot still has that generation. [`SlotTable::kill`] runs under the interrupt
//! lock (`DxgkCbSynchronizeExecution`), so after it returned no interrupt can name the object.
//!
//! A slot also has a *plate*: words of its object that debug information shows. It may be written and read at any IRQL,
//! and lives as long as the table does, whatever becomes of the object.
//!
//! Source: *Native GPU fence object*, "Native fence signaled interrupt".

use crate::NoMemory;
use crate::host::{Host, Lock};
use crate::mutation::{Chosen, Mutation};
use crate::shared::GrowOnly;
use crate::word::{Exchange, Word};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Names a slot and one generation of its use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SlotId {
    /// Index in the table.
    pub index: u32,
    /// Generation, odd while alive.
    pub generation: u32,
}

impl SlotId {
    /// As one word.
    pub const fn pack(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// From one word.
    pub const fn unpack(raw: u64) -> Self {
        // CAST: the two halves.
        Self { index: raw as u32, generation: (raw >> 32) as u32 }
    }
}

/// Words of a plate.
pub const PLATE: usize = 17;

struct Slot<W: Exchange> {
    /// Odd: alive. Raised by one at allocate and at kill.
    generation: AtomicU32,
    /// The generation for which a notice is in a mailbox; 0: none is.
    pending: W,
    /// The OS's handle while alive.
    handle: AtomicU64,
    /// The driver's own handle, once it is known.
    driver: AtomicU64,
    /// What debug information shows of the object.
    plate: [AtomicU64; PLATE],
}

impl<W: Exchange> Slot<W> {
    /// A slot that was never used, with no notice `pending`.
    fn new(pending: W) -> Self {
        let (handle, driver) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { generation: AtomicU32::new(0), pending, handle, driver, plate: Default::default() }
    }
}

/// Slots to use again.
struct Free {
    slots: Vec<u32>,
    /// Slots that there are, or that are being made: there is room for all of them in `slots`.
    made: usize,
}

impl Free {
    /// A slot more is to be made: makes room for its way back, so that [`SlotTable::free`] never allocates.
    ///
    /// # Errors
    /// [`NoMemory`]; then there is none more.
    fn admit(&mut self) -> Result<(), NoMemory> {
        self.slots.try_reserve((self.made + 1).saturating_sub(self.slots.len()))?;
        self.made += 1;
        Ok(())
    }
}

/// The table. Reads are lock-free and safe at any IRQL.
pub struct SlotTable<H: Host> {
    slots: GrowOnly<Slot<H::Word>>,
    free: H::Lock<Free>,
}

impl<H: Host> SlotTable<H> {
    /// An empty table.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new() -> Result<Self, NoMemory> {
        Ok(Self { slots: GrowOnly::new()?, free: H::Lock::new(Free { slots: Vec::new(), made: 0 }) })
    }

    /// A slot that names `handle`. Up to `DISPATCH_LEVEL`.
    ///
    /// # Errors
    /// [`NoMemory`], also when four million slots are in use.
    pub fn allocate(&self, handle: u64) -> Result<SlotId, NoMemory> {
        let index = match self.free.with(|free| free.slots.pop()) {
            Some(index) => index,
            None => {
                // Room first: a slot that is made cannot be taken back.
                self.free.with(Free::admit)?;
                self.slots.push(Slot::new(H::word(0))).inspect_err(|_| self.free.with(|free| free.made -= 1))?
            }
        };
        let slot = self.slots.get(index).ok_or(NoMemory)?;
        slot.handle.store(handle, Ordering::Relaxed);
        slot.driver.store(0, Ordering::Relaxed);
        slot.pending.store(0, Ordering::Relaxed);
        slot.plate.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let generation = slot.generation.fetch_add(1, Ordering::Release).wrapping_add(1);
        Ok(SlotId { index, generation })
    }

    /// Ends the generation. The caller holds the interrupt lock, or nothing can interrupt any more.
    pub fn kill(&self, id: SlotId) {
        let Some(slot) = self.slots.get(id.index) else { return };
        if slot.generation.load(Ordering::Relaxed) == id.generation {
            slot.handle.store(0, Ordering::Relaxed);
            slot.generation.store(id.generation.wrapping_add(1), Ordering::Release);
        }
    }

    /// Gives a killed slot back for reuse. Up to `DISPATCH_LEVEL`.
    pub fn free(&self, id: SlotId) {
        self.free.with(|free| {
            if free.slots.len() < free.slots.capacity() {
                free.slots.push(id.index);
            }
        });
    }

    /// The OS's handle, if that generation is alive. Any IRQL.
    pub fn handle(&self, id: SlotId) -> Option<u64> {
        let slot = self.slots.get(id.index)?;
        if slot.generation.load(Ordering::Acquire) == id.generation && id.generation & 1 == 1 {
            Some(slot.handle.load(Ordering::Relaxed))
        } else {
            None
        }
    }

    /// Remembers the driver's own handle of the object.
    pub fn set_driver_handle(&self, id: SlotId, handle: u64) {
        if let Some(slot) = self.slots.get(id.index) {
            slot.driver.store(handle, Ordering::Relaxed);
        }
    }

    /// The driver's own handle, if that generation is alive. Any IRQL.
    pub fn driver_handle(&self, id: SlotId) -> Option<u64> {
        self.handle(id)?;
        Some(self.slots.get(id.index)?.driver.load(Ordering::Relaxed))
    }

    /// Writes words of the plate, each with its place, if that generation is alive. A writer that is overtaken by the
    /// end of the object may leave words on the plate of the next one. Any IRQL.
    pub fn show(&self, id: SlotId, words: impl IntoIterator<Item = (usize, u64)>) {
        let Some(slot) = self.slots.get(id.index) else { return };
        if slot.generation.load(Ordering::Relaxed) == id.generation {
            for (at, word) in words {
                if let Some(to) = slot.plate.get(at) {
                    to.store(word, Ordering::Relaxed);
                }
            }
        }
    }

    /// The plates of everything that is alive, and what they are of. Words may be changing. Any IRQL.
    pub fn plates(&self) -> impl Iterator<Item = (SlotId, [u64; PLATE])> {
        // CAST: at most four million.
        (0..self.slots.len() as u32).filter_map(|index| {
            let slot = self.slots.get(index)?;
            let generation = slot.generation.load(Ordering::Acquire);
            let words = core::array::from_fn(|at| slot.plate[at].load(Ordering::Relaxed));
            core::sync::atomic::fence(Ordering::Acquire);
            let is_same = slot.generation.load(Ordering::Relaxed) == generation;
            (generation & 1 == 1 && is_same).then_some((SlotId { index, generation }, words))
        })
    }

    /// Marks a notice as on its way; `true` when none was for this generation. An engine may mark a generation that
    /// has ended while another is alive: that one's mark is lost, and its next signal sends a notice more.
    ///
    /// ORDERING[IRQ-1]: AcqRel, so that the skipped notice's fence value is visible to the agent that
    /// [`Self::notice_taken`] runs for.
    pub fn notice_pending(&self, id: SlotId, mutation: &Chosen) -> bool {
        let generation = mark(id, mutation);
        self.slots.get(id.index).is_some_and(|s| s.pending.swap(generation, Ordering::AcqRel) != generation)
    }

    /// The notice is being reported: a later signal needs one of its own. The mark of another generation stays.
    pub fn notice_taken(&self, id: SlotId, mutation: &Chosen) {
        if let Some(slot) = self.slots.get(id.index) {
            let _others = slot.pending.compare_exchange(mark(id, mutation), 0, Ordering::AcqRel);
        }
    }
}

/// The mark of a notice about `id`.
fn mark(id: SlotId, mutation: &Chosen) -> u64 {
    if mutation.is(Mutation::MarksTheSlot) { 1 } else { id.generation.into() }
}

#[cfg(test)]
mod tests {
    use super::{Free, Vec};
    use crate::NoMemory;

    #[test]
    fn a_slot_without_room_for_its_way_back_is_not_made() {
        // No machine has room for so many.
        let mut free = Free { slots: Vec::new(), made: usize::MAX / 2 };
        assert_eq!((free.admit(), free.made), (Err(NoMemory), usize::MAX / 2));
        free.made = 7;
        assert_eq!((free.admit(), free.made), (Ok(()), 8));
        assert!(free.slots.capacity() >= 8);
    }
}
