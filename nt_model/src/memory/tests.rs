use std::sync::Arc;

use super::contiguous::ContiguousRequest;
use super::mapping::MapRequest;
use super::mdl::LockOperation;
use super::{CacheType, Mdl, PAGE_SIZE, PageKind, PageObject, PageTraits, Rights, host};
use crate::kernel::{Kernel, KernelConfig};
use crate::mmio::Registers;
use crate::pool::{POOL_FLAG_NON_PAGED, POOL_FLAG_PAGED};
use crate::records::{MDL, MDL_MAPPED_TO_SYSTEM_VA, MDL_PAGES_LOCKED};
use crate::rules::Rule;
use crate::rules_memory::*;

const TAG: u32 = u32::from_le_bytes(*b"Test");

fn contiguous(kernel: &Kernel, bytes: usize, cache: CacheType) -> usize {
    let request = ContiguousRequest { bytes, lowest: 0, highest: u64::MAX, boundary: 0, cache };
    kernel.allocate_contiguous(&request).unwrap_or_else(|| panic!("contiguous memory"))
}

fn pool(kernel: &Kernel, flags: u64, bytes: usize) -> usize {
    kernel.allocate_pool(flags, bytes, TAG).unwrap_or_else(|| panic!("pool"))
}

/// An MDL that a driver builds itself, in its own pool, over these frames.
fn self_built(kernel: &Kernel, frames: &[u64], flags: u16) -> Mdl {
    let address = pool(kernel, POOL_FLAG_NON_PAGED, size_of::<MDL>() + 8 * frames.len());
    let mdl = Mdl::of(super::mdl_header::at(address));
    let header = mdl.header();
    header.byte_count.store((frames.len() * PAGE_SIZE) as u32, std::sync::atomic::Ordering::Relaxed);
    header.flags.store(flags, std::sync::atomic::Ordering::Relaxed);
    mdl.set_frames(frames);
    mdl
}

fn map(kernel: &Kernel, mdl: Mdl) -> Option<usize> {
    kernel.map_locked_pages(mdl, &MapRequest::default())
}

fn broken(kernel: &Kernel) -> Vec<&'static str> {
    kernel.rules.violations().iter().map(|violation| violation.rule.name).collect()
}

fn only(rule: &Rule) -> Vec<&'static str> {
    vec![rule.name]
}

fn user_pages(kernel: &Kernel, pages: usize) -> Arc<PageObject> {
    kernel.allocate_pages(pages, PageKind::User, 0).unwrap_or_else(|| panic!("pages"))
}

#[test]
fn contiguous_memory_has_consecutive_physical_addresses() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let address = contiguous(&kernel, 5 * PAGE_SIZE, CacheType::Cached);
    let first = kernel.physical_address(address);
    for page in 0..5 {
        let offset = page * PAGE_SIZE + 7;
        assert_eq!(kernel.physical_address(address + offset), first + offset as u64);
    }
    let below = ContiguousRequest { bytes: 1, lowest: 0, highest: 0xFFFF_FFFF, boundary: 0, cache: CacheType::Cached };
    let low = kernel.allocate_contiguous(&below).unwrap_or_default();
    assert!(kernel.physical_address(low) < 1 << 32);
    kernel.free_contiguous(address, None);
    kernel.free_contiguous(low, Some((1, CacheType::Cached)));
    assert!(broken(&kernel).is_empty());
}

#[test]
fn freeing_contiguous_memory_wrongly_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let address = contiguous(&kernel, PAGE_SIZE, CacheType::Cached);
    kernel.free_contiguous(address, Some((2 * PAGE_SIZE, CacheType::Cached)));
    kernel.free_contiguous(address, None);
    assert_eq!(broken(&kernel), [NT_CONTIGUOUS_FREE.name; 2]);
}

#[test]
fn physical_addresses_of_pageable_or_foreign_memory_are_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let resident = pool(&kernel, POOL_FLAG_NON_PAGED, 100);
    assert_ne!(kernel.physical_address(resident), 0);
    kernel.physical_address(pool(&kernel, POOL_FLAG_PAGED, 100));
    kernel.physical_address(0x1000);
    assert_eq!(broken(&kernel), [NT_PHYSICAL_ADDRESS.name; 2]);
}

#[test]
fn pages_of_an_mdl_are_mapped_in_order() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let mdl = kernel.allocate_pages_for_mdl(0..=u64::MAX, 40 * PAGE_SIZE, CacheType::Cached, true);
    let mdl = mdl.unwrap_or_else(|| panic!("pages"));
    let address = map(&kernel, mdl).unwrap_or_default();
    for (page, frame) in mdl.frames().into_iter().enumerate() {
        host::write(address + page * PAGE_SIZE, &frame.to_le_bytes());
        assert_eq!(kernel.physical_address(address + page * PAGE_SIZE), frame * PAGE_SIZE as u64);
    }
    let (object, index) = kernel.page_of_frame(mdl.frames()[17]).unwrap_or_else(|| panic!("a page"));
    let mut seen = [0; 8];
    assert!(object.read(index * PAGE_SIZE, &mut seen).is_ok());
    assert_eq!(u64::from_le_bytes(seen), mdl.frames()[17]);
    kernel.unmap_locked_pages(address, mdl);
    kernel.free_pages_from_mdl(mdl);
    kernel.free_pool(mdl.address(), None);
    assert!(broken(&kernel).is_empty());
}

#[test]
fn an_mdl_over_pool_shows_the_same_bytes() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let buffer = pool(&kernel, POOL_FLAG_NON_PAGED, 3 * PAGE_SIZE) + 100;
    let mdl = kernel.allocate_mdl(buffer, 2 * PAGE_SIZE).unwrap_or_else(|| panic!("an MDL"));
    assert_eq!((mdl.pages(), mdl.virtual_address(), mdl.byte_count()), (3, buffer, 2 * PAGE_SIZE));
    kernel.build_mdl_for_nonpaged(mdl);
    let again = map(&kernel, mdl).unwrap_or_default();
    assert_eq!(again % PAGE_SIZE, 100);
    host::write(buffer + 5000, &[42]);
    let mut seen = [0];
    host::read(again + 5000, &mut seen);
    assert_eq!(seen, [42]);
    kernel.unmap_locked_pages(again, mdl);
    kernel.free_mdl(mdl);
    assert!(broken(&kernel).is_empty());
}

#[test]
fn an_mdl_for_paged_pool_must_be_locked_not_built() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let buffer = pool(&kernel, POOL_FLAG_PAGED, PAGE_SIZE);
    let mdl = kernel.allocate_mdl(buffer, 100).unwrap_or_else(|| panic!("an MDL"));
    kernel.build_mdl_for_nonpaged(mdl);
    assert_eq!(broken(&kernel), only(&NT_MDL_PAGED));
    assert!(kernel.probe_and_lock(mdl, false, LockOperation::Write));
    kernel.unlock_pages(mdl);
    kernel.unlock_pages(mdl);
    kernel.free_mdl(mdl);
    assert_eq!(broken(&kernel), [NT_MDL_PAGED.name, NT_MDL_STATE.name]);
}

#[test]
fn a_self_built_mdl_over_locked_pages_works() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let object = user_pages(&kernel, 4);
    for index in 0..4 {
        object.lock_page(index);
    }
    let frames = [object.frame(3), object.frame(0), object.frame(1)];
    let mdl = self_built(&kernel, &frames, MDL_PAGES_LOCKED);
    let address = map(&kernel, mdl).unwrap_or_default();
    host::write(address, &[9]);
    let mut seen = [0];
    assert!(object.read(3 * PAGE_SIZE, &mut seen).is_ok());
    assert_eq!(seen, [9]);
    kernel.unmap_locked_pages(address, mdl);
    assert!(broken(&kernel).is_empty());
}

#[test]
fn mapping_pages_that_nobody_locked_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let object = user_pages(&kernel, 1);
    let mdl = self_built(&kernel, &object.frames(), MDL_PAGES_LOCKED);
    assert!(map(&kernel, mdl).is_none());
    assert_eq!(broken(&kernel), only(&NT_MDL_LOCKED));
}

#[test]
fn mapping_freed_or_invented_frames_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let address = contiguous(&kernel, PAGE_SIZE, CacheType::Cached);
    let frame = kernel.physical_address(address) / PAGE_SIZE as u64;
    kernel.free_contiguous(address, None);
    assert!(map(&kernel, self_built(&kernel, &[frame], MDL_PAGES_LOCKED)).is_none());
    assert!(map(&kernel, self_built(&kernel, &[0x1234_5678], MDL_PAGES_LOCKED)).is_none());
    assert_eq!(broken(&kernel), [NT_MDL_FRAME.name; 2]);
}

#[test]
fn mapping_an_unlocked_or_mapped_mdl_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let address = contiguous(&kernel, PAGE_SIZE, CacheType::Cached);
    let frame = kernel.physical_address(address) / PAGE_SIZE as u64;
    assert!(map(&kernel, self_built(&kernel, &[frame], 0)).is_none());
    assert!(map(&kernel, self_built(&kernel, &[frame], MDL_PAGES_LOCKED | MDL_MAPPED_TO_SYSTEM_VA)).is_none());
    assert_eq!(broken(&kernel), [NT_MDL_STATE.name; 2]);
}

#[test]
fn an_mdl_of_no_bytes_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    assert!(map(&kernel, self_built(&kernel, &[], MDL_PAGES_LOCKED)).is_none());
    assert_eq!(broken(&kernel), only(&NT_MDL_SHAPE));
}

#[test]
fn two_cache_types_for_one_page_are_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let address = contiguous(&kernel, PAGE_SIZE, CacheType::WriteCombined);
    let frame = kernel.physical_address(address) / PAGE_SIZE as u64;
    let mdl = self_built(&kernel, &[frame], MDL_PAGES_LOCKED);
    let write_combined = MapRequest { cache: CacheType::WriteCombined, ..MapRequest::default() };
    let good = kernel.map_locked_pages(mdl, &write_combined).unwrap_or_default();
    kernel.unmap_locked_pages(good, mdl);
    assert!(broken(&kernel).is_empty());
    map(&kernel, mdl);
    assert_eq!(broken(&kernel), only(&NT_CACHE));
}

#[test]
fn a_mapping_inherits_the_cache_type_of_its_pages() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let traits = PageTraits { cache: Some(CacheType::WriteCombined), ..PageTraits::default() };
    let object = kernel.allocate_pages_of(2, PageKind::System, 0, &traits).unwrap_or_else(|| panic!("pages"));
    let attribute = || kernel.cache_attribute(object.frame(1) * PAGE_SIZE as u64 + 100);
    assert_eq!(attribute(), Some(CacheType::WriteCombined));
    let mdl = self_built(&kernel, &object.frames(), MDL_PAGES_LOCKED);
    let request = MapRequest { cache: CacheType::WriteCombined, ..MapRequest::default() };
    let at = kernel.map_locked_pages(mdl, &request).unwrap_or_default();
    kernel.unmap_locked_pages(at, mdl);
    assert!(broken(&kernel).is_empty());
    // MmCached is a wish, and a rule broken.
    map(&kernel, mdl);
    assert_eq!((broken(&kernel), attribute()), (only(&NT_CACHE), Some(CacheType::WriteCombined)));
}

#[test]
fn what_is_not_ram_has_no_cache_type() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    assert!(kernel.add_device_registers("zeros", 0xF000_0000, 0x3000, Zeros).is_ok());
    assert_eq!(kernel.cache_attribute(0xF000_1000), None);
    assert_eq!(kernel.cache_attribute(0x1234_5678_9000), None);
    let memory = contiguous(&kernel, PAGE_SIZE, CacheType::NonCached);
    assert_eq!(kernel.cache_attribute(kernel.physical_address(memory)), Some(CacheType::NonCached));
    assert!(broken(&kernel).is_empty());
}

#[test]
fn writing_where_one_may_read_only_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let traits = PageTraits { read_only: true, ..PageTraits::default() };
    let object = kernel.allocate_pages_of(1, PageKind::System, 0, &traits).unwrap_or_else(|| panic!("pages"));
    let mdl = self_built(&kernel, &object.frames(), MDL_PAGES_LOCKED);
    let reading = MapRequest { read_only: true, ..MapRequest::default() };
    let at = kernel.map_locked_pages(mdl, &reading).unwrap_or_default();
    kernel.unmap_locked_pages(at, mdl);
    assert!(broken(&kernel).is_empty());
    let at = map(&kernel, mdl).unwrap_or_default();
    kernel.unmap_locked_pages(at, mdl);
    assert_eq!(broken(&kernel), only(&NT_MAP_WRITE));
    let at = kernel.allocate_mapping_address(PAGE_SIZE, TAG).unwrap_or_default();
    assert!(!kernel.protect_mdl(mdl, Rights::Read), "nothing is mapped");
    assert!(kernel.map_at_reserved(at, TAG, mdl, CacheType::Cached).is_some());
    assert!(kernel.protect_mdl(mdl, Rights::Read));
    kernel.unmap_reserved(at, TAG, mdl);
    assert_eq!(broken(&kernel), only(&NT_MAP_WRITE), "still");
    assert!(kernel.map_at_reserved(at, TAG, mdl, CacheType::Cached).is_some());
    kernel.unmap_reserved(at, TAG, mdl);
    assert_eq!(broken(&kernel), [NT_MAP_WRITE.name; 2]);
}

#[test]
fn mapping_registers_as_memory_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    assert!(kernel.add_device_registers("zeros", 0xF000_0000, 0x3000, Zeros).is_ok());
    let frame = 0xF000_1000 / PAGE_SIZE as u64;
    assert!(map(&kernel, self_built(&kernel, &[frame], MDL_PAGES_LOCKED)).is_none());
    assert_eq!(broken(&kernel), only(&NT_MDL_FRAME));
}

#[test]
fn freeing_mapped_pages_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let address = contiguous(&kernel, PAGE_SIZE, CacheType::Cached);
    let frame = kernel.physical_address(address) / PAGE_SIZE as u64;
    map(&kernel, self_built(&kernel, &[frame], MDL_PAGES_LOCKED));
    kernel.free_contiguous(address, None);
    assert_eq!(broken(&kernel), only(&NT_MAP_LEFT));
    let detail = kernel.rules.violations().pop().map(|violation| violation.detail).unwrap_or_default();
    assert!(detail.contains("MmAllocateContiguousMemory") && detail.contains("MmMapLockedPages"), "{detail}");
}

#[test]
fn freeing_mapped_pool_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let buffer = pool(&kernel, POOL_FLAG_NON_PAGED, PAGE_SIZE);
    let mdl = kernel.allocate_mdl(buffer, PAGE_SIZE).unwrap_or_else(|| panic!("an MDL"));
    kernel.build_mdl_for_nonpaged(mdl);
    map(&kernel, mdl);
    kernel.free_pool(buffer, None);
    assert_eq!(broken(&kernel), only(&NT_MAP_LEFT));
}

#[test]
fn unmapping_twice_or_with_another_mdl_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let address = contiguous(&kernel, PAGE_SIZE, CacheType::Cached);
    let frame = kernel.physical_address(address) / PAGE_SIZE as u64;
    let mdl = self_built(&kernel, &[frame], MDL_PAGES_LOCKED);
    let other = self_built(&kernel, &[frame], MDL_PAGES_LOCKED);
    let at = map(&kernel, mdl).unwrap_or_default();
    kernel.unmap_locked_pages(at, other);
    kernel.unmap_locked_pages(at, mdl);
    kernel.unmap_locked_pages(at, mdl);
    assert_eq!(broken(&kernel), [NT_UNMAP.name; 2]);
}

#[test]
fn asking_for_a_bug_check_on_failure_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let address = contiguous(&kernel, PAGE_SIZE, CacheType::Cached);
    let frame = kernel.physical_address(address) / PAGE_SIZE as u64;
    let request = MapRequest { bugcheck_on_failure: true, ..MapRequest::default() };
    kernel.map_locked_pages(self_built(&kernel, &[frame], MDL_PAGES_LOCKED), &request);
    assert_eq!(broken(&kernel), only(&NT_MDL_BUGCHECK));
}

#[test]
fn locking_what_is_not_there_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let process = kernel.create_process("client");
    let buffer = kernel.allocate_user(&process, 1).unwrap_or_default();
    let mdl = kernel.allocate_mdl(buffer, 2 * PAGE_SIZE).unwrap_or_else(|| panic!("an MDL"));
    assert!(!kernel.probe_and_lock(mdl, true, LockOperation::Read));
    assert_eq!(broken(&kernel), only(&NT_MDL_PROBE));
    kernel.free_mdl(mdl);
}

#[test]
fn a_freed_mdl_with_locked_pages_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let process = kernel.create_process("client");
    let buffer = kernel.allocate_user(&process, 1).unwrap_or_default();
    let mdl = kernel.allocate_mdl(buffer, 10).unwrap_or_else(|| panic!("an MDL"));
    assert!(kernel.probe_and_lock(mdl, true, LockOperation::Write));
    assert!(!kernel.probe_and_lock(mdl, true, LockOperation::Write), "twice");
    kernel.free_mdl(mdl);
    assert_eq!(broken(&kernel), [NT_MDL_STATE.name; 2]);
}

#[test]
fn reserved_addresses_are_used_again_and_again() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let at = kernel.allocate_mapping_address(2 * PAGE_SIZE, TAG).unwrap_or_default();
    let memory = contiguous(&kernel, 3 * PAGE_SIZE, CacheType::Cached);
    let frame = kernel.physical_address(memory) / PAGE_SIZE as u64;
    for turn in 0..3 {
        let mdl = self_built(&kernel, &[frame + turn, frame], MDL_PAGES_LOCKED);
        assert_eq!(kernel.map_at_reserved(at, TAG, mdl, CacheType::Cached), Some(at));
        host::write(at, &[turn as u8]);
        kernel.unmap_reserved(at, TAG, mdl);
    }
    kernel.free_mapping_address(at, TAG);
    assert!(broken(&kernel).is_empty());
}

#[test]
fn reserved_addresses_are_mapped_at_when_there_are_no_others() {
    let kernel = Kernel::new(KernelConfig { unmap_time: 20_000, ..KernelConfig::collecting() });
    let _in = kernel.enter();
    let at = kernel.allocate_mapping_address(PAGE_SIZE, TAG).unwrap_or_default();
    let memory = contiguous(&kernel, PAGE_SIZE, CacheType::Cached);
    let mdl = self_built(&kernel, &[kernel.physical_address(memory) / PAGE_SIZE as u64], MDL_PAGES_LOCKED);
    kernel.fail_mappings(true);
    assert_eq!(kernel.map_locked_pages(mdl, &MapRequest::default()), None);
    assert_eq!(kernel.map_at_reserved(at, TAG, mdl, CacheType::Cached), Some(at));
    let before = kernel.now();
    kernel.unmap_reserved(at, TAG, mdl);
    assert!(kernel.now() - before >= 20_000, "unmapping takes the time that the machine says");
    kernel.fail_mappings(false);
    let mapped = kernel.map_locked_pages(mdl, &MapRequest::default()).unwrap_or_default();
    let before = kernel.now();
    kernel.unmap_locked_pages(mapped, mdl);
    assert!(kernel.now() - before >= 20_000);
    kernel.free_mapping_address(at, TAG);
    assert!(broken(&kernel).is_empty());
}

#[test]
fn misuse_of_reserved_addresses_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let at = kernel.allocate_mapping_address(PAGE_SIZE, TAG).unwrap_or_default();
    let memory = contiguous(&kernel, 2 * PAGE_SIZE, CacheType::Cached);
    let frame = kernel.physical_address(memory) / PAGE_SIZE as u64;
    let one = self_built(&kernel, &[frame], MDL_PAGES_LOCKED);
    let two = self_built(&kernel, &[frame, frame + 1], MDL_PAGES_LOCKED);
    assert!(kernel.map_at_reserved(at, TAG + 1, one, CacheType::Cached).is_none(), "another tag");
    assert!(kernel.map_at_reserved(at, TAG, two, CacheType::Cached).is_none(), "too long");
    assert!(kernel.map_at_reserved(at, TAG, one, CacheType::Cached).is_some());
    assert!(kernel.map_at_reserved(at, TAG, one, CacheType::Cached).is_none(), "in use");
    kernel.free_mapping_address(at, TAG);
    assert_eq!(broken(&kernel), [NT_MAPPING_TAG.name; 4]);
}

struct Zeros;

impl Registers for Zeros {
    fn read(&self, _: u64, _: u8) -> u64 {
        0
    }

    fn write(&self, _: u64, _: u8, _: u64) {}
}

#[test]
fn io_space_is_for_devices() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let memory = contiguous(&kernel, PAGE_SIZE, CacheType::Cached);
    let ram = kernel.physical_address(memory);
    assert!(kernel.map_io_space(ram, 8, CacheType::NonCached).is_none());
    assert!(kernel.map_io_space(0xF000_0000, 8, CacheType::NonCached).is_none());
    assert_eq!(broken(&kernel), [NT_IO_RAM.name, NT_IO_UNKNOWN.name]);
    assert!(kernel.add_device_registers("zeros", 0xF000_0000, 0x3000, Zeros).is_ok());
    let at = kernel.map_io_space(0xF000_1000, 0x1000, CacheType::NonCached).unwrap_or_default();
    kernel.unmap_io_space(at, 0x2000);
    kernel.unmap_io_space(at, 0x1000);
    assert_eq!(broken(&kernel)[2..], [NT_UNMAP.name; 2]);
}

#[test]
fn memory_on_a_device_is_mapped_like_ram() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let memory = kernel.add_device_memory(0x40_0000_0000 << 8, 4).unwrap_or_else(|error| panic!("{error}"));
    let at = kernel.map_io_space(0x4000_0000_0000, 4 * PAGE_SIZE, CacheType::WriteCombined).unwrap_or_default();
    host::write(at + PAGE_SIZE, &[5]);
    let mut seen = [0];
    assert!(memory.read(PAGE_SIZE, &mut seen).is_ok());
    assert_eq!(seen, [5]);
    kernel.unmap_io_space(at, 4 * PAGE_SIZE);
    assert!(broken(&kernel).is_empty());
}

#[test]
fn what_a_native_driver_leaves_is_listed() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let _ = kernel.call_driver("DxgkDdiStartDevice", || {
        contiguous(&kernel, PAGE_SIZE, CacheType::Cached);
        kernel.allocate_mdl(0, 10);
        kernel.allocate_mapping_address(PAGE_SIZE, TAG);
    });
    contiguous(&kernel, PAGE_SIZE, CacheType::Cached);
    let leaks = kernel.check_native_leaks();
    let mut rules: Vec<_> = leaks.iter().map(|leak| leak.rule.name).collect();
    rules.sort_unstable();
    assert_eq!(rules, [NT_MAP_LEAKED.name, NT_MDL_LEAKED.name, NT_PAGES_LEAKED.name]);
    assert!(leaks.iter().all(|leak| leak.text.contains("in DxgkDdiStartDevice")), "the driver's, not the host's");
}
