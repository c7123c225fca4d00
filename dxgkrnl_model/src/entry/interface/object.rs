//! Callbacks about objects of user mode: from a `D3DKMT_HANDLE` to what the driver keeps for it, and reserved ranges of
//! GPU virtual addresses.
//!
//! Handles are those of the current process, as they are inside `DxgkDdiOpenAllocation` and the other functions that
//! pass one to the driver.

use std::sync::Arc;

use nt_model::{In, Machine, Out, shims};
use wddm_abi::{
    DXGK_HANDLE_TYPE, DXGKARGCB_ENUMHANDLECHILDREN, DXGKARGCB_GETHANDLEDATA, DXGKARGCB_RELEASEHANDLEDATA,
    DXGKARGCB_RESERVEGPUVIRTUALADDRESSRANGE, NTSTATUS, Plain, ntstatus,
};

use crate::objects::open_allocation::OpenAllocation;
use crate::objects::process::ProcessAdapter;
use crate::port::callback::{callback, callback_of, record, routines, store_record};
use crate::port::handle::{self, raw};
use crate::port::miniport::Miniport;
use crate::port::rules::interface::CB_OBJECT;

routines! {
    GET_DATA = "DxgkCbGetHandleData"("pArgs") 0..=1;
    ACQUIRE_DATA = "DxgkCbAcquireHandleData"("pArgs", "pReleaseHandle") 0..=1;
    RELEASE_DATA = "DxgkCbReleaseHandleData"("Args") 0..=1;
    GET_PARENT = "DxgkCbGetHandleParent"("hAllocation") 0..=1;
    ENUM_CHILDREN = "DxgkCbEnumHandleChildren"("pArgs") 0..=0;
    RESERVE = "DxgkCbReserveGpuVirtualAddressRange"("hAdapter", "pArgs") 0..=0;
}

fn allocation(machine: &Machine, handle: u32) -> Option<Arc<OpenAllocation>> {
    crate::objects::process::current(machine)?.allocation(handle)
}

/// The driver's handle behind an allocation's or a resource's handle.
fn data(machine: &Machine, arguments: &DXGKARGCB_GETHANDLEDATA) -> usize {
    let found = match arguments.Type {
        DXGK_HANDLE_TYPE::DXGK_HANDLE_ALLOCATION => allocation(machine, arguments.hObject).map(|open| {
            if arguments.Flags.DeviceSpecific() { open.device_specific() } else { open.allocation().driver_handle() }
        }),
        DXGK_HANDLE_TYPE::DXGK_HANDLE_RESOURCE => crate::objects::process::current(machine)
            .and_then(|process| process.resource(arguments.hObject))
            .map(|resource| resource.driver_handle()),
        _ => None,
    };
    // Every handle of the model's user mode is gone when the driver is asked about it wrongly; the page answers NULL.
    found.unwrap_or(0)
}

/// Runs a callback that names no adapter.
fn anyones<R: Default>(
    machine: &Machine,
    routine: &'static nt_model::Routine,
    argument: u64,
    run: impl FnOnce() -> R,
) -> R {
    let first = crate::port::shared::shared_of(machine).and_then(|shared| shared.adapters().first().cloned());
    let Some(adapter) = first else { return R::default() };
    callback_of(&adapter, routine, [argument], |_| run()).unwrap_or_default()
}

shims! {
    /// Object callbacks.
    pub(crate) table CALLBACKS;

    fn DxgkCbGetHandleData(machine, args: In<[u8; size_of::<DXGKARGCB_GETHANDLEDATA>()]>) -> usize {
        let arguments: DXGKARGCB_GETHANDLEDATA = record(args);
        anyones(machine, &GET_DATA, args.address() as u64, || data(machine, &arguments))
    }

    fn DxgkCbAcquireHandleData(
        machine,
        args: In<[u8; size_of::<DXGKARGCB_GETHANDLEDATA>()]>,
        release: Out<usize>,
    ) -> usize {
        let arguments: DXGKARGCB_GETHANDLEDATA = record(args);
        let found = anyones(machine, &ACQUIRE_DATA, args.address() as u64, || data(machine, &arguments));
        release.set_opt(found);
        found
    }

    fn DxgkCbReleaseHandleData(machine, args: In<[u8; size_of::<DXGKARGCB_RELEASEHANDLEDATA>()]>) {
        // A record of 16 bytes by value is passed by address in this calling convention.
        let arguments: DXGKARGCB_RELEASEHANDLEDATA = record(args);
        anyones(machine, &RELEASE_DATA, args.address() as u64, || {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&arguments.as_bytes()[..8]);
            let known = u64::from_le_bytes(bytes) != 0;
            machine.rules.check(&CB_OBJECT, known, || "DxgkCbReleaseHandleData got NULL".to_owned());
        });
    }

    fn DxgkCbGetHandleParent(machine, handle: u32) -> u32 {
        anyones(machine, &GET_PARENT, handle.into(), || {
            allocation(machine, handle).map_or(0, |open| open.resource_handle())
        })
    }

    fn DxgkCbEnumHandleChildren(machine, args: In<[u8; size_of::<DXGKARGCB_ENUMHANDLECHILDREN>()]>) -> u32 {
        let arguments: DXGKARGCB_ENUMHANDLECHILDREN = record(args);
        anyones(machine, &ENUM_CHILDREN, args.address() as u64, || {
            let process = crate::objects::process::current(machine);
            process.map_or(0, |process| process.resource_child(arguments.hObject, arguments.Index as usize))
        })
    }

    fn DxgkCbReserveGpuVirtualAddressRange(
        _machine,
        adapter: usize,
        args: In<[u8; size_of::<DXGKARGCB_RESERVEGPUVIRTUALADDRESSRANGE>()]>,
    ) -> NTSTATUS {
        let arguments = [adapter as u64, args.address() as u64];
        let status = callback(raw(adapter as u64), &RESERVE, arguments, |adapter: &Arc<Miniport>| {
            let mut arguments: DXGKARGCB_RESERVEGPUVIRTUALADDRESSRANGE = record(args);
            let gpu_process = handle::object::<ProcessAdapter>(arguments.hDxgkProcess);
            adapter.rules().check(&CB_OBJECT, gpu_process.is_some(), || {
                format!("hDxgkProcess is {}", handle::describe(arguments.hDxgkProcess))
            });
            let Some(gpu_process) = gpu_process else { return ntstatus::STATUS_INVALID_PARAMETER };
            let reserved = gpu_process.address_space().reserve_for_driver(
                arguments.BaseAddress,
                arguments.SizeInBytes,
                arguments.Alignment.into(),
            );
            let Some(start) = reserved else { return ntstatus::STATUS_NO_MEMORY };
            arguments.StartVirtualAddress = start;
            store_record(args, &arguments);
            ntstatus::STATUS_SUCCESS
        });
        status.unwrap_or_else(|status| status)
    }
}
