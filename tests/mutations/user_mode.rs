//! Mutations of the user-mode driver: what it was like before it took each of these as an answer. The mock of
//! `umd/core/tests` does not have what notices them, so a conformance case does.

use crate::{Wrong, play};
use libtest_mimic::{Failed, Trial};
use umd_core::mutation::Mutation::{self, *};

/// A mutation, the conformance case that notices it, and what the failure's text must contain.
pub const TABLE: &[(Mutation, &str, &str)] = &[
    (NeverExceedsBudget, "CL-07", "OverBudget"),
    (TrustsEvents, "CL-09", "the wait for"),
    (LocksWhatItOpens, "CL-08", "opening"),
    (ProgressByCapabilities, "CL-10", "Monitored"),
    (UsesFencesUnmapped, "CL-11", "fences that are used at once"),
    (WaitsInBuffers, "CL-12", "DXG-HW-STALL"),
    (ObsoleteContextsOnly, "NF-01", "D3DKMTCreateHwContext"),
    (OpensWithSharingFlags, "CL-15", "opening a"),
    (DestroysBusyQueues, "CL-16", "what was queued"),
    (MapsLocalByPages, "CL-17", "local memory of"),
    (KnowsOneStatus, "CL-18", "what a submission says"),
    (TellsNothing, "DB-06", "what it says that it queued"),
    (FreesOldRing, "DB-68", ""),
];

fn noticed(mutation: Mutation, case: &str, says: &str) -> Result<(), Failed> {
    // CAST: its number.
    match play(case, Wrong { user_mode: mutation as u32, ..Wrong::default() })? {
        None => Err(format!("{case} passed with {}", mutation.name()).into()),
        Some(why) if why.contains(says) => {
            println!("{}: {case}: {why}", mutation.name());
            Ok(())
        }
        Some(why) => Err(format!("'{says}' is not in {why}").into()),
    }
}

/// The list of `umd/core/tests/umd/mutants.rs` that leaves mutations to cases is the one of this table.
fn the_rest_is_noticed_there() -> Result<(), Failed> {
    let there = include_str!("../../umd/core/tests/umd/mutants.rs");
    let list = there.split("CAUGHT_BY_CASES").nth(1).and_then(|rest| rest.split("];").next()).unwrap_or_default();
    for mutation in Mutation::ALL {
        let name = mutation.name();
        let left = list.contains(&format!("Mutation::{name},"));
        let here = TABLE.iter().any(|(known, ..)| known == mutation);
        if left != here {
            return Err(format!("{name}: in the list there {left}, in a row here {here}").into());
        }
    }
    Ok(())
}

/// Every row, and that none is missing.
pub fn trials() -> Vec<Trial> {
    let row = |(mutation, case, says): &'static (Mutation, &'static str, &'static str)| {
        Trial::test(format!("{} is noticed by {case}", mutation.name()), || noticed(*mutation, case, says))
    };
    let all = Trial::test("every mutation of the user-mode driver has a row", the_rest_is_noticed_there);
    TABLE.iter().map(row).chain([all]).collect()
}
