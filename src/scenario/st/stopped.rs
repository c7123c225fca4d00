//! What becomes of an adapter whose driver cannot do what VidMm asks for; memory that is added.

use super::spaces::{PAGE, Worker};
use super::work;
use crate::decode::decode;
use crate::scenario::db::{Room, raw, store};
use crate::scenario::te::Hog;
use crate::scenario::{Played, Raw, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::personality::{STRANGE_OPERATIONS, StrayEntry};

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "ST-82",
        title: "a paging operation that cannot be carried out stops the adapter: no work runs, and the reason is told",
        source: "DxgkDdiBuildPagingBuffer, Return value and Remarks",
        play: impossible_operations,
    },
    Scenario {
        id: "ST-83",
        title: "an update of a page table that is nowhere stops the adapter",
        source: "DXGK_BUILDPAGINGBUFFER_UPDATEPAGETABLE; DxgkDdiBuildPagingBuffer, Return value",
        play: nowhere,
    },
    Scenario {
        id: "ST-88",
        title: "memory that the machine gets after the start is used",
        source: "DXGK_DEVICE_INFO, HighestPhysicalAddress",
        play: added,
    },
];

/// The paging node, which takes packets on every rung.
const PACKETS: u32 = 2;

/// The adapter must have stopped, for a reason that begins so.
fn stopped(scene: &Scene, reason: &str) -> Played {
    let printed = scene.world.os.kernel().debug_messages().join("");
    let line = format!("the adapter stops: {reason}");
    ensure!(printed.contains(&line), "the driver does not say '{line}'");
    scene.world.os.collect_debug_info(scene.adapter());
    let told = decode(&scene.adapter().debug_info())?.text;
    let line = told.lines().find_map(|line| line.strip_prefix("stopped")).context("no line says why it stopped")?;
    // The blob has the kind of the reason and its number; `decode` has words of its own for them.
    let (words, number): (&str, String) = match reason.strip_prefix("paging operation ") {
        Some(number) => ("paging operation", number.split(' ').next().unwrap_or_default().to_owned()),
        None => ("page table", String::new()),
    };
    ensure!(line.contains(words) && line.contains(&number), "the debug blob says '{}' for '{reason}'", line.trim());
    Ok(())
}

fn impossible_operations(stage: &Stage) -> Played {
    for number in STRANGE_OPERATIONS {
        for limit in [0, 3] {
            let told = || format!("operation {number}, rung {limit}");
            stage
                .play(Setup::default().setting("MaxRung", limit), |scene| {
                    let raw = raw(scene)?;
                    let room = Room::new(&raw)?;
                    let memory = room.memory(scene, PAGE)?;
                    let worker = Worker::new(scene, &room, limit)?;
                    worker.run(scene, &[store(memory.gpu, 1)])?;
                    let other = raw_of_another(scene)?;
                    let other_room = Room::new(&other)?;
                    let other_memory = other_room.memory(scene, PAGE)?;
                    let other_worker = Worker::new(scene, &other_room, limit)?;
                    ensure!(scene.world.os.paging_operation(scene.adapter(), number), "the operation did not end");
                    stopped(scene, &format!("paging operation {number} cannot be carried out"))?;
                    // Neither process's work runs, and both hear of it.
                    worker.submit(&[store(memory.gpu, 2)])?;
                    other_worker.submit(&[store(other_memory.gpu, 2)])?;
                    scene.until("the device's error", || Ok(!room.is_active()?))?;
                    scene.until("the other device's error", || Ok(!other_room.is_active()?))?;
                    // Nor is anything said of what the driver refuses now.
                    let refused = raw_of_another(scene)?;
                    let hog = Hog::new(scene, &refused, &[PACKETS])?;
                    hog.refused(PACKETS)?;
                    scene.until("the third device's error", || Ok(!hog.is_active()?))?;
                    same("memory", (raw.load(memory.cpu)?, other.load(other_memory.cpu)?), (1, 0))?;
                    // The next start begins anew.
                    scene.world.os.stop_adapter(scene.adapter());
                    scene.world.os.restart_adapter(scene.adapter())?;
                    work(scene).map(drop)
                })
                .with_context(told)?;
        }
    }
    Ok(())
}

fn added(stage: &Stage) -> Played {
    stage.play(Setup::default().windows(|windows| windows.memory_added = true), |scene| work(scene).map(drop))
}

/// Direct calls of another process than [`raw`]'s.
fn raw_of_another(scene: &Scene) -> Result<Raw> {
    let user = scene.process("another")?;
    Raw::open(&user.process, scene.adapter().luid())
}

fn nowhere(stage: &Stage) -> Played {
    for kind in StrayEntry::ALL.into_iter().filter(|kind| kind.is_of_table()) {
        // A driver that writes tables by the CPU is not told their segments.
        if stage.setting("PageTableUpdateMode") == Some(0) && kind != StrayEntry::UpdateNull {
            continue;
        }
        let setup = Setup::default().windows(|windows| windows.faults.stray_entry = Some(kind));
        stage
            .play(setup, |scene| {
                let raw = raw(scene)?;
                let room = Room::new(&raw)?;
                // The device is lost with the first look at its queue, or with the first fence that the paging engine
                // does not signal: that may come before any step here.
                let memory = room.memory(scene, PAGE);
                stopped(scene, "update of a page table")?;
                let submit = |at| Worker::new(scene, &room, 3).and_then(|worker| worker.submit(&[store(at, 1)]));
                let _refused = memory.as_ref().map(|memory| submit(memory.gpu));
                scene.until("the device's error", || Ok(!room.is_active()?))?;
                memory.map_or(Ok(()), |memory| same("memory", raw.load(memory.cpu)?, 0))
            })
            .with_context(|| format!("{kind:?}"))?;
    }
    Ok(())
}
