//! Native fences and their logs.

use crate::arguments::{array, borrow, object, os, started};
use crate::thunk::ddi;
use core::ffi::c_void;
use gpu_engine::memory::{SharedWord, Span};
use gpu_engine::word::{Ordering, Word};
use gpu_wire::GpuVa;
use kmd_core::device::Device;
use kmd_core::fence_log;
use kmd_core::handle::Handle;
use kmd_core::hw_queue::HwQueue;
use kmd_core::irql::Passive;
use kmd_core::native_fence::{self, CurrentUpdate, LocalFence, NativeFence, Open, Update};
use kmd_core::platform::Platform;
use kmd_core::status::{Error, Result, of};
use wddm_abi::{
    DXGK_NATIVE_FENCE_LOG_BUFFER, DXGK_NATIVE_FENCE_LOG_HEADER, DXGK_NATIVE_FENCE_LOG_TYPE, DXGKARG_CLOSENATIVEFENCE,
    DXGKARG_CREATENATIVEFENCE, DXGKARG_DESTROYNATIVEFENCE, DXGKARG_OPENNATIVEFENCE, DXGKARG_SETNATIVEFENCELOGBUFFER,
    DXGKARG_UPDATECURRENTVALUESFROMCPU, DXGKARG_UPDATEMONITOREDVALUES, DXGKARG_UPDATENATIVEFENCELOGS, HANDLE,
};

ddi! {
    /// `DxgkDdiCreateNativeFence`, `PASSIVE_LEVEL`.
    fn create_native_fence[P: Platform](adapter: HANDLE) at irql: Passive,
        with args: write *mut DXGKARG_CREATENATIVEFENCE, answers of {
        let started = started::<P>(adapter)?;
        // In and out in one field: Dxgkrnl's handle is kept before ours overwrites it.
        let theirs = os(args.hGlobalNativeFence);
        let ours = NativeFence::create(&irql, &started, args.Type, theirs, &mut args.pPrivateDriverData)?;
        args.hGlobalNativeFence = ours.as_ptr();
        Ok(())
    }

    /// `DxgkDdiDestroyNativeFence`, `PASSIVE_LEVEL`.
    fn destroy_native_fence[P: Platform]() at irql: Passive,
        with args: read *mut DXGKARG_DESTROYNATIVEFENCE, answers of {
        NativeFence::<P>::destroy(&irql, Handle::from_ptr(args.hGlobalNativeFence))
    }

    /// `DxgkDdiCloseNativeFence`, `PASSIVE_LEVEL`.
    fn close_native_fence[P: Platform](_adapter: HANDLE) at irql: Passive,
        with args: read *mut DXGKARG_CLOSENATIVEFENCE, answers of {
        LocalFence::<P>::close(&irql, Handle::from_ptr(args.hLocalNativeFence))
    }

    /// `DxgkDdiUpdateMonitoredValues`, device interrupt level.
    fn update_monitored_values[P: Platform]() at irql: Dirql,
        with args: read *const DXGKARG_UPDATEMONITOREDVALUES, answers of {
        let (fences, values, words) = (args.NativeFenceArray, args.UpdatedValueArray, args.MonitoredValueKernelCpuVa);
        // SAFETY: three arrays of NumFences elements, and addresses that are mapped for the duration of the call.
        let updates = unsafe { updates(fences, values, words, args.NumFences) }?;
        native_fence::update_monitored::<P>(&irql, updates)
    }

    /// `DxgkDdiUpdateCurrentValuesFromCpu`, `DISPATCH_LEVEL`.
    fn update_current_values[P: Platform]() at irql: Dispatch,
        with args: read *const DXGKARG_UPDATECURRENTVALUESFROMCPU, answers of {
        let how = match (args.Flags.AlwaysSignaled(), args.Flags.NotificationOnly()) {
            (true, _) => CurrentUpdate::AlwaysSignaled,
            (false, true) => CurrentUpdate::NotificationOnly,
            (false, false) => CurrentUpdate::Write,
        };
        let (fences, values, words) = (args.NativeFenceArray, args.UpdatedValueArray, args.CurrentValueKernelCpuVa);
        // SAFETY: three arrays of NumFences elements, and addresses that are mapped for the duration of the call.
        let updates = unsafe { updates(fences, values, words, args.NumFences) }?;
        native_fence::update_current::<P>(&irql, how, updates)
    }

    /// `DxgkDdiSetNativeFenceLogBuffer`, `DISPATCH_LEVEL`.
    fn set_native_fence_log_buffer[P: Platform]() at irql: Dispatch,
        with args: read *const DXGKARG_SETNATIVEFENCELOGBUFFER, answers of {
        if args.LogBufferCpuVa.is_null() || args.NumberOfEntries == 0 {
            // NULL or no entries: the OS takes a log away before it sets the next. The header of the buffer, which
            // is not given here, would say which of the two logs, so both are taken away.
            return borrow::<HwQueue<P>, _>(args.hHwQueue, |queue| {
                fence_log::clear(&irql, queue);
                Ok(())
            });
        }
        let first = core::mem::offset_of!(DXGK_NATIVE_FENCE_LOG_BUFFER, Entries) as u64;
        let len = first + u64::from(args.NumberOfEntries) * gpu_engine::fence_log::ENTRY_SIZE;
        // SAFETY: a buffer of that many entries, mapped until it is replaced or the queue is destroyed.
        let buffer = unsafe { Span::new(args.LogBufferCpuVa.cast(), len) };
        // Which of the two logs it is stands in the buffer alone, where the process's own GPU work may write. It is
        // read once, and what it says is obeyed: SECURITY.md, What is not kept yet.
        let at = core::mem::offset_of!(DXGK_NATIVE_FENCE_LOG_HEADER, Type) as u64;
        let word = buffer.word(at).ok_or(Error::InvalidParameter)?.load(Ordering::Acquire);
        // CAST: the low half is the member.
        let kind = DXGK_NATIVE_FENCE_LOG_TYPE(word as i32);
        borrow::<HwQueue<P>, _>(args.hHwQueue, |queue| {
            fence_log::set(&irql, queue, kind, buffer, args.NumberOfEntries)
        })
    }

    /// `DxgkDdiUpdateNativeFenceLogs`, `DISPATCH_LEVEL`.
    fn update_native_fence_logs[P: Platform]() at irql: Dispatch,
        with args: read *const DXGKARG_UPDATENATIVEFENCELOGS, answers of {
        // SAFETY: Dxgkrnl's array, of that many elements.
        let queues = unsafe { array(args.hHWQueue.cast_const(), args.NumberOfQueues as usize) }?;
        fence_log::flush::<P>(&irql, queues.iter().map(|h| Handle::from_ptr(*h)))
    }
}

ddi! {
    /// `DxgkDdiOpenNativeFence`, `PASSIVE_LEVEL`. The record's first 44 bytes are common to all builds; the private
    /// data behind them exists in the later form only, so it is neither read nor written.
    fn open_native_fence[P: Platform](_adapter: HANDLE, args: *mut DXGKARG_OPENNATIVEFENCE) at irql: Passive,
        answers of {
        // SAFETY: Dxgkrnl's record, valid for the call; its common part is as long as the fields used here.
        unsafe { open::<P>(&irql, args) }
    }
}

/// The body of OpenNativeFence.
///
/// # Safety
/// `args` is NULL or points at a record at least as long as the part that all builds share.
unsafe fn open<P: Platform>(irql: &Passive, args: *mut DXGKARG_OPENNATIVEFENCE) -> Result<()> {
    if args.is_null() {
        return Err(Error::InvalidParameter);
    }
    // Field by field: a reference to the whole record would claim the private data of the later form.
    // SAFETY: inside the common part.
    let global = unsafe { (*args).hGlobalNativeFence };
    // SAFETY: inside the common part.
    let device = unsafe { (*args).hDevice };
    // SAFETY: inside the common part.
    let current = unsafe { (*args).CurrentValueGpuVa };
    // SAFETY: inside the common part.
    let monitored = unsafe { (*args).MonitoredValueGpuVa };
    let device = object::<Device<P>>(device)?;
    let global = object::<NativeFence<P>>(global)?;
    let open = Open { current: GpuVa(current), monitored: GpuVa(monitored) };
    let local = LocalFence::open(irql, &device, &global, open, None)?;
    // SAFETY: inside the common part.
    unsafe { (*args).hLocalNativeFence = local.as_ptr() };
    Ok(())
}

/// The entries of an update batch.
///
/// # Safety
/// The arrays have `count` elements; each address is NULL or that of an aligned 64-bit word that is mapped for `'a`.
unsafe fn updates<'a>(
    fences: *const HANDLE,
    values: *const u64,
    words: *const *mut c_void,
    count: u32,
) -> Result<impl Iterator<Item = Update<'a>>> {
    // SAFETY: the caller's promise.
    let fences = unsafe { array(fences, count as usize) }?;
    // SAFETY: the caller's promise.
    let values = unsafe { array(values, count as usize) }?;
    // SAFETY: the caller's promise.
    let words = unsafe { array(words, count as usize) }?;
    let word = |at: *mut c_void| {
        let at = at.cast::<u64>();
        if at.is_null() || !at.is_aligned() {
            return None;
        }
        // SAFETY: aligned, and mapped for 'a (the caller's promise).
        let word = unsafe { SharedWord::from_ptr(at) };
        // At the device's level the kernel cannot be asked how the page is mapped.
        Some(word.unordered())
    };
    Ok(fences.iter().zip(values).zip(words).map(move |((fence, value), at)| Update {
        fence: Handle::from_ptr(*fence),
        value: *value,
        word: word(*at),
    }))
}
