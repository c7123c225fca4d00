//! Telling drivers about fence values: monitored ones when somebody begins or ends to wait, current ones when the CPU
//! signals.
//!
//! A monitored value is computed and handed over at the device's interrupt level under the interrupt's lock, so that
//! the last update is the newest one and no signal's interrupt lies in between; the asking thread looks at the current
//! value afterwards. Kernel addresses are windows that close when the call returns.
//!
//! Source: DDI pages DxgkDdiUpdateMonitoredValues, DxgkDdiUpdateCurrentValuesFromCpu; article native-gpu-fence-objects.
//!
//! Chosen: an intra-GPU fence, of which the CPU knows no address, gets `AlwaysSignaled` with a NULL one.
//! `AlwaysSignaled` comes with the value 0xFFFFFFFF_FFFFFFFF (the page writes 0xFFFFFFFF); whether the driver stores it
//! is not judged, but no later store is allowed. With several adapters the one of the device that signals writes, the
//! others get `NotificationOnly`. Several values for one fence in one call of a thunk stay in their order, and the last
//! one counts.

use core::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nt_model::Rule;
use wddm_abi::{DXGKARG_UPDATECURRENTVALUESFROMCPU, DXGKARG_UPDATEMONITOREDVALUES, HANDLE, NTSTATUS, ntstatus};

use super::native::{FenceOnAdapter, NativeFence};
use crate::memory::fence::window::Windows;
use crate::port::ddi::{self, call_ddi};
use crate::port::miniport::Miniport;
use crate::port::rules::fence::{
    NF_CURRENT_STATUS, NF_CURRENT_UNTOUCHED, NF_CURRENT_WRITTEN, NF_MONITORED_STATUS, NF_MONITORED_WRITTEN,
};

/// Fences of one update of monitored values, at most.
const BATCH: usize = 16;

/// Brings the monitored values of fences up to who waits: one call of each driver for many of them.
///
/// IRQL: at most DISPATCH_LEVEL.
pub(super) fn set_monitored(fences: &[&NativeFence]) {
    set_monitored_to(fences, NativeFence::wanted_monitored);
}

/// Writes a monitored value of a fence that is no waiter's: what a thread asked for that began to wait, and that lost
/// its processor until the value had been reached.
pub(crate) fn set_monitored_late(fence: &NativeFence, value: u64) {
    set_monitored_to(&[fence], |_| value);
}

/// Brings the monitored values of fences to what `wanted` says.
fn set_monitored_to(fences: &[&NativeFence], wanted: impl Fn(&NativeFence) -> u64 + Copy) {
    let mut driver_fences: Vec<(&NativeFence, Arc<FenceOnAdapter>)> = Vec::new();
    for fence in fences {
        let behind = |driver_fence: &Arc<FenceOnAdapter>| {
            driver_fence.is_open() && driver_fence.monitored.load(Ordering::Acquire) != wanted(fence)
        };
        driver_fences
            .extend(fence.driver_fences().into_iter().filter(behind).map(|driver_fence| (*fence, driver_fence)));
    }
    while let Some(adapter) = driver_fences.first().map(|(_, driver_fence)| driver_fence.adapter().clone()) {
        let here: Vec<_> =
            driver_fences.extract_if(.., |(_, driver_fence)| Arc::ptr_eq(driver_fence.adapter(), &adapter)).collect();
        for batch in here.chunks(BATCH) {
            // Without a connected interrupt the adapter is not started, and nobody's signal is in between.
            let _ = crate::port::section::synchronize(&adapter, || set_monitored_on(&adapter, batch, wanted));
        }
    }
}

/// A fence in an update of monitored values.
struct NewMonitored<'a> {
    driver_fence: &'a FenceOnAdapter,
    value: u64,
    /// Where the model sees it.
    at: usize,
    /// The window that it is shown in.
    window: usize,
}

fn set_monitored_on(
    adapter: &Miniport,
    driver_fences: &[(&NativeFence, Arc<FenceOnAdapter>)],
    wanted: impl Fn(&NativeFence) -> u64,
) {
    let mut updates: Vec<NewMonitored<'_>> = Vec::new();
    for (fence, driver_fence) in driver_fences {
        let value = wanted(fence);
        if driver_fence.monitored.load(Ordering::Acquire) == value || !driver_fence.is_open() {
            continue;
        }
        let Some((at, object)) = driver_fence.slot().monitored().zip(driver_fence.slot().place().0.monitored.object())
        else {
            continue;
        };
        // Whoever waits looks again; it is told next time.
        let Some(window) = Windows::of(adapter).open(adapter, object, true) else { break };
        driver_fence.monitored.store(value, Ordering::Release);
        fence.note_monitored(value);
        updates.push(NewMonitored { driver_fence, value, at, window });
    }
    if updates.is_empty() {
        return;
    }
    let mut batch = Batch::new(adapter);
    for update in &updates {
        batch.push(
            update.driver_fence.driver_handle(),
            update.value,
            update.window + update.driver_fence.slot().place().1,
        );
    }
    batch.close();
    let mut arguments = DXGKARG_UPDATEMONITOREDVALUES::zeroed();
    arguments.NativeFenceArray = batch.handles.as_mut_ptr();
    arguments.UpdatedValueArray = batch.values.as_mut_ptr();
    arguments.MonitoredValueKernelCpuVa = batch.addresses.as_mut_ptr();
    arguments.NumFences = batch.count();
    arguments.Reserved.fill(adapter.personality().faults.reserved);
    arguments.Flags.Value = adapter.personality().faults.reserved_flags(0);
    let pointer = &raw const arguments;
    let status = ddi::status(call_ddi!(adapter, DxgkDdiUpdateMonitoredValues(pointer)));
    let written: Vec<_> = updates.iter().map(|update| crate::port::raw::load(update.at)).collect();
    for update in &updates {
        Windows::of(adapter).close(update.window);
    }
    let carried_out = batch.judge(adapter, &NF_MONITORED_STATUS, status);
    for (update, written) in updates.iter().zip(written).filter(|_| carried_out) {
        adapter.rules().check(&NF_MONITORED_WRITTEN, written == update.value, || {
            format!("{:#x} was to be written, {written:#x} is there", update.value)
        });
    }
}

/// The arrays of an update.
struct Batch<'a> {
    adapter: &'a Miniport,
    handles: Vec<HANDLE>,
    values: Vec<u64>,
    addresses: Vec<*mut c_void>,
    /// It has an entry that names nothing: see [`crate::port::personality::FaultPlan::stray_fences`].
    is_strayed: bool,
}

impl<'a> Batch<'a> {
    fn new(adapter: &'a Miniport) -> Self {
        let is_strayed = adapter.personality().faults.stray_fences;
        let mut batch = Self { adapter, handles: Vec::new(), values: Vec::new(), addresses: Vec::new(), is_strayed };
        batch.stray();
        batch
    }

    fn push(&mut self, handle: usize, value: u64, address: usize) {
        self.handles.push(crate::port::handle::of_driver(handle));
        self.values.push(value);
        self.addresses.push(core::ptr::with_exposed_provenance_mut(address));
    }

    /// Everything is in it.
    fn close(&mut self) {
        self.stray();
    }

    /// With such faults: a handle that named a fence once, or never.
    fn stray(&mut self) {
        if self.is_strayed {
            let dead = FenceOnAdapter::dead_of(self.adapter);
            self.push(if dead == 0 { 0x0BAD_0FE8 } else { dead }, 0xBAD, 0);
        }
    }

    fn count(&self) -> u32 {
        // CAST: at most the fences of one call, and two.
        self.handles.len() as u32
    }

    /// Returns whether the values are to be there. Of a batch with strays no status is judged: no page says what a
    /// driver returns for an entry that names nothing, and no Windows passes one. The values of the other entries are
    /// judged.
    fn judge(&self, adapter: &Miniport, rule: &'static Rule, status: NTSTATUS) -> bool {
        let stopped = status == ntstatus::STATUS_SYSTEM_SHUTDOWN;
        if self.is_strayed {
            return !stopped;
        }
        adapter.rules().check(rule, status.is_success() || stopped, || format!("{status:?}"));
        status.is_success()
    }
}

/// Signals fences from the CPU, on every adapter that knows them; `from` is the adapter of the device that signals: its
/// driver writes the values, the others are notified, each of them in one call.
///
/// IRQL: at most DISPATCH_LEVEL.
///
/// # Errors
/// What a driver returned.
pub(crate) fn set_current(from: &Miniport, signals: &[(&NativeFence, u64)]) -> Result<(), NTSTATUS> {
    let known: Vec<_> = signals.iter().map(|(fence, value)| (*fence, fence.driver_fences(), *value)).collect();
    let (mut writes, mut notes) = (Vec::new(), Vec::new());
    for (fence, driver_fences, value) in &known {
        let writer = driver_fences
            .iter()
            .position(|driver_fence| core::ptr::eq(Arc::as_ptr(driver_fence.adapter()), from))
            .unwrap_or(0);
        for (at, driver_fence) in driver_fences.iter().enumerate() {
            let to = if at == writer { &mut writes } else { &mut notes };
            to.push(Entry { fence, driver_fence, value: *value });
        }
    }
    for (fence, value) in signals {
        fence.tells(*value);
    }
    let result = call_each(writes, How::Write);
    let result = result.and(call_each(notes, How::Notify));
    for (fence, value) in signals {
        fence.told(from.kernel(), *value);
    }
    result
}

/// Tells the drivers that fences' values were written: all that know them, or all but one; each in one call.
///
/// IRQL: at most DISPATCH_LEVEL.
pub(super) fn notify(fences: &[&NativeFence], but: Option<&Miniport>) {
    let known: Vec<_> = fences.iter().map(|fence| (*fence, fence.driver_fences())).collect();
    let mut entries = Vec::new();
    for (fence, driver_fences) in &known {
        let others = driver_fences
            .iter()
            .filter(|driver_fence| but.is_none_or(|but| !core::ptr::eq(Arc::as_ptr(driver_fence.adapter()), but)));
        entries.extend(others.map(|driver_fence| Entry { fence, driver_fence, value: fence.value() }));
    }
    // A driver that fails has broken DXG-NF-CURRENT-STATUS.
    let _ = call_each(entries, How::Notify);
}

/// One call of each driver, in the order of the entries.
fn call_each(mut entries: Vec<Entry<'_>>, how: How) -> Result<(), NTSTATUS> {
    let mut result = Ok(());
    while let Some(adapter) = entries.first().map(|entry| entry.driver_fence.adapter().clone()) {
        let here: Vec<_> =
            entries.extract_if(.., |entry| Arc::ptr_eq(entry.driver_fence.adapter(), &adapter)).collect();
        result = result.and(call(&adapter, &here, how));
    }
    result
}

/// Tells every driver that a fence's device is lost.
pub(super) fn set_always_signaled(fence: &NativeFence) {
    for driver_fence in fence.driver_fences() {
        let entry = Entry { fence, driver_fence: &driver_fence, value: u64::MAX };
        let _ = call(driver_fence.adapter(), &[entry], How::Dead);
    }
}

struct Entry<'a> {
    fence: &'a NativeFence,
    driver_fence: &'a Arc<FenceOnAdapter>,
    value: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Write,
    Notify,
    Dead,
}

fn call(adapter: &Miniport, entries: &[Entry<'_>], how: How) -> Result<(), NTSTATUS> {
    let begun: Vec<_> = entries.iter().filter(|entry| entry.driver_fence.begin_update()).collect();
    let mut rest = begun.as_slice();
    let mut result = Ok(());
    while !rest.is_empty() {
        let (done, of_some) = call_begun(adapter, rest, how);
        result = result.and(of_some);
        if done == 0 {
            break;
        }
        rest = rest.get(done..).unwrap_or_default();
    }
    for entry in begun {
        entry.driver_fence.end_update();
    }
    result
}

/// One call, for as many as there are windows; how many.
fn call_begun(adapter: &Miniport, live: &[&Entry<'_>], how: How) -> (usize, Result<(), NTSTATUS>) {
    let mut windows = Vec::new();
    for entry in live {
        let (pages, _) = entry.driver_fence.slot().place();
        // The kernel has no address of an intra-GPU fence, wherever it is.
        let object = pages.current.object().filter(|_| !entry.fence.is_intra_gpu());
        match object.map(|object| Windows::of(adapter).open(adapter, object, how != How::Notify)) {
            Some(None) => break,
            opened => windows.push(opened.flatten()),
        }
    }
    let live = &live[..windows.len()];
    if live.is_empty() {
        return (0, Ok(()));
    }
    let before: Vec<_> = live.iter().map(|entry| entry.fence.value()).collect();
    let mut batch = Batch::new(adapter);
    for (entry, window) in live.iter().zip(&windows) {
        let address = window.map_or(0, |window| window + entry.driver_fence.slot().place().1);
        batch.push(entry.driver_fence.driver_handle(), entry.value, address);
    }
    batch.close();
    let mut arguments = DXGKARG_UPDATECURRENTVALUESFROMCPU::zeroed();
    arguments.NativeFenceArray = batch.handles.as_mut_ptr();
    arguments.UpdatedValueArray = batch.values.as_mut_ptr();
    arguments.CurrentValueKernelCpuVa = batch.addresses.as_mut_ptr();
    arguments.NumFences = batch.count();
    arguments.Reserved.fill(adapter.personality().faults.reserved);
    arguments.Flags.Value = adapter.personality().faults.reserved_flags(0b11);
    arguments.Flags.set_NotificationOnly(how == How::Notify);
    arguments.Flags.set_AlwaysSignaled(how == How::Dead);
    let pointer = &raw const arguments;
    let status = ddi::status(call_ddi!(adapter, DxgkDdiUpdateCurrentValuesFromCpu(pointer)));
    for window in windows.into_iter().flatten() {
        Windows::of(adapter).close(window);
    }
    if !batch.judge(adapter, &NF_CURRENT_STATUS, status) {
        return (live.len(), Err(status));
    }
    for (index, (entry, before)) in live.iter().zip(before).enumerate() {
        // Of several values for one fence the last one stays.
        let is_last = live[index + 1..].iter().all(|later| !Arc::ptr_eq(later.driver_fence, entry.driver_fence));
        if is_last {
            judge(adapter, entry, before, how);
        }
    }
    (live.len(), Ok(()))
}

fn judge(adapter: &Miniport, entry: &Entry<'_>, before: u64, how: How) {
    let now = entry.fence.value();
    match how {
        // A fence of a lost device, which this thread may not have known yet, keeps its value: DXG-NF-WRITE-AFTER.
        How::Write if entry.fence.is_always_signaled() => (),
        // The GPU may have signaled a later value meanwhile.
        How::Write => {
            let written = now == entry.value || (now != before && now > entry.value);
            adapter.rules().check(&NF_CURRENT_WRITTEN, written, || {
                format!("{:#x} was to be written over {before:#x}, {now:#x} is there", entry.value)
            });
        }
        How::Notify => {
            adapter
                .rules()
                .check(&NF_CURRENT_UNTOUCHED, now >= before, || format!("{now:#x} was written over {before:#x}"));
        }
        How::Dead => entry.fence.note_dead_value(now),
    }
}

/// Looks at every native fence of an adapter.
///
/// IRQL: at most DISPATCH_LEVEL.
pub(crate) fn scan_native(adapter: &Miniport) {
    adapter.shared().counters.fence_scan();
    let fences = FenceOnAdapter::all_of(adapter).iter().filter_map(|driver_fence| driver_fence.fence()).collect();
    NativeFence::looked_at_on(adapter.kernel(), adapter, fences);
}
