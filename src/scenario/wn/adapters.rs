//! Enumeration, names, types of queries and escapes.

use crate::scenario::db::raw;
use crate::scenario::{Played, Setup, Stage, same};
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use wddm_abi::{
    D3DKMT_ENUMADAPTERS2, D3DKMT_ENUMADAPTERS3, D3DKMT_ESCAPE, D3DKMT_ESCAPETYPE, D3DKMT_OPENADAPTERFROMDEVICENAME,
    D3DKMT_QUERYADAPTERINFO, KMTQUERYADAPTERINFOTYPE,
};

pub(super) fn room(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let handles = raw.process.open_handles();
        let mut record = D3DKMT_ENUMADAPTERS2 { NumAdapters: 7, ..D3DKMT_ENUMADAPTERS2::zeroed() };
        same("EnumAdapters2", raw.call(raw.thunks.D3DKMTEnumAdapters2, &mut record), STATUS_SUCCESS)?;
        same("its room", record.NumAdapters, 34)?;
        let mut record = D3DKMT_ENUMADAPTERS3::zeroed();
        same("EnumAdapters3", raw.call(raw.thunks.D3DKMTEnumAdapters3, &mut record), STATUS_SUCCESS)?;
        same("its room", record.NumAdapters, 34)?;
        same("handles that it has opened", raw.process.open_handles(), handles)
    })
}

pub(super) fn types(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let mut updates = u32::MAX;
        let mut record = D3DKMT_QUERYADAPTERINFO::zeroed();
        record.hAdapter = raw.adapter;
        record.Type = KMTQUERYADAPTERINFOTYPE::KMTQAITYPE_CHECKDRIVERUPDATESTATUS;
        (record.pPrivateDriverData, record.PrivateDriverDataSize) = ((&raw mut updates).cast(), 4);
        same("the query", raw.call(raw.thunks.D3DKMTQueryAdapterInfo, &mut record), STATUS_SUCCESS)?;
        same("an update", updates, 0)?;
        // 0x80000000 and 0x80000001.
        for kind in [i32::MIN, i32::MIN + 1] {
            let mut record = D3DKMT_ESCAPE::zeroed();
            (record.hAdapter, record.Type) = (raw.adapter, D3DKMT_ESCAPETYPE(kind));
            let status = raw.call(raw.thunks.D3DKMTEscape, &mut record);
            same("an escape of a type that there is not", status, STATUS_INVALID_PARAMETER)?;
        }
        Ok(())
    })
}

pub(super) fn by_name(stage: &Stage) -> Played {
    stage.play(Setup::default().adapters(2), |scene| {
        let raw = raw(scene)?;
        let open = |name: &str| {
            let units: Vec<u16> = name.encode_utf16().chain([0]).collect();
            let mut record = D3DKMT_OPENADAPTERFROMDEVICENAME::zeroed();
            record.pDeviceName = units.as_ptr();
            let status = raw.call(raw.thunks.D3DKMTOpenAdapterFromDeviceName, &mut record);
            (status, record.hAdapter != 0, (record.AdapterLuid.LowPart, record.AdapterLuid.HighPart))
        };
        for adapter in &scene.adapters {
            let name = adapter.device_name();
            let luid = (adapter.luid().LowPart, adapter.luid().HighPart);
            for name in [name.clone(), name.to_uppercase()] {
                same("an adapter by its name", open(&name), (STATUS_SUCCESS, true, luid))?;
            }
            // DISPLAY_ADAPTER is another interface of the device.
            let other = name.replace("1ca05180-a699-450a-9a0c-de4fbe3ddd89", "5b45201d-f2f2-4f3b-85bb-30ff1f953599");
            same("by another interface", open(&other).0, STATUS_INVALID_PARAMETER)?;
            same("by a part of its name", open(&name[..name.len() - 1]).0, STATUS_INVALID_PARAMETER)?;
        }
        let mut record = D3DKMT_OPENADAPTERFROMDEVICENAME::zeroed();
        let status = raw.call(raw.thunks.D3DKMTOpenAdapterFromDeviceName, &mut record);
        same("without a name", status, STATUS_INVALID_PARAMETER)
    })
}
