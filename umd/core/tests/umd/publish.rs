//! The order of the stores, seen by words that write down what happens to them.

use std::cell::RefCell;
use umd_core::mutation::{Chosen, Mutation};
use umd_core::publish::{Publication, Words, publish, ring_doorbell};
use umd_core::word::{Ordering, Word};

thread_local! {
    static LOG: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn log(what: String) {
    LOG.with(|log| log.borrow_mut().push(what));
}

/// A word with a name.
struct Named(&'static str, u64);

impl Word for Named {
    fn load(&self, _: Ordering) -> u64 {
        log(format!("read {}", self.0));
        self.1
    }
    fn store(&self, value: u64, order: Ordering) {
        log(format!("{} = {value} {order:?}", self.0));
    }
    fn fence(order: Ordering) {
        log(format!("fence {order:?}"));
    }
}

const PUBLICATION: Publication = Publication { progress: 8, write_pointer: 120, doorbell: 77 };

fn run(mutation: Option<Mutation>, only_ring: bool) -> (Vec<String>, u64) {
    let chosen = Chosen::none();
    chosen.set(mutation.map_or(0, |mutation| mutation as u32));
    let (lq, wp, db, status) = (Named("LQ", 0), Named("WP", 0), Named("doorbell", 0), Named("status", 2));
    let words = Words { last_queued: &lq, write_pointer: &wp, doorbell: &db, status: &status };
    LOG.with(|log| log.borrow_mut().clear());
    let got = if only_ring {
        ring_doorbell(words, PUBLICATION.doorbell, &chosen)
    } else {
        publish(words, PUBLICATION, &chosen)
    };
    (LOG.with(|log| log.borrow().clone()), got)
}

const IN_ORDER: [&str; 5] =
    ["LQ = 8 Relaxed", "WP = 120 Release", "doorbell = 77 Release", "fence SeqCst", "read status"];

#[test]
fn steps_three_to_five_are_in_the_order_of_the_article() {
    assert_eq!(run(None, false), (IN_ORDER.map(str::to_owned).to_vec(), 2));
}

#[test]
fn ringing_again_touches_neither_the_queued_value_nor_the_write_pointer() {
    assert_eq!(run(None, true).0, IN_ORDER[2..].to_vec());
}

#[test]
fn each_mutant_of_the_order_is_seen() {
    for mutation in [
        Mutation::PublishBeforeLastQueued,
        Mutation::NoStatusBarrier,
        Mutation::RingBeforePublish,
        Mutation::PublishRelaxed,
    ] {
        assert_ne!(run(Some(mutation), false).0, IN_ORDER.map(str::to_owned).to_vec(), "{}", mutation.name());
    }
}
