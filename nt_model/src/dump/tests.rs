use std::sync::mpsc::channel;

use super::{NO_MEMORY, NO_THREADS, registers};
use crate::dump::Dump;
use crate::kernel::Kernel;
use crate::memory::host;
use crate::pool::POOL_FLAG_NON_PAGED;

const TAG: u32 = u32::from_le_bytes(*b"Test");
const MARK: u8 = 0xD5;

/// A machine with a piece of pool, filled with [`MARK`], and the piece's address.
fn with_pool(kernel: &Kernel) -> u64 {
    let pool = kernel.allocate_pool(POOL_FLAG_NON_PAGED, 64, TAG).unwrap_or_else(|| panic!("pool"));
    host::fill(pool, MARK, 64);
    pool as u64
}

/// Returns whether a dump has the piece of pool at `at`.
fn has(dump: &Dump, at: u64) -> bool {
    let ranges = &dump.memory.ranges;
    // CAST: an offset inside a range.
    let found = ranges.iter().find_map(|(start, bytes)| bytes.get(at.checked_sub(*start)? as usize..)?.get(..64));
    found.is_some_and(|found| found.iter().all(|byte| *byte == MARK))
}

#[test]
fn a_dump_has_pool_and_misses_nothing() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let pool = with_pool(&kernel);
    let dump = kernel.dump(None);
    assert!(has(&dump, pool));
    assert_eq!(dump.missing(), [""; 0]);
    kernel.free_pool(usize::try_from(pool).unwrap_or(0), Some(TAG));
}

#[test]
fn memory_whose_table_is_in_use_is_said_to_be_missing() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let pool = with_pool(&kernel);
    let dump = kernel.keeping_memory(|| kernel.dump(None));
    assert!(!has(&dump, pool), "the table was not kept");
    assert_eq!(dump.missing(), [NO_MEMORY]);
    assert!(dump.comment().ends_with(NO_MEMORY), "{}", dump.comment());
    kernel.free_pool(usize::try_from(pool).unwrap_or(0), Some(TAG));
}

#[test]
fn threads_whose_list_is_in_use_are_said_to_be_missing() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let kept = kernel.threads.lock();
    let dump = kernel.dump(None);
    drop(kept);
    assert_eq!(dump.missing(), [NO_THREADS]);
}

#[test]
fn a_thread_that_does_not_answer_is_named() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let (is_in, came) = channel();
    let (go, may_go) = channel::<()>();
    let kernel = &kernel;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            registers::unasked(|| {
                let _in = kernel.enter();
                is_in.send(kernel.current_thread_id()).expect("somebody waits");
                may_go.recv().expect("told to go");
            });
        });
        let id = came.recv().expect("the thread came");
        let dump = kernel.dump(None);
        go.send(()).expect("it waits");
        assert_eq!(dump.missing(), [format!("threads that did not answer in time are missing: {id} (host)")]);
    });
}
