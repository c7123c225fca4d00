//! Submission through the kernel: hardware queues below user-mode submission, packet contexts, and what one list
//! becomes on each.

use crate::mock::{Adapter, Mock, RING, create};
use crate::submission::{memory, store, store_of_six, word};
use gpu_wire::GpuVa;
use gpu_wire::private::Rung;
use umd_core::adapter::Mode;
use umd_core::error::{UmdError, Unsupported};
use umd_core::fence::Fence;
use umd_core::queue::{Create, Queue};
use umd_core::thunks::Thunk;
use umd_core::wait::Timeout;
use wddm_abi::D3DKMT_DEVICEEXECUTION_STATE;
use wddm_abi::ntstatus::STATUS_DEVICE_REMOVED;

fn on(rung: Rung) -> Mock {
    Mock::with(Adapter::ours(rung))
}

#[test]
fn every_rung_executes_the_same_list() {
    let cases = [
        (Rung::Packet, Mode::Packet, Thunk::SubmitCommand),
        (Rung::HardwareQueues, Mode::KernelMode, Thunk::SubmitCommandToHwQueue),
        (Rung::NativeFences, Mode::KernelMode, Thunk::SubmitCommandToHwQueue),
        (Rung::UserModeSubmission, Mode::UserMode, Thunk::ConnectDoorbell),
    ];
    for (rung, mode, thunk) in cases {
        let mock = on(rung);
        let device = mock.device();
        let (queue, memory) = (mock.queue(&device), memory(&device));
        assert_eq!(queue.info().mode, Some(mode));
        for value in 1..=200 {
            assert_eq!(store(&queue, &memory, value), Ok(value));
            if value % 5 == 0 {
                assert_eq!(queue.wait(value, Timeout::INFINITE), Ok(()));
                assert_eq!(word(&memory, 0), value);
            }
        }
        assert!(mock.calls(thunk) > 0);
        drop((queue, memory, device));
        mock.assert_clean();
    }
}

#[test]
fn a_kernel_mode_queue_beside_user_mode_ones_uses_no_doorbell() {
    let mock = Mock::new();
    let device = mock.device();
    let queue = Queue::create(&device, Create { kernel_mode: true, ..create(0) }).unwrap();
    let memory = memory(&device);
    store(&queue, &memory, 4).unwrap();
    queue.wait(0, Timeout::INFINITE).unwrap();
    assert_eq!((word(&memory, 0), mock.calls(Thunk::CreateDoorbell)), (4, 0));
    drop((queue, memory, device));
    mock.assert_clean();
}

#[test]
fn the_paging_node_takes_packets_on_every_rung() {
    let mock = Mock::new();
    let device = mock.device();
    let queue = Queue::create(&device, create(2)).unwrap();
    let memory = memory(&device);
    assert_eq!(queue.info().mode, Some(Mode::Packet));
    store(&queue, &memory, 9).unwrap();
    queue.wait(0, Timeout::INFINITE).unwrap();
    assert_eq!(word(&memory, 0), 9);
    drop((queue, memory, device));
    mock.assert_clean();
}

#[test]
fn native_fences_work_on_kernel_mode_hardware_queues() {
    let mock = on(Rung::NativeFences);
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    let fence = Fence::create(&device, 0, false, false, &[0; 48]).unwrap();
    let mut list = queue.new_list();
    list.fence_wait(&fence, 3).unwrap();
    list.store(memory.gpu_va(), 8).unwrap();
    list.fence_signal(&fence, 4).unwrap();
    for n in 0..100 {
        queue.submit(&mut list, true).unwrap();
        mock.run();
        assert_eq!(queue.progress().0, n, "parked");
        fence.signal(3).unwrap();
        mock.run();
        assert_eq!((queue.progress().0, fence.value()), (n + 1, 4));
        fence.signal(0).unwrap();
    }
    // No buffer waited on the GPU: the system held back each one.
    assert_eq!(mock.calls(Thunk::SubmitWaitForSyncObjectsToHwQueue), 100);
    drop((queue, memory, fence, device));
    mock.assert_clean();
}

#[test]
fn waits_for_monitored_fences_cut_the_list_and_the_system_holds_the_rest() {
    for (rung, thunk) in [
        (Rung::Packet, Thunk::WaitForSynchronizationObjectFromGpu),
        (Rung::HardwareQueues, Thunk::SubmitWaitForSyncObjectsToHwQueue),
    ] {
        let mock = on(rung);
        let device = mock.device();
        let (queue, memory) = (mock.queue(&device), memory(&device));
        let fence = Fence::create(&device, 0, false, false, &[0; 48]).unwrap();
        assert!(!fence.is_native());
        let mut list = queue.new_list();
        list.store(memory.gpu_va(), 1).unwrap();
        list.fence_wait(&fence, 7).unwrap();
        list.store(memory.gpu_va(), 2).unwrap();
        list.fence_signal(&fence, 8).unwrap();
        assert_eq!(queue.submit(&mut list, true), Ok(2));
        mock.run();
        assert_eq!((word(&memory, 0), queue.progress(), mock.calls(thunk)), (1, (1, 2), 1));
        fence.signal(7).unwrap();
        mock.run();
        assert_eq!((word(&memory, 0), queue.progress(), fence.value()), (2, (2, 2), 8));
        drop((queue, memory, fence, device));
        mock.assert_clean();
    }
}

/// On an adapter whose engines cannot write monitored fences.
fn without_signals(rung: Rung) -> Mock {
    let mut adapter = Adapter::ours(rung);
    if let Some(info) = &mut adapter.info {
        info.software_signal_nodes = 7;
    }
    Mock::with(adapter)
}

#[test]
fn signals_that_an_engine_cannot_make_cut_the_list_and_are_the_systems() {
    for (rung, thunk) in [
        (Rung::Packet, Thunk::SignalSynchronizationObjectFromGpu),
        (Rung::HardwareQueues, Thunk::SubmitSignalSyncObjectsToHwQueue),
        (Rung::NativeFences, Thunk::SubmitSignalSyncObjectsToHwQueue),
    ] {
        let mock = without_signals(rung);
        let device = mock.device();
        let (queue, memory) = (mock.queue(&device), memory(&device));
        let fence = Fence::create(&device, 0, false, true, &[0; 48]).unwrap();
        let mut list = queue.new_list();
        list.store(memory.gpu_va(), 1).unwrap();
        list.fence_signal(&fence, 5).unwrap();
        list.fence_signal(&fence, 6).unwrap();
        list.store(GpuVa(memory.gpu_va().0 + 8), 2).unwrap();
        list.fence_wait(&fence, 9).unwrap();
        list.store(memory.gpu_va(), 3).unwrap();
        list.fence_signal(&fence, 10).unwrap();
        let last = queue.submit(&mut list, true).unwrap();
        mock.run();
        assert_eq!((word(&memory, 0), word(&memory, 8), fence.value()), (1, 2, 6), "{rung:?}");
        assert!(queue.progress().0 < last);
        fence.signal(9).unwrap();
        mock.run();
        assert_eq!((word(&memory, 0), fence.value(), queue.progress()), (3, 10, (last, last)));
        // A packet context's own fence is signaled by the system, too; a piece of nothing else is no buffer.
        let submit = if rung == Rung::Packet { Thunk::SubmitCommand } else { Thunk::SubmitCommandToHwQueue };
        assert_eq!(mock.calls(submit), if rung == Rung::Packet { 3 } else { last as usize }, "{rung:?}");
        let more = if rung == Rung::Packet { last } else { 0 };
        assert_eq!(mock.calls(thunk), 3 + more as usize);
        queue.wait(0, Timeout::INFINITE).unwrap();
        drop((queue, memory, fence, device));
        mock.assert_clean();
    }
}

#[test]
fn an_indirect_command_buffer_is_submitted_by_itself() {
    for rung in [Rung::Packet, Rung::HardwareQueues, Rung::NativeFences] {
        let mock = on(rung);
        let device = mock.device();
        let (queue, memory) = (mock.queue(&device), memory(&device));
        let (inner, length) = store_of_six(&queue, &memory);
        let mut list = queue.new_list();
        list.store(GpuVa(memory.gpu_va().0 + 16), 5).unwrap();
        list.indirect(inner, length).unwrap();
        list.copy(memory.gpu_va(), GpuVa(memory.gpu_va().0 + 8), 8).unwrap();
        // Its own progress value, and that of the buffer behind it that writes it.
        assert_eq!(queue.submit(&mut list, true), Ok(4));
        mock.run();
        assert_eq!((word(&memory, 0), word(&memory, 8), word(&memory, 16)), (6, 6, 5));
        assert_eq!(queue.progress(), (4, 4));
        drop((queue, memory, device));
        mock.assert_clean();
    }
}

/// What follows the last packet of a list that ends so is the progress value alone.
#[test]
fn a_list_that_ends_in_an_indirect_buffer_is_counted_behind_it() {
    for rung in [Rung::Packet, Rung::HardwareQueues, Rung::NativeFences] {
        let mock = on(rung);
        let device = mock.device();
        let (queue, memory) = (mock.queue(&device), memory(&device));
        let (inner, length) = store_of_six(&queue, &memory);
        let mut list = queue.new_list();
        list.indirect(inner, length).unwrap();
        assert_eq!(queue.submit(&mut list, true), Ok(2));
        mock.run();
        assert_eq!((word(&memory, 0), queue.progress()), (6, (2, 2)), "{rung:?}");
        drop((queue, memory, device));
        mock.assert_clean();
    }
}

/// A progress value that no buffer writes would look, for as long as the wait lasts, like a buffer that hangs.
#[test]
fn the_progress_value_of_an_indirect_buffer_is_written_before_a_wait() {
    for (rung, thunk) in [(Rung::Packet, Thunk::SubmitCommand), (Rung::HardwareQueues, Thunk::SubmitCommandToHwQueue)] {
        let mock = on(rung);
        let device = mock.device();
        let (queue, memory) = (mock.queue(&device), memory(&device));
        let fence = Fence::create(&device, 0, false, true, &[0; 48]).unwrap();
        let mut inner = queue.new_list();
        inner.store(memory.gpu_va(), 6).unwrap();
        memory.write(32768, inner.bytes()).unwrap();
        let mut list = queue.new_list();
        list.indirect(GpuVa(memory.gpu_va().0 + 32768), inner.len()).unwrap();
        list.fence_wait(&fence, 7).unwrap();
        list.store(memory.gpu_va(), 8).unwrap();
        assert_eq!(queue.submit(&mut list, true), Ok(3));
        mock.run();
        assert_eq!((word(&memory, 0), queue.progress(), mock.calls(thunk)), (6, (2, 3), 3));
        fence.signal(7).unwrap();
        mock.run();
        assert_eq!((word(&memory, 0), queue.progress()), (8, (3, 3)));
        drop((queue, memory, fence, device));
        mock.assert_clean();
    }
}

/// Of two such buffers in a row the first has its value written before the second begins.
#[test]
fn each_indirect_buffer_has_its_progress_value_written_behind_it() {
    for rung in [Rung::Packet, Rung::HardwareQueues] {
        let mock = on(rung);
        let device = mock.device();
        let (queue, memory) = (mock.queue(&device), memory(&device));
        let fence = Fence::create(&device, 0, false, true, &[0; 48]).unwrap();
        // The second one waits, if the first one's value is not written before it.
        let (inner, length) = store_of_six(&queue, &memory);
        let mut list = queue.new_list();
        list.indirect(inner, length).unwrap();
        list.indirect(inner, length).unwrap();
        list.fence_wait(&fence, 1).unwrap();
        list.store(memory.gpu_va(), 7).unwrap();
        assert_eq!(queue.submit(&mut list, true), Ok(5));
        mock.run();
        assert_eq!((word(&memory, 0), queue.progress()), (6, (4, 5)), "{rung:?}");
        fence.signal(1).unwrap();
        mock.run();
        assert_eq!((word(&memory, 0), queue.progress()), (7, (5, 5)), "{rung:?}");
        drop((queue, memory, fence, device));
        mock.assert_clean();
    }
}

/// A list of several command buffers that may not wait for room is submitted whole, or not at all.
#[test]
fn without_a_wait_a_list_is_submitted_whole_or_not_at_all() {
    for (rung, thunk) in [(Rung::Packet, Thunk::SubmitCommand), (Rung::HardwareQueues, Thunk::SubmitCommandToHwQueue)] {
        let mock = on(rung);
        let device = mock.device();
        let (queue, memory) = (mock.queue(&device), memory(&device));
        let (inner, length) = store_of_six(&queue, &memory);
        let mut list = queue.new_list();
        for _ in 0..20 {
            list.store(memory.gpu_va(), 5).unwrap();
            list.indirect(inner, length).unwrap();
        }
        let mut refused = 0;
        for _ in 0..2_000 {
            let before = (mock.calls(thunk), queue.progress().1);
            match queue.submit(&mut list, false) {
                Ok(progress) => assert_eq!(progress, before.1 + 60),
                Err(error) => {
                    assert_eq!(error, UmdError::Timeout);
                    assert_eq!((mock.calls(thunk), queue.progress().1), before, "{rung:?}");
                    refused += 1;
                    mock.run();
                }
            }
        }
        assert!(refused > 1, "{rung:?}");
        mock.run();
        assert_eq!((word(&memory, 0), queue.progress().0), (6, queue.progress().1), "{rung:?}");
        drop((queue, memory, device));
        mock.assert_clean();
    }
}

#[test]
fn fences_that_do_not_go_with_the_queue_are_refused_before_anything_is_submitted() {
    let mock = Mock::new();
    let device = mock.device();
    let user = mock.queue(&device);
    let monitored = Fence::create(&device, 0, false, true, &[0; 48]).unwrap();
    let native = Fence::create(&device, 0, false, false, &[0; 48]).unwrap();
    for signal in [false, true] {
        let mut list = user.new_list();
        if signal {
            list.fence_signal(&monitored, 1).unwrap()
        } else {
            list.fence_wait(&monitored, 1).unwrap()
        }
        let refused = Err(UmdError::NotSupported(Unsupported::MonitoredFenceOnUserQueue));
        assert_eq!(user.submit(&mut list, true), refused);
    }
    let packets = Queue::create(&device, create(2)).unwrap();
    let mut list = packets.new_list();
    list.fence_signal(&native, 1).unwrap();
    let refused = Err(UmdError::NotSupported(Unsupported::NativeFenceOnPacketContext));
    assert_eq!(packets.submit(&mut list, true), refused);
    assert_eq!(mock.calls(Thunk::ConnectDoorbell) + mock.calls(Thunk::SubmitCommand), 0);
    drop((user, packets, monitored, native, device));
    mock.assert_clean();
}

#[test]
fn a_full_pool_is_waited_for_or_said() {
    for rung in [Rung::Packet, Rung::HardwareQueues, Rung::NativeFences] {
        let mock = on(rung);
        let device = mock.device();
        let queue = mock.queue(&device);
        let mut list = queue.new_list();
        assert_eq!(list.limit(), RING / 3 / 8 * 8 - 24);
        list.nop(list.limit() as u32).unwrap();
        for n in 1..=2 {
            assert_eq!(queue.submit(&mut list, false), Ok(n));
        }
        mock.world().gpu_runs = false;
        // The third fits or not, as the tail is short or long; the fourth does not.
        let third = queue.submit(&mut list, false);
        assert!(third == Ok(3) || third == Err(UmdError::Timeout));
        assert_eq!(queue.submit(&mut list, false), Err(UmdError::Timeout));
        mock.world().gpu_runs = true;
        for _ in 0..20 {
            queue.submit(&mut list, true).unwrap();
        }
        assert!(queue.counters().effort.stalls > 0);
        queue.wait(0, Timeout::INFINITE).unwrap();
        drop((queue, device));
        mock.assert_clean();
    }
}

#[test]
fn a_lost_device_is_named_instead_of_the_thunks_refusal() {
    let mock = on(Rung::HardwareQueues);
    let device = mock.device();
    let (queue, memory) = (mock.queue(&device), memory(&device));
    let thunk = Thunk::SubmitCommandToHwQueue;
    mock.world().refuse.push((thunk, STATUS_DEVICE_REMOVED));
    let refused = UmdError::Thunk { thunk, status: STATUS_DEVICE_REMOVED };
    assert_eq!(store(&queue, &memory, 1), Err(refused));
    let state = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_HUNG;
    mock.world().lose_device(state);
    mock.world().refuse.push((thunk, STATUS_DEVICE_REMOVED));
    assert_eq!(store(&queue, &memory, 1), Err(UmdError::DeviceLost { state }));
}
