//! Several lists in one submission.

use crate::mock::{Adapter, Mock, RING};
use crate::submission::{memory, store, word};
use gpu_wire::GpuVa;
use gpu_wire::private::Rung;
use umd_core::command_list::{CommandList, MAX_TAIL};
use umd_core::error::{UmdError, Unsupported};
use umd_core::fence::Fence;
use umd_core::queue::Queue;
use umd_core::thunks::Thunk;
use umd_core::trace::Event;

fn fence(queue: &Queue<Mock>, monitored: bool) -> Fence<Mock> {
    Fence::create(queue.device(), 0, false, monitored, &[0; 48]).unwrap()
}

/// A list that stores `value` at `at`.
fn storing(queue: &Queue<Mock>, at: GpuVa, value: u64) -> CommandList {
    let mut list = queue.new_list();
    list.store(at, value).unwrap();
    list
}

#[test]
fn lists_are_one_submission_in_their_order() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    store(&queue, &memory, 1).unwrap();
    let mut lists = [2, 3, 4].map(|value| storing(&queue, memory.gpu_va(), value));
    lists[1].copy(memory.gpu_va(), GpuVa(memory.gpu_va().0 + 8), 8).unwrap();
    let mut borrowed = lists.each_mut();
    let before = mock.total_calls();
    assert_eq!(queue.submit_lists(&mut borrowed, true), Ok(2));
    assert_eq!((queue.progress(), mock.total_calls()), ((0, 2), before));
    mock.run();
    assert_eq!((word(&memory, 0), word(&memory, 8), queue.progress()), (4, 3, (2, 2)));
    let counters = queue.counters();
    assert_eq!((counters.submissions, counters.effort.rings), (2, 2));
    drop((queue, memory, device));
    mock.assert_clean();
}

/// The mock complains about an index hint that does not count on, and about a log entry that is missing.
#[test]
fn hints_and_traces_count_on_from_list_to_list() {
    for rung in [Rung::NativeFences, Rung::UserModeSubmission] {
        let mock = Mock::with(Adapter::ours(rung));
        let device = mock.device();
        let queue = mock.queue(&device);
        let fence = fence(&queue, false);
        let mut lists = [0, 1, 2].map(|at| {
            let mut list = queue.new_list();
            (0..=at).for_each(|value| list.fence_signal(&fence, 10 * at + value).unwrap());
            list
        });
        for _ in 0..40 {
            queue.submit_lists(&mut lists.each_mut(), true).unwrap();
            mock.run();
        }
        let mut traced: Vec<Event> = Vec::new();
        queue.read_trace(|event| {
            traced.push(event);
            true
        });
        let values: Vec<_> = traced.iter().rev().map(|event| event.value).skip(1).take(6).collect();
        assert_eq!((values, fence.value()), (vec![22, 21, 20, 11, 10, 0], 22), "{rung:?}");
        drop((queue, fence, device));
        mock.assert_clean();
    }
}

#[test]
fn lists_that_do_not_fit_together_are_refused_and_nothing_is_submitted() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    let limit = RING - MAX_TAIL;
    let mut big = queue.new_list();
    big.nop(limit as u32 - 16).unwrap();
    let mut small = storing(&queue, memory.gpu_va(), 5);
    let refused = Err(UmdError::ListTooLarge { bytes: limit + 8, limit });
    assert_eq!(queue.submit_lists(&mut [&mut small, &mut big], true), refused);
    assert_eq!((queue.progress(), queue.counters().submissions), ((0, 0), 0));
    // Each by itself fits.
    assert_eq!((queue.submit(&mut big, false), queue.submit(&mut small, true)), (Ok(1), Ok(2)));
    drop((queue, memory, device));
}

#[test]
fn one_list_that_does_not_go_with_the_queue_keeps_all_of_them_back() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    let monitored = fence(&queue, true);
    let mut good = storing(&queue, memory.gpu_va(), 5);
    let mut bad = queue.new_list();
    bad.fence_signal(&monitored, 1).unwrap();
    let refused = Err(UmdError::NotSupported(Unsupported::MonitoredFenceOnUserQueue));
    assert_eq!(queue.submit_lists(&mut [&mut good, &mut bad], true), refused);
    assert_eq!(
        queue.submit_lists::<&mut CommandList>(&mut [], true),
        Err(UmdError::InvalidArgument("no command list"))
    );
    mock.run();
    assert_eq!((queue.progress(), word(&memory, 0)), ((0, 0), 0));
}

#[test]
fn below_user_mode_submission_each_list_is_a_submission_of_its_own() {
    for (rung, thunk) in [(Rung::Packet, Thunk::SubmitCommand), (Rung::NativeFences, Thunk::SubmitCommandToHwQueue)] {
        let mock = Mock::with(Adapter::ours(rung));
        let device = mock.device();
        let (queue, memory) = (mock.queue(&device), memory(&device));
        let mut lists = [2, 3, 4].map(|value| storing(&queue, memory.gpu_va(), value));
        assert_eq!(queue.submit_lists(&mut lists.each_mut(), true), Ok(3));
        mock.run();
        assert_eq!((word(&memory, 0), queue.progress(), mock.calls(thunk)), (4, (3, 3), 3));
        drop((queue, memory, device));
        mock.assert_clean();
    }
}

/// Without waiting: all of them or none, where each by itself would have room.
#[test]
fn a_pool_without_room_for_all_takes_none() {
    let mock = Mock::with(Adapter::ours(Rung::NativeFences));
    let device = mock.device();
    let queue = mock.queue(&device);
    let mut lists = [0, 1, 2, 3].map(|_| {
        let mut list = queue.new_list();
        list.nop((queue.info().list_limit / 8 * 8) as u32).unwrap();
        list
    });
    mock.world().gpu_runs = false;
    assert_eq!(queue.submit_lists(&mut lists.each_mut(), false), Err(UmdError::Timeout));
    assert_eq!((queue.progress(), mock.calls(Thunk::SubmitCommandToHwQueue)), ((0, 0), 0));
    let [one, ..] = &mut lists;
    assert_eq!(queue.submit(one, false), Ok(1));
}

/// An empty list becomes a buffer as well, whatever the list before it ends with.
#[test]
fn room_is_counted_list_by_list() {
    let mock = Mock::with(Adapter::ours(Rung::NativeFences));
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    mock.world().gpu_runs = false;
    // All but the room of one end of a submission.
    for part in [1336, 1336, RING as u32 - 2 * 1336 - 4 * MAX_TAIL as u32] {
        let mut list = queue.new_list();
        list.nop(part).unwrap();
        queue.submit(&mut list, false).unwrap();
    }
    let mut indirect = queue.new_list();
    indirect.indirect(memory.gpu_va(), 8).unwrap();
    let mut empty = queue.new_list();
    assert_eq!(queue.submit_lists(&mut [&mut indirect, &mut empty], false), Err(UmdError::Timeout));
    assert_eq!((queue.progress(), mock.calls(Thunk::SubmitCommandToHwQueue)), ((0, 3), 3));
    assert_eq!(queue.submit(&mut indirect, false), Ok(5));
}
