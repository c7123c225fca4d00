//! MR: the race of CurrentValue, MonitoredValue and interrupt. Source of all: *Native GPU fence objects*.
//!
//! | file | holds |
//! |---|---|
//! | `race.rs` | a wait that begins while the value is signaled, in many forms |
//! | `interrupts.rs` | which signals interrupt, and what the interrupt says |
//! | `update.rs` | the two functions that update values |

mod interrupts;
mod race;
mod update;

use super::{Played, Scenario, Stage};

const RACE: &str = "Native GPU fence objects, Synchronization issues";
const DESIGN: &str = "Native GPU fence objects, GPU native fence sync object design";
const INTERRUPT: &str = "Native GPU fence objects, Native fence signaled interrupt";
const BATCHES: &str = "Native GPU fence objects, Instructing KMD to update batches of values";

const fn case(id: &'static str, title: &'static str, source: &'static str, play: fn(&Stage) -> Played) -> Scenario {
    Scenario { id, title, source, play }
}

pub(super) const CASES: &[Scenario] = &[
    case("MR-01", "a wait begins while its value is signaled: threads, and seeded schedules", RACE, race::begins),
    case(
        "MR-02",
        "the same with a shadow of MonitoredValue, and with every form of the interrupt",
        "Native GPU fence objects, Synchronization within the GPU between the engine and CMP",
        race::forms,
    ),
    case("MR-03", "interrupts that satisfy no waiter change nothing", RACE, interrupts::spurious),
    case("MR-04", "a value that is reported twice wakes once", RACE, interrupts::duplicate),
    case("MR-06", "the lowest waiter leaves while its value is signaled", RACE, race::leaves),
    case("MR-07", "1000 signals without a waiter: no interrupt", DESIGN, interrupts::suppressed),
    case("MR-08", "a waiter for 500 of 1000: no interrupt before, none after", DESIGN, interrupts::threshold),
    case("MR-09", "an exact array, a NULL one and a queue's name wake the same waiters", INTERRUPT, interrupts::array),
    case("MR-10", "NULL without the legacy flag: native waiters only", INTERRUPT, interrupts::null_only_native),
    case("MR-11", "NULL with the legacy flag: waiters of both kinds", INTERRUPT, interrupts::null_for_both),
    case(
        "MR-14",
        "kernel addresses of values are used during the call only",
        "DxgkDdiUpdateMonitoredValues, Remarks; DxgkDdiUpdateCurrentValuesFromCpu, Remarks",
        update::addresses,
    ),
    case("MR-15", "both update functions at their levels, in bounded time", BATCHES, update::levels),
    case(
        "MR-16",
        "updates of MonitoredValue and the interrupt routine on several processors",
        "Native GPU fence objects, Synchronization between the GPU and CPU",
        update::exclusion,
    ),
    case("MR-17", "more notifications than the OS keeps: everything is scanned", INTERRUPT, interrupts::overflow),
    case("MR-18", "many values in one call of either update function", BATCHES, update::batches),
    case("MR-19", "one fence several times in one call: in order, the last value stays", BATCHES, update::duplicates),
    case(
        "MR-21",
        "a value that is updated behind the signal that passes it: the interrupt comes of the update itself, or, where \
         engines have no shadow, of nothing",
        "Native GPU fence objects, Synchronization within the GPU between the engine and CMP, step 3",
        race::behind,
    ),
    case("MR-20", "handles that name nothing among the others", BATCHES, update::strays),
];
