use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use super::guard::{AccessViolation, try_user};
use super::process::{MapError, UserMapping};
use crate::kernel::Kernel;
use crate::memory::mdl::LockOperation;
use crate::memory::{PAGE_SIZE, PageKind, Rights, host};
use crate::rules_memory::{NT_MAP_LEFT, NT_PROCESS_LOCKED_PAGES};

fn word(address: usize) -> u64 {
    let mut bytes = [0; 8];
    host::read(address, &mut bytes);
    u64::from_le_bytes(bytes)
}

#[test]
fn a_page_is_shared_between_kernel_and_process() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let process = kernel.create_process("client");
    let Some(object) = kernel.allocate_pages(1, PageKind::System, 0) else { panic!("no memory") };
    let inside = kernel.map_for_model(&object).unwrap_or_default();
    let user = kernel.map_user(&process, &UserMapping::whole(&object, Rights::Read), None).unwrap_or_default();
    host::write(inside, &7_u64.to_le_bytes());
    assert_eq!(word(user), 7);
    let store = try_user(|| host::write(user, &[1]));
    assert_eq!(store, Err(AccessViolation { address: user, write: true }));
    assert_eq!(word(inside), 7);
    assert_eq!(object.mappings(0), 1);
    assert_eq!(kernel.unmap_user(&process, user), Ok(()));
    assert_eq!(kernel.unmap_user(&process, user), Err(MapError::NotMapped));
    kernel.unmap_for_model(inside);
    kernel.free_pages(&object);
    assert!(kernel.rules.violations().is_empty());
}

#[test]
fn a_freed_page_that_is_still_mapped_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let process = kernel.create_process("client");
    let Some(object) = kernel.allocate_pages(1, PageKind::System, 0) else { panic!("no memory") };
    assert!(kernel.map_user(&process, &UserMapping::whole(&object, Rights::Read), None).is_ok());
    kernel.free_pages(&object);
    assert!(kernel.rules.was_broken(&NT_MAP_LEFT));
}

#[test]
fn rotation_loses_no_store() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let process = kernel.create_process("client");
    let Some(object) = kernel.allocate_pages(2, PageKind::System, 0) else { panic!("no memory") };
    let inside = kernel.map_for_model(&object).unwrap_or_default();
    let page = |first| UserMapping { first, pages: 1, ..UserMapping::whole(&object, Rights::ReadWrite) };
    let user = kernel.map_user(&process, &page(0), None).unwrap_or_default();
    let stop = Arc::new(AtomicBool::new(false));
    let stores = Arc::new(AtomicU64::new(0));
    let writer = {
        let (stop, stores) = (stop.clone(), stores.clone());
        std::thread::spawn(move || {
            let mut value = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                value += 1;
                host::write(user, &value.to_le_bytes());
                stores.store(value, Ordering::Release);
            }
        })
    };
    for turn in 1..500 {
        assert_eq!(kernel.remap_user(&process, user, &page(turn % 2)), Ok(()));
    }
    stop.store(true, Ordering::Relaxed);
    assert!(writer.join().is_ok());
    let last = stores.load(Ordering::Acquire);
    assert_eq!(word(inside).max(word(inside + PAGE_SIZE)), last);
    assert_eq!((object.mappings(0), object.mappings(1)), (0, 1));
}

#[test]
fn handles_belong_to_their_process() {
    let kernel = Kernel::collecting();
    let (a, b) = (kernel.create_process("a"), kernel.create_process("b"));
    let handle = a.insert_handle(Arc::new(5_u32));
    assert_eq!(a.handle::<u32>(handle).as_deref(), Some(&5));
    assert!(a.handle::<u64>(handle).is_none(), "of another type");
    assert!(b.handle::<u32>(handle).is_none());
    assert!(a.close_handle(handle).is_some() && a.close_handle(handle).is_none());
}

#[test]
fn a_process_that_ends_with_locked_pages_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let process = kernel.create_process("client");
    let buffer = kernel.allocate_user(&process, 2).unwrap_or_default();
    let Some(mdl) = kernel.allocate_mdl(buffer, 100) else { panic!("no MDL") };
    {
        let _at = kernel.enter_process(&process);
        assert!(kernel.probe_and_lock(mdl, true, LockOperation::Write));
    }
    kernel.end_process(&process);
    assert!(kernel.rules.was_broken(&NT_PROCESS_LOCKED_PAGES));
}

#[test]
fn ending_a_process_returns_its_objects_and_frees_its_memory() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let process = kernel.create_process("client");
    let buffer = kernel.allocate_user(&process, 2).unwrap_or_default();
    process.insert_handle(Arc::new(1_u8));
    assert_eq!(kernel.end_process(&process).len(), 1);
    assert!(kernel.page_at(buffer).is_none() && kernel.process(process.id()).is_none());
    assert!(kernel.rules.violations().is_empty());
}
