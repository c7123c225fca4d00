//! What the OS decides without a word to the driver, and what of it the driver can see.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use crate::scenario::db::{RingQueue, Room, raw, store};
use crate::scenario::{Played, Scenario, Setup, Stage, same};
use crate::wrap::{copy, machine, own};
use anyhow::ensure;
use dxgkrnl_model::personality::RingHandle;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use wddm_abi::{DRIVER_INITIALIZATION_DATA, DXGKARG_CREATEDOORBELL, DXGKARG_OPENALLOCATION, HANDLE, NTSTATUS};

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "CL-21",
        title: "a doorbell's ring is named by the handle of its allocation, or of the opening of it",
        source: "DXGKARG_CREATEDOORBELL, hRingBuffer",
        play: rings,
    },
    Scenario {
        id: "CL-22",
        title: "a driver without children is asked for them, or is not",
        source: "DxgkDdiQueryChildRelations; starts of render-only drivers that were seen",
        play: children,
    },
];

/// What a machine's driver has opened, and which rings its doorbells have.
#[derive(Default)]
struct Seen {
    opened: Vec<usize>,
    rings: Vec<usize>,
}

/// By machine.
static SEEN: Mutex<BTreeMap<usize, Seen>> = Mutex::new(BTreeMap::new());

fn seen<R>(machine: usize, f: impl FnOnce(&mut Seen) -> R) -> R {
    f(SEEN.lock().unwrap_or_else(PoisonError::into_inner).entry(machine).or_default())
}

crate::decorate! {
    /// Notes the handles that the driver gives to what it opens.
    notes_opened: DxgkDdiOpenAllocation(device: HANDLE, args: *const DXGKARG_OPENALLOCATION) -> NTSTATUS {
        let status = own!(DxgkDdiOpenAllocation(device, args));
        let all = copy!(args);
        for index in 0..all.NumAllocations as usize {
            let opened = copy!(all.pOpenAllocation.cast_const().wrapping_add(index)).hDeviceSpecificAllocation;
            seen(machine(), |seen| seen.opened.push(opened.expose_provenance()));
        }
        status
    }

    /// Notes which ring a doorbell gets.
    notes_rings: DxgkDdiCreateDoorbell(args: *mut DXGKARG_CREATEDOORBELL) -> NTSTATUS {
        let ring = copy!(args.cast_const()).hRingBuffer;
        seen(machine(), |seen| seen.rings.push(ring.expose_provenance()));
        own!(DxgkDdiCreateDoorbell(args))
    }
}

fn notes(table: &mut DRIVER_INITIALIZATION_DATA) {
    notes_opened(table);
    notes_rings(table);
}

fn rings(stage: &Stage) -> Played {
    for named_by in [RingHandle::Allocation, RingHandle::DeviceSpecific] {
        let setup = Setup::default().with_driver(notes).windows(|windows| windows.ring_handle = named_by);
        stage.play(setup, |scene| {
            let process = raw(scene)?;
            let room = Room::new(&process)?;
            let memory = room.memory(scene, 4096)?;
            let queue = RingQueue::connected(scene, &room, 0, 4096)?;
            let (progress, _) = queue.submit(&[store(memory.gpu, 7)])?;
            queue.wait(scene, progress)?;
            same("a store", process.load(memory.cpu)?, 7)?;
            let Seen { opened, rings } = seen(scene.world.os.kernel().number(), std::mem::take);
            ensure!(!rings.is_empty(), "no doorbell was made");
            let by_opening = rings.iter().all(|ring| opened.contains(ring));
            same("rings by the handle of an opening", by_opening, named_by == RingHandle::DeviceSpecific)
        })?;
    }
    Ok(())
}

fn children(stage: &Stage) -> Played {
    for asked in [false, true] {
        stage.play(Setup::default().windows(|windows| windows.asks_the_childless = asked), |scene| {
            same("questions", scene.calls("DxgkDdiQueryChildRelations"), u64::from(asked))
        })?;
    }
    Ok(())
}
