//! QEMU's educational PCI function, but for its DMA.
//!
//! BAR 0: 0x00 reads 0x010000ed; 0x04 complements what was written; 0x08 calculates a factorial; bit 7 of the status
//! word at 0x20 makes each factorial raise bit 0; a store to 0x60 sets bits in 0x24 and raises the interrupt; a store
//! to 0x64 clears them. The line is high while 0x24 is not zero; under MSI each store to 0x60 that leaves a bit there
//! sends a message, acknowledged or not. Everything else reads as ones. An access has four bytes: a load of eight reads
//! ones, one of less zeros, and a store of another size does nothing; but the bus makes two of an access of eight bytes
//! at an odd multiple of four.
//!
//! Two things differ. A factorial is there at once: bit 0 of the status word, which says that it is being calculated,
//! is never seen. What is at 0x80 to 0x9f, the registers of its DMA, is not there: the function reaches no memory.
//!
//! Source: QEMU's docs/specs/edu; compared with QEMU (`compared.rs`).

#[cfg(test)]
mod compared;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use nt_model::mmio::Registers;
use nt_model::{InterruptLine, Trigger};

use crate::port::sync::{Lock, Rank};

/// 0x00 identification.
const IDENTIFICATION: u64 = 0x0100_00ED;
/// The bit of the status word by which a factorial interrupts, and the bit that it then raises.
const INTERRUPT_BY_FACTORIAL: u32 = 0x80;
const FACTORIAL: u32 = 1;
/// From this number on factorials are multiples of 2^32.
const FACTORIAL_IS_ZERO: usize = 34;

/// The function.
#[derive(Debug)]
pub(crate) struct Edu {
    line: Option<Arc<InterruptLine>>,
    liveness: AtomicU32,
    factorial: AtomicU32,
    status: AtomicU32,
    /// The interrupt status register. The line is high while it is not zero: both change in one step, as in hardware.
    interrupt: Lock<u32>,
    /// Raises that have begun, and those that have set their bits.
    begun: AtomicU64,
    raised: AtomicU64,
    /// How often pending interrupts were forgotten.
    resets: AtomicU64,
    /// Stores to the register that raises interrupts, at offset 0x60.
    told: AtomicU64,
    /// The raise that gets lost, counted from 1; 0: none.
    lost: u64,
    /// Whether the device is in D3, where it decodes no memory cycles. Source: PCI Bus Power Management Interface
    /// Specification, D3hot.
    asleep: AtomicBool,
    /// Whether the device is off the bus.
    gone: AtomicBool,
    /// Accesses of the driver to registers since [`watch`](Self::watch).
    touched: AtomicU64,
}

impl Edu {
    pub(crate) fn new(line: Option<Arc<InterruptLine>>, lost: u64) -> Self {
        Self {
            lost,
            told: AtomicU64::new(0),
            line,
            liveness: AtomicU32::new(0),
            factorial: AtomicU32::new(0),
            status: AtomicU32::new(0),
            interrupt: Lock::new(Rank::Leaf, 0),
            begun: AtomicU64::new(0),
            raised: AtomicU64::new(0),
            resets: AtomicU64::new(0),
            asleep: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            touched: AtomicU64::new(0),
        }
    }

    /// Puts the device into D3 (`asleep`) or back into D0, and forgets pending interrupts.
    pub(crate) fn set_asleep(&self, asleep: bool) {
        self.asleep.store(asleep, Ordering::SeqCst);
        self.reset();
    }

    /// Takes the device off the bus, and forgets pending interrupts.
    pub(crate) fn vanish(&self) {
        self.gone.store(true, Ordering::SeqCst);
        self.reset();
    }

    /// Returns whether the device is off the bus.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// Begins to count accesses at 0.
    pub(crate) fn watch(&self) {
        self.touched.store(0, Ordering::SeqCst);
    }

    /// How often registers were accessed since [`watch`](Self::watch).
    pub(crate) fn touched(&self) -> u64 {
        self.touched.load(Ordering::SeqCst)
    }

    /// Puts the device back on the bus, in D0, for the next start.
    pub(crate) fn plug(&self) {
        self.gone.store(false, Ordering::SeqCst);
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Counts an access, and returns whether the device answers it: it is on the bus and not in D3.
    fn answers(&self) -> bool {
        self.touched.fetch_add(1, Ordering::SeqCst);
        self.is_awake()
    }

    /// Returns whether the device is on the bus and not in D3.
    pub(crate) fn is_awake(&self) -> bool {
        !self.asleep.load(Ordering::SeqCst) && !self.gone.load(Ordering::SeqCst)
    }

    /// Returns whether every interrupt that the driver raises reaches it: the device is there and awake, and none is
    /// made to be lost.
    pub(crate) fn delivers_interrupts(&self) -> bool {
        self.lost == 0 && self.is_awake()
    }

    /// The interrupt status register.
    pub(crate) fn interrupt_status(&self) -> u32 {
        *self.interrupt.lock()
    }

    /// Interrupts raised so far: their bits are, or were, in the status register.
    pub(crate) fn raised(&self) -> u64 {
        self.raised.load(Ordering::Acquire)
    }

    /// How often the driver has stored to the register that raises interrupts.
    pub(crate) fn told(&self) -> u64 {
        self.told.load(Ordering::Acquire)
    }

    /// Whether nobody has raised an interrupt since [`raised`](Self::raised) returned `before`, nor was about to.
    pub(crate) fn is_untouched_since(&self, before: u64) -> bool {
        self.begun.load(Ordering::Acquire) == before
    }

    /// Forgets pending interrupts: the function was reset.
    pub(crate) fn reset(&self) {
        self.resets.fetch_add(1, Ordering::SeqCst);
        self.acknowledge(u32::MAX);
    }

    /// How often pending interrupts were forgotten: the device was reset, left, fell asleep, or woke.
    pub(crate) fn resets(&self) -> u64 {
        self.resets.load(Ordering::SeqCst)
    }

    /// Sets bits of the status register and interrupts, as a store to offset 0x60 does.
    pub(crate) fn raise(&self, bits: u32) {
        let before = self.begun.fetch_add(1, Ordering::AcqRel);
        if bits != 0 && before + 1 == self.lost {
            self.raised.fetch_add(1, Ordering::AcqRel);
            return;
        }
        let (interrupts, is_asserted) = {
            let mut interrupt = self.interrupt.lock();
            *interrupt |= bits;
            let interrupts = *interrupt != 0;
            (interrupts, interrupts && self.level_line().is_some_and(|line| line.assert()))
        };
        self.raised.fetch_add(1, Ordering::AcqRel);
        let Some(line) = &self.line else { return };
        nt_model::Machine::with_current(|machine| {
            let Some(machine) = machine else { return };
            match line.trigger() {
                Trigger::Level if is_asserted => machine.deliver_interrupt(line),
                Trigger::Message if interrupts => machine.signal_interrupt(line),
                Trigger::Level | Trigger::Message => (),
            }
        });
    }

    fn level_line(&self) -> Option<&Arc<InterruptLine>> {
        self.line.as_ref().filter(|line| line.trigger() == Trigger::Level)
    }

    fn acknowledge(&self, bits: u32) {
        let mut interrupt = self.interrupt.lock();
        *interrupt &= !bits;
        if *interrupt == 0
            && let Some(line) = self.level_line()
        {
            line.deassert();
        }
    }
}

/// The registers, as the bus sees them.
pub(crate) struct EduRegisters(pub(crate) Arc<Edu>);

impl Registers for EduRegisters {
    fn read(&self, offset: u64, size: u8) -> u64 {
        if !self.0.answers() {
            return u64::MAX;
        }
        match size {
            4 if offset.is_multiple_of(4) => (),
            8 if offset % 8 == 4 => return self.word(offset) | self.word(offset + 4) << 32,
            8 if offset.is_multiple_of(8) => return u64::MAX,
            _ => return 0,
        }
        self.word(offset)
    }

    fn write(&self, offset: u64, size: u8, value: u64) {
        if !self.0.answers() {
            return;
        }
        // CAST: four bytes of it each.
        let (low, high) = (value as u32, (value >> 32) as u32);
        match size {
            4 if offset.is_multiple_of(4) => self.store(offset, low),
            8 if offset % 8 == 4 => {
                self.store(offset, low);
                self.store(offset + 4, high);
            }
            _ => (),
        }
    }
}

impl EduRegisters {
    fn word(&self, offset: u64) -> u64 {
        match offset {
            0x00 => IDENTIFICATION,
            0x04 => u64::from(self.0.liveness.load(Ordering::Relaxed)),
            0x08 => u64::from(self.0.factorial.load(Ordering::Relaxed)),
            0x20 => u64::from(self.0.status.load(Ordering::Relaxed)),
            0x24 => u64::from(self.0.interrupt_status()),
            _ => u64::from(u32::MAX),
        }
    }

    fn store(&self, offset: u64, value: u32) {
        match offset {
            0x04 => self.0.liveness.store(!value, Ordering::Relaxed),
            0x08 => {
                self.0
                    .factorial
                    .store((1..=value).take(FACTORIAL_IS_ZERO).fold(1, u32::wrapping_mul), Ordering::Relaxed);
                if self.0.status.load(Ordering::Relaxed) & INTERRUPT_BY_FACTORIAL != 0 {
                    self.0.raise(FACTORIAL);
                }
            }
            0x20 => self.0.status.store(value & INTERRUPT_BY_FACTORIAL, Ordering::Relaxed),
            0x60 => {
                self.0.told.fetch_add(1, Ordering::AcqRel);
                self.0.raise(value);
            }
            0x64 => self.0.acknowledge(value),
            _ => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nt_model::Kernel;

    /// A line that stays high while no bit is set would interrupt for ever, claimed by no routine.
    #[test]
    fn the_line_follows_the_status_register_whoever_raises_and_acknowledges_at_once() {
        const ROUNDS: u32 = 1_000_000;
        let line = InterruptLine::new("edu", Trigger::Level, 0);
        let edu = Edu::new(Some(line.clone()), 0);
        std::thread::scope(|threads| {
            let raising = threads.spawn(|| {
                for _ in 0..ROUNDS {
                    edu.raise(1);
                    edu.acknowledge(1);
                }
            });
            while !raising.is_finished() {
                let interrupt = edu.interrupt.lock();
                assert_eq!(line.is_asserted(), *interrupt != 0);
            }
        });
    }

    #[test]
    fn the_line_follows_the_status_register() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let line = InterruptLine::new("edu", Trigger::Level, 0);
        let registers = EduRegisters(Arc::new(Edu::new(Some(line.clone()), 0)));
        assert_eq!(registers.read(0, 4), IDENTIFICATION);
        registers.write(0x04, 4, 0x1234);
        assert_eq!(registers.read(0x04, 4), u64::from(!0x1234_u32));
        registers.write(0x60, 4, 5);
        assert!(line.is_asserted());
        registers.write(0x64, 4, 1);
        assert!(line.is_asserted());
        assert_eq!(registers.read(0x24, 4), 4);
        registers.write(0x64, 4, 4);
        assert!(!line.is_asserted());
        assert_eq!(registers.read(0x30, 4), u64::from(u32::MAX));
    }
}
