//! DEAD-1, the engine's side: `Fence::store` against `Fence::set_always_signaled`.

use crate::{LoomHost, caught, check, chosen, word};
use gpu_engine::fence::Fence;
use gpu_engine::mutation::Mutation;
use gpu_engine::slots::SlotId;
use gpu_engine::word::{Ordering, Word};
use loom::sync::Arc;

/// An engine stores 5 while the fence's end comes, with a last value or without. When the end has returned, the storage
/// is not touched any more.
fn end(mutation: u32, last: Option<u64>) {
    let current = word(0);
    let fence = Arc::new(Fence::<LoomHost, u64>::new(SlotId { index: 0, generation: 1 }, false));
    let engine = {
        let (current, fence) = (current.clone(), fence.clone());
        loom::thread::spawn(move || fence.store(&*current, 5, &chosen(mutation)))
    };
    fence.set_always_signaled(last.map(|last| (&*current, last)), |_, _| ());
    let returned = current.load(Ordering::Acquire);
    let stored = engine.join().expect("no panic");
    assert_eq!(current.load(Ordering::Acquire), returned, "a store behind the end");
    assert_eq!(returned, last.unwrap_or(if stored.is_some() { 5 } else { 0 }));
}

#[test]
fn dead_1_no_store_of_an_engine_comes_behind_the_end() {
    check(|| end(0, Some(u64::MAX)));
    check(|| end(0, None));
}

#[test]
fn dead_1_needs_the_lock_around_the_store() {
    caught(Mutation::StoresUnlocked, |mutation| end(mutation, Some(u64::MAX)));
    caught(Mutation::StoresUnlocked, |mutation| end(mutation, None));
}
