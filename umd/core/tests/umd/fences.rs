//! Fences from the CPU's side: create, share, open, poll, wait, signal.

use crate::mock::{Adapter, Mock};
use gpu_wire::private::Rung;
use umd_core::device::Device;
use umd_core::error::{UmdError, Unsupported};
use umd_core::fence::Fence;
use umd_core::native_fence::NativeFence;
use umd_core::thunks::{Thunk, Thunks};
use umd_core::wait::Timeout;
use wddm_abi::ntstatus::STATUS_NO_MEMORY;

const NO_DATA: [u8; 48] = [0; 48];

fn fence(device: &std::sync::Arc<Device<Mock>>, initial: u64, shared: bool) -> Fence<Mock> {
    Fence::create(device, initial, shared, false, &NO_DATA).unwrap()
}

#[test]
fn the_kind_follows_the_rung_and_the_wish() {
    let mock = Mock::new();
    let device = mock.device();
    assert!(fence(&device, 0, false).is_native());
    assert!(!Fence::create(&device, 0, false, true, &NO_DATA).unwrap().is_native());
    let mock = Mock::with(Adapter::ours(Rung::HardwareQueues));
    let device = mock.device();
    assert!(!fence(&device, 0, false).is_native());
    let refused = NativeFence::create(&device, 0, false, &NO_DATA).map(|_| ());
    assert_eq!(refused, Err(UmdError::NotSupported(Unsupported::NativeFences)));
    assert_eq!(mock.calls(Thunk::CreateNativeFence), 0);
}

#[test]
fn private_data_come_back_with_the_drivers_reply() {
    let mock = Mock::new();
    let device = mock.device();
    let mut data = NO_DATA;
    data[..5].copy_from_slice(b"mine!");
    let fence = NativeFence::create(&device, 41, false, &data).unwrap();
    assert_eq!(&fence.private_data()[..48], &data);
    assert_eq!(fence.reply().map(|reply| reply.index), Some(fence.handle()));
    assert_eq!(fence.value(), 41);
    assert_ne!(fence.monitored_va(), fence.gpu_va());
    drop((fence, device));
    mock.assert_clean();
}

#[test]
fn a_signal_from_the_cpu_is_seen_by_poll_wait_and_event() {
    for rung in [Rung::HardwareQueues, Rung::UserModeSubmission] {
        let mock = Mock::with(Adapter::ours(rung));
        let device = mock.device();
        let fence = fence(&device, 5, false);
        let event = mock.create_event().unwrap();
        fence.wait_event(9, event).unwrap();
        assert!(!mock.world().events[&event.0]);
        assert_eq!(fence.wait(9, Timeout::ZERO), Err(UmdError::Timeout));
        fence.signal(9).unwrap();
        assert_eq!(fence.value(), 9);
        assert!(mock.world().events[&event.0]);
        assert_eq!(fence.wait(9, Timeout::INFINITE), Ok(()));
        // Met already: no call.
        assert_eq!(mock.calls(Thunk::WaitForSynchronizationObjectFromCpu), 1);
        mock.close_handle(event);
        drop((fence, device));
        mock.assert_clean();
    }
}

#[test]
fn a_bounded_wait_ends_in_time_and_leaves_no_event() {
    let mock = Mock::new();
    let device = mock.device();
    let fence = fence(&device, 0, false);
    let before = mock.world().time;
    assert_eq!(fence.wait(1, Timeout::from_nanoseconds(2_000_000_000)), Err(UmdError::Timeout));
    let passed = mock.world().time - before;
    assert!((2_000_000_000..2_100_000_000).contains(&passed), "{passed}");
    drop((fence, device));
    mock.world().waiters.clear();
    mock.assert_clean();
}

/// An event that comes before its value is no answer: the value is waited for once more, by a call, not by looking.
#[test]
fn an_event_that_is_early_is_waited_for_again() {
    let mock = Mock::new();
    let device = mock.device();
    let fence = fence(&device, 0, false);
    mock.world().early_events = 1;
    assert_eq!(fence.wait(1, Timeout::from_nanoseconds(1_000_000)), Err(UmdError::Timeout));
    assert_eq!(mock.calls(Thunk::WaitForSynchronizationObjectFromCpu), 2);
    drop((fence, device));
    mock.world().waiters.clear();
    mock.assert_clean();
}

/// No call says when the GPU address of a fence is mapped: a mapping behind it says so.
#[test]
fn a_fence_is_settled_before_it_is_handed_out() {
    for rung in [Rung::HardwareQueues, Rung::UserModeSubmission] {
        let mock = Mock::with(Adapter::ours(rung));
        let device = mock.device();
        mock.world().paging_pending = true;
        let behind = |call: &dyn Fn()| {
            let before = mock.total_calls();
            call();
            let calls = mock.world().calls[before + 1..].to_vec();
            let map = calls.iter().position(|call| *call == Thunk::MapGpuVirtualAddress).expect("nothing was mapped");
            assert!(calls[map..].contains(&Thunk::WaitForSynchronizationObjectFromCpu), "{calls:?}");
        };
        let made = fence(&device, 0, true);
        behind(&|| drop(fence(&device, 0, false)));
        let handle = made.share().unwrap();
        behind(&|| drop(Fence::open(&device, handle, rung == Rung::HardwareQueues).unwrap()));
        mock.close_handle(handle);
        drop((made, device));
        mock.assert_clean();
    }
}

#[test]
fn values_are_unsigned_and_compared_as_such() {
    let mock = Mock::new();
    let device = mock.device();
    let fence = fence(&device, u64::MAX - 1, false);
    assert_eq!(fence.wait(1 << 63, Timeout::ZERO), Ok(()));
    assert_eq!(fence.wait(u64::MAX, Timeout::ZERO), Err(UmdError::Timeout));
    fence.signal(3).unwrap();
    assert_eq!(fence.value(), 3);
}

#[test]
fn a_shared_fence_opened_on_another_device_has_the_same_value() {
    for rung in [Rung::HardwareQueues, Rung::UserModeSubmission] {
        let mock = Mock::with(Adapter::ours(rung));
        let device = mock.device();
        let fence = fence(&device, 7, true);
        let handle = fence.share().unwrap();
        let other = mock.device();
        let opened = Fence::open(&other, handle, false).unwrap();
        assert_eq!(opened.is_native(), rung == Rung::UserModeSubmission);
        assert_eq!(opened.value(), 7);
        fence.signal(8).unwrap();
        assert_eq!(opened.value(), 8);
        mock.close_handle(handle);
        drop((opened, other, fence, device));
        mock.assert_clean();
    }
}

#[test]
fn a_private_fence_cannot_be_shared() {
    let mock = Mock::new();
    let device = mock.device();
    assert_eq!(fence(&device, 0, false).share(), Err(UmdError::NotSupported(Unsupported::Sharing)));
    assert_eq!(mock.calls(Thunk::ShareObjects), 0);
}

#[test]
fn refusals_leave_nothing_behind() {
    let mock = Mock::new();
    let device = mock.device();
    for thunk in [Thunk::CreateNativeFence, Thunk::CreateSynchronizationObject2] {
        mock.world().refuse.push((thunk, STATUS_NO_MEMORY));
        let monitored = thunk == Thunk::CreateSynchronizationObject2;
        let error = Fence::create(&device, 0, false, monitored, &NO_DATA).map(|_| ());
        assert_eq!(error, Err(UmdError::Thunk { thunk, status: STATUS_NO_MEMORY }));
    }
    drop(device);
    mock.assert_clean();
}
