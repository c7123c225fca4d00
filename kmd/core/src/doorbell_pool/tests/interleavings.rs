//! Connections that take doorbells from each other, disconnections and destructions, in the interleavings of their lock
//! sections with up to four preemptions (two threads) or two (three threads): the driver's own functions under loom,
//! with an OS and a GPU of a few words. Each step that keeps two doorbells apart is left out once, and loom must see
//! it.

extern crate std;

use super::super::{Attempt, Hands, Owner, Phase, Place, Places, Pool, Turn};
use gpu_engine::host::Lock;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex, MutexGuard};
use loom::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};

struct LoomLock<T>(Mutex<T>);

impl<T: Send> Lock<T> for LoomLock<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.lock().unwrap())
    }
}

/// Doorbell `.0`, of a process of its own.
#[derive(Clone)]
struct Bell(usize, Arc<AtomicBool>);

impl Owner for Bell {
    fn key(&self) -> u64 {
        self.0 as u64
    }
    fn process(&self) -> u64 {
        self.0 as u64
    }
    fn used(&self) -> u64 {
        0
    }
    fn is_closed(&self) -> bool {
        self.1.load(Ordering::Relaxed)
    }
}

/// The step that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Without {
    Nothing,
    /// A disconnected doorbell's place is free at once, before the OS has rotated the page.
    Draining,
    /// A destruction does not wait for the thread that is taking the place.
    Waiting,
    /// A connection finds its own place in one lock section, and takes it in another.
    OneSection,
    /// A destroyed doorbell may still get a place.
    Closing,
    /// A place that an idle engine gives up is free before the OS has taken it.
    Taking,
}

const BELLS: usize = 3;
const PLACES: usize = 2;

/// What OS and GPU hold.
#[derive(Default)]
struct Words {
    /// Which physical doorbell user mode has behind each doorbell's address.
    page: [Option<usize>; BELLS],
    /// Disconnections of each doorbell, counted.
    generation: [u64; BELLS],
    /// Whose destruction has begun: nothing is rotated in any more.
    is_going: [bool; BELLS],
    /// Whose destruction has ended.
    is_gone: [bool; BELLS],
    /// For which doorbell's queue the GPU watches each physical doorbell.
    watched: [Option<usize>; PLACES],
}

struct World {
    pool: Pool<Bell, LoomLock<Places<Bell>>>,
    words: Mutex<Words>,
    without: Without,
}

impl Hands<Bell> for World {
    fn attach(&self, index: usize, owner: &Bell) {
        let mut words = self.words();
        for (bell, page) in words.page.iter().enumerate() {
            assert!(bell == owner.0 || *page != Some(index), "the page of {bell} is given to {}", owner.0);
        }
        words.watched[index] = Some(owner.0);
    }
    fn detach(&self, index: usize) {
        self.words().watched[index] = None;
    }
    fn take_away(&self, owner: &Bell) -> bool {
        let mut words = self.words();
        assert!(!words.is_gone[owner.0], "the OS is given the handle of a doorbell that is gone");
        (words.page[owner.0], words.generation[owner.0]) = (None, words.generation[owner.0] + 1);
        true
    }
    fn look(&self, _owner: &Bell) {}
    fn count_use(&self) -> u64 {
        0
    }
}

impl World {
    /// A pool of `places` physical doorbells, the first of which `bells` have.
    fn new(places: usize, bells: &[&Bell], without: Without) -> Arc<Self> {
        let world = Self { pool: Pool::new(places).unwrap(), words: Mutex::default(), without };
        world.pool.expect(BELLS).unwrap();
        bells.iter().for_each(|bell| world.connect(bell));
        Arc::new(world)
    }

    fn words(&self) -> MutexGuard<'_, Words> {
        self.words.lock().unwrap()
    }

    fn own(&self, bell: &Bell) -> Option<usize> {
        self.pool.places.with(|places| places.places.iter().position(|place| place.is_of(bell)))
    }

    /// ConnectDoorbell and the rotation behind it, unless a disconnection came in between.
    fn connect(&self, bell: &Bell) {
        let generation = self.words().generation[bell.0];
        if let Some(index) = self.own(bell).filter(|_| self.without == Without::OneSection) {
            drop(self.pool.places.with(|places| places.give(index, bell)));
            self.attach(index, bell);
            self.pool.places.with(|places| places.places[index].phase = Phase::Connected);
            return self.rotate(bell, index, generation);
        }
        let mut turn = Turn::new(u64::MAX);
        let connected = loop {
            match self.pool.connect_in_turn(self, bell, 0, 0, &mut turn) {
                Attempt::Connected(index) => break Some(index),
                Attempt::Changing => thread::yield_now(),
                Attempt::Closed => break None,
                Attempt::Refused => panic!("this OS refuses nothing"),
            }
        };
        self.pool.leave(turn);
        if let Some(index) = connected {
            self.rotate(bell, index, generation);
        }
    }

    fn rotate(&self, bell: &Bell, index: usize, generation: u64) {
        let mut words = self.words();
        if words.generation[bell.0] == generation && !words.is_going[bell.0] {
            let other = words.page.iter().enumerate().find(|(of, page)| *of != bell.0 && **page == Some(index));
            assert!(other.is_none(), "two doorbells have page {index}");
            words.page[bell.0] = Some(index);
        }
    }

    /// The engine of every doorbell is idle.
    fn let_go(&self) {
        if self.without == Without::Taking {
            for index in 0..self.pool.len() {
                let owner = self.pool.places.with(|places| places.free(index));
                if let Some(owner) = owner {
                    self.detach(index);
                    self.take_away(&owner);
                }
            }
            return;
        }
        self.pool.let_go(self, |_| true);
    }

    /// DisconnectDoorbell, and the rotation behind it.
    fn disconnect(&self, bell: &Bell) {
        self.pool.disconnect(self, bell);
        if self.without == Without::Draining {
            drop(self.pool.places.with(|places| {
                let own = |place: &Place<Bell>| place.is_of(bell) && place.phase == Phase::Draining;
                let index = places.places.iter().position(own);
                index.and_then(|index| places.free(index))
            }));
        }
        let mut words = self.words();
        (words.page[bell.0], words.generation[bell.0]) = (None, words.generation[bell.0] + 1);
    }

    /// DisconnectDoorbell and DestroyDoorbell.
    fn destroy(&self, bell: &Bell) {
        self.words().is_going[bell.0] = true;
        self.disconnect(bell);
        if self.without != Without::Closing {
            bell.1.store(true, Ordering::Relaxed);
        }
        if self.without == Without::Waiting {
            if let Some(index) = self.own(bell) {
                self.detach(index);
                drop(self.pool.places.with(|places| places.free(index)));
            }
        } else {
            while !self.pool.release(self, bell) {
                thread::yield_now();
            }
        }
        let mut words = self.words();
        words.is_gone[bell.0] = true;
        assert!(!words.watched.contains(&Some(bell.0)), "the GPU watches for a doorbell that is gone");
    }

    /// What holds when every call has ended.
    fn settled(&self) {
        let words = self.words();
        for (bell, page) in words.page.iter().enumerate() {
            if let Some(index) = page {
                assert_eq!(words.watched[*index], Some(bell), "the GPU does not see {bell} ring");
            }
        }
        self.pool.places.with(|places| {
            for (index, place) in places.places.iter().enumerate() {
                let owner = place.owner.as_ref().map(|owner| owner.0);
                match place.phase {
                    Phase::Free => assert_eq!((owner, words.watched[index]), (None, None)),
                    Phase::Connected => assert_eq!((words.watched[index], owner.is_some()), (owner, true)),
                    Phase::Draining => assert_eq!(words.watched[index], None),
                    other => panic!("{other:?} although no thread is left"),
                }
                assert!(owner.is_none_or(|owner| !words.is_gone[owner]), "a doorbell that is gone has a place");
            }
        });
    }
}

fn bells() -> [Bell; BELLS] {
    core::array::from_fn(|index| Bell(index, Arc::new(AtomicBool::new(false))))
}

/// What a thread does.
type Body = fn(&World, &[Bell; BELLS]);

/// Plays `threads` at once, then looks whether everything is settled.
fn together<const N: usize>(world: &Arc<World>, bells: &[Bell; BELLS], threads: [Body; N]) {
    let spawned = threads.map(|body| {
        let (world, bells) = (world.clone(), bells.clone());
        thread::spawn(move || body(&world, &bells))
    });
    spawned.into_iter().for_each(|thread| thread.join().unwrap());
    world.settled();
}

/// One doorbell is taken by another, and is destroyed.
fn destroyed_while_taken(without: Without) {
    let bells = bells();
    let world = World::new(1, &[&bells[0]], without);
    together(&world, &bells, [|world, bells| world.connect(&bells[1]), |world, bells| world.destroy(&bells[0])]);
}

/// One doorbell is disconnected by the OS while another one wants its place.
fn disconnected_while_taken(without: Without) {
    let bells = bells();
    let world = World::new(1, &[&bells[0]], without);
    together(&world, &bells, [|world, bells| world.connect(&bells[1]), |world, bells| world.disconnect(&bells[0])]);
}

/// Two doorbells connect, one of them again, where there is place for one.
fn two_for_one(without: Without) {
    let bells = bells();
    let world = World::new(1, &[&bells[0]], without);
    world.disconnect(&bells[0]);
    together(&world, &bells, [|world, bells| world.connect(&bells[1]), |world, bells| world.connect(&bells[0])]);
}

/// A doorbell is destroyed while a connection of it is under way.
fn connected_while_destroyed(without: Without) {
    let bells = bells();
    let world = World::new(1, &[], without);
    together(&world, &bells, [|world, bells| world.connect(&bells[0]), |world, bells| world.destroy(&bells[0])]);
}

/// One thread takes, a second destroys, the OS disconnects: on two physical doorbells.
fn three_on_two(without: Without) {
    let bells = bells();
    let world = World::new(2, &[&bells[0], &bells[1]], without);
    let threads: [Body; 3] = [
        |world, bells| world.connect(&bells[2]),
        |world, bells| world.destroy(&bells[0]),
        |world, bells| world.disconnect(&bells[1]),
    ];
    together(&world, &bells, threads);
}

/// A doorbell is let go while the OS disconnects it, or destroys it, or user mode connects it again.
fn let_go_and(other: fn(&World, &[Bell; BELLS]), without: Without) {
    let bells = bells();
    let world = World::new(1, &[&bells[0]], without);
    together(&world, &bells, [|world: &World, _: &[Bell; BELLS]| world.let_go(), other]);
}

fn let_go_while_destroyed(without: Without) {
    let_go_and(|world, bells| world.destroy(&bells[0]), without);
}

/// Another doorbell wants the place, too.
fn let_go_while_taken(without: Without) {
    let_go_and(|world, bells| world.connect(&bells[1]), without);
}

/// It is connected again behind a disconnection of the OS.
fn let_go_while_connected(without: Without) {
    let_go_and(
        |world, bells| {
            world.disconnect(&bells[0]);
            world.connect(&bells[0]);
        },
        without,
    );
}

fn check(preemptions: Option<usize>, f: fn(Without), without: Without) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || f(without));
}

fn caught(f: fn(Without), without: Without) {
    let outcome = catch_unwind(AssertUnwindSafe(|| check(Some(3), f, without)));
    assert!(outcome.is_err(), "{without:?} was not noticed");
}

#[test]
fn pool_1_a_doorbell_is_destroyed_while_it_is_taken() {
    check(Some(4), destroyed_while_taken, Without::Nothing);
}

#[test]
fn pool_1_a_doorbell_is_disconnected_while_it_is_taken() {
    check(Some(4), disconnected_while_taken, Without::Nothing);
}

#[test]
fn pool_1_two_doorbells_want_one_place() {
    check(Some(4), two_for_one, Without::Nothing);
}

#[test]
fn pool_1_a_doorbell_is_destroyed_while_it_connects() {
    check(Some(4), connected_while_destroyed, Without::Nothing);
}

#[test]
fn pool_1_three_threads_on_two_physical_doorbells() {
    check(Some(2), three_on_two, Without::Nothing);
}

#[test]
fn pool_1_a_doorbell_is_let_go_while_it_is_destroyed() {
    check(Some(4), let_go_while_destroyed, Without::Nothing);
}

#[test]
fn pool_1_a_doorbell_is_let_go_while_another_wants_its_place() {
    check(Some(4), let_go_while_taken, Without::Nothing);
}

#[test]
fn pool_1_a_doorbell_is_let_go_while_it_is_disconnected_and_connected() {
    check(Some(4), let_go_while_connected, Without::Nothing);
}

#[test]
fn pool_1_letting_go_takes_before_it_frees() {
    caught(let_go_while_taken, Without::Taking);
}

#[test]
fn pool_1_needs_the_draining() {
    caught(disconnected_while_taken, Without::Draining);
}

#[test]
fn pool_1_needs_the_destruction_to_wait() {
    caught(destroyed_while_taken, Without::Waiting);
}

#[test]
fn pool_1_needs_one_section_for_place_and_owner() {
    caught(two_for_one, Without::OneSection);
}

#[test]
fn pool_1_needs_the_closing() {
    caught(connected_while_destroyed, Without::Closing);
}
