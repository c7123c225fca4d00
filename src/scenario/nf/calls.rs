//! What the functions of native fences refuse, and what the capability query answers.

use super::super::raw::ALL;
use super::super::{Denied, Played, Raw, Scene, Setup, Stage, same};
use super::Since;
use anyhow::{Context, Result, ensure};
use wddm_abi::ntstatus::STATUS_INVALID_PARAMETER;
use wddm_abi::{
    D3DDDI_NATIVEFENCE_TYPE, D3DKMT_CREATENATIVEFENCE, D3DKMT_OPENNATIVEFENCEFROMNTHANDLE, D3DKMT_QUERYADAPTERINFO,
    D3DKMT_WDDM_3_1_CAPS, DXGK_FEATURE_ID, KMTQUERYADAPTERINFOTYPE, NTSTATUS,
};

const REFUSED: Denied = Denied(STATUS_INVALID_PARAMETER);

/// A way to spoil a record.
type Spoil<T> = (&'static str, fn(&mut T));

const CREATIONS: &[Spoil<D3DKMT_CREATENATIVEFENCE>] = &[
    ("no device", |record| record.hDevice = 0),
    ("a type that nobody defined", |record| record.Info.Type = D3DDDI_NATIVEFENCE_TYPE(7)),
    ("a reserved flag", |record| record.Flags.Value = 1 << 31),
    ("a reserved byte", |record| record.Reserved[27] = 1),
    ("a reserved byte of the description", |record| record.Info.Reserved[0] = 1),
    ("for several adapters, and not shared", |record| record.Info.Flags.set_CrossAdapter(true)),
    ("a physical adapter that is not there", |record| record.Info.EngineAffinity = 2),
];

const OPENINGS: &[Spoil<D3DKMT_OPENNATIVEFENCEFROMNTHANDLE>] = &[
    ("no device", |record| record.hDevice = 0),
    ("a reserved byte", |record| record.Reserved[31] = 1),
    ("a physical adapter that is not there", |record| record.EngineAffinity = 2),
    ("NoWait, which is a monitored fence's", |record| record.Flags.set_NoWait(true)),
    ("NoSignal", |record| record.Flags.set_NoSignal(true)),
    ("NoGPUAccess", |record| record.Flags.set_NoGPUAccess(true)),
];

/// Nothing of it reaches the driver, and nothing is left of it.
pub(super) fn refused(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let user = scene.process("client")?;
        let raw = Raw::open(&user.process, scene.adapter().luid())?;
        let device = raw.device().context("device")?;
        let fence = raw.shared_native_fence(device, 3).context("fence")?;
        let handle = raw.share(fence.handle, ALL).context("share")?;
        let (since, objects, handles) =
            (Since::begin(scene), user.process.open_handles(), user.process.nt().open_handles());
        for (what, spoil) in CREATIONS {
            let mut record = Raw::native_fence_record(device, 0);
            spoil(&mut record);
            same(what, raw.create_native_fence(&mut record).err(), Some(REFUSED))?;
            same("the handle of a fence that was not made", record.hSyncObject, 0)?;
        }
        for (what, spoil) in OPENINGS {
            let mut record = Raw::open_record(device, handle);
            spoil(&mut record);
            let opened = raw.ok(raw.thunks.D3DKMTOpenNativeFenceFromNtHandle, &mut record);
            same(what, opened, Err(REFUSED))?;
            same("the handle of a fence that was not opened", record.hSyncObject, 0)?;
        }
        for (what, handle) in [("no fence", 0), ("a device", device), ("a handle of nobody", fence.handle ^ 0x4000)] {
            same(what, raw.destroy_fence(handle), Err(REFUSED))?;
        }
        same("the driver's calls", since.calls(), Vec::<&str>::new())?;
        same("objects", user.process.open_handles(), objects)?;
        same("NT handles", user.process.nt().open_handles(), handles)?;
        same("the value", raw.load(fence.cpu)?, 3)?;
        raw.destroy_fence(fence.handle).context("destroy")?;
        same("a second time", raw.destroy_fence(fence.handle), Err(REFUSED))?;
        raw.close(handle);
        Ok(())
    })
}

/// Asks for `KMTQAITYPE_WDDM_3_1_CAPS` with `size` bytes of room.
fn ask(raw: &Raw, size: u32) -> (NTSTATUS, D3DKMT_WDDM_3_1_CAPS) {
    let mut answer = D3DKMT_WDDM_3_1_CAPS::zeroed();
    let mut record = D3DKMT_QUERYADAPTERINFO::zeroed();
    record.hAdapter = raw.adapter;
    record.Type = KMTQUERYADAPTERINFOTYPE::KMTQAITYPE_WDDM_3_1_CAPS;
    record.pPrivateDriverData = (&raw mut answer).cast();
    record.PrivateDriverDataSize = size;
    (raw.call(raw.thunks.D3DKMTQueryAdapterInfo, &mut record), answer)
}

fn supported(scene: &Scene) -> Result<bool> {
    let user = scene.process("client")?;
    let raw = Raw::open(&user.process, scene.adapter().luid())?;
    // CAST: 4.
    let size = size_of::<D3DKMT_WDDM_3_1_CAPS>() as u32;
    for short in [0, size - 1] {
        let (status, answer) = ask(&raw, short);
        same("with too little room", status, STATUS_INVALID_PARAMETER)?;
        ensure!(!answer.NativeGpuFenceSupported(), "{short} bytes were written behind");
    }
    let (status, answer) = ask(&raw, size);
    ensure!(status.is_success(), "the query: {status:?}");
    Ok(answer.NativeGpuFenceSupported())
}

/// What user mode is told is what the driver and the OS agreed on.
pub(super) fn query(stage: &Stage) -> Played {
    let off = Setup::default().without(DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE);
    for (setup, want) in [(Setup::default(), true), (Setup::default().setting("MaxRung", 1), false), (off, false)] {
        stage.play(setup, |scene| same("NativeGpuFenceSupported", supported(scene)?, want))?;
    }
    Ok(())
}
