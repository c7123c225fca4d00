//! Callbacks about features: the interface of 24H2, and the two callbacks that it replaced.
//!
//! Chosen: `IsFeatureEnabled` and `QueryFeatureInterface` take `DXGKRNL_INTERFACE.DeviceHandle`, as the samples of both
//! articles do; the page of the latter names the driver's own context block, which is accepted too. Global features
//! take NULL.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nt_model::{CodeAddress, In, ShimEntry, shims};
use wddm_abi::{
    DXGK_FEATURE_ID, DXGK_FEATURE_INTERFACE, DXGKARGCB_FEATURE_NATIVEFENCE_CAPS_1, DXGKARGCB_ISFEATUREENABLED,
    DXGKARGCB_ISFEATUREENABLED2, DXGKARGCB_QUERYFEATUREINTERFACE, DXGKARGCB_QUERYFEATURESUPPORT, HANDLE, NTSTATUS,
    Plain, ntstatus,
};

use crate::entry::interface::memory::DriverMemory;
use crate::port::callback::{callback, callback_of, record, routines, store_record};
use crate::port::features::{FeatureState, Features};
use crate::port::handle::{self, raw};
use crate::port::miniport::Miniport;
use crate::port::rules::start::FEATURE_INTERFACE;

routines! {
    IS_ENABLED = "DxgkCbIsFeatureEnabled"("pArgs") 0..=0;
    QUERY_SUPPORT = "DxgkCbQueryFeatureSupport"("pArgs") 0..=0;
    IS_ENABLED2 = "DXGKCB_ISFEATUREENABLED2"("hAdapter", "pArgs") 0..=0;
    QUERY_INTERFACE = "DXGKCB_QUERYFEATUREINTERFACE"("hAdapter", "pArgs") 0..=0;
    OS_CAPS = "DXGKCB_FEATURE_NATIVEFENCE_CAPS_1"("pArgs") 0..=0;
}

fn address(table: &[ShimEntry], name: &str) -> CodeAddress {
    let found = table.iter().find(|entry| entry.name == name).map(|entry| entry.address);
    found.unwrap_or(CodeAddress(core::ptr::null()))
}

/// The interface for `adapter`. Every query counts as a reference that the driver may drop.
pub(super) fn interface(adapter: &Miniport) -> DXGK_FEATURE_INTERFACE {
    let mut table = DXGK_FEATURE_INTERFACE::zeroed();
    // CAST: 48 bytes.
    table.Size = size_of::<DXGK_FEATURE_INTERFACE>() as u16;
    table.Version = 1;
    table.Context = adapter.device_handle();
    let slots: [(usize, &str); 4] = [
        (core::mem::offset_of!(DXGK_FEATURE_INTERFACE, InterfaceReference), "InterfaceReference"),
        (core::mem::offset_of!(DXGK_FEATURE_INTERFACE, InterfaceDereference), "InterfaceDereference"),
        (core::mem::offset_of!(DXGK_FEATURE_INTERFACE, IsFeatureEnabled), "IsFeatureEnabled2"),
        (core::mem::offset_of!(DXGK_FEATURE_INTERFACE, QueryFeatureInterface), "QueryFeatureInterface"),
    ];
    for (offset, name) in slots {
        let bytes = (address(INTERFACE, name).get() as u64).to_le_bytes();
        table.as_bytes_mut()[offset..offset + 8].copy_from_slice(&bytes);
    }
    table
}

/// The adapter behind what a driver passes for `hAdapter`.
fn adapter_of(machine: &nt_model::Machine, handle: HANDLE) -> Option<Arc<Miniport>> {
    handle::object::<Miniport>(handle).or_else(|| {
        let shared = crate::port::shared::shared_of(machine)?;
        shared.adapters().into_iter().find(|adapter| adapter.context() == handle && !handle.is_null())
    })
}

shims! {
    /// Functions of `DXGK_FEATURE_INTERFACE` and of feature interfaces.
    table INTERFACE;

    fn InterfaceReference(_machine, context: usize) {
        if let Some(adapter) = handle::object::<Miniport>(raw(context as u64)) {
            DriverMemory::of(&adapter).interface_references.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn InterfaceDereference(_machine, context: usize) {
        if let Some(adapter) = handle::object::<Miniport>(raw(context as u64)) {
            DriverMemory::of(&adapter).interface_references.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn IsFeatureEnabled2(machine, adapter: usize, args: In<[u8; size_of::<DXGKARGCB_ISFEATUREENABLED2>()]>) -> NTSTATUS {
        let handle = raw(adapter as u64);
        let run = |adapter: &Arc<Miniport>| {
            let mut arguments: DXGKARGCB_ISFEATUREENABLED2 = record(args);
            arguments.Result = Features::of(adapter).tell(adapter, arguments.FeatureId).result();
            store_record(args, &arguments);
            ntstatus::STATUS_SUCCESS
        };
        let numbers = [adapter as u64, args.address() as u64];
        let status = match adapter_of(machine, handle) {
            Some(adapter) => callback_of(&adapter, &IS_ENABLED2, numbers, run),
            // A global feature: no adapter, and none of them is on here.
            None if handle.is_null() => {
                let mut arguments: DXGKARGCB_ISFEATUREENABLED2 = record(args);
                let known = arguments.FeatureId == DXGK_FEATURE_ID::DXGK_FEATURE_GPUVAIOMMU;
                arguments.Result = FeatureState { known, ..Default::default() }.result();
                store_record(args, &arguments);
                Ok(ntstatus::STATUS_SUCCESS)
            }
            None => callback(handle, &IS_ENABLED2, numbers, run),
        };
        status.unwrap_or_else(|status| {
            // What stands in the record of a call that failed means nothing.
            let mut arguments: DXGKARGCB_ISFEATUREENABLED2 = record(args);
            arguments.Result = FeatureState { known: true, enabled: true, version: 1, ..Default::default() }.result();
            store_record(args, &arguments);
            status
        })
    }

    fn QueryFeatureInterface(
        machine,
        adapter: usize,
        args: In<[u8; size_of::<DXGKARGCB_QUERYFEATUREINTERFACE>()]>,
    ) -> NTSTATUS {
        let handle = raw(adapter as u64);
        let run = |adapter: &Arc<Miniport>| {
            let mut arguments: DXGKARGCB_QUERYFEATUREINTERFACE = record(args);
            let (status, size) = query(adapter, &arguments);
            arguments.InterfaceSize = size;
            store_record(args, &arguments);
            status
        };
        let numbers = [adapter as u64, args.address() as u64];
        let status = match adapter_of(machine, handle) {
            Some(adapter) => callback_of(&adapter, &QUERY_INTERFACE, numbers, run),
            None => callback(handle, &QUERY_INTERFACE, numbers, run),
        };
        status.unwrap_or_else(|status| status)
    }

    fn GetOSCaps(machine, args: In<[u8; size_of::<DXGKARGCB_FEATURE_NATIVEFENCE_CAPS_1>()]>) -> NTSTATUS {
        let _service = machine.service(&OS_CAPS, [args.address() as u64]);
        let mut caps: DXGKARGCB_FEATURE_NATIVEFENCE_CAPS_1 = record(args);
        let Some(shared) = crate::port::shared::shared_of(machine) else { return ntstatus::STATUS_UNSUCCESSFUL };
        let offered = shared.personality().native_fence_os_caps;
        let faults = &shared.personality().faults.callbacks;
        let failure = faults.iter().find(|fault| fault.callback == OS_CAPS.name);
        caps.set_SupportOptimizedDefaultFenceType(offered.optimized_default);
        caps.set_SupportIntraGpuFenceType(offered.intra_gpu);
        if failure.is_some() {
            caps.set_SupportIntraGpuFenceType(true);
        }
        store_record(args, &caps);
        failure.map_or(ntstatus::STATUS_SUCCESS, |fault| fault.status)
    }
}

/// Interface table of a feature: only native fences have one. A version that `FaultPlan::fence_version` invents begins
/// as version 1 does.
fn query(adapter: &Miniport, arguments: &DXGKARGCB_QUERYFEATUREINTERFACE) -> (NTSTATUS, u16) {
    const SIZE: u16 = 8;
    let state = Features::of(adapter).query(adapter, arguments.FeatureId);
    if !state.known {
        return (ntstatus::STATUS_INVALID_PARAMETER, 0);
    }
    let told = Features::of(adapter).told(arguments.FeatureId);
    adapter.rules().check(&FEATURE_INTERFACE, told == Some(arguments.Version), || {
        let told = told.map_or_else(|| "not that it is on".to_owned(), |version| format!("version {version}"));
        format!("version {} of {:?} is asked for; the driver was told {told}", arguments.Version, arguments.FeatureId)
    });
    if !state.enabled || told != Some(arguments.Version) {
        return (ntstatus::STATUS_UNSUCCESSFUL, 0);
    }
    if arguments.FeatureId != DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE {
        return (ntstatus::STATUS_INVALID_PARAMETER, 0);
    }
    if arguments.InterfaceSize < SIZE {
        return (ntstatus::STATUS_BUFFER_TOO_SMALL, SIZE);
    }
    let mut bytes = vec![0; usize::from(arguments.InterfaceSize)];
    bytes[..8].copy_from_slice(&(address(INTERFACE, "GetOSCaps").get() as u64).to_le_bytes());
    if arguments.Interface.is_null() {
        return (ntstatus::STATUS_INVALID_PARAMETER, 0);
    }
    crate::port::raw::copy_to(arguments.Interface.expose_provenance(), &bytes);
    (ntstatus::STATUS_SUCCESS, SIZE)
}

shims! {
    /// Feature callbacks of `DXGKRNL_INTERFACE`.
    pub(crate) table CALLBACKS;

    fn DxgkCbIsFeatureEnabled(_machine, args: In<[u8; size_of::<DXGKARGCB_ISFEATUREENABLED>()]>) -> NTSTATUS {
        let mut arguments: DXGKARGCB_ISFEATUREENABLED = record(args);
        let status = callback(arguments.DeviceHandle, &IS_ENABLED, [args.address() as u64], |adapter| {
            arguments.Enabled = Features::of(adapter).legacy_enabled(adapter, arguments.FeatureId).into();
            store_record(args, &arguments);
            ntstatus::STATUS_SUCCESS
        });
        status.unwrap_or_else(|status| status)
    }

    fn DxgkCbQueryFeatureSupport(_machine, args: In<[u8; size_of::<DXGKARGCB_QUERYFEATURESUPPORT>()]>) -> NTSTATUS {
        let mut arguments: DXGKARGCB_QUERYFEATURESUPPORT = record(args);
        let status = callback(arguments.DeviceHandle, &QUERY_SUPPORT, [args.address() as u64], |adapter| {
            let enabled =
                Features::of(adapter).legacy_support(adapter, arguments.FeatureId, arguments.DriverSupportState);
            arguments.Enabled = enabled.into();
            store_record(args, &arguments);
            ntstatus::STATUS_SUCCESS
        });
        status.unwrap_or_else(|status| status)
    }
}
