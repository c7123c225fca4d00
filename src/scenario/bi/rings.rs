//! Arguments of rings and doorbells; queries.

use crate::scenario::db::{Memory, RingQueue, Room, denied, raw};
use crate::scenario::{Played, Scenario, Setup, Stage, same};
use anyhow::{Context, ensure};
use gpu_wire::packet::FaultKind;
use gpu_wire::private::allocation_kind;
use gpu_wire::ring::FAULT_KIND;
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use wddm_abi::{DXGK_QUERYADAPTERINFOTYPE, DXGK_QUERYSEGMENTOUT4, Plain};

const CREATE: &str = "D3DKMT_CREATE_DOORBELL; DxgkDdiCreateDoorbell";

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "BI-09",
        title: "0, 8, 16, 17 bytes and 4 GiB of private data for a doorbell",
        source: "D3DKMT_CREATE_DOORBELL, PrivateDriverDataSize",
        play: private_data,
    },
    Scenario {
        id: "BI-10",
        title: "rings of 0 bytes, 1 page, no power of two, too many",
        source: CREATE,
        play: ring_sizes,
    },
    Scenario {
        id: "BI-11",
        title: "a ring's address that cannot be is refused, one that is not mapped faults",
        source: CREATE,
        play: ring_addresses,
    },
    Scenario {
        id: "BI-13",
        title: "QUERYSEGMENT4 with no descriptors: the count, and nothing else",
        source: "DXGK_QUERYSEGMENTOUT4, NbSegment",
        play: segment_count,
    },
];

fn private_data(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = room.queue(0, true)?;
        let (ring, control) = (room.memory(scene, 4096)?, room.memory(scene, 4096)?);
        let mut data = [0; 32];
        data[..16].copy_from_slice(&Room::bell_data(ring.gpu, control.gpu));
        for (size, calls) in [(17, 0), (32, 0), (u32::MAX, 0), (0x8000_0000, 0), (0, 1), (8, 2), (15, 3)] {
            let mut record = Room::bell_record(queue.handle, ring.handle, control.handle, &mut data);
            record.PrivateDriverDataSize = size;
            let status = raw.call(raw.thunks.D3DKMTCreateDoorbell, &mut record);
            same(&format!("{size} bytes"), status, STATUS_INVALID_PARAMETER)?;
            // More than 16 is the OS's to refuse; less is the driver's.
            same("calls of the driver", scene.calls("DxgkDdiCreateDoorbell"), calls)?;
        }
        let mut record = Room::bell_record(queue.handle, ring.handle, control.handle, &mut data[..16]);
        same("16 bytes", raw.call(raw.thunks.D3DKMTCreateDoorbell, &mut record), STATUS_SUCCESS)
    })
}

fn ring_sizes(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        for size in [0, 1, 4095, 4097, 1 << 63, u64::MAX] {
            denied("an allocation", room.create(allocation_kind::SYSTEM, size), STATUS_INVALID_PARAMETER)?;
        }
        let control = room.memory(scene, 4096)?;
        for (size, fine) in [(4096, true), (8192, true), (12288, false), (1 << 20, true), ((1 << 20) + 4096, false)] {
            let queue = room.queue(0, true)?;
            let ring = room.memory(scene, size)?;
            let bell = room.bell(queue.handle, &ring, &control);
            if fine {
                bell.with_context(|| format!("{size} bytes"))?;
            } else {
                denied(&format!("{size} bytes"), bell, STATUS_INVALID_PARAMETER)?;
            }
        }
        // Beyond the largest ring: no memory is needed to see that.
        let queue = room.queue(0, true)?;
        let large = room.create(allocation_kind::SYSTEM, 32 << 20)?;
        room.make_resident(scene, large)?;
        let gpu = room.map(scene, large, 0)?;
        let ring = Memory { handle: large, gpu, cpu: 0, size: 32 << 20 };
        denied("32 MiB", room.bell(queue.handle, &ring, &control), STATUS_INVALID_PARAMETER)?;
        // Local memory is out of the processor's reach.
        let local = room.create(allocation_kind::LOCAL, 64 << 10)?;
        room.make_resident(scene, local)?;
        let gpu = room.map(scene, local, 0)?;
        let ring = Memory { handle: local, gpu, cpu: 0, size: 64 << 10 };
        denied("local memory", room.bell(queue.handle, &ring, &control), STATUS_INVALID_PARAMETER)
    })
}

fn ring_addresses(stage: &Stage) -> Played {
    stage.play(Setup::default().quick_tdr(), |scene| {
        let raw = raw(scene)?;
        let good_room = Room::new(&raw)?;
        let good = RingQueue::connected(scene, &good_room, 0, 4096)?;
        let room = Room::new(&raw)?;
        let queue = room.queue(0, true)?;
        let (ring, control) = (room.memory(scene, 4096)?, room.memory(scene, 4096)?);
        for (what, at, control_at) in [
            ("misaligned", ring.gpu + 8, control.gpu),
            ("beyond the space", 1 << 48, control.gpu),
            ("across its end", (1 << 48) - 2048, control.gpu),
            ("overflowing", u64::MAX - 4095, control.gpu),
            ("a misaligned control page", ring.gpu, control.gpu + 64),
            ("a control page beyond the space", ring.gpu, u64::MAX - 4095),
        ] {
            let mut data = Room::bell_data(at, control_at);
            let mut record = Room::bell_record(queue.handle, ring.handle, control.handle, &mut data);
            same(what, raw.call(raw.thunks.D3DKMTCreateDoorbell, &mut record), STATUS_INVALID_PARAMETER)?;
        }
        // Allocations that are not resident.
        let away = room.create(allocation_kind::SYSTEM, 4096)?;
        let mut data = Room::bell_data(ring.gpu, control.gpu);
        let mut record = Room::bell_record(queue.handle, away, control.handle, &mut data);
        same("not resident", raw.call(raw.thunks.D3DKMTCreateDoorbell, &mut record), STATUS_INVALID_PARAMETER)?;
        // Where nothing is mapped, or only the first page of two, the fetch faults: this device, and no other.
        for (ring_at, control_ok) in [(0x7F00_0000_0000, true), (ring.gpu, false)] {
            let room = Room::new(&raw)?;
            let mut bad = RingQueue::new(scene, &room, 0, 4096)?;
            bad.destroy_bell()?;
            let control_at = if control_ok { bad.control.gpu } else { 0x7F00_0000_0000 };
            let ring = Memory { gpu: ring_at, ..bad.ring };
            let control = Memory { gpu: control_at, ..bad.control };
            bad.bell = room.bell(bad.queue.handle, &ring, &control).context("a doorbell")?;
            bad.connect()?;
            bad.submit(&[])?;
            scene.until("the device's error", || Ok(!room.is_active()?))?;
            if control_ok {
                same("fault", raw.load(bad.control.cpu + FAULT_KIND)?, FaultKind::Address.raw().into())?;
            }
            let progress = good.submit_through(&[])?;
            good.wait(scene, progress)?;
        }
        same("the other device", good_room.is_active()?, true)
    })
}

fn segment_count(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let segments = scene.adapter().caps().context("caps")?.segments.len();
        let kind = DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_QUERYSEGMENT4;
        let size = size_of::<DXGK_QUERYSEGMENTOUT4>();
        let (status, bytes) = scene.world.os.query_adapter_info(scene.adapter(), kind, &[], size);
        same("status", status, STATUS_SUCCESS)?;
        let mut answer = DXGK_QUERYSEGMENTOUT4::from_bytes(&bytes).context("an answer")?;
        same("segments", usize::try_from(answer.NbSegment)?, segments)?;
        ensure!(segments > 0, "no segments");
        answer.NbSegment = 0;
        ensure!(answer.as_bytes().iter().all(|byte| *byte == 0), "more than the count was written");
        let (status, _) = scene.world.os.query_adapter_info(scene.adapter(), kind, &[], size - 1);
        same("with too little room", status, STATUS_INVALID_PARAMETER)
    })
}
