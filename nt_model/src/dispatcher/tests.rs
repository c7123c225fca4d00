use super::*;
use crate::kernel::Kernel;
use crate::routines::DISPATCH_LEVEL;
use crate::rules_nt::{NT_IRQL, NT_WAIT_LOCKED, NT_WAITED_FREED};
use crate::sched::TICKS_PER_MS;

// CAST: small constants.
const SHORT: i64 = -(2 * TICKS_PER_MS as i64);

#[test]
fn a_notification_event_stays_set() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let event = Event::notification(false);
    assert_eq!(kernel.wait_for_event(&event, Some(0)), status::TIMEOUT);
    assert!(!kernel.set_event(event.as_kevent(), false));
    assert!(kernel.set_event(event.as_kevent(), false));
    assert_eq!(kernel.wait_for_event(&event, None), status::SUCCESS);
    assert_eq!(kernel.wait_for_event(&event, None), status::SUCCESS);
    assert!(kernel.reset_event(event.as_kevent()));
    assert!(!kernel.read_event(event.as_kevent()));
}

#[test]
fn a_synchronization_event_releases_one() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let event = Event::synchronization(true);
    assert_eq!(kernel.wait_for_event(&event, Some(0)), status::SUCCESS);
    assert_eq!(kernel.wait_for_event(&event, Some(0)), status::TIMEOUT);
}

#[test]
fn a_wait_times_out_and_is_woken() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let event = Arc::new(Event::synchronization(false));
    assert_eq!(kernel.wait_for_event(&event, Some(SHORT)), status::TIMEOUT);
    let (inside, other) = (kernel.clone(), event.clone());
    kernel.spawn_system_thread("setter", move || {
        inside.delay_execution(SHORT);
        inside.set_event(other.as_kevent(), false);
    });
    assert_eq!(kernel.wait_for_event(&event, None), status::SUCCESS);
    assert!(kernel.rules.violations().is_empty());
}

#[test]
fn wait_any_names_the_object_and_wait_all_takes_all() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let (a, b) = (Event::synchronization(false), Event::synchronization(true));
    let both = [&a.as_kevent().header, &b.as_kevent().header];
    assert_eq!(kernel.wait_for_objects(&both, true, Some(0)), status::TIMEOUT);
    assert!(kernel.read_event(b.as_kevent()), "an unsatisfied wait-all takes nothing");
    assert_eq!(kernel.wait_for_objects(&both, false, None), 1);
    kernel.set_event(a.as_kevent(), false);
    kernel.set_event(b.as_kevent(), false);
    assert_eq!(kernel.wait_for_objects(&both, true, None), status::SUCCESS);
    assert!(!kernel.read_event(a.as_kevent()) && !kernel.read_event(b.as_kevent()));
}

#[test]
fn two_waiters_for_all_and_one_signaller() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let events = Arc::new([Event::synchronization(false), Event::synchronization(false)]);
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (inside, events) = (kernel.clone(), events.clone());
            kernel.spawn_system_thread("waiter", move || {
                let both = [&events[0].as_kevent().header, &events[1].as_kevent().header];
                assert_eq!(inside.wait_for_objects(&both, true, None), status::SUCCESS);
            })
        })
        .collect();
    for _ in 0..2 {
        for event in events.iter() {
            while kernel.read_event(event.as_kevent()) {
                kernel.delay_execution(-1000);
            }
            kernel.set_event(event.as_kevent(), false);
        }
    }
    for thread in threads {
        assert_eq!(kernel.wait_for_object(thread.header(), None), status::SUCCESS);
    }
}

#[test]
fn a_semaphore_counts_and_keeps_its_limit() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let semaphore = Box::new(KSEMAPHORE::default());
    kernel.initialize_semaphore(&semaphore, 1, 2);
    assert_eq!(kernel.wait_for_object(&semaphore.header, Some(0)), status::SUCCESS);
    assert_eq!(kernel.wait_for_object(&semaphore.header, Some(0)), status::TIMEOUT);
    assert_eq!(kernel.release_semaphore(&semaphore, 2, false), 0);
    assert!(!kernel.rules.was_broken(&NT_SEMAPHORE_LIMIT));
    kernel.release_semaphore(&semaphore, 1, false);
    assert!(kernel.rules.was_broken(&NT_SEMAPHORE_LIMIT));
}

#[test]
fn a_mutex_is_recursive_and_belongs_to_its_thread() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let mutex = Arc::new(KMUTANT::default());
    kernel.initialize_mutex(&mutex);
    assert_eq!(kernel.wait_for_object(&mutex.header, None), status::SUCCESS);
    assert_eq!(kernel.wait_for_object(&mutex.header, None), status::SUCCESS);
    let (inside, other) = (kernel.clone(), mutex.clone());
    let thread = kernel.spawn_system_thread("other", move || {
        assert_eq!(inside.wait_for_object(&other.header, Some(0)), status::TIMEOUT);
        inside.release_mutex(&other, false);
    });
    kernel.wait_for_object(thread.header(), None);
    assert!(kernel.rules.was_broken(&NT_MUTEX_NOT_OWNED));
    kernel.release_mutex(&mutex, false);
    kernel.release_mutex(&mutex, false);
    assert_eq!(mutex.header.signal_state.load(Ordering::Relaxed), 1);
}

#[test]
fn a_thread_that_ends_with_a_mutex_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let mutex = Arc::new(KMUTANT::default());
    kernel.initialize_mutex(&mutex);
    let (inside, taken) = (kernel.clone(), mutex.clone());
    let thread = kernel.spawn_system_thread("owner", move || _ = inside.wait_for_object(&taken.header, None));
    kernel.wait_for_object(thread.header(), None);
    assert!(kernel.rules.was_broken(&NT_MUTEX_LEAKED));
}

#[test]
fn a_blocking_wait_at_dispatch_is_caught_and_returns() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let event = Event::notification(false);
    kernel.raise_irql(DISPATCH_LEVEL);
    assert_eq!(kernel.wait_for_event(&event, Some(0)), status::TIMEOUT);
    assert!(!kernel.rules.was_broken(&NT_IRQL), "a look is allowed");
    assert_eq!(kernel.wait_for_event(&event, None), status::TIMEOUT);
    assert!(kernel.rules.was_broken(&NT_IRQL));
    kernel.lower_irql(0);
}

#[test]
fn waiting_with_a_spin_lock_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let (event, lock) = (Event::notification(false), crate::records::SpinLockWord::new(0));
    let old = kernel.acquire_spin_lock(&lock);
    assert_eq!(kernel.wait_for_event(&event, Some(0)), status::TIMEOUT);
    assert!(!kernel.rules.was_broken(&NT_WAIT_LOCKED), "a look is allowed");
    kernel.wait_for_event(&event, Some(SHORT));
    assert!(kernel.rules.was_broken(&NT_WAIT_LOCKED));
    kernel.release_spin_lock(&lock, old);
}

#[test]
fn freeing_an_object_that_is_waited_for_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let address = kernel.allocate_pool(0x40, size_of::<KEVENT>(), 1).unwrap_or_default();
    let event = crate::records_at::event(address);
    kernel.initialize_event(event, false, false);
    let inside = kernel.clone();
    let thread = kernel.spawn_system_thread("waiter", move || {
        inside.wait_for_object(&event.header, Some(20 * SHORT));
    });
    while kernel.dispatcher.waiting.load(Ordering::Relaxed) == 0 {
        kernel.delay_execution(-1000);
    }
    kernel.free_pool(address, None);
    assert!(kernel.rules.was_broken(&NT_WAITED_FREED));
    kernel.wait_for_object(thread.header(), None);
}

#[test]
fn setting_an_event_with_wait_at_dispatch_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let event = Event::notification(false);
    kernel.raise_irql(DISPATCH_LEVEL);
    kernel.set_event(event.as_kevent(), false);
    assert!(!kernel.rules.was_broken(&NT_IRQL));
    kernel.set_event(event.as_kevent(), true);
    assert!(kernel.rules.was_broken(&NT_IRQL));
    kernel.lower_irql(0);
}

#[test]
fn an_event_that_was_never_initialised_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let event = KEVENT::default();
    kernel.set_event(&event, false);
    assert!(kernel.rules.was_broken(&NT_OBJECT_KIND));
}

#[test]
fn initialising_an_event_that_is_waited_for_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let event = Arc::new(Event::notification(false));
    let (inside, waited) = (kernel.clone(), event.clone());
    let thread = kernel.spawn_system_thread("waiter", move || _ = inside.wait_for_event(&waited, None));
    while kernel.dispatcher.waiting.load(Ordering::Relaxed) == 0 {
        kernel.delay_execution(-1000);
    }
    kernel.initialize_event(event.as_kevent(), false, false);
    assert!(kernel.rules.was_broken(&NT_OBJECT_IN_USE));
    kernel.set_event(event.as_kevent(), false);
    kernel.wait_for_object(thread.header(), None);
}

#[test]
fn waits_end_when_the_machine_stops() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let inside = kernel.clone();
    kernel.spawn_system_thread("stopper", move || {
        inside.delay_execution(SHORT);
        inside.rules.broken_fatally(&NT_OBJECT_KIND, "test");
    });
    let event = Event::notification(false);
    assert_eq!(kernel.wait_for_event(&event, None), status::SYSTEM_SHUTDOWN);
}
