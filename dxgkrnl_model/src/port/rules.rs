//! Every rule that this crate enforces, by area. Each has a mutant of the toy driver that breaks it and nothing else
//! (`tests/mutants`).
//!
//! In a source "DDI page" is the reference page of the function or record that is named (windows-driver-docs-ddi),
//! "article" a page of windows-driver-docs, "bug check" the page of that code; an id such as NF-03 is a conformance
//! case.

pub mod caps;
pub mod compute;
pub mod fence;
pub mod interface;
pub mod interrupt;
pub mod leak;
pub mod paging;
pub mod queue;
pub mod removal;
pub mod scheduling;
pub mod slot;
pub mod start;
pub mod tdr;
pub mod testing;

use nt_model::RuleList;

/// All lists.
pub static ALL: &[&RuleList] = &[
    &start::START_RULES,
    &caps::CAPS_RULES,
    &compute::COMPUTE_RULES,
    &interface::INTERFACE_RULES,
    &interrupt::INTERRUPT_RULES,
    &paging::PAGING_RULES,
    &fence::FENCE_RULES,
    &queue::QUEUE_RULES,
    &removal::REMOVAL_RULES,
    &scheduling::SCHEDULING_RULES,
    &slot::SLOT_RULES,
    &tdr::TDR_RULES,
    &testing::TESTING_RULES,
    &leak::LEAK_RULES,
];
