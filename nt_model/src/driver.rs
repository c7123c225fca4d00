//! Entering driver code, measuring its stack, and leaving it for good.
//!
//! Whoever calls a driver (this crate for DPCs, interrupts, threads and I/O; `dxgkrnl_model` for every DDI) does it
//! through [`Machine::call_driver`]. That records the entry's name for violations, marks where the driver's part of the
//! stack begins, checks that the driver comes back at the same IRQL and with the same locks, and is the place to which
//! a thread returns when it is taken out of the driver.
//!
//! **Stack.** A kernel thread has 24 KiB. At every shim entry, and in `__chkstk`, the model compares the stack pointer
//! with the driver entry's; entries nest (driver → callback → driver) and then add up, the model's own frames between
//! them not counted. More than [`KernelConfig::stack_size`](crate::KernelConfig) less its reserve breaks NT-STACK.
//! DPCs, interrupt service routines and system threads have stacks of their own. Measured for images only, within about
//! 300 bytes (frames between the entry's mark and the driver's first); a native driver's frames are not those that
//! ship.
//!
//! **Leaving.** When the machine has stopped, a thread in driver code cannot go on, and image frames cannot be unwound.
//! So at its next shim (entry or exit) it returns to the innermost `call_driver`, which answers [`Abandoned`]; driver
//! frames and what they own are leaked. The closure given to `call_driver` should therefore only make the call: what it
//! owns leaks too. A *native* driver is not left that way, but its system threads are unwound from their next service,
//! and its waits return `STATUS_SYSTEM_SHUTDOWN`.
#![expect(unsafe_code, reason = "leaves driver frames; see arch::leave")]

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::arch;
use crate::cpu::{self, EntryState, Segment};
use crate::kernel::Machine;
use crate::rules::{Details, Rule};
use crate::rules_nt::{NT_ATTACH, NT_IRQL_RETURN, NT_SPIN_LEAKED, NT_STACK};
use crate::sched::YieldPoint;
use crate::thread::ThreadKind;

/// Driver code was left before it returned, because the machine stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the machine stopped while the driver ran")]
pub struct Abandoned;

/// Marks the panic that unwinds a native system thread of a stopped machine.
pub(crate) struct StoppedMachine;

/// Bytes of stack that a driver entry should do with: of 24 KiB others may have taken 16 (PnP, Dxgkrnl, filter drivers,
/// and the registry's callbacks of security products). No document says how much they take, so this breaks no rule.
pub const STACK_ADVICE: usize = 8 * 1024;

/// Value with which driver frames are left.
const LEFT: usize = 1;

/// Which stack a driver entry runs on, on Windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryStack {
    /// The calling thread's kernel stack: what outer driver frames use of it counts.
    Caller,
    /// One of its own: DPCs, interrupts, the entry point.
    Own,
    /// That of a thread which the driver has made, and which may run for as long as the driver does.
    Thread,
}

struct EntryGuard(EntryState);

impl Drop for EntryGuard {
    fn drop(&mut self) {
        cpu::with(|cpu| {
            cpu.pop_entry(&self.0);
            cpu.truncate_held(self.0.held);
        });
    }
}

impl Machine {
    /// Calls driver code on the calling thread's stack. `name` is the entry point as the documents call it
    /// (`DxgkDdiSubmitCommand`); `f` only makes the call.
    ///
    /// IRQL: the caller's; raise first with [`raise_irql`](Self::raise_irql) where the entry point wants it.
    ///
    /// # Errors
    /// [`Abandoned`] when the machine has stopped, before or during the call.
    ///
    /// # Panics
    /// When the calling thread is not inside this machine; with what `f` panics with.
    pub fn call_driver<R>(&self, name: &'static str, f: impl FnOnce() -> R) -> Result<R, Abandoned> {
        self.call_driver_on(EntryStack::Caller, name, f)
    }

    /// [`call_driver`](Self::call_driver) with the choice of the stack that is accounted for.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn call_driver_on<R>(
        &self,
        stack: EntryStack,
        name: &'static str,
        f: impl FnOnce() -> R,
    ) -> Result<R, Abandoned> {
        assert!(cpu::with(|cpu| cpu.is_in(self)), "{name} called on a thread that has not entered this kernel");
        if self.rules.is_stopped() {
            return Err(Abandoned);
        }
        self.yield_point(YieldPoint::Driver);
        let outer = match stack {
            EntryStack::Own | EntryStack::Thread => 0,
            EntryStack::Caller => used_stack(),
        };
        let guard = EntryGuard(cpu::with(|cpu| cpu.push_entry(name)));
        let under_way = self.begin_entry(stack, name);
        let budget = self.config().stack_size.saturating_sub(self.config().stack_reserve);
        let result = arch::enter(
            |context| cpu::with(|cpu| cpu.jump.set(context)),
            || {
                let base = arch::stack_pointer();
                let limit = base - budget.saturating_sub(outer);
                cpu::with(|cpu| cpu.segment.set(Segment { base, outer, low: base, limit }));
                f()
            },
        );
        let segment = cpu::with(|cpu| cpu.segment.get());
        self.stacks.note(name, segment.outer + (segment.base - segment.low.min(segment.base)));
        let result = result.map_err(|_| Abandoned);
        drop(under_way);
        self.judge_return(&guard.0, result.is_ok());
        drop(guard);
        self.yield_point(YieldPoint::Driver);
        result
    }

    /// Checks IRQL and locks after a driver entry, and puts them right.
    fn judge_return(&self, state: &EntryState, returned: bool) {
        let (irql, held) = cpu::with(|cpu| (cpu.irql.get(), cpu.held_count()));
        if returned {
            let entry = cpu::with(|cpu| cpu.entry());
            self.rules.check(&NT_IRQL_RETURN, irql == state.irql, || {
                Details::new(format!("{entry} was called at IRQL {} and returned at {irql}", state.irql)).params([
                    state.irql.into(),
                    irql.into(),
                    0,
                ])
            });
            let attached = cpu::with(|cpu| cpu.attached.get());
            self.rules.check(&NT_ATTACH, attached == state.attached, || {
                format!("{entry} was called attached to {} processes and returned with {attached}", state.attached)
            });
            self.rules.check(&NT_SPIN_LEAKED, held == state.held, || {
                let words: Vec<_> =
                    cpu::with(|cpu| cpu.held().skip(state.held).map(|lock| format!("{:#x}", lock.word)).collect());
                Details::new(format!(
                    "{entry} was called with {} spin locks held and returned with {held} ({})",
                    state.held,
                    words.join(", ")
                ))
            });
        }
        if irql != state.irql {
            self.set_irql(state.irql);
        }
    }

    /// Keeps the depth of an entry that was left instead of returning.
    pub(crate) fn note_left_stack(&self, name: &'static str) {
        let segment = cpu::with(|cpu| cpu.segment.replace(Segment::NONE));
        self.stacks.note(name, segment.outer + (segment.base - segment.low.min(segment.base)));
    }

    /// Deepest stack seen per driver entry, in bytes, outer entries included.
    pub fn stack_high_water(&self) -> BTreeMap<&'static str, usize> {
        self.stacks.report()
    }

    /// Driver entries that took more stack than [`STACK_ADVICE`], with what they took.
    pub fn deep_entries(&self) -> BTreeMap<&'static str, usize> {
        let mut deep = self.stack_high_water();
        deep.retain(|_, bytes| *bytes > STACK_ADVICE);
        deep
    }

    /// Compares a stack pointer with the modelled kernel stack's end. `what` names the place of measurement.
    #[inline]
    pub(crate) fn measure_stack(&self, pointer: usize) {
        cpu::with(|cpu| {
            let mut segment = cpu.segment.get();
            if pointer >= segment.low || segment.base == 0 {
                return;
            }
            segment.low = pointer;
            cpu.segment.set(segment);
            self.rules.count(&NT_STACK);
            if pointer < segment.limit {
                self.stack_exceeded(segment, pointer);
            }
        });
    }

    #[cold]
    fn stack_exceeded(&self, mut segment: Segment, pointer: usize) {
        let depth = segment.outer + segment.base - pointer;
        let budget = self.config().stack_size.saturating_sub(self.config().stack_reserve);
        segment.limit = 0;
        cpu::with(|cpu| cpu.segment.set(segment));
        let entry = cpu::with(|cpu| cpu.entry());
        self.rules.broken(
            &NT_STACK,
            Details::new(format!(
                "{depth} bytes of stack in {entry}, of which {} in outer entries; {budget} are the driver's",
                segment.outer
            ))
            .params([depth as u64, budget as u64, 0]),
        );
    }

    /// A native caller is in a service of a stopped machine.
    #[cold]
    pub(crate) fn in_stopped_machine(&self) {
        let unwinds = cpu::with(|cpu| {
            cpu.shim_frame() == 0
                && cpu.entry_depth() == 1
                && cpu.thread().is_some_and(|thread| thread.kind() == ThreadKind::NativeSystem)
        });
        if unwinds && !std::thread::panicking() {
            std::panic::resume_unwind(Box::new(StoppedMachine));
        }
    }

    /// Leaves driver code of an image for the innermost [`call_driver`](Self::call_driver). Returns when the calling
    /// thread is not in any, or its driver is native. No lock of the model may be held.
    #[cold]
    pub(crate) fn leave_image(&self) {
        let (jump, frame) = cpu::with(|cpu| (cpu.jump.get(), cpu.shim_frame()));
        if !jump.is_null() && self.images.locate(arch::return_address(frame)).is_some() {
            // SAFETY: `jump` is the context of the innermost `call_driver`, which is running on this thread: it is
            // reset when that returns. Between lie image frames and the shim's, which holds no lock.
            unsafe { arch::leave(jump, LEFT) };
        }
    }

    /// Records a violation after which the calling thread cannot go on, and leaves driver code, native or not.
    ///
    /// # Panics
    /// When the calling thread is not in driver code.
    #[cold]
    #[track_caller]
    pub(crate) fn fatal(&self, rule: &'static Rule, details: impl Into<Details>) -> ! {
        let details = details.into();
        let text = format!("{details:?}");
        self.rules.broken_fatally(rule, details);
        self.leave_driver();
        panic!("{}: {text}, outside driver code", rule.name)
    }

    /// Leaves driver code, native or not, for the innermost [`call_driver`](Self::call_driver), if there is one.
    #[cold]
    pub(crate) fn leave_driver(&self) {
        let jump = cpu::with(|cpu| cpu.jump.get());
        if !jump.is_null() {
            // SAFETY: as in `leave_image`; what native frames own leaks, and the machine has stopped.
            unsafe { arch::leave(jump, LEFT) };
        }
    }
}

/// Bytes of the modelled stack that driver code uses at the calling shim.
fn used_stack() -> usize {
    cpu::with(|cpu| {
        let segment = cpu.segment.get();
        let frame = cpu.shim_frame();
        if segment.base == 0 || frame == 0 || frame > segment.base {
            segment.outer
        } else {
            segment.outer + (segment.base - frame)
        }
    })
}

/// High-water marks per entry name, without a lock: open addressing over the names' addresses.
pub(crate) struct StackBook {
    slots: Box<[StackSlot]>,
}

#[derive(Default)]
struct StackSlot {
    name: OnceLock<&'static str>,
    bytes: AtomicUsize,
}

impl Default for StackBook {
    fn default() -> Self {
        Self { slots: (0..512).map(|_| StackSlot::default()).collect() }
    }
}

impl StackBook {
    fn note(&self, name: &'static str, bytes: usize) {
        let mut at = (name.as_ptr().addr() >> 3) % self.slots.len();
        for _ in 0..self.slots.len() {
            let slot = &self.slots[at];
            if std::ptr::eq(*slot.name.get_or_init(|| name), name) {
                if bytes > slot.bytes.load(Ordering::Relaxed) {
                    slot.bytes.fetch_max(bytes, Ordering::Relaxed);
                }
                return;
            }
            at = (at + 1) % self.slots.len();
        }
    }

    fn report(&self) -> BTreeMap<&'static str, usize> {
        let mut report = BTreeMap::new();
        for slot in &self.slots {
            if let Some(name) = slot.name.get() {
                let bytes = report.entry(*name).or_insert(0);
                *bytes = slot.bytes.load(Ordering::Relaxed).max(*bytes);
            }
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;
    use crate::routines::DISPATCH_LEVEL;

    #[test]
    fn a_driver_call_returns_its_value() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        assert_eq!(kernel.call_driver("Entry", || 5), Ok(5));
        assert!(kernel.stack_high_water().contains_key("Entry"));
    }

    #[test]
    fn coming_back_at_another_irql_is_caught_and_put_right() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let _ = kernel.call_driver("Entry", || kernel.raise_irql(DISPATCH_LEVEL));
        assert!(kernel.rules.was_broken(&NT_IRQL_RETURN));
        assert_eq!(kernel.irql(), 0);
    }

    #[test]
    fn a_fatal_violation_leaves_the_innermost_entry() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let outer = kernel
            .call_driver("Outer", || kernel.call_driver("Inner", || kernel.fatal(&NT_STACK, "test")).map(|_: ()| ()));
        assert_eq!(outer, Ok(Err(Abandoned)));
        assert!(kernel.rules.is_stopped());
        assert_eq!(kernel.call_driver("Later", || ()), Err(Abandoned));
        let entries = &kernel.rules.violations()[0].context.entries;
        assert_eq!(entries, &["Outer", "Inner"]);
    }

    #[test]
    fn measured_depth_is_kept_per_entry_and_judged() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let _ = kernel.call_driver("Deep", || {
            let here = arch::stack_pointer();
            kernel.measure_stack(here - 10_000);
            assert!(!kernel.rules.was_broken(&NT_STACK));
            // What a driver takes that is known to start.
            kernel.measure_stack(here - 17_900);
            assert!(!kernel.rules.was_broken(&NT_STACK));
            kernel.measure_stack(here - 18_800);
        });
        let _ = kernel.call_driver("Flat", || kernel.measure_stack(arch::stack_pointer() - 7_000));
        assert!(kernel.rules.was_broken(&NT_STACK));
        assert!(kernel.stack_high_water()["Deep"] >= 18_800);
        assert_eq!(kernel.deep_entries().into_keys().collect::<Vec<_>>(), ["Deep"]);
    }
}
