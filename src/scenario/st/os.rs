//! What the OS may do without being asked by a client of ours: contexts without private data, further system processes,
//! and page table entries, flushes and packets of kinds that this driver does not ask for.

use super::work;
use crate::client::Queue;
use crate::demo::counters;
use crate::scenario::client::{self, Client};
use crate::scenario::db::{RingQueue, Room, raw, store};
use crate::scenario::stage::PATIENCE;
use crate::scenario::{Played, Raw, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, ensure};
use dxgkrnl_model::pci::InterruptModel;
use dxgkrnl_model::personality::{Neighbour, STRAY_OPERATIONS, StrayEntry, StrayFlush, StrayRoot, SystemProcesses};
use nt_model::DpcDelivery;
use umd_core::ffi::types::{FP_KIND_LOCAL, FP_KIND_SYSTEM};
use wddm_abi::ntstatus::{STATUS_CONNECTION_ABORTED, STATUS_GRAPHICS_DRIVER_MISMATCH, STATUS_SUCCESS};
use wddm_abi::{
    D3DDDI_CREATECONTEXTFLAGS, D3DKMT_CREATECONTEXTVIRTUAL, D3DKMT_DEVICEEXECUTION_STATE, D3DKMT_FREEGPUVIRTUALADDRESS,
    D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU, D3DKMT_SUBMITCOMMAND,
};

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "ST-56",
        title: "contexts without private data are made; private data that is there and wrong is refused",
        source: "DxgkDdiCreateContext, Return value; D3DKMTCreateContextVirtual",
        play: bare_contexts,
    },
    Scenario {
        id: "ST-57",
        title: "another system process is not the paging process, made before it, behind it or behind its context",
        source: "DXGK_CREATEPROCESSFLAGS, SystemProcess; System paging process",
        play: system_processes,
    },
    Scenario {
        id: "ST-58",
        title: "page table entries, updates and roots that the driver does not know are faults, counted, and never \
                mappings",
        source: "DXGK_PTE; DXGK_GPUMMUCAPS; DXGK_UPDATEPAGETABLEFLAGS; DXGK_BUILDPAGINGBUFFER_UPDATEPAGETABLE; \
                 DXGKARG_SETROOTPAGETABLE; GPU segments",
        play: stray_entries,
    },
    Scenario {
        id: "ST-59",
        title: "as many packets have room as the OS requires",
        source: "DXGK_START_INFO, RequiredDmaQueueEntry",
        play: room,
    },
    Scenario {
        id: "ST-60",
        title: "of a packet with NullRendering only the fence comes: what it holds does not run",
        source: "DXGK_SUBMITCOMMANDFLAGS, NullRendering; D3DKMT_SUBMITCOMMANDFLAGS",
        play: null_rendering,
    },
    Scenario {
        id: "ST-61",
        title: "a flush for a process that the driver does not know flushes: nothing is reached that was unmapped",
        source: "DXGK_BUILDPAGINGBUFFER_FLUSHTLB; DxgkDdiBuildPagingBuffer, Return value",
        play: stray_flushes,
    },
    Scenario {
        id: "ST-64",
        title: "paging operations that ask for nothing succeed, write nothing, and are counted by kind",
        source: "DxgkDdiBuildPagingBuffer, Remarks; DXGK_BUILDPAGINGBUFFER_OPERATION",
        play: stray_operations,
    },
    Scenario {
        id: "ST-68",
        title: "a packet of a context that the driver does not have is refused, and runs for nobody",
        source: "DxgkDdiSubmitCommandVirtual, hContext and Return value",
        play: stray_context,
    },
    Scenario {
        id: "ST-80",
        title: "page tables and logs in memory that is not cached are used, and counted",
        source: "DXGK_ALLOCATIONINFOFLAGS_WDDM2_0, Cached; MmGetCacheAttribute",
        play: uncached,
    },
    Scenario {
        id: "ST-67",
        title: "an entry that is valid beside others, over registers, over memory that is not locked or behind all memory, \
            harms nobody who does not touch it; over what is no memory it is a fault",
        source: "DXGK_PTE; Driver Verifier, 0xC4 with 0x85 and 0x89",
        play: neighbours,
    },
    Scenario {
        id: "ST-91",
        title: "the paging process works in whichever order and form it is made, also anew behind D3",
        source: "System paging process; DXGK_BUILDPAGINGBUFFER_UPDATEPAGETABLE, UpdateMode; DXGKARG_CREATEPROCESS, \
                 NumPasid",
        play: paging_process,
    },
    Scenario {
        id: "ST-92",
        title: "paging buffers in the aperture are mapped there for no allocation, and work",
        source: "DXGK_QUERYSEGMENTOUT4, PagingBufferSegmentId; DXGKARG_BUILDPAGINGBUFFER, MapApertureSegment",
        play: buffers_in_aperture,
    },
    Scenario {
        id: "ST-65",
        title: "the driver writes the size of its memory, and says so where a device has memory and no interrupt",
        source: "Registering hardware information; DXGK_DEVICE_INFO, TranslatedResourceList",
        play: hardware,
    },
    Scenario {
        id: "ST-66",
        title: "work on every node while DPCs run on another processor than the one that queued them",
        source: "Introduction to DPCs; DxgkDdiDpcRoutine",
        play: other_processor,
    },
];

/// Asks for a context on `node` with the bytes `private` as private data, none if it is empty; the function's status.
fn context(raw: &Raw, room: &Room<'_>, node: u32, hw_queues: bool, private: &mut [u8]) -> wddm_abi::NTSTATUS {
    let mut flags = D3DDDI_CREATECONTEXTFLAGS::zeroed();
    flags.set_HwQueueSupported(hw_queues);
    let mut record = D3DKMT_CREATECONTEXTVIRTUAL::zeroed();
    (record.hDevice, record.NodeOrdinal, record.EngineAffinity, record.Flags) = (room.device, node, 1, flags);
    if !private.is_empty() {
        record.pPrivateDriverData = private.as_mut_ptr().cast();
        // CAST: a few bytes.
        record.PrivateDriverDataSize = private.len() as u32;
    }
    raw.call(raw.thunks.D3DKMTCreateContextVirtual, &mut record)
}

fn bare_contexts(stage: &Stage) -> Played {
    for limit in [0, 3] {
        stage.play(Setup::default().setting("MaxRung", limit), |scene| {
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            for node in 0..3 {
                let hw_queues = limit == 3 && node < 2;
                same("without private data", context(&raw, &room, node, hw_queues, &mut []), STATUS_SUCCESS)?;
                for mut wrong in [vec![0; 1], vec![0; 8], vec![0xFF; 16]] {
                    let status = context(&raw, &room, node, hw_queues, &mut wrong);
                    same("with wrong private data", status, STATUS_GRAPHICS_DRIVER_MISMATCH)?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// `DXGK_OPERATION_MAP_APERTURE_SEGMENT`.
const MAP_APERTURE: u64 = 5;

fn system_processes(stage: &Stage) -> Played {
    use SystemProcesses as Kind;
    let kinds = [Kind::One, Kind::AnotherFirst, Kind::AnotherLast, Kind::AnotherBriefly, Kind::AnotherLater];
    for processes in kinds {
        for without_context in [false, true] {
            let setup = Setup::default().windows(|windows| {
                (windows.system_processes, windows.paging_without_context) = (processes, without_context);
            });
            let told = || format!("{processes:?}, packets without context: {without_context}");
            stage.play(setup, |scene| work(scene).map(drop).and_then(|()| local_memory(scene))).with_context(told)?;
        }
    }
    Ok(())
}

/// Allocates and uses memory of the local segment eight times: the paging process's own translations change each time.
fn local_memory(scene: &Scene) -> Played {
    let user = scene.process("local")?;
    let adapter = user.open()?;
    let device = adapter.device()?;
    let queue = device.queue(1, 4096, 0, 0)?;
    let seen = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
    for round in 1..9 {
        let local = device.allocate(FP_KIND_LOCAL, 64 << 10, 0)?;
        let (from, to) = (local.gpu_va()?, seen.gpu_va()?);
        queue.run(|list| list.copy(from, to, 8))?;
        queue.run(|list| list.store(from, round))?;
        queue.run(|list| list.copy(from, to + 8, 8))?;
        queue.wait(0, PATIENCE)?;
        same("fresh local memory, and what was stored", (seen.read_u64(0)?, seen.read_u64(8)?), (0, round))?;
    }
    Ok(())
}

fn paging_process(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        work(scene)?;
        local_memory(scene)?;
        scene.world.os.put_to_sleep(scene.adapter(), false);
        scene.world.os.wake_up(scene.adapter());
        local_memory(scene)
    })
}

fn buffers_in_aperture(stage: &Stage) -> Played {
    let setup = Setup::default().setting("PagingBufferSegment", 1).setting("ApertureCpuVisible", 1);
    stage.play(setup, |scene| {
        local_memory(scene)?;
        let calls = scene.journal_with_arguments(&["DxgkDdiBuildPagingBuffer"]);
        let maps = calls.iter().filter(|call| call.get("Operation") == Some(MAP_APERTURE));
        let allocations: Vec<_> = maps.map(|call| call.get("hAllocation")).collect();
        ensure!(!allocations.is_empty(), "nothing was mapped in the aperture");
        same("allocations in the aperture", allocations.iter().find(|handle| **handle != Some(0)), None)
    })
}

/// Bytes that a table of level 0 covers.
const COVERED: u64 = 2 << 20;

fn stray_entries(stage: &Stage) -> Played {
    for kind in StrayEntry::ALL.into_iter().filter(|kind| !kind.is_of_table()) {
        let setup = Setup::default().quick_tdr().windows(|windows| windows.faults.stray_entry = Some(kind));
        stage
            .play(setup, |scene| {
                let rig = Client::open(scene, "client")?;
                let (queue, page) = (rig.queue(0)?, rig.page()?);
                queue.run(|list| list.store(page.at(0), 0x77))?;
                queue.wait(0, PATIENCE)?;
                same("what is known", page.word(0)?, 0x77)?;
                let stray = match kind {
                    StrayEntry::Table64K => page.gpu + COVERED,
                    _ => page.gpu / COVERED * COVERED + COVERED - 4096,
                };
                store_faults(scene, &rig, &queue, stray)?;
                same("memory", page.word(0)?, 0x77)?;
                let counted = counters::start(&rig.raw)?;
                let count = if kind.is_of_update() { counted.stray_ranges } else { counted.stray_entries };
                ensure!(count > 0, "no entry was counted");
                Ok(())
            })
            .with_context(|| format!("{kind:?}"))?;
    }
    for root in [StrayRoot::Segment, StrayRoot::Aperture] {
        let setup = Setup::default().quick_tdr().windows(|windows| windows.faults.stray_root = Some(root));
        stage
            .play(setup, |scene| {
                let rig = Client::open(scene, "client")?;
                let (queue, page) = (rig.queue(0)?, rig.page()?);
                store_faults(scene, &rig, &queue, page.at(0))?;
                same("memory", page.word(0)?, 0)?;
                ensure!(counters::start(&rig.raw)?.stray_ranges > 0, "no root was counted");
                Ok(())
            })
            .with_context(|| format!("the root, {root:?}"))?;
    }
    Ok(())
}

fn neighbours(stage: &Stage) -> Played {
    for kind in [Neighbour::Registers, Neighbour::Unlocked, Neighbour::Behind] {
        let setup = Setup::default().quick_tdr().windows(|windows| windows.faults.neighbour = Some(kind));
        stage
            .play(setup, |scene| {
                work(scene)?;
                local_memory(scene)?;
                let raw = raw(scene)?;
                let room = Room::new(&raw)?;
                let queue = RingQueue::connected(scene, &room, 0, 4096)?;
                let memory = room.memory(scene, 4096)?;
                let progress = queue.submit_through(&[store(memory.gpu + 4088, 0x77)])?;
                queue.wait(scene, progress)?;
                same("the last word of a page", raw.load(memory.cpu + 4088)?, 0x77)?;
                if kind != Neighbour::Unlocked {
                    queue.submit(&[store(memory.gpu + 4096, 0x55)])?;
                    room.lost_by_page_fault(scene)?;
                }
                Ok(())
            })
            .with_context(|| format!("{kind:?}"))?;
    }
    Ok(())
}

fn hardware(stage: &Stage) -> Played {
    const UNUSED: &str = "the device has memory but no interrupt";
    for interrupts in [InterruptModel::Line, InterruptModel::SynchronizedOnly] {
        let mut setup = Setup::default().setting("LocalSegmentSize", 32 << 20);
        setup.adapter.device.interrupts = interrupts;
        stage
            .play(setup, |scene| {
                let size = scene.adapter().registry_value("HardwareInformation.qwMemorySize");
                same("the size in the key", size.and_then(|value| value.number()), Some(32 << 20))?;
                // Of megabytes by its page, and of bytes to who reads it (docs/what_tools_show.md).
                let other = scene.adapter().registry_value("HardwareInformation.MemorySize");
                same("MemorySize in the key", other.is_some(), false)?;
                let printed = scene.world.os.kernel().debug_messages().join("");
                same(UNUSED, printed.contains(UNUSED), interrupts == InterruptModel::SynchronizedOnly)?;
                work(scene).map(drop)
            })
            .with_context(|| format!("{interrupts:?}"))?;
    }
    Ok(())
}

fn other_processor(stage: &Stage) -> Played {
    for limit in [0, 1, 2, 3] {
        let setup = Setup::default().setting("MaxRung", limit);
        let setup = setup.windows(|windows| windows.dpc_delivery = DpcDelivery::Remote);
        stage.play(setup, |scene| work(scene).map(drop).and_then(|()| local_memory(scene)))?;
    }
    Ok(())
}

/// A store to `at` must end in a page fault, by which the rig's device is lost; it may be lost before the submission is
/// over.
fn store_faults(scene: &Scene, rig: &Client, queue: &Queue, at: u64) -> Played {
    if let Err(early) = queue.run(|list| list.store(at, 0x55)) {
        same("an early end", early.status, STATUS_CONNECTION_ABORTED)?;
    }
    scene.until("the device's error", || Ok(rig.device.state()?.execution != 1))?;
    let lost = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ERROR_DMAPAGEFAULT;
    same("the device's state", rig.device.state()?.execution, lost.0.cast_unsigned())
}

fn room(stage: &Stage) -> Played {
    for required in [0, 1, 1000, u32::MAX] {
        let setup = Setup::default().setting("MaxRung", 0);
        let setup = setup.windows(|windows| windows.required_dma_queue_entries = required);
        let played = stage.play(setup, |scene| {
            work(scene)?;
            // Less room than is required is not made in silence.
            let said = scene.world.os.kernel().debug_messages().join("").contains("; the OS requires 4294967295");
            same("whether the driver says that the room is less", said, required == u32::MAX)
        });
        played.with_context(|| format!("{required} entries"))?;
    }
    Ok(())
}

fn null_rendering(stage: &Stage) -> Played {
    stage.play(Setup::default().setting("MaxRung", 0).quick_tdr(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let memory = room.memory(scene, 4096)?;
        let packet = store(memory.gpu + 1024, 0x77);
        memory.write(&raw, 0, packet.as_bytes())?;
        let context = room.context(0)?;
        let submit = |address: u64, length: usize, null: bool| {
            let mut record = D3DKMT_SUBMITCOMMAND::zeroed();
            // CAST: a packet's bytes.
            (record.Commands, record.CommandLength, record.BroadcastContextCount) = (address, length as u32, 1);
            record.BroadcastContext[0] = context;
            record.Flags.set_NullRendering(null);
            raw.ok(raw.thunks.D3DKMTSubmitCommand, &mut record)
        };
        let fence = raw.monitored_fence(room.device, 0, false)?;
        let length = packet.as_bytes().len();
        let done = |value: u64| -> Played {
            let mut signal = D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU::zeroed();
            (signal.hContext, signal.ObjectCount) = (context, 1);
            signal.ObjectHandleArray = &raw const fence.handle;
            signal.set_MonitoredFenceValueArray(&raw const value);
            raw.ok(raw.thunks.D3DKMTSignalSynchronizationObjectFromGpu, &mut signal)?;
            let waiting = client::block(&raw, room.device, vec![(fence.handle, value)], false);
            client::returned("a wait", &waiting)?.context("a wait")
        };
        // A buffer whose packet would store, and behind it one at an address that nothing is mapped to, which would end
        // the device.
        submit(memory.gpu, length, true)?;
        done(1)?;
        same("what did not run", raw.load(memory.cpu + 1024)?, 0)?;
        submit(0x7000_0000_0000, 64, true)?;
        done(2)?;
        submit(memory.gpu, length, false)?;
        done(3)?;
        same("what ran", raw.load(memory.cpu + 1024)?, 0x77)?;
        same("the device", room.is_active()?, true)
    })
}

fn stray_flushes(stage: &Stage) -> Played {
    for stray in [StrayFlush::NoProcess, StrayFlush::AnotherObject, StrayFlush::GoneProcess] {
        let setup = Setup::default().quick_tdr().windows(|windows| windows.faults.stray_flushes = Some(stray));
        stage
            .play(setup, |scene| {
                // A process that is gone, for the number of its handle.
                drop(scene.process("gone")?.open()?.device()?);
                let rig = Client::open(scene, "client")?;
                let (queue, page) = (rig.queue(0)?, rig.page()?);
                queue.run(|list| list.store(page.at(0), 0x77))?;
                queue.wait(0, PATIENCE)?;
                same("what is mapped", page.word(0)?, 0x77)?;
                let mut record = D3DKMT_FREEGPUVIRTUALADDRESS::zeroed();
                (record.hAdapter, record.BaseAddress, record.Size) = (rig.raw.adapter, page.gpu, 4096);
                rig.raw.ok(rig.raw.thunks.D3DKMTFreeGpuVirtualAddress, &mut record)?;
                // The entries are gone when the function returns, and the flush is done.
                ensure!(counters::start(&rig.raw)?.stray_flushes > 0, "no flush was counted");
                store_faults(scene, &rig, &queue, page.at(0))?;
                same("memory", page.word(0)?, 0x77)
            })
            .with_context(|| format!("{stray:?}"))?;
    }
    Ok(())
}

fn stray_operations(stage: &Stage) -> Played {
    stage.play(Setup::default().windows(|windows| windows.faults.stray_operations = true), |scene| {
        work(scene)?;
        let counted = counters::start(&raw(scene)?)?;
        // Bit 31 is for every number that has no bit of its own.
        // A copy of no entries is one that is carried out.
        let others: Vec<i32> = STRAY_OPERATIONS.into_iter().filter(|number| *number != 14).collect();
        let bits = others.iter().map(|number| 1_u64 << (*number).clamp(0, 31));
        let kinds = bits.fold(0, |kinds, bit| kinds | bit);
        same("kinds of operations that the driver counted", counted.paging_kinds, kinds)?;
        let each = counted.paging_others.is_multiple_of(others.len() as u64);
        ensure!(each && counted.paging_others > 0, "{} operations were counted", counted.paging_others);
        let printed = scene.world.os.kernel().debug_messages().join("");
        for number in others {
            let line = format!("paging operations {number}, not carried out");
            ensure!(printed.contains(&line), "no line says '{line}'");
        }
        Ok(())
    })
}

fn uncached(stage: &Stage) -> Played {
    for combined in [false, true] {
        stage.play(Setup::default().windows(|windows| windows.combined_pages = combined), |scene| {
            work(scene)?;
            let counted = counters::start(&raw(scene)?)?.uncached;
            ensure!((counted != 0) == combined, "{counted} buffers were not cached");
            let line = "buffers in memory that is not cached";
            let printed = scene.world.os.kernel().debug_messages().join("").contains(line);
            same("whether the driver says so", printed, combined)
        })?;
    }
    Ok(())
}

/// The packet's address is the client's. Run for the paging process, which has nothing there, it would end in a fault
/// of the system's own.
fn stray_context(stage: &Stage) -> Played {
    let setup = Setup::default().setting("MaxRung", 0);
    stage.play(setup.windows(|windows| windows.faults.stray_contexts = true), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let (memory, context) = (room.memory(scene, 4096)?, room.context_with(0, D3DDDI_CREATECONTEXTFLAGS::zeroed())?);
        let packet = store(memory.gpu + 1024, 1);
        memory.write(&raw, 0, packet.as_bytes())?;
        let before = counters::start(&raw)?.refused_packets;
        let mut record = D3DKMT_SUBMITCOMMAND::zeroed();
        // CAST: some bytes.
        (record.Commands, record.CommandLength) = (memory.gpu, packet.as_bytes().len() as u32);
        (record.BroadcastContextCount, record.BroadcastContext[0]) = (1, context);
        raw.ok(raw.thunks.D3DKMTSubmitCommand, &mut record).context("the packet")?;
        scene.until("the error of the device", || Ok(!room.is_active()?))?;
        same("refused packets", counters::start(&raw)?.refused_packets, before + 1)?;
        same("memory", raw.load(memory.cpu + 1024)?, 0)?;
        // The paging process goes on.
        let other = Room::new(&raw)?;
        other.memory(scene, 4096).map(drop)
    })
}
