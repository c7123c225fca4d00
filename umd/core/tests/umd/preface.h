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
