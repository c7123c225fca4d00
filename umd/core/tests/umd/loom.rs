//! The shipped publish and ring functions over loom's atomics: RING-1 and DB-1, each with the mutant that breaks it.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, fence};
use loom::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use umd_core::mutation::{Chosen, Mutation};
use umd_core::publish::{Publication, Words, publish};
use umd_core::word::{Ordering, Word};

struct Shared(AtomicU64);

impl Word for Shared {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
    fn fence(order: Ordering) {
        fence(order);
    }
}

struct Queue {
    last_queued: Shared,
    write_pointer: Shared,
    doorbell: Shared,
    status: Shared,
    /// A word of the ring.
    packet: AtomicU64,
}

const RETRY: u64 = 2;
const PUBLICATION: Publication = Publication { progress: 1, write_pointer: 64, doorbell: 9 };

impl Queue {
    fn new() -> Arc<Self> {
        let word = || Shared(AtomicU64::new(0));
        Arc::new(Self {
            last_queued: word(),
            write_pointer: word(),
            doorbell: word(),
            status: word(),
            packet: AtomicU64::new(0),
        })
    }

    /// Step 2, then the shipped steps 3 to 5.
    fn submit(&self, mutation: u32) -> u64 {
        let chosen = Chosen::none();
        chosen.set(mutation);
        self.packet.store(42, Ordering::Relaxed);
        let words = Words {
            last_queued: &self.last_queued,
            write_pointer: &self.write_pointer,
            doorbell: &self.doorbell,
            status: &self.status,
        };
        publish(words, PUBLICATION, &chosen)
    }
}

/// Whether loom finds a run that breaks the assertion.
fn breaks(model: impl Fn() + Sync + Send + 'static) -> bool {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = catch_unwind(AssertUnwindSafe(|| loom::model(model)));
    std::panic::set_hook(hook);
    result.is_err()
}

/// An engine that looks at the write pointer, doorbell or not: what it finds is written and known to be queued.
fn engine_looks(mutation: u32) {
    let queue = Queue::new();
    let producer = queue.clone();
    let submit = thread::spawn(move || {
        producer.submit(mutation);
    });
    if queue.write_pointer.load(Ordering::Acquire) == PUBLICATION.write_pointer {
        assert_eq!(queue.packet.load(Ordering::Relaxed), 42, "old packets are executed");
        assert_eq!(queue.last_queued.load(Ordering::Relaxed), 1, "the OS does not know that work is queued");
    }
    submit.join().unwrap();
}

/// An engine that looks at the write pointer when the doorbell rang, and only then.
fn engine_is_rung(mutation: u32) {
    let queue = Queue::new();
    let producer = queue.clone();
    let submit = thread::spawn(move || {
        producer.submit(mutation);
    });
    if queue.doorbell.load(Ordering::Acquire) != 0 {
        let published = queue.write_pointer.load(Ordering::Acquire);
        assert_eq!(published, PUBLICATION.write_pointer, "a ring that shows no work");
    }
    submit.join().unwrap();
}

/// Whoever takes the doorbell away writes RETRY, fences, and looks at the doorbell a last time.
fn doorbell_is_taken_away(mutation: u32) {
    let queue = Queue::new();
    let os = queue.clone();
    let disconnect = thread::spawn(move || {
        os.status.store(RETRY, Ordering::Release);
        fence(Ordering::SeqCst);
        os.doorbell.load(Ordering::Relaxed) != 0
    });
    let status = queue.submit(mutation);
    let seen = disconnect.join().unwrap();
    assert!(seen || status == RETRY, "nobody knows of the ring");
}

#[test]
fn ring_1_work_that_is_visible_is_written_and_queued() {
    assert!(!breaks(|| engine_looks(0)));
    for mutation in [Mutation::PublishRelaxed, Mutation::PublishBeforeLastQueued] {
        assert!(breaks(move || engine_looks(mutation as u32)), "{}", mutation.name());
    }
}

#[test]
fn db_1_a_ring_that_is_seen_shows_its_work() {
    assert!(!breaks(|| engine_is_rung(0)));
    assert!(breaks(|| engine_is_rung(Mutation::RingBeforePublish as u32)));
}

#[test]
fn db_1_a_ring_into_the_dummy_page_reads_retry() {
    assert!(!breaks(|| doorbell_is_taken_away(0)));
    assert!(breaks(|| doorbell_is_taken_away(Mutation::NoStatusBarrier as u32)));
}
