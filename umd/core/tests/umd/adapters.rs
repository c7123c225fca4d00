//! Opening an adapter: identification, agreement, submission mode.

use crate::mock::{Adapter, Mock};
use gpu_wire::NodeOrdinal;
use gpu_wire::private::Rung;
use umd_core::adapter::{Adapter as UmdAdapter, Fallback, Mode, Select};
use umd_core::error::UmdError;
use umd_core::thunks::Thunk;
use wddm_abi::LUID;
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_NO_MEMORY};

fn open(mock: &Mock, select: Select) -> Result<std::sync::Arc<UmdAdapter<Mock>>, UmdError> {
    UmdAdapter::open(mock.clone(), select, Mode::UserMode, 0)
}

#[test]
fn the_first_of_ours_is_found_among_others_and_all_handles_are_closed() {
    let mock = Mock::with(Adapter::foreign(1));
    mock.world().adapters.push(Adapter { luid: 2, ..Adapter::ours(Rung::UserModeSubmission) });
    mock.world().adapters.push(Adapter { luid: 3, ..Adapter::ours(Rung::Packet) });
    let adapter = open(&mock, Select::First).unwrap();
    assert_eq!((adapter.luid().LowPart, adapter.rung()), (2, Rung::UserModeSubmission));
    assert_eq!(mock.world().live().len(), 1);
    drop(adapter);
    mock.assert_clean();
}

#[test]
fn an_adapter_is_opened_by_its_identifier() {
    let mock = Mock::with(Adapter::ours(Rung::UserModeSubmission));
    mock.world().adapters.push(Adapter { luid: 9, ..Adapter::ours(Rung::Packet) });
    let luid = |low| Select::Luid(LUID { LowPart: low, HighPart: 0 });
    assert_eq!(open(&mock, luid(9)).unwrap().rung(), Rung::Packet);
    let thunk = Thunk::OpenAdapterFromLuid;
    let unknown = Err(UmdError::Thunk { thunk, status: STATUS_INVALID_PARAMETER });
    assert_eq!(open(&mock, luid(8)).map(|_| ()), unknown);
    mock.world().adapters.push(Adapter::foreign(10));
    assert_eq!(open(&mock, luid(10)).map(|_| ()), Err(UmdError::NoAdapter));
    mock.assert_clean();
}

#[test]
fn no_adapter_of_ours_is_an_error() {
    let mock = Mock::with(Adapter::foreign(1));
    assert_eq!(open(&mock, Select::First).map(|_| ()), Err(UmdError::NoAdapter));
    mock.world().refuse.extend([Thunk::EnumAdapters3, Thunk::EnumAdapters2].map(|thunk| (thunk, STATUS_NO_MEMORY)));
    let refused = UmdError::Thunk { thunk: Thunk::EnumAdapters2, status: STATUS_NO_MEMORY };
    assert_eq!(open(&mock, Select::First).map(|_| ()), Err(refused));
    mock.assert_clean();
}

#[test]
fn compute_only_adapters_are_asked_for_and_the_older_call_is_a_fallback() {
    let mock = Mock::new();
    drop(open(&mock, Select::First).unwrap());
    assert_eq!((mock.calls(Thunk::EnumAdapters3), mock.calls(Thunk::EnumAdapters2)), (2, 0));
    mock.world().refuse.push((Thunk::EnumAdapters3, STATUS_INVALID_PARAMETER));
    drop(open(&mock, Select::First).unwrap());
    assert_eq!((mock.calls(Thunk::EnumAdapters3), mock.calls(Thunk::EnumAdapters2)), (3, 2));
    mock.assert_clean();
}

#[test]
fn another_interface_version_is_refused_with_both_named() {
    let mut adapter = Adapter::ours(Rung::UserModeSubmission);
    adapter.info.as_mut().unwrap().interface_version = 9;
    let mock = Mock::with(adapter);
    let error = open(&mock, Select::First).map(|_| ()).unwrap_err();
    assert_eq!(error, UmdError::InterfaceVersion { kernel: 9, user: gpu_wire::INTERFACE_VERSION });
    let text = error.to_string();
    assert!(text.contains("version 9") && text.contains(&format!("has {}", gpu_wire::INTERFACE_VERSION)), "{text}");
    mock.assert_clean();
}

#[test]
fn an_unknown_rung_is_refused() {
    let mut adapter = Adapter::ours(Rung::UserModeSubmission);
    adapter.info.as_mut().unwrap().rung = 7;
    let mock = Mock::with(adapter);
    let error = open(&mock, Select::First).map(|_| ());
    assert_eq!(error, Err(UmdError::BadReply { thunk: Thunk::QueryAdapterInfo }));
    mock.assert_clean();
}

#[test]
fn each_rung_gives_its_mode_and_says_why() {
    let cases = [
        (Rung::Packet, Mode::Packet, Fallback::Rung(Rung::Packet), false),
        (Rung::HardwareQueues, Mode::KernelMode, Fallback::Rung(Rung::HardwareQueues), false),
        (Rung::NativeFences, Mode::KernelMode, Fallback::Rung(Rung::NativeFences), true),
        (Rung::UserModeSubmission, Mode::UserMode, Fallback::None, true),
    ];
    for (rung, mode, fallback, native) in cases {
        let adapter = open(&Mock::with(Adapter::ours(rung)), Select::First).unwrap();
        assert_eq!((adapter.mode(), adapter.fallback(), adapter.has_native_fences()), (mode, fallback, native));
        assert_eq!(adapter.node(NodeOrdinal(0)).unwrap().mode, mode);
        assert_eq!(adapter.node(NodeOrdinal(2)).unwrap().mode, Mode::Packet);
        assert_eq!(adapter.node(NodeOrdinal(3)), Err(UmdError::InvalidArgument("node")));
    }
}

#[test]
fn a_system_with_newer_doorbells_gets_kernel_mode_submission() {
    let mock = Mock::new();
    mock.world().more.push("D3DKMTCreateHwQueueForUserModeSubmission".into());
    let adapter = open(&mock, Select::First).unwrap();
    assert_eq!((adapter.mode(), adapter.fallback()), (Mode::KernelMode, Fallback::NewerDoorbells));
    assert!(adapter.fallback().text().contains("D3DKMTCreateHwQueueForUserModeSubmission"));
    // Fences did not change.
    assert!(adapter.has_native_fences());
}

#[test]
fn a_system_without_the_calls_of_24h2_gets_what_it_has() {
    let mock = Mock::new();
    mock.world().missing = vec!["D3DKMTCreateDoorbell".into()];
    let adapter = open(&mock, Select::First).unwrap();
    assert_eq!((adapter.mode(), adapter.fallback()), (Mode::KernelMode, Fallback::NoExport(Thunk::CreateDoorbell)));
    assert!(adapter.has_native_fences());
    mock.world().missing = vec!["D3DKMTCreateNativeFence".into()];
    let adapter = open(&mock, Select::First).unwrap();
    assert_eq!(adapter.fallback(), Fallback::NoExport(Thunk::CreateNativeFence));
    assert!(!adapter.has_native_fences());
}

#[test]
fn the_application_may_ask_for_kernel_mode() {
    let mock = Mock::new();
    let adapter = UmdAdapter::open(mock.clone(), Select::First, Mode::KernelMode, 0).unwrap();
    assert_eq!((adapter.mode(), adapter.fallback()), (Mode::KernelMode, Fallback::Requested));
}

#[test]
fn what_the_system_turned_off_is_off_whatever_the_rung() {
    let ours = Adapter::ours(Rung::UserModeSubmission);
    let mock = Mock::with(Adapter { scheduling: false, ..ours.clone() });
    assert_eq!(open(&mock, Select::First).unwrap().fallback(), Fallback::SchedulingOff);
    let mock = Mock::with(Adapter { native_fences: false, ..ours });
    let adapter = open(&mock, Select::First).unwrap();
    assert_eq!((adapter.mode(), adapter.fallback()), (Mode::KernelMode, Fallback::NativeFencesOff));
}
