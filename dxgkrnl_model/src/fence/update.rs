//! Telling drivers about fence values: monitored ones when somebody begins or ends to wait, current ones when the CPU
//! signals.
//!
//! A monitored value is computed and handed over at the device's interrupt level under the interrupt's lock, so that the
//! last update is the newest one and no signal's interrupt lies in between; whoever asked looks at the current value
//! afterwards. Kernel addresses are windows that close when the call returns.
//!
//! Source: DDI pages DxgkDdiUpdateMonitoredValues, DxgkDdiUpdateCurrentValuesFromCpu; article native-gpu-fence-objects.
//!
//! Chosen: an intra-GPU fence, of which the CPU knows no address, gets `AlwaysSignaled` with a NULL one. `AlwaysSignaled` comes with the value 0xFFFFFFFF_FFFFFFFF (the page writes 0xFFFFFFFF); whether the driver stores
//! it is not judged, but no later store is allowed. With several adapters the one of the device that signals writes, the
//! others get `NotificationOnly`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use wddm_abi::{DXGKARG_UPDATECURRENTVALUESFROMCPU, DXGKARG_UPDATEMONITOREDVALUES, HANDLE, NTSTATUS, ntstatus};

use super::native::{FenceOnAdapter, NativeFence};
use crate::adapter::Adapter;
use crate::ddi::{self, call_ddi};
use crate::rules::fence::{
    NF_CURRENT_STATUS, NF_CURRENT_UNTOUCHED, NF_CURRENT_WRITTEN, NF_MONITORED_STATUS, NF_MONITORED_WRITTEN,
};

/// Brings the monitored values of a fence up to who waits.
///
/// IRQL: at most DISPATCH_LEVEL.
pub(super) fn set_monitored(fence: &NativeFence) {
    for on in fence.adapters() {
        if on.is_open() && on.monitored.load(Ordering::Acquire) != fence.wanted_monitored() {
            set_monitored_on(fence, &on);
        }
    }
}

fn set_monitored_on(fence: &NativeFence, on: &FenceOnAdapter) {
    let adapter = on.adapter();
    let update = || {
        let value = fence.wanted_monitored();
        if on.monitored.swap(value, Ordering::AcqRel) == value || !on.is_open() {
            return;
        }
        let (pages, offset) = on.slot().place();
        let Some((at, object)) = on.slot().monitored().zip(pages.monitored.object()) else { return };
        let Some(window) = adapter.windows.open(adapter, object, true) else { return };
        let mut handles: [HANDLE; 1] = [core::ptr::with_exposed_provenance_mut(on.driver_handle())];
        let mut values = [value];
        let mut addresses = [core::ptr::with_exposed_provenance_mut(window + offset)];
        let mut arguments = DXGKARG_UPDATEMONITOREDVALUES::zeroed();
        arguments.NativeFenceArray = handles.as_mut_ptr();
        arguments.UpdatedValueArray = values.as_mut_ptr();
        arguments.MonitoredValueKernelCpuVa = addresses.as_mut_ptr();
        arguments.NumFences = 1;
        arguments.Reserved.fill(adapter.personality().faults.reserved);
        let pointer = &raw const arguments;
        let status = ddi::status(call_ddi!(adapter, DxgkDdiUpdateMonitoredValues(pointer)));
        let written = crate::raw::load(at);
        adapter.windows.close(window);
        let stopped = status == ntstatus::STATUS_SYSTEM_SHUTDOWN;
        adapter.rules().check(&NF_MONITORED_STATUS, status.is_success() || stopped, || format!("{status:?}"));
        if status.is_success() {
            adapter.rules().check(&NF_MONITORED_WRITTEN, written == value, || {
                format!("{value:#x} was to be written, {written:#x} is there")
            });
        }
    };
    // Without a connected interrupt the adapter is not started, and nobody's signal is in between.
    let _ = crate::interrupt::synchronize(adapter, update);
}

/// A fence and its new current value.
pub(crate) type Signal = (Arc<NativeFence>, u64);

/// Signals one fence from the CPU, on every adapter that knows it; `from` is the adapter of whoever signals.
///
/// IRQL: at most DISPATCH_LEVEL.
///
/// # Errors
/// What a driver returned.
pub(super) fn set_current(fence: &NativeFence, value: u64, from: &Adapter) -> Result<(), NTSTATUS> {
    let mut parts = fence.adapters();
    let first = parts.iter().position(|on| core::ptr::eq(Arc::as_ptr(on.adapter()), from));
    if let Some(first) = first {
        parts.swap(0, first);
    }
    let mut result = Ok(());
    for (index, on) in parts.iter().enumerate() {
        let entry = Entry { fence, on, value };
        let how = if index == 0 { How::Write } else { How::Notify };
        result = result.and(call(on.adapter(), &[entry], how));
    }
    fence.told(from.kernel(), value);
    result
}

/// Tells the drivers that a fence's value was written: all that know it, or all but one.
///
/// IRQL: at most DISPATCH_LEVEL.
pub(super) fn notify(fence: &NativeFence, but: Option<&Adapter>) {
    for on in fence.adapters() {
        if but.is_none_or(|but| !core::ptr::eq(Arc::as_ptr(on.adapter()), but)) {
            let entry = Entry { fence, on: &on, value: fence.value() };
            // A driver that fails has broken DXG-NF-CURRENT-STATUS.
            let _ = call(on.adapter(), &[entry], How::Notify);
        }
    }
}

/// Signals several fences of one adapter in one call of the driver.
///
/// IRQL: at most DISPATCH_LEVEL.
///
/// # Errors
/// What a driver returned.
pub(crate) fn set_current_batch(adapter: &Arc<Adapter>, signals: &[Signal]) -> Result<(), NTSTATUS> {
    let parts: Vec<_> = signals.iter().map(|(fence, value)| (fence, fence.adapters(), *value)).collect();
    let mut batch = Vec::new();
    let mut result = Ok(());
    for (fence, adapters, value) in &parts {
        match adapters.as_slice() {
            [on] if Arc::ptr_eq(on.adapter(), adapter) && !fence.is_cross_adapter() => {
                batch.push(Entry { fence, on, value: *value })
            }
            _ => result = result.and(set_current(fence, *value, adapter)),
        }
    }
    if batch.is_empty() { result } else { result.and(call(adapter, &batch, How::Write)) }
}

/// Tells every driver that a fence's device is lost.
pub(super) fn set_always_signaled(fence: &NativeFence) {
    for on in fence.adapters() {
        let entry = Entry { fence, on: &on, value: u64::MAX };
        let _ = call(on.adapter(), &[entry], How::Dead);
    }
}

struct Entry<'a> {
    fence: &'a NativeFence,
    on: &'a Arc<FenceOnAdapter>,
    value: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Write,
    Notify,
    Dead,
}

fn call(adapter: &Adapter, entries: &[Entry<'_>], how: How) -> Result<(), NTSTATUS> {
    let begun: Vec<_> = entries.iter().filter(|entry| entry.on.begin_update()).collect();
    let result = call_begun(adapter, &begun, how);
    for entry in begun {
        entry.on.end_update();
    }
    result
}

fn call_begun(adapter: &Adapter, live: &[&Entry<'_>], how: How) -> Result<(), NTSTATUS> {
    let mut windows = Vec::new();
    for entry in live {
        let (pages, _) = entry.on.slot().place();
        // The kernel has no address of an intra-GPU fence, wherever it is.
        let object = pages.current.object().filter(|_| !entry.fence.is_intra_gpu());
        match object.map(|object| adapter.windows.open(adapter, object, how != How::Notify)) {
            Some(None) => break,
            opened => windows.push(opened.flatten()),
        }
    }
    let live = &live[..windows.len()];
    if live.is_empty() {
        return Ok(());
    }
    let mut handles: Vec<HANDLE> =
        live.iter().map(|entry| core::ptr::with_exposed_provenance_mut(entry.on.driver_handle())).collect();
    let mut values: Vec<_> = live.iter().map(|entry| entry.value).collect();
    let at = |(entry, window): (&&Entry<'_>, &Option<usize>)| {
        core::ptr::with_exposed_provenance_mut(window.map_or(0, |window| window + entry.on.slot().place().1))
    };
    let mut addresses: Vec<_> = live.iter().zip(&windows).map(at).collect();
    let before: Vec<_> = live.iter().map(|entry| entry.fence.value()).collect();
    let mut arguments = DXGKARG_UPDATECURRENTVALUESFROMCPU::zeroed();
    arguments.NativeFenceArray = handles.as_mut_ptr();
    arguments.UpdatedValueArray = values.as_mut_ptr();
    arguments.CurrentValueKernelCpuVa = addresses.as_mut_ptr();
    // CAST: at most as many as there are windows.
    arguments.NumFences = live.len() as u32;
    arguments.Reserved.fill(adapter.personality().faults.reserved);
    arguments.Flags.set_NotificationOnly(how == How::Notify);
    arguments.Flags.set_AlwaysSignaled(how == How::Dead);
    let pointer = &raw const arguments;
    let status = ddi::status(call_ddi!(adapter, DxgkDdiUpdateCurrentValuesFromCpu(pointer)));
    for window in windows.into_iter().flatten() {
        adapter.windows.close(window);
    }
    let stopped = status == ntstatus::STATUS_SYSTEM_SHUTDOWN;
    adapter.rules().check(&NF_CURRENT_STATUS, status.is_success() || stopped, || format!("{status:?}"));
    if !status.is_success() {
        return Err(status);
    }
    for (entry, before) in live.iter().zip(before) {
        judge(adapter, entry, before, how);
    }
    Ok(())
}

fn judge(adapter: &Adapter, entry: &Entry<'_>, before: u64, how: How) {
    let now = entry.fence.value();
    match how {
        // The GPU may have signalled a later value meanwhile.
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
pub(crate) fn scan_native(adapter: &Adapter) {
    adapter.shared().counters.fence_scan();
    for on in adapter.native_fences() {
        if let Some(fence) = on.fence() {
            fence.looked_at_on(adapter.kernel(), adapter);
        }
    }
}
