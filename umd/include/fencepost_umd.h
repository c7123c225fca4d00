/*
 * fencepost_umd.h - the C interface of Fencepost's user-mode driver, fencepost_umd.dll.
 *
 * Made from umd/core/src/ffi by a test of umd_core; do not edit.
 *
 * Every function returns 0 or a negative NTSTATUS; fp_last_error_text has it in words. Structures start with their size,
 * which the caller sets. Addresses of the GPU are plain numbers. Timeouts are in nanoseconds.
 *
 * Threads: any thread may call any function. A command list is for one thread at a time (another gets STATUS_DEVICE_BUSY).
 * Several threads may submit to one queue: their lists are executed whole, one after the other. Nothing may be called with an
 * object that was destroyed, or while another thread destroys it. Destroying an object in any order is fine: what was made
 * on it keeps it alive inside.
 *
 * Example:
 * #include "fencepost_umd.h"
 * #include <stdio.h>
 *
 * static int failed(const char *what, int32_t status)
 * {
 *     char text[256] = "";
 *     fp_last_error_text(text, sizeof text, NULL);
 *     fprintf(stderr, "%s: 0x%08x, %s\n", what, (unsigned)status, text);
 *     return 1;
 * }
 *
 * int main(void)
 * {
 *     FpAdapter *adapter = NULL;
 *     FpDevice *device = NULL;
 *     FpQueue *queue = NULL;
 *     FpAllocation *memory = NULL;
 *     FpCommandList *list = NULL;
 *     FpAllocationInfo place = {.size = sizeof place};
 *     FpAllocationCreate allocate = {.size = sizeof allocate, .kind = FP_KIND_SYSTEM, .bytes = 65536};
 *     FpQueueCreate create = {.size = sizeof create, .node = 0, .ring_bytes = 65536, .trace_events = 256};
 *     uint64_t progress = 0;
 *     int32_t status;
 *
 *     if (fp_interface_version() != FP_INTERFACE_VERSION)
 *         return 1;
 *     if ((status = fp_adapter_open(NULL, &adapter)) < 0)
 *         return failed("open", status);
 *     if ((status = fp_device_create(adapter, 0, &device)) < 0)
 *         return failed("device", status);
 *     if ((status = fp_allocation_create(device, &allocate, &memory)) < 0)
 *         return failed("allocation", status);
 *     if ((status = fp_allocation_info(memory, &place)) < 0)
 *         return failed("allocation", status);
 *     if ((status = fp_queue_create(device, &create, &queue)) < 0)
 *         return failed("queue", status);
 *     if ((status = fp_command_list_create(queue, &list)) < 0)
 *         return failed("list", status);
 *     fp_cmd_fill(list, place.gpu_va, 4096, 0x2a2a2a2a);
 *     if ((status = fp_queue_submit(queue, list, 0, &progress)) < 0)
 *         return failed("submit", status);
 *     if ((status = fp_queue_wait(queue, progress, FP_INFINITE)) < 0)
 *         return failed("wait", status);
 *     printf("%d\n", ((const unsigned char *)place.cpu)[17]);
 *     fp_command_list_destroy(list);
 *     fp_queue_destroy(queue);
 *     fp_allocation_destroy(memory);
 *     fp_device_destroy(device);
 *     fp_adapter_close(adapter);
 *     return 0;
 * }
 */

#ifndef FENCEPOST_UMD_H
#define FENCEPOST_UMD_H

#include <stddef.h>
#include <stdint.h>

// Version of this interface: what `fp_interface_version` returns. It changes when a function or a structure changes in
// a way that `size` does not cover.
#define FP_INTERFACE_VERSION 2

// A timeout that never ends.
#define FP_INFINITE UINT64_MAX

// `FpAdapterOpen::flags`: the adapter with this LUID, not the first that is ours.
#define FP_OPEN_BY_LUID 1

// `FpAdapterOpen::flags`: kernel-mode submission even where user-mode submission is there.
#define FP_OPEN_KERNEL_MODE 2

// A submission mode: packet contexts.
#define FP_MODE_PACKET 0

// A submission mode: hardware queues, kernel-mode submission.
#define FP_MODE_KERNEL 1

// A submission mode: hardware queues, ring and doorbell.
#define FP_MODE_USER 2

// No mode: the queue was lost while it was being recreated.
#define FP_MODE_NONE 3

// `FpAllocationCreate::kind`: system memory, which the CPU sees.
#define FP_KIND_SYSTEM 1

// `FpAllocationCreate::kind`: the local segment, which the CPU does not see.
#define FP_KIND_LOCAL 2

// `FpAllocationCreate::flags`: another process may open it.
#define FP_ALLOCATION_SHARED 1

// `FpAllocationCreate::flags`: this process's GPU mapping refuses stores.
#define FP_ALLOCATION_GPU_READ_ONLY 2

// `FpQueueCreate::flags` and `fp_queue_recreate`: kernel-mode submission.
#define FP_QUEUE_KERNEL_MODE 1

// `FpQueueCreate::flags`: exempt from the time-out of TDR.
#define FP_QUEUE_NO_TIMEOUT 2

// `fp_queue_submit` and `fp_queue_submit_lists`: do not wait for space.
#define FP_SUBMIT_DO_NOT_WAIT 1

// `fp_queue_submit_lists`: most lists of a call.
#define FP_MAX_LISTS 1024

// `FpFenceCreate::flags`: another process may open it.
#define FP_FENCE_SHARED 1

// `FpFenceCreate::flags` and `fp_fence_open`: a monitored fence even where native ones are there.
#define FP_FENCE_MONITORED 2

// `FpFenceCreate::flags`: another process may open it, and on other adapters, too.
#define FP_FENCE_CROSS_ADAPTER 4

// `FpTraceEvent::kind`: a wait was put into the queue.
#define FP_TRACE_WAIT_QUEUED 0

// `FpTraceEvent::kind`: a signal was put into the queue.
#define FP_TRACE_SIGNAL_QUEUED 1

// An open adapter.
typedef struct FpAdapter FpAdapter;

// An allocation: memory of the GPU.
typedef struct FpAllocation FpAllocation;

// A command list.
typedef struct FpCommandList FpCommandList;

// A device.
typedef struct FpDevice FpDevice;

// A fence.
typedef struct FpFence FpFence;

// A queue.
typedef struct FpQueue FpQueue;

// Which adapter to open, and how.
typedef struct FpAdapterOpen {
    // Bytes of this structure.
    uint32_t size;
    // `FP_OPEN_…`.
    uint32_t flags;
    // Low half of the LUID, with `FP_OPEN_BY_LUID`.
    uint32_t luid_low;
    // High half of the LUID, with `FP_OPEN_BY_LUID`.
    int32_t luid_high;
    // Zeros.
    uint32_t reserved[2];
} FpAdapterOpen;

// What an adapter is.
typedef struct FpAdapterInfo {
    // Bytes of this structure.
    uint32_t size;
    // Version of the formats that the drivers share.
    uint32_t driver_interface_version;
    // What the kernel-mode driver negotiated: 0 packet, 1 hardware queues, 2 native fences, 3 user-mode submission.
    uint32_t rung;
    // `FP_MODE_…` of the nodes that can do it.
    uint32_t mode;
    // Why `mode` is not `FP_MODE_USER`: 0 it is, 1 rung, 2 hardware scheduling is off, 3 native fences are off,
    // 4 gdi32 has newer doorbell calls, 5 gdi32 lacks a call, 6 asked for.
    uint32_t fallback;
    // 1 when fences are native ones, 0 when they are monitored ones.
    uint32_t native_fences;
    // Nodes.
    uint32_t node_count;
    // Doorbell model: 0 dedicated, 1 global.
    uint32_t doorbell_model;
    // Physical doorbells.
    uint32_t physical_doorbells;
    // Low half of the LUID.
    uint32_t luid_low;
    // High half of the LUID.
    int32_t luid_high;
    // Zero.
    uint32_t reserved;
    // Bytes of the local segment.
    uint64_t local_segment_size;
    // Ticks per second of the GPU's clock.
    uint64_t gpu_clock_frequency;
    // Ticks per second of the clock of `FpTraceEvent`.
    uint64_t cpu_clock_frequency;
    // `fallback` in words, UTF-8, zero-terminated.
    uint8_t fallback_reason[128];
} FpAdapterInfo;

// What a node is.
typedef struct FpNodeInfo {
    // Bytes of this structure.
    uint32_t size;
    // `DXGK_ENGINE_TYPE`.
    uint32_t engine_type;
    // `FP_MODE_…`.
    uint32_t mode;
    // `DXGK_NODEMETADATA_FLAGS`.
    uint32_t flags;
} FpNodeInfo;

// How often a function of gdi32 was called.
typedef struct FpThunkCalls {
    // Bytes of this structure.
    uint32_t size;
    // Zero.
    uint32_t reserved;
    // Calls, refused ones included.
    uint64_t calls;
    // Refused ones.
    uint64_t failures;
    // The function's name, zero-terminated.
    uint8_t name[64];
} FpThunkCalls;

// How a device is.
typedef struct FpDeviceState {
    // Bytes of this structure.
    uint32_t size;
    // `D3DKMT_DEVICEEXECUTION_STATE`: 1 is active, anything else an error.
    uint32_t execution;
    // `DXGK_PAGE_FAULT_FLAGS` after a page fault (execution 7), else 0.
    uint32_t page_fault_flags;
    // Zero.
    uint32_t reserved;
    // The faulting GPU address after a page fault.
    uint64_t page_fault_address;
} FpDeviceState;

// What to allocate.
typedef struct FpAllocationCreate {
    // Bytes of this structure.
    uint32_t size;
    // `FP_KIND_…`.
    uint32_t kind;
    // `FP_ALLOCATION_…`.
    uint32_t flags;
    // Zero.
    uint32_t reserved;
    // Bytes wanted; rounded up to pages, in local memory to units of 64 KB.
    uint64_t bytes;
} FpAllocationCreate;

// What an allocation is.
typedef struct FpAllocationInfo {
    // Bytes of this structure.
    uint32_t size;
    // `FP_KIND_…`.
    uint32_t kind;
    // Its `D3DKMT_HANDLE`.
    uint32_t handle;
    // The `D3DKMT_HANDLE` of its resource; 0 when it is not shared.
    uint32_t resource;
    // Bytes.
    uint64_t bytes;
    // Its address in the process's GPU address space.
    uint64_t gpu_va;
    // Its address for the CPU; NULL for the local segment, and for an opened allocation until it is first read or
    // written by the CPU.
    void *cpu;
} FpAllocationInfo;

// What queue to create.
typedef struct FpQueueCreate {
    // Bytes of this structure.
    uint32_t size;
    // Node.
    uint32_t node;
    // `FP_QUEUE_…`.
    uint32_t flags;
    // Fence operations that the trace keeps; 0 for no trace.
    uint32_t trace_events;
    // Bytes of the ring: a power of two from 4096 to 16 MiB; of the command buffer pool in the kernel modes.
    uint64_t ring_bytes;
} FpQueueCreate;

// What a queue is. Addresses are for tests; they hold until the queue is recreated or destroyed.
typedef struct FpQueueInfo {
    // Bytes of this structure.
    uint32_t size;
    // `FP_MODE_…`.
    uint32_t mode;
    // Its number within the device.
    uint32_t number;
    // Node.
    uint32_t node;
    // `D3DKMT_HANDLE` of the hardware queue or packet context.
    uint32_t handle;
    // `D3DKMT_HANDLE` of the progress fence: what its log entries name it by.
    uint32_t progress_fence;
    // `D3DKMT_HANDLE` of the doorbell; 0 without one.
    uint32_t doorbell;
    // Zero.
    uint32_t reserved;
    // Bytes that a command list may have.
    uint64_t list_limit;
    // Where the CPU reads progress.
    uint64_t progress_address;
    // Where the GPU writes progress.
    uint64_t progress_va;
    // What the doorbell's status word says now (`D3DDDI_DOORBELLSTATUS`); all ones without a doorbell.
    uint64_t doorbell_status;
    // CPU address of the doorbell.
    uint64_t doorbell_address;
    // CPU address of the doorbell's status.
    uint64_t status_address;
    // CPU address of the last queued progress value.
    uint64_t last_queued_address;
    // CPU address of the write pointer.
    uint64_t write_pointer_address;
    // CPU address of the ring.
    uint64_t ring_address;
    // GPU address of the ring.
    uint64_t ring_va;
    // GPU address of the ring's control page.
    uint64_t control_va;
} FpQueueInfo;

// What a queue has counted.
typedef struct FpQueueCounters {
    // Bytes of this structure.
    uint32_t size;
    // Zero.
    uint32_t reserved;
    // Calls that submitted command lists.
    uint64_t submissions;
    // Doorbell stores.
    uint64_t rings;
    // Connects because the doorbell's status was RETRY.
    uint64_t reconnects;
    // Calls of `D3DKMTNotifyWorkSubmission`.
    uint64_t notifies;
    // Waits for space.
    uint64_t stalls;
} FpQueueCounters;

// A fence operation that was put into a queue.
typedef struct FpTraceEvent {
    // `FP_TRACE_…`.
    uint32_t kind;
    // `D3DKMT_HANDLE` of the fence, as the log entry has it.
    uint32_t fence;
    // The value.
    uint64_t value;
    // CPU clock when it was recorded.
    uint64_t recorded;
    // CPU clock right before it was put into the queue.
    uint64_t queued;
    // Progress value of its submission.
    uint64_t progress;
} FpTraceEvent;

// What fence to create.
typedef struct FpFenceCreate {
    // Bytes of this structure.
    uint32_t size;
    // `FP_FENCE_…`.
    uint32_t flags;
    // Its first value.
    uint64_t initial_value;
    // Private data of a native fence: travels to the kernel-mode driver and back.
    uint8_t private_data[48];
} FpFenceCreate;

// What a fence is.
typedef struct FpFenceInfo {
    // Bytes of this structure.
    uint32_t size;
    // 1 for a native fence, 0 for a monitored one.
    uint32_t native;
    // Its `D3DKMT_HANDLE`: what log entries name it by.
    uint32_t handle;
    // Its number in debug blobs; all ones when the kernel-mode driver did not say.
    uint32_t index;
    // Where the GPU finds its value.
    uint64_t gpu_va;
    // Where the GPU finds MonitoredValue; 0 for a monitored fence.
    uint64_t monitored_va;
    // Where the CPU reads its value. Read-only memory.
    uint64_t value_address;
    // Its value now.
    uint64_t value;
    // The private data as they came back; zeros for a monitored fence.
    uint8_t private_data[64];
} FpFenceInfo;

// Rows to copy.
typedef struct FpCopyRect {
    // Bytes of this structure.
    uint32_t size;
    // Bytes of a row.
    uint32_t row_bytes;
    // Rows.
    uint32_t rows;
    // Bytes from one source row to the next.
    uint32_t source_pitch;
    // Bytes from one destination row to the next.
    uint32_t destination_pitch;
    // Zero.
    uint32_t reserved;
    // GPU address of the first source row.
    uint64_t source;
    // GPU address of the first destination row.
    uint64_t destination;
} FpCopyRect;

// A rectangle of RGBA8 pixels to convolve with a 3x3 kernel.
typedef struct FpFilterRect {
    // Bytes of this structure.
    uint32_t size;
    // Bytes per source row.
    uint32_t source_pitch;
    // Bytes per destination row.
    uint32_t destination_pitch;
    // Pixels per row of both images.
    uint32_t image_width;
    // Rows of both images.
    uint32_t image_height;
    // First column of the rectangle.
    uint32_t x;
    // First row of the rectangle.
    uint32_t y;
    // Columns of the rectangle.
    uint32_t width;
    // Rows of the rectangle.
    uint32_t height;
    // Row-major coefficients, -1024 to 1024.
    int16_t coefficients[9];
    // Added after the shift, -256 to 256.
    int16_t bias;
    // Right shift of the sum, 0 to 16.
    uint16_t shift;
    // Zero.
    uint16_t reserved;
    // Zero.
    uint32_t reserved2;
    // GPU address of pixel (0, 0) of the source image.
    uint64_t source;
    // GPU address of pixel (0, 0) of the destination image.
    uint64_t destination;
} FpFilterRect;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// FP_INTERFACE_VERSION of the library. Ask first; with another version call nothing else.
extern uint32_t fp_interface_version(void);

// What went wrong in the calling thread's last failed call, in words: UTF-8, zero-terminated, cut to `capacity`
// bytes. `length`, if not NULL, receives the bytes of the whole text without the zero.
extern int32_t fp_last_error_text(char *buffer, size_t capacity, size_t *length);

// Opens an adapter. `open` may be NULL: the first adapter that is ours. Fails with STATUS_GRAPHICS_DRIVER_MISMATCH
// when the kernel-mode driver is of another version; the text names both.
extern int32_t fp_adapter_open(const struct FpAdapterOpen *open, struct FpAdapter **adapter);

// Describes the adapter; among others which submission mode was chosen, and why.
extern int32_t fp_adapter_info(struct FpAdapter *adapter, struct FpAdapterInfo *info);

// Describes a node.
extern int32_t fp_adapter_node(struct FpAdapter *adapter, uint32_t node, struct FpNodeInfo *info);

// How often the `index`-th function of gdi32 was called through this adapter and everything on it.
// STATUS_INVALID_PARAMETER beyond the last.
extern int32_t fp_adapter_thunk_calls(struct FpAdapter *adapter, uint32_t index, struct FpThunkCalls *calls);

// Closes an NT handle that a share function returned, or an event.
extern int32_t fp_adapter_close_nt_handle(struct FpAdapter *adapter, uint64_t nt_handle);

// Lets the adapter go. It stays open while anything on it lives.
extern int32_t fp_adapter_close(struct FpAdapter *adapter);

// Creates a device. `flags` is 0.
extern int32_t fp_device_create(struct FpAdapter *adapter, uint32_t flags, struct FpDevice **device);

// Asks the OS how the device is.
extern int32_t fp_device_state(struct FpDevice *device, struct FpDeviceState *state);

// Lets the device go. It lives on while anything on it does.
extern int32_t fp_device_destroy(struct FpDevice *device);

// Allocates memory, maps it into the GPU's address space, makes it resident, and locks it for the CPU if it can
// be.
extern int32_t fp_allocation_create(struct FpDevice *device,
                                    const struct FpAllocationCreate *create,
                                    struct FpAllocation **allocation);

// Opens what another process shared, by an NT handle that is valid in this one.
extern int32_t fp_allocation_open(struct FpDevice *device, uint64_t nt_handle, struct FpAllocation **allocation);

// An NT handle of an allocation that was created with FP_ALLOCATION_SHARED, to be duplicated into another process.
// The caller closes it.
extern int32_t fp_allocation_share(struct FpAllocation *allocation, uint64_t *nt_handle);

// Describes the allocation: GPU address, CPU address, size.
extern int32_t fp_allocation_info(struct FpAllocation *allocation, struct FpAllocationInfo *info);

// Copies `length` bytes from `source` to `offset`. Wait for the GPU first, where it uses the same bytes.
extern int32_t fp_allocation_write(struct FpAllocation *allocation, uint64_t offset, const void *source, size_t length);

// Copies `length` bytes from `offset` to `destination`. Wait for the GPU first, where it writes the same bytes.
extern int32_t fp_allocation_read(struct FpAllocation *allocation, uint64_t offset, void *destination, size_t length);

// Destroys the allocation, once the GPU no longer uses it; or closes it, where it was opened. Its addresses end.
extern int32_t fp_allocation_destroy(struct FpAllocation *allocation);

// Creates a queue on a node.
extern int32_t fp_queue_create(struct FpDevice *device, const struct FpQueueCreate *create, struct FpQueue **queue);

// Describes the queue.
extern int32_t fp_queue_info(struct FpQueue *queue, struct FpQueueInfo *info);

// Submits a command list, which can be reset, submitted again or destroyed right afterwards. `progress`, if not
// NULL, receives the submission's progress value. Waits for space, unless `flags` has FP_SUBMIT_DO_NOT_WAIT: then
// a full ring is STATUS_IO_TIMEOUT, and nothing was submitted. STATUS_CONNECTION_ABORTED: the queue is lost, see
// fp_queue_recreate.
extern int32_t fp_queue_submit(struct FpQueue *queue, struct FpCommandList *list, uint32_t flags, uint64_t *progress);

// Submits `count` command lists, 1 to FP_MAX_LISTS, each once, as one submission: they are executed in their
// order, a user-mode queue's doorbell is rung once, and there is one progress value. What is said of
// fp_queue_submit holds for all of them together: they must fit the ring, and without room for all none is
// submitted.
extern int32_t fp_queue_submit_lists(struct FpQueue *queue,
                                     struct FpCommandList *const *lists,
                                     uint32_t count,
                                     uint32_t flags,
                                     uint64_t *progress);

// Waits until the submission with this progress value is done; 0: the last one. `timeout` is in nanoseconds.
// STATUS_IO_TIMEOUT when time ran out, STATUS_DEVICE_REMOVED when the device is in error.
extern int32_t fp_queue_wait(struct FpQueue *queue, uint64_t progress, uint64_t timeout);

// The progress value of the last submission that is done, and of the last that was made.
extern int32_t fp_queue_progress(struct FpQueue *queue, uint64_t *completed, uint64_t *submitted);

// Destroys what is behind a lost queue and makes it anew; with FP_QUEUE_KERNEL_MODE by kernel-mode submission from
// now on. Progress values start again. STATUS_DEVICE_REMOVED when the device is in error: create another.
extern int32_t fp_queue_recreate(struct FpQueue *queue, uint32_t flags);

// Gives a user-mode queue a ring of `ring_size` bytes, a power of two. What was submitted before runs first, and
// nothing waits for it; progress values go on. Command lists that were recorded for a larger ring may not fit.
// STATUS_IO_TIMEOUT when the rings of two resizes before have work left: wait for some of it. STATUS_NOT_SUPPORTED
// for a queue of another mode. STATUS_CONNECTION_ABORTED: the queue is lost, see fp_queue_recreate.
extern int32_t fp_queue_resize(struct FpQueue *queue, uint64_t ring_size);

// What the queue has counted.
extern int32_t fp_queue_counters(struct FpQueue *queue, struct FpQueueCounters *counters);

// Takes up to `capacity` events out of the queue's trace, oldest first: when waits and signals were recorded and
// queued. `count` receives how many there were; `lost`, if not NULL, how many had been overwritten before.
extern int32_t fp_queue_trace_read(struct FpQueue *queue,
                                   struct FpTraceEvent *events,
                                   uint32_t capacity,
                                   uint32_t *count,
                                   uint64_t *lost);

// Destroys the queue, and waits for what was submitted before: for as long as something of it completes within
// each fifth of a second where it may wait for a fence (it has a wait, or a command buffer of the caller's), and
// within each ten seconds where it does not. Work that stands still for longer, as behind a wait for a value that
// is not signaled, is lost.
extern int32_t fp_queue_destroy(struct FpQueue *queue);

// Creates a fence: a native one where the adapter has them. `create` may be NULL: private, from 0.
extern int32_t fp_fence_create(struct FpDevice *device, const struct FpFenceCreate *create, struct FpFence **fence);

// Opens what another process shared, by an NT handle that is valid in this one. `flags`: FP_FENCE_MONITORED or 0.
extern int32_t fp_fence_open(struct FpDevice *device, uint64_t nt_handle, uint32_t flags, struct FpFence **fence);

// An NT handle of a fence that was created with FP_FENCE_SHARED, to be duplicated into another process. The caller
// closes it.
extern int32_t fp_fence_share(struct FpFence *fence, uint64_t *nt_handle);

// Describes the fence.
extern int32_t fp_fence_info(struct FpFence *fence, struct FpFenceInfo *info);

// The fence's value now, without a call into the kernel.
extern int32_t fp_fence_value(struct FpFence *fence, uint64_t *value);

// Sets the fence's value from the CPU.
extern int32_t fp_fence_signal(struct FpFence *fence, uint64_t value);

// Waits until the fence is at least `value`. `timeout` is in nanoseconds; with FP_INFINITE it blocks in the
// kernel. A reset may signal a fence with its largest value: fp_device_state tells whether it was one.
extern int32_t fp_fence_wait(struct FpFence *fence, uint64_t value, uint64_t timeout);

// Has the OS set an event when the fence is at least `value`; returns at once.
extern int32_t fp_fence_wait_event(struct FpFence *fence, uint64_t value, uint64_t event);

// Destroys the fence in this process. Another process that has it open keeps it.
extern int32_t fp_fence_destroy(struct FpFence *fence);

// Creates an empty command list that fits the queue.
extern int32_t fp_command_list_create(struct FpQueue *queue, struct FpCommandList **list);

// Forgets what was recorded.
extern int32_t fp_command_list_reset(struct FpCommandList *list);

// Bytes recorded, and the packets themselves: up to `capacity` bytes are copied to `buffer`, which may be NULL.
extern int32_t fp_command_list_bytes(struct FpCommandList *list, void *buffer, size_t capacity, size_t *length);

// Destroys the list.
extern int32_t fp_command_list_destroy(struct FpCommandList *list);

// Records padding of `length` bytes, a multiple of 8.
extern int32_t fp_cmd_nop(struct FpCommandList *list, uint32_t length);

// Records a store of 8 bytes. Nobody is notified.
extern int32_t fp_cmd_store(struct FpCommandList *list, uint64_t address, uint64_t value);

// Records a store of 4 bytes. Nobody is notified.
extern int32_t fp_cmd_store32(struct FpCommandList *list, uint64_t address, uint32_t value);

// Records a fill of `length` bytes with a pattern of 4; address and length are multiples of 4.
extern int32_t fp_cmd_fill(struct FpCommandList *list, uint64_t address, uint64_t length, uint32_t pattern);

// Records a copy of `length` bytes between ranges that do not overlap.
extern int32_t fp_cmd_copy(struct FpCommandList *list, uint64_t source, uint64_t destination, uint64_t length);

// Records a copy of rows.
extern int32_t fp_cmd_copy_rect(struct FpCommandList *list, const struct FpCopyRect *rect);

// Records a 3x3 convolution.
extern int32_t fp_cmd_filter_rect(struct FpCommandList *list, const struct FpFilterRect *rect);

// Records a wait until the fence is at least `value`, and its log entry.
extern int32_t fp_cmd_fence_wait(struct FpCommandList *list, struct FpFence *fence, uint64_t value);

// Records a signal of the fence, and its log entry.
extern int32_t fp_cmd_fence_signal(struct FpCommandList *list, struct FpFence *fence, uint64_t value);

// Records a store of the GPU's clock to an address that is a multiple of 8.
extern int32_t fp_cmd_timestamp(struct FpCommandList *list, uint64_t address);

// Records the execution of a command buffer: packets, for instance those of fp_command_list_bytes, that the caller
// has put into an allocation.
extern int32_t fp_cmd_indirect(struct FpCommandList *list, uint64_t address, uint64_t length);

// For tests: records bytes as they are, a multiple of 8, checked by nobody but the GPU.
extern int32_t fp_cmd_raw(struct FpCommandList *list, const void *packets, size_t length);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FENCEPOST_UMD_H */
