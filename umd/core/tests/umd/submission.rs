//! User-mode submission: the five steps against a ring consumer, and what follows each doorbell status.

use crate::mock::{Mock, RING};
use gpu_wire::GpuVa;
use gpu_wire::packet::Packet;
use std::sync::Arc;
use umd_core::allocation::{Allocation, Create, Kind};
use umd_core::command_list::{CommandList, LOG_ENTRIES, MAX_TAIL};
use umd_core::device::Device;
use umd_core::error::UmdError;
use umd_core::fence::Fence;
use umd_core::queue::Queue;
use umd_core::thunks::Thunk;
use umd_core::wait::Timeout;
use wddm_abi::D3DKMT_DEVICEEXECUTION_STATE;
use wddm_abi::ntstatus::{STATUS_DEVICE_REMOVED, STATUS_GRAPHICS_GPU_EXCEPTION_ON_DEVICE};

pub fn memory(device: &Arc<Device<Mock>>) -> Allocation<Mock> {
    let create = Create { size: 65536, kind: Kind::System, shared: false, read_only: false };
    Allocation::create(device, create).unwrap()
}

pub fn word(memory: &Allocation<Mock>, offset: u64) -> u64 {
    let mut bytes = [0; 8];
    memory.read(offset, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

/// Submits one store of `value` to the memory's start.
pub fn store(queue: &Queue<Mock>, memory: &Allocation<Mock>, value: u64) -> Result<u64, UmdError> {
    let mut list = queue.new_list();
    list.store(memory.gpu_va(), value).unwrap();
    queue.submit(&mut list, true)
}

#[test]
fn work_is_executed_once_and_progress_reaches_what_was_queued() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    assert_eq!(store(&queue, &memory, 11), Ok(1));
    assert_eq!(queue.progress(), (0, 1));
    mock.run();
    assert_eq!((word(&memory, 0), queue.progress()), (11, (1, 1)));
    assert_eq!(store(&queue, &memory, 12), Ok(2));
    assert_eq!(queue.wait(0, Timeout::INFINITE), Ok(()));
    assert_eq!((word(&memory, 0), queue.progress()), (12, (2, 2)));
    drop((queue, memory, device));
    mock.assert_clean();
}

#[test]
fn a_submission_costs_no_call_into_the_kernel_after_the_first_connect() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    assert_eq!(mock.calls(Thunk::ConnectDoorbell), 0);
    store(&queue, &memory, 0).unwrap();
    let before = mock.total_calls();
    for value in 1..=20 {
        store(&queue, &memory, value).unwrap();
        mock.run();
    }
    assert_eq!(mock.total_calls(), before);
    assert_eq!(mock.calls(Thunk::ConnectDoorbell), 1);
    let counters = queue.counters();
    assert_eq!((counters.submissions, counters.effort.rings, counters.effort.reconnects), (21, 21, 0));
    drop((queue, memory, device));
    mock.assert_clean();
}

#[test]
fn a_doorbell_that_was_taken_away_is_connected_and_rung_again() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    store(&queue, &memory, 1).unwrap();
    mock.run();
    mock.world().disconnect(2);
    assert_eq!(store(&queue, &memory, 2), Ok(2));
    mock.run();
    assert_eq!((word(&memory, 0), queue.progress()), (2, (2, 2)));
    let effort = queue.counters().effort;
    assert_eq!((effort.rings, effort.reconnects), (3, 1));
    // Each store once.
    let executed: Vec<_> = mock.world().queues.values().flat_map(|q| q.executed.clone()).collect();
    assert_eq!(executed.iter().filter(|packet| matches!(packet, Packet::Store(_))).count(), 2);
    drop((queue, memory, device));
    mock.assert_clean();
}

#[test]
fn a_doorbell_that_is_taken_away_between_connect_and_ring_is_connected_until_it_stays() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    mock.world().connect_statuses = [2, 2, 2, 0].into();
    assert_eq!(store(&queue, &memory, 1), Ok(1));
    mock.run();
    assert_eq!((word(&memory, 0), mock.calls(Thunk::ConnectDoorbell)), (1, 4));
    drop((queue, memory, device));
    mock.assert_clean();
}

#[test]
fn a_doorbell_that_never_stays_is_an_error_and_the_work_is_published_once() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    mock.world().connect_statuses = vec![2; 1001].into();
    assert_eq!(store(&queue, &memory, 1), Err(UmdError::RetryLimit { attempts: 1000 }));
    assert_eq!(queue.progress(), (0, 1));
    // The next submission rings for both.
    assert_eq!(store(&queue, &memory, 2), Ok(2));
    mock.run();
    assert_eq!((word(&memory, 0), queue.progress()), (2, (2, 2)));
    drop((queue, memory, device));
    mock.assert_clean();
}

#[test]
fn notify_is_told_to_the_kernel_every_time() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    mock.world().connect_statuses = [1].into();
    for value in 1..=3 {
        assert_eq!(store(&queue, &memory, value), Ok(value));
        // The KMD runs the queue when it is told.
        assert_eq!(word(&memory, 0), value);
    }
    assert_eq!((mock.calls(Thunk::NotifyWorkSubmission), queue.counters().effort.notifies), (3, 3));
    drop((queue, memory, device));
    mock.assert_clean();
}

#[test]
fn a_device_that_is_lost_while_the_kernel_is_told_loses_the_queue() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    mock.world().connect_statuses = [1].into();
    assert_eq!(store(&queue, &memory, 1), Ok(1));
    let state = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_RESET;
    mock.world().lost_by_notify = Some(state);
    assert_eq!(store(&queue, &memory, 2), Err(UmdError::QueueLost { state, fault: None }));
    drop((queue, memory, device));
    mock.assert_clean();
}

#[test]
fn abort_loses_the_queue_with_the_devices_state_and_it_can_be_recreated() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    store(&queue, &memory, 1).unwrap();
    mock.run();
    mock.world().disconnect(3);
    let active = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ACTIVE;
    assert_eq!(store(&queue, &memory, 2), Err(UmdError::QueueLost { state: active, fault: None }));
    queue.recreate(false).unwrap();
    assert_eq!(queue.progress(), (0, 0));
    assert_eq!(store(&queue, &memory, 3), Ok(1));
    mock.run();
    assert_eq!(word(&memory, 0), 3);
    drop((queue, memory, device));
    mock.assert_clean();
}

#[test]
fn a_lost_queue_may_come_back_as_a_kernel_mode_one() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    mock.world().disconnect(3);
    mock.world().connect_statuses = [3].into();
    assert!(matches!(store(&queue, &memory, 1), Err(UmdError::QueueLost { .. })));
    queue.recreate(true).unwrap();
    assert_eq!(queue.info().mode, Some(umd_core::adapter::Mode::KernelMode));
    store(&queue, &memory, 2).unwrap();
    mock.run();
    assert_eq!((word(&memory, 0), mock.calls(Thunk::SubmitCommandToHwQueue)), (2, 1));
    drop((queue, memory, device));
    mock.assert_clean();
}

#[test]
fn a_lost_device_is_told_by_submit_wait_and_recreate() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    store(&queue, &memory, 1).unwrap();
    mock.run();
    let state = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_HUNG;
    mock.world().lose_device(state);
    assert_eq!(store(&queue, &memory, 2), Err(UmdError::QueueLost { state, fault: None }));
    assert_eq!(queue.wait(0, Timeout::INFINITE), Err(UmdError::DeviceLost { state }));
    assert_eq!(queue.recreate(false), Err(UmdError::DeviceLost { state }));
    assert!(!device.is_alive());
}

#[test]
fn a_loss_that_no_fence_tells_of_ends_a_wait_all_the_same() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    store(&queue, &memory, 1).unwrap();
    mock.world().gpu_runs = false;
    let state = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_STOPPED;
    mock.world().state = state;
    assert_eq!(queue.wait(0, Timeout::INFINITE), Err(UmdError::DeviceLost { state }));
    let time = mock.world().time;
    assert!(time < 1_000_000_000, "{time}");
}

/// Between the loss and its signals.
#[test]
fn a_wait_that_is_refused_names_the_lost_device() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    store(&queue, &memory, 1).unwrap();
    mock.world().gpu_runs = false;
    let (thunk, status) = (Thunk::WaitForSynchronizationObjectFromCpu, STATUS_GRAPHICS_GPU_EXCEPTION_ON_DEVICE);
    mock.world().refuse.push((thunk, status));
    assert_eq!(queue.wait(0, Timeout::INFINITE), Err(UmdError::Thunk { thunk, status }));
    let state = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_HUNG;
    mock.world().state = state;
    mock.world().refuse.push((thunk, status));
    assert_eq!(queue.wait(0, Timeout::INFINITE), Err(UmdError::DeviceLost { state }));
}

#[test]
fn a_refused_connect_is_a_lost_queue() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    mock.world().refuse.push((Thunk::ConnectDoorbell, STATUS_DEVICE_REMOVED));
    let active = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ACTIVE;
    assert_eq!(store(&queue, &memory, 1), Err(UmdError::QueueLost { state: active, fault: None }));
    assert_eq!(queue.progress(), (0, 0));
}

#[test]
fn the_ring_wraps_and_nothing_is_lost() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    for value in 1..=500 {
        let mut list = queue.new_list();
        list.nop(8 * (1 + value as u32 % 40)).unwrap();
        list.store(memory.gpu_va(), value).unwrap();
        assert_eq!(queue.submit(&mut list, true), Ok(value));
        if value % 3 == 0 {
            mock.run();
            assert_eq!(word(&memory, 0), value);
        }
    }
    mock.run();
    assert_eq!(queue.progress(), (500, 500));
    drop((queue, memory, device));
    mock.assert_clean();
}

#[test]
fn a_full_ring_is_waited_for_or_said() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    let mut big = queue.new_list();
    big.nop((RING - MAX_TAIL) as u32).unwrap();
    assert_eq!(queue.submit(&mut big, false), Ok(1));
    // Nobody runs the GPU: no room for anything.
    let mut list = queue.new_list();
    list.store(memory.gpu_va(), 5).unwrap();
    assert_eq!(queue.submit(&mut list, false), Err(UmdError::Timeout));
    assert_eq!(queue.progress(), (0, 1));
    // The wait for the progress fence runs it.
    assert_eq!(queue.submit(&mut list, true), Ok(2));
    assert_eq!(queue.counters().effort.stalls, 1);
    mock.run();
    assert_eq!(word(&memory, 0), 5);
    drop((queue, memory, device));
    mock.assert_clean();
}

/// A queue whose ring has no room left, and the list that fills it.
fn full_ring(mock: &Mock, device: &Arc<Device<Mock>>) -> (Queue<Mock>, CommandList) {
    let queue = mock.queue(device);
    let mut big = queue.new_list();
    big.nop((RING - MAX_TAIL) as u32).unwrap();
    queue.submit(&mut big, true).unwrap();
    (queue, big)
}

/// A queue that is aborted while its ring is full is lost at once: it does not wait for work that may never be done.
#[test]
fn a_full_ring_of_an_aborted_queue_is_not_waited_for() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, mut big) = full_ring(&mock, &device);
    mock.world().disconnect(3);
    let active = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ACTIVE;
    let waits = mock.calls(Thunk::WaitForSynchronizationObjectFromCpu);
    assert_eq!(queue.submit(&mut big, true), Err(UmdError::QueueLost { state: active, fault: None }));
    assert_eq!(mock.calls(Thunk::WaitForSynchronizationObjectFromCpu), waits);
}

#[test]
fn a_full_ring_of_a_dead_gpu_is_an_error_within_bounded_time() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, mut big) = full_ring(&mock, &device);
    let state = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_RESET;
    mock.world().gpu_runs = false;
    mock.world().state = state;
    assert_eq!(queue.submit(&mut big, true), Err(UmdError::DeviceLost { state }));
    mock.world().lose_device(state);
    assert_eq!(queue.submit(&mut big, true), Err(UmdError::QueueLost { state, fault: None }));
}

#[test]
fn a_list_never_grows_beyond_the_ring() {
    let mock = Mock::new();
    let device = mock.device();
    let queue = mock.queue(&device);
    let mut list = queue.new_list();
    let limit = RING - MAX_TAIL;
    assert_eq!((list.limit(), queue.info().list_limit), (limit, limit));
    list.nop(limit as u32).unwrap();
    assert_eq!(list.store(GpuVa(0), 0), Err(UmdError::ListTooLarge { bytes: limit + 24, limit }));
    assert_eq!(list.len(), limit);
    assert_eq!(queue.submit(&mut list, true), Ok(1));
    mock.run();
    assert_eq!(queue.progress(), (1, 1));
}

#[test]
fn native_waits_and_signals_order_two_queues_without_a_call() {
    let mock = Mock::new();
    let device = mock.device();
    let (first, memory) = (mock.queue(&device), memory(&device));
    let second = Queue::create(&device, crate::mock::create(1)).unwrap();
    let fence = Fence::create(&device, 0, false, false, &[0; 48]).unwrap();
    let mut waits = second.new_list();
    waits.fence_wait(&fence, 1).unwrap();
    waits.copy(memory.gpu_va(), GpuVa(memory.gpu_va().0 + 4096), 8).unwrap();
    waits.fence_signal(&fence, 2).unwrap();
    second.submit(&mut waits, true).unwrap();
    let mut signals = first.new_list();
    signals.fill(memory.gpu_va(), 8, 0x0101_0101).unwrap();
    signals.fence_signal(&fence, 1).unwrap();
    signals.fence_wait(&fence, 2).unwrap();
    signals.timestamp(GpuVa(memory.gpu_va().0 + 8192)).unwrap();
    mock.run();
    assert_eq!(second.progress().0, 0);
    first.submit(&mut signals, true).unwrap();
    let before = mock.total_calls();
    mock.run();
    assert_eq!((first.progress().0, second.progress().0, fence.value()), (1, 1, 2));
    assert_eq!(word(&memory, 4096), 0x0101_0101_0101_0101);
    assert_ne!(word(&memory, 8192), 0);
    assert_eq!(mock.total_calls(), before);
    drop((first, second, fence, memory, device));
    mock.assert_clean();
}

#[test]
fn index_hints_count_on_per_log_across_submissions_and_wrap() {
    let mock = Mock::new();
    let device = mock.device();
    let queue = mock.queue(&device);
    let fence = Fence::create(&device, 0, false, false, &[0; 48]).unwrap();
    let mut list = queue.new_list();
    list.fence_signal(&fence, 1).unwrap();
    list.fence_wait(&fence, 1).unwrap();
    list.fence_signal(&fence, 2).unwrap();
    // The same list again and again: the mock complains about a hint that does not count on.
    for _ in 0..LOG_ENTRIES {
        queue.submit(&mut list, true).unwrap();
        mock.run();
    }
    drop((queue, fence, device));
    mock.assert_clean();
}

/// Writes a command buffer that stores 6 in the memory's first word into its upper part: address and length.
pub fn store_of_six(queue: &Queue<Mock>, memory: &Allocation<Mock>) -> (GpuVa, u64) {
    let mut inner = queue.new_list();
    inner.store(memory.gpu_va(), 6).unwrap();
    memory.write(32768, inner.bytes()).unwrap();
    (GpuVa(memory.gpu_va().0 + 32768), inner.len())
}

#[test]
fn an_indirect_command_buffer_comes_back_to_the_ring() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    let (inner, length) = store_of_six(&queue, &memory);
    let mut list = queue.new_list();
    list.indirect(inner, length).unwrap();
    list.copy(memory.gpu_va(), GpuVa(memory.gpu_va().0 + 8), 8).unwrap();
    queue.submit(&mut list, true).unwrap();
    mock.run();
    assert_eq!((word(&memory, 0), word(&memory, 8), queue.progress()), (6, 6, (1, 1)));
    drop((queue, memory, device));
    mock.assert_clean();
}

#[test]
fn a_progress_fence_at_its_largest_value_is_a_loss_and_no_overflow() {
    for kernel_mode in [false, true] {
        let mock = Mock::new();
        let device = mock.device();
        let memory = memory(&device);
        let state = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_RESET;
        mock.world().first_progress = u64::MAX;
        let queue = Queue::create(&device, umd_core::queue::Create { kernel_mode, ..crate::mock::create(0) }).unwrap();
        assert!(store(&queue, &memory, 1).is_err());
        mock.world().state = state;
        let lost = store(&queue, &memory, 1).unwrap_err();
        assert!(matches!(lost, UmdError::QueueLost { .. } | UmdError::DeviceLost { .. }), "{lost}");
    }
}
