//! What runs at the device's level, under the interrupt's lock of an adapter: its interrupt routine, and what is
//! synchronized with it.

use std::cell::Cell;
use std::sync::Arc;

use nt_model::Dpc;

use crate::port::miniport::Miniport;
use crate::port::rules::interrupt::INT_DPC;
use crate::port::sync::{Lock, Rank};

/// What the calling thread is doing at the device's level.
#[derive(Clone, Copy, Debug, Default)]
struct Section {
    /// Address of the adapter whose interrupt lock the thread holds.
    adapter: usize,
    /// Inside `DxgkDdiInterruptRoutine`, as opposed to a synchronized routine.
    in_isr: bool,
    /// DxgkCbNotifyInterrupt was called and no DPC was queued since.
    owes_dpc: bool,
    /// The interrupt message that it runs for.
    message: u32,
}

thread_local! {
    static SECTION: Cell<Section> = const { Cell::new(Section { adapter: 0, in_isr: false, owes_dpc: false, message: 0 }) };
}

/// Whether the calling thread is inside a driver's interrupt routine.
pub(crate) fn in_isr() -> bool {
    SECTION.with(|section| section.get().in_isr)
}

/// The DPC of an adapter, while its interrupt is connected.
struct TheDpc(Lock<Option<Arc<Dpc>>>);

impl Default for TheDpc {
    fn default() -> Self {
        Self(Lock::new(Rank::Leaf, None))
    }
}

/// Enters the DPC of an adapter, or takes it out.
pub(crate) fn set_dpc(adapter: &Miniport, dpc: Option<Arc<Dpc>>) {
    let TheDpc(slot) = adapter.extension();
    let old = std::mem::replace(&mut *slot.lock(), dpc);
    drop(old);
}

/// `DxgkCbQueueDpc`: false when one is queued already.
pub(crate) fn queue_dpc(adapter: &Miniport) -> bool {
    SECTION.with(|section| section.set(Section { owes_dpc: false, ..section.get() }));
    let TheDpc(slot) = adapter.extension();
    let dpc = slot.lock().clone();
    dpc.is_some_and(|dpc| adapter.kernel().insert_queue_dpc(dpc.as_kdpc(), 0, 0))
}

/// The calling thread has notified of an interrupt; `owes`: it queues a DPC before it returns.
pub(crate) fn note_notified(owes: bool) {
    SECTION.with(|section| section.set(Section { owes_dpc: owes, ..section.get() }));
}

/// The interrupt message that the calling thread runs for.
pub(crate) fn message() -> u32 {
    SECTION.with(|section| section.get().message)
}

/// Whether the calling thread runs at the device's level under the adapter's interrupt lock.
pub(crate) fn is_synchronized(adapter: &Miniport) -> bool {
    SECTION.with(|section| section.get().adapter) == core::ptr::from_ref(adapter).addr()
}

/// The calling thread holds the adapter's interrupt lock while `f` runs.
pub(crate) fn in_section<R>(adapter: &Miniport, in_isr: bool, message: u32, f: impl FnOnce() -> R) -> R {
    let address = core::ptr::from_ref(adapter).addr();
    let old = SECTION.with(|section| section.replace(Section { adapter: address, in_isr, owes_dpc: false, message }));
    let result = f();
    let now = SECTION.with(|section| section.replace(old));
    adapter.rules().check(&INT_DPC, !now.owes_dpc, || {
        let routine = if in_isr { "DxgkDdiInterruptRoutine" } else { "the synchronized routine" };
        format!("{routine} returned after DxgkCbNotifyInterrupt without DxgkCbQueueDpc")
    });
    if now.owes_dpc {
        // A collected violation: what was notified is worked off all the same.
        queue_dpc(adapter);
    }
    result
}

/// Runs `f` at the device's level, excluding the interrupt routine.
///
/// IRQL: at most DISPATCH_LEVEL. `None`: no interrupt is connected.
pub(crate) fn synchronize<R>(adapter: &Miniport, f: impl FnOnce() -> R) -> Option<R> {
    let interrupt = adapter.device.connection()?;
    crate::port::sync::assert_free("KeSynchronizeExecution");
    Some(adapter.kernel().synchronize(&interrupt, || in_section(adapter, false, 0, f)))
}
