use super::*;
use crate::dpc::Dpc;
use crate::kernel::{Kernel, KernelConfig};
use crate::records::KTIMER;
use crate::routines::DISPATCH_LEVEL;
use crate::rules_nt::NT_IRQL;

const TAG: u32 = u32::from_le_bytes(*b"Test");

fn allocate(kernel: &Kernel, size: usize) -> usize {
    kernel.allocate_pool(POOL_FLAG_NON_PAGED, size, TAG).unwrap_or_else(|| panic!("{size} bytes of pool"))
}

#[test]
fn memory_is_zeroed_aligned_and_distinct() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let mut seen = Vec::new();
    for size in [1, 15, 16, 17, 100, 1000, 2040, 2041, 4096, 4097, 100_000, 9 << 20] {
        let address = allocate(&kernel, size);
        assert_eq!(address % if size >= PAGE_SIZE { PAGE_SIZE } else { 16 }, 0, "{size}");
        assert_eq!(host::first_other(address, 0, size), None);
        host::fill(address, 0xAA, size);
        seen.push((address, size));
    }
    for (address, size) in &seen {
        assert_eq!(host::first_other(*address, 0xAA, *size), None, "nobody else wrote there");
        kernel.free_pool(*address, Some(TAG));
    }
    assert_eq!(kernel.pool_usage().non_paged, 0);
    assert!(kernel.rules.violations().is_empty());
}

#[test]
fn the_tag_is_checked() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let address = allocate(&kernel, 10);
    kernel.free_pool(address, Some(u32::from_le_bytes(*b"tseT")));
    assert!(kernel.rules.was_broken(&NT_POOL_TAG));
    assert_eq!(kernel.pool_usage().non_paged, 0);
}

#[test]
fn freeing_twice_and_freeing_nonsense_are_told_apart() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let address = allocate(&kernel, 10);
    kernel.free_pool(address, None);
    kernel.free_pool(address, None);
    assert!(kernel.rules.was_broken(&NT_POOL_DOUBLE_FREE) && !kernel.rules.was_broken(&NT_POOL_BAD_ADDRESS));
    kernel.free_pool(address + 4, None);
    assert!(kernel.rules.was_broken(&NT_POOL_BAD_ADDRESS));
}

#[test]
fn a_write_behind_the_end_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let address = allocate(&kernel, 10);
    host::write(address + 10, &[0]);
    kernel.free_pool(address, None);
    assert!(kernel.rules.was_broken(&NT_POOL_OVERRUN));
}

#[test]
fn a_write_behind_a_block_that_is_never_freed_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let address = allocate(&kernel, 10);
    kernel.check_native_leaks();
    assert!(!kernel.rules.was_broken(&NT_POOL_OVERRUN));
    host::write(address + 10, &[0]);
    kernel.check_native_leaks();
    assert!(kernel.rules.was_broken(&NT_POOL_OVERRUN));
}

#[test]
fn a_write_after_free_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let address = allocate(&kernel, 10);
    kernel.free_pool(address, None);
    host::write(address + 3, &[0]);
    kernel.check_freed_pool();
    assert!(kernel.rules.was_broken(&NT_POOL_USE_AFTER_FREE));
}

#[test]
fn calls_without_size_tag_or_kind_are_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    assert!(kernel.allocate_pool(POOL_FLAG_NON_PAGED, 0, TAG).is_none());
    assert!(kernel.allocate_pool(POOL_FLAG_NON_PAGED, 1, 0).is_none());
    assert!(kernel.allocate_pool(0, 1, TAG).is_none());
    assert!(kernel.allocate_pool(POOL_FLAG_NON_PAGED | POOL_FLAG_PAGED, 1, TAG).is_none());
    let broken: Vec<_> = kernel.rules.violations().iter().map(|v| v.rule.name).collect();
    assert_eq!(broken, [NT_POOL_SIZE.name, NT_POOL_TAG_ZERO.name, NT_POOL_FLAGS.name, NT_POOL_FLAGS.name]);
}

#[test]
fn paged_pool_at_dispatch_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let paged = kernel.allocate_pool(POOL_FLAG_PAGED, 8, TAG).unwrap_or_default();
    kernel.raise_irql(DISPATCH_LEVEL);
    let resident = allocate(&kernel, 8);
    kernel.free_pool(resident, None);
    assert!(!kernel.rules.was_broken(&NT_IRQL));
    kernel.allocate_pool(POOL_FLAG_PAGED, 8, TAG);
    kernel.free_pool(paged, None);
    assert_eq!(kernel.rules.violations().len(), 2);
    assert!(kernel.rules.was_broken(&NT_IRQL));
    kernel.lower_irql(0);
}

#[test]
fn freeing_a_set_timer_or_a_queued_dpc_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let address = allocate(&kernel, size_of::<KTIMER>());
    let timer = crate::records_at::timer(address);
    kernel.initialize_timer(timer, false);
    kernel.set_timer(timer, -1_000_000_000, 0, None);
    kernel.free_pool(address, None);
    assert!(kernel.rules.was_broken(&NT_TIMER_LEAKED));

    let address = allocate(&kernel, 0x40);
    let dpc = crate::records_at::dpc(address);
    let native = Dpc::new(&kernel, |_, _| ());
    let routine = native.as_kdpc().routine.load(std::sync::atomic::Ordering::Relaxed);
    kernel.initialize_dpc(dpc, routine, 0, false);
    kernel.raise_irql(DISPATCH_LEVEL);
    kernel.insert_queue_dpc(dpc, 0, 0);
    kernel.free_pool(address, None);
    assert!(kernel.rules.was_broken(&NT_DPC_LEAKED));
    kernel.lower_irql(0);
}

#[test]
fn the_nth_allocation_fails() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    kernel.fail_allocation(2);
    assert!(kernel.allocate_pool(POOL_FLAG_NON_PAGED, 8, TAG).is_some());
    assert!(kernel.allocate_pool(POOL_FLAG_NON_PAGED, 8, TAG).is_none());
    assert!(kernel.allocate_pool(POOL_FLAG_NON_PAGED, 8, TAG).is_some());
    assert_eq!(kernel.allocations_until_failure(), 0);
}

#[test]
fn what_other_threads_allocate_does_not_count_where_the_own_is_to_fail() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    kernel.fail_own_allocation(2);
    let machine = kernel.arc();
    let other = std::thread::spawn(move || {
        let _in = machine.enter();
        (0..4).all(|_| machine.allocate_pool(POOL_FLAG_NON_PAGED, 8, TAG).is_some())
    });
    assert!(other.join().unwrap());
    assert_eq!(kernel.allocations_until_failure(), 2);
    assert!(kernel.allocate_pool(POOL_FLAG_NON_PAGED, 8, TAG).is_some());
    assert!(kernel.allocate_pool(POOL_FLAG_NON_PAGED, 8, TAG).is_none());
    kernel.fail_own_allocation(0);
    assert!(kernel.allocate_pool(POOL_FLAG_NON_PAGED, 8, TAG).is_some());
}

#[test]
fn guard_pages_put_the_end_at_a_trap() {
    let pool = PoolOptions { guard_pages: true, ..PoolOptions::default() };
    let kernel = Kernel::new(KernelConfig { pool, ..KernelConfig::collecting() });
    let _in = kernel.enter();
    for size in [16, 4096, 5000] {
        let address = allocate(&kernel, size);
        if size < PAGE_SIZE {
            assert_eq!((address + size) % PAGE_SIZE, 0);
        }
        host::fill(address, 1, size);
        kernel.free_pool(address, None);
    }
    assert!(kernel.rules.violations().is_empty());
}

#[test]
fn outstanding_allocations_name_their_site() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let address = allocate(&kernel, 24);
    let leaks = kernel.pool_outstanding();
    assert_eq!((leaks.len(), leaks[0].address, leaks[0].size), (1, address, 24));
    assert!(leaks[0].site.contains("ExAllocatePool2") && leaks[0].site.contains("pool/tests.rs"), "{}", leaks[0].site);
}
