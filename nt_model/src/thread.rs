//! System threads: made, ended, waited for.
//!
//! A system thread is an operating-system thread that runs inside the machine. Its object is a dispatcher object that
//! is signalled when it ends. `PsTerminateSystemThread` returns to the thread's base without touching the frames
//! between.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::arch;
use crate::cpu::{self, Owner, Site};
use crate::driver::{EntryStack, StoppedMachine};
use crate::dump::registers::Mailbox;
use crate::interrupt::InterruptLine;
use crate::kernel::Machine;
use crate::object::Object;
use crate::records::{DispatcherHeader, OBJECT_THREAD, status::NtStatus};
use crate::routines;
use crate::rules::Counts;
use crate::rules::Details;
use crate::rules_nt::{NT_PRIORITY, NT_SPIN_LEAKED, NT_THREAD_END};
use crate::sched::Slot;

/// What made a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadKind {
    /// A thread of the host process that entered.
    Host,
    /// `PsCreateSystemThread` by an image.
    System,
    /// [`Machine::spawn_system_thread`] by native code.
    NativeSystem,
    /// The machine itself: DPCs, timers, interrupts.
    Service,
}

/// Host stack of a modelled thread. The driver's part is measured against 24 KiB; the rest is the model's own frames,
/// signal frames (11 KiB where AMX is enabled) and device models.
const HOST_STACK: usize = 1 << 20;

/// The thread object as drivers see its address: a dispatcher header in front of an opaque body.
#[repr(C, align(16))]
#[derive(Debug, Default)]
struct ThreadBody {
    header: DispatcherHeader,
    opaque: [AtomicU64; 29],
}

/// A thread of a machine.
pub struct Thread {
    body: ThreadBody,
    id: u64,
    name: Mutex<String>,
    kind: ThreadKind,
    pub(crate) slot: Arc<Slot>,
    /// Where it is asked for its registers.
    pub(crate) mailbox: Mailbox,
    pub(crate) counts: Arc<Counts>,
    exit_status: AtomicI32,
    priority: AtomicI32,
    /// Waits that it began.
    pub(crate) waits: AtomicU64,
    /// Start address, for an image's thread: says which image it runs in.
    start: AtomicU64,
    /// Interrupts that wait for this thread's IRQL to drop.
    pub(crate) pending_lines: Mutex<VecDeque<Arc<InterruptLine>>>,
    /// Who made it.
    creator: Mutex<Site>,
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread").field("id", &self.id).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Thread {
    pub(crate) fn new(id: u64, name: &str, kind: ThreadKind, counts: Arc<Counts>) -> Self {
        let body = ThreadBody::default();
        body.header.kind.store(OBJECT_THREAD, Ordering::Relaxed);
        Self {
            body,
            id,
            name: Mutex::new(name.to_owned()),
            kind,
            slot: Arc::new(Slot::new(id)),
            mailbox: Mailbox::default(),
            counts,
            exit_status: AtomicI32::new(0),
            priority: AtomicI32::new(8),
            waits: AtomicU64::new(0),
            start: AtomicU64::new(0),
            pending_lines: Mutex::default(),
            creator: Mutex::new(Site::NONE),
        }
    }

    /// Number in its machine, from 1; also what `PsGetCurrentThreadId` returns, times four.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// For violations.
    pub fn name(&self) -> String {
        self.name.lock().clone()
    }

    /// What made it.
    pub fn kind(&self) -> ThreadKind {
        self.kind
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.body.header.signal_state.load(Ordering::Acquire) > 0
    }

    /// What it ended with.
    pub fn exit_status(&self) -> NtStatus {
        self.exit_status.load(Ordering::Acquire)
    }

    /// The dispatcher object, for waiting.
    pub fn header(&self) -> &DispatcherHeader {
        &self.body.header
    }

    /// Its priority: 8 until a driver sets another.
    pub fn priority(&self) -> i32 {
        self.priority.load(Ordering::Relaxed)
    }

    /// How many waits it has begun that had to last: those of objects that were not signalled.
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// The address that a driver knows it by.
    pub fn address(&self) -> usize {
        core::ptr::from_ref(&self.body).expose_provenance()
    }

    pub(crate) fn creator(&self) -> Site {
        *self.creator.lock()
    }

    pub(crate) fn start_address(&self) -> usize {
        // CAST: stored from a usize.
        self.start.load(Ordering::Relaxed) as usize
    }
}

/// The calling thread's number in the machine that it is in; 0 outside of any.
pub(crate) fn current_id() -> u64 {
    cpu::with(|cpu| cpu.thread().map_or(0, Thread::id))
}

impl Machine {
    /// Starts a system thread in native code. Its object lives until it has ended and the last `Arc` is gone.
    ///
    /// The thread runs at PASSIVE_LEVEL in the system process, and may end early by
    /// [`terminate_system_thread`](Self::terminate_system_thread). When the machine stops it is unwound from its next
    /// service.
    ///
    /// IRQL: PASSIVE_LEVEL.
    ///
    /// # Panics
    /// When the operating system has no thread left.
    #[doc(alias = "PsCreateSystemThread")]
    #[track_caller]
    pub fn spawn_system_thread(&self, name: &str, f: impl FnOnce() + Send + 'static) -> Arc<Thread> {
        let _service = self.service(&routines::PS_CREATE_SYSTEM_THREAD, [0; 6]);
        self.start_thread(name, ThreadKind::NativeSystem, 0, f)
    }

    /// Starts a thread inside the machine. `start`: the driver's start address, 0 for native code.
    pub(crate) fn start_thread(
        &self,
        name: &str,
        kind: ThreadKind,
        start: usize,
        f: impl FnOnce() + Send + 'static,
    ) -> Arc<Thread> {
        let machine = self.arc();
        let thread = self.new_thread(name, kind);
        thread.start.store(start as u64, Ordering::Relaxed);
        *thread.creator.lock() = Site::here();
        self.objects.insert_running(Object::Thread(thread.clone()));
        self.sched.announce(&thread.slot);
        let inner = thread.clone();
        let spawned = std::thread::Builder::new()
            .name(name.chars().take(15).collect())
            .stack_size(HOST_STACK)
            .spawn(move || thread_main(&machine, &inner, f));
        // PANIC: documented; a test machine that cannot start a thread cannot test anything.
        drop(spawned.expect("the operating system starts a thread"));
        thread
    }

    /// Ends the calling system thread with `status`. Frames between here and the thread's base are not unwound.
    ///
    /// IRQL: PASSIVE_LEVEL. On any thread but a system thread this breaks NT-THREAD-END and returns.
    #[doc(alias = "PsTerminateSystemThread")]
    #[track_caller]
    pub fn terminate_system_thread(&self, status: NtStatus) {
        // CAST: the status as the 32 bits that it is.
        let service = self.service(&routines::PS_TERMINATE_SYSTEM_THREAD, [u64::from(status as u32)]);
        let base = cpu::with(|cpu| cpu.thread_base.get());
        let ends = self.rules.check(&NT_THREAD_END, !base.is_null(), || {
            Details::new("called on a thread that PsCreateSystemThread did not make")
        });
        if ends {
            cpu::with(|cpu| {
                if let Some(thread) = cpu.thread() {
                    thread.exit_status.store(status, Ordering::Release);
                }
            });
            drop(service);
            crate::thread_base::leave(base);
        }
    }

    /// The system threads that run, and those that have ended and are referenced, in no order.
    pub fn system_threads(&self) -> Vec<Arc<Thread>> {
        self.objects.threads()
    }

    /// The thread that the caller is.
    ///
    /// # Panics
    /// When the calling thread is not inside a machine.
    pub(crate) fn with_current_thread<R>(&self, f: impl FnOnce(&Thread) -> R) -> R {
        cpu::with(|cpu| {
            // PANIC: services are entered through `service`, which has checked that the thread is inside.
            f(cpu.thread().expect("the calling thread is inside the machine"))
        })
    }

    /// The calling thread's number; 0 outside.
    pub fn current_thread_id(&self) -> u64 {
        current_id()
    }

    /// Sets a thread's priority; returns the old one. The model keeps the number, and calls what
    /// [`set_at_priority`](Self::set_at_priority) says; the thread runs as before.
    ///
    /// IRQL: the page says PASSIVE_LEVEL, the header at most DISPATCH_LEVEL, which is what is asked for.
    #[doc(alias = "KeSetPriorityThread")]
    #[track_caller]
    pub fn set_priority(&self, thread: &Thread, priority: i32) -> i32 {
        // CAST: printed only.
        let _service = self.service(&routines::KE_SET_PRIORITY_THREAD, [thread.address() as u64, priority as u64]);
        let made_by_a_driver = matches!(thread.kind, ThreadKind::System | ThreadKind::NativeSystem);
        self.rules.check(&NT_PRIORITY, made_by_a_driver && (1..=31).contains(&priority), || {
            Details::new(format!("priority {priority} for thread {} ({:?})", thread.name(), thread.kind))
        });
        let old = thread.priority.swap(priority, Ordering::Relaxed);
        let hook = self.at_priority.0.lock().clone();
        if let Some(hook) = hook {
            hook(thread, priority);
        }
        old
    }
}

impl Machine {
    /// [`set_priority`](Self::set_priority) of the calling thread.
    #[track_caller]
    pub fn set_own_priority(&self, priority: i32) -> i32 {
        self.with_current_thread(|thread| self.set_priority(thread, priority))
    }
}

type PriorityHook = Arc<dyn Fn(&Thread, i32) + Send + Sync>;

/// What is done when a priority is set.
#[derive(Default)]
pub(crate) struct AtPriority(Mutex<Option<PriorityHook>>);

impl Machine {
    /// Has `hook` called with each thread whose priority is set, and the priority; `None`: nothing. For tests.
    pub fn set_at_priority(&self, hook: Option<PriorityHook>) {
        let old = std::mem::replace(&mut *self.at_priority.0.lock(), hook);
        drop(old);
    }
}

type MappingHook = Arc<dyn Fn(&Thread) + Send + Sync>;

/// What is done when pages are mapped.
#[derive(Default)]
pub(crate) struct AtMapping(Mutex<Option<MappingHook>>);

impl Machine {
    /// Has `hook` called on each thread that maps the pages of an MDL at PASSIVE_LEVEL, before they are mapped; `None`:
    /// nothing. For tests of a driver one of whose threads stays in the kernel.
    pub fn set_at_mapping(&self, hook: Option<MappingHook>) {
        let old = std::mem::replace(&mut *self.at_mapping.0.lock(), hook);
        drop(old);
    }

    /// The calling thread maps pages.
    pub(crate) fn at_mapping(&self) {
        let hook = self.at_mapping.0.lock().clone();
        if let Some(hook) = hook.filter(|_| self.irql() == 0) {
            self.with_current_thread(|thread| hook(thread));
        }
    }
}

/// What is done when a system thread ends.
#[derive(Default)]
pub(crate) struct ThreadEnd(Mutex<Option<Arc<dyn Fn() + Send + Sync>>>);

impl Machine {
    /// Has `hook` called on each system thread that ends, at PASSIVE_LEVEL, behind its last instruction and before its
    /// object is signalled; `None`: nothing. For tests of what a driver does while it waits for its threads.
    pub fn set_at_thread_end(&self, hook: Option<Arc<dyn Fn() + Send + Sync>>) {
        let old = std::mem::replace(&mut *self.at_thread_end.0.lock(), hook);
        drop(old);
    }
}

fn thread_main(machine: &Arc<Machine>, thread: &Arc<Thread>, f: impl FnOnce()) {
    thread.slot.bind();
    machine.sched.attach(&thread.slot);
    cpu::with(|cpu| _ = cpu.swap_owner(Owner::new(machine, thread)));
    thread.mailbox.enter();
    let body = || machine.call_driver_on(EntryStack::Thread, "system thread", f);
    let ended = catch_unwind(AssertUnwindSafe(|| arch::enter(|base| cpu::with(|cpu| cpu.thread_base.set(base)), body)));
    let (irql, held) = cpu::with(|cpu| (cpu.irql.get(), cpu.held_count()));
    if matches!(ended, Ok(Err(_))) {
        // Left by PsTerminateSystemThread: `call_driver_on` did not get to judge.
        machine.note_left_stack("system thread");
        machine.rules.check(&NT_SPIN_LEAKED, held == 0 && irql == 0, || {
            Details::new(format!("the thread ended at IRQL {irql} with {held} spin locks held"))
        });
    }
    cpu::with(|cpu| {
        cpu.thread_base.set(core::ptr::null_mut());
        cpu.truncate_held(0);
        cpu.irql.set(0);
    });
    machine.abandon_mutexes(thread);
    let hook = machine.at_thread_end.0.lock().clone();
    if let (Some(hook), true) = (hook, ended.is_ok()) {
        hook();
    }
    machine.signal_object(&thread.body.header, 1);
    machine.objects.release_running(thread.address());
    thread.mailbox.leave();
    cpu::with(|cpu| _ = cpu.swap_owner(Owner::none()));
    machine.rules.retire_counts(&thread.counts);
    machine.sched.detach(&thread.slot);
    if let Err(panic) = ended
        && !is_stop(&*panic)
    {
        resume_unwind(panic);
    }
}

fn is_stop(panic: &(dyn Any + Send)) -> bool {
    panic.is::<StoppedMachine>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_thread_runs_and_its_object_is_signalled() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let ran = Arc::new(AtomicBool::new(false));
        let flag = ran.clone();
        let thread = kernel.spawn_system_thread("worker", move || flag.store(true, Ordering::Release));
        assert_eq!(kernel.wait_for_object(thread.header(), None), 0);
        assert!(ran.load(Ordering::Acquire) && thread.has_ended());
        assert!(kernel.rules.violations().is_empty());
    }

    #[test]
    fn priorities_are_kept_and_those_that_no_driver_may_set_are_caught() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let inside = kernel.clone();
        let thread = kernel.spawn_system_thread("worker", move || {
            assert_eq!(inside.set_own_priority(16), 8);
        });
        kernel.wait_for_object(thread.header(), None);
        assert_eq!(thread.priority(), 16);
        assert!(kernel.rules.violations().is_empty());
        for wrong in [0, 32] {
            kernel.set_priority(&thread, wrong);
            assert_eq!(kernel.rules.take_violations().len(), 1, "{wrong}");
        }
        kernel.set_own_priority(16);
        assert!(kernel.rules.was_broken(&NT_PRIORITY));
    }

    #[test]
    fn terminate_ends_the_thread_with_its_status() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let inside = kernel.clone();
        let thread = kernel.spawn_system_thread("worker", move || {
            inside.terminate_system_thread(7);
            unreachable!("the thread has ended");
        });
        kernel.wait_for_object(thread.header(), None);
        assert_eq!(thread.exit_status(), 7);
    }

    #[test]
    fn terminate_on_a_host_thread_is_caught() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        kernel.terminate_system_thread(0);
        assert!(kernel.rules.was_broken(&NT_THREAD_END));
    }

    #[test]
    fn ending_with_a_raised_irql_is_caught() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let inside = kernel.clone();
        let thread = kernel.spawn_system_thread("worker", move || _ = inside.raise_irql(2));
        kernel.wait_for_object(thread.header(), None);
        assert!(kernel.rules.was_broken(&crate::rules_nt::NT_IRQL_RETURN));
    }

    #[test]
    fn threads_end_when_the_kernel_is_dropped() {
        let kernel = Kernel::collecting();
        let entered = kernel.enter();
        let event = Arc::new(crate::Event::notification(false));
        let (inside, waited) = (kernel.arc(), event.clone());
        let thread = kernel.spawn_system_thread("waiter", move || {
            loop {
                inside.wait_for_event(&waited, None);
            }
        });
        drop(entered);
        drop(kernel);
        while !thread.has_ended() {
            std::thread::yield_now();
        }
    }
}
