//! Device interrupts: lines that a device model drives, routines that a driver (or Dxgkrnl's model) connects.
//!
//! A device model makes an [`InterruptLine`], level-triggered or message-signalled. The model of the bus connects a
//! routine to it at a device IRQL ([`Machine::connect_interrupt`]). Raising the line delivers the interrupt according
//! to [`InterruptDelivery`]:
//!
//! - `Inline` (the default): on the raising thread, as if its processor took it, when its IRQL is below the device's;
//!   otherwise it waits on that thread until the level drops. An interrupt that a register access raises is delivered
//!   when the accessing instruction is complete, before the next one.
//! - `Remote`: on a thread of the machine, concurrently.
//! - `Seeded`: one or the other by a pseudo-random sequence.
//!
//! The routine runs at the device's level under the interrupt's spin lock; [`Machine::synchronize`] runs something else
//! under the same lock at the same level, so the two exclude each other. A level-triggered line interrupts again for as
//! long as it is asserted; a routine that never claims it breaks NT-INT-STORM.

mod kinterrupt;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::cpu::{self, PENDING_INTERRUPT};
use crate::driver::EntryStack;
use crate::kernel::Machine;
use crate::records::SpinLockWord;
use crate::routines::{self, MAX_DEVICE_LEVEL};
use crate::rules::Details;
use crate::rules_nt::{NT_INT_CONNECT, NT_INT_STORM};
use crate::thread::{Thread, ThreadKind};
use kinterrupt::InterruptObjects;
pub(crate) use kinterrupt::{ConnectRequest, KINTERRUPT};

/// Unclaimed interrupts in a row after which a level-triggered line is taken for stuck.
const UNCLAIMED_LIMIT: u32 = 1_000;
/// Claimed interrupts in a row without the line being released.
const CLAIMED_LIMIT: u32 = 100_000;

/// Where interrupts are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterruptDelivery {
    /// On the thread that raised it.
    Inline,
    /// On a thread of the machine.
    Remote,
    /// Drawn for each interrupt, from this seed.
    Seeded(u64),
}

/// How a line signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// INTx: asserted until the device is told to stop.
    Level,
    /// MSI: each signal is one interrupt.
    Message,
}

/// An interrupt of a device, driven by its model.
pub struct InterruptLine {
    name: String,
    trigger: Trigger,
    message: u32,
    asserted: AtomicBool,
    messages: AtomicU32,
    unclaimed: AtomicU32,
    /// The line stormed, and is not delivered until it is released.
    masked: AtomicBool,
    /// Interrupts delivered, and of those claimed.
    delivered: AtomicU64,
    claimed: AtomicU64,
    connection: Mutex<Option<Arc<Interrupt>>>,
}

impl fmt::Debug for InterruptLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {}", self.name, self.trigger, self.message)
    }
}

impl InterruptLine {
    /// A line without a routine. `message`: what the routine is told (the message number; 0 for a level line).
    pub fn new(name: &str, trigger: Trigger, message: u32) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            trigger,
            message,
            asserted: AtomicBool::new(false),
            messages: AtomicU32::new(0),
            unclaimed: AtomicU32::new(0),
            masked: AtomicBool::new(false),
            delivered: AtomicU64::new(0),
            claimed: AtomicU64::new(0),
            connection: Mutex::new(None),
        })
    }

    /// How it signals.
    pub fn trigger(&self) -> Trigger {
        self.trigger
    }

    /// Releases a level line. What is pending for it is dropped, as on a bus. A line that stormed interrupts again when
    /// it is asserted the next time, so that a storm costs no more than the finding.
    pub fn deassert(&self) {
        self.masked.store(false, Ordering::Relaxed);
        self.unclaimed.store(0, Ordering::Relaxed);
        self.asserted.store(false, Ordering::Release);
    }

    /// Asserts a level line. Returns whether it was released before: then, and only then, the caller has it delivered
    /// by [`Machine::deliver_interrupt`]. Apart from the delivery, so that a device can change its line under a lock of
    /// its own together with the register that drives it.
    #[must_use]
    pub fn assert(&self) -> bool {
        debug_assert_eq!(self.trigger, Trigger::Level);
        !self.asserted.swap(true, Ordering::AcqRel)
    }

    /// Whether a level line is asserted.
    pub fn is_asserted(&self) -> bool {
        self.asserted.load(Ordering::Acquire)
    }

    /// Interrupts delivered so far, and how many of them the routine claimed.
    pub fn counts(&self) -> (u64, u64) {
        (self.delivered.load(Ordering::Relaxed), self.claimed.load(Ordering::Relaxed))
    }

    fn connected(&self) -> Option<Arc<Interrupt>> {
        self.connection.lock().clone()
    }

    /// Takes one reason to interrupt.
    fn take(&self) -> bool {
        if self.masked.load(Ordering::Relaxed) {
            return false;
        }
        match self.trigger {
            Trigger::Level => self.is_asserted(),
            Trigger::Message => {
                let one = |count: u32| count.checked_sub(1);
                self.messages.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one).is_ok()
            }
        }
    }
}

type Routine = Box<dyn Fn(u32) -> bool + Send + Sync>;

/// A connected interrupt (`KINTERRUPT`).
pub struct Interrupt {
    line: Arc<InterruptLine>,
    level: u8,
    lock: SpinLockWord,
    routine: Routine,
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at level {}", self.line, self.level)
    }
}

impl Interrupt {
    /// The device's IRQL.
    pub fn level(&self) -> u8 {
        self.level
    }

    /// The line.
    pub fn line(&self) -> &Arc<InterruptLine> {
        &self.line
    }
}

#[derive(Default)]
struct Service {
    queue: VecDeque<Arc<InterruptLine>>,
    thread: Option<Arc<Thread>>,
}

/// Interrupts of one machine.
#[derive(Default)]
pub(crate) struct Interrupts {
    objects: InterruptObjects,
    service: Mutex<Service>,
    random: AtomicU64,
}

impl Interrupts {
    /// Whether the next interrupt goes to the service thread.
    fn goes_remote(&self, delivery: InterruptDelivery) -> bool {
        match delivery {
            InterruptDelivery::Inline => false,
            InterruptDelivery::Remote => true,
            InterruptDelivery::Seeded(seed) => {
                let count = self.random.fetch_add(1, Ordering::Relaxed);
                let mut x = (seed ^ count).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                x ^= x >> 29;
                x.wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 63 != 0
            }
        }
    }
}

impl Machine {
    /// Connects `routine` to `line` at `level` (a device IRQL, 3 to 11). It is given the message number and says
    /// whether the interrupt was its device's. It runs at `level` on an interrupt stack; a driver's routine is called
    /// through [`call_driver_on`](Self::call_driver_on) with [`EntryStack::Own`].
    ///
    /// IRQL: PASSIVE_LEVEL. A level that no device has, or a second connection, breaks NT-INT-CONNECT.
    #[doc(alias = "IoConnectInterruptEx")]
    pub fn connect_interrupt(
        &self,
        line: &Arc<InterruptLine>,
        level: u8,
        routine: impl Fn(u32) -> bool + Send + Sync + 'static,
    ) -> Option<Arc<Interrupt>> {
        let interrupt =
            Arc::new(Interrupt { line: line.clone(), level, lock: SpinLockWord::new(0), routine: Box::new(routine) });
        let mut connection = line.connection.lock();
        let good = (3..=MAX_DEVICE_LEVEL).contains(&level) && connection.is_none();
        let text = || format!("{line:?} at level {level}, {}", if connection.is_some() { "connected" } else { "free" });
        if !self.rules.check(&NT_INT_CONNECT, good, text) {
            return None;
        }
        *connection = Some(interrupt.clone());
        drop(connection);
        // A level line may have been asserted before a routine was connected.
        if line.trigger == Trigger::Level && line.is_asserted() {
            self.deliver_interrupt(line);
        }
        Some(interrupt)
    }

    /// Disconnects an interrupt: when this returns its routine does not run and will not.
    ///
    /// IRQL: PASSIVE_LEVEL.
    #[doc(alias = "IoDisconnectInterruptEx")]
    pub fn disconnect_interrupt(&self, interrupt: &Arc<Interrupt>) {
        *interrupt.line.connection.lock() = None;
        // A thread that is inside the routine holds the lock.
        self.at_level_locked(interrupt, || ());
    }

    /// Asserts a level line.
    pub fn assert_interrupt(&self, line: &Arc<InterruptLine>) {
        if line.assert() {
            self.deliver_interrupt(line);
        }
    }

    /// Sends one message of a message-signalled line.
    pub fn signal_interrupt(&self, line: &Arc<InterruptLine>) {
        debug_assert_eq!(line.trigger, Trigger::Message);
        line.messages.fetch_add(1, Ordering::AcqRel);
        self.deliver_interrupt(line);
    }

    /// Delivers a line that has a reason to interrupt, such as a level line that [`InterruptLine::assert`] has just
    /// asserted, or remembers it.
    pub fn deliver_interrupt(&self, line: &Arc<InterruptLine>) {
        let Some(interrupt) = line.connected() else { return };
        let inside = cpu::with(|cpu| cpu.is_in(self));
        if !inside || self.interrupts.goes_remote(self.config().interrupt_delivery) {
            let thread = {
                let mut service = self.interrupts.service.lock();
                service.queue.push_back(line.clone());
                service.thread.clone()
            };
            let thread = thread.unwrap_or_else(|| self.start_interrupt_service());
            self.sched.unpark(&thread.slot);
            return;
        }
        let (irql, deferred) = cpu::with(|cpu| (cpu.irql.get(), cpu.in_register.get()));
        if irql < interrupt.level && !deferred {
            self.deliver(&interrupt);
        } else {
            self.with_current_thread(|thread| thread.pending_lines.lock().push_back(line.clone()));
            cpu::with(|cpu| cpu.pending.set(cpu.pending.get() | PENDING_INTERRUPT));
        }
    }

    /// A register access is complete: deliver what it raised.
    pub(crate) fn deliver_raised_interrupts(&self) {
        let (pending, irql) = cpu::with(|cpu| (cpu.pending.get(), cpu.irql.get()));
        if pending & PENDING_INTERRUPT != 0 {
            self.deliver_pending_interrupts(irql);
        }
    }

    /// Delivers what waits on the calling thread and may be delivered at `irql`.
    pub(crate) fn deliver_pending_interrupts(&self, irql: u8) {
        loop {
            let next = self.with_current_thread(|thread| {
                let mut lines = thread.pending_lines.lock();
                let level = |line: &Arc<InterruptLine>| line.connected().map_or(0, |interrupt| interrupt.level);
                let at = lines.iter().position(|line| {
                    let level = level(line);
                    level == 0 || level > irql
                });
                let line = at.and_then(|at| lines.remove(at));
                if lines.is_empty() {
                    cpu::with(|cpu| cpu.pending.set(cpu.pending.get() & !PENDING_INTERRUPT));
                }
                line
            });
            let Some(line) = next else { return };
            if let Some(interrupt) = line.connected() {
                self.deliver(&interrupt);
            }
        }
    }

    /// Runs the routine as long as there is a reason to.
    fn deliver(&self, interrupt: &Arc<Interrupt>) {
        let line = &interrupt.line;
        let mut in_a_row = 0;
        while line.take() && !self.rules.is_stopped() {
            let claimed = self.at_level_locked(interrupt, || {
                cpu::with(|cpu| cpu.in_isr.set(cpu.in_isr.get() + 1));
                let claimed = (interrupt.routine)(line.message);
                cpu::with(|cpu| cpu.in_isr.set(cpu.in_isr.get().saturating_sub(1)));
                claimed
            });
            line.delivered.fetch_add(1, Ordering::Relaxed);
            line.claimed.fetch_add(claimed.into(), Ordering::Relaxed);
            in_a_row += 1;
            let unclaimed = if claimed {
                line.unclaimed.store(0, Ordering::Relaxed);
                0
            } else {
                line.unclaimed.fetch_add(1, Ordering::Relaxed) + 1
            };
            if line.trigger == Trigger::Message {
                continue;
            }
            let quiet = unclaimed < UNCLAIMED_LIMIT && in_a_row < CLAIMED_LIMIT;
            let storms = !self.rules.check(&NT_INT_STORM, quiet, || {
                let who = if claimed { "claimed each time" } else { "claimed by nobody" };
                Details::new(format!("{line:?} interrupted {in_a_row} times in a row, {who}, and is still asserted"))
            });
            if storms {
                line.masked.store(true, Ordering::Relaxed);
            }
            if line.connected().is_none() {
                return;
            }
        }
    }

    /// Runs `f` at the interrupt's level under its lock.
    fn at_level_locked<R>(&self, interrupt: &Interrupt, f: impl FnOnce() -> R) -> R {
        let level = interrupt.level.max(self.irql());
        self.at_irql(level, || {
            self.take_word(&interrupt.lock);
            let result = f();
            self.drop_word(&interrupt.lock);
            result
        })
    }

    /// Runs `f` at the device's level, excluding the interrupt routine.
    ///
    /// IRQL: at most the device's.
    #[doc(alias = "KeSynchronizeExecution")]
    #[track_caller]
    pub fn synchronize<R>(&self, interrupt: &Interrupt, f: impl FnOnce() -> R) -> R {
        let _service = self.service(&routines::KE_SYNCHRONIZE_EXECUTION, [0, 0, 0]);
        let irql = self.irql();
        self.rules.check(&crate::rules_nt::NT_IRQL, irql <= interrupt.level, || {
            Details::new(format!("KeSynchronizeExecution called at IRQL {irql}, the device is at {}", interrupt.level))
                .params([irql.into(), 0, 0])
        });
        self.at_level_locked(interrupt, f)
    }

    /// Calls a driver's interrupt routine, for [`connect_interrupt`](Self::connect_interrupt): `None` when the machine
    /// has stopped, before the call or in it.
    pub fn call_interrupt_routine(&self, name: &'static str, f: impl FnOnce() -> bool) -> Option<bool> {
        self.call_driver_on(EntryStack::Own, name, f).ok()
    }

    fn start_interrupt_service(&self) -> Arc<Thread> {
        let machine = self.arc();
        let thread = self.start_thread("interrupt", ThreadKind::Service, 0, move || machine.serve_interrupts());
        self.interrupts.service.lock().thread.get_or_insert(thread).clone()
    }

    fn serve_interrupts(&self) {
        let slot = self.with_current_thread(|thread| thread.slot.clone());
        while !self.rules.is_stopped() {
            let next = self.interrupts.service.lock().queue.pop_front();
            match next.map(|line| line.connected()) {
                Some(Some(interrupt)) => self.deliver(&interrupt),
                Some(None) => (),
                None => _ = self.sched.park(&slot, None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Kernel, KernelConfig};
    use crate::routines::DISPATCH_LEVEL;

    const LEVEL: u8 = 7;

    fn counting(kernel: &Kernel, line: &Arc<InterruptLine>) -> (Arc<Interrupt>, Arc<AtomicU32>) {
        let count = Arc::new(AtomicU32::new(0));
        let (inside, counter, own) = (kernel.arc(), count.clone(), line.clone());
        let interrupt = kernel.connect_interrupt(line, LEVEL, move |_| {
            assert_eq!(inside.irql(), LEVEL);
            counter.fetch_add(1, Ordering::Relaxed);
            own.deassert();
            true
        });
        (interrupt.unwrap_or_else(|| panic!("connected")), count)
    }

    #[test]
    fn inline_delivery_is_immediate_below_the_level() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let line = InterruptLine::new("test", Trigger::Level, 0);
        let (interrupt, count) = counting(&kernel, &line);
        kernel.assert_interrupt(&line);
        assert_eq!((count.load(Ordering::Relaxed), kernel.irql()), (1, 0));
        kernel.disconnect_interrupt(&interrupt);
        kernel.assert_interrupt(&line);
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn at_or_above_the_level_it_waits() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let line = InterruptLine::new("test", Trigger::Message, 3);
        let (_interrupt, count) = counting(&kernel, &line);
        let old = kernel.raise_irql(LEVEL);
        kernel.signal_interrupt(&line);
        kernel.signal_interrupt(&line);
        assert_eq!(count.load(Ordering::Relaxed), 0);
        kernel.lower_irql(DISPATCH_LEVEL);
        assert_eq!(count.load(Ordering::Relaxed), 2);
        kernel.lower_irql(old);
    }

    #[test]
    fn synchronize_excludes_the_routine() {
        let config = KernelConfig { interrupt_delivery: InterruptDelivery::Remote, ..KernelConfig::collecting() };
        let kernel = Kernel::new(config);
        let _in = kernel.enter();
        let line = InterruptLine::new("test", Trigger::Message, 0);
        let inside = Arc::new(AtomicBool::new(false));
        let flag = inside.clone();
        let interrupt = kernel.connect_interrupt(&line, LEVEL, move |_| {
            assert!(!flag.swap(true, Ordering::AcqRel), "alone");
            flag.store(false, Ordering::Release);
            true
        });
        let interrupt = interrupt.unwrap_or_else(|| panic!("connected"));
        for _ in 0..200 {
            kernel.signal_interrupt(&line);
            kernel.synchronize(&interrupt, || {
                assert!(!inside.swap(true, Ordering::AcqRel), "alone");
                inside.store(false, Ordering::Release);
            });
        }
        while line.counts().0 < 200 {
            kernel.delay_execution(-1000);
        }
        assert!(kernel.rules.violations().is_empty());
    }

    #[test]
    fn an_unclaimed_level_interrupt_is_a_storm() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let line = InterruptLine::new("test", Trigger::Level, 0);
        let _interrupt = kernel.connect_interrupt(&line, LEVEL, |_| false);
        kernel.assert_interrupt(&line);
        assert!(kernel.rules.was_broken(&NT_INT_STORM));
        let (before, _) = line.counts();
        line.deassert();
        kernel.assert_interrupt(&line);
        assert!(line.counts().0 > before, "a line that was released is delivered again");
    }

    #[test]
    fn connecting_twice_or_at_no_device_level_is_caught() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let line = InterruptLine::new("test", Trigger::Level, 0);
        assert!(kernel.connect_interrupt(&line, 2, |_| true).is_none());
        assert!(kernel.connect_interrupt(&line, 5, |_| true).is_some());
        assert!(kernel.connect_interrupt(&line, 5, |_| true).is_none());
        assert_eq!(kernel.rules.violations().len(), 2);
        assert!(kernel.rules.was_broken(&NT_INT_CONNECT));
    }

    #[test]
    fn a_call_from_outside_the_kernel_goes_to_the_service_thread() {
        let kernel = Kernel::collecting();
        let line = InterruptLine::new("test", Trigger::Message, 0);
        {
            let _in = kernel.enter();
            let _interrupt = kernel.connect_interrupt(&line, LEVEL, |_| true);
        }
        kernel.signal_interrupt_from_outside(&line);
        while line.counts().1 == 0 {
            std::thread::yield_now();
        }
    }

    impl Kernel {
        fn signal_interrupt_from_outside(&self, line: &Arc<InterruptLine>) {
            let (kernel, line) = (self.clone(), line.clone());
            let outside = std::thread::spawn(move || kernel.signal_interrupt(&line));
            assert!(outside.join().is_ok());
        }
    }
}
