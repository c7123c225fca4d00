//! A system thread.

use super::try_box;
use alloc::boxed::Box;
use core::ffi::c_void;
use core::ptr;
use core::ptr::NonNull;
use gpu_engine::NoMemory;
use kmd_core::irql::Passive;
use kmd_core::platform::Body;
use kmd_core::platform::ThisThread;
use wdk_sys::_KWAIT_REASON::Executive;
use wdk_sys::_MODE::KernelMode;
use wdk_sys::HANDLE;
use wdk_sys::NT_SUCCESS;
use wdk_sys::OBJ_KERNEL_HANDLE;
use wdk_sys::OBJECT_ATTRIBUTES;
use wdk_sys::PVOID;
use wdk_sys::STATUS_SUCCESS;
use wdk_sys::THREAD_ALL_ACCESS;
use wdk_sys::ntddk::KeSetPriorityThread;
use wdk_sys::ntddk::KeWaitForSingleObject;
use wdk_sys::ntddk::ObReferenceObjectByHandle;
use wdk_sys::ntddk::ObfDereferenceObject;
use wdk_sys::ntddk::PsCreateSystemThread;
use wdk_sys::ntddk::PsTerminateSystemThread;
use wdk_sys::ntddk::ZwClose;

/// A referenced thread object.
pub struct SystemThread(PVOID);

// SAFETY: a reference to a kernel object may be used and given back by any thread.
unsafe impl Send for SystemThread {}
// SAFETY: as above.
unsafe impl Sync for SystemThread {}

impl SystemThread {
    pub fn start(_irql: &Passive, body: Body) -> Result<Self, NoMemory> {
        // A box in a box: the context is one thin pointer.
        let context = Box::into_raw(try_box(body)?);
        // CAST: both constants are small; the record is 48 bytes.
        let mut attributes = OBJECT_ATTRIBUTES {
            Length: size_of::<OBJECT_ATTRIBUTES>() as u32,
            Attributes: OBJ_KERNEL_HANDLE,
            ..OBJECT_ATTRIBUTES::default()
        };
        let mut handle: HANDLE = ptr::null_mut();
        // SAFETY: PASSIVE_LEVEL (the token); `run` takes the context over. No process handle means the system process.
        let status = unsafe {
            PsCreateSystemThread(
                &raw mut handle,
                THREAD_ALL_ACCESS,
                &raw mut attributes,
                ptr::null_mut(),
                ptr::null_mut(),
                Some(run),
                context.cast(),
            )
        };
        if !NT_SUCCESS(status) {
            // SAFETY: no thread was made, so the box is still ours.
            drop(unsafe { Box::from_raw(context) });
            return Err(NoMemory);
        }
        let mut object: PVOID = ptr::null_mut();
        // A kernel handle with all access, of an object that exists: the routine has no reason to refuse. If it does,
        // it is asked again: without a reference nothing could wait for the thread, and the image would be unloaded
        // under it. TIMEOUT: none, since the thread already runs. CAST: an enumerator, 0. SAFETY: the handle was just
        // made; kernel mode may leave the type open.
        while !NT_SUCCESS(unsafe {
            ObReferenceObjectByHandle(
                handle,
                THREAD_ALL_ACCESS,
                ptr::null_mut(),
                KernelMode as i8,
                &raw mut object,
                ptr::null_mut(),
            )
        }) {
            core::hint::spin_loop();
        }
        // SAFETY: our handle, closed once.
        let _status = unsafe { ZwClose(handle) };
        Ok(Self(object))
    }

    /// Waits until the thread has ended.
    pub fn join(self, _irql: &Passive) {
        if self.0.is_null() {
            return;
        }
        // TIMEOUT: none; the caller told the thread to end, and unloading the image under a running thread is no
        // choice.
        // CAST: an enumerator, 0.
        // SAFETY: a referenced thread object; PASSIVE_LEVEL (the token).
        let _status = unsafe { KeWaitForSingleObject(self.0, Executive, KernelMode as i8, 0, ptr::null_mut()) };
    }
}

impl Drop for SystemThread {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: gives the reference back, once.
            let _count = unsafe { ObfDereferenceObject(self.0) };
        }
    }
}

/// `ZwCurrentThread()` of wdm.h: the pseudo handle of the calling thread.
const CURRENT_THREAD: isize = -2;

/// The calling thread, referenced by itself.
pub struct ThisSystemThread(NonNull<c_void>);

impl ThisSystemThread {
    pub fn new(_irql: &Passive) -> Option<Self> {
        let mut object: PVOID = ptr::null_mut();
        // CAST: an enumerator, 0.
        // SAFETY: PASSIVE_LEVEL (the token); the pseudo handle names the caller; kernel mode may leave the type open.
        let status = unsafe {
            ObReferenceObjectByHandle(
                ptr::without_provenance_mut(CURRENT_THREAD.cast_unsigned()),
                THREAD_ALL_ACCESS,
                ptr::null_mut(),
                KernelMode as i8,
                &raw mut object,
                ptr::null_mut(),
            )
        };
        if NT_SUCCESS(status) { NonNull::new(object).map(Self) } else { None }
    }
}

impl ThisThread for ThisSystemThread {
    fn set_priority(&self, _irql: &Passive, priority: u32) {
        // CAST: at most 31.
        // SAFETY: a referenced thread that this driver has made; PASSIVE_LEVEL (the token).
        let _before = unsafe { KeSetPriorityThread(self.0.as_ptr().cast(), priority as i32) };
    }
}

impl Drop for ThisSystemThread {
    fn drop(&mut self) {
        // SAFETY: gives the reference back, once.
        let _count = unsafe { ObfDereferenceObject(self.0.as_ptr()) };
    }
}

/// The thread.
///
/// # Safety
/// `context` is a [`Body`] in a box, given over.
unsafe extern "C" fn run(context: *mut c_void) {
    // Out of its box at once, which goes with this statement: nothing below returns.
    // SAFETY: `start` gave the box over.
    let body = *unsafe { Box::<Body>::from_raw(context.cast()) };
    // SAFETY: system threads start at PASSIVE_LEVEL, and stay there outside of lock sections.
    let irql = unsafe { Passive::assume() };
    body(&irql);
    // SAFETY: a system thread ends itself, holding nothing.
    let _status = unsafe { PsTerminateSystemThread(STATUS_SUCCESS) };
}
