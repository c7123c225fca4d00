//! What lies at which host address: the map from virtual addresses to pages and device registers.
//!
//! Kernel and user addresses of the model are host addresses. This table knows every range that the machine has mapped;
//! the trap handler asks it what a faulting address is, `MmGetPhysicalAddress` which page, the leak check what is left.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;

use super::host::{self, PAGE_SIZE, Rights};
use super::page_object::{CacheType, PageObject};
use crate::cpu::Site;
use crate::mmio::DeviceRange;

/// Consecutive pages of one object.
#[derive(Clone, Debug)]
pub(crate) struct PageRun {
    pub(crate) object: Arc<PageObject>,
    pub(crate) first: usize,
    pub(crate) count: usize,
}

/// What a region shows.
#[derive(Clone, Debug)]
pub(crate) enum Backing {
    /// Pages, in order.
    Pages(Vec<PageRun>),
    /// Device registers from an offset on: every access traps.
    Registers(Arc<DeviceRange>, u64),
    /// Nothing yet.
    Reserved,
}

/// What a region is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A chunk of pool.
    Pool,
    /// `MmAllocateContiguousMemory`.
    Contiguous,
    /// `MmMapLockedPagesSpecifyCache` of the MDL at this address, in kernel mode.
    MdlMapping(usize),
    /// `MmMapIoSpace`.
    IoSpace,
    /// `MmAllocateMappingAddress` with this tag.
    MappingAddress(u32),
    /// Memory of process `id`, pages or a driver's mapping into it.
    Process(u64),
    /// Mapped by the model for itself.
    Model,
}

/// A mapped or reserved address range.
#[derive(Clone)]
pub(crate) struct Region {
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    pub(crate) backing: Backing,
    pub(crate) purpose: Purpose,
    pub(crate) rights: Rights,
    pub(crate) cache: CacheType,
    pub(crate) site: Site,
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}+{:#x} {:?}", self.start, self.bytes, self.purpose)
    }
}

impl Region {
    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.start + self.bytes
    }

    /// The page under `address`, with the offset in it.
    pub(crate) fn page(&self, address: usize) -> Option<(Arc<PageObject>, usize, usize)> {
        let Backing::Pages(runs) = &self.backing else { return None };
        let offset = address.checked_sub(self.start)?;
        let mut page = offset / PAGE_SIZE;
        for run in runs {
            if page < run.count {
                return Some((run.object.clone(), run.first + page, offset % PAGE_SIZE));
            }
            page -= run.count;
        }
        None
    }

    /// Every page of the region.
    pub(crate) fn pages(&self) -> Vec<(Arc<PageObject>, usize)> {
        let Backing::Pages(runs) = &self.backing else { return Vec::new() };
        runs.iter().flat_map(|run| (run.first..run.first + run.count).map(|at| (run.object.clone(), at))).collect()
    }
}

/// The regions of one machine.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    map: RwLock<BTreeMap<usize, Arc<Region>>>,
}

impl Regions {
    pub(crate) fn insert(&self, region: Region) -> Arc<Region> {
        let region = Arc::new(region);
        self.map.write().insert(region.start, region.clone());
        region
    }

    /// Takes out the region that starts at `start`.
    pub(crate) fn remove(&self, start: usize) -> Option<Arc<Region>> {
        self.map.write().remove(&start)
    }

    /// The region around `address`.
    pub(crate) fn find(&self, address: usize) -> Option<Arc<Region>> {
        let map = self.map.read();
        let (_, region) = map.range(..=address).next_back()?;
        region.range().contains(&address).then(|| region.clone())
    }

    /// The region that starts at `start`.
    pub(crate) fn at(&self, start: usize) -> Option<Arc<Region>> {
        self.map.read().get(&start).cloned()
    }

    /// Every region for which `wanted` holds, for a look from anywhere. `None`: another thread, or a caller of this
    /// one, keeps the table for long.
    pub(crate) fn peek(&self, wanted: impl Fn(&Region) -> bool) -> Option<Vec<Arc<Region>>> {
        const PATIENCE: Duration = Duration::from_millis(100);
        let map = self.map.try_read_for(PATIENCE)?;
        Some(map.values().filter(|region| wanted(region)).cloned().collect())
    }

    /// Runs `f` while the calling thread keeps the table, as one does that changes it.
    pub(crate) fn keeping<R>(&self, f: impl FnOnce() -> R) -> R {
        let kept = self.map.write();
        let result = f();
        drop(kept);
        result
    }

    /// Every region for which `wanted` holds.
    pub(crate) fn select(&self, wanted: impl Fn(&Region) -> bool) -> Vec<Arc<Region>> {
        self.map.read().values().filter(|region| wanted(region)).cloned().collect()
    }
}

/// Maps runs of pages side by side. Consecutive runs of one object become one mapping. Returns the address.
pub(crate) fn map_runs(runs: &[PageRun], rights: Rights) -> std::io::Result<usize> {
    if let [run] = runs {
        return run.object.map(run.first, run.count, rights);
    }
    let bytes = runs.iter().map(|run| run.count).sum::<usize>() * PAGE_SIZE;
    let start = host::reserve(bytes)?;
    if let Err(error) = map_runs_at(start, runs, rights) {
        host::unmap(start, bytes);
        return Err(error);
    }
    Ok(start)
}

/// Maps runs of pages side by side from `start` on, replacing what is there.
pub(crate) fn map_runs_at(start: usize, runs: &[PageRun], rights: Rights) -> std::io::Result<()> {
    let mut at = start;
    for run in runs {
        run.object.map_over(at, run.first, run.count, rights)?;
        at += run.count * PAGE_SIZE;
    }
    Ok(())
}

/// Joins neighbouring pages of one object into runs.
pub(crate) fn merge(pages: impl IntoIterator<Item = (Arc<PageObject>, usize)>) -> Vec<PageRun> {
    let mut runs: Vec<PageRun> = Vec::new();
    for (object, index) in pages {
        match runs.last_mut() {
            Some(run) if Arc::ptr_eq(&run.object, &object) && run.first + run.count == index => run.count += 1,
            _ => runs.push(PageRun { object, first: index, count: 1 }),
        }
    }
    runs
}
