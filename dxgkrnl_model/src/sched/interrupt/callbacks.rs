//! The callbacks of interrupts: NotifyInterrupt, QueueDpc, NotifyDpc, SynchronizeExecution.

use nt_model::{In, Out, shims};
use wddm_abi::{DXGKARGCB_NOTIFY_INTERRUPT_DATA, NTSTATUS, ntstatus};

use crate::port::callback::{callback, record, routines};
use crate::port::handle::raw;
use crate::port::rules::interface::CB_POINTER;
use crate::sched::interrupt::Interrupts;
use std::sync::atomic::Ordering;

routines! {
    NOTIFY_INTERRUPT = "DxgkCbNotifyInterrupt"("hAdapter", "Data") 3..=14;
    NOTIFY_DPC = "DxgkCbNotifyDpc"("hAdapter") 2..=2;
    QUEUE_DPC = "DxgkCbQueueDpc"("DeviceHandle") 0..=15;
    SYNCHRONIZE = "DxgkCbSynchronizeExecution"("DeviceHandle", "Routine", "Context", "MessageNumber") 0..=2;
}

/// A routine that `DxgkCbSynchronizeExecution` runs.
type Synchronized = unsafe extern "win64" fn(usize) -> u8;

shims! {
    /// Interrupt callbacks.
    pub(crate) table CALLBACKS;

    fn DxgkCbNotifyInterrupt(_machine, adapter: usize, data: In<[u8; size_of::<DXGKARGCB_NOTIFY_INTERRUPT_DATA>()]>) {
        let _ = callback(raw(adapter as u64), &NOTIFY_INTERRUPT, [adapter as u64, data.address() as u64], |adapter| {
            super::notify(adapter, &record(data));
        });
    }

    fn DxgkCbNotifyDpc(machine, adapter: usize) {
        let _ = callback(raw(adapter as u64), &NOTIFY_DPC, [adapter as u64], |adapter| {
            Interrupts::of(adapter).notified_dpc.fetch_add(1, Ordering::Relaxed);
            super::work_off(adapter);
            let time = adapter.personality().notify_dpc_time;
            if time != 0 {
                // CAST: a time that tests choose, far below an hour.
                machine.stall_execution((time / 10) as u32);
            }
        });
    }

    fn DxgkCbQueueDpc(_machine, adapter: usize) -> u8 {
        let queued = callback(raw(adapter as u64), &QUEUE_DPC, [adapter as u64], |adapter| {
            crate::port::section::queue_dpc(adapter)
        });
        u8::from(queued.unwrap_or(false))
    }

    fn DxgkCbSynchronizeExecution(
        _machine,
        adapter: usize,
        routine: usize,
        context: usize,
        message: u32,
        result: Out<u8>,
    ) -> NTSTATUS {
        let arguments = [adapter as u64, routine as u64, context as u64, u64::from(message)];
        let status = callback(raw(adapter as u64), &SYNCHRONIZE, arguments, |adapter| {
            let sound = routine != 0 && !result.is_null();
            if !adapter.rules().check(&CB_POINTER, sound, || "NULL routine or result".to_owned()) {
                return ntstatus::STATUS_INVALID_PARAMETER;
            }
            if message != 0 {
                return ntstatus::STATUS_INVALID_PARAMETER;
            }
            if !adapter.device.can_synchronize() {
                return ntstatus::STATUS_UNSUCCESSFUL;
            }
            let run = || crate::port::section::synchronize(adapter, || run_synchronized(adapter.kernel(), routine, context));
            match run() {
                Some(returned) => {
                    result.set(returned);
                    ntstatus::STATUS_SUCCESS
                }
                None => ntstatus::STATUS_UNSUCCESSFUL,
            }
        });
        status.unwrap_or_else(|status| status)
    }
}

/// Calls the driver's routine.
#[expect(unsafe_code, reason = "a driver's function is called by its address")]
fn run_synchronized(kernel: &nt_model::Machine, routine: usize, context: usize) -> u8 {
    let pointer: *const () = core::ptr::with_exposed_provenance(routine);
    // SAFETY: a data pointer that is not null has the size and representation of a function pointer; that code of this
    // type is there is what the driver says by passing it.
    let function: Synchronized = unsafe { core::mem::transmute(pointer) };
    let _inside = crate::port::sync::InDriver::new();
    let call = || {
        // SAFETY: as above; the context is the driver's.
        unsafe { function(context) }
    };
    kernel.call_driver("SynchronizeRoutine", call).unwrap_or(0)
}
