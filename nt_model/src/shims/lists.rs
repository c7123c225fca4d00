//! Linked lists that a spin lock guards for the length of one call.
//!
//! Source: wdm.h `ExInterlockedInsertHeadList` and its kin: at any IRQL, and a lock that guards such a list is used
//! with these routines alone.

use std::sync::atomic::AtomicU64;

use crate::kernel::Machine;
use crate::shim::{self, In};
use crate::shims;

/// `LIST_ENTRY`: `Flink`, then `Blink`.
const BLINK: usize = 8;

/// A pointer in the driver's memory.
fn load(address: usize) -> usize {
    // CAST: a pointer of the driver's.
    shim::number(&shim::read_bytes(address, 8)) as usize
}

fn store(address: usize, pointer: usize) {
    shim::write_bytes(address, &pointer.to_le_bytes());
}

/// Puts `entry` between two neighbours.
fn insert(entry: usize, before: usize, behind: usize) {
    store(entry, behind);
    store(entry + BLINK, before);
    store(before, entry);
    store(behind + BLINK, entry);
}

/// A neighbour, or NULL where that is the head.
fn unless_head(head: usize, entry: usize) -> usize {
    if entry == head { 0 } else { entry }
}

fn guarded(m: &Machine, lock: In<AtomicU64>, work: impl FnOnce() -> usize) -> usize {
    m.with_interrupts_off(lock.get(), work)
}

shims! {
    pub(crate) table LISTS;

    fn ExInterlockedInsertHeadList(m, head: usize, entry: usize, lock: In<AtomicU64>) -> usize {
        guarded(m, lock, || {
            let first = load(head);
            insert(entry, head, first);
            unless_head(head, first)
        })
    }

    fn ExInterlockedInsertTailList(m, head: usize, entry: usize, lock: In<AtomicU64>) -> usize {
        guarded(m, lock, || {
            let last = load(head + BLINK);
            insert(entry, last, head);
            unless_head(head, last)
        })
    }

    fn ExInterlockedRemoveHeadList(m, head: usize, lock: In<AtomicU64>) -> usize {
        guarded(m, lock, || {
            let first = load(head);
            if first != head {
                let second = load(first);
                store(head, second);
                store(second + BLINK, head);
            }
            unless_head(head, first)
        })
    }

    // SINGLE_LIST_ENTRY: `Next` alone.
    fn ExInterlockedPushEntryList(m, head: usize, entry: usize, lock: In<AtomicU64>) -> usize {
        guarded(m, lock, || {
            let first = load(head);
            store(entry, first);
            store(head, entry);
            first
        })
    }

    fn ExInterlockedPopEntryList(m, head: usize, lock: In<AtomicU64>) -> usize {
        guarded(m, lock, || {
            let first = load(head);
            if first != 0 {
                store(head, load(first));
            }
            first
        })
    }
}
