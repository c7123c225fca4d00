//! How an engine gets the attention of the OS, and whether there is a device to do it with.
//!
//! A function of the bus may sleep (D3) or be gone (unplugged, taken away). In both it reads as ones and drops what is written,
//! and one that is gone must not be touched at all: the OS may bug-check or hang. So every access outside of the start asks
//! first. What an engine wants to raise in D3 waits in its mailbox for D0; with the device gone the report is made by
//! `DxgkCbSynchronizeExecution`, so that what the OS still waits for while it cleans up arrives.
//!
//! Source: DDI pages DxgkDdiNotifySurpriseRemoval, DxgkDdiSetPowerState, DxgkDdiInterruptRoutine.

use crate::dxgkrnl::Dxgkrnl;
use crate::handle::Handle;
use crate::irql::{Dirql, Passive};
use crate::platform::{Event, Platform};
use crate::registers::Registers;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use wddm_abi::PKSYNCHRONIZE_ROUTINE;

const THERE: u8 = 0;
const ASLEEP: u8 = 1;
const GONE: u8 = 2;

/// What a function that is not there reads as.
const ABSENT: u32 = u32::MAX;

/// A pause in units of 100 ns.
const PAUSE: u64 = 500;

/// The interrupt, in one of two ways.
pub struct InterruptSource {
    /// A PCI function that owns a real interrupt: the reference. `None`: there is no interrupt.
    registers: Option<Registers>,
    /// THERE, ASLEEP or GONE.
    presence: AtomicU8,
    /// Threads that may be touching a register; the interrupt routine is not counted.
    inside: AtomicU32,
    /// Without a device the report is made at the device's level through `DxgkCbSynchronizeExecution`. The documents say that this
    /// may fail when no interrupt is connected; then the engine asks again.
    dxgkrnl: Dxgkrnl,
    /// What runs at the device's level.
    routine: PKSYNCHRONIZE_ROUTINE,
    /// Its argument: the adapter's handle.
    adapter: Handle,
}

impl InterruptSource {
    /// A source over `registers`, or without a device.
    pub fn new(
        registers: Option<Registers>,
        dxgkrnl: Dxgkrnl,
        routine: PKSYNCHRONIZE_ROUTINE,
        adapter: Handle,
    ) -> Self {
        let (presence, inside) = (AtomicU8::new(THERE), AtomicU32::new(0));
        Self { registers, presence, inside, dxgkrnl, routine, adapter }
    }

    /// Raises the interrupt for node `node`; in D3 it is left for [`wake`](Self::wake). `false`: it failed, and is to be asked for
    /// again. `PASSIVE_LEVEL`.
    pub fn raise(&self, node: u32) -> bool {
        let raised = self.touch(|registers| registers.raise(node));
        raised.is_some() || self.presence.load(Ordering::SeqCst) == ASLEEP || self.synchronize()
    }

    /// The bits that the device raised, acknowledged; 0: the interrupt is another device's. Never claims for a device that sleeps
    /// or is gone, and finds out by itself that it is gone.
    pub fn claim(&self, _irql: &Dirql) -> u32 {
        let Some(registers) = self.registers.as_ref().filter(|_| self.is_there()) else { return 0 };
        match registers.status() {
            0 => 0,
            // No node has that many bits. The function left, and the OS has not said so yet.
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

    /// Clears whatever is raised.
    pub fn acknowledge_all(&self) {
        self.touch(|registers| registers.acknowledge(u32::MAX));
    }

    /// The device goes to D1, D2 or D3.
    pub fn sleep<P: Platform>(&self, irql: &Passive, platform: &P) {
        let _asleep = self.presence.compare_exchange(THERE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst);
        self.wait(irql, platform);
    }

    /// The device is in D0. The caller has every node ask again afterwards.
    pub fn wake(&self) {
        let woken = self.presence.compare_exchange(ASLEEP, THERE, Ordering::SeqCst, Ordering::SeqCst);
        if woken.is_ok() {
            self.acknowledge_all();
        }
    }

    /// The device is gone for good. After this only who is in the interrupt routine may still touch a register.
    pub fn remove<P: Platform>(&self, irql: &Passive, platform: &P) {
        self.presence.store(GONE, Ordering::SeqCst);
        self.wait(irql, platform);
    }

    fn is_there(&self) -> bool {
        self.presence.load(Ordering::SeqCst) == THERE
    }

    /// Waits for those who looked before: lets them run, since they may be threads of this processor.
    fn wait<P: Platform>(&self, irql: &Passive, platform: &P) {
        let pause = platform.event(irql);
        while self.inside.load(Ordering::SeqCst) != 0 {
            match &pause {
                Ok(event) => {
                    event.wait(Some(PAUSE));
                }
                Err(_) => platform.relax(),
            }
        }
    }

    /// Touches the registers, if they are there. Counted before it looks, so that who changes the presence can wait.
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
