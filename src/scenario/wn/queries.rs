//! What loaders ask of an adapter: the registry, descriptions, versions, capabilities, sizes.

use crate::scenario::db::raw;
use crate::scenario::{Played, Raw, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::adapter::Adapter;
use nt_model::registry::{REG_DWORD, REG_QWORD, REG_SZ, RegistryValue};
use std::sync::Arc;
use wddm_abi::ntstatus::{
    STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_PARAMETER, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS,
};
use wddm_abi::{
    D3DDDI_QUERYREGISTRY_INFO, D3DDDI_QUERYREGISTRY_STATUS as Status, D3DDDI_QUERYREGISTRY_TYPE as Kind,
    D3DKMT_DRIVER_DESCRIPTION, D3DKMT_PNP_KEY_TYPE, D3DKMT_QUERY_PHYSICAL_ADAPTER_PNP_KEY, D3DKMT_QUERYADAPTERINFO,
    D3DKMT_SEGMENTGROUPSIZEINFO, D3DKMT_SEGMENTSIZEINFO, D3DKMT_WDDM_1_3_CAPS, D3DKMT_WDDM_2_0_CAPS,
    D3DKMT_WDDM_3_0_CAPS, GUID, KMTQUERYADAPTERINFOTYPE as Type, NTSTATUS, Plain,
};

/// Bytes of a query's record in front of the value.
const FRONT: usize = core::mem::offset_of!(D3DDDI_QUERYREGISTRY_INFO, u0);

/// 64-bit numbers behind a record's room.
const REST: usize = 64;

/// A query's record, with room for a value behind it.
struct Asked {
    record: D3DDDI_QUERYREGISTRY_INFO,
    room: usize,
}

/// Asks for a value: what the call returned, what the record says then, and the value's bytes.
fn registry(raw: &Raw, asked: Asked) -> (NTSTATUS, D3DDDI_QUERYREGISTRY_INFO, Vec<u8>) {
    let Asked { mut record, room } = asked;
    // As an array of 64-bit numbers, since the record is aligned so.
    // What is written behind the room that is told lands in the rest.
    let mut memory = vec![0_u64; (FRONT + room).div_ceil(8) + REST];
    let mut bytes: Vec<u8> = record.as_bytes().to_vec();
    bytes.resize(memory.len() * 8, 0xEE);
    for (to, from) in memory.iter_mut().zip(bytes.chunks_exact(8)) {
        *to = u64::from_le_bytes(from.try_into().unwrap_or_default());
    }
    let mut query = D3DKMT_QUERYADAPTERINFO::zeroed();
    (query.hAdapter, query.Type) = (raw.adapter, Type::KMTQAITYPE_QUERYREGISTRY);
    query.pPrivateDriverData = memory.as_mut_ptr().cast();
    // CAST: a few hundred bytes.
    query.PrivateDriverDataSize = (FRONT + room) as u32;
    let status = raw.call(raw.thunks.D3DKMTQueryAdapterInfo, &mut query);
    let bytes: Vec<u8> = memory.iter().flat_map(|number| number.to_le_bytes()).collect();
    let length = size_of::<D3DDDI_QUERYREGISTRY_INFO>();
    record.as_bytes_mut().copy_from_slice(&bytes[..length]);
    (status, record, bytes[FRONT..].to_vec())
}

fn asked(kind: Kind, name: &str, value_type: u32, room: usize) -> Asked {
    let mut record = D3DDDI_QUERYREGISTRY_INFO::zeroed();
    (record.QueryType, record.ValueType, record.OutputValueSize) = (kind, value_type, 0x5A5A);
    for (to, unit) in record.ValueName.iter_mut().zip(name.encode_utf16()) {
        *to = unit;
    }
    Asked { record, room }
}

pub(super) fn values(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let text = RegistryValue::string("an ICD's path");
        let registry_of = scene.adapter().kernel().registry();
        let service = format!(r"{}\Parameters", kmd_native::SERVICE_KEY);
        registry_of.set(&service, "Wide", RegistryValue::qword(7 << 40));
        scene.adapter().set_registry_value("VulkanDriverName", text.clone());
        // (key, name, type, value)
        let there = [
            (Kind::D3DDDI_QUERYREGISTRY_ADAPTERKEY, "VulkanDriverName", REG_SZ, text.data.clone()),
            (Kind::D3DDDI_QUERYREGISTRY_SERVICEKEY, r"Parameters\Wide", REG_QWORD, (7_u64 << 40).to_le_bytes().into()),
        ];
        for (kind, name, value_type, value) in there {
            let (status, told, bytes) = registry(&raw, asked(kind, name, value_type, value.len().max(8)));
            same(name, (status, told.Status), (STATUS_SUCCESS, Status::D3DDDI_QUERYREGISTRY_STATUS_SUCCESS))?;
            same(name, told.OutputValueSize as usize, value.len())?;
            ensure!(bytes.starts_with(&value), "{name}: {bytes:x?}, not {value:x?}");
        }
        // Too little room is told by a success, with the size that is needed.
        let short = asked(Kind::D3DDDI_QUERYREGISTRY_ADAPTERKEY, "VulkanDriverName", REG_SZ, 8);
        let (status, told, bytes) = registry(&raw, short);
        let overflow = (STATUS_SUCCESS, Status::D3DDDI_QUERYREGISTRY_STATUS_BUFFER_OVERFLOW);
        same("too little room", (status, told.Status), overflow)?;
        same("the size that it needs", told.OutputValueSize as usize, text.data.len())?;
        ensure!(bytes[..8] == [0; 8], "the value was written where it has no room: {:x?}", &bytes[..8]);
        refused(&raw)?;
        paths(&raw)
    })
}

/// What fails, and leaves all but the status as it was.
fn refused(raw: &Raw) -> Played {
    let adapter = Kind::D3DDDI_QUERYREGISTRY_ADAPTERKEY;
    let mut other_adapter = asked(adapter, "VulkanDriverName", REG_SZ, 64);
    other_adapter.record.PhysicalAdapterIndex = 1;
    let mut reserved = asked(adapter, "VulkanDriverName", REG_SZ, 64);
    reserved.record.QueryFlags.set_MutableValue(true);
    let mut translated = asked(adapter, "Number", REG_DWORD, 64);
    translated.record.QueryFlags.set_TranslatePath(true);
    let endless = Asked { record: { asked(adapter, &"x".repeat(260), REG_SZ, 64).record }, room: 64 };
    let all = [
        ("a value that there is not", asked(adapter, "Nothing", REG_SZ, 64), STATUS_OBJECT_NAME_NOT_FOUND),
        ("of another type", asked(adapter, "VulkanDriverName", REG_DWORD, 64), STATUS_OBJECT_NAME_NOT_FOUND),
        ("of no type", asked(adapter, "VulkanDriverName", 0, 64), STATUS_INVALID_PARAMETER),
        (
            "a path with a type",
            asked(Kind::D3DDDI_QUERYREGISTRY_DRIVERSTOREPATH, "", REG_SZ, 512),
            STATUS_INVALID_PARAMETER,
        ),
        ("a kind that there is not", asked(Kind::D3DDDI_QUERYREGISTRY_MAX, "", 0, 512), STATUS_INVALID_PARAMETER),
        ("another adapter of the link", other_adapter, STATUS_INVALID_PARAMETER),
        ("a flag that is reserved", reserved, STATUS_INVALID_PARAMETER),
        ("a number as a path", translated, STATUS_INVALID_PARAMETER),
        ("a name without an end", endless, STATUS_INVALID_PARAMETER),
    ];
    for (what, asked, want) in all {
        let (status, told, _) = registry(raw, asked);
        same(what, (status, told.Status), (want, Status::D3DDDI_QUERYREGISTRY_STATUS_FAIL))?;
        same(what, told.OutputValueSize, 0x5A5A)?;
    }
    // Shorter than the record: nothing of it is written, not even the status.
    let (status, told, _) = registry(raw, asked(adapter, "VulkanDriverName", REG_SZ, 0));
    let untouched = (STATUS_INVALID_PARAMETER, Status::D3DDDI_QUERYREGISTRY_STATUS_SUCCESS, 0x5A5A);
    same("a record that is too short", (status, told.Status, told.OutputValueSize), untouched)
}

/// Where the driver's package and file are.
fn paths(raw: &Raw) -> Played {
    let path = |kind| -> Result<String> {
        let (status, told, bytes) = registry(raw, asked(kind, "", 0, 520));
        same("a path", (status, told.Status), (STATUS_SUCCESS, Status::D3DDDI_QUERYREGISTRY_STATUS_SUCCESS))?;
        let units = bytes[..told.OutputValueSize as usize].chunks_exact(2);
        let units: Vec<u16> = units.map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        let (end, text) = units.split_last().context("a path")?;
        same("its end", *end, 0)?;
        Ok(String::from_utf16(text)?)
    };
    let store = path(Kind::D3DDDI_QUERYREGISTRY_DRIVERSTOREPATH)?;
    let image = path(Kind::D3DDDI_QUERYREGISTRY_DRIVERIMAGEPATH)?;
    ensure!(store.to_lowercase().contains(r"\driverstore\filerepository\fencepost.inf_amd64_"), "{store}");
    same("the file is in the package", image, format!(r"{store}\fencepost.sys"))
}

/// Asks a query whose record is `T`.
fn query<T: Plain>(raw: &Raw, kind: Type, record: &mut T) -> NTSTATUS {
    let mut query = D3DKMT_QUERYADAPTERINFO::zeroed();
    (query.hAdapter, query.Type) = (raw.adapter, kind);
    query.pPrivateDriverData = core::ptr::from_mut(record).cast();
    // CAST: a few kilobytes.
    query.PrivateDriverDataSize = size_of::<T>() as u32;
    raw.call(raw.thunks.D3DKMTQueryAdapterInfo, &mut query)
}

/// Asks a query that must be answered.
fn told<T: Plain>(raw: &Raw, kind: Type, mut record: T) -> Result<T> {
    same("a query", query(raw, kind, &mut record), STATUS_SUCCESS).with_context(|| format!("{kind:?}"))?;
    Ok(record)
}

pub(super) fn described(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let (raw, adapter) = (raw(scene)?, scene.adapter());
        adapter.set_registry_value("DriverDesc", RegistryValue::string("A GPU of threads"));
        for kind in [Type::KMTQAITYPE_DRIVER_DESCRIPTION, Type::KMTQAITYPE_DRIVER_DESCRIPTION_RENDER] {
            let said = told(&raw, kind, D3DKMT_DRIVER_DESCRIPTION::zeroed())?.DriverDescription;
            let end = said.iter().position(|unit| *unit == 0).context("an end")?;
            same("its description", String::from_utf16(&said[..end])?, "A GPU of threads".to_owned())?;
        }
        let versions = [Type::KMTQAITYPE_KMD_DRIVER_VERSION, Type::KMTQAITYPE_UMD_DRIVER_VERSION];
        adapter.set_registry_value("DriverVersion", RegistryValue::string("32.0.26110.7"));
        for kind in versions {
            same("a version", told(&raw, kind, 0_u64)?, 32 << 48 | 26110 << 16 | 7)?;
        }
        adapter.set_registry_value("DriverVersion", RegistryValue::string("32.0.26110"));
        for kind in versions {
            same("no version", query(&raw, kind, &mut 0_u64), STATUS_OBJECT_NAME_NOT_FOUND)?;
        }
        for kind in [Type::KMTQAITYPE_ADAPTERGUID, Type::KMTQAITYPE_ADAPTERGUID_RENDER] {
            let said = told(&raw, kind, GUID::zeroed())?;
            ensure!(said == adapter.guid() && said != GUID::zeroed(), "{said:?} is not {:?}", adapter.guid());
            same("no room for a GUID", query(&raw, kind, &mut [0_u64; 1]), STATUS_INVALID_PARAMETER)?;
        }
        capabilities(&raw, adapter)?;
        sizes(&raw, adapter)?;
        keys(&raw, adapter)
    })
}

fn capabilities(raw: &Raw, adapter: &Adapter) -> Played {
    let caps = adapter.caps().context("caps")?;
    let (driver, memory) = (&caps.driver, caps.driver.MemoryManagementCaps);
    for kind in [Type::KMTQAITYPE_WDDM_1_3_CAPS, Type::KMTQAITYPE_WDDM_1_3_CAPS_RENDER] {
        let said = told(raw, kind, D3DKMT_WDDM_1_3_CAPS::zeroed())?;
        same("cross-adapter resources", said.SupportCrossAdapterResource(), memory.CrossAdapterResource())?;
        same("a hybrid GPU", (said.IsHybridDiscreteGPU(), said.IsHybridIntegratedGPU()), (false, false))?;
    }
    let said = told(raw, Type::KMTQAITYPE_WDDM_2_0_CAPS, D3DKMT_WDDM_2_0_CAPS::zeroed())?;
    same("GPU virtual addresses", (said.GpuMmuSupported(), said.IoMmuSupported()), (true, false))?;
    same("surprise removal", said.SupportSurpriseRemoval(), driver.SupportSurpriseRemoval != 0)?;
    same("64-bit atomics", said.Support64BitAtomics(), true)?;
    let said = told(raw, Type::KMTQAITYPE_WDDM_3_0_CAPS, D3DKMT_WDDM_3_0_CAPS::zeroed())?;
    same("capabilities of a display", said.Value, 0)
}

fn sizes(raw: &Raw, adapter: &Adapter) -> Played {
    let caps = adapter.caps().context("caps")?;
    let sum = |aperture| -> u64 {
        caps.segments.iter().filter(|one| one.is_aperture() == aperture).map(|segment| segment.size()).sum()
    };
    let legacy = told(raw, Type::KMTQAITYPE_GETSEGMENTSIZE, D3DKMT_SEGMENTSIZEINFO::zeroed())?;
    let groups = told(raw, Type::KMTQAITYPE_GETSEGMENTGROUPSIZE, D3DKMT_SEGMENTGROUPSIZEINFO::zeroed())?;
    same("segments together", groups.LegacyInfo.as_bytes(), legacy.as_bytes())?;
    let said = (groups.LocalMemory, groups.NonLocalMemory, groups.NonBudgetMemory);
    same("segments by group", said, (sum(false), sum(true), 0))?;
    let mut other = D3DKMT_SEGMENTGROUPSIZEINFO { PhysicalAdapterIndex: 1, ..D3DKMT_SEGMENTGROUPSIZEINFO::zeroed() };
    let status = query(raw, Type::KMTQAITYPE_GETSEGMENTGROUPSIZE, &mut other);
    same("segments of another adapter of the link", status, STATUS_INVALID_PARAMETER)
}

fn keys(raw: &Raw, adapter: &Arc<Adapter>) -> Played {
    let ask = |kind, room: u32| {
        let (mut path, mut count) = (vec![0_u16; 512], room);
        let mut record = D3DKMT_QUERY_PHYSICAL_ADAPTER_PNP_KEY::zeroed();
        (record.PnPKeyType, record.pDest, record.pCchDest) = (kind, path.as_mut_ptr(), &raw mut count);
        let status = query(raw, Type::KMTQAITYPE_PHYSICALADAPTERPNPKEY, &mut record);
        let end = path.iter().position(|unit| *unit == 0).unwrap_or(path.len());
        (status, count, String::from_utf16_lossy(&path[..end]))
    };
    for kind in [D3DKMT_PNP_KEY_TYPE::D3DKMT_PNP_KEY_HARDWARE, D3DKMT_PNP_KEY_TYPE::D3DKMT_PNP_KEY_SOFTWARE] {
        let (status, count, path) = ask(kind, 512);
        // CAST: a path.
        same("a key", (status, count), (STATUS_SUCCESS, path.len() as u32 + 1))?;
        ensure!(adapter.kernel().registry().exists(&path), "{path} is no key");
        let short = ask(kind, count - 1);
        same("too little room", short, (STATUS_BUFFER_TOO_SMALL, count, String::new()))?;
    }
    same("a key of no type", ask(D3DKMT_PNP_KEY_TYPE(3), 512).0, STATUS_INVALID_PARAMETER)
}
