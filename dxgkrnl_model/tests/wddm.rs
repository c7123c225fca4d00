//! The model against a driver that is right, and against the same driver with one thing wrong at a time.
#![expect(unsafe_code, reason = "a driver and its clients follow pointers")]

mod client;
mod tour;
mod toy;

use toy::Options;
use tour::{Ended, Stage, run, windows};

fn assert_clean(ended: &Ended, what: &str) {
    for violation in &ended.violations {
        println!("{violation}");
    }
    println!("{}", ended.report);
    println!("errors: {:#?}", ended.errors);
    assert_eq!(ended.stopped, None, "{what}");
    assert!(ended.errors.is_empty(), "{what}: {:?}", ended.errors);
    assert!(ended.broken.is_empty(), "{what} breaks {:?}", ended.broken);
}

#[test]
fn a_right_driver_breaks_no_rule() {
    for stage in [
        Stage::Start,
        Stage::Packets,
        Stage::KernelQueue,
        Stage::UserQueue,
        Stage::Faults,
        Stage::QueueHang,
        Stage::PacketHang,
        Stage::Preemption,
        Stage::Kill,
        Stage::Sleep,
    ] {
        println!("==== {stage:?}");
        assert_clean(&run(Options::default(), stage, windows()), &format!("{stage:?}"));
    }
}
