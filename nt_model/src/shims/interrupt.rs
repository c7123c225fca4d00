//! Interrupt objects, and the extended processor state.

use crate::interrupt::ConnectRequest;
use crate::records::{status, status::NtStatus};
use crate::shim::{self, In, Out};
use crate::shims;
use crate::timer::ExTimer;

/// `CONNECT_FULLY_SPECIFIED`, `CONNECT_LINE_BASED`, `CONNECT_FULLY_SPECIFIED_GROUP`.
const FULLY_SPECIFIED: usize = 1;
const FULLY_SPECIFIED_GROUP: usize = 4;

shims! {
    pub(crate) table INTERRUPT;

    // IO_CONNECT_INTERRUPT_PARAMETERS as words: version; device; where the object goes; routine; context; lock; the
    // levels and the vector; level and mode. Only the fully specified forms are served.
    fn IoConnectInterruptEx(m, parameters: In<[usize; 8]>) -> NtStatus {
        let [version, _device, object, routine, context, _lock, levels, level] = *parameters.get();
        if !matches!(version & 0xFFFF_FFFF, FULLY_SPECIFIED | FULLY_SPECIFIED_GROUP) {
            return status::NOT_SUPPORTED;
        }
        // The vector is the upper half of the word of the levels. CAST: 32 and 8 bits wide.
        let request = ConnectRequest { vector: (levels >> 32) as u32, level: level as u8, routine, context };
        match m.connect_interrupt_object(&request) {
            Ok(address) => {
                shim::out_from_address::<usize>(object).set(address);
                status::SUCCESS
            }
            Err(status) => status,
        }
    }

    fn IoConnectInterrupt(
        m, object: Out<usize>, routine: usize, context: usize, _lock: usize, vector: u32, level: u8, _synchronize: u8,
        _mode: u32, _share: u8, _affinity: u64, _float: u8,
    ) -> NtStatus {
        match m.connect_interrupt_object(&ConnectRequest { vector, level, routine, context }) {
            Ok(address) => {
                object.set(address);
                status::SUCCESS
            }
            Err(status) => status,
        }
    }

    fn IoDisconnectInterrupt(m, object: usize) {
        m.disconnect_interrupt_object(object);
    }

    // IO_DISCONNECT_INTERRUPT_PARAMETERS: version, object.
    fn IoDisconnectInterruptEx(m, parameters: In<[usize; 2]>) {
        let [_version, object] = *parameters.get();
        m.disconnect_interrupt_object(object);
    }

    fn KeSynchronizeExecution(m, object: usize, routine: usize, context: usize) -> u8 {
        m.synchronize_object(object, routine, context).into()
    }

    fn KeAcquireInterruptSpinLock(m, object: usize) -> u8 {
        m.acquire_interrupt_lock(object)
    }

    fn KeReleaseInterruptSpinLock(m, object: usize, old: u8) {
        m.release_interrupt_lock(object, old);
    }

    // A thread of the host has its vector registers to itself, so there is nothing to save; the pairing is checked.
    fn KeSaveExtendedProcessorState(m, mask: u64, save: usize) -> NtStatus {
        m.save_extended_state(mask, save)
    }

    fn KeRestoreExtendedProcessorState(m, save: usize) {
        m.restore_extended_state(save);
    }

    fn ExAllocateTimer(m, callback: usize, context: usize, attributes: u32) -> usize {
        m.allocate_ex_timer(callback, context, attributes).map_or(0, ExTimer::address)
    }

    fn ExSetTimer(m, timer: usize, due: i64, period: i64, _parameters: usize) -> u8 {
        m.set_ex_timer(ExTimer::of(timer), due, period).into()
    }

    fn ExCancelTimer(m, timer: usize, _parameters: usize) -> u8 {
        m.cancel_ex_timer(ExTimer::of(timer)).into()
    }

    fn ExDeleteTimer(m, timer: usize, cancel: u8, wait: u8, _parameters: usize) -> u8 {
        m.delete_ex_timer(ExTimer::of(timer), cancel != 0, wait != 0).into()
    }
}
