//! Processes: identity, user address space, handles.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::heap::Heap;
use super::left::Left;
use super::secure::{FREED, PRIVATE_MEMORY};
use super::space::Separate;
use crate::cpu::{self, Site};
use crate::image::Image;
use crate::kernel::Machine;
use crate::memory::page_object::CacheType;
use crate::memory::regions::{self, Backing, PageRun, Purpose, Region};
use crate::memory::{PAGE_SIZE, PageKind, PageObject, Rights, host};
use crate::object::Object;
use crate::rules::Details;
use crate::rules_memory::NT_PROCESS_LOCKED_PAGES;
use crate::rules_nt::NT_ATTACH;
use crate::thread::ThreadKind;

/// Process id of the system process.
pub const SYSTEM_PROCESS_ID: u64 = 4;

/// The word of a process's body that stands for its token.
const TOKEN: usize = 16;

type Entry = Arc<dyn Any + Send + Sync>;

/// A simulated process.
pub struct Process {
    /// What drivers see the address of (`PEPROCESS`).
    body: Box<[AtomicU64; 32]>,
    id: u64,
    name: String,
    handles: Mutex<(u64, HashMap<u64, Entry>)>,
    ended: AtomicBool,
    hidden: AtomicBool,
    left: Left,
    /// Its address space, where it is another Linux process.
    separate: OnceLock<Separate>,
    pub(crate) heap: Heap,
    /// User-mode DLLs, in the order of their loading.
    pub(crate) modules: Mutex<Vec<Arc<Image>>>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.id, self.name)
    }
}

impl Process {
    fn new(id: u64, name: &str) -> Arc<Self> {
        Arc::new(Self {
            body: Box::new([const { AtomicU64::new(0) }; 32]),
            id,
            name: name.to_owned(),
            handles: Mutex::new((0, HashMap::new())),
            ended: AtomicBool::new(false),
            hidden: AtomicBool::new(false),
            left: Left::default(),
            separate: OnceLock::new(),
            heap: Heap::new(id),
            modules: Mutex::default(),
        })
    }

    /// `PsGetProcessId`.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// For reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address that drivers know it by.
    pub fn address(&self) -> usize {
        self.body.as_ptr().expose_provenance()
    }

    /// The address that drivers know its token by.
    fn token(&self) -> usize {
        core::ptr::from_ref(&self.body[TOKEN]).expose_provenance()
    }

    /// Makes it another Linux process, before anything is mapped into it. Returns `false` where it is one already.
    pub fn set_separate(&self, space: Separate) -> bool {
        self.separate.set(space).is_ok()
    }

    /// Its address space, where it is another Linux process.
    pub fn separate(&self) -> Option<&Separate> {
        self.separate.get()
    }

    /// Ends the Linux process of its own, if it has one: it sees what it must not see, and cannot be told otherwise.
    pub fn end_separate(&self) {
        if let Some(space) = self.separate() {
            space.agent.end();
        }
    }

    /// Whether [`Machine::end_process`] was called.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Opens an NT handle to anything. Values are multiples of four, from 4 on, never used twice.
    pub fn insert_handle(&self, object: Entry) -> u64 {
        let mut handles = self.handles.lock();
        handles.0 += 4;
        let value = handles.0;
        handles.1.insert(value, object);
        value
    }

    /// What a handle leads to, if it is a `T`.
    pub fn handle<T: Any + Send + Sync>(&self, handle: u64) -> Option<Arc<T>> {
        self.handles.lock().1.get(&handle).cloned()?.downcast().ok()
    }

    /// What a handle leads to, whatever it is.
    pub fn handle_any(&self, handle: u64) -> Option<Entry> {
        self.handles.lock().1.get(&handle).cloned()
    }

    /// Closes a handle; the object is returned so that the caller drops it. `None`: not open.
    pub fn close_handle(&self, handle: u64) -> Option<Entry> {
        self.handles.lock().1.remove(&handle)
    }

    /// Handles that are open.
    pub fn open_handles(&self) -> usize {
        self.handles.lock().1.len()
    }
}

/// The processes of one machine.
pub(crate) struct Processes {
    map: Mutex<HashMap<u64, Arc<Process>>>,
    last_id: AtomicU64,
    system: Arc<Process>,
}

impl fmt::Debug for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Processes").finish_non_exhaustive()
    }
}

impl Default for Processes {
    fn default() -> Self {
        let system = Process::new(SYSTEM_PROCESS_ID, "System");
        Self {
            map: Mutex::new(HashMap::from([(SYSTEM_PROCESS_ID, system.clone())])),
            last_id: AtomicU64::new(1000),
            system,
        }
    }
}

/// Why user memory could not be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// Something is at the address asked for.
    #[error("the address is in use")]
    InUse,
    /// The range is not within the object, or not page-aligned.
    #[error("the range is not within the object")]
    Range,
    /// Nothing of this process is there.
    #[error("no mapping of the process is there")]
    NotMapped,
    /// The host has no address space or descriptors left.
    #[error("the host refused the mapping")]
    Host,
}

/// Pages to show to a process.
#[derive(Clone, Debug)]
pub struct UserMapping {
    /// Whose pages.
    pub object: Arc<PageObject>,
    /// First page.
    pub first: usize,
    /// How many.
    pub pages: usize,
    /// What the process may do.
    pub rights: Rights,
    /// Cache type, which must agree with the other mappings.
    pub cache: CacheType,
}

impl UserMapping {
    /// All pages of `object`, cached.
    pub fn whole(object: &Arc<PageObject>, rights: Rights) -> Self {
        Self { object: object.clone(), first: 0, pages: object.pages(), rights, cache: CacheType::Cached }
    }

    fn is_valid(&self) -> bool {
        self.pages != 0 && self.first.checked_add(self.pages).is_some_and(|end| end <= self.object.pages())
    }

    fn runs(&self) -> Vec<PageRun> {
        vec![PageRun { object: self.object.clone(), first: self.first, count: self.pages }]
    }
}

/// The calling thread is in a process while this lives. See [`Machine::enter_process`].
#[derive(Debug)]
#[must_use = "the thread leaves the process when the guard is dropped"]
pub struct InProcess {
    old: (u64, i32),
    not_send: PhantomData<*const ()>,
}

impl Drop for InProcess {
    fn drop(&mut self) {
        cpu::with(|cpu| {
            cpu.process.set(self.old.0);
            cpu.separate.set(self.old.1);
        });
    }
}

impl Machine {
    /// Makes a process.
    pub fn create_process(&self, name: &str) -> Arc<Process> {
        let id = self.processes.last_id.fetch_add(4, Ordering::Relaxed) + 4;
        let process = Process::new(id, name);
        self.processes.map.lock().insert(id, process.clone());
        process
    }

    /// The system process.
    pub fn system_process(&self) -> &Arc<Process> {
        &self.processes.system
    }

    /// The process with this id.
    pub fn process(&self, id: u64) -> Option<Arc<Process>> {
        self.processes.map.lock().get(&id).cloned()
    }

    /// Puts the calling thread into `process` until the guard is dropped. It must have entered the machine as well
    /// before it calls services.
    pub fn enter_process(&self, process: &Process) -> InProcess {
        let pid = process.separate().map_or(0, |space| space.pid);
        let old = cpu::with(|cpu| (cpu.process.replace(process.id), cpu.separate.replace(pid)));
        InProcess { old, not_send: PhantomData }
    }

    /// Attaches the calling thread to the process at `address`. Returns where it was, for
    /// [`detach_process`](Self::detach_process). `nests`: it may be attached already.
    ///
    /// IRQL: at most APC_LEVEL.
    pub(crate) fn attach_process(&self, address: usize, nests: bool) -> (u64, i32) {
        let was = cpu::with(|cpu| (cpu.process.get(), cpu.separate.get()));
        let process = self.processes.map.lock().values().find(|process| process.address() == address).cloned();
        self.rules.check(&NT_ATTACH, process.is_some(), || {
            Details::new(format!("{address:#x} is no process")).params([address as u64, 0, 0])
        });
        let depth = cpu::with(|cpu| cpu.attached.get());
        self.rules.check(&NT_ATTACH, nests || depth == 0, || "KeAttachProcess while attached".to_owned());
        if depth == 0 {
            cpu::with(|cpu| cpu.home.set(was));
        }
        let at = process.map_or(was, |process| (process.id, process.separate().map_or(0, |space| space.pid)));
        cpu::with(|cpu| {
            cpu.attached.set(depth + 1);
            cpu.process.set(at.0);
            cpu.separate.set(at.1);
        });
        was
    }

    /// Puts the calling thread back to where it was; `None`: in front of everything that it attached to.
    ///
    /// IRQL: at most APC_LEVEL.
    pub(crate) fn detach_process(&self, was: Option<(u64, i32)>) {
        let depth = cpu::with(|cpu| cpu.attached.get());
        let attached =
            self.rules.check(&NT_ATTACH, depth != 0, || Details::new("detached without having attached").code(0x6));
        if attached {
            cpu::with(|cpu| {
                let was = was.unwrap_or(cpu.home.get());
                cpu.attached.set(depth - 1);
                cpu.process.set(was.0);
                cpu.separate.set(was.1);
            });
        }
    }

    /// Whether the calling thread came from user mode: one of the host's, in a process other than the system's.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn came_from_user_mode(&self) -> bool {
        let home = cpu::with(|cpu| if cpu.attached.get() == 0 { cpu.process.get() } else { cpu.home.get().0 });
        let of_host = self.with_current_thread(|thread| thread.kind() == ThreadKind::Host);
        of_host && home != 0 && home != SYSTEM_PROCESS_ID
    }

    /// The token of the process at `address`, with a reference. `None`: there is no such process.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn reference_token(&self, address: usize) -> Option<usize> {
        let processes = self.processes.map.lock();
        let token = processes.values().find(|process| process.address() == address)?.token();
        drop(processes);
        self.objects.reference_or_insert(Object::Body(token, "Token"));
        Some(token)
    }

    /// Whether a token is of the system process, the one that is an administrator's.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn is_system_token(&self, token: usize) -> bool {
        self.processes.system.token() == token
    }

    /// The process that the calling thread is in; the system process when it is in none.
    pub fn current_process(&self) -> Arc<Process> {
        self.process(cpu::with(|cpu| cpu.process.get())).unwrap_or_else(|| self.processes.system.clone())
    }

    /// `PsGetCurrentProcessId`.
    pub fn current_process_id(&self) -> u64 {
        match cpu::with(|cpu| cpu.process.get()) {
            0 => SYSTEM_PROCESS_ID,
            id => id,
        }
    }

    pub(crate) fn current_process_address(&self) -> usize {
        self.current_process().address()
    }

    pub(crate) fn process_id_of(&self, address: usize) -> u64 {
        let processes = self.processes.map.lock();
        processes.values().find(|process| process.address() == address).map_or(0, |process| process.id)
    }

    /// Maps pages into a process, at `at` or anywhere. Returns the user address.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn map_user(&self, process: &Process, mapping: &UserMapping, at: Option<usize>) -> Result<usize, MapError> {
        let bytes = mapping.pages * PAGE_SIZE;
        if !mapping.is_valid() || at.is_some_and(|at| !at.is_multiple_of(PAGE_SIZE)) {
            return Err(MapError::Range);
        }
        let runs = mapping.runs();
        let start = match (process.separate(), at) {
            (Some(space), None) => space.map(mapping)?,
            // Addresses there are picked here.
            (Some(_), Some(_)) => return Err(MapError::InUse),
            (None, None) => regions::map_runs(&runs, mapping.rights).map_err(|_| MapError::Host)?,
            (None, Some(at)) => {
                if !process.left.take(at, bytes) {
                    host::reserve_at(at, bytes).map_err(|_| MapError::InUse)?;
                }
                regions::map_runs_at(at, &runs, mapping.rights).map_err(|_| MapError::Host)?;
                at
            }
        };
        let region = Region {
            start,
            bytes,
            backing: Backing::Pages(runs),
            purpose: Purpose::Process(process.id),
            rights: mapping.rights,
            cache: mapping.cache,
            site: Site::here(),
        };
        self.count_mappings(&region);
        self.memory.regions.insert(region);
        Ok(start)
    }

    /// The cache type and the rights of the mapping of `process` that begins at `address`.
    ///
    /// # Errors
    /// [`MapError::NotMapped`].
    pub fn user_mapping(&self, process: &Process, address: usize) -> Result<(CacheType, Rights), MapError> {
        self.user_region(process, address).map(|region| (region.cache, region.rights))
    }

    /// Where user mode of any process sees a page: the process's id, the page's address there, the rights.
    pub fn user_mappings_of(&self, object: &PageObject, index: usize) -> Vec<(u64, usize, Rights)> {
        let mut found = Vec::new();
        for region in self.memory.regions.select(|region| matches!(region.purpose, Purpose::Process(_))) {
            let Purpose::Process(process) = region.purpose else { continue };
            let pages = region.pages().into_iter().enumerate();
            let same = pages.filter(|(_, (page, at))| (page.id(), *at) == (object.id(), index));
            found.extend(same.map(|(number, _)| (process, region.start + number * PAGE_SIZE, region.rights)));
        }
        found
    }

    /// Replaces what a user mapping shows, in one step: a concurrent access goes to the old page or the new one. This
    /// is how Dxgkrnl rotates a doorbell to a dummy page. `mapping` has as many pages as the mapping at `address`.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn remap_user(&self, process: &Process, address: usize, mapping: &UserMapping) -> Result<(), MapError> {
        let old = self.user_region(process, address)?;
        if !mapping.is_valid() || mapping.pages * PAGE_SIZE != old.bytes {
            return Err(MapError::Range);
        }
        // What is shown already costs another Linux process no message.
        let shown = |run: &PageRun| Arc::ptr_eq(&run.object, &mapping.object) && run.first == mapping.first;
        let is_same = matches!(&old.backing, Backing::Pages(runs) if matches!(&**runs, [run] if shown(run)));
        if process.separate().is_some() && is_same && old.rights == mapping.rights && old.cache == mapping.cache {
            return Ok(());
        }
        let runs = mapping.runs();
        let handed =
            process.separate().map(|space| Separate::hand_over(mapping).map(|pages| (space, pages))).transpose()?;
        let shown = if process.hidden.load(Ordering::Acquire) { Rights::None } else { mapping.rights };
        let region = Region {
            backing: Backing::Pages(runs.clone()),
            rights: mapping.rights,
            cache: mapping.cache,
            site: Site::here(),
            ..Region::clone(&old)
        };
        // Counted before it is visible, so that a page is never mapped and uncounted.
        self.count_mappings(&region);
        match handed {
            // A process that is gone sees no page any more, neither the old one nor the new one.
            Some((space, pages)) => _ = space.agent.show(address, pages, mapping.rights),
            None => regions::map_runs_at(address, &runs, shown).map_err(|_| MapError::Host)?,
        }
        self.memory.regions.insert(region);
        for (object, index) in old.pages() {
            object.remove_mapping(index);
        }
        Ok(())
    }

    /// Changes what the process may do with a mapping.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn protect_user(&self, process: &Process, address: usize, rights: Rights) -> Result<(), MapError> {
        let old = self.user_region(process, address)?;
        if let Some(space) = process.separate() {
            space.agent.protect(old.start, old.bytes, rights).map_err(|_| MapError::Host)?;
        } else if !process.hidden.load(Ordering::Acquire) {
            host::protect(old.start, old.bytes, rights).map_err(|_| MapError::Host)?;
        }
        self.memory.regions.insert(Region { rights, ..Region::clone(&old) });
        Ok(())
    }

    /// Removes a user mapping. No other process gets the addresses before this one ends, or has given up many more.
    ///
    /// # Errors
    /// [`MapError::NotMapped`].
    pub fn unmap_user(&self, process: &Process, address: usize) -> Result<(), MapError> {
        let region = self.user_region(process, address)?;
        if let Some(space) = process.separate() {
            // Before the pages can be given to anybody else. One that is gone has let go of everything.
            let _ = space.agent.clear(address, region.bytes);
            self.forget_mapping_at(address);
        } else if let Some(region) = self.forget_mapping_at(address) {
            process.left.keep(region.start, region.bytes);
        }
        Ok(())
    }

    pub(super) fn user_region(&self, process: &Process, address: usize) -> Result<Arc<Region>, MapError> {
        let region = self.memory.regions.at(address);
        region.filter(|region| region.purpose == Purpose::Process(process.id)).ok_or(MapError::NotMapped)
    }

    /// Allocates pageable memory in a process, read and write. Returns its address.
    ///
    /// # Errors
    /// [`MapError::Host`] when the machine has no memory left.
    pub fn allocate_user(&self, process: &Process, pages: usize) -> Result<usize, MapError> {
        let object = self.allocate_pages(pages, PageKind::User, PRIVATE_MEMORY).ok_or(MapError::Host)?;
        self.map_user(process, &UserMapping::whole(&object, Rights::ReadWrite), None)
    }

    /// Frees memory of [`allocate_user`](Self::allocate_user). Pages that are locked or mapped elsewhere break
    /// NT-MAP-LEFT.
    ///
    /// # Errors
    /// [`MapError::NotMapped`]; [`MapError::InUse`] while it is [secured](Self::secure_user).
    pub fn free_user(&self, process: &Process, address: usize) -> Result<(), MapError> {
        let region = self.user_region(process, address)?;
        let object = region.page(address).map(|(object, ..)| object).ok_or(MapError::NotMapped)?;
        // From here on nothing secures it.
        if object.secured.compare_exchange(0, FREED, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return Err(MapError::InUse);
        }
        self.unmap_user(process, address).inspect_err(|_| object.secured.store(0, Ordering::Release))?;
        self.free_pages(&object);
        Ok(())
    }

    /// Makes all memory of `process` inaccessible until [`reveal_process`](Self::reveal_process): a driver that touches
    /// it meanwhile breaks NT-USER-TOUCH (and is let through, page by page).
    ///
    /// Nothing for one in another Linux process, whose memory a driver cannot touch.
    pub fn hide_process(&self, process: &Process) {
        if process.separate().is_some() {
            return;
        }
        process.hidden.store(true, Ordering::Release);
        for region in self.regions_of(process) {
            let _ = host::protect(region.start, region.bytes, Rights::None);
        }
    }

    /// Undoes [`hide_process`](Self::hide_process).
    pub fn reveal_process(&self, process: &Process) {
        if process.separate().is_some() {
            return;
        }
        process.hidden.store(false, Ordering::Release);
        for region in self.regions_of(process) {
            let _ = host::protect(region.start, region.bytes, region.rights);
        }
    }

    fn regions_of(&self, process: &Process) -> Vec<Arc<Region>> {
        self.memory.regions.select(|region| region.purpose == Purpose::Process(process.id))
    }

    /// Ends a process: handles are closed (their objects are returned, for whoever must act on that), mappings removed,
    /// its memory freed. Pages that a driver still has locked break NT-PROCESS-LOCKED-PAGES.
    pub fn end_process(&self, process: &Arc<Process>) -> Vec<Arc<dyn Any + Send + Sync>> {
        if process.ended.swap(true, Ordering::AcqRel) {
            return Vec::new();
        }
        let objects: Vec<_> = process.handles.lock().1.drain().map(|(_, object)| object).collect();
        let regions = self.regions_of(process);
        let own =
            |region: &Arc<Region>| region.pages().into_iter().filter(|(object, _)| object.kind() == PageKind::User);
        let is_locked = |object: &PageObject, index| object.state(index).locks.load(Ordering::Relaxed) != 0;
        let is_secured = |object: &PageObject| object.secured.load(Ordering::Acquire) != 0;
        // What is secured outlives the process.
        let mut pages = regions.iter().flat_map(own);
        let locked = pages.find(|(object, index)| is_locked(object, *index) && !is_secured(object));
        self.rules.check(&NT_PROCESS_LOCKED_PAGES, locked.is_none(), || {
            let frame = locked.as_ref().map_or(0, |(object, index)| object.frame(*index));
            Details::new(format!("{process:?} ends while its page frame {frame:#x} is locked")).params([
                process.address() as u64,
                frame,
                0,
            ])
        });
        for region in regions {
            let user = region.page(region.start).map(|(object, ..)| object).filter(|o| o.kind() == PageKind::User);
            match process.separate() {
                // Its addresses here stay reserved as long as there is anybody who knows it.
                Some(_) => _ = self.forget_mapping_at(region.start),
                None => _ = self.remove_mapping_at(region.start),
            }
            if let Some(object) = user
                && (0..object.pages()).all(|index| object.mappings(index) == 0)
                && !is_secured(&object)
            {
                self.memory.physical.free(&object);
            }
        }
        self.forget_etw_of(process.id);
        process.left.give_back();
        self.processes.map.lock().remove(&process.id);
        objects
    }

    /// A kernel handle's object opened in a process (`ObOpenObjectByPointer` for the calling process).
    pub fn duplicate_to_process(&self, process: &Process, object: Object) -> u64 {
        process.insert_handle(Arc::new(object))
    }
}
