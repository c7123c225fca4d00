//! Version, errors, adapters and devices.

use super::{check_flags, input_or_zeros, output, put, run, text};
use crate::adapter::{Adapter, Mode, Select};
use crate::device::Device;
use crate::error::UmdError;
use crate::ffi::types::{
    FP_INTERFACE_VERSION, FP_MODE_KERNEL, FP_MODE_NONE, FP_MODE_PACKET, FP_MODE_USER, FP_OPEN_BY_LUID,
    FP_OPEN_KERNEL_MODE, FpAdapter, FpAdapterInfo, FpAdapterOpen, FpDevice, FpDeviceState, FpNodeInfo, FpThunkCalls,
};
use crate::ffi::{last_error, object};
use crate::thunks::{NtHandle, Thunk, Thunks};
use alloc::string::ToString;
use alloc::sync::Arc;
use core::ffi::c_char;
use gpu_wire::NodeOrdinal;
use wddm_abi::{D3DKMT_DEVICEEXECUTION_STATE, LUID, win_extern};

/// Number of a mode in the C ABI.
pub(super) const fn mode_number(mode: Option<Mode>) -> u32 {
    match mode {
        Some(Mode::Packet) => FP_MODE_PACKET,
        Some(Mode::KernelMode) => FP_MODE_KERNEL,
        Some(Mode::UserMode) => FP_MODE_USER,
        None => FP_MODE_NONE,
    }
}

win_extern! {
    pub fn fp_interface_version[T: Thunks]() -> u32 {
        FP_INTERFACE_VERSION
    }

    pub fn fp_last_error_text[T: Thunks](buffer: *mut c_char, capacity: usize, length: *mut usize) -> i32 {
        // Not through `run`: that would replace the error.
        let message = last_error::get(T::thread_id()).map_or_else(|| "no error".to_string(), |error| error.to_string());
        if !buffer.is_null() && capacity != 0 {
            let len = message.len().min(capacity - 1);
            // SAFETY: the caller's buffer has `capacity` bytes, and len is less.
            unsafe { core::ptr::copy_nonoverlapping(message.as_ptr(), buffer.cast::<u8>(), len) };
            // SAFETY: len is below the capacity, so the byte lies inside the buffer.
            unsafe { buffer.cast::<u8>().wrapping_add(len).write(0) };
        }
        // SAFETY: the caller's pointer is null or writable.
        unsafe { super::put_if(length, message.len()) };
        0
    }

    pub fn fp_adapter_open[T: Thunks](open: *const FpAdapterOpen, adapter: *mut *mut FpAdapter) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's pointer (entry.rs).
            let open = unsafe { input_or_zeros(open) }?;
            check_flags(open.flags, FP_OPEN_BY_LUID | FP_OPEN_KERNEL_MODE)?;
            let luid = LUID { LowPart: open.luid_low, HighPart: open.luid_high };
            let select = if open.flags & FP_OPEN_BY_LUID != 0 { Select::Luid(luid) } else { Select::First };
            let highest = if open.flags & FP_OPEN_KERNEL_MODE != 0 { Mode::KernelMode } else { Mode::UserMode };
            // SAFETY: as above; asked first, so that nothing is opened in vain.
            unsafe { put(adapter, core::ptr::null_mut()) }?;
            // What ships has no such steps and looks at nothing there.
            let wrong = if cfg!(feature = "mutants") { open.reserved[0] } else { 0 };
            let opened = Adapter::open(T::attach(), select, highest, wrong)?;
            // SAFETY: as above.
            unsafe { put(adapter, object::into_handle(opened)) }
        })
    }

    pub fn fp_adapter_info[T: Thunks](adapter: *mut FpAdapter, info: *mut FpAdapterInfo) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let adapter = unsafe { object::get::<_, Arc<Adapter<T>>>(adapter) }?;
            let said = adapter.info();
            let record = FpAdapterInfo {
                size: 0,
                driver_interface_version: said.interface_version,
                rung: adapter.rung().raw(),
                mode: mode_number(Some(adapter.mode())),
                fallback: adapter.fallback().raw(),
                native_fences: adapter.has_native_fences().into(),
                node_count: said.node_count,
                doorbell_model: said.doorbell_model,
                physical_doorbells: said.physical_doorbells,
                luid_low: adapter.luid().LowPart,
                luid_high: adapter.luid().HighPart,
                reserved: 0,
                local_segment_size: said.local_segment_size,
                gpu_clock_frequency: said.gpu_clock_frequency,
                cpu_clock_frequency: adapter.os.thunks().timestamp_frequency(),
                fallback_reason: text(adapter.fallback().text()),
            };
            // SAFETY: the caller's pointer (entry.rs).
            unsafe { output(info, record) }
        })
    }

    pub fn fp_adapter_node[T: Thunks](adapter: *mut FpAdapter, node: u32, info: *mut FpNodeInfo) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let adapter = unsafe { object::get::<_, Arc<Adapter<T>>>(adapter) }?;
            let node = adapter.node(NodeOrdinal(node))?;
            // CAST: an enumerator; what no table names is cut.
            let engine_type = node.engine.0 as u32;
            let record = FpNodeInfo { size: 0, engine_type, mode: mode_number(Some(node.mode)), flags: node.flags };
            // SAFETY: the caller's pointer (entry.rs).
            unsafe { output(info, record) }
        })
    }

    pub fn fp_adapter_thunk_calls[T: Thunks](adapter: *mut FpAdapter, index: u32, calls: *mut FpThunkCalls) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let adapter = unsafe { object::get::<_, Arc<Adapter<T>>>(adapter) }?;
            let thunk = *Thunk::ALL.get(index as usize).ok_or(UmdError::InvalidArgument("index"))?;
            let count = adapter.os.calls(thunk);
            let record = FpThunkCalls {
                size: 0,
                reserved: 0,
                calls: count.calls,
                failures: count.failures,
                name: text(thunk.name()),
            };
            // SAFETY: the caller's pointer (entry.rs).
            unsafe { output(calls, record) }
        })
    }

    pub fn fp_adapter_close_nt_handle[T: Thunks](adapter: *mut FpAdapter, nt_handle: u64) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let adapter = unsafe { object::get::<_, Arc<Adapter<T>>>(adapter) }?;
            if nt_handle == 0 {
                return Err(UmdError::InvalidHandle);
            }
            adapter.os.thunks().close_handle(NtHandle(nt_handle));
            Ok(())
        })
    }

    pub fn fp_adapter_close[T: Thunks](adapter: *mut FpAdapter) -> i32 {
        // SAFETY: the caller's handle, which it uses no more (entry.rs).
        run::<T>(|| unsafe { object::take::<_, Arc<Adapter<T>>>(adapter) }.map(drop))
    }

    pub fn fp_device_create[T: Thunks](adapter: *mut FpAdapter, flags: u32, device: *mut *mut FpDevice) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let adapter = unsafe { object::get::<_, Arc<Adapter<T>>>(adapter) }?;
            check_flags(flags, 0)?;
            // SAFETY: the caller's pointer; asked first, so that nothing is created in vain.
            unsafe { put(device, core::ptr::null_mut()) }?;
            let created = Device::create(adapter)?;
            // SAFETY: as above.
            unsafe { put(device, object::into_handle(created)) }
        })
    }

    pub fn fp_device_state[T: Thunks](device: *mut FpDevice, state: *mut FpDeviceState) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let device = unsafe { object::get::<_, Arc<Device<T>>>(device) }?;
            let execution = device.state();
            let mut record = FpDeviceState {
                size: 0,
                // CAST: an enumerator from 1 to 7; what no table names is cut.
                execution: execution.0 as u32,
                page_fault_flags: 0,
                reserved: 0,
                page_fault_address: 0,
            };
            if execution == D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ERROR_DMAPAGEFAULT
                && let Ok(fault) = device.page_fault()
            {
                // CAST: a flag word.
                record.page_fault_flags = fault.PageFaultFlags.0 as u32;
                record.page_fault_address = fault.FaultedVirtualAddress;
            }
            // SAFETY: the caller's pointer (entry.rs).
            unsafe { output(state, record) }
        })
    }

    pub fn fp_device_destroy[T: Thunks](device: *mut FpDevice) -> i32 {
        // SAFETY: the caller's handle, which it uses no more (entry.rs).
        run::<T>(|| unsafe { object::take::<_, Arc<Device<T>>>(device) }.map(drop))
    }
}
