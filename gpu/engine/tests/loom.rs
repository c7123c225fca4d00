//! The ordering contracts, every interleaving and every reordering that the memory model allows: the driver's own
//! functions over loom's atomics. Each contract is also broken once, and loom must see it: a test that cannot fail proves
//! nothing.
//!
//! The search has no bound: all of it takes under a second.

#![expect(unsafe_code, reason = "the host's mapping type must exist, though none is made")]

use gpu_engine::NoMemory;
use gpu_engine::fence::{self, Fence, Park, ParkingLot};
use gpu_engine::fence_log::{self, Barriers, Entry, Position, Target};
use gpu_engine::handshake::{Control, Handshake, Phase};
use gpu_engine::host::{Host, Lock, Unmapped};
use gpu_engine::memory::{Mapping, Span};
use gpu_engine::mutation::{Chosen, Mutation};
use gpu_engine::notice::{Mailbox, Notice};
use gpu_engine::slots::{SlotId, SlotTable};
use gpu_engine::wake::{Mark, Sleep};
use gpu_engine::word::{Ordering, Word};
use gpu_wire::NodeOrdinal;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A word of loom's.
struct W(AtomicU64);

impl Word for W {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.0.swap(value, order)
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, order)
    }
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_sub(value, order)
    }
    fn fence(order: Ordering) {
        loom::sync::atomic::fence(order);
    }
}

fn word(value: u64) -> Arc<W> {
    Arc::new(W(AtomicU64::new(value)))
}

struct LoomLock<T>(loom::sync::Mutex<T>);

impl<T: Send> Lock<T> for LoomLock<T> {
    fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.lock().unwrap())
    }
}

/// Only its words and locks are used.
struct LoomHost;

/// Never made.
enum NoMapping {}

// SAFETY: there is no value of this type.
unsafe impl Mapping for NoMapping {
    fn base(&self) -> *mut u8 {
        match *self {}
    }
    fn len(&self) -> u64 {
        match *self {}
    }
}

impl Host for LoomHost {
    type Lock<T: Send> = LoomLock<T>;
    type Word = W;
    type Mapping = NoMapping;
    fn word(value: u64) -> W {
        W(AtomicU64::new(value))
    }
    fn map_system(&self, _frames: &[u64], _write: bool) -> Result<NoMapping, Unmapped> {
        Err(Unmapped::NoMemory)
    }
    fn local(&self, _page: u64) -> Option<Span<'static>> {
        None
    }
    fn clock(&self) -> u64 {
        0
    }
    fn clock_frequency(&self) -> u64 {
        1
    }
    fn kick(&self, _node: NodeOrdinal) {}
    fn raise_interrupt(&self, _node: NodeOrdinal) -> bool {
        true
    }
}

fn check(f: impl Fn() + Sync + Send + 'static) {
    loom::model::Builder::new().check(f);
}

/// Runs `f` under loom with `mutation`, and requires that some execution fails.
fn caught(mutation: Mutation, f: fn(u32)) {
    let outcome = catch_unwind(AssertUnwindSafe(|| check(move || f(mutation as u32))));
    assert!(outcome.is_err(), "{} was not noticed", mutation.name());
}

fn chosen(mutation: u32) -> Arc<Chosen> {
    let chosen = Chosen::none();
    chosen.set(mutation);
    Arc::new(chosen)
}

/// A signal of 5 against a CPU waiter for 5 that is being added: the OS lowers MonitoredValue to 4, then reads
/// CurrentValue. MR-01.
fn fence_1(mutation: u32) {
    let (current, monitored) = (word(0), word(u64::MAX));
    let mutation = chosen(mutation);
    let engine = {
        let (current, monitored, mutation) = (current.clone(), monitored.clone(), mutation.clone());
        loom::thread::spawn(move || {
            if mutation.is(Mutation::NotifyBeforeValue) {
                fence::resolve::<W>(&mutation);
                let wants = fence::wants_interrupt(&*monitored, 5);
                fence::store_current(&*current, 5);
                return wants;
            }
            fence::store_current(&*current, 5);
            fence::resolve::<W>(&mutation);
            fence::wants_interrupt(&*monitored, 5)
        })
    };
    fence::store_monitored(&*monitored, 4, &mutation);
    let seen = current.load(Ordering::Acquire);
    let interrupted = engine.join().unwrap();
    assert!(seen >= 5 || interrupted, "the wake is lost");
}

#[test]
fn fence_1_no_wake_is_lost() {
    check(|| fence_1(0));
}

#[test]
fn fence_1_needs_the_barrier_of_the_signal() {
    caught(Mutation::NoSignalBarrier, fence_1);
}

#[test]
fn fence_1_needs_the_barrier_of_the_update() {
    caught(Mutation::NoMonitoredBarrier, fence_1);
}

#[test]
fn fence_1_needs_the_value_before_the_decision() {
    caught(Mutation::NotifyBeforeValue, fence_1);
}

/// An engine that signals 5 with shadow state: it signals the context management processor, which decides. Whether it interrupts.
fn signal_by_shadow(shadow: &fence::Shadow<W>, monitored: &W, mutation: &Chosen) -> bool {
    shadow.signaled(5);
    fence::resolve::<W>(mutation);
    shadow.signals_cmp(5) && fence::wants_interrupt(monitored, 5)
}

/// The same with the shadow state: the OS re-reads nothing, the context management processor does. `changes`: the MonitoredValues that the
/// OS writes meanwhile; the last is that of a waiter for 5.
fn fence_1_with_shadow(mutation: u32, changes: &[u64]) {
    let shadow = Arc::new(fence::Shadow::new(|v| W(AtomicU64::new(v))));
    let monitored = word(u64::MAX);
    let mutation = chosen(mutation);
    let engine = {
        let (shadow, monitored, mutation) = (shadow.clone(), monitored.clone(), mutation.clone());
        loom::thread::spawn(move || signal_by_shadow(&shadow, &monitored, &mutation))
    };
    let update = |value| fence::update_monitored(&*monitored, Some(&*shadow), value, &mutation);
    let due = changes.iter().fold(false, |_, value| update(*value));
    assert!(engine.join().unwrap() || due, "the wake is lost");
}

fn fence_1_shadow(mutation: u32) {
    fence_1_with_shadow(mutation, &[4]);
}

/// A waiter leaves and comes back: the shadow may be older than the OS's word, or the word than the shadow.
fn fence_1_shadow_moves(mutation: u32) {
    fence_1_with_shadow(mutation, &[u64::MAX, 4]);
}

#[test]
fn fence_1_holds_with_the_shadow_too() {
    check(|| fence_1_shadow(0));
    check(|| fence_1_shadow_moves(0));
}

#[test]
fn fence_1_the_shadow_needs_the_word_before_it() {
    caught(Mutation::ShadowFirst, fence_1_shadow);
}

#[test]
fn fence_1_the_shadow_needs_its_second_look() {
    caught(Mutation::ShadowNotRechecked, fence_1_shadow);
}

#[test]
fn fence_1_the_shadow_needs_both_barriers() {
    caught(Mutation::NoSignalBarrier, fence_1_shadow);
    caught(Mutation::NoMonitoredBarrier, fence_1_shadow);
}

/// A queue that parks for 5 against a signal of 5.
fn park_1(mutation: u32) {
    let current = word(0);
    let lot = Arc::new(ParkingLot::<LoomHost, u32>::new());
    let mutation = chosen(mutation);
    let signal = {
        let (current, lot, mutation) = (current.clone(), lot.clone(), mutation.clone());
        loom::thread::spawn(move || {
            fence::store_current(&*current, 5);
            fence::resolve::<W>(&mutation);
            lot.wake(5, |_, _| ()) == 1
        })
    };
    let parked = lot.park(5, 1, 7, &mutation, || current.load(Ordering::Acquire) < 5);
    let woken = signal.join().unwrap();
    match parked {
        Ok(Park::Parked) => assert!(woken, "the queue sleeps for ever"),
        Ok(Park::Met) => assert!(!woken, "the queue would run twice"),
        Err(NoMemory) => unreachable!(),
    }
    assert!(lot.is_empty());
}

#[test]
fn park_1_no_queue_sleeps_for_ever_or_runs_twice() {
    check(|| park_1(0));
}

#[test]
fn park_1_needs_the_second_look() {
    caught(Mutation::NoParkRecheck, park_1);
}

#[test]
fn park_1_needs_the_barrier_of_the_signal() {
    caught(Mutation::NoSignalBarrier, park_1);
}

const ENTRY: Entry = Entry { value: 5, handle: 0x4000_0001, operation: 0, observed: 11, end: 12 };

/// The engine appends an entry; the OS, whom no interrupt brought, reads the position and, if it counts the entry, calls
/// `DxgkDdiUpdateNativeFenceLogs` in the variant that needs it, and reads the entry. LB-02, LB-06.
fn log_1(mutation: u32, barriers: Barriers) {
    let position = word(0);
    let log = Arc::new(LoomLock::new(()));
    let entry: Arc<[W; 4]> = Arc::new(std::array::from_fn(|_| W(AtomicU64::new(0))));
    let mutation = chosen(mutation);
    let engine = {
        let (position, entry, log, mutation) = (position.clone(), entry.clone(), log.clone(), mutation.clone());
        loom::thread::spawn(move || {
            let target = Target { position: &*position, entry: std::array::from_fn(|i| &entry[i]) };
            // As `Log::write` is called: under the log's lock.
            log.with(|()| fence_log::append(&target, &ENTRY, Position { index: 1, wraps: 0 }, barriers, &mutation));
            fence::resolve::<W>(&mutation);
        })
    };
    let at = Position::unpack(position.load(match barriers {
        Barriers::Two => Ordering::Acquire,
        Barriers::OneInUpdate => Ordering::Relaxed,
    }));
    if barriers == Barriers::OneInUpdate {
        fence_log::flush(&*log, &mutation);
    }
    if at.index == 1 {
        assert_eq!(entry[0].load(Ordering::Relaxed), 5, "the value of a counted entry");
        assert_eq!(entry[1].load(Ordering::Relaxed), 0x4000_0001, "the handle of a counted entry");
        assert_eq!(entry[3].load(Ordering::Relaxed), 12, "the end timestamp of a counted entry");
    }
    engine.join().unwrap();
}

#[test]
fn log_1_a_counted_entry_is_whole() {
    check(|| log_1(0, Barriers::Two));
    check(|| log_1(0, Barriers::OneInUpdate));
}

#[test]
fn log_1_with_one_barrier_needs_the_flush() {
    caught(Mutation::NoLogBarrier, |m| log_1(m, Barriers::OneInUpdate));
}

/// Nothing orders entry and index in that variant, so the other order is none of its bugs.
#[test]
fn log_1_with_one_barrier_the_flush_is_all_it_takes() {
    check(|| log_1(Mutation::IndexBeforeEntry as u32, Barriers::OneInUpdate));
}

#[test]
fn log_1_needs_the_entry_before_the_index() {
    caught(Mutation::IndexBeforeEntry, |m| log_1(m, Barriers::Two));
}

/// LOG-1 and FENCE-1 together: whoever is interrupted finds the entry. Both barrier variants.
fn log_then_interrupt(mutation: u32, barriers: Barriers) {
    let (current, monitored, position) = (word(0), word(4), word(0));
    let entry: Arc<[W; 4]> = Arc::new(std::array::from_fn(|_| W(AtomicU64::new(0))));
    let mailbox = Arc::new(Mailbox::new(2, |v| W(AtomicU64::new(v))).unwrap());
    let log = Arc::new(LoomLock::new(()));
    let mutation = chosen(mutation);
    let engine = {
        let (position, entry, mailbox, mutation) = (position.clone(), entry.clone(), mailbox.clone(), mutation.clone());
        let log = log.clone();
        loom::thread::spawn(move || {
            let target = Target { position: &*position, entry: std::array::from_fn(|i| &entry[i]) };
            let next = Position { index: 1, wraps: 0 };
            let append = || log.with(|()| fence_log::append(&target, &ENTRY, next, barriers, &mutation));
            fence::store_current(&*current, 5);
            if !mutation.is(Mutation::NotifyBeforeValue) {
                append();
            }
            fence::resolve::<W>(&mutation);
            if fence::wants_interrupt(&*monitored, 5) {
                mailbox.push(Notice::FencesSignaled);
                mailbox.request();
            }
            if mutation.is(Mutation::NotifyBeforeValue) {
                append();
            }
        })
    };
    let mut notices = 0;
    mailbox.drain(|_| notices += 1);
    if notices == 1 {
        fence_log::flush(&*log, &mutation);
        let at = Position::unpack(position.load(Ordering::Acquire));
        assert_eq!(at.index, 1, "the interrupt came before its entry");
        assert_eq!(entry[0].load(Ordering::Relaxed), 5);
    }
    engine.join().unwrap();
}

#[test]
fn log_1_the_entry_is_there_when_the_interrupt_is() {
    check(|| log_then_interrupt(0, Barriers::Two));
    check(|| log_then_interrupt(0, Barriers::OneInUpdate));
}

#[test]
fn log_1_needs_the_entry_before_the_notification() {
    caught(Mutation::NotifyBeforeValue, |m| log_then_interrupt(m, Barriers::Two));
}

/// The engine posts two notices; the interrupt routine runs once for each request that it was raised for. Nothing may stay
/// behind. `withdraw_late`: the routine withdraws the request after it emptied the mailbox, which is the bug IRQ-1 forbids.
fn irq_1(withdraw_late: bool) {
    let mailbox = Arc::new(Mailbox::new(2, |v| W(AtomicU64::new(v))).unwrap());
    let raised = word(0);
    let engine = {
        let (mailbox, raised) = (mailbox.clone(), raised.clone());
        loom::thread::spawn(move || {
            for _ in 0..2 {
                assert!(mailbox.push(Notice::FencesSignaled));
                if mailbox.request() {
                    raised.fetch_add(1, Ordering::AcqRel);
                }
            }
        })
    };
    // The line is level: as long as there are requests that no routine has served, the routine runs again.
    let mut seen = 0;
    let mut served = 0;
    let routine = |seen: &mut u32| {
        if withdraw_late {
            mailbox.empty(|_| *seen += 1);
            mailbox.withdraw();
        } else {
            mailbox.drain(|_| *seen += 1);
        }
    };
    if raised.load(Ordering::Acquire) > served {
        served += 1;
        routine(&mut seen);
    }
    engine.join().unwrap();
    while raised.load(Ordering::Acquire) > served {
        served += 1;
        routine(&mut seen);
    }
    assert_eq!(seen, 2, "a notice stays in the mailbox");
}

#[test]
fn irq_1_no_notice_stays_behind() {
    check(|| irq_1(false));
}

#[test]
fn irq_1_needs_the_withdrawal_first() {
    let outcome = catch_unwind(AssertUnwindSafe(|| check(|| irq_1(true))));
    assert!(outcome.is_err(), "the late withdrawal was not noticed");
}

/// An engine that works until it is told to hold, against the reset that waits for it and then reads memory.
fn reset_1(mutation: u32) {
    let memory = word(0);
    let handshake = Arc::new(Handshake::new(|v| W(AtomicU64::new(v))));
    let mutation = chosen(mutation);
    let engine = {
        let (memory, handshake) = (memory.clone(), handshake.clone());
        loom::thread::spawn(move || {
            let mut stores = 0;
            while stores < 2 && handshake.told() == Control::Run {
                stores += 1;
                memory.store(stores, Ordering::Relaxed);
            }
            handshake.say(Phase::Held, &mutation);
            stores
        })
    };
    handshake.tell(Control::Hold);
    if handshake.phase() == Phase::Held {
        let seen = memory.load(Ordering::Relaxed);
        assert_eq!(engine.join().unwrap(), seen, "a store of what the reset declared dead");
    } else {
        engine.join().unwrap();
    }
}

#[test]
fn reset_1_a_held_engine_stores_nothing() {
    check(|| reset_1(0));
}

#[test]
fn reset_1_needs_the_release() {
    caught(Mutation::HoldsRelaxed, reset_1);
}

/// An engine that held goes on, while a second reset tells it to hold.
fn reset_again(mutation: u32) {
    let memory = word(0);
    let handshake = Arc::new(Handshake::new(|v| W(AtomicU64::new(v))));
    let mutation = chosen(mutation);
    handshake.say(Phase::Held, &mutation);
    let engine = {
        let (memory, handshake) = (memory.clone(), handshake.clone());
        loom::thread::spawn(move || {
            // It was told to run; the second hold comes now or later.
            if handshake.told() == Control::Run && handshake.run(&mutation) {
                memory.store(1, Ordering::Relaxed);
                handshake.say(Phase::Held, &mutation);
            }
        })
    };
    handshake.tell(Control::Hold);
    if handshake.phase() == Phase::Held {
        let seen = memory.load(Ordering::Relaxed);
        engine.join().unwrap();
        assert_eq!(memory.load(Ordering::Relaxed), seen, "a store after the engine was believed to hold");
    } else {
        engine.join().unwrap();
    }
}

#[test]
fn reset_1_a_second_reset_is_not_answered_from_before() {
    check(|| reset_again(0));
}

#[test]
fn reset_1_needs_the_second_look() {
    caught(Mutation::RunsUnasked, reset_again);
}

/// Work is added while the engine goes to sleep.
fn wake_1(mutation: u32) {
    let work = word(0);
    let sleep = Arc::new(Sleep::new(|v| W(AtomicU64::new(v))));
    let mutation = chosen(mutation);
    let engine = {
        let (work, sleep) = (work.clone(), sleep.clone());
        loom::thread::spawn(move || {
            sleep.prepare(&mutation);
            // The last look, as `Core::prepare_sleep` does.
            work.load(Ordering::Relaxed) != 0
        })
    };
    work.store(1, Ordering::Relaxed);
    let kicked = sleep.must_kick();
    assert!(engine.join().unwrap() || kicked, "the engine sleeps on its work");
}

#[test]
fn wake_1_no_work_is_slept_on() {
    check(|| wake_1(0));
}

#[test]
fn wake_1_needs_the_barrier_of_the_engine() {
    caught(Mutation::NoSleepBarrier, wake_1);
}

/// A queue that stands in the ready list, more work is published, and the engine takes the queue out of the list and looks.
fn ready_1(mutation: u32) {
    let work = word(0);
    let mark = Arc::new(Mark::new(|v| W(AtomicU64::new(v))));
    let mutation = chosen(mutation);
    assert!(mark.set());
    let engine = {
        let (work, mark) = (work.clone(), mark.clone());
        loom::thread::spawn(move || {
            mark.clear(&mutation);
            work.load(Ordering::Acquire) != 0
        })
    };
    work.store(1, Ordering::Release);
    let listed = mark.set();
    assert!(engine.join().unwrap() || listed, "the queue stays behind with work in it");
}

#[test]
fn ready_1_no_work_stays_behind() {
    check(|| ready_1(0));
}

#[test]
fn ready_1_needs_the_exchange() {
    caught(Mutation::ClearsReadyByStore, ready_1);
}

/// A shadow update that finds every node held, against the resumption of one.
fn reset_1_report(fenced: bool) {
    let (held, later) = (Arc::new(Handshake::new(|v| W(AtomicU64::new(v)))), word(0));
    held.tell(Control::Hold);
    let resume = {
        let (held, later) = (held.clone(), later.clone());
        loom::thread::spawn(move || {
            held.tell(Control::Run);
            // `Gpu::raise_again`.
            later.load(Ordering::Acquire) != 0
        })
    };
    // `Gpu::speaker`.
    let mut speaks = held.told() == Control::Run;
    if !speaks {
        later.store(1, Ordering::Release);
        if fenced {
            W::fence(Ordering::SeqCst);
        }
        speaks = held.told() == Control::Run;
    }
    assert!(resume.join().unwrap() || speaks, "a fence is reported by nobody");
}

#[test]
fn reset_1_what_waits_for_a_resumption_is_reported() {
    check(|| reset_1_report(true));
    let outcome = catch_unwind(AssertUnwindSafe(|| check(|| reset_1_report(false))));
    assert!(outcome.is_err(), "the missing fence was not noticed");
}

/// A thread that was given a new slot makes room for it while another thread gives back slots that are newer.
#[test]
fn slots_find_their_way_back_whoever_makes_room_first() {
    check(|| {
        let table: Arc<SlotTable<LoomHost>> = Arc::new(SlotTable::new().expect("memory"));
        let other = {
            let table = table.clone();
            loom::thread::spawn(move || {
                let slots = [1, 2].map(|handle| table.allocate(handle).expect("memory"));
                for slot in slots {
                    table.kill(slot);
                    table.free(slot);
                }
            })
        };
        let mine = table.allocate(3).expect("memory");
        other.join().expect("no panic");
        assert_eq!(table.handle(mine), Some(3));
        table.kill(mine);
        table.free(mine);
        // As many as were there at once, at most: none was lost.
        let again = [4, 5].map(|handle| table.allocate(handle).expect("memory").index);
        assert!(again.iter().all(|index| *index < 3) && again[0] != again[1], "{again:?}");
    });
}

/// A signal from the CPU against the end of the fence's device: its last value stays.
#[test]
fn dead_1_no_signal_of_the_cpu_is_stored_behind_the_last_value() {
    check(|| {
        let current = word(0);
        let fence = Arc::new(Fence::<LoomHost>::new(SlotId { index: 0, generation: 1 }, false));
        let signal = {
            let (current, fence) = (current.clone(), fence.clone());
            loom::thread::spawn(move || fence.signal_from_cpu(&*current, 5, &Chosen::none(), |_, _| ()))
        };
        fence.set_always_signaled(Some((&*current, u64::MAX)), |_, _| ());
        let _woken = signal.join().expect("no panic");
        assert_eq!(current.load(Ordering::Acquire), u64::MAX);
    });
}
