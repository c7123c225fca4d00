//! Queues as objects: creation, description, several threads.

use crate::mock::{Mock, RING, create};
use crate::submission::{memory, store, word};
use std::sync::atomic::Ordering;
use std::thread;
use umd_core::adapter::Mode;
use umd_core::doorbell::Status;
use umd_core::error::UmdError;
use umd_core::queue::{Create, Queue};
use umd_core::thunks::Thunk;
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_NO_MEMORY, STATUS_NOT_IMPLEMENTED, STATUS_NOT_SUPPORTED};

#[test]
fn a_refusal_on_the_way_leaves_nothing_behind() {
    let steps = [
        Thunk::QueryAdapterInfo,
        Thunk::CreateContextVirtual,
        Thunk::CreateHwQueue,
        Thunk::CreateAllocation2,
        Thunk::MakeResident,
        Thunk::MapGpuVirtualAddress,
        Thunk::Lock2,
        Thunk::CreateDoorbell,
    ];
    for thunk in steps {
        let mock = Mock::new();
        let device = mock.device();
        // A refusal for want of budget is answered by a second call.
        let times = if thunk == Thunk::MakeResident { 2 } else { 1 };
        mock.world().refuse.extend([(thunk, STATUS_NO_MEMORY); 2].iter().take(times));
        let error = Queue::create(&device, create(0)).map(|_| ());
        assert_eq!(error, Err(UmdError::Thunk { thunk, status: STATUS_NO_MEMORY }));
        drop(device);
        mock.assert_clean();
    }
}

/// The obsolete call is made only where HwQueueSupported is unknown, and its refusal changes no error.
#[test]
fn contexts_for_queues_are_made_by_create_context_virtual_and_otherwise_by_the_obsolete_call() {
    let mock = Mock::new();
    let device = mock.device();
    drop(mock.queue(&device));
    let obsolete = [Thunk::CreateHwContext, Thunk::DestroyHwContext];
    assert!(!mock.world().calls.iter().any(|call| obsolete.contains(call)));

    let called = |thunk| mock.world().calls.iter().filter(|call| **call == thunk).count();
    for (refused, status) in (1..).zip([STATUS_NOT_SUPPORTED, STATUS_NOT_IMPLEMENTED, STATUS_INVALID_PARAMETER]) {
        mock.world().refuse.push((Thunk::CreateContextVirtual, status));
        drop(mock.queue(&device));
        assert_eq!(obsolete.map(called), [refused, refused], "{status:?}");
        assert_eq!(called(Thunk::DestroyContext), 1);
    }

    mock.world().refuse.push((Thunk::CreateContextVirtual, STATUS_NOT_SUPPORTED));
    mock.world().refuse.push((Thunk::CreateHwContext, STATUS_NOT_IMPLEMENTED));
    let error = Queue::create(&device, create(0)).map(|_| ());
    assert_eq!(error, Err(UmdError::Thunk { thunk: Thunk::CreateContextVirtual, status: STATUS_NOT_SUPPORTED }));
    drop(device);
    mock.assert_clean();
}

/// An image that cannot find the obsolete calls has user-mode submission all the same.
#[test]
fn a_system_without_the_obsolete_calls_has_every_way_to_submit() {
    let mock = Mock::new();
    mock.world().missing.extend(["D3DKMTCreateHwContext", "D3DKMTDestroyHwContext"].map(Into::into));
    let device = mock.device();
    assert_eq!(mock.queue(&device).info().mode, Some(Mode::UserMode));
    drop(device);
    mock.assert_clean();
}

#[test]
fn sizes_and_nodes_that_are_none_are_refused() {
    let mock = Mock::new();
    let device = mock.device();
    for ring_size in [0, 100, 5000, 2048, 32 << 20] {
        let error = Queue::create(&device, Create { ring_size, ..create(0) }).map(|_| ());
        assert_eq!(error, Err(UmdError::InvalidArgument("ring size")), "{ring_size}");
    }
    assert_eq!(Queue::create(&device, create(3)).map(|_| ()), Err(UmdError::InvalidArgument("node")));
    drop(device);
    mock.assert_clean();
}

#[test]
fn a_queue_is_destroyed_doorbell_first_and_ring_last() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    store(&queue, &memory, 1).unwrap();
    drop(queue);
    let calls = mock.world().calls.clone();
    let order: Vec<Thunk> =
        calls.into_iter().skip_while(|call| *call != Thunk::DestroyDoorbell).filter(|c| *c != Thunk::Unlock2).collect();
    let wanted = [Thunk::DestroyDoorbell, Thunk::DestroyHwQueue, Thunk::DestroyContext];
    assert_eq!(order[..3], wanted);
    assert_eq!(order[3..], [Thunk::DestroyAllocation2; 2]);
    // The OS waits for what was submitted.
    assert_eq!(word(&memory, 0), 1);
    drop((memory, device));
    mock.assert_clean();
}

#[test]
fn a_queue_describes_itself() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    let info = queue.info();
    assert_eq!((info.mode, info.node, info.number, info.status), (Some(Mode::UserMode), 0, 1, Some(Status::Retry)));
    assert_eq!(info.list_limit, RING - 24);
    store(&queue, &memory, 1).unwrap();
    let after = queue.info();
    assert_eq!((after.status, after.addresses), (Some(Status::Connected), info.addresses));
    let second = Queue::create(&device, create(1)).unwrap();
    assert_eq!(second.number(), 2);
    assert_ne!(second.info().handle, info.handle);
}

#[test]
fn a_reply_that_cannot_be_is_refused() {
    // The mock answers with the ring's size; a ring that the KMD understands differently must not be used. Here the
    // doorbell call succeeds on a system where the KMD writes nothing back.
    let mock = Mock::new();
    let device = mock.device();
    mock.world().silent_driver = true;
    let error = Queue::create(&device, create(0)).map(|_| ());
    assert_eq!(error, Err(UmdError::BadReply { thunk: Thunk::CreateDoorbell }));
    drop(device);
    mock.assert_clean();
}

#[test]
fn several_threads_submit_to_one_queue_and_every_list_arrives_whole() {
    const THREADS: u64 = 4;
    const LISTS: u64 = 50;
    let mock = Mock::new();
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    thread::scope(|scope| {
        for n in 0..THREADS {
            let (queue, memory) = (&queue, &memory);
            scope.spawn(move || {
                let mut list = queue.new_list();
                for value in 1..=LISTS {
                    list.reset();
                    list.store(gpu_wire::GpuVa(memory.gpu_va().0 + 8 * n), value).unwrap();
                    list.nop(64).unwrap();
                    queue.submit(&mut list, true).unwrap();
                }
            });
        }
    });
    mock.run();
    assert_eq!(queue.progress(), (THREADS * LISTS, THREADS * LISTS));
    for n in 0..THREADS {
        assert_eq!(word(&memory, 8 * n), LISTS);
    }
    drop((queue, memory, device));
    mock.assert_clean();
}

#[test]
fn progress_can_be_looked_at_while_another_thread_waits_for_space() {
    let mock = Mock::new();
    let device = mock.device();
    let queue = mock.queue(&device);
    let mut big = queue.new_list();
    big.nop(big.limit() as u32).unwrap();
    queue.submit(&mut big, true).unwrap();
    mock.world().gpu_runs = false;
    thread::scope(|scope| {
        let (submitting, mock) = (&queue, &mock);
        let stalled = scope.spawn(move || submitting.submit(&mut big, true));
        // The submitter holds the queue's lock for as long as nothing runs; this looks all the same.
        while mock.calls(Thunk::WaitForSynchronizationObjectFromCpu) == 0 {
            assert_eq!(queue.progress(), (0, 1));
            thread::yield_now();
        }
        mock.world().gpu_runs = true;
        assert_eq!(stalled.join().unwrap(), Ok(2));
    });
    mock.run();
    assert_eq!(queue.progress(), (2, 2));
    drop((queue, device));
    mock.assert_clean();
}

/// The new doorbell's word says what is queued: behind a resize the work in the old ring still is.
#[test]
fn a_resized_queue_tells_what_it_has_queued() {
    let mock = Mock::new();
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    for value in 1..=3 {
        assert_eq!(store(&queue, &memory, value), Ok(value));
    }
    queue.resize(2 * RING).unwrap();
    let told = |mock: &Mock| {
        let world = mock.world();
        let doorbells = world.queues.values().filter_map(|queue| queue.doorbell.as_ref());
        doorbells.map(|doorbell| doorbell.last_queued.load(Ordering::Relaxed)).collect::<Vec<_>>()
    };
    assert_eq!(told(&mock), [3]);
    assert_eq!(store(&queue, &memory, 4), Ok(4));
    assert_eq!(told(&mock), [4]);
}
