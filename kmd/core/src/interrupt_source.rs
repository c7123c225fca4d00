//! How an engine gets the attention of the OS, and whether there is a device to do it with.
//!
//! A PCI function may sleep (D3) or be gone (unplugged, taken away). In both states it reads as ones and drops what is
//! written, and one that is gone must not be touched at all: the OS may bug-check or hang. So every access after the
//! start asks for the presence first. In D3 an engine's notices wait in its mailbox for D0. Without a device the
//! driver reports through `DxgkCbSynchronizeExecution`, so that the OS gets what it still waits for while it cleans
//! up.
//!
//! A device goes to sleep in two steps, since an interrupt that it has raised is on its way to a processor: a level
//! line that no routine claims interrupts again for ever. So from the first step on nothing is raised, but everything
//! is still claimed ([`settle`](InterruptSource::settle)); the second step, at the device's level, clears what is left
//! ([`sleep`](InterruptSource::sleep)).
//!
//! Source: DDI pages DxgkDdiNotifySurpriseRemoval, DxgkDdiSetPowerState, DxgkDdiInterruptRoutine.

use crate::dxgkrnl::Dxgkrnl;
use crate::handle::Handle;
use crate::irql::{Dirql, Passive};
use crate::platform::{self, Platform};
use crate::registers::Registers;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use wddm_abi::PKSYNCHRONIZE_ROUTINE;

/// The device is in D0, or there never was one.
const THERE: u8 = 0;
/// The device is about to leave D0: it raises nothing more, and what it raised is claimed.
const SETTLING: u8 = 1;
/// The device is in D1, D2 or D3.
const ASLEEP: u8 = 2;
/// The device left, and does not come back.
const GONE: u8 = 3;

/// The value that registers of a function in D3, or of one that is gone, read as.
const ABSENT: u32 = u32::MAX;

/// How engines interrupt: by the device's interrupt, or without a device by a call of the OS.
pub struct InterruptSource {
    /// Registers of the PCI function that owns the interrupt; `None` without a device or without an interrupt.
    registers: Option<Registers>,
    /// THERE, SETTLING, ASLEEP or GONE.
    presence: AtomicU8,
    /// How many threads may be touching a register. The interrupt routine is not counted.
    inside: AtomicU32,
    /// The OS. Without a device the report is made at the device's level through `DxgkCbSynchronizeExecution`. The
    /// documents say that it may fail when no interrupt is connected; then the engine asks again.
    dxgkrnl: Dxgkrnl,
    /// The routine that `DxgkCbSynchronizeExecution` runs at the device's level.
    routine: PKSYNCHRONIZE_ROUTINE,
    /// The argument of `routine`: the adapter's handle.
    adapter: Handle,
}

impl InterruptSource {
    /// A source that interrupts by `registers`, or with `None` by `DxgkCbSynchronizeExecution`.
    pub fn new(
        registers: Option<Registers>,
        dxgkrnl: Dxgkrnl,
        routine: PKSYNCHRONIZE_ROUTINE,
        adapter: Handle,
    ) -> Self {
        let (presence, inside) = (AtomicU8::new(THERE), AtomicU32::new(0));
        Self { registers, presence, inside, dxgkrnl, routine, adapter }
    }

    /// Returns whether the device is in D0, or on its way to another state; a driver without a device is told of power
    /// states as any other is. Any IRQL.
    pub fn has_power(&self) -> bool {
        matches!(self.presence.load(Ordering::SeqCst), THERE | SETTLING)
    }

    /// Raises the interrupt for node `node`. On the way to D3 and in it nothing is done, since the caller of
    /// [`wake`](Self::wake) has every node ask again. Returns `false` when it failed, and the engine is to ask again.
    /// `PASSIVE_LEVEL`.
    pub fn raise(&self, node: u32) -> bool {
        let raised = self.touch(|registers| registers.raise(node));
        let later = || matches!(self.presence.load(Ordering::SeqCst), SETTLING | ASLEEP);
        raised.is_some() || later() || self.synchronize()
    }

    /// Reads and acknowledges the bits that the device raised, one per node; 0 when the interrupt is another device's.
    /// Never claims for a device that sleeps or is gone. A device that reads as ones counts as gone from then on.
    pub fn claim(&self, _irql: &Dirql) -> u32 {
        let Some(registers) = self.registers.as_ref() else { return 0 };
        if !self.may_have_raised() {
            return 0;
        }
        match registers.status() {
            0 => 0,
            // There are not that many nodes. The function left, and the OS has not said so yet.
            ABSENT => {
                self.presence.store(GONE, Ordering::SeqCst);
                0
            }
            raised => {
                registers.acknowledge(raised);
                raised
            }
        }
    }

    /// Clears every raised bit, if the device is there and awake. The caller excludes the interrupt routine, which
    /// would otherwise be entered for a bit that is no longer there to be claimed.
    pub fn clear(&self) {
        if let Some(registers) = self.registers.as_ref()
            && self.may_have_raised()
        {
            registers.acknowledge(u32::MAX);
        }
    }

    /// The first step to D1, D2 or D3: nothing is raised any more. Waits for threads that are touching a register;
    /// what they raise is still claimed. `PASSIVE_LEVEL`.
    pub fn settle<P: Platform>(&self, irql: &Passive, platform: &P) {
        let _settling = self.presence.compare_exchange(THERE, SETTLING, Ordering::SeqCst, Ordering::SeqCst);
        self.wait(irql, platform);
    }

    /// The second step, after [`settle`](Self::settle): clears what the device has raised, and notes that it sleeps.
    /// The caller excludes the interrupt routine. What was cleared is reported after [`wake`](Self::wake).
    pub fn sleep(&self) {
        if self.presence.load(Ordering::SeqCst) == SETTLING {
            self.clear();
            let _asleep = self.presence.compare_exchange(SETTLING, ASLEEP, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Notes that the device is in D0, where it has raised nothing since [`sleep`](Self::sleep). The caller has every
    /// node ask for its interrupt again afterwards.
    pub fn wake(&self) {
        for asleep in [ASLEEP, SETTLING] {
            let _woken = self.presence.compare_exchange(asleep, THERE, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Notes that the device is gone for good, and waits for threads that are touching a register. After this only an
    /// interrupt routine that has already begun may still touch one.
    pub fn remove<P: Platform>(&self, irql: &Passive, platform: &P) {
        self.presence.store(GONE, Ordering::SeqCst);
        self.wait(irql, platform);
    }

    /// Returns whether the device is awake, so that registers can tell what it raised.
    fn may_have_raised(&self) -> bool {
        matches!(self.presence.load(Ordering::SeqCst), THERE | SETTLING)
    }

    fn is_there(&self) -> bool {
        self.presence.load(Ordering::SeqCst) == THERE
    }

    /// Waits for threads that looked at the presence before it changed. Blocks between two looks, after some, since
    /// such a thread may need this processor.
    fn wait<P: Platform>(&self, irql: &Passive, platform: &P) {
        platform::until(irql, platform, None, || self.inside.load(Ordering::SeqCst) == 0);
    }

    /// Calls `f` with the registers if the device is there. The thread is counted in `inside` before it looks at the
    /// presence, so that a thread that changes the presence can wait for it.
    fn touch(&self, f: impl FnOnce(&Registers)) -> Option<()> {
        let registers = self.registers.as_ref()?;
        self.inside.fetch_add(1, Ordering::SeqCst);
        let touched = self.is_there().then(|| f(registers));
        self.inside.fetch_sub(1, Ordering::SeqCst);
        touched
    }

    fn synchronize(&self) -> bool {
        self.dxgkrnl.synchronize(self.routine, self.adapter.as_ptr())
    }
}
