//! Steps of a recovery that the model leaves out, or does otherwise than article tdr-changes-in-windows-8 says: a case
//! that is about the step fails. So what is asserted of the article's order of steps is not just what the model does.

use crate::{TRIES, Wrong, play};
use dxgkrnl_model::personality::Departure::{self, *};
use libtest_mimic::{Failed, Trial};

/// A departure, the rung that the case is played on, and the case.
pub const TABLE: &[(Departure, u32, &str)] = &[
    // Packets that a reset does not affect.
    (RenumbersPaging, 0, "TE-50"),
    (ReversesPaging, 0, "TE-50"),
    (NewBeforePaging, 0, "TE-50"),
    (KeepsRenderIds, 0, "TE-04"),
    (ForgetsPrivateData, 0, "TE-42"),
    (TakesAllBehind, 0, "TE-04"),
    (TakesAllBehind, 0, "TE-27"),
    // The sequence of steps.
    (NoPreemption, 0, "TE-33"),
    (NotesFirst, 0, "TE-98"),
    (HearsTheEngine, 0, "TE-28"),
    (HearsTheEngine, 0, "TE-94"),
    (IgnoresAllEngines, 0, "TE-29"),
    (IgnoresAllEngines, 3, "TE-29"),
    (ResetsEmptyQueues, 0, "TE-21"),
    (ResetsEmptyQueues, 3, "TE-104"),
    (FlushesNothing, 0, "TE-03"),
    (FlushesNothing, 0, "TE-97"),
    (PreparesNothing, 0, "TE-03"),
    (KeepsOldNotices, 0, "TE-51"),
    (LeavesDependents, 0, "TE-52"),
    (IgnoresWishes, 0, "TE-53"),
    (BlamesWhatRuns, 0, "TE-53"),
    // What the reset comes to.
    (JudgesNothing, 0, "TE-06"),
    (SparesTheAborted, 0, "TE-28"),
    (EngineMovesNothing, 0, "TA-13"),
    (AdapterMovesNothing, 0, "TA-13"),
    // Paging packets that it takes along, resets that fail, and the adapter's.
    (AdapterWithoutEngine, 0, "TE-10"),
    (EngineWithoutAdapter, 0, "TE-10"),
    (SparesOwners, 0, "TE-10"),
    (BlamesOwners, 0, "TE-10"),
    (LosesTheSystem, 0, "TE-10"),
    (EndsAtFailure, 0, "TE-35"),
    (NamesNoPromotion, 0, "TE-35"),
    // Hardware-scheduled engines.
    (LeavesDoorbells, 3, "TE-18"),
    (KeepsOldNotices, 3, "TE-51"),
    (IgnoresWishes, 3, "TE-53"),
    (BlamesWhatRuns, 3, "TE-53"),
    // Recoveries of both kinds at once.
    (RecoversAtOnce, 1, "TE-82"),
    (RecoversAtOnce, 3, "TE-82"),
    (StopsBesideResets, 0, "TE-29"),
    (StopsBesideResets, 1, "TE-29"),
    (StopsBesideResets, 2, "TE-29"),
    // A device that loses its power.
    (SleepsAmidPackets, 0, "TE-99"),
    (PreemptsForNobody, 0, "TE-101"),
];

fn below(rung: u32) -> u32 {
    3 - rung
}

fn noticed(number: usize) -> Result<(), Failed> {
    let (how, rung, case) = TABLE[number];
    for _ in 0..TRIES {
        if let Some(why) = play(case, Wrong { departs: Some(number), below: below(rung), ..Wrong::default() })? {
            println!("{how:?}: {case}: {why}");
            return Ok(());
        }
    }
    Err(format!("{case} passed {TRIES} times with {how:?} on rung {rung}").into())
}

fn every_departure_has_a_row() -> Result<(), Failed> {
    let without = |how: &&Departure| !TABLE.iter().any(|(of, ..)| of == *how);
    match Departure::ALL.iter().find(without) {
        None => Ok(()),
        Some(how) => Err(format!("{how:?} has no row").into()),
    }
}

/// The cases on the rungs below the highest that rows name: they pass without a departure.
pub fn lower() -> impl Iterator<Item = (u32, &'static str)> {
    TABLE.iter().filter(|(_, rung, _)| *rung != 3).map(|(_, rung, case)| (*rung, *case))
}

/// Every row, and that none is missing.
pub fn trials() -> Vec<Trial> {
    let row = |number: usize| {
        let (how, rung, case) = TABLE[number];
        Trial::test(format!("{how:?} of the model is noticed by {case} on rung {rung}"), move || noticed(number))
    };
    let all = Trial::test("every departure of the model has a row", every_departure_has_a_row);
    (0..TABLE.len()).map(row).chain([all]).collect()
}
