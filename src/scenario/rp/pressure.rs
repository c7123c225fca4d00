//! What the OS evicts while its owner works.

use super::used;
use crate::scenario::db::{Memory, Room, raw, store};
use crate::scenario::st::Worker;
use crate::scenario::{Played, Raw, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use gpu_wire::packet::{Copy, Encoded};
use gpu_wire::private::allocation_kind;
use wddm_abi::DXGK_BUILDPAGINGBUFFER_OPERATION as Operation;

pub(super) const CASES: &[Scenario] = &[Scenario {
    id: "RP-22",
    title: "what the OS evicts while its owner works comes back with what it held, while others lie in its place; what \
            was submitted meanwhile runs behind it",
    source: "Residency overview; User-mode work submission, Hardware context suspension; DxgkDdiBuildPagingBuffer",
    play: evicted_at_work,
}];

/// Bytes of what is evicted.
const BYTES: u64 = 64 << 10;
/// How often it is.
const ROUNDS: u64 = 6;
/// Copies that are under way when it is: of a part of the bytes each.
const PARTS: u64 = 16;
const PART: u64 = BYTES / PARTS;

/// The value of a word in a round.
fn value(word: u64, round: u64) -> u64 {
    (word + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(round)
}

/// Copies each part of the bytes.
fn copies(from: u64, to: u64) -> impl Iterator<Item = Encoded> {
    (0..PARTS)
        .map(move |part| Copy { source: from + part * PART, destination: to + part * PART, length: PART }.to_packet())
}

/// What a word of each page holds.
fn words(raw: &Raw, memory: Memory) -> impl Iterator<Item = Result<(u64, u64)>> {
    (0..BYTES / 8).step_by(64).map(move |word| {
        // CAST: below the size.
        Ok((word, raw.load(memory.cpu + word as usize * 8)?))
    })
}

/// How often the driver was asked for each of these paging operations.
fn asked<const N: usize>(scene: &Scene, operations: [Operation; N]) -> [usize; N] {
    let calls = scene.journal_with_arguments(&["DxgkDdiBuildPagingBuffer"]);
    // CAST: the number of an operation, as the journal has it.
    let number = |operation: Operation| Some(u64::from(operation.0.cast_unsigned()));
    operations.map(|operation| calls.iter().filter(|call| call.get("Operation") == number(operation)).count())
}

fn evicted_at_work(stage: &Stage) -> Played {
    const WATCHED: [Operation; 2] =
        [Operation::DXGK_OPERATION_VIRTUAL_TRANSFER, Operation::DXGK_OPERATION_UPDATE_PAGE_TABLE];
    stage.play(Setup::default(), |scene| {
        let (ours, theirs) = (raw(scene)?, raw(scene)?);
        let (room, others) = (Room::new(&ours)?, Room::new(&theirs)?);
        let worker = Worker::new(scene, &room, stage.rung())?;
        let (source, seen, mark) = (room.memory(scene, BYTES)?, room.memory(scene, BYTES)?, room.memory(scene, 4096)?);
        let local = room.create(allocation_kind::LOCAL, BYTES)?;
        room.make_resident(scene, local)?;
        let at = room.map(scene, local, 0)?;
        let os = &scene.world.os;
        for round in 1..=ROUNDS {
            for word in 0..BYTES / 8 {
                // CAST: below the size.
                ours.store(source.cpu + word as usize * 8, value(word, round))?;
            }
            // All of it lies in local memory alone before the pressure; the way back is under way, or not yet.
            worker.run(scene, &copies(source.gpu, at).collect::<Vec<_>>())?;
            copies(at, seen.gpu).try_for_each(|copy| worker.submit(&[copy]))?;
            let (before, told, judged) = (used(scene), asked(scene, WATCHED), scene.evaluations("DXG-PAGING-EVICTED"));
            let mut meanwhile = Ok(());
            let evicted = os.evict_under_pressure(scene.adapter(), &ours.process, || {
                meanwhile = (|| {
                    same("local memory that is left in use", used(scene), before - BYTES)?;
                    // In its place perhaps, and filled with zeros.
                    let other = others.create(allocation_kind::LOCAL, BYTES)?;
                    others.make_resident(scene, other)?;
                    same("local memory with another's", used(scene), before)?;
                    worker.submit(&[store(mark.gpu, round)])?;
                    // A call of the process that waits for a paging operation, by which an engine would have run it.
                    others.memory(scene, 4096)?;
                    same("work that was submitted meanwhile", ours.load(mark.cpu)?, round - 1)
                })();
            });
            meanwhile.with_context(|| format!("round {round}, under pressure"))?;
            ensure!(evicted.contains(&BYTES) && evicted.len() > 3, "evicted: {evicted:?}");
            scene.until("work that was submitted meanwhile", || Ok(ours.load(mark.cpu)? == round))?;
            same("the rooms", (room.is_active()?, others.is_active()?), (true, true))?;
            for word in words(&ours, seen) {
                let (word, got) = word?;
                same("a word behind the pressure", got, value(word, round))
                    .with_context(|| format!("round {round}"))?;
            }
            // Told, and the answer judged: content out and in, entries away and back.
            let now = asked(scene, WATCHED);
            ensure!(now[0] >= told[0] + 2 && now[1] > told[1] + 1, "paging operations: {told:?}, then {now:?}");
            let checks = scene.evaluations("DXG-PAGING-EVICTED") - judged;
            ensure!(checks as usize >= evicted.len(), "{checks} of {} evictions were judged", evicted.len());
        }
        stage.note("rounds", ROUNDS);
        Ok(())
    })
}
