//! Native fences: batches of values, storage, private data, logs.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use super::{number, pointer};
use core::ffi::c_void;
use core::ops::BitXorAssign;
use fencepost::wrap::{array, copy, decorate, own, record};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use wddm_abi::ntstatus::{STATUS_NOT_SUPPORTED, STATUS_SUCCESS};
use wddm_abi::{
    D3DDDI_NATIVEFENCE_TYPE as Kind, D3DKMDT_STANDARDALLOCATION_TYPE as Standard, DRIVER_INITIALIZATION_DATA,
    DXGK_NATIVE_FENCE_LOG_ENTRY, DXGK_NATIVE_FENCE_LOG_HEADER, DXGKARG_CLOSENATIVEFENCE, DXGKARG_CREATEHWQUEUE,
    DXGKARG_CREATENATIVEFENCE, DXGKARG_DESTROYNATIVEFENCE, DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA,
    DXGKARG_OPENNATIVEFENCE, DXGKARG_SETNATIVEFENCELOGBUFFER, DXGKARG_UPDATECURRENTVALUESFROMCPU,
    DXGKARG_UPDATEMONITOREDVALUES, DXGKARG_UPDATENATIVEFENCELOGS, HANDLE, NTSTATUS,
};

/// The driver's handle of each fence, by that of its openings.
static OPENED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());
/// The driver's handles of fences that are destroyed before the OS has asked for it.
static DESTROYED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
/// The address that each fence's MonitoredValue had in the call before, by the driver's handle.
static KEPT: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());
/// Where each fence's CurrentValue was opened last, by the driver's handle.
static ADDRESSES: Mutex<BTreeMap<usize, u64>> = Mutex::new(BTreeMap::new());
/// Logs that were set, with where they are: by the queue, and the type in the log's header.
static LOGS: Mutex<BTreeMap<(usize, i32), usize>> = Mutex::new(BTreeMap::new());

fn locked<T, R>(of: &Mutex<T>, f: impl FnOnce(&mut T) -> R) -> R {
    f(&mut of.lock().unwrap_or_else(PoisonError::into_inner))
}

/// An entry of a batch as a batch of its own.
macro_rules! each {
    ($args:expr, $word:ident, |$entry:ident| $body:expr) => {{
        let batch = copy!($args);
        for at in 0..batch.NumFences as usize {
            let mut $entry = batch;
            $entry.NumFences = 1;
            $entry.NativeFenceArray = batch.NativeFenceArray.wrapping_add(at);
            $entry.UpdatedValueArray = batch.UpdatedValueArray.wrapping_add(at);
            $entry.$word = batch.$word.wrapping_add(at);
            $body
        }
    }};
}

/// A word that the OS has mapped.
fn word(at: *mut c_void) -> &'static AtomicU64 {
    // SAFETY: an aligned word, which the model keeps mapped for as long as the machine is there.
    unsafe { AtomicU64::from_ptr(at.cast()) }
}

decorate! {
    /// For [`believes_progress_handle`]: keeps the addresses of fences.
    keeps_addresses: DxgkDdiOpenNativeFence(adapter: HANDLE, args: *mut DXGKARG_OPENNATIVEFENCE) -> NTSTATUS {
        let opened = copy!(args);
        locked(&ADDRESSES, |known| known.insert(number(opened.hGlobalNativeFence), opened.CurrentValueGpuVa));
        own!(DxgkDdiOpenNativeFence(adapter, args))
    }

    /// For [`believes_progress_handle`]: the handle at offset 24 says where the progress fence is.
    goes_by_handle: DxgkDdiCreateHwQueue(context: HANDLE, args: *mut DXGKARG_CREATEHWQUEUE) -> NTSTATUS {
        let mut mine = copy!(args);
        let named = copy!(args.cast::<[usize; 4]>())[3];
        if let Some(address) = locked(&ADDRESSES, |known| known.get(&named).copied()) {
            mine.HwQueueProgressFenceGPUVirtualAddress = address;
        }
        let status = own!(DxgkDdiCreateHwQueue(context, &raw mut mine));
        record!(args).hHwQueue = mine.hHwQueue;
        status
    }

    /// MonitoredValue is only ever raised, never lowered.
    monitored_only_raised: DxgkDdiUpdateMonitoredValues(args: *const DXGKARG_UPDATEMONITOREDVALUES) -> NTSTATUS {
        let mut last = STATUS_SUCCESS;
        each!(args, MonitoredValueKernelCpuVa, |entry| {
            let at = copy!(entry.MonitoredValueKernelCpuVa);
            if word(at).load(Ordering::SeqCst) <= copy!(entry.UpdatedValueArray) {
                last = own!(DxgkDdiUpdateMonitoredValues(&raw const entry));
            }
        });
        last
    }

    /// UpdateMonitoredValues fails.
    fails_monitored_update: DxgkDdiUpdateMonitoredValues(_args: *const DXGKARG_UPDATEMONITOREDVALUES) -> NTSTATUS {
        STATUS_NOT_SUPPORTED
    }

    /// UpdateCurrentValuesFromCpu fails.
    fails_current_update: DxgkDdiUpdateCurrentValuesFromCpu(
        _args: *const DXGKARG_UPDATECURRENTVALUESFROMCPU,
    ) -> NTSTATUS {
        STATUS_NOT_SUPPORTED
    }

    /// UpdateMonitoredValues stores to the addresses of the call before.
    keeps_kernel_va: DxgkDdiUpdateMonitoredValues(args: *const DXGKARG_UPDATEMONITOREDVALUES) -> NTSTATUS {
        each!(args, MonitoredValueKernelCpuVa, |entry| {
            let (fence, at) = (copy!(entry.NativeFenceArray), copy!(entry.MonitoredValueKernelCpuVa));
            let before = locked(&KEPT, |kept| kept.insert(number(fence), number(at)));
            if let Some(before) = before {
                word(pointer(before)).store(0, Ordering::SeqCst);
            }
        });
        own!(DxgkDdiUpdateMonitoredValues(args))
    }

    /// UpdateMonitoredValues stops at the first handle that names nothing.
    monitored_stops: DxgkDdiUpdateMonitoredValues(args: *const DXGKARG_UPDATEMONITOREDVALUES) -> NTSTATUS {
        each!(args, MonitoredValueKernelCpuVa, |entry| {
            let status = own!(DxgkDdiUpdateMonitoredValues(&raw const entry));
            if !status.is_success() {
                return status;
            }
        });
        STATUS_SUCCESS
    }

    /// As [`monitored_stops`].
    current_stops: DxgkDdiUpdateCurrentValuesFromCpu(args: *const DXGKARG_UPDATECURRENTVALUESFROMCPU) -> NTSTATUS {
        each!(args, CurrentValueKernelCpuVa, |entry| {
            let status = own!(DxgkDdiUpdateCurrentValuesFromCpu(&raw const entry));
            if !status.is_success() {
                return status;
            }
        });
        STATUS_SUCCESS
    }

    /// UpdateMonitoredValues carries out the first of a batch only.
    first_monitored: DxgkDdiUpdateMonitoredValues(args: *const DXGKARG_UPDATEMONITOREDVALUES) -> NTSTATUS {
        let mut batch = copy!(args);
        batch.NumFences = batch.NumFences.min(1);
        own!(DxgkDdiUpdateMonitoredValues(&raw const batch))
    }

    /// As [`first_monitored`].
    first_current: DxgkDdiUpdateCurrentValuesFromCpu(args: *const DXGKARG_UPDATECURRENTVALUESFROMCPU) -> NTSTATUS {
        let mut batch = copy!(args);
        batch.NumFences = batch.NumFences.min(1);
        own!(DxgkDdiUpdateCurrentValuesFromCpu(&raw const batch))
    }

    /// NotificationOnly writes CurrentValue all the same.
    notification_writes: DxgkDdiUpdateCurrentValuesFromCpu(
        args: *const DXGKARG_UPDATECURRENTVALUESFROMCPU,
    ) -> NTSTATUS {
        let mut batch = copy!(args);
        batch.Flags.set_NotificationOnly(false);
        own!(DxgkDdiUpdateCurrentValuesFromCpu(&raw const batch))
    }

    /// A signal from the CPU is stored, and the queue of a wait is not woken.
    no_wake_from_cpu: DxgkDdiUpdateCurrentValuesFromCpu(args: *const DXGKARG_UPDATECURRENTVALUESFROMCPU) -> NTSTATUS {
        let batch = copy!(args);
        if !batch.Flags.AlwaysSignaled() && !batch.Flags.NotificationOnly() {
            let words = array!(batch.CurrentValueKernelCpuVa, batch.NumFences);
            for (at, value) in words.iter().zip(array!(batch.UpdatedValueArray, batch.NumFences)) {
                word(*at).store(*value, Ordering::SeqCst);
            }
            return STATUS_SUCCESS;
        }
        own!(DxgkDdiUpdateCurrentValuesFromCpu(args))
    }

    /// The private data of a fence is scribbled over.
    scribbles_private_data: DxgkDdiCreateNativeFence(
        adapter: HANDLE,
        args: *mut DXGKARG_CREATENATIVEFENCE,
    ) -> NTSTATUS {
        let status = own!(DxgkDdiCreateNativeFence(adapter, args));
        record!(args).pPrivateDriverData.fill(0xee);
        status
    }

    /// Values of intra-GPU fences are wanted in the aperture.
    intra_gpu_in_aperture: DxgkDdiGetStandardAllocationDriverData(
        adapter: HANDLE,
        args: *mut DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA,
    ) -> NTSTATUS {
        if copy!(args).StandardAllocationType == Standard::D3DKMDT_STANDARDALLOCATION_FENCESTORAGE {
            // As of any other fence.
            let storage = copy!(args).pCreateFenceStorageData();
            let kind = copy!(storage).FenceStorageType;
            record!(storage).FenceStorageType = Kind::D3DDDI_NATIVEFENCE_TYPE_DEFAULT;
            let status = own!(DxgkDdiGetStandardAllocationDriverData(adapter, args));
            record!(storage).FenceStorageType = kind;
            return status;
        }
        own!(DxgkDdiGetStandardAllocationDriverData(adapter, args))
    }

    /// Notes the fence of an opening, for [`destroys_on_close`].
    notes_opening: DxgkDdiOpenNativeFence(adapter: HANDLE, args: *mut DXGKARG_OPENNATIVEFENCE) -> NTSTATUS {
        let status = own!(DxgkDdiOpenNativeFence(adapter, args));
        // The handles come first in every form of the record.
        let [global, local] = copy!(args.cast::<[HANDLE; 2]>());
        locked(&OPENED, |opened| opened.insert(number(local), number(global)));
        status
    }

    /// CloseNativeFence is taken for DestroyNativeFence.
    closing_destroys: DxgkDdiCloseNativeFence(adapter: HANDLE, args: *mut DXGKARG_CLOSENATIVEFENCE) -> NTSTATUS {
        let local = number(copy!(args).hLocalNativeFence);
        let status = own!(DxgkDdiCloseNativeFence(adapter, args));
        if let Some(global) = locked(&OPENED, |opened| opened.remove(&local))
            && locked(&DESTROYED, |gone| gone.insert(global))
        {
            let mut destroy = DXGKARG_DESTROYNATIVEFENCE::zeroed();
            destroy.hGlobalNativeFence = pointer(global);
            let _gone = own!(DxgkDdiDestroyNativeFence(&raw mut destroy));
        }
        status
    }

    /// What [`closing_destroys`] has destroyed is not destroyed again.
    destroyed_already: DxgkDdiDestroyNativeFence(args: *mut DXGKARG_DESTROYNATIVEFENCE) -> NTSTATUS {
        let global = number(copy!(args).hGlobalNativeFence);
        if locked(&DESTROYED, |gone| gone.contains(&global)) {
            return STATUS_SUCCESS;
        }
        own!(DxgkDdiDestroyNativeFence(args))
    }

    /// The log goes on in the old buffer after a new one was set.
    log_keeps_old_buffer: DxgkDdiSetNativeFenceLogBuffer(args: *const DXGKARG_SETNATIVEFENCELOGBUFFER) -> NTSTATUS {
        match set_log(&copy!(args)) {
            None => own!(DxgkDdiSetNativeFenceLogBuffer(args)),
            Some(_) => STATUS_SUCCESS,
        }
    }

    /// No log is written.
    takes_no_log: DxgkDdiSetNativeFenceLogBuffer(_args: *const DXGKARG_SETNATIVEFENCELOGBUFFER) -> NTSTATUS {
        STATUS_SUCCESS
    }

    /// A log has one entry more than its buffer.
    log_beyond_buffer: DxgkDdiSetNativeFenceLogBuffer(args: *const DXGKARG_SETNATIVEFENCELOGBUFFER) -> NTSTATUS {
        let mut mine = copy!(args);
        if !mine.LogBufferCpuVa.is_null() {
            mine.NumberOfEntries += 1;
        }
        own!(DxgkDdiSetNativeFenceLogBuffer(&raw const mine))
    }

    /// Notes where a log is, for [`timestamps_backwards`].
    notes_log: DxgkDdiSetNativeFenceLogBuffer(args: *const DXGKARG_SETNATIVEFENCELOGBUFFER) -> NTSTATUS {
        set_log(&copy!(args));
        own!(DxgkDdiSetNativeFenceLogBuffer(args))
    }

    /// The last entry of each log of a queue that the OS is about to read ended before the one in front of it.
    ends_backwards: DxgkDdiUpdateNativeFenceLogs(args: *const DXGKARG_UPDATENATIVEFENCELOGS) -> NTSTATUS {
        let status = own!(DxgkDdiUpdateNativeFenceLogs(args));
        let queues = copy!(args);
        for queue in array!(queues.hHWQueue, queues.NumberOfQueues) {
            let queue = number(*queue);
            let logs = locked(&LOGS, |logs| logs.range((queue, i32::MIN)..=(queue, i32::MAX)).map(|(_, at)| *at).collect());
            let logs: Vec<usize> = logs;
            for log in logs {
                // FirstFreeEntryIndex comes first.
                let free = copy!(pointer(log).cast::<u32>());
                let header = size_of::<DXGK_NATIVE_FENCE_LOG_HEADER>();
                let entries = pointer(log + header).cast::<DXGK_NATIVE_FENCE_LOG_ENTRY>();
                if let Some(last) = free.checked_sub(1) {
                    record!(entries.wrapping_add(last as usize)).FenceEndGpuTimestamp /= 2;
                }
            }
        }
        status
    }

    /// The driver is told a MonitoredValue at an address where the process has nothing mapped: it cannot see what the
    /// CPU waits for, and interrupts at every signal.
    always_interrupt: DxgkDdiOpenNativeFence(adapter: HANDLE, args: *mut DXGKARG_OPENNATIVEFENCE) -> NTSTATUS {
        // The address stands in front of what the forms of the record differ in.
        let offset = core::mem::offset_of!(DXGKARG_OPENNATIVEFENCE, MonitoredValueGpuVa);
        record!(args.cast::<u8>().wrapping_add(offset).cast::<u64>()).bitxor_assign(NOWHERE);
        let status = own!(DxgkDdiOpenNativeFence(adapter, args));
        record!(args.cast::<u8>().wrapping_add(offset).cast::<u64>()).bitxor_assign(NOWHERE);
        status
    }
}

/// What makes an address of a process one that nobody has mapped.
const NOWHERE: u64 = 1 << 45;

/// Keeps where a log is; returns where it was.
fn set_log(log: &DXGKARG_SETNATIVEFENCELOGBUFFER) -> Option<usize> {
    if log.LogBufferCpuVa.is_null() {
        return None;
    }
    let kind = copy!(log.LogBufferCpuVa.cast::<DXGK_NATIVE_FENCE_LOG_HEADER>()).Type;
    locked(&LOGS, |logs| logs.insert((number(log.hHwQueue), kind.0), number(log.LogBufferCpuVa.cast())))
}

/// [`notes_log`] and [`ends_backwards`].
pub fn timestamps_backwards(table: &mut DRIVER_INITIALIZATION_DATA) {
    notes_log(table);
    ends_backwards(table);
}

/// A queue's progress fence is the one that the handle names, wherever the address is.
pub fn believes_progress_handle(table: &mut DRIVER_INITIALIZATION_DATA) {
    keeps_addresses(table);
    goes_by_handle(table);
}

/// [`monitored_stops`] and [`current_stops`].
pub fn stops_at_bad_fence(table: &mut DRIVER_INITIALIZATION_DATA) {
    monitored_stops(table);
    current_stops(table);
}

/// [`first_monitored`] and [`first_current`].
pub fn only_first_of_batch(table: &mut DRIVER_INITIALIZATION_DATA) {
    first_monitored(table);
    first_current(table);
}

/// [`notes_opening`], [`closing_destroys`] and [`destroyed_already`].
pub fn destroys_on_close(table: &mut DRIVER_INITIALIZATION_DATA) {
    notes_opening(table);
    closing_destroys(table);
    destroyed_already(table);
}
