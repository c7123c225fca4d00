//! The process heap: `HeapAlloc` and its kin, with the checks of page heap.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::cpu::Site;
use crate::kernel::Machine;
use crate::memory::regions::Purpose;
use crate::memory::{PageKind, host};
use crate::pool::arena::{Arena, GUARD, Place};
use crate::rules::Details;
use crate::rules_user::{UM_HEAP, UM_HEAP_OVERRUN};
use crate::user::process::Process;

const FILL_FRESH: u8 = 0xBA;
const FILL_FREED: u8 = 0xFE;
const FILL_GUARD: u8 = 0xAB;
/// Bytes of freed memory that are kept aside before they are used again.
const QUARANTINE: usize = 256 << 10;

#[derive(Debug)]
struct Block {
    place: Place,
    size: usize,
    site: Site,
    freed: bool,
}

#[derive(Debug)]
struct State {
    arena: Arena,
    blocks: HashMap<usize, Block>,
    bytes: usize,
    live: usize,
}

/// The heap of one process.
#[derive(Debug)]
pub(crate) struct Heap {
    state: Mutex<State>,
}

/// How much of a process's heap is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapUsage {
    /// Bytes asked for and not freed.
    pub bytes: usize,
    /// Blocks not freed.
    pub blocks: usize,
}

impl Heap {
    pub(super) fn new(process: u64) -> Self {
        let arena = Arena::new(PageKind::User, Purpose::Process(process), QUARANTINE, false);
        Self { state: Mutex::new(State { arena, blocks: HashMap::new(), bytes: 0, live: 0 }) }
    }

    pub(super) fn usage(&self) -> HeapUsage {
        let state = self.state.lock();
        HeapUsage { bytes: state.bytes, blocks: state.live }
    }

    pub(crate) fn allocate(&self, machine: &Machine, size: usize, zero: bool) -> Option<usize> {
        let mut state = self.state.lock();
        let place = state.arena.allocate(&machine.memory, size.max(1))?;
        state.blocks.insert(place.address, Block { place, size, site: Site::here(), freed: false });
        state.bytes += size;
        state.live += 1;
        drop(state);
        host::fill(place.address, if zero { 0 } else { FILL_FRESH }, size);
        host::fill(place.address + size, FILL_GUARD, guard(&place, size));
        Some(place.address)
    }

    /// Size of a live block.
    pub(crate) fn size(&self, address: usize) -> Option<usize> {
        let state = self.state.lock();
        state.blocks.get(&address).filter(|block| !block.freed).map(|block| block.size)
    }

    pub(crate) fn free(&self, machine: &Machine, address: usize) -> bool {
        let mut state = self.state.lock();
        let found = state.blocks.get(&address).map(|block| (block.freed, block.place, block.size, block.site));
        let live = found.is_some_and(|(freed, ..)| !freed);
        let known = machine.rules.check(&UM_HEAP, live, || {
            Details::new(match found {
                Some((.., site)) => format!("{address:#x}, allocated by {}, was freed already", site.describe(machine)),
                None => format!("{address:#x} is no block of the heap"),
            })
        });
        let Some((_, place, size, site)) = found.filter(|_| known) else { return false };
        let damage = host::first_other(address + size, FILL_GUARD, guard(&place, size));
        machine.rules.check(&UM_HEAP_OVERRUN, damage.is_none(), || {
            let offset = damage.unwrap_or_default();
            let who = site.describe(machine);
            Details::new(format!("byte {offset:#x} behind the {size:#x} bytes at {address:#x}, by {who}, was written"))
        });
        host::fill(address, FILL_FREED, size);
        if let Some(block) = state.blocks.get_mut(&address) {
            block.freed = true;
        }
        state.bytes -= size;
        state.live -= 1;
        for place in state.arena.rest(place) {
            state.blocks.remove(&place.address);
            state.arena.recycle(place);
        }
        true
    }
}

fn guard(place: &Place, size: usize) -> usize {
    (place.room - size).min(GUARD)
}

impl Process {
    /// Use of the process's heap. Whatever is left when the process ends is freed with it, as on Windows.
    pub fn heap_usage(&self) -> HeapUsage {
        self.heap.usage()
    }
}
