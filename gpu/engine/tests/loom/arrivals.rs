//! READY-1, the way of a queue to its engine: nothing is lost, nothing comes twice, and what was published before it is
//! there.

use crate::{W, check};
use gpu_engine::arrivals::{Arrivals, Linked};
use gpu_engine::shared::Shared;
use gpu_engine::word::{Ordering, Word};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

struct Member {
    number: u64,
    work: W,
    link: W,
}

impl Linked for Member {
    type Word = W;

    fn link(&self) -> &W {
        &self.link
    }
}

fn word(value: u64) -> W {
    W(AtomicU64::new(value))
}

fn member(number: u64) -> Shared<Member> {
    Shared::try_new(Member { number, work: word(0), link: word(0) }).unwrap()
}

/// Two agents hand members over, one of them two in a row, while the engine takes what there is.
fn hand_over(add: fn(&Arrivals<Member>, Shared<Member>)) {
    let arrivals = Arc::new(Arrivals::new(word));
    let agents = [vec![1], vec![2, 3]].map(|numbers| {
        let arrivals = arrivals.clone();
        loom::thread::spawn(move || {
            for number in numbers {
                let member = member(number);
                member.work.store(number, Ordering::Relaxed);
                add(&arrivals, member);
            }
        })
    });
    let mut came = Vec::new();
    let mut take = || {
        // Not dropped where loom ends a run in the middle: that would look at the members once more.
        let mut taken = ManuallyDrop::new(arrivals.take());
        assert!(taken.turn_around(1) <= 1);
        for member in taken.by_ref() {
            assert_eq!(member.work.load(Ordering::Relaxed), member.number, "it came without its work");
            came.push(member.number);
        }
    };
    take();
    for agent in agents {
        agent.join().unwrap();
    }
    take();
    let behind = came.iter().position(|number| *number == 3);
    assert!(came.iter().position(|number| *number == 2) < behind, "{came:?}: those of one agent keep their order");
    came.sort_unstable();
    assert_eq!(came, [1, 2, 3]);
}

#[test]
fn ready_1_queues_come_once_and_with_their_work() {
    check(|| hand_over(Arrivals::add));
}

#[test]
fn ready_1_needs_the_release_of_the_hand_over() {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        check(|| hand_over(|arrivals, member| arrivals.add_by(member, Ordering::Relaxed)))
    }));
    assert!(outcome.is_err(), "a queue that came without its work was not noticed");
}
