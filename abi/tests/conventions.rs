//! How the crate is used, one convention per test.

use core::ptr;

use wddm_abi::ntstatus::STATUS_INVALID_PARAMETER;
use wddm_abi::ntstatus::STATUS_SUCCESS;
use wddm_abi::*;

#[test]
fn records_begin_as_zeros_and_name_only_what_differs() {
    let args = DXGKARG_CREATENATIVEFENCE {
        Type: D3DDDI_NATIVEFENCE_TYPE::D3DDDI_NATIVEFENCE_TYPE_INTRA_GPU,
        CurrentValueSystemProcessGpuVa: 0x1000,
        ..DXGKARG_CREATENATIVEFENCE::zeroed()
    };
    assert!(args.hGlobalNativeFence.is_null());
    assert_eq!(args.CurrentValueSystemProcessGpuVa, 0x1000);
}

#[test]
fn flag_words_have_a_getter_a_setter_and_a_builder_per_bit_field() {
    const CAPS: DXGK_VIDSCHCAPS = DXGK_VIDSCHCAPS::zeroed().with_NativeGpuFence(true).with_HwQueuePacketCap(5);
    assert!(CAPS.NativeGpuFence());
    assert_eq!(CAPS.HwQueuePacketCap(), 5);
    assert_eq!(CAPS.Value, 1 << 11 | 5 << 7);

    let mut caps = CAPS;
    caps.set_HwQueuePacketCap(0xfff);
    assert_eq!(caps.HwQueuePacketCap(), 15, "what does not fit is dropped, as in C");
    assert!(caps.NativeGpuFence(), "neighbours stay");
    assert_eq!(format!("{caps:?}"), "DXGK_VIDSCHCAPS(0xf80: HwQueuePacketCap=15, NativeGpuFence)");
}

#[test]
fn members_of_anonymous_unions_have_accessors_on_the_record() {
    let mut data = DXGKARGCB_NOTIFY_INTERRUPT_DATA::zeroed();
    data.InterruptType = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_DMA_COMPLETED;
    data.DmaCompleted_mut().SubmissionFenceId = 7;
    data.DmaCompleted_mut().NodeOrdinal = 1;
    assert_eq!(data.DmaCompleted().SubmissionFenceId, 7);
    // The same bytes by another name.
    assert_eq!(data.DmaPreempted().PreemptionFenceId, 7);

    let mut fault = DXGKARGCB_NOTIFY_INTERRUPT_DATA_HwQueuePageFaulted::zeroed();
    fault.set_FaultedHwQueue(ptr::without_provenance_mut(0x40));
    fault.FaultErrorCode.set_IsDeviceSpecificCode(true);
    data.set_HwQueuePageFaulted(fault);
    assert_eq!(data.HwQueuePageFaulted().FaultedProcessHandle().addr(), 0x40);
}

#[test]
fn an_integer_with_bit_fields_over_it_is_a_member_of_the_record() {
    let mut pte = DXGK_PTE::zeroed();
    pte.set_Valid(true);
    pte.set_Segment(3);
    pte.set_PageAddress(0x1234);
    assert_eq!(pte.Flags, 1 | 3 << 5);
    assert_eq!(pte.PageTableAddress(), 0x1234);
}

#[test]
fn inline_unions_with_names_are_types_of_their_own() {
    let mut info = D3DDDI_ALLOCATIONINFO::zeroed();
    info.Flags.set_Primary(true);
    assert_eq!(info.Flags, D3DDDI_ALLOCATIONINFO_Flags::zeroed().with_Primary(true));
}

#[test]
fn values_nobody_named_are_representable() {
    let known = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_DMA_COMPLETED;
    let unknown = DXGK_INTERRUPT_TYPE(4711);
    assert_eq!(format!("{known:?} {unknown:?}"), "DXGK_INTERRUPT_DMA_COMPLETED DXGK_INTERRUPT_TYPE(4711)");
    assert_eq!(unknown.name(), None);
    let word = match known {
        DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_DMA_COMPLETED => "done",
        _ => "other",
    };
    assert_eq!(word, "done");
}

win_extern! {
    /// Answers with a status that depends on a generic parameter.
    fn stop_device[const WORKS: bool](_context: HANDLE) -> NTSTATUS {
        if WORKS { STATUS_SUCCESS } else { STATUS_INVALID_PARAMETER }
    }
}

#[test]
#[expect(unsafe_code, reason = "functions in tables are unsafe to call")]
fn slots_hold_optional_functions_and_are_called_through_the_table() {
    let mut table = DRIVER_INITIALIZATION_DATA::zeroed();
    assert!(table.DxgkDdiStopDevice.is_none());
    table.Version = DXGKDDI_INTERFACE_VERSION_WDDM3_2;
    table.DxgkDdiStopDevice = Some(stop_device::<true>);
    let stop: DXGKDDI_STOP_DEVICE = table.DxgkDdiStopDevice.expect("just stored");
    // SAFETY: it is `stop_device`, which does not look at its argument.
    let status = unsafe { stop(ptr::null_mut()) };
    assert_eq!(status, STATUS_SUCCESS);

    table.DxgkDdiStopDevice = Some(stop_device::<false>);
    let stop = table.DxgkDdiStopDevice.expect("just stored");
    // SAFETY: as above.
    assert!(!unsafe { stop(ptr::null_mut()) }.is_success());
}

#[test]
fn statuses_know_their_name_and_severity() {
    assert_eq!(format!("{STATUS_INVALID_PARAMETER:?}"), "STATUS_INVALID_PARAMETER");
    assert_eq!(format!("{STATUS_INVALID_PARAMETER:#x}"), "0xc000000d");
    assert_eq!(format!("{:?}", NTSTATUS(0x1234_5678)), "NTSTATUS(0x12345678)");
    assert!(STATUS_SUCCESS.is_success() && ntstatus::STATUS_PENDING.is_success());
    assert!(STATUS_INVALID_PARAMETER.is_error());
    let warning = ntstatus::STATUS_BUFFER_OVERFLOW;
    assert!(!warning.is_success() && !warning.is_error());
}

#[test]
fn every_value_is_its_bytes() {
    let mut luid = LUID { LowPart: 0x0102_0304, HighPart: 5 };
    assert_eq!(luid.as_bytes(), [4, 3, 2, 1, 5, 0, 0, 0]);
    luid.as_bytes_mut()[4] = 6;
    assert_eq!(luid.HighPart, 6);
    assert_eq!(LUID::from_bytes(&[4, 3, 2, 1, 6, 0, 0, 0, 99]), Some(luid));
    assert_eq!(LUID::from_bytes(&[0; 7]), None);
}

#[test]
fn packed_records_are_as_small_as_in_c() {
    assert_eq!((size_of::<DXGK_NODEMETADATA>(), align_of::<DXGK_NODEMETADATA>()), (74, 1));
    let mut metadata = DXGK_NODEMETADATA::zeroed();
    metadata.EngineType = DXGK_ENGINE_TYPE::DXGK_ENGINE_TYPE_3D;
    metadata.Flags.set_UserModeSubmission(true);
    // Members of a packed record are read by value: no reference to them can exist.
    let engine = metadata.EngineType;
    assert_eq!(engine, DXGK_ENGINE_TYPE::DXGK_ENGINE_TYPE_3D);
    assert!(metadata.Flags.UserModeSubmission());
}

#[test]
fn later_kits_and_older_forms_keep_to_themselves() {
    assert_eq!(DXGKDDI_INTERFACE_VERSION_WDDM3_2, 0x11007);
    assert_eq!(kit_28000::DXGKDDI_INTERFACE_VERSION_WDDM3_2, 0x11008);
    assert_eq!(size_of::<DXGKARG_OPENNATIVEFENCE>(), 144);
    assert_eq!(size_of::<variants::wddm3_2_26100_2024_10::DXGKARG_OPENNATIVEFENCE>(), 80);
    assert_eq!(size_of::<variants::wddm3_1_22621::DRIVER_INITIALIZATION_DATA>(), 1376);
    // 22621's DestroyNativeFence took the handle, 24H2's takes an argument record.
    const _: Option<winfn!(fn(HANDLE) -> NTSTATUS)> = variants::wddm3_1_22621::PDXGKDDI_DESTROYNATIVEFENCE::None;
    const _: Option<winfn!(fn(*mut DXGKARG_DESTROYNATIVEFENCE) -> NTSTATUS)> = PDXGKDDI_DESTROYNATIVEFENCE::None;
}

#[test]
fn slots_can_be_looked_up_by_name() {
    let slot = slots::DRIVER_INITIALIZATION_DATA_SLOTS.iter().find(|slot| slot.member == "DxgkDdiCreateNativeFence");
    let slot = slot.expect("a WDDM 3.1 slot");
    assert_eq!(slot.offset, core::mem::offset_of!(DRIVER_INITIALIZATION_DATA, DxgkDdiCreateNativeFence));
    assert_eq!(slot.guard, Some(("DXGKDDI_INTERFACE_VERSION_WDDM3_1", DXGKDDI_INTERFACE_VERSION_WDDM3_1)));
}
