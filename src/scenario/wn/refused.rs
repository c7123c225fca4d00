//! Calls that name too little, or the wrong thing.

use super::objects::{resource, shared};
use crate::scenario::db::{Room, denied, raw};
use crate::scenario::raw::Thunk;
use crate::scenario::st::edge;
use crate::scenario::{Denied, Played, Raw, Setup, Stage, same};
use anyhow::Context;
use dxgkrnl_model::personality::HwContexts;
use wddm_abi::ntstatus::{
    STATUS_INVALID_HANDLE, STATUS_INVALID_PARAMETER, STATUS_INVALID_USER_BUFFER, STATUS_NOT_SUPPORTED,
};
use wddm_abi::{
    D3DDDI_CREATECONTEXTFLAGS, D3DKMT_DESTROYALLOCATION2, D3DKMT_QUERYADAPTERINFO, KMTQUERYADAPTERINFOTYPE as Type,
    NTSTATUS, Plain,
};

/// Behind the last type of the 28000 kit.
const TYPES: i32 = 96;

/// No answer has fewer bytes than a number.
const SHORT: u32 = 4;

pub(super) fn short(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let edge = edge(scene, &raw)?;
        for kind in (0..TYPES).map(Type) {
            // What goes to the driver is for it to judge.
            if kind == Type::KMTQAITYPE_UMDRIVERPRIVATE {
                continue;
            }
            for size in 0..SHORT {
                let mut query = D3DKMT_QUERYADAPTERINFO::zeroed();
                (query.hAdapter, query.Type, query.PrivateDriverDataSize) = (raw.adapter, kind, size);
                query.pPrivateDriverData = core::ptr::with_exposed_provenance_mut(edge - size as usize);
                let status = raw.call(raw.thunks.D3DKMTQueryAdapterInfo, &mut query);
                let refused = matches!(status, STATUS_INVALID_PARAMETER | STATUS_NOT_SUPPORTED);
                anyhow::ensure!(refused, "{kind:?}: a buffer of {size} bytes: {status:?}");
            }
        }
        Ok(())
    })
}

pub(super) fn synchronization_only(stage: &Stage) -> Played {
    for rung in [1, 0].into_iter().filter(|rung| *rung <= stage.rung()) {
        stage.play(Setup::default().setting("MaxRung", rung), |scene| {
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            let memory = room.memory(scene, 4096)?;
            let flags = D3DDDI_CREATECONTEXTFLAGS::zeroed().with_SynchronizationOnly(true);
            let invalid = Err(Denied(STATUS_INVALID_PARAMETER));
            // A packet node of every rung, and a context that is for anything beside it.
            let only = room.context_with(2, flags).context("for synchronization")?;
            same("a command buffer", raw.submit_command(only, memory.gpu, 64), invalid)?;
            let other = room.packet_context(2).context("a context")?;
            let nowhere = Err(Denied(STATUS_INVALID_USER_BUFFER));
            same("commands at no address", raw.submit_command(other, 0, 64), nowhere)?;
            let by_flag = scene.adapter().personality().hw_contexts == HwContexts::CreateContext;
            if rung == 1 && by_flag {
                let context = room.context_with(0, flags.with_HwQueueSupported(true)).context("with queues")?;
                let queue = room.queue_in(context, false).context("a queue in it")?;
                same("a buffer in a queue", room.submit(queue.handle, memory.gpu, 64, 1), invalid)?;
            }
            anyhow::ensure!(room.is_active()?, "the device is lost");
            Ok(())
        })?;
    }
    Ok(())
}

pub(super) fn alone(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let made = resource(&raw, room.device, shared).context("a shared resource")?;
        let before = scene.calls("DxgkDdiCloseAllocation");
        for allocation in made.allocations {
            denied("one of a shared resource", room.destroy(allocation), STATUS_INVALID_PARAMETER)?;
        }
        same("what the driver heard of it", scene.calls("DxgkDdiCloseAllocation"), before)?;
        let mut record = D3DKMT_DESTROYALLOCATION2::zeroed();
        (record.hDevice, record.hResource) = (room.device, made.resource);
        raw.ok(raw.thunks.D3DKMTDestroyAllocation2, &mut record).context("the resource")?;
        denied("one that has gone with it", room.destroy(made.allocations[0]), STATUS_INVALID_PARAMETER)
    })
}

/// What a record of a function holds that is to be left alone.
const JUNK: u8 = 0xA5;

/// A function refuses zeros and junk with this status, and no record with another, and writes nothing.
fn refuses<T: Plain>(raw: &Raw, thunk: impl Thunk<T> + Copy, status: NTSTATUS, none: NTSTATUS) -> Played {
    for byte in [0, JUNK] {
        let bytes = vec![byte; size_of::<T>()];
        let mut record = T::from_bytes(&bytes).context("a record")?;
        same("the status", raw.call(thunk, &mut record), status)?;
        same("the record", record.as_bytes(), bytes.as_slice())?;
    }
    same("the status without a record", raw.call_null(thunk), none)
}

pub(super) fn left_out(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let (invalid, unknown) = (STATUS_INVALID_PARAMETER, STATUS_NOT_SUPPORTED);
        refuses(&raw, raw.thunks.D3DKMTMarkDeviceAsError, invalid, invalid).context("D3DKMTMarkDeviceAsError")?;
        let removal = raw.thunks.D3DKMTGetProcessDeviceRemovalSupport;
        refuses(&raw, removal, STATUS_INVALID_HANDLE, invalid).context("D3DKMTGetProcessDeviceRemovalSupport")?;
        refuses(&raw, raw.thunks.D3DKMTGetScanLine, unknown, unknown).context("D3DKMTGetScanLine")?;
        let counted = scene.world.os.report().counts.unimplemented;
        same("calls that are counted as left out", counted.values().sum::<u64>(), 9)
    })
}
