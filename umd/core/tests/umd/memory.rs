//! Devices, paging, allocations.

use crate::mock::Mock;
use gpu_wire::GpuVa;
use umd_core::allocation::{Allocation, Create, Kind};
use umd_core::device::Device;
use umd_core::error::{UmdError, Unsupported};
use umd_core::thunks::{NtHandle, Thunk, Thunks};
use wddm_abi::ntstatus::{STATUS_INVALID_HANDLE, STATUS_INVALID_PARAMETER, STATUS_NO_MEMORY};

const SYSTEM: Create = Create { size: 10_000, kind: Kind::System, shared: false, read_only: false };

#[test]
fn system_memory_is_mapped_resident_and_visible() {
    let mock = Mock::new();
    let device = mock.device();
    let memory = Allocation::create(&device, SYSTEM).unwrap();
    assert_eq!((memory.size(), memory.kind()), (12_288, Kind::System));
    assert!(memory.gpu_va() != GpuVa(0) && memory.pages().is_some());
    memory.write(12_280, &[7; 8]).unwrap();
    let mut got = [0; 8];
    memory.read(12_280, &mut got).unwrap();
    assert_eq!(got, [7; 8]);
    assert_eq!(memory.write(12_281, &[7; 8]), Err(UmdError::InvalidArgument("range")));
    // Memory that the GPU has may refuse the lock.
    let order = [Thunk::Lock2, Thunk::MapGpuVirtualAddress, Thunk::MakeResident];
    let calls = mock.world().calls.clone();
    assert_eq!(calls.into_iter().filter(|call| order.contains(call)).collect::<Vec<_>>(), order);
    drop(memory);
    drop(device);
    mock.assert_clean();
}

#[test]
fn local_memory_is_not_visible_to_the_cpu() {
    let mock = Mock::new();
    let device = mock.device();
    let memory = Allocation::create(&device, Create { kind: Kind::Local, ..SYSTEM }).unwrap();
    assert!(memory.pages().is_none());
    assert_eq!(memory.write(0, &[1]), Err(UmdError::NotSupported(Unsupported::CpuAccess)));
    assert_eq!(mock.calls(Thunk::Lock2), 0);
    drop((memory, device));
    mock.assert_clean();
}

#[test]
fn sizes_that_no_gpu_has_are_refused_before_any_call() {
    let mock = Mock::new();
    let device = mock.device();
    for size in [0, 1 << 48, u64::MAX] {
        let error = Allocation::create(&device, Create { size, ..SYSTEM }).map(|_| ());
        assert_eq!(error, Err(UmdError::InvalidArgument("size")));
    }
    assert_eq!(mock.calls(Thunk::CreateAllocation2), 0);
}

#[test]
fn a_refusal_on_the_way_leaves_nothing_behind() {
    let steps = [
        Thunk::CreateAllocation2,
        Thunk::MapGpuVirtualAddress,
        Thunk::Lock2,
        Thunk::MakeResident,
        Thunk::CreatePagingQueue,
    ];
    for thunk in steps {
        let mock = Mock::new();
        let adapter = mock.adapter();
        // A refusal for want of budget is answered by a second call.
        let times = if thunk == Thunk::MakeResident { 2 } else { 1 };
        mock.world().refuse.extend([(thunk, STATUS_NO_MEMORY); 2].iter().take(times));
        let result = Device::create(&adapter).and_then(|device| Allocation::create(&device, SYSTEM).map(|_| ()));
        assert_eq!(result, Err(UmdError::Thunk { thunk, status: STATUS_NO_MEMORY }));
        drop(adapter);
        mock.assert_clean();
    }
}

#[test]
fn over_the_budget_is_asked_for_again() {
    let mock = Mock::new();
    let device = mock.device();
    mock.world().refuse.push((Thunk::MakeResident, STATUS_NO_MEMORY));
    let memory = Allocation::create(&device, SYSTEM).unwrap();
    assert_eq!(mock.calls(Thunk::MakeResident), 2);
    drop((memory, device));
    mock.assert_clean();
}

/// Half is done, and waited for; the other half is asked for beyond the budget, and waited for.
#[test]
fn what_half_of_a_list_had_no_budget_for_is_asked_for_again_and_nothing_else() {
    let mock = Mock::new();
    let device = mock.device();
    let memory: Vec<_> = (0..4).map(|_| Allocation::create(&device, SYSTEM).unwrap()).collect();
    let handles: Vec<_> = memory.iter().map(Allocation::handle).collect();
    {
        let mut world = mock.world();
        world.memory.values_mut().for_each(|memory| memory.resident = false);
        (world.over_budget, world.paging_pending) = (true, true);
        world.residency.clear();
    }
    let waits = mock.calls(Thunk::WaitForSynchronizationObjectFromCpu);
    device.paging().make_resident(&handles).unwrap();
    assert_eq!(mock.world().residency, [4, 2]);
    assert_eq!(mock.calls(Thunk::WaitForSynchronizationObjectFromCpu) - waits, 2);
    assert!(mock.world().memory.values().all(|memory| memory.resident));
    drop((memory, device));
    mock.assert_clean();
}

/// A system may let only the process that made an allocation lock it. Opening succeeds, and the GPU has the
/// allocation.
#[test]
fn an_opened_allocation_is_locked_when_the_cpu_first_uses_it_and_refusal_is_an_answer() {
    let mock = Mock::new();
    let (device, other) = (mock.device(), mock.device());
    let memory = Allocation::create(&device, Create { shared: true, ..SYSTEM }).unwrap();
    let handle = memory.share().unwrap();
    let locks = mock.calls(Thunk::Lock2);
    let opened = Allocation::open(&other, handle).unwrap();
    assert_eq!(mock.calls(Thunk::Lock2), locks);
    mock.world().refuse.push((Thunk::Lock2, STATUS_INVALID_PARAMETER));
    assert_eq!(opened.write(0, &[1]), Err(UmdError::NotSupported(Unsupported::CpuAccess)));
    assert!(opened.gpu_va().0 != 0);
    // The lock is asked for again, and this time granted.
    assert_eq!(opened.write(0, &[1]), Ok(()));
    assert_eq!(opened.write(1, &[2]), Ok(()));
    assert_eq!(mock.calls(Thunk::Lock2), locks + 2);
    other.os().thunks().close_handle(handle);
    drop((memory, opened, device, other));
    mock.assert_clean();
}

#[test]
fn pending_paging_is_waited_for() {
    let mock = Mock::new();
    let device = mock.device();
    mock.world().paging_pending = true;
    let memory = Allocation::create(&device, SYSTEM).unwrap();
    assert_eq!(mock.calls(Thunk::WaitForSynchronizationObjectFromCpu), 2);
    // The GPU may touch it now.
    assert!(mock.world().translate(memory.gpu_va(), 8).is_some());
    drop((memory, device));
    mock.assert_clean();
}

#[test]
fn shared_memory_opens_elsewhere_with_its_size_and_bytes() {
    let mock = Mock::new();
    let device = mock.device();
    let memory = Allocation::create(&device, Create { shared: true, ..SYSTEM }).unwrap();
    memory.write(100, b"hello").unwrap();
    let handle = memory.share().unwrap();
    let other = Device::create(&mock.adapter()).unwrap();
    let opened = Allocation::open(&other, handle).unwrap();
    assert_eq!((opened.size(), opened.kind()), (memory.size(), Kind::System));
    assert_ne!(opened.gpu_va(), memory.gpu_va());
    let mut got = [0; 5];
    opened.read(100, &mut got).unwrap();
    assert_eq!(&got, b"hello");
    assert!(opened.share().is_ok_and(|handle| {
        mock.close_handle(handle);
        true
    }));
    mock.close_handle(handle);
    drop((opened, other, memory, device));
    mock.assert_clean();
}

#[test]
fn what_is_not_shared_or_does_not_exist_cannot_be_opened() {
    let mock = Mock::new();
    let device = mock.device();
    let memory = Allocation::create(&device, SYSTEM).unwrap();
    assert_eq!(memory.share(), Err(UmdError::NotSupported(Unsupported::Sharing)));
    let thunk = Thunk::QueryResourceInfoFromNtHandle;
    let error = Allocation::open(&device, NtHandle(0x1234)).map(|_| ());
    assert_eq!(error, Err(UmdError::Thunk { thunk, status: STATUS_INVALID_HANDLE }));
}

#[test]
fn children_keep_their_device_and_adapter_alive() {
    let mock = Mock::new();
    let device = mock.device();
    let memory = Allocation::create(&device, SYSTEM).unwrap();
    drop(device);
    assert_eq!(mock.calls(Thunk::DestroyDevice) + mock.calls(Thunk::CloseAdapter), 0);
    memory.write(0, &[1]).unwrap();
    drop(memory);
    let calls = mock.world().calls.clone();
    let order = [
        Thunk::Unlock2,
        Thunk::DestroyAllocation2,
        Thunk::DestroyPagingQueue,
        Thunk::DestroyDevice,
        Thunk::CloseAdapter,
    ];
    assert_eq!(calls[calls.len() - 5..], order);
    mock.assert_clean();
}
