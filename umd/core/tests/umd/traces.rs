//! Fence-queued events and call counters.

use crate::mock::{Adapter, Mock};
use gpu_wire::private::Rung;
use umd_core::command_list::Operation;
use umd_core::fence::Fence;
use umd_core::thunks::Thunk;
use umd_core::trace::Event;

fn events(queue: &umd_core::queue::Queue<Mock>) -> Vec<Event> {
    let mut events = vec![];
    let lost = queue.read_trace(|event| {
        events.push(event);
        true
    });
    assert_eq!(lost, 0);
    events
}

#[test]
fn waits_and_signals_are_stamped_when_recorded_and_when_queued() {
    let mock = Mock::new();
    let device = mock.device();
    let queue = mock.queue(&device);
    let fence = Fence::create(&device, 0, false, false, &[0; 48]).unwrap();
    let mut list = queue.new_list();
    list.fence_signal(&fence, 1).unwrap();
    list.fence_wait(&fence, 1).unwrap();
    mock.world().time += 1_000_000;
    queue.submit(&mut list, true).unwrap();
    queue.submit(&mut list, true).unwrap();
    let events = events(&queue);
    let progress_fence = queue.info().progress_fence;
    let got: Vec<_> = events.iter().map(|e| (e.operation, e.fence, e.value, e.progress)).collect();
    let once = |progress| {
        [
            (Operation::Signal, fence.handle(), 1, progress),
            (Operation::Wait, fence.handle(), 1, progress),
            (Operation::Signal, progress_fence, progress, progress),
        ]
    };
    assert_eq!(got, [once(1), once(2)].concat());
    for event in &events {
        assert!(event.recorded <= event.queued);
        // Nothing of it was published yet.
        assert_eq!(mock.world().queued_at[&event.queued], event.progress - 1);
    }
    assert!(events[0].queued - events[0].recorded >= 1_000_000);
    assert!(events[3].queued > events[0].queued && events[3].recorded == events[0].recorded);
    assert!(self::events(&queue).is_empty());
}

#[test]
fn a_monitored_progress_fence_has_no_log_entry_and_no_event() {
    let mock = Mock::with(Adapter::ours(Rung::HardwareQueues));
    let device = mock.device();
    let queue = mock.queue(&device);
    let fence = Fence::create(&device, 0, false, false, &[0; 48]).unwrap();
    let mut list = queue.new_list();
    list.fence_signal(&fence, 1).unwrap();
    queue.submit(&mut list, true).unwrap();
    assert_eq!(events(&queue).len(), 1);
}

#[test]
fn calls_are_counted_by_kind_with_their_failures() {
    let mock = Mock::new();
    let device = mock.device();
    mock.world().refuse.push((Thunk::CreateAllocation2, wddm_abi::ntstatus::STATUS_NO_MEMORY));
    let create = umd_core::allocation::Create {
        size: 1,
        kind: umd_core::allocation::Kind::System,
        shared: false,
        read_only: false,
    };
    for _ in 0..3 {
        let _ = umd_core::allocation::Allocation::create(&device, create);
    }
    let counted = device.os().calls(Thunk::CreateAllocation2);
    assert_eq!((counted.calls, counted.failures), (3, 1));
    for thunk in Thunk::ALL {
        assert_eq!(device.os().calls(*thunk).calls, mock.calls(*thunk) as u64, "{}", thunk.name());
    }
}
