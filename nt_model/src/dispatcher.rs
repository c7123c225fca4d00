//! Dispatcher objects: events, semaphores, mutexes, and waiting for them, for timers and for threads.
//!
//! Kind and signal state live in the driver's own record, as on Windows; the list of waiters lives here, in a table
//! under one lock per machine, so that a driver that overwrites an object cannot lead the model astray. The thread that
//! signals an object satisfies its waiters (takes the count, hands over the mutex) before they run, as Windows does.
//!
//! Setting an event that is already set looks at one word and takes no lock.
//!
//! The lock nests inside nothing and nothing nests inside it: no driver code, no allocation by a driver, no other lock.

mod header_ref;
#[cfg(test)]
mod tests;
mod wait;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering, fence};

use parking_lot::Mutex;

use crate::kernel::Machine;
use crate::records::{
    DispatcherHeader, KEVENT, KMUTANT, KSEMAPHORE, OBJECT_EVENT_NOTIFICATION, OBJECT_EVENT_SYNCHRONIZATION,
    OBJECT_MUTANT, OBJECT_SEMAPHORE, OBJECT_THREAD, OBJECT_TIMER_NOTIFICATION, OBJECT_TIMER_SYNCHRONIZATION, status,
    status::NtStatus,
};
use crate::routines::{self, Routine};
use crate::rules::{Details, hex_list};
use crate::rules_nt::{NT_MUTEX_LEAKED, NT_MUTEX_NOT_OWNED, NT_OBJECT_IN_USE, NT_OBJECT_KIND, NT_SEMAPHORE_LIMIT};
use crate::sched::Slot;
use crate::thread::Thread;
use header_ref::HeaderRef;

/// `MAXIMUM_WAIT_OBJECTS`.
pub const MAXIMUM_WAIT_OBJECTS: usize = 64;

/// A wait block that nobody has satisfied yet.
const UNSATISFIED: i32 = i32::MIN;

/// One thread's wait.
struct WaitBlock {
    slot: Arc<Slot>,
    thread: usize,
    objects: Vec<HeaderRef>,
    all: bool,
    result: AtomicI32,
}

#[derive(Default)]
struct Waits {
    by_object: HashMap<usize, Vec<Arc<WaitBlock>>>,
    /// Mutexes owned, by the owning thread's object address.
    owned: HashMap<usize, Vec<usize>>,
}

/// Who waits for what on one machine.
#[derive(Default)]
pub(crate) struct Dispatcher {
    waits: Mutex<Waits>,
    /// Threads that wait; lets a check of freed memory skip the table.
    waiting: AtomicUsize,
}

/// An event of native code: a `KEVENT` that stays where it is.
#[derive(Debug)]
pub struct Event {
    kevent: Box<KEVENT>,
}

impl Event {
    /// Stays set until cleared, releases every waiter.
    pub fn notification(set: bool) -> Self {
        Self::new(OBJECT_EVENT_NOTIFICATION, set)
    }

    /// Releases one waiter and is then clear.
    pub fn synchronization(set: bool) -> Self {
        Self::new(OBJECT_EVENT_SYNCHRONIZATION, set)
    }

    fn new(kind: u8, set: bool) -> Self {
        let kevent = Box::new(KEVENT::default());
        init_header(&kevent.header, kind, 6, i32::from(set));
        Self { kevent }
    }

    /// The record, for the services.
    pub fn as_kevent(&self) -> &KEVENT {
        &self.kevent
    }
}

/// Writes a fresh dispatcher header. `words`: size of the object in 32-bit words.
pub(crate) fn init_header(header: &DispatcherHeader, kind: u8, words: u8, state: i32) {
    header.kind.store(kind, Ordering::Relaxed);
    header.signalling.store(0, Ordering::Relaxed);
    header.size.store(words, Ordering::Relaxed);
    header.reserved.store(0, Ordering::Relaxed);
    let list = (&raw const header.wait_list).expose_provenance();
    header.wait_list[0].store(list, Ordering::Relaxed);
    header.wait_list[1].store(list, Ordering::Relaxed);
    header.signal_state.store(state, Ordering::Release);
}

/// Whether a header looks like what [`init_header`] wrote at this very address.
fn is_initialised(header: &DispatcherHeader) -> bool {
    let list = (&raw const header.wait_list).addr();
    header.wait_list[0].load(Ordering::Relaxed) == list || header.kind.load(Ordering::Relaxed) == OBJECT_THREAD
}

fn address_of(header: &DispatcherHeader) -> usize {
    core::ptr::from_ref(header).addr()
}

fn is_signalled(header: &DispatcherHeader, thread: usize) -> bool {
    if header.signal_state.load(Ordering::SeqCst) > 0 {
        return true;
    }
    header.kind.load(Ordering::Relaxed) == OBJECT_MUTANT && mutant(header).owner.load(Ordering::Relaxed) == thread
}

/// The mutex of which this is the header.
fn mutant(header: &DispatcherHeader) -> &KMUTANT {
    crate::embedded::mutant_of(header)
}

impl Waits {
    /// Takes what a satisfied wait takes. Returns whether a mutex was abandoned.
    fn consume(&mut self, header: &DispatcherHeader, thread: usize) -> bool {
        match header.kind.load(Ordering::Relaxed) {
            OBJECT_EVENT_SYNCHRONIZATION | OBJECT_TIMER_SYNCHRONIZATION => {
                header.signal_state.store(0, Ordering::SeqCst);
                false
            }
            OBJECT_SEMAPHORE => {
                header.signal_state.fetch_sub(1, Ordering::SeqCst);
                false
            }
            OBJECT_MUTANT => {
                let mutant = mutant(header);
                if header.signal_state.fetch_sub(1, Ordering::SeqCst) == 1 {
                    mutant.owner.store(thread, Ordering::Relaxed);
                    self.owned.entry(thread).or_default().push(address_of(header));
                    return mutant.abandoned.swap(0, Ordering::Relaxed) != 0;
                }
                false
            }
            _ => false,
        }
    }

    /// Satisfies a wait if its objects allow it now.
    fn try_satisfy(&mut self, objects: &[&DispatcherHeader], all: bool, thread: usize) -> Option<NtStatus> {
        if all {
            if !objects.iter().all(|header| is_signalled(header, thread)) {
                return None;
            }
            let mut result = status::WAIT_0;
            for header in objects {
                if self.consume(header, thread) {
                    result = status::ABANDONED_WAIT_0;
                }
            }
            return Some(result);
        }
        let at = objects.iter().position(|header| is_signalled(header, thread))?;
        let abandoned = self.consume(objects[at], thread);
        let base = if abandoned { status::ABANDONED_WAIT_0 } else { status::WAIT_0 };
        // CAST: at most 64 objects.
        Some(base + at as i32)
    }

    /// Satisfies as many waiters of `header` as its state allows. Returns whom to wake, after the lock.
    fn release(&mut self, header: &DispatcherHeader) -> Vec<Arc<Slot>> {
        let Some(blocks) = self.by_object.get(&address_of(header)) else { return Vec::new() };
        let blocks = blocks.clone();
        let mut woken = Vec::new();
        for block in blocks {
            if header.signal_state.load(Ordering::SeqCst) <= 0 {
                break;
            }
            if block.result.load(Ordering::Relaxed) != UNSATISFIED {
                continue;
            }
            let objects: Vec<_> = block.objects.iter().map(HeaderRef::get).collect();
            if let Some(result) = self.try_satisfy(&objects, block.all, block.thread) {
                block.result.store(result, Ordering::Release);
                woken.push(block.slot.clone());
            }
        }
        woken
    }

    fn add(&mut self, block: &Arc<WaitBlock>) {
        for object in &block.objects {
            self.by_object.entry(object.address()).or_default().push(block.clone());
        }
    }

    fn remove(&mut self, block: &Arc<WaitBlock>) {
        for object in &block.objects {
            if let Some(blocks) = self.by_object.get_mut(&object.address()) {
                blocks.retain(|other| !Arc::ptr_eq(other, block));
                if blocks.is_empty() {
                    self.by_object.remove(&object.address());
                }
            }
        }
    }
}

impl Machine {
    /// Wakes whom a state change let through.
    fn wake(&self, woken: Vec<Arc<Slot>>) {
        for slot in woken {
            self.sched.unpark(&slot);
        }
    }

    /// Sets the signal state of an object and satisfies its waiters.
    pub(crate) fn signal_object(&self, header: &DispatcherHeader, state: i32) {
        let woken = {
            let mut waits = self.dispatcher.waits.lock();
            header.signal_state.store(state, Ordering::SeqCst);
            waits.release(header)
        };
        self.wake(woken);
    }

    pub(crate) fn check_kind(&self, routine: &'static Routine, header: &DispatcherHeader, kinds: &[u8]) -> bool {
        let kind = header.kind.load(Ordering::Relaxed);
        let holds = kinds.contains(&kind) && is_initialised(header);
        self.rules.check(&NT_OBJECT_KIND, holds, || {
            let address = address_of(header);
            let why = if kinds.contains(&kind) { "was never initialised there" } else { "is of another kind" };
            Details::new(format!("{}: the object at {address:#x} {why} (type {kind})", routine.name)).params([
                address as u64,
                kind.into(),
                0,
            ])
        })
    }

    /// Initialising an object that is waited for strands the waiters.
    pub(crate) fn check_not_waited(&self, header: &DispatcherHeader) {
        let waited = self.dispatcher.waiting.load(Ordering::Relaxed) != 0
            && self.dispatcher.waits.lock().by_object.contains_key(&address_of(header));
        self.rules.check(&NT_OBJECT_IN_USE, !waited, || {
            Details::new(format!("a thread waits for the object at {:#x}", address_of(header))).params([
                address_of(header) as u64,
                0,
                0,
            ])
        });
    }

    /// Objects within `range` that somebody waits for.
    pub(crate) fn waited_objects_in(&self, range: &Range<usize>) -> Vec<usize> {
        if self.dispatcher.waiting.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let waits = self.dispatcher.waits.lock();
        waits.by_object.keys().copied().filter(|address| range.contains(address)).collect()
    }

    /// Makes `event` an event.
    ///
    /// IRQL: any.
    #[doc(alias = "KeInitializeEvent")]
    #[track_caller]
    pub fn initialize_event(&self, event: &KEVENT, synchronization: bool, set: bool) {
        let arguments = [address_of(&event.header) as u64, synchronization.into(), set.into()];
        let _service = self.service(&routines::KE_INITIALIZE_EVENT, arguments);
        self.check_not_waited(&event.header);
        let kind = if synchronization { OBJECT_EVENT_SYNCHRONIZATION } else { OBJECT_EVENT_NOTIFICATION };
        init_header(&event.header, kind, 6, i32::from(set));
    }

    /// Sets `event`; returns whether it was set before.
    ///
    /// IRQL: at most DISPATCH_LEVEL, with `wait` at most APC_LEVEL.
    #[doc(alias = "KeSetEvent")]
    #[track_caller]
    #[inline]
    pub fn set_event(&self, event: &KEVENT, wait: bool) -> bool {
        let _service = self.service(&routines::KE_SET_EVENT, [address_of(&event.header) as u64, 0, wait.into()]);
        self.check_irql_when(&routines::KE_SET_EVENT, usize::from(wait));
        if !self.check_kind(&routines::KE_SET_EVENT, &event.header, EVENTS) {
            return false;
        }
        // The call is a full barrier on Windows; the read below is then the whole effect when the event is set.
        fence(Ordering::SeqCst);
        if event.header.signal_state.load(Ordering::SeqCst) > 0 {
            return true;
        }
        let (old, woken) = {
            let mut waits = self.dispatcher.waits.lock();
            let old = event.header.signal_state.swap(1, Ordering::SeqCst);
            (old, waits.release(&event.header))
        };
        self.wake(woken);
        old > 0
    }

    /// Sets `event`, releases who waits, and clears it.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "KePulseEvent")]
    #[track_caller]
    pub fn pulse_event(&self, event: &KEVENT) -> bool {
        let _service = self.service(&routines::KE_PULSE_EVENT, [address_of(&event.header) as u64]);
        if !self.check_kind(&routines::KE_PULSE_EVENT, &event.header, EVENTS) {
            return false;
        }
        let (old, woken) = {
            let mut waits = self.dispatcher.waits.lock();
            let old = event.header.signal_state.swap(1, Ordering::SeqCst);
            let woken = waits.release(&event.header);
            event.header.signal_state.store(0, Ordering::SeqCst);
            (old, woken)
        };
        self.wake(woken);
        old > 0
    }

    /// Clears `event`; returns whether it was set.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "KeResetEvent")]
    #[doc(alias = "KeClearEvent")]
    #[track_caller]
    pub fn reset_event(&self, event: &KEVENT) -> bool {
        let _service = self.service(&routines::KE_RESET_EVENT, [address_of(&event.header) as u64]);
        self.check_kind(&routines::KE_RESET_EVENT, &event.header, EVENTS)
            && event.header.signal_state.swap(0, Ordering::SeqCst) > 0
    }

    /// Whether `event` is set.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "KeReadStateEvent")]
    #[track_caller]
    pub fn read_event(&self, event: &KEVENT) -> bool {
        let _service = self.service(&routines::KE_READ_STATE_EVENT, [address_of(&event.header) as u64]);
        self.check_kind(&routines::KE_READ_STATE_EVENT, &event.header, EVENTS)
            && event.header.signal_state.load(Ordering::SeqCst) > 0
    }

    /// Makes `semaphore` a semaphore.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "KeInitializeSemaphore")]
    #[track_caller]
    pub fn initialize_semaphore(&self, semaphore: &KSEMAPHORE, count: i32, limit: i32) {
        // CAST: printed only.
        let arguments = [address_of(&semaphore.header) as u64, count as u64, limit as u64];
        let _service = self.service(&routines::KE_INITIALIZE_SEMAPHORE, arguments);
        self.check_not_waited(&semaphore.header);
        init_header(&semaphore.header, OBJECT_SEMAPHORE, 8, count);
        semaphore.limit.store(limit, Ordering::Relaxed);
    }

    /// Adds to the count; returns the old one.
    ///
    /// IRQL: at most DISPATCH_LEVEL, with `wait` at most APC_LEVEL. Beyond the limit nothing is added and
    /// NT-SEMAPHORE-LIMIT broken (Windows raises an exception).
    #[doc(alias = "KeReleaseSemaphore")]
    #[track_caller]
    pub fn release_semaphore(&self, semaphore: &KSEMAPHORE, adjustment: i32, wait: bool) -> i32 {
        // CAST: printed only.
        let arguments = [address_of(&semaphore.header) as u64, 0, adjustment as u64, wait.into()];
        let _service = self.service(&routines::KE_RELEASE_SEMAPHORE, arguments);
        self.check_irql_when(&routines::KE_RELEASE_SEMAPHORE, usize::from(wait));
        if !self.check_kind(&routines::KE_RELEASE_SEMAPHORE, &semaphore.header, &[OBJECT_SEMAPHORE]) {
            return 0;
        }
        let limit = semaphore.limit.load(Ordering::Relaxed);
        let mut woken = Vec::new();
        let old = {
            let mut waits = self.dispatcher.waits.lock();
            let old = semaphore.header.signal_state.load(Ordering::SeqCst);
            let new = old.checked_add(adjustment).filter(|new| adjustment > 0 && *new <= limit);
            if let Some(new) = new {
                semaphore.header.signal_state.store(new, Ordering::SeqCst);
                woken = waits.release(&semaphore.header);
            }
            (old, new.is_some())
        };
        self.wake(woken);
        self.rules.check(&NT_SEMAPHORE_LIMIT, old.1, || {
            Details::new(format!("count {} plus {adjustment} is beyond the limit {limit}", old.0))
        });
        old.0
    }

    /// Makes `mutex` a free mutex.
    ///
    /// IRQL: any.
    #[doc(alias = "KeInitializeMutex")]
    #[track_caller]
    pub fn initialize_mutex(&self, mutex: &KMUTANT) {
        let _service = self.service(&routines::KE_INITIALIZE_MUTEX, [address_of(&mutex.header) as u64, 0]);
        self.check_not_waited(&mutex.header);
        init_header(&mutex.header, OBJECT_MUTANT, 14, 1);
        mutex.owner.store(0, Ordering::Relaxed);
        mutex.abandoned.store(0, Ordering::Relaxed);
        mutex.apc_disable.store(1, Ordering::Relaxed);
    }

    /// Releases `mutex`, which the caller owns; returns the signal state before.
    ///
    /// IRQL: at most DISPATCH_LEVEL, with `wait` at most APC_LEVEL.
    #[doc(alias = "KeReleaseMutex")]
    #[track_caller]
    pub fn release_mutex(&self, mutex: &KMUTANT, wait: bool) -> i32 {
        let arguments = [address_of(&mutex.header) as u64, wait.into()];
        let _service = self.service(&routines::KE_RELEASE_MUTEX, arguments);
        self.check_irql_when(&routines::KE_RELEASE_MUTEX, usize::from(wait));
        if !self.check_kind(&routines::KE_RELEASE_MUTEX, &mutex.header, &[OBJECT_MUTANT]) {
            return 0;
        }
        let me = self.with_current_thread(Thread::address);
        let owner = mutex.owner.load(Ordering::Relaxed);
        let holds = self.rules.check(&NT_MUTEX_NOT_OWNED, owner == me, || {
            Details::new(format!(
                "the mutex at {:#x} is owned by {owner:#x}, not by {me:#x}",
                address_of(&mutex.header)
            ))
            .params([address_of(&mutex.header) as u64, owner as u64, me as u64])
        });
        if !holds {
            return 0;
        }
        let (old, woken) = {
            let mut waits = self.dispatcher.waits.lock();
            let old = mutex.header.signal_state.load(Ordering::SeqCst);
            if old + 1 == 1 {
                mutex.owner.store(0, Ordering::Relaxed);
                if let Some(owned) = waits.owned.get_mut(&me) {
                    owned.retain(|address| *address != address_of(&mutex.header));
                }
            }
            mutex.header.signal_state.store(old + 1, Ordering::SeqCst);
            (old, waits.release(&mutex.header))
        };
        self.wake(woken);
        old
    }

    /// A thread has ended: mutexes that it owns are lost.
    pub(crate) fn abandon_mutexes(&self, thread: &Thread) {
        let owned = self.dispatcher.waits.lock().owned.remove(&thread.address()).unwrap_or_default();
        self.rules.check(&NT_MUTEX_LEAKED, owned.is_empty(), || {
            Details::new(format!("thread {} ended owning the mutexes at {}", thread.id(), hex_list(&owned))).params([
                thread.address() as u64,
                owned.first().copied().unwrap_or(0) as u64,
                0,
            ])
        });
    }
}

const EVENTS: &[u8] = &[OBJECT_EVENT_NOTIFICATION, OBJECT_EVENT_SYNCHRONIZATION];
const WAITABLE: &[u8] = &[
    OBJECT_EVENT_NOTIFICATION,
    OBJECT_EVENT_SYNCHRONIZATION,
    OBJECT_MUTANT,
    OBJECT_SEMAPHORE,
    OBJECT_THREAD,
    OBJECT_TIMER_NOTIFICATION,
    OBJECT_TIMER_SYNCHRONIZATION,
];
