//! Pool: tagged allocations of driver memory.
//!
//! Every allocation is found again by its address in a table of the model's, with size, tag, and who made it. Memory is
//! page-backed, so a driver may describe it by an MDL. What the driver did not ask to have zeroed is filled with 0xCD,
//! freed memory with 0xDD, and the bytes behind an allocation with 0xFD; they are looked at when it is freed (overrun)
//! and when it leaves the quarantine (use after free). With [`PoolOptions::guard_pages`] each allocation ends at an
//! inaccessible page and freed memory is inaccessible: the very access traps and is reported.

pub(crate) mod arena;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use parking_lot::Mutex;

use crate::cpu::Site;
use crate::kernel::Machine;
use crate::memory::regions::Purpose;
use crate::memory::{Memory, PAGE_SIZE, PageKind, host};
use crate::routines::{self, Routine};
use crate::rules::Details;
use crate::rules_nt::{
    NT_DPC_LEAKED, NT_POOL_BAD_ADDRESS, NT_POOL_DOUBLE_FREE, NT_POOL_FLAGS, NT_POOL_OVERRUN, NT_POOL_SIZE, NT_POOL_TAG,
    NT_POOL_TAG_ZERO, NT_POOL_USE_AFTER_FREE, NT_TIMER_LEAKED, NT_WAITED_FREED,
};
use arena::{Arena, Place};

/// `POOL_FLAG_USE_QUOTA`.
pub const POOL_FLAG_USE_QUOTA: u64 = 0x1;
/// `POOL_FLAG_UNINITIALIZED`.
pub const POOL_FLAG_UNINITIALIZED: u64 = 0x2;
/// `POOL_FLAG_SESSION`.
pub const POOL_FLAG_SESSION: u64 = 0x4;
/// `POOL_FLAG_CACHE_ALIGNED`.
pub const POOL_FLAG_CACHE_ALIGNED: u64 = 0x8;
/// `POOL_FLAG_RAISE_ON_FAILURE`.
pub const POOL_FLAG_RAISE_ON_FAILURE: u64 = 0x20;
/// `POOL_FLAG_NON_PAGED`.
pub const POOL_FLAG_NON_PAGED: u64 = 0x40;
/// `POOL_FLAG_NON_PAGED_EXECUTE`.
pub const POOL_FLAG_NON_PAGED_EXECUTE: u64 = 0x80;
/// `POOL_FLAG_PAGED`.
pub const POOL_FLAG_PAGED: u64 = 0x100;
/// Flags from here up are optional: unknown ones are ignored.
const POOL_FLAGS_OPTIONAL: u64 = 0xFFFF_FFFF_0000_0000;
const POOL_FLAGS_REQUIRED: u64 = 0x0000_0000_0000_01EF | 0x10;

const FILL_FRESH: u8 = 0xCD;
const FILL_FREED: u8 = 0xDD;
const FILL_GUARD: u8 = 0xFD;

/// What memory is, of which all bytes are those of `word`, where the model has filled it.
pub(crate) fn pattern(word: u64) -> Option<&'static str> {
    let byte = word.to_le_bytes()[7];
    match byte {
        // A small offset from what was read is still told.
        _ if word >> 16 != u64::from_le_bytes([byte; 8]) >> 16 => None,
        FILL_FRESH => Some("what pool holds that was not written"),
        FILL_FREED => Some("what pool holds that is freed"),
        FILL_GUARD => Some("what lies behind a block of pool"),
        _ => None,
    }
}

/// Extra checks of the pool.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// An inaccessible page behind each allocation and in place of freed ones. Slower, and uses at least two pages
    /// each.
    pub guard_pages: bool,
    /// Bytes of freed memory that are kept aside and checked for late writes before they are used again.
    pub quarantine: usize,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self { guard_pages: false, quarantine: 1 << 20 }
    }
}

/// What an allocation is, beside bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolUse {
    /// Asked for by a driver through a pool routine.
    Driver,
    /// The model made it on the driver's behalf (an MDL, a device object): its own routine frees it.
    Service(&'static str),
    /// The MDL of MmAllocatePagesForMdlEx, which `ExFreePool` frees.
    PagesMdl,
}

#[derive(Clone, Debug)]
struct Allocation {
    place: Place,
    size: usize,
    tag: u32,
    paged: bool,
    used_as: PoolUse,
    site: Site,
    /// Where it was freed, while it rests.
    freed: Option<Site>,
}

struct State {
    /// Non-paged and paged.
    arenas: [Arena; 2],
    allocations: HashMap<usize, Allocation>,
    bytes: [usize; 2],
    peak: usize,
    count: u64,
}

/// The pool of one machine.
pub(crate) struct Pool {
    state: Mutex<State>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

/// An allocation that is not freed, as leak checks report it.
#[derive(Clone, Debug)]
pub struct PoolLeak {
    /// Address.
    pub address: usize,
    /// Bytes asked for.
    pub size: usize,
    /// Tag.
    pub tag: u32,
    /// Who allocated it.
    pub site: String,
    pub(crate) at: Site,
    pub(crate) used_as: PoolUse,
}

/// Use of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// Bytes of non-paged pool in use.
    pub non_paged: usize,
    /// Bytes of paged pool in use.
    pub paged: usize,
    /// The most that was in use at a time.
    pub peak: usize,
    /// Allocations made so far.
    pub allocations: u64,
}

/// A pool tag as text, first character in the low byte.
pub fn tag_text(tag: u32) -> String {
    let printable = |byte: u8| if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '.' };
    tag.to_le_bytes().into_iter().map(printable).collect()
}

impl Pool {
    pub(crate) fn new(options: &PoolOptions) -> Self {
        let arena = |kind| Arena::new(kind, Purpose::Pool, options.quarantine, options.guard_pages);
        Self {
            state: Mutex::new(State {
                arenas: [arena(PageKind::NonPagedPool), arena(PageKind::PagedPool)],
                allocations: HashMap::new(),
                bytes: [0; 2],
                peak: 0,
                count: 0,
            }),
        }
    }

    /// Memory without checks of the caller. Filled with `fill`.
    pub(crate) fn allocate(
        &self,
        memory: &Memory,
        size: usize,
        tag: u32,
        paged: bool,
        fill: u8,
        used_as: PoolUse,
    ) -> Option<usize> {
        let mut state = self.state.lock();
        let place = state.arenas[usize::from(paged)].allocate(memory, size)?;
        state.bytes[usize::from(paged)] += size;
        state.peak = state.peak.max(state.bytes[0] + state.bytes[1]);
        state.count += 1;
        let allocation = Allocation { place, size, tag, paged, used_as, site: Site::here(), freed: None };
        state.allocations.insert(place.address, allocation);
        drop(state);
        host::fill(place.address, fill, size);
        host::fill(place.address + size, FILL_GUARD, guard_bytes(&place, size));
        Some(place.address)
    }

    /// Everything that is not freed.
    pub(crate) fn outstanding(&self, machine: &Machine) -> Vec<PoolLeak> {
        let state = self.state.lock();
        let mut leaks: Vec<_> = state
            .allocations
            .iter()
            .filter(|(_, allocation)| allocation.freed.is_none())
            .map(|(address, a)| PoolLeak {
                address: *address,
                size: a.size,
                tag: a.tag,
                site: a.site.describe(machine),
                at: a.site,
                used_as: a.used_as,
            })
            .collect();
        leaks.sort_by_key(|leak| leak.address);
        leaks
    }

    /// What `address` belongs to, in words, for reports of wild accesses.
    pub(crate) fn describe(&self, machine: &Machine, address: usize) -> Option<String> {
        let state = self.state.lock();
        let reaches = |start: usize, a: &Allocation| start <= address && address < start + a.place.room + PAGE_SIZE;
        let (start, a) =
            state.allocations.iter().filter(|(start, a)| reaches(**start, a)).max_by_key(|(start, _)| **start)?;
        let offset = address - start;
        let freed = a.freed.map(|site| format!(", freed by {}", site.describe(machine))).unwrap_or_default();
        Some(format!(
            "byte {offset:#x} of the {:#x} bytes at {start:#x}, tag '{}', allocated by {}{freed}",
            a.size,
            tag_text(a.tag),
            a.site.describe(machine)
        ))
    }

    pub(crate) fn used_as(&self, address: usize) -> Option<PoolUse> {
        let state = self.state.lock();
        state.allocations.get(&address).filter(|a| a.freed.is_none()).map(|a| a.used_as)
    }
}

/// How many bytes behind an allocation carry the guard pattern.
fn guard_bytes(place: &Place, size: usize) -> usize {
    (place.room - size).min(PAGE_SIZE)
}

impl Machine {
    /// `ExAllocatePool2`: `flags` are `POOL_FLAG_*`. Zeroed unless `POOL_FLAG_UNINITIALIZED`.
    ///
    /// IRQL: at most DISPATCH_LEVEL, for paged pool at most APC_LEVEL. `None`: no memory, an injected failure, or a
    /// broken rule of the call.
    #[doc(alias = "ExAllocatePool2")]
    #[track_caller]
    pub fn allocate_pool(&self, flags: u64, size: usize, tag: u32) -> Option<usize> {
        let _service = self.service(&routines::EX_ALLOCATE_POOL2, [flags, size as u64, tag.into()]);
        let paged = flags & POOL_FLAG_PAGED != 0;
        self.check_irql_when(&routines::EX_ALLOCATE_POOL2, usize::from(paged));
        let kinds = flags & (POOL_FLAG_NON_PAGED | POOL_FLAG_NON_PAGED_EXECUTE | POOL_FLAG_PAGED);
        let unknown = flags & !POOL_FLAGS_OPTIONAL & !POOL_FLAGS_REQUIRED;
        let good = self.rules.check(&NT_POOL_FLAGS, kinds.count_ones() == 1 && unknown == 0, || {
            Details::new(format!("flags {flags:#x}"))
        });
        let fill = if flags & POOL_FLAG_UNINITIALIZED != 0 { FILL_FRESH } else { 0 };
        if good { self.allocate_checked(size, tag, paged, fill) } else { None }
    }

    /// `ExAllocatePoolWithTag`: `pool_type` is a `POOL_TYPE`. Not zeroed.
    ///
    /// IRQL: as [`allocate_pool`](Self::allocate_pool).
    #[doc(alias = "ExAllocatePoolWithTag")]
    #[track_caller]
    pub fn allocate_pool_with_tag(&self, pool_type: u32, size: usize, tag: u32) -> Option<usize> {
        let arguments = [pool_type.into(), size as u64, tag.into()];
        let _service = self.service(&routines::EX_ALLOCATE_POOL_WITH_TAG, arguments);
        // POOL_TYPE: bit 0 is PagedPool.
        let paged = pool_type & 1 != 0;
        self.check_irql_when(&routines::EX_ALLOCATE_POOL_WITH_TAG, usize::from(paged));
        self.allocate_checked(size, tag, paged, FILL_FRESH)
    }

    fn allocate_checked(&self, size: usize, tag: u32, paged: bool, fill: u8) -> Option<usize> {
        let irql = u64::from(self.irql());
        let sized = self.rules.check(&NT_POOL_SIZE, size != 0, || {
            Details::new("a request for zero bytes").params([irql, paged.into(), 0])
        });
        let tagged = self.rules.check(&NT_POOL_TAG_ZERO, tag != 0, || Details::new("the tag is 0"));
        if !sized || !tagged || self.memory.must_fail() {
            return None;
        }
        self.pool.allocate(&self.memory, size, tag, paged, fill, PoolUse::Driver)
    }

    /// Frees pool. `tag`: what `ExFreePoolWithTag` was given, `None` for `ExFreePool`.
    ///
    /// IRQL: at most DISPATCH_LEVEL, for paged pool at most APC_LEVEL.
    #[doc(alias = "ExFreePool")]
    #[doc(alias = "ExFreePoolWithTag")]
    #[track_caller]
    pub fn free_pool(&self, address: usize, tag: Option<u32>) {
        let routine: &'static Routine =
            if tag.is_some() { &routines::EX_FREE_POOL_WITH_TAG } else { &routines::EX_FREE_POOL };
        let _service = self.service(routine, [address as u64, tag.unwrap_or(0).into()]);
        let found = self.pool.state.lock().allocations.get(&address).cloned();
        let freeable = found.as_ref().is_some_and(|a| !matches!(a.used_as, PoolUse::Service(_)));
        let known = self.rules.check(&NT_POOL_BAD_ADDRESS, freeable, || {
            Details::new(match &found {
                Some(a) => format!("{address:#x} is {:?}, which its own routine frees", a.used_as),
                None => match self.pool.describe(self, address) {
                    Some(text) => format!("{address:#x} was not returned by an allocation: it is {text}"),
                    None => format!("{address:#x} is no pool"),
                },
            })
            .params([address as u64, 0, 0])
        });
        let Some(allocation) = found.filter(|_| known) else { return };
        let live = self.rules.check(&NT_POOL_DOUBLE_FREE, allocation.freed.is_none(), || {
            Details::new(format!(
                "{address:#x} (tag '{}', allocated by {}) was freed already by {}",
                tag_text(allocation.tag),
                allocation.site.describe(self),
                allocation.freed.unwrap_or(Site::NONE).describe(self)
            ))
            .params([0, address as u64, 0])
        });
        if !live {
            return;
        }
        self.rules.check(&NT_POOL_TAG, tag.is_none_or(|tag| tag == 0 || tag == allocation.tag), || {
            let given = tag.unwrap_or(0);
            Details::new(format!(
                "{address:#x} was allocated with tag '{}' by {} and is freed with '{}'",
                tag_text(allocation.tag),
                allocation.site.describe(self),
                tag_text(given)
            ))
            .params([address as u64, allocation.tag.into(), given.into()])
        });
        if allocation.paged && self.irql() > routines::APC_LEVEL {
            self.check_paged_free(address);
        }
        self.release_pool(address);
    }

    fn check_paged_free(&self, address: usize) {
        let irql = self.irql();
        self.rules.broken(
            &crate::rules_nt::NT_IRQL,
            Details::new(format!("paged pool freed at IRQL {irql}")).param1(0x11).params([
                irql.into(),
                1,
                address as u64,
            ]),
        );
    }

    /// Frees an allocation that exists, after the last looks at it.
    pub(crate) fn release_pool(&self, address: usize) {
        let Some(allocation) = self.pool.state.lock().allocations.get(&address).cloned() else { return };
        let range = address..address + allocation.size;
        self.check_memory_idle(&range);
        self.check_guard(address, &allocation);
        if allocation.used_as == PoolUse::PagesMdl {
            self.memory.mdls.remove(address);
        }
        if allocation.place.room >= PAGE_SIZE {
            self.check_pages_unmapped(&range);
        }
        host::fill(address, FILL_FREED, allocation.size);
        let leaving = {
            let mut state = self.pool.state.lock();
            if let Some(entry) = state.allocations.get_mut(&address) {
                entry.freed = Some(Site::here());
            }
            state.bytes[usize::from(allocation.paged)] -= allocation.size;
            state.arenas[usize::from(allocation.paged)].rest(allocation.place)
        };
        self.recycle_pool(leaving, usize::from(allocation.paged));
    }

    /// Memory is about to go away: nothing that the model refers to may be in it.
    pub(crate) fn check_memory_idle(&self, range: &Range<usize>) {
        let timers = self.timers.set_in(range);
        self.rules.check(&NT_TIMER_LEAKED, timers.is_empty(), || {
            Details::new(format!("memory with a set timer at {:#x} is freed", timers[0])).params([
                timers[0] as u64,
                0,
                0,
            ])
        });
        for timer in timers {
            self.timers.forget(timer);
        }
        let dpcs = self.dpcs.queued_in(range);
        self.rules.check(&NT_DPC_LEAKED, dpcs.is_empty(), || {
            Details::new(format!("memory with a queued DPC at {:#x} is freed", dpcs[0])).params([dpcs[0] as u64, 0, 0])
        });
        for dpc in dpcs {
            self.forget_dpc(dpc);
        }
        let waited = self.waited_objects_in(range);
        self.rules.check(&NT_WAITED_FREED, waited.is_empty(), || {
            Details::new(format!("memory with an object at {:#x} that a thread waits for is freed", waited[0]))
                .params([waited[0] as u64, 0, 0])
        });
        self.forget_locks(range);
    }

    /// Looks behind the end of what is not freed, too.
    pub(crate) fn check_guards(&self) {
        let held: Vec<_> = {
            let state = self.pool.state.lock();
            let held = state.allocations.iter().filter(|(_, allocation)| allocation.freed.is_none());
            held.map(|(address, allocation)| (*address, allocation.clone())).collect()
        };
        for (address, allocation) in held {
            self.check_guard(address, &allocation);
        }
    }

    fn check_guard(&self, address: usize, allocation: &Allocation) {
        let end = address + allocation.size;
        let damage = host::first_other(end, FILL_GUARD, guard_bytes(&allocation.place, allocation.size));
        self.rules.check(&NT_POOL_OVERRUN, damage.is_none(), || {
            Details::new(format!(
                "byte {:#x} behind the {:#x} bytes at {address:#x} (tag '{}', allocated by {}) was written",
                damage.unwrap_or_default(),
                allocation.size,
                tag_text(allocation.tag),
                allocation.site.describe(self)
            ))
            .params([address as u64, (end + damage.unwrap_or_default()) as u64, allocation.size as u64])
        });
    }

    /// No driver mapping of an allocation's pages may be left.
    fn check_pages_unmapped(&self, range: &Range<usize>) {
        let pages = range.clone().step_by(PAGE_SIZE).filter_map(|address| self.page_at(address));
        let left = pages.into_iter().find(|(object, index, _)| {
            object.mappings(*index) != 0 || object.state(*index).locks.load(std::sync::atomic::Ordering::Relaxed) != 0
        });
        self.rules.check(&crate::rules_memory::NT_MAP_LEFT, left.is_none(), || {
            let frame = left.as_ref().map_or(0, |(object, index, _)| object.frame(*index));
            Details::new(format!(
                "pool at {:#x} is freed while its page frame {frame:#x} is mapped or locked",
                range.start
            ))
            .params([frame, range.start as u64, 0])
        });
    }

    /// Looks for late writes in places that leave the quarantine, then lets them be used again.
    fn recycle_pool(&self, leaving: Vec<Place>, arena: usize) {
        for place in leaving {
            let (allocation, readable) = {
                let mut state = self.pool.state.lock();
                let readable = state.arenas[arena].is_readable_at_rest();
                (state.allocations.remove(&place.address), readable)
            };
            if let Some(allocation) = allocation
                && readable
            {
                let damage = host::first_other(place.address, FILL_FREED, allocation.size);
                self.rules.check(&NT_POOL_USE_AFTER_FREE, damage.is_none(), || {
                    Details::new(format!(
                        "byte {:#x} of the {:#x} bytes at {:#x} (tag '{}', allocated by {}, freed by {}) was written \
                         after it was freed",
                        damage.unwrap_or_default(),
                        allocation.size,
                        place.address,
                        tag_text(allocation.tag),
                        allocation.site.describe(self),
                        allocation.freed.unwrap_or(Site::NONE).describe(self)
                    ))
                    .params([0, place.address as u64, 0])
                });
            }
            self.pool.state.lock().arenas[arena].recycle(place);
        }
    }

    /// Looks for late writes in everything that rests. The leak check does it; tests may.
    pub fn check_freed_pool(&self) {
        for arena in 0..2 {
            let resting = self.pool.state.lock().arenas[arena].drain();
            self.recycle_pool(resting, arena);
        }
    }

    /// How much pool is in use.
    pub fn pool_usage(&self) -> PoolUsage {
        let state = self.pool.state.lock();
        PoolUsage { non_paged: state.bytes[0], paged: state.bytes[1], peak: state.peak, allocations: state.count }
    }

    /// Every allocation that is not freed.
    pub fn pool_outstanding(&self) -> Vec<PoolLeak> {
        self.pool.outstanding(self)
    }
}
