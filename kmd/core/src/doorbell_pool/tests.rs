//! The pool by itself: which doorbell loses its place, and what a process may keep. `interleavings.rs` has connections,
//! disconnections and destructions at the same time.

extern crate std;

mod interleavings;

use super::{Attempt, Hands, Owner, Phase, Places, Pool, Turn};
use gpu_engine::host::Lock;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::vec::Vec;

struct StdLock<T>(Mutex<T>);

impl<T: Send> Lock<T> for StdLock<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.lock().unwrap())
    }
}

/// The number of a use.
fn number() -> u64 {
    static USES: AtomicU64 = AtomicU64::new(1);
    USES.fetch_add(1, Ordering::Relaxed)
}

/// A doorbell of a process.
#[derive(Clone)]
struct Bell {
    key: u64,
    process: u64,
    used: Arc<AtomicU64>,
    closed: Arc<AtomicBool>,
}

impl Bell {
    fn new(key: u64, process: u64) -> Self {
        Self { key, process, used: Arc::default(), closed: Arc::default() }
    }
    fn runs(&self) {
        self.used.store(number(), Ordering::Relaxed);
    }
}

impl Owner for Bell {
    fn key(&self) -> u64 {
        self.key
    }
    fn process(&self) -> u64 {
        self.process
    }
    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

type TestPool = Pool<Bell, StdLock<Places<Bell>>>;

impl TestPool {
    /// One attempt, of a connection that does not wait.
    fn connect(&self, hands: &impl Hands<Bell>, bell: &Bell, now: u64, quota: usize) -> Attempt {
        let mut turn = Turn::new(u64::MAX);
        let attempt = self.connect_in_turn(hands, bell, now, quota, &mut turn);
        self.leave(turn);
        attempt
    }
}

/// What the pool had done, and a time that passes with each connection.
#[derive(Default)]
struct Rig {
    asked: RefCell<Vec<u64>>,
    attached: RefCell<Vec<(usize, u64)>>,
    looked: RefCell<Vec<u64>>,
    /// Doorbells that the OS keeps.
    kept: Vec<u64>,
    now: RefCell<u64>,
}

impl Hands<Bell> for Rig {
    fn attach(&self, index: usize, owner: &Bell) {
        self.attached.borrow_mut().push((index, owner.key));
    }
    fn detach(&self, index: usize) {
        self.attached.borrow_mut().retain(|(at, _)| *at != index);
    }
    fn take_away(&self, owner: &Bell) -> bool {
        self.asked.borrow_mut().push(owner.key);
        !self.kept.contains(&owner.key)
    }
    fn look(&self, owner: &Bell) {
        self.looked.borrow_mut().push(owner.key);
    }
    fn count_use(&self) -> u64 {
        number()
    }
}

impl Rig {
    fn connect_with(&self, pool: &TestPool, bell: &Bell, quota: usize) -> Attempt {
        *self.now.borrow_mut() += 1;
        pool.connect(self, bell, *self.now.borrow(), quota)
    }
    fn connect(&self, pool: &TestPool, bell: &Bell) -> Attempt {
        self.connect_with(pool, bell, 0)
    }
    fn asked(&self) -> Vec<u64> {
        self.asked.take()
    }
}

/// A pool, and `bells` connected in this order.
fn full(len: usize, bells: &[Bell]) -> (Rig, TestPool) {
    let (rig, pool) = (Rig::default(), TestPool::new(len).unwrap());
    for (index, bell) in bells.iter().enumerate() {
        assert_eq!(rig.connect(&pool, bell), Attempt::Connected(index));
    }
    assert!(rig.asked().is_empty(), "no doorbell is taken while one is free");
    (rig, pool)
}

fn bells<const N: usize>(process: u64) -> [Bell; N] {
    core::array::from_fn(|index| Bell::new(process * 100 + index as u64, process))
}

#[test]
fn the_least_recently_used_of_three_goes_first() {
    let [a, b, c, d, e, f] = bells(1);
    let (rig, pool) = full(3, &[a.clone(), b.clone(), c.clone()]);
    a.runs();
    c.runs();
    assert_eq!(rig.connect(&pool, &d), Attempt::Connected(1));
    assert_eq!(rig.asked(), [b.key]);
    assert_eq!(rig.looked.take(), [b.key], "its work is looked at once more");
    // `a` was used behind the connection of `d`.
    a.runs();
    assert_eq!(rig.connect(&pool, &e), Attempt::Connected(2));
    assert_eq!(rig.asked(), [c.key]);
    assert_eq!(rig.connect(&pool, &f), Attempt::Connected(1));
    assert_eq!(rig.asked(), [d.key]);
}

/// However many were used since the last connection, and in whatever order they are connected.
#[test]
fn among_those_that_are_all_in_use_the_one_that_was_used_first_goes() {
    let [a, b, c, d, e, f] = bells(1);
    let (rig, pool) = full(3, &[a.clone(), b.clone(), c.clone()]);
    let rounds = [(&d, [&c, &b, &a], &c), (&e, [&d, &a, &b], &d), (&f, [&b, &e, &a], &b), (&c, [&e, &f, &a], &e)];
    for (new, uses, victim) in rounds {
        uses.into_iter().for_each(Bell::runs);
        assert!(matches!(rig.connect(&pool, new), Attempt::Connected(_)));
        assert_eq!(rig.asked(), [victim.key]);
    }
}

#[test]
fn a_connected_doorbell_keeps_its_place() {
    let [a, b] = bells(1);
    let (rig, pool) = full(2, &[a.clone(), b]);
    assert_eq!(rig.connect(&pool, &a), Attempt::Connected(0));
    pool.disconnect(&rig, &a);
    assert_eq!(*rig.attached.borrow(), [(1, 101)], "the GPU lets go of a disconnected doorbell");
    assert_eq!(rig.connect(&pool, &a), Attempt::Connected(0), "and the same place is its own again");
    assert!(rig.asked().is_empty());
}

#[test]
fn a_draining_place_is_not_free_and_goes_first() {
    let [a, b, c] = bells(1);
    let (rig, pool) = full(2, &[a, b.clone()]);
    pool.disconnect(&rig, &b);
    // Its rotation is not proved: the OS is asked, although `a` is used less recently.
    assert_eq!(rig.connect(&pool, &c), Attempt::Connected(1));
    assert_eq!(rig.asked(), [b.key]);
}

#[test]
fn a_destroyed_doorbell_leaves_a_free_place_and_gets_none() {
    let [a, b, c] = bells(1);
    let (rig, pool) = full(2, &[a.clone(), b]);
    a.closed.store(true, Ordering::Relaxed);
    assert!(pool.release(&rig, &a));
    assert_eq!(rig.connect(&pool, &a), Attempt::Closed);
    assert_eq!(rig.connect(&pool, &c), Attempt::Connected(0));
    assert!(rig.asked().is_empty());
}

#[test]
fn what_the_os_keeps_is_not_asked_for_again_while_there_are_others() {
    let [a, b, c, d] = bells(1);
    let (mut rig, pool) = full(2, &[a.clone(), b.clone()]);
    rig.kept = [a.key, b.key].into();
    assert_eq!(rig.connect(&pool, &c), Attempt::Refused);
    assert_eq!(rig.connect(&pool, &c), Attempt::Refused);
    assert_eq!(rig.asked(), [a.key, b.key]);
    assert_eq!(*rig.attached.borrow(), [(0, a.key), (1, b.key)], "both have what they had");
    rig.kept = [a.key].into();
    assert_eq!(rig.connect(&pool, &c), Attempt::Refused);
    assert_eq!(rig.connect(&pool, &c), Attempt::Connected(1));
    assert_eq!(rig.asked(), [a.key, b.key]);
    // A place has changed hands: the OS may have changed its mind. `a` was seen later than `b`, which is gone.
    rig.kept.clear();
    assert_eq!(rig.connect(&pool, &d), Attempt::Connected(0));
}

/// What the OS keeps is passed over although its process has more than its share: another's goes.
#[test]
fn what_the_os_keeps_of_a_process_over_its_share_is_passed_over() {
    let ([a, b], [c], [d]) = (bells(1), bells(2), bells(3));
    let (mut rig, pool) = full(3, &[a.clone(), b.clone(), c.clone()]);
    rig.kept = [a.key, b.key].into();
    assert_eq!(rig.connect(&pool, &d), Attempt::Refused);
    assert_eq!(rig.connect(&pool, &d), Attempt::Refused);
    assert_eq!(rig.connect(&pool, &d), Attempt::Connected(2));
    assert_eq!(rig.asked(), [a.key, b.key, c.key]);
}

/// A process with many queues holds every physical doorbell; a second one connects.
#[test]
fn a_process_may_have_all_until_another_wants_one() {
    let greedy: [Bell; 6] = bells(1);
    let [b0, b1, b2] = bells(2);
    let (rig, pool) = full(4, &greedy[..4]);
    // The newcomer takes the least recently used ones of the process with more than its share, two of four.
    greedy[0].runs();
    assert_eq!(rig.connect(&pool, &b0), Attempt::Connected(1));
    assert_eq!(rig.connect(&pool, &b1), Attempt::Connected(2));
    assert_eq!(rig.asked(), [greedy[1].key, greedy[2].key]);
    // Each has its share: more is taken from the taker's own process, though others were used less recently.
    b0.runs();
    b1.runs();
    assert!(matches!(rig.connect(&pool, &greedy[4]), Attempt::Connected(0 | 3)));
    assert!(matches!(rig.connect(&pool, &greedy[5]), Attempt::Connected(0 | 3)));
    assert!(rig.asked().iter().all(|key| *key < 200), "a doorbell within its process's share was taken");
    [&greedy[4], &greedy[5]].into_iter().for_each(Bell::runs);
    assert_eq!(rig.connect(&pool, &b2), Attempt::Connected(1));
    assert_eq!(rig.asked(), [b0.key]);
}

#[test]
fn a_quota_counts_instead_of_the_even_share() {
    let greedy: [Bell; 3] = bells(1);
    let [other] = bells(2);
    let (rig, pool) = full(4, &[greedy[0].clone(), greedy[1].clone(), greedy[2].clone(), other.clone()]);
    [&greedy[0], &greedy[1], &greedy[2]].into_iter().for_each(Bell::runs);
    let [third, fourth] = bells(3);
    // With a quota of three no process has too many, and the least recently used one of all goes.
    assert_eq!(rig.connect_with(&pool, &third, 3), Attempt::Connected(3));
    assert_eq!(rig.asked(), [other.key]);
    // With one of two the first process has.
    third.runs();
    assert_eq!(rig.connect_with(&pool, &fourth, 2), Attempt::Connected(0));
    assert_eq!(rig.asked(), [greedy[0].key]);
}

#[test]
fn with_more_processes_than_doorbells_the_least_recently_used_of_all_goes() {
    let all: [Bell; 5] = core::array::from_fn(|index| Bell::new(index as u64, index as u64));
    let (rig, pool) = full(4, &all[..4]);
    all[0].runs();
    assert_eq!(rig.connect(&pool, &all[4]), Attempt::Connected(1));
    assert_eq!(rig.asked(), [1]);
}

/// Calls `then` while the OS is asked for a page.
struct During<'a, F: Fn()> {
    rig: &'a Rig,
    then: F,
    takes: bool,
}

impl<F: Fn()> Hands<Bell> for During<'_, F> {
    fn attach(&self, index: usize, owner: &Bell) {
        self.rig.attach(index, owner);
    }
    fn detach(&self, index: usize) {
        self.rig.detach(index);
    }
    fn take_away(&self, _owner: &Bell) -> bool {
        (self.then)();
        self.takes
    }
    fn look(&self, owner: &Bell) {
        self.rig.look(owner);
    }
    fn count_use(&self) -> u64 {
        number()
    }
}

fn phase(pool: &TestPool, index: usize) -> Phase {
    pool.places.with(|places| places.places[index].phase)
}

#[test]
fn a_doorbell_that_loses_its_place_may_connect_elsewhere_before_the_os_has_answered() {
    let [a, b, c] = bells(1);
    let (rig, pool) = full(2, &[a.clone(), b.clone()]);
    let then = || assert_eq!(rig.connect(&pool, &a), Attempt::Connected(1));
    let during = During { rig: &rig, then, takes: true };
    assert_eq!(pool.connect(&during, &c, 9, 0), Attempt::Connected(0));
    assert_eq!(rig.asked(), [b.key]);
    assert_eq!(*rig.attached.borrow(), [(1, a.key), (0, c.key)]);
    assert_eq!(rig.looked.take(), [b.key], "its new connection has looked at its work");
}

#[test]
fn a_doorbell_that_the_os_keeps_has_one_place() {
    let [a, b, c] = bells(1);
    let (rig, pool) = full(2, &[a.clone(), b.clone()]);
    let then = || assert_eq!(rig.connect(&pool, &a), Attempt::Connected(1));
    let during = During { rig: &rig, then, takes: false };
    assert_eq!(pool.connect(&during, &c, 9, 0), Attempt::Refused);
    assert_eq!((phase(&pool, 0), phase(&pool, 1)), (Phase::Draining, Phase::Connected));
    assert_eq!(*rig.attached.borrow(), [(1, a.key)]);
    assert_eq!(rig.connect(&pool, &a), Attempt::Connected(1));
    assert_eq!(phase(&pool, 0), Phase::Free, "the call proves what the place was waiting for");
}

#[test]
fn a_disconnection_while_the_os_is_asked_counts_when_the_os_refuses() {
    let [a, b] = bells(1);
    let (rig, pool) = full(1, core::slice::from_ref(&a));
    let during = During { rig: &rig, then: || pool.disconnect(&rig, &a), takes: false };
    assert_eq!(pool.connect(&during, &b, 9, 0), Attempt::Refused);
    assert_eq!(phase(&pool, 0), Phase::Draining);
    assert!(rig.attached.borrow().is_empty());
}

#[test]
fn a_doorbell_that_is_destroyed_while_it_is_being_taken_waits_and_leaves_nothing() {
    for takes in [true, false] {
        let [a, b] = bells(1);
        let (rig, pool) = full(1, core::slice::from_ref(&a));
        let then = || {
            a.closed.store(true, Ordering::Relaxed);
            assert!(!pool.release(&rig, &a), "it ended while the OS was asked for it");
        };
        let attempt = pool.connect(&During { rig: &rig, then, takes }, &b, 9, 0);
        assert_eq!(attempt, if takes { Attempt::Connected(0) } else { Attempt::Refused });
        assert!(pool.release(&rig, &a));
        assert_eq!(rig.connect(&pool, &b), Attempt::Connected(0));
        assert_eq!(*rig.attached.borrow().last().unwrap(), (0, b.key));
    }
}

#[test]
fn a_doorbell_that_is_destroyed_while_it_takes_gets_nothing() {
    let [a, b] = bells(1);
    let (rig, pool) = full(1, core::slice::from_ref(&a));
    let then = || {
        b.closed.store(true, Ordering::Relaxed);
        assert!(pool.release(&rig, &b));
    };
    let during = During { rig: &rig, then, takes: true };
    assert_eq!(pool.connect(&during, &b, 9, 0), Attempt::Closed);
    assert_eq!(phase(&pool, 0), Phase::Free);
    assert!(rig.attached.borrow().is_empty());
}

#[test]
fn while_every_place_is_being_taken_a_connection_is_told_to_wait() {
    let [a, b, c] = bells(1);
    let (rig, pool) = full(1, &[a]);
    let during = During { rig: &rig, then: || assert_eq!(rig.connect(&pool, &c), Attempt::Changing), takes: true };
    assert_eq!(pool.connect(&during, &b, 9, 0), Attempt::Connected(0));
    assert_eq!(rig.connect(&pool, &c), Attempt::Connected(0));
}

#[test]
fn doorbells_that_may_go_are_taken_back_and_their_places_are_free() {
    let [a, b, c] = bells(1);
    let (mut rig, pool) = full(3, &[a.clone(), b.clone(), c.clone()]);
    pool.let_go(&rig, |bell| bell.key != b.key);
    assert_eq!((rig.asked(), rig.looked.take()), (std::vec![a.key, c.key], std::vec![a.key, c.key]));
    assert_eq!(rig.attached.borrow().as_slice(), [(1, b.key)]);
    assert_eq!(rig.connect(&pool, &c), Attempt::Connected(0), "the first free one");
    // One that the OS keeps stays connected, and is not asked for again until a place has changed hands.
    rig.kept = std::vec![b.key];
    pool.let_go(&rig, |bell| bell.key == b.key);
    pool.let_go(&rig, |bell| bell.key == b.key);
    assert_eq!(rig.asked(), [b.key]);
    assert_eq!(rig.attached.borrow().as_slice(), [(1, b.key), (0, c.key)]);
}

#[test]
fn a_pool_grows() {
    let [a, b] = bells(1);
    let (rig, pool) = full(1, core::slice::from_ref(&a));
    pool.have(2).unwrap();
    assert_eq!((rig.connect(&pool, &b), pool.len()), (Attempt::Connected(1), 2));
    pool.have(1).unwrap();
    assert_eq!((pool.len(), rig.asked().is_empty()), (2, true));
}

/// A destruction that did not wait any longer leaves its doorbell to the thread that takes it: the place is free,
/// whatever the OS has answered.
#[test]
fn the_place_of_a_destroyed_doorbell_is_free_when_it_was_not_taken() {
    let [a, b] = bells(1);
    let (mut rig, pool) = full(1, std::slice::from_ref(&a));
    rig.kept = std::vec![a.key];
    a.closed.store(true, Ordering::Relaxed);
    assert_eq!(rig.connect(&pool, &b), Attempt::Refused);
    assert!(rig.attached.borrow().is_empty(), "the GPU still looks for its rings");
    assert!(pool.release(&rig, &a));
    assert_eq!(rig.connect(&pool, &b), Attempt::Connected(0));
    assert_eq!(rig.asked(), [a.key], "it is not taken again");
}

/// While a place is being changed, two connections come; behind the change others do, as of a process that has many
/// threads.
#[test]
fn one_that_waits_is_passed_by_none_that_comes_later() {
    let [a, b, c, d] = bells(1);
    let [waits, also] = bells(2);
    let (rig, pool) = full(1, core::slice::from_ref(&a));
    pool.expect(8).unwrap();
    let turns = RefCell::new([Turn::new(u64::MAX), Turn::new(u64::MAX)]);
    let attempt = |bell: &Bell, at: usize| pool.connect_in_turn(&rig, bell, 5, 0, &mut turns.borrow_mut()[at]);
    let then = || {
        assert_eq!(attempt(&waits, 0), Attempt::Changing);
        assert_eq!(attempt(&also, 1), Attempt::Changing);
    };
    let during = During { rig: &rig, then, takes: true };
    assert_eq!(pool.connect(&during, &b, 4, 0), Attempt::Connected(0));
    // The place is to be had, and is for those that wait, in their order.
    for later in [&c, &d, &c, &d] {
        assert_eq!(pool.connect(&rig, later, 6, 0), Attempt::Changing);
    }
    assert_eq!(attempt(&also, 1), Attempt::Changing);
    assert_eq!(attempt(&waits, 0), Attempt::Connected(0));
    // A doorbell that has a place has it out of turn.
    assert_eq!(pool.connect(&rig, &waits, 7, 0), Attempt::Connected(0));
    assert_eq!(pool.connect(&rig, &c, 8, 0), Attempt::Changing);
    assert_eq!(attempt(&also, 1), Attempt::Connected(0));
    assert_eq!(pool.connect(&rig, &c, 9, 0), Attempt::Connected(0));
}

/// A thread that does not run has no place kept for it, and its turn when it runs again.
#[test]
fn one_that_does_not_look_keeps_nobody_waiting() {
    let [a, b, c, d] = bells(1);
    let [waits] = bells(2);
    let (rig, pool) = full(1, core::slice::from_ref(&a));
    pool.expect(8).unwrap();
    let turn = RefCell::new(Turn::new(20));
    let attempt = |now| pool.connect_in_turn(&rig, &waits, now, 0, &mut turn.borrow_mut());
    let then = || assert_eq!(attempt(5), Attempt::Changing);
    assert_eq!(pool.connect(&During { rig: &rig, then, takes: true }, &b, 4, 0), Attempt::Connected(0));
    let later = |bell, now| {
        let mut turn = Turn::new(20);
        let attempt = pool.connect_in_turn(&rig, bell, now, 0, &mut turn);
        pool.leave(turn);
        attempt
    };
    assert_eq!(later(&c, 25), Attempt::Changing);
    assert_eq!(later(&c, 26), Attempt::Connected(0));
    let again = || assert_eq!(attempt(27), Attempt::Changing);
    let during = During { rig: &rig, then: again, takes: true };
    assert_eq!(pool.connect_in_turn(&during, &d, 27, 0, &mut Turn::new(20)), Attempt::Connected(0));
    assert_eq!(later(&c, 28), Attempt::Changing);
    assert_eq!(attempt(28), Attempt::Connected(0));
    assert_eq!(pool.places.with(|places| places.waiting.len()), 0, "nobody waits");
}

/// One that gives up lets the others on.
#[test]
fn one_that_leaves_keeps_nobody_waiting() {
    let [a, b, c] = bells(1);
    let [waits] = bells(2);
    let (rig, pool) = full(1, core::slice::from_ref(&a));
    pool.expect(8).unwrap();
    let turn = RefCell::new(Turn::new(u64::MAX));
    let then = || {
        let attempt = pool.connect_in_turn(&rig, &waits, 5, 0, &mut turn.borrow_mut());
        assert_eq!(attempt, Attempt::Changing);
    };
    assert_eq!(pool.connect(&During { rig: &rig, then, takes: true }, &b, 4, 0), Attempt::Connected(0));
    assert_eq!(pool.connect(&rig, &c, 6, 0), Attempt::Changing);
    pool.leave(turn.into_inner());
    assert_eq!(pool.connect(&rig, &c, 7, 0), Attempt::Connected(0));
}
