//! The functions of the C ABI: written once, as declarations.
//!
//! From the list below are made [`FpUmdTable`] (a table of function pointers), [`FpUmdTable::over`] (the table over any
//! [`Thunks`]), [`FpUmdTable::from_exports`] (the table of a loaded image), `c_abi_exports!` (the exports of
//! `fencepost_umd.dll`), and the C header, comments included.
//!
//! All functions may be called from any thread. Functions that take an `FpCommandList` need it for themselves: a call
//! while another thread uses it returns STATUS_DEVICE_BUSY. Nothing may be called with an object that was destroyed, or
//! while another thread destroys it.

use super::entry;
use super::types::{
    FpAdapter, FpAdapterInfo, FpAdapterOpen, FpAllocation, FpAllocationCreate, FpAllocationInfo, FpCommandList,
    FpCopyRect, FpDevice, FpDeviceState, FpFence, FpFenceCreate, FpFenceInfo, FpFilterRect, FpNodeInfo, FpQueue,
    FpQueueCounters, FpQueueCreate, FpQueueInfo, FpThunkCalls, FpTraceEvent,
};
use crate::thunks::Thunks;
use core::ffi::{c_char, c_void};
use wddm_abi::winfn;

macro_rules! functions {
    (($dollar:tt) $($(#[doc = $doc:literal])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $returns:ty;)*) => {
        /// The functions of the C ABI. One table type in every mode: filled from the exports of a loaded image, or made
        /// over a [`Thunks`] that is linked in.
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct FpUmdTable {
            $($(#[doc = $doc])* pub $name: winfn!(fn($($argument: $type),*) -> $returns),)*
        }

        impl FpUmdTable {
            /// Names of the exports, in the table's order.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// The table over `T`. Objects of one table must not be used with the table over another type.
            pub const fn over<T: Thunks>() -> Self {
                Self { $($name: entry::$name::<T>,)* }
            }

            /// The table of a loaded image, whose exports `find` knows by name.
            ///
            /// # Errors
            /// The name of an export for which `find` returned null.
            ///
            /// # Safety
            /// What `find` returns for a name is null, or the address of the function of this name and of this crate's
            /// interface version, valid for as long as the table is used.
            pub unsafe fn from_exports(mut find: impl FnMut(&'static str) -> *const c_void) -> Result<Self, &'static str> {
                $(
                    let $name = find(stringify!($name));
                    if $name.is_null() {
                        return Err(stringify!($name));
                    }
                )*
                Ok(Self {
                    $(
                        // SAFETY: not null, and the function of this name by the caller's promise.
                        $name: unsafe {
                            core::mem::transmute::<*const c_void, winfn!(fn($($argument: $type),*) -> $returns)>($name)
                        },
                    )*
                })
            }
        }

        /// Defines the exports of an image: `c_abi_exports!(Thunks)`.
        #[macro_export]
        macro_rules! c_abi_exports {
            ($dollar thunks:ty) => {
                use core::ffi::{c_char, c_void};
                use $crate::ffi::types::{
                    FpAdapter, FpAdapterInfo, FpAdapterOpen, FpAllocation, FpAllocationCreate, FpAllocationInfo,
                    FpCommandList, FpCopyRect, FpDevice, FpDeviceState, FpFence, FpFenceCreate, FpFenceInfo, FpFilterRect,
                    FpNodeInfo, FpQueue, FpQueueCounters, FpQueueCreate, FpQueueInfo, FpThunkCalls, FpTraceEvent,
                };

                const TABLE: $crate::ffi::FpUmdTable = $crate::ffi::FpUmdTable::over::<$dollar thunks>();

                $(
                    #[unsafe(no_mangle)]
                    unsafe extern "C" fn $name($($argument: $type),*) -> $returns {
                        // SAFETY: the caller's promises are those of the table's function.
                        unsafe { (TABLE.$name)($($argument),*) }
                    }
                )*
            };
        }
    };
}

functions! { ($)
    /// FP_INTERFACE_VERSION of the library. Ask first; with another version call nothing else.
    fn fp_interface_version() -> u32;

    /// What went wrong in the calling thread's last failed call, in words: UTF-8, zero-terminated, cut to `capacity`
    /// bytes. `length`, if not NULL, receives the bytes of the whole text without the zero.
    fn fp_last_error_text(buffer: *mut c_char, capacity: usize, length: *mut usize) -> i32;

    /// Opens an adapter. `open` may be NULL: the first adapter that is ours. Fails with STATUS_GRAPHICS_DRIVER_MISMATCH
    /// when the kernel-mode driver is of another version; the text names both.
    fn fp_adapter_open(open: *const FpAdapterOpen, adapter: *mut *mut FpAdapter) -> i32;

    /// Describes the adapter; among others which submission mode was chosen, and why.
    fn fp_adapter_info(adapter: *mut FpAdapter, info: *mut FpAdapterInfo) -> i32;

    /// Describes a node.
    fn fp_adapter_node(adapter: *mut FpAdapter, node: u32, info: *mut FpNodeInfo) -> i32;

    /// How often the `index`-th function of gdi32 was called through this adapter and everything on it.
    /// STATUS_INVALID_PARAMETER beyond the last.
    fn fp_adapter_thunk_calls(adapter: *mut FpAdapter, index: u32, calls: *mut FpThunkCalls) -> i32;

    /// Closes an NT handle that a share function returned, or an event.
    fn fp_adapter_close_nt_handle(adapter: *mut FpAdapter, nt_handle: u64) -> i32;

    /// Lets the adapter go. It stays open while anything on it lives.
    fn fp_adapter_close(adapter: *mut FpAdapter) -> i32;

    /// Creates a device. `flags` is 0.
    fn fp_device_create(adapter: *mut FpAdapter, flags: u32, device: *mut *mut FpDevice) -> i32;

    /// Asks the OS how the device is.
    fn fp_device_state(device: *mut FpDevice, state: *mut FpDeviceState) -> i32;

    /// Lets the device go. It lives on while anything on it does.
    fn fp_device_destroy(device: *mut FpDevice) -> i32;

    /// Allocates memory, maps it into the GPU's address space, makes it resident, and locks it for the CPU if it can
    /// be.
    fn fp_allocation_create(device: *mut FpDevice, create: *const FpAllocationCreate, allocation: *mut *mut FpAllocation) -> i32;

    /// Opens what another process shared, by an NT handle that is valid in this one.
    fn fp_allocation_open(device: *mut FpDevice, nt_handle: u64, allocation: *mut *mut FpAllocation) -> i32;

    /// An NT handle of an allocation that was created with FP_ALLOCATION_SHARED, to be duplicated into another process.
    /// The caller closes it.
    fn fp_allocation_share(allocation: *mut FpAllocation, nt_handle: *mut u64) -> i32;

    /// Describes the allocation: GPU address, CPU address, size.
    fn fp_allocation_info(allocation: *mut FpAllocation, info: *mut FpAllocationInfo) -> i32;

    /// Copies `length` bytes from `source` to `offset`. Wait for the GPU first, where it uses the same bytes.
    fn fp_allocation_write(allocation: *mut FpAllocation, offset: u64, source: *const c_void, length: usize) -> i32;

    /// Copies `length` bytes from `offset` to `destination`. Wait for the GPU first, where it writes the same bytes.
    fn fp_allocation_read(allocation: *mut FpAllocation, offset: u64, destination: *mut c_void, length: usize) -> i32;

    /// Destroys the allocation, once the GPU no longer uses it; or closes it, where it was opened. Its addresses end.
    fn fp_allocation_destroy(allocation: *mut FpAllocation) -> i32;

    /// Creates a queue on a node.
    fn fp_queue_create(device: *mut FpDevice, create: *const FpQueueCreate, queue: *mut *mut FpQueue) -> i32;

    /// Describes the queue.
    fn fp_queue_info(queue: *mut FpQueue, info: *mut FpQueueInfo) -> i32;

    /// Submits a command list, which can be reset, submitted again or destroyed right afterwards. `progress`, if not
    /// NULL, receives the submission's progress value. Waits for space, unless `flags` has FP_SUBMIT_DO_NOT_WAIT: then
    /// a full ring is STATUS_IO_TIMEOUT, and nothing was submitted. STATUS_CONNECTION_ABORTED: the queue is lost, see
    /// fp_queue_recreate.
    fn fp_queue_submit(queue: *mut FpQueue, list: *mut FpCommandList, flags: u32, progress: *mut u64) -> i32;

    /// Submits `count` command lists, 1 to FP_MAX_LISTS, each once, as one submission: they are executed in their
    /// order, a user-mode queue's doorbell is rung once, and there is one progress value. What is said of
    /// fp_queue_submit holds for all of them together: they must fit the ring, and without room for all none is
    /// submitted.
    fn fp_queue_submit_lists(
        queue: *mut FpQueue,
        lists: *const *mut FpCommandList,
        count: u32,
        flags: u32,
        progress: *mut u64,
    ) -> i32;

    /// Waits until the submission with this progress value is done; 0: the last one. `timeout` is in nanoseconds.
    /// STATUS_IO_TIMEOUT when time ran out, STATUS_DEVICE_REMOVED when the device is in error.
    fn fp_queue_wait(queue: *mut FpQueue, progress: u64, timeout: u64) -> i32;

    /// The progress value of the last submission that is done, and of the last that was made.
    fn fp_queue_progress(queue: *mut FpQueue, completed: *mut u64, submitted: *mut u64) -> i32;

    /// Destroys what is behind a lost queue and makes it anew; with FP_QUEUE_KERNEL_MODE by kernel-mode submission from
    /// now on. Progress values start again. STATUS_DEVICE_REMOVED when the device is in error: create another.
    fn fp_queue_recreate(queue: *mut FpQueue, flags: u32) -> i32;

    /// Gives a user-mode queue a ring of `ring_size` bytes, a power of two. What was submitted before runs first, and
    /// nothing waits for it; progress values go on. Command lists that were recorded for a larger ring may not fit.
    /// STATUS_IO_TIMEOUT when the rings of two resizes before have work left: wait for some of it. STATUS_NOT_SUPPORTED
    /// for a queue of another mode. STATUS_CONNECTION_ABORTED: the queue is lost, see fp_queue_recreate.
    fn fp_queue_resize(queue: *mut FpQueue, ring_size: u64) -> i32;

    /// What the queue has counted.
    fn fp_queue_counters(queue: *mut FpQueue, counters: *mut FpQueueCounters) -> i32;

    /// Takes up to `capacity` events out of the queue's trace, oldest first: when waits and signals were recorded and
    /// queued. `count` receives how many there were; `lost`, if not NULL, how many had been overwritten before.
    fn fp_queue_trace_read(queue: *mut FpQueue, events: *mut FpTraceEvent, capacity: u32, count: *mut u32, lost: *mut u64) -> i32;

    /// Destroys the queue, and waits for what was submitted before: for as long as something of it completes within
    /// each fifth of a second where it may wait for a fence (it has a wait, or a command buffer of the caller's), and
    /// within each ten seconds where it does not. Work that stands still for longer, as behind a wait for a value that
    /// is not signaled, is lost.
    fn fp_queue_destroy(queue: *mut FpQueue) -> i32;

    /// Creates a fence: a native one where the adapter has them. `create` may be NULL: private, from 0.
    fn fp_fence_create(device: *mut FpDevice, create: *const FpFenceCreate, fence: *mut *mut FpFence) -> i32;

    /// Opens what another process shared, by an NT handle that is valid in this one. `flags`: FP_FENCE_MONITORED or 0.
    fn fp_fence_open(device: *mut FpDevice, nt_handle: u64, flags: u32, fence: *mut *mut FpFence) -> i32;

    /// An NT handle of a fence that was created with FP_FENCE_SHARED, to be duplicated into another process. The caller
    /// closes it.
    fn fp_fence_share(fence: *mut FpFence, nt_handle: *mut u64) -> i32;

    /// Describes the fence.
    fn fp_fence_info(fence: *mut FpFence, info: *mut FpFenceInfo) -> i32;

    /// The fence's value now, without a call into the kernel.
    fn fp_fence_value(fence: *mut FpFence, value: *mut u64) -> i32;

    /// Sets the fence's value from the CPU.
    fn fp_fence_signal(fence: *mut FpFence, value: u64) -> i32;

    /// Waits until the fence is at least `value`. `timeout` is in nanoseconds; with FP_INFINITE it blocks in the
    /// kernel. A reset may signal a fence with its largest value: fp_device_state tells whether it was one.
    fn fp_fence_wait(fence: *mut FpFence, value: u64, timeout: u64) -> i32;

    /// Has the OS set an event when the fence is at least `value`; returns at once.
    fn fp_fence_wait_event(fence: *mut FpFence, value: u64, event: u64) -> i32;

    /// Destroys the fence in this process. Another process that has it open keeps it.
    fn fp_fence_destroy(fence: *mut FpFence) -> i32;

    /// Creates an empty command list that fits the queue.
    fn fp_command_list_create(queue: *mut FpQueue, list: *mut *mut FpCommandList) -> i32;

    /// Forgets what was recorded.
    fn fp_command_list_reset(list: *mut FpCommandList) -> i32;

    /// Bytes recorded, and the packets themselves: up to `capacity` bytes are copied to `buffer`, which may be NULL.
    fn fp_command_list_bytes(list: *mut FpCommandList, buffer: *mut c_void, capacity: usize, length: *mut usize) -> i32;

    /// Destroys the list.
    fn fp_command_list_destroy(list: *mut FpCommandList) -> i32;

    /// Records padding of `length` bytes, a multiple of 8.
    fn fp_cmd_nop(list: *mut FpCommandList, length: u32) -> i32;

    /// Records a store of 8 bytes. Nobody is notified.
    fn fp_cmd_store(list: *mut FpCommandList, address: u64, value: u64) -> i32;

    /// Records a store of 4 bytes. Nobody is notified.
    fn fp_cmd_store32(list: *mut FpCommandList, address: u64, value: u32) -> i32;

    /// Records a fill of `length` bytes with a pattern of 4; address and length are multiples of 4.
    fn fp_cmd_fill(list: *mut FpCommandList, address: u64, length: u64, pattern: u32) -> i32;

    /// Records a copy of `length` bytes between ranges that do not overlap.
    fn fp_cmd_copy(list: *mut FpCommandList, source: u64, destination: u64, length: u64) -> i32;

    /// Records a copy of rows.
    fn fp_cmd_copy_rect(list: *mut FpCommandList, rect: *const FpCopyRect) -> i32;

    /// Records a 3x3 convolution.
    fn fp_cmd_filter_rect(list: *mut FpCommandList, rect: *const FpFilterRect) -> i32;

    /// Records a wait until the fence is at least `value`, and its log entry.
    fn fp_cmd_fence_wait(list: *mut FpCommandList, fence: *mut FpFence, value: u64) -> i32;

    /// Records a signal of the fence, and its log entry.
    fn fp_cmd_fence_signal(list: *mut FpCommandList, fence: *mut FpFence, value: u64) -> i32;

    /// Records a store of the GPU's clock to an address that is a multiple of 8.
    fn fp_cmd_timestamp(list: *mut FpCommandList, address: u64) -> i32;

    /// Records the execution of a command buffer: packets, for instance those of fp_command_list_bytes, that the caller
    /// has put into an allocation.
    fn fp_cmd_indirect(list: *mut FpCommandList, address: u64, length: u64) -> i32;

    /// For tests: records bytes as they are, a multiple of 8, checked by nobody but the GPU.
    fn fp_cmd_raw(list: *mut FpCommandList, packets: *const c_void, length: usize) -> i32;
}
