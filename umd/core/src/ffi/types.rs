//! Structures and constants of the C ABI. `umd/include/fencepost_umd.h` is made from this file and from `table.rs`.
//!
//! Every structure that crosses starts with `size`, which the caller sets to the size that it was compiled with.

use core::ffi::c_void;

/// Version of this interface: what `fp_interface_version` returns. It changes when a function or a structure changes in
/// a way that `size` does not cover.
pub const FP_INTERFACE_VERSION: u32 = 2;

/// A timeout that never ends.
pub const FP_INFINITE: u64 = u64::MAX;

/// `FpAdapterOpen::flags`: the adapter with this LUID, not the first that is ours.
pub const FP_OPEN_BY_LUID: u32 = 1;
/// `FpAdapterOpen::flags`: kernel-mode submission even where user-mode submission is there.
pub const FP_OPEN_KERNEL_MODE: u32 = 2;

/// A submission mode: packet contexts.
pub const FP_MODE_PACKET: u32 = 0;
/// A submission mode: hardware queues, kernel-mode submission.
pub const FP_MODE_KERNEL: u32 = 1;
/// A submission mode: hardware queues, ring and doorbell.
pub const FP_MODE_USER: u32 = 2;
/// No mode: the queue was lost while it was being recreated.
pub const FP_MODE_NONE: u32 = 3;

/// `FpAllocationCreate::kind`: system memory, which the CPU sees.
pub const FP_KIND_SYSTEM: u32 = 1;
/// `FpAllocationCreate::kind`: the local segment, which the CPU does not see.
pub const FP_KIND_LOCAL: u32 = 2;

/// `FpAllocationCreate::flags`: another process may open it.
pub const FP_ALLOCATION_SHARED: u32 = 1;
/// `FpAllocationCreate::flags`: this process's GPU mapping refuses stores.
pub const FP_ALLOCATION_GPU_READ_ONLY: u32 = 2;

/// `FpQueueCreate::flags` and `fp_queue_recreate`: kernel-mode submission.
pub const FP_QUEUE_KERNEL_MODE: u32 = 1;
/// `FpQueueCreate::flags`: exempt from the time-out of TDR.
pub const FP_QUEUE_NO_TIMEOUT: u32 = 2;

/// `fp_queue_submit` and `fp_queue_submit_lists`: do not wait for space.
pub const FP_SUBMIT_DO_NOT_WAIT: u32 = 1;
/// `fp_queue_submit_lists`: most lists of a call.
pub const FP_MAX_LISTS: u32 = 1024;

/// `FpFenceCreate::flags`: another process may open it.
pub const FP_FENCE_SHARED: u32 = 1;
/// `FpFenceCreate::flags` and `fp_fence_open`: a monitored fence even where native ones are there.
pub const FP_FENCE_MONITORED: u32 = 2;

/// `FpFenceCreate::flags`: another process may open it, and on other adapters, too.
pub const FP_FENCE_CROSS_ADAPTER: u32 = 4;

/// `FpTraceEvent::kind`: a wait was put into the queue.
pub const FP_TRACE_WAIT_QUEUED: u32 = 0;
/// `FpTraceEvent::kind`: a signal was put into the queue.
pub const FP_TRACE_SIGNAL_QUEUED: u32 = 1;

/// An open adapter.
pub struct FpAdapter {
    _opaque: (),
}
/// A device.
pub struct FpDevice {
    _opaque: (),
}
/// An allocation: memory of the GPU.
pub struct FpAllocation {
    _opaque: (),
}
/// A queue.
pub struct FpQueue {
    _opaque: (),
}
/// A fence.
pub struct FpFence {
    _opaque: (),
}
/// A command list.
pub struct FpCommandList {
    _opaque: (),
}

/// Which adapter to open, and how.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FpAdapterOpen {
    /// Bytes of this structure.
    pub size: u32,
    /// `FP_OPEN_…`.
    pub flags: u32,
    /// Low half of the LUID, with `FP_OPEN_BY_LUID`.
    pub luid_low: u32,
    /// High half of the LUID, with `FP_OPEN_BY_LUID`.
    pub luid_high: i32,
    /// Zeros.
    pub reserved: [u32; 2],
}

/// What an adapter is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FpAdapterInfo {
    /// Bytes of this structure.
    pub size: u32,
    /// Version of the formats that the drivers share.
    pub driver_interface_version: u32,
    /// What the kernel-mode driver negotiated: 0 packet, 1 hardware queues, 2 native fences, 3 user-mode submission.
    pub rung: u32,
    /// `FP_MODE_…` of the nodes that can do it.
    pub mode: u32,
    /// Why `mode` is not `FP_MODE_USER`: 0 it is, 1 rung, 2 hardware scheduling is off, 3 native fences are off,
    /// 4 gdi32 has newer doorbell calls, 5 gdi32 lacks a call, 6 asked for.
    pub fallback: u32,
    /// 1 when fences are native ones, 0 when they are monitored ones.
    pub native_fences: u32,
    /// Nodes.
    pub node_count: u32,
    /// Doorbell model: 0 dedicated, 1 global.
    pub doorbell_model: u32,
    /// Physical doorbells.
    pub physical_doorbells: u32,
    /// Low half of the LUID.
    pub luid_low: u32,
    /// High half of the LUID.
    pub luid_high: i32,
    /// Zero.
    pub reserved: u32,
    /// Bytes of the local segment.
    pub local_segment_size: u64,
    /// Ticks per second of the GPU's clock.
    pub gpu_clock_frequency: u64,
    /// Ticks per second of the clock of `FpTraceEvent`.
    pub cpu_clock_frequency: u64,
    /// `fallback` in words, UTF-8, zero-terminated.
    pub fallback_reason: [u8; 128],
}

/// What a node is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FpNodeInfo {
    /// Bytes of this structure.
    pub size: u32,
    /// `DXGK_ENGINE_TYPE`.
    pub engine_type: u32,
    /// `FP_MODE_…`.
    pub mode: u32,
    /// `DXGK_NODEMETADATA_FLAGS`.
    pub flags: u32,
}

/// How a device is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FpDeviceState {
    /// Bytes of this structure.
    pub size: u32,
    /// `D3DKMT_DEVICEEXECUTION_STATE`: 1 is active, anything else an error.
    pub execution: u32,
    /// `DXGK_PAGE_FAULT_FLAGS` after a page fault (execution 7), else 0.
    pub page_fault_flags: u32,
    /// Zero.
    pub reserved: u32,
    /// The faulting GPU address after a page fault.
    pub page_fault_address: u64,
}

/// What to allocate.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FpAllocationCreate {
    /// Bytes of this structure.
    pub size: u32,
    /// `FP_KIND_…`.
    pub kind: u32,
    /// `FP_ALLOCATION_…`.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// Bytes wanted; rounded up to pages, in local memory to units of 64 KB.
    pub bytes: u64,
}

/// What an allocation is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FpAllocationInfo {
    /// Bytes of this structure.
    pub size: u32,
    /// `FP_KIND_…`.
    pub kind: u32,
    /// Its `D3DKMT_HANDLE`.
    pub handle: u32,
    /// The `D3DKMT_HANDLE` of its resource; 0 when it is not shared.
    pub resource: u32,
    /// Bytes.
    pub bytes: u64,
    /// Its address in the process's GPU address space.
    pub gpu_va: u64,
    /// Its address for the CPU; NULL for the local segment, and for an opened allocation until it is first read or
    /// written by the CPU.
    pub cpu: *mut c_void,
}

/// What queue to create.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FpQueueCreate {
    /// Bytes of this structure.
    pub size: u32,
    /// Node.
    pub node: u32,
    /// `FP_QUEUE_…`.
    pub flags: u32,
    /// Fence operations that the trace keeps; 0 for no trace.
    pub trace_events: u32,
    /// Bytes of the ring: a power of two from 4096 to 16 MiB; of the command buffer pool in the kernel modes.
    pub ring_bytes: u64,
}

/// What a queue is. Addresses are for tests; they hold until the queue is recreated or destroyed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FpQueueInfo {
    /// Bytes of this structure.
    pub size: u32,
    /// `FP_MODE_…`.
    pub mode: u32,
    /// Its number within the device.
    pub number: u32,
    /// Node.
    pub node: u32,
    /// `D3DKMT_HANDLE` of the hardware queue or packet context.
    pub handle: u32,
    /// `D3DKMT_HANDLE` of the progress fence: what its log entries name it by.
    pub progress_fence: u32,
    /// `D3DKMT_HANDLE` of the doorbell; 0 without one.
    pub doorbell: u32,
    /// Zero.
    pub reserved: u32,
    /// Bytes that a command list may have.
    pub list_limit: u64,
    /// Where the CPU reads progress.
    pub progress_address: u64,
    /// Where the GPU writes progress.
    pub progress_va: u64,
    /// What the doorbell's status word says now (`D3DDDI_DOORBELLSTATUS`); all ones without a doorbell.
    pub doorbell_status: u64,
    /// CPU address of the doorbell.
    pub doorbell_address: u64,
    /// CPU address of the doorbell's status.
    pub status_address: u64,
    /// CPU address of the last queued progress value.
    pub last_queued_address: u64,
    /// CPU address of the write pointer.
    pub write_pointer_address: u64,
    /// CPU address of the ring.
    pub ring_address: u64,
    /// GPU address of the ring.
    pub ring_va: u64,
    /// GPU address of the ring's control page.
    pub control_va: u64,
}

/// What a queue has counted.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FpQueueCounters {
    /// Bytes of this structure.
    pub size: u32,
    /// Zero.
    pub reserved: u32,
    /// Calls that submitted command lists.
    pub submissions: u64,
    /// Doorbell stores.
    pub rings: u64,
    /// Connects because the doorbell's status was RETRY.
    pub reconnects: u64,
    /// Calls of `D3DKMTNotifyWorkSubmission`.
    pub notifies: u64,
    /// Waits for space.
    pub stalls: u64,
}

/// How often a function of gdi32 was called.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FpThunkCalls {
    /// Bytes of this structure.
    pub size: u32,
    /// Zero.
    pub reserved: u32,
    /// Calls, refused ones included.
    pub calls: u64,
    /// Refused ones.
    pub failures: u64,
    /// The function's name, zero-terminated.
    pub name: [u8; 64],
}

/// What fence to create.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FpFenceCreate {
    /// Bytes of this structure.
    pub size: u32,
    /// `FP_FENCE_…`.
    pub flags: u32,
    /// Its first value.
    pub initial_value: u64,
    /// Private data of a native fence: travels to the kernel-mode driver and back.
    pub private_data: [u8; 48],
}

/// What a fence is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FpFenceInfo {
    /// Bytes of this structure.
    pub size: u32,
    /// 1 for a native fence, 0 for a monitored one.
    pub native: u32,
    /// Its `D3DKMT_HANDLE`: what log entries name it by.
    pub handle: u32,
    /// Its number in debug blobs; all ones when the kernel-mode driver did not say.
    pub index: u32,
    /// Where the GPU finds its value.
    pub gpu_va: u64,
    /// Where the GPU finds MonitoredValue; 0 for a monitored fence.
    pub monitored_va: u64,
    /// Where the CPU reads its value. Read-only memory.
    pub value_address: u64,
    /// Its value now.
    pub value: u64,
    /// The private data as they came back; zeros for a monitored fence.
    pub private_data: [u8; 64],
}

/// Rows to copy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FpCopyRect {
    /// Bytes of this structure.
    pub size: u32,
    /// Bytes of a row.
    pub row_bytes: u32,
    /// Rows.
    pub rows: u32,
    /// Bytes from one source row to the next.
    pub source_pitch: u32,
    /// Bytes from one destination row to the next.
    pub destination_pitch: u32,
    /// Zero.
    pub reserved: u32,
    /// GPU address of the first source row.
    pub source: u64,
    /// GPU address of the first destination row.
    pub destination: u64,
}

/// A rectangle of RGBA8 pixels to convolve with a 3x3 kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FpFilterRect {
    /// Bytes of this structure.
    pub size: u32,
    /// Bytes per source row.
    pub source_pitch: u32,
    /// Bytes per destination row.
    pub destination_pitch: u32,
    /// Pixels per row of both images.
    pub image_width: u32,
    /// Rows of both images.
    pub image_height: u32,
    /// First column of the rectangle.
    pub x: u32,
    /// First row of the rectangle.
    pub y: u32,
    /// Columns of the rectangle.
    pub width: u32,
    /// Rows of the rectangle.
    pub height: u32,
    /// Row-major coefficients, -1024 to 1024.
    pub coefficients: [i16; 9],
    /// Added after the shift, -256 to 256.
    pub bias: i16,
    /// Right shift of the sum, 0 to 16.
    pub shift: u16,
    /// Zero.
    pub reserved: u16,
    /// Zero.
    pub reserved2: u32,
    /// GPU address of pixel (0, 0) of the source image.
    pub source: u64,
    /// GPU address of pixel (0, 0) of the destination image.
    pub destination: u64,
}

/// A fence operation that was put into a queue.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FpTraceEvent {
    /// `FP_TRACE_…`.
    pub kind: u32,
    /// `D3DKMT_HANDLE` of the fence, as the log entry has it.
    pub fence: u32,
    /// The value.
    pub value: u64,
    /// CPU clock when it was recorded.
    pub recorded: u64,
    /// CPU clock right before it was put into the queue.
    pub queued: u64,
    /// Progress value of its submission.
    pub progress: u64,
}
