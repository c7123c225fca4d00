//! A simulated machine as a value, and how threads enter it.
//!
//! [`Kernel`] is a cheap handle; [`Machine`] is what it points to, and carries every service as a method. A thread must
//! have *entered* a machine before it may call a service of it: host threads by [`Machine::enter`] (a guard), threads
//! that the machine makes are inside from birth. The import shims find the machine through the calling thread, so one
//! process can hold as many machines as tests run in parallel.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::bug_check::BugCheckCallbacks;
use crate::cpu::{self, MAX_ARGS, Owner};
use crate::debug_print::DebugLog;
use crate::dispatcher::Dispatcher;
use crate::dpc::{DpcDelivery, DpcQueue};
use crate::driver::StackBook;
use crate::dump::Keeper;
use crate::entries::Entries;
use crate::etw::Etw;
use crate::extended_state::ExtendedStates;
use crate::image::Images;
use crate::imports::Imports;
use crate::interrupt::{InterruptDelivery, Interrupts};
use crate::io::Io;
use crate::memory::Memory;
use crate::object::Objects;
use crate::paired::Paired;
use crate::pool::{Pool, PoolOptions};
use crate::registry::Registry;
use crate::routines::{self, Routine};
use crate::rules::{Details, Policy, RuleList, Rulebook};
use crate::rules_nt::{NT_DEADLOCK, NT_IRQL};
use crate::sched::{RealScheduler, Scheduler, Ticks, YieldPoint};
use crate::spinlock::LockOrder;
use crate::thread::{AtMapping, AtPriority, ThreadEnd};
use crate::thread::{Thread, ThreadKind};
use crate::time::ClockOptions;
use crate::timer::Timers;
use crate::user::process::Processes;

/// What kind of machine to make. [`KernelConfig::default`] is what a tool wants; tests that break rules on purpose set
/// `policy` to [`Policy::Collect`].
#[derive(Clone, Debug)]
pub struct KernelConfig {
    /// What a violation does.
    pub policy: Policy,
    /// Who runs when; `None`: real threads and time.
    pub scheduler: Option<Arc<dyn Scheduler>>,
    /// Where DPCs run.
    pub dpc_delivery: DpcDelivery,
    /// Active processors that the machine reports.
    pub processors: u32,
    /// Extra checks of the pool.
    pub pool: PoolOptions,
    /// Size of a modelled kernel stack, in bytes.
    pub stack_size: usize,
    /// The part of it that is not the driver's: what Windows has on it below a driver entry (system call, Dxgkrnl, I/O
    /// manager) and must still find above it (a trap frame). The documents give no number. A driver that takes 17,936
    /// bytes in this model's measure is known to start on 24H2, so that the driver's part is 18,000 bytes; what is
    /// beyond [`STACK_ADVICE`](crate::driver::STACK_ADVICE) is worth a note.
    pub stack_reserve: usize,
    /// Follow the order in which spin locks are taken and report cycles.
    pub lock_order: bool,
    /// A spin lock that cannot be had for this long is reported as stuck. Real time, or virtual under a scheduler.
    pub spin_limit: Ticks,
    /// Rules of other crates, beside this crate's own.
    pub rules: Vec<&'static RuleList>,
    /// Where device interrupts are delivered.
    pub interrupt_delivery: InterruptDelivery,
    /// Bytes of RAM that the machine has.
    pub ram: u64,
    /// Copy what drivers print to standard error.
    pub echo_debug_print: bool,
    /// When the time-outs of drivers end.
    pub clock: ClockOptions,
    /// What unmapping takes of the calling thread's time, in 100 ns: the interrupt to every processor that has
    /// translations to forget. 0: nothing beyond what the host takes.
    pub unmap_time: Ticks,
    /// Whether code with test signatures may run, which drivers ask by `SystemCodeIntegrityInformation`. `None`: the
    /// query is refused.
    pub test_signing: Option<bool>,
    /// Whether user mode may be other Linux processes ([`Process::separate`](crate::Process::separate)): pages that a
    /// driver allocates by itself then have memory files of their own.
    pub separate_processes: bool,
}

impl Default for KernelConfig {
    fn default() -> Self {
        Self {
            policy: Policy::Stop,
            scheduler: None,
            dpc_delivery: DpcDelivery::Inline,
            processors: 2,
            pool: PoolOptions::default(),
            stack_size: 24 * 1024,
            stack_reserve: 24 * 1024 - 18_000,
            lock_order: true,
            spin_limit: 30 * crate::sched::TICKS_PER_SECOND,
            rules: Vec::new(),
            interrupt_delivery: InterruptDelivery::Inline,
            ram: 16 << 30,
            echo_debug_print: false,
            clock: ClockOptions::default(),
            unmap_time: 0,
            test_signing: Some(true),
            separate_processes: false,
        }
    }
}

impl KernelConfig {
    /// The defaults with [`Policy::Collect`].
    pub fn collecting() -> Self {
        Self { policy: Policy::Collect, ..Self::default() }
    }
}

/// A simulated machine: memory, threads, interrupt levels, and every kernel service as a method.
///
/// Methods that stand for a kernel routine name it (`#[doc(alias)]`), check what Driver Verifier would check, and may
/// be called only by a thread inside the machine.
pub struct Machine {
    me: Weak<Machine>,
    number: usize,
    config: KernelConfig,
    /// What drivers must keep, and what they broke.
    pub rules: Rulebook,
    pub(crate) sched: Arc<dyn Scheduler>,
    next_thread: AtomicU64,
    host_threads: Mutex<HashMap<std::thread::ThreadId, Arc<Thread>>>,
    pub(crate) threads: Mutex<Vec<Weak<Thread>>>,
    pub(crate) dumps: Keeper,
    pub(crate) objects: Objects,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) dpcs: DpcQueue,
    pub(crate) timers: Timers,
    pub(crate) memory: Memory,
    pub(crate) pool: Pool,
    pub(crate) interrupts: Interrupts,
    pub(crate) imports: Imports,
    pub(crate) lock_order: LockOrder,
    pub(crate) stacks: StackBook,
    pub(crate) entries: Entries,
    /// Loaded images.
    pub(crate) images: Images,
    pub(crate) io: Io,
    pub(crate) registry: Registry,
    pub(crate) etw: Etw,
    pub(crate) bug_check_callbacks: BugCheckCallbacks,
    pub(crate) paired: Paired,
    pub(crate) extended_states: ExtendedStates,
    pub(crate) processes: Processes,
    pub(crate) debug_log: DebugLog,
    pub(crate) at_thread_end: ThreadEnd,
    pub(crate) at_priority: AtPriority,
    pub(crate) at_mapping: AtMapping,
    /// Time-outs of drivers below a tick of the clock.
    pub(crate) short_waits: AtomicU64,
    /// Timers of the newer kind that were set.
    pub(crate) ex_timers_set: AtomicU64,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// The number of the next machine.
static NUMBERS: AtomicUsize = AtomicUsize::new(1);

struct Lifetime {
    machine: Arc<Machine>,
}

impl Drop for Lifetime {
    fn drop(&mut self) {
        self.machine.shut_down();
    }
}

/// A handle to a [`Machine`]. Clones are handles to the same one; when the last is dropped the machine shuts down: its
/// service threads end, and driver threads that still wait are taken out of the driver.
#[derive(Clone)]
pub struct Kernel {
    lifetime: Arc<Lifetime>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lifetime.machine.fmt(f)
    }
}

impl Deref for Kernel {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        &self.lifetime.machine
    }
}

impl Kernel {
    /// A machine as `config` says, just started, with no driver in it.
    pub fn new(config: KernelConfig) -> Self {
        routines::facts();
        crate::trap::install();
        let sched = config.scheduler.clone().unwrap_or_else(|| Arc::new(RealScheduler::new()));
        let lists: Vec<_> = crate::ALL_RULES.iter().copied().chain(config.rules.iter().copied()).collect();
        let machine = Arc::new_cyclic(|me| Machine {
            me: me.clone(),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            rules: Rulebook::new(config.policy, &lists),
            sched,
            next_thread: AtomicU64::new(1),
            host_threads: Mutex::default(),
            threads: Mutex::default(),
            dumps: Keeper::default(),
            at_thread_end: ThreadEnd::default(),
            at_priority: AtPriority::default(),
            at_mapping: AtMapping::default(),
            objects: Objects::default(),
            dispatcher: Dispatcher::default(),
            dpcs: DpcQueue::default(),
            timers: Timers::default(),
            memory: Memory::new(config.ram, config.separate_processes),
            pool: Pool::new(&config.pool),
            interrupts: Interrupts::default(),
            imports: Imports::default(),
            lock_order: LockOrder::default(),
            stacks: StackBook::default(),
            entries: Entries::default(),
            images: Images::default(),
            io: Io::default(),
            registry: Registry::default(),
            etw: Etw::default(),
            bug_check_callbacks: BugCheckCallbacks::default(),
            paired: Paired::default(),
            extended_states: ExtendedStates::default(),
            processes: Processes::default(),
            debug_log: DebugLog::default(),
            short_waits: AtomicU64::new(0),
            ex_timers_set: AtomicU64::new(0),
            config,
        });
        let weak = Arc::downgrade(&machine);
        machine.rules.set_on_stop(move || {
            if let Some(machine) = weak.upgrade() {
                machine.wake_everyone();
            }
        });
        let weak = Arc::downgrade(&machine);
        machine.rules.set_on_first(move |violation| {
            if let Some(machine) = weak.upgrade() {
                machine.dump_violation(violation);
            }
        });
        let weak = Arc::downgrade(&machine);
        machine.sched.set_on_deadlock(Box::new(move |threads| {
            if let Some(machine) = weak.upgrade() {
                machine.rules.broken_fatally(&NT_DEADLOCK, format!("every thread waits: {threads}"));
            }
        }));
        Self { lifetime: Arc::new(Lifetime { machine }) }
    }

    /// A machine for tests of rules: violations are collected.
    pub fn collecting() -> Self {
        Self::new(KernelConfig::collecting())
    }
}

impl Machine {
    /// The machine's number in this process, from 1 on: no other has it, not even a later one at the same address.
    pub fn number(&self) -> usize {
        self.number
    }

    /// How the machine was made.
    pub fn config(&self) -> &KernelConfig {
        &self.config
    }

    /// A counted reference to this machine.
    ///
    /// # Panics
    /// Never: whoever holds `&self` holds it through such a reference.
    pub(crate) fn arc(&self) -> Arc<Machine> {
        // PANIC: `self` is only ever reached through an `Arc`, which is alive while the borrow is.
        self.me.upgrade().expect("a machine in use is alive")
    }

    pub(crate) fn interposes(&self) -> bool {
        self.sched.interposes()
    }

    /// Time since the machine started, in 100 ns.
    ///
    /// IRQL: any.
    #[inline]
    pub fn now(&self) -> Ticks {
        self.sched.now()
    }

    /// Makes the calling host thread a thread of this machine until the guard is dropped. Nested calls are cheap.
    ///
    /// A new thread runs at PASSIVE_LEVEL in the system process.
    pub fn enter(&self) -> Entered {
        if cpu::with(|cpu| cpu.is_in(self)) {
            return Entered { owner: None, not_send: PhantomData };
        }
        let machine = self.arc();
        let key = std::thread::current().id();
        let thread =
            self.host_threads.lock().entry(key).or_insert_with(|| self.new_thread("host", ThreadKind::Host)).clone();
        thread.slot.bind();
        self.sched.attach(&thread.slot);
        let owner = cpu::with(|cpu| {
            let old_irql = cpu.irql.replace(0);
            let old = cpu.swap_owner(Owner::new(&machine, &thread));
            thread.mailbox.enter();
            (machine, thread, old, old_irql)
        });
        Entered { owner: Some(owner), not_send: PhantomData }
    }

    /// Runs `f` with the machine that the calling thread is in.
    pub fn with_current<R>(f: impl FnOnce(Option<&Machine>) -> R) -> R {
        cpu::with(|cpu| f(cpu.machine()))
    }

    pub(crate) fn new_thread(&self, name: &str, kind: ThreadKind) -> Arc<Thread> {
        let id = self.next_thread.fetch_add(1, Ordering::Relaxed);
        let thread = Arc::new(Thread::new(id, name, kind, self.rules.add_counts()));
        let mut threads = self.threads.lock();
        threads.retain(|thread| thread.strong_count() != 0);
        threads.push(Arc::downgrade(&thread));
        thread
    }

    /// Begins a service: yield point, IRQL limits of the routine, and the record that a violation will name. The
    /// service ends when the guard is dropped. Other crates call it first thing in each callback that they offer to
    /// drivers.
    ///
    /// # Panics
    /// When the calling thread is not inside this machine.
    #[inline]
    #[track_caller]
    pub fn service<const N: usize>(&self, routine: &'static Routine, arguments: [u64; N]) -> Service {
        const { assert!(N <= MAX_ARGS, "too many arguments to record") };
        let location = Location::caller();
        cpu::with(|cpu| {
            assert!(cpu.is_in(self), "{} called by a thread that has not entered this kernel", routine.name);
            if cpu.interposed.get() {
                self.yield_point(YieldPoint::Service);
            }
            cpu.push_call(routine, &arguments, location);
            let irql = cpu.irql.get();
            self.rules.check(&NT_IRQL, routine.allows(irql), || wrong_irql(routine, irql));
            if self.rules.is_stopped() {
                self.in_stopped_machine();
            }
        });
        Service { not_send: PhantomData }
    }

    /// Offers the scheduler to run another thread. Free without a scheduler.
    #[inline]
    pub fn yield_point(&self, at: YieldPoint) {
        cpu::with(|cpu| {
            if cpu.interposed.get()
                && let Some(thread) = cpu.thread()
            {
                self.sched.yield_point(&thread.slot, at);
            }
        });
    }

    /// Checks the limit that holds in one case of a routine.
    #[inline]
    pub(crate) fn check_irql_when(&self, routine: &'static Routine, condition: usize) -> bool {
        let irql = self.irql();
        let holds = routine.allows_when(condition, irql);
        self.rules.check(&NT_IRQL, holds, || {
            let mut details = wrong_irql(routine, irql);
            if let Some(condition) = routine.conditions.get(condition) {
                details = Details::new(format!("{} called at IRQL {irql} when {condition}", routine.name));
            }
            details.param1(u64::from(routine.verifier)).params([u64::from(irql), 0, 0])
        })
    }

    /// The processor that the calling thread counts as running on.
    pub fn current_processor(&self) -> u32 {
        // CAST: the remainder of a division by a u32.
        (self.current_thread_id() % u64::from(self.config.processors.max(1))) as u32
    }

    /// The violation that stopped this machine, as text; `None` while it runs.
    pub fn stop_text(&self) -> Option<String> {
        self.rules.stopped().map(ToString::to_string)
    }

    /// Every thread that lives, in the order of their numbers. `None`: another thread, or a caller of this one, keeps
    /// the list for long.
    pub(crate) fn all_threads(&self) -> Option<Vec<Arc<Thread>>> {
        const PATIENCE: Duration = Duration::from_millis(100);
        let threads = self.threads.try_lock_for(PATIENCE)?;
        Some(threads.iter().filter_map(Weak::upgrade).collect())
    }

    pub(crate) fn wake_everyone(&self) {
        let threads: Vec<_> = self.threads.lock().iter().filter_map(Weak::upgrade).collect();
        for thread in threads {
            self.sched.unpark(&thread.slot);
        }
    }

    fn shut_down(&self) {
        self.dpcs.close();
        self.timers.close();
        self.rules.halt_quietly();
        self.wake_everyone();
    }
}

fn wrong_irql(routine: &'static Routine, irql: u8) -> Details {
    let (min, max) = routine.limits();
    Details::new(format!("{} called at IRQL {irql}, allowed {min} to {max}", routine.name))
        .param1(u64::from(routine.verifier))
        .params([u64::from(irql), 0, 0])
}

/// The calling thread is inside a machine while this lives. See [`Machine::enter`].
#[derive(Debug)]
#[must_use = "the thread leaves the kernel when the guard is dropped"]
pub struct Entered {
    owner: Option<(Arc<Machine>, Arc<Thread>, Owner, u8)>,
    not_send: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let Some((machine, thread, owner, irql)) = self.owner.take() else { return };
        thread.mailbox.leave();
        cpu::with(|cpu| {
            cpu.swap_owner(owner);
            cpu.irql.set(irql);
        });
        machine.sched.detach(&thread.slot);
    }
}

/// A service in progress. See [`Machine::service`].
#[derive(Debug)]
#[must_use = "the service ends when the guard is dropped"]
pub struct Service {
    not_send: PhantomData<*const ()>,
}

impl Drop for Service {
    #[inline]
    fn drop(&mut self) {
        cpu::with(|cpu| cpu.pop_call());
    }
}
