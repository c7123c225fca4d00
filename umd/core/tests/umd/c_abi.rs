//! The C ABI, called as a C program calls it: through the table over the mock.
#![expect(unsafe_code, reason = "a C caller")]

use crate::mock::{Adapter, Mock, RING};
use gpu_wire::private::Rung;
use std::ptr::{null, null_mut};
use umd_core::ffi::FpUmdTable;
use umd_core::ffi::types::{
    FP_ALLOCATION_SHARED, FP_FENCE_SHARED, FP_INFINITE, FP_KIND_LOCAL, FP_KIND_SYSTEM, FP_MAX_LISTS, FP_MODE_KERNEL,
    FP_MODE_USER, FP_OPEN_BY_LUID, FP_OPEN_KERNEL_MODE, FP_QUEUE_KERNEL_MODE, FP_SUBMIT_DO_NOT_WAIT,
    FP_TRACE_SIGNAL_QUEUED, FP_TRACE_WAIT_QUEUED, FpAdapter, FpAdapterInfo, FpAdapterOpen, FpAllocation,
    FpAllocationCreate, FpAllocationInfo, FpCommandList, FpCopyRect, FpDevice, FpDeviceState, FpFence, FpFenceCreate,
    FpFenceInfo, FpFilterRect, FpNodeInfo, FpQueue, FpQueueCounters, FpQueueCreate, FpQueueInfo, FpThunkCalls,
    FpTraceEvent,
};
use wddm_abi::D3DKMT_DEVICEEXECUTION_STATE;
use wddm_abi::ntstatus::{
    STATUS_CONNECTION_ABORTED, STATUS_DEVICE_BUSY, STATUS_DEVICE_REMOVED, STATUS_GRAPHICS_DRIVER_MISMATCH,
    STATUS_INVALID_HANDLE, STATUS_INVALID_PARAMETER, STATUS_IO_TIMEOUT, STATUS_NOT_SUPPORTED,
};

const TABLE: &FpUmdTable = umd_core::c_abi_table!(Mock);

/// Calls a function of the table.
macro_rules! fp {
    ($name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: handles are live or null, structures say their size, results are live.
        unsafe { (TABLE.$name)($($argument),*) }
    };
}

/// A zeroed structure that says its size.
fn sized<S>() -> S {
    // SAFETY: the structures of the ABI are valid as zeros, and start with their size.
    let mut structure: S = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe { (&raw mut structure).cast::<u32>().write(size_of::<S>() as u32) };
    structure
}

fn last_error() -> String {
    let mut text = [0u8; 256];
    let mut length = 0;
    assert_eq!(fp!(fp_last_error_text(text.as_mut_ptr().cast(), text.len(), &raw mut length)), 0);
    String::from_utf8(text[..length].to_vec()).unwrap()
}

fn open() -> *mut FpAdapter {
    let mut adapter = null_mut();
    assert_eq!(fp!(fp_adapter_open(null(), &raw mut adapter)), 0);
    adapter
}

fn device(adapter: *mut FpAdapter) -> *mut FpDevice {
    let mut device = null_mut();
    assert_eq!(fp!(fp_device_create(adapter, 0, &raw mut device)), 0);
    device
}

fn allocate(device: *mut FpDevice, kind: u32, flags: u32) -> (*mut FpAllocation, FpAllocationInfo) {
    let create = FpAllocationCreate { kind, flags, bytes: 65536, ..sized() };
    let mut allocation = null_mut();
    assert_eq!(fp!(fp_allocation_create(device, &raw const create, &raw mut allocation)), 0);
    let mut info = sized();
    assert_eq!(fp!(fp_allocation_info(allocation, &raw mut info)), 0);
    (allocation, info)
}

fn queue(device: *mut FpDevice, node: u32, flags: u32) -> *mut FpQueue {
    let create = FpQueueCreate { node, flags, trace_events: 32, ring_bytes: RING, ..sized() };
    let mut queue = null_mut();
    assert_eq!(fp!(fp_queue_create(device, &raw const create, &raw mut queue)), 0);
    queue
}

fn list(queue: *mut FpQueue) -> *mut FpCommandList {
    let mut list = null_mut();
    assert_eq!(fp!(fp_command_list_create(queue, &raw mut list)), 0);
    list
}

#[test]
fn a_whole_program() {
    let mock = Mock::new();
    let adapter = open();
    let mut info: FpAdapterInfo = sized();
    assert_eq!(fp!(fp_adapter_info(adapter, &raw mut info)), 0);
    assert_eq!((info.mode, info.rung, info.fallback, info.native_fences, info.node_count), (FP_MODE_USER, 3, 0, 1, 3));
    assert_eq!(info.size, size_of::<FpAdapterInfo>() as u32);
    let mut node: FpNodeInfo = sized();
    assert_eq!(fp!(fp_adapter_node(adapter, 1, &raw mut node)), 0);
    assert_eq!(node.mode, FP_MODE_USER);

    let device = device(adapter);
    let (memory, memory_info) = allocate(device, FP_KIND_SYSTEM, 0);
    let (local, local_info) = allocate(device, FP_KIND_LOCAL, 0);
    assert!(!memory_info.cpu.is_null() && local_info.cpu.is_null());
    let picture = [0x42u8; 64];
    assert_eq!(fp!(fp_allocation_write(memory, 0, picture.as_ptr().cast(), 64)), 0);
    assert_eq!(fp!(fp_allocation_write(local, 0, picture.as_ptr().cast(), 64)), STATUS_NOT_SUPPORTED.0);
    assert!(last_error().contains("not visible to the CPU"));

    let mut fence: *mut FpFence = null_mut();
    assert_eq!(fp!(fp_fence_create(device, null(), &raw mut fence)), 0);
    let queue = queue(device, 0, 0);
    let list = list(queue);
    let va = memory_info.gpu_va;
    assert_eq!(fp!(fp_cmd_nop(list, 8)), 0);
    assert_eq!(fp!(fp_cmd_copy(list, va, local_info.gpu_va, 64)), 0);
    assert_eq!(fp!(fp_cmd_store(list, va + 128, 5)), 0);
    assert_eq!(fp!(fp_cmd_store32(list, va + 136, 6)), 0);
    assert_eq!(fp!(fp_cmd_fill(list, va + 256, 16, 0x0707_0707)), 0);
    let rect = FpCopyRect {
        source: local_info.gpu_va,
        destination: va + 512,
        source_pitch: 16,
        destination_pitch: 32,
        row_bytes: 8,
        rows: 2,
        ..sized()
    };
    assert_eq!(fp!(fp_cmd_copy_rect(list, &raw const rect)), 0);
    let filter: FpFilterRect = sized();
    assert_eq!(fp!(fp_cmd_filter_rect(list, &raw const filter)), 0);
    assert_eq!(fp!(fp_cmd_timestamp(list, va + 1024)), 0);
    assert_eq!(fp!(fp_cmd_fence_signal(list, fence, 9)), 0);
    assert_eq!(fp!(fp_cmd_fence_wait(list, fence, 9)), 0);
    let mut progress = 0;
    assert_eq!(fp!(fp_queue_submit(queue, list, 0, &raw mut progress)), 0);
    assert_eq!(progress, 1);
    assert_eq!(fp!(fp_queue_wait(queue, progress, FP_INFINITE)), 0);

    let mut got = [0u8; 16];
    assert_eq!(fp!(fp_allocation_read(memory, 512 + 32, got.as_mut_ptr().cast(), 16)), 0);
    assert_eq!(got, [0x42, 0x42, 0x42, 0x42, 0x42, 0x42, 0x42, 0x42, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(fp!(fp_allocation_read(memory, 128, got.as_mut_ptr().cast(), 16)), 0);
    assert_eq!(got, [5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]);
    let mut value = 0;
    assert_eq!(fp!(fp_fence_value(fence, &raw mut value)), 0);
    assert_eq!(value, 9);

    let mut events: [FpTraceEvent; 8] = [sized(); 8];
    let (mut count, mut lost) = (0, 99);
    assert_eq!(fp!(fp_queue_trace_read(queue, events.as_mut_ptr(), 2, &raw mut count, &raw mut lost)), 0);
    assert_eq!((count, lost, events[0].kind, events[1].kind), (2, 0, FP_TRACE_SIGNAL_QUEUED, FP_TRACE_WAIT_QUEUED));
    assert_eq!(fp!(fp_queue_trace_read(queue, events.as_mut_ptr(), 8, &raw mut count, null_mut())), 0);
    assert_eq!((count, events[0].value), (1, 1));

    let mut counters: FpQueueCounters = sized();
    assert_eq!(fp!(fp_queue_counters(queue, &raw mut counters)), 0);
    assert_eq!((counters.submissions, counters.rings, counters.reconnects), (1, 1, 0));
    let calls = (0..).map_while(|index| {
        let mut calls: FpThunkCalls = sized();
        (fp!(fp_adapter_thunk_calls(adapter, index, &raw mut calls)) == 0).then_some(calls)
    });
    let connects = calls.filter(|calls| calls.name.starts_with(b"D3DKMTConnectDoorbell\0")).map(|calls| calls.calls);
    assert_eq!(connects.collect::<Vec<_>>(), [1]);

    assert_eq!(fp!(fp_command_list_destroy(list)), 0);
    assert_eq!(fp!(fp_adapter_close(adapter)), 0);
    assert_eq!(fp!(fp_device_destroy(device)), 0);
    assert_eq!(fp!(fp_fence_destroy(fence)), 0);
    assert_eq!(fp!(fp_queue_destroy(queue)), 0);
    assert_eq!(fp!(fp_allocation_destroy(memory)), 0);
    assert_eq!(fp!(fp_allocation_destroy(local)), 0);
    mock.assert_clean();
}

#[test]
fn memory_and_fences_go_from_one_process_to_another() {
    let mock = Mock::new();
    let (ours, theirs) = (open(), open());
    let (device, other) = (device(ours), device(theirs));
    let (memory, _) = allocate(device, FP_KIND_SYSTEM, FP_ALLOCATION_SHARED);
    let mut handle = 0;
    assert_eq!(fp!(fp_allocation_share(memory, &raw mut handle)), 0);
    let mut opened = null_mut();
    assert_eq!(fp!(fp_allocation_open(other, handle, &raw mut opened)), 0);
    assert_eq!(fp!(fp_allocation_write(memory, 8, b"seen".as_ptr().cast(), 4)), 0);
    let mut got = [0u8; 4];
    assert_eq!(fp!(fp_allocation_read(opened, 8, got.as_mut_ptr().cast(), 4)), 0);
    assert_eq!(&got, b"seen");
    assert_eq!(fp!(fp_adapter_close_nt_handle(ours, handle)), 0);

    let create = FpFenceCreate { flags: FP_FENCE_SHARED, initial_value: 3, ..sized() };
    let (mut fence, mut copy) = (null_mut(), null_mut());
    assert_eq!(fp!(fp_fence_create(device, &raw const create, &raw mut fence)), 0);
    assert_eq!(fp!(fp_fence_share(fence, &raw mut handle)), 0);
    assert_eq!(fp!(fp_fence_open(other, handle, 0, &raw mut copy)), 0);
    assert_eq!(fp!(fp_fence_signal(fence, 4)), 0);
    assert_eq!(fp!(fp_fence_wait(copy, 4, 0)), 0);
    assert_eq!(fp!(fp_fence_wait(copy, 5, 1000)), STATUS_IO_TIMEOUT.0);
    assert_eq!(last_error(), "timed out");
    let mut info: FpFenceInfo = sized();
    assert_eq!(fp!(fp_fence_info(copy, &raw mut info)), 0);
    assert_eq!((info.native, info.value), (1, 4));
    assert_eq!(fp!(fp_adapter_close_nt_handle(ours, handle)), 0);

    for fence in [fence, copy] {
        assert_eq!(fp!(fp_fence_destroy(fence)), 0);
    }
    for memory in [memory, opened] {
        assert_eq!(fp!(fp_allocation_destroy(memory)), 0);
    }
    for device in [device, other] {
        assert_eq!(fp!(fp_device_destroy(device)), 0);
    }
    for adapter in [ours, theirs] {
        assert_eq!(fp!(fp_adapter_close(adapter)), 0);
    }
    mock.world().waiters.clear();
    mock.assert_clean();
}

#[test]
fn a_command_buffer_is_made_from_a_list() {
    let mock = Mock::new();
    let adapter = open();
    let device = device(adapter);
    let (memory, info) = allocate(device, FP_KIND_SYSTEM, 0);
    let queue = queue(device, 0, 0);
    let (inner, outer) = (list(queue), list(queue));
    assert_eq!(fp!(fp_cmd_store(inner, info.gpu_va, 12)), 0);
    let mut length = 0;
    assert_eq!(fp!(fp_command_list_bytes(inner, null_mut(), 0, &raw mut length)), 0);
    let mut packets = vec![0u8; length];
    assert_eq!(fp!(fp_command_list_bytes(inner, packets.as_mut_ptr().cast(), length, null_mut())), 0);
    assert_eq!(fp!(fp_allocation_write(memory, 4096, packets.as_ptr().cast(), length)), 0);
    assert_eq!(fp!(fp_cmd_indirect(outer, info.gpu_va + 4096, length as u64)), 0);
    assert_eq!(fp!(fp_queue_submit(queue, outer, 0, null_mut())), 0);
    assert_eq!(fp!(fp_queue_wait(queue, 0, FP_INFINITE)), 0);
    let mut got = [0u8; 8];
    assert_eq!(fp!(fp_allocation_read(memory, 0, got.as_mut_ptr().cast(), 8)), 0);
    assert_eq!(u64::from_le_bytes(got), 12);
    // The same bytes, raw.
    assert_eq!(fp!(fp_command_list_reset(outer)), 0);
    assert_eq!(fp!(fp_cmd_raw(outer, packets.as_ptr().cast(), length)), 0);
    assert_eq!(fp!(fp_cmd_raw(outer, packets.as_ptr().cast(), 4)), STATUS_INVALID_PARAMETER.0);
    assert_eq!(fp!(fp_queue_submit(queue, outer, 0, null_mut())), 0);
    mock.run();
    let (mut completed, mut submitted) = (0, 0);
    assert_eq!(fp!(fp_queue_progress(queue, &raw mut completed, &raw mut submitted)), 0);
    assert_eq!((completed, submitted), (2, 2));
}

#[test]
fn versions_are_asked_and_mismatches_told() {
    assert_eq!(fp!(fp_interface_version()), umd_core::ffi::types::FP_INTERFACE_VERSION);
    let mut wrong = Adapter::ours(Rung::UserModeSubmission);
    wrong.info.as_mut().unwrap().interface_version = 77;
    let _mock = Mock::with(wrong);
    let mut adapter = null_mut();
    assert_eq!(fp!(fp_adapter_open(null(), &raw mut adapter)), STATUS_GRAPHICS_DRIVER_MISMATCH.0);
    assert!(adapter.is_null());
    assert!(last_error().contains("77"));
}

#[test]
fn the_way_of_opening_can_be_chosen() {
    let _mock = Mock::new();
    let mut adapter = null_mut();
    let by_luid = FpAdapterOpen { flags: FP_OPEN_BY_LUID | FP_OPEN_KERNEL_MODE, luid_low: 77, ..sized() };
    assert_eq!(fp!(fp_adapter_open(&raw const by_luid, &raw mut adapter)), 0);
    let mut info: FpAdapterInfo = sized();
    assert_eq!(fp!(fp_adapter_info(adapter, &raw mut info)), 0);
    assert_eq!((info.mode, info.fallback, info.luid_low), (FP_MODE_KERNEL, 6, 77));
    assert!(info.fallback_reason.starts_with(b"the application asked"));
    let unknown = FpAdapterOpen { flags: 0x80, ..sized() };
    assert_eq!(fp!(fp_adapter_open(&raw const unknown, &raw mut adapter)), STATUS_INVALID_PARAMETER.0);
}

#[test]
fn structures_of_other_sizes_are_taken_or_refused() {
    #[repr(C)]
    struct Longer {
        known: FpAdapterOpen,
        more: u64,
    }
    let _mock = Mock::new();
    let mut adapter = null_mut();
    let mut longer = Longer { known: FpAdapterOpen { size: size_of::<Longer>() as u32, ..sized() }, more: 0 };
    assert_eq!(fp!(fp_adapter_open((&raw const longer).cast(), &raw mut adapter)), 0);
    longer.more = 1;
    assert_eq!(fp!(fp_adapter_open((&raw const longer).cast(), &raw mut adapter)), STATUS_INVALID_PARAMETER.0);
    assert!(last_error().contains("unknown member"));
    for size in [0, 4, 8, u32::MAX] {
        let open = FpAdapterOpen { size, ..sized() };
        assert_eq!(fp!(fp_adapter_open(&raw const open, &raw mut adapter)), STATUS_INVALID_PARAMETER.0, "{size}");
    }
}

#[test]
fn handles_that_are_none_are_refused() {
    let _mock = Mock::new();
    let adapter = open();
    let device = device(adapter);
    let queue = queue(device, 0, 0);
    let invalid = STATUS_INVALID_HANDLE.0;
    assert_eq!(fp!(fp_device_destroy(null_mut())), invalid);
    assert_eq!(fp!(fp_device_destroy(adapter.cast())), invalid);
    assert_eq!(fp!(fp_queue_wait(device.cast(), 0, 0)), invalid);
    assert_eq!(fp!(fp_cmd_nop(queue.cast(), 8)), invalid);
    assert_eq!(fp!(fp_queue_submit(queue, null_mut(), 0, null_mut())), invalid);
    assert_eq!(fp!(fp_fence_wait_event(null_mut(), 0, 1)), invalid);
    assert_eq!(fp!(fp_device_create(adapter, 0, null_mut())), STATUS_INVALID_PARAMETER.0);
    assert_eq!(fp!(fp_device_create(adapter, 1, null_mut())), STATUS_INVALID_PARAMETER.0);
    assert_eq!(fp!(fp_adapter_info(adapter, null_mut())), STATUS_INVALID_PARAMETER.0);
}

#[test]
fn several_lists_go_in_one_call() {
    let _mock = Mock::new();
    let adapter = open();
    let device = device(adapter);
    let (memory, info) = allocate(device, FP_KIND_SYSTEM, 0);
    let queue = queue(device, 0, 0);
    let lists = [1, 2].map(|value| {
        let list = list(queue);
        assert_eq!(fp!(fp_cmd_store(list, info.gpu_va + 8 * value, value)), 0);
        list
    });
    let submit = |lists: &[*mut FpCommandList], flags| {
        let mut progress = 0;
        let status = fp!(fp_queue_submit_lists(queue, lists.as_ptr(), lists.len() as u32, flags, &raw mut progress));
        (status, progress)
    };
    assert_eq!(submit(&lists, 0), (0, 1));
    assert_eq!(fp!(fp_queue_wait(queue, 1, FP_INFINITE)), 0);
    let mut got = [0u64; 2];
    assert_eq!(fp!(fp_allocation_read(memory, 8, got.as_mut_ptr().cast(), 16)), 0);
    assert_eq!(got, [1, 2]);
    let invalid = (STATUS_INVALID_PARAMETER.0, 0);
    assert_eq!(submit(&[], 0), invalid);
    assert_eq!(submit(&lists, 2), invalid);
    assert_eq!(submit(&[lists[0]; FP_MAX_LISTS as usize + 1], 0), invalid);
    assert_eq!(fp!(fp_queue_submit_lists(queue, null(), 1, 0, null_mut())), invalid.0);
    assert_eq!(submit(&[lists[0], null_mut()], 0), (STATUS_INVALID_HANDLE.0, 0));
    assert_eq!(submit(&[lists[0], queue.cast()], 0), (STATUS_INVALID_HANDLE.0, 0));
    assert_eq!(submit(&[lists[0], lists[1], lists[0]], 0), (STATUS_DEVICE_BUSY.0, 0));
    // What was refused let go of the lists.
    assert_eq!(submit(&lists, FP_SUBMIT_DO_NOT_WAIT), (0, 2));
}

#[test]
fn a_lost_queue_and_a_lost_device_have_their_statuses() {
    let mock = Mock::new();
    let adapter = open();
    let device = device(adapter);
    let queue = queue(device, 0, 0);
    let list = list(queue);
    assert_eq!(fp!(fp_cmd_nop(list, 8)), 0);
    assert_eq!(fp!(fp_queue_submit(queue, list, 0, null_mut())), 0);
    mock.run();
    mock.world().disconnect(3);
    assert_eq!(fp!(fp_queue_submit(queue, list, 0, null_mut())), STATUS_CONNECTION_ABORTED.0);
    assert_eq!(fp!(fp_queue_recreate(queue, FP_QUEUE_KERNEL_MODE)), 0);
    let mut info: FpQueueInfo = sized();
    assert_eq!(fp!(fp_queue_info(queue, &raw mut info)), 0);
    assert_eq!((info.mode, info.doorbell, info.doorbell_status), (FP_MODE_KERNEL, 0, u64::MAX));
    assert_eq!(fp!(fp_queue_resize(queue, 8192)), STATUS_NOT_SUPPORTED.0);
    assert_eq!(fp!(fp_queue_submit(queue, list, FP_SUBMIT_DO_NOT_WAIT, null_mut())), 0);
    let fault = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ERROR_DMAPAGEFAULT;
    mock.world().lose_device(fault);
    assert_eq!(fp!(fp_queue_wait(queue, 0, FP_INFINITE)), STATUS_DEVICE_REMOVED.0);
    assert_eq!(fp!(fp_queue_recreate(queue, 0)), STATUS_DEVICE_REMOVED.0);
    let mut state: FpDeviceState = sized();
    assert_eq!(fp!(fp_device_state(device, &raw mut state)), 0);
    assert_eq!((state.execution, state.page_fault_address), (7, 0xdead_0000));
}

#[test]
fn errors_belong_to_the_thread_that_made_them() {
    let _mock = Mock::new();
    assert_eq!(fp!(fp_device_destroy(null_mut())), STATUS_INVALID_HANDLE.0);
    assert_eq!(last_error(), "not a live handle of this kind");
    let other = std::thread::spawn(last_error).join().unwrap();
    assert_eq!(other, "no error");
    let mut short = [0xffu8; 4];
    assert_eq!(fp!(fp_last_error_text(short.as_mut_ptr().cast(), 4, null_mut())), 0);
    assert_eq!(&short, b"not\0");
}

#[test]
fn the_table_of_an_image_is_found_by_names_and_says_which_is_missing() {
    // SAFETY: null only.
    let missing = unsafe { FpUmdTable::from_exports(|_| null()) };
    assert_eq!(missing.err(), Some("fp_interface_version"));
    let address = TABLE.fp_interface_version as *const std::ffi::c_void;
    let mut asked = vec![];
    // SAFETY: none of the functions is called but the one whose address it is.
    let table = unsafe {
        FpUmdTable::from_exports(|name| {
            asked.push(name);
            address
        })
    };
    let table = table.map_err(|_| ()).unwrap();
    assert_eq!(asked, FpUmdTable::NAMES);
    // SAFETY: its own address.
    assert_eq!(unsafe { (table.fp_interface_version)() }, umd_core::ffi::types::FP_INTERFACE_VERSION);
}
