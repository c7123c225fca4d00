use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use iced_x86::code_asm::*;

use super::dll::DllError;
use super::guard::{AccessViolation, try_user};
use super::process::{MapError, UserMapping};
use crate::callback;
use crate::image::tests::builder::DriverBuilder;
use crate::image::{Image, LoadOptions};
use crate::kernel::Kernel;
use crate::memory::mdl::LockOperation;
use crate::memory::{PAGE_SIZE, PageKind, Rights, host};
use crate::rules_memory::{NT_MAP_LEFT, NT_PROCESS_LOCKED_PAGES, NT_USER_TOUCH};
use crate::rules_user::{UM_HANDLE, UM_HEAP, UM_HEAP_OVERRUN};
use crate::shims;

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
fn a_copy_is_left_where_memory_is_taken_away() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let process = kernel.create_process("client");
    let Some(object) = kernel.allocate_pages(2, PageKind::System, 0) else { panic!("no memory") };
    let inside = kernel.map_for_model(&object).unwrap_or_default();
    let [read, written] = [Rights::Read, Rights::ReadWrite].map(|rights| {
        host::write(inside + PAGE_SIZE, &7_u64.to_le_bytes());
        let user = kernel.map_user(&process, &UserMapping::whole(&object, rights), None).unwrap_or_default();
        assert_eq!(kernel.leave_copy(&process, user), Ok(()));
        host::write(inside + PAGE_SIZE, &8_u64.to_le_bytes());
        user + PAGE_SIZE
    });
    assert_eq!((word(read), word(written), object.mappings(1)), (7, 7, 0));
    let store = try_user(|| host::write(read, &[1]));
    assert_eq!(store, Err(AccessViolation { address: read, write: true }));
    host::write(written, &9_u64.to_le_bytes());
    assert_eq!((word(written), word(inside + PAGE_SIZE)), (9, 8));
    assert_eq!(kernel.leave_copy(&process, written), Err(MapError::NotMapped), "not where a mapping begins");
    let objects = kernel.page_objects().len();
    drop(kernel.end_process(&process));
    assert_eq!(kernel.page_objects().len(), objects - 2, "the copies go with the process");
    kernel.unmap_for_model(inside);
    kernel.free_pages(&object);
    assert!(kernel.rules.violations().is_empty());
}

/// A process that stores where it has nothing any more faults, whatever others have mapped meanwhile.
#[test]
fn addresses_that_a_process_gave_up_are_nobody_elses() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let (one, other) = (kernel.create_process("one"), kernel.create_process("other"));
    let Some(object) = kernel.allocate_pages(1, PageKind::System, 0) else { panic!("no memory") };
    let page = UserMapping::whole(&object, Rights::ReadWrite);
    let mapped = kernel.map_user(&one, &page, None).unwrap_or_default();
    assert_eq!(kernel.unmap_user(&one, mapped), Ok(()));
    let allocated = kernel.allocate_user(&one, 1).unwrap_or_default();
    assert_eq!(kernel.free_user(&one, allocated), Ok(()));
    let theirs: Vec<_> = (0..64).map(|_| kernel.map_user(&other, &page, None)).collect();
    for gone in [mapped, allocated] {
        assert!(!theirs.contains(&Ok(gone)), "{gone:#x} is another's");
        let store = try_user(|| host::write(gone, &[1]));
        assert_eq!(store, Err(AccessViolation { address: gone, write: true }));
    }
    // Its own they may be again.
    assert_eq!(kernel.map_user(&one, &page, Some(mapped)), Ok(mapped));
    assert_eq!(try_user(|| host::write(mapped, &[1])), Ok(()));
    kernel.end_process(&one);
    kernel.end_process(&other);
    kernel.free_pages(&object);
    assert!(kernel.rules.violations().is_empty());
}

#[test]
fn secured_memory_is_not_freed_before_it_is_let_go_of() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let (one, other) = (kernel.create_process("one"), kernel.create_process("other"));
    let own = kernel.allocate_user(&one, 4).unwrap_or_default();
    let secured = kernel.secure_user(&one, own + 4096, 2).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((secured.first, secured.object.pages()), (1, 4));
    assert_eq!(kernel.free_user(&one, own), Err(MapError::InUse));
    for (process, at, pages, error) in [
        (&one, own + 8, 1, MapError::Range),
        (&one, own, 0, MapError::Range),
        (&one, own, 5, MapError::Range),
        (&one, own, usize::MAX / 4096, MapError::Range),
        (&one, 4096, 1, MapError::NotMapped),
        (&other, own, 1, MapError::NotMapped),
    ] {
        assert_eq!(kernel.secure_user(process, at, pages).err(), Some(error), "{at:#x}+{pages}");
    }
    // What the kernel shows to a process is not the process's own.
    let Some(shown) = kernel.allocate_pages(1, PageKind::User, 0) else { panic!("no memory") };
    let there = kernel.map_user(&one, &UserMapping::whole(&shown, Rights::ReadWrite), None).unwrap_or_default();
    assert_eq!(kernel.secure_user(&one, there, 1).err(), Some(MapError::Range));
    kernel.pin_page(&secured.object, 1);
    kernel.end_process(&one);
    assert!(!secured.object.is_freed() && shown.is_freed());
    kernel.unpin_page(&secured.object, 1);
    kernel.unsecure(&secured.object);
    assert!(secured.object.is_freed());
    kernel.end_process(&other);
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

#[test]
fn a_driver_that_touches_hidden_user_memory_is_seen_and_let_through() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let process = kernel.create_process("client");
    let buffer = kernel.allocate_user(&process, 1).unwrap_or_default();
    host::write(buffer, &[5]);
    kernel.hide_process(&process);
    let seen = kernel.call_driver("DxgkDdiEscape", || word(buffer));
    assert_eq!(seen, Ok(5));
    kernel.reveal_process(&process);
    assert_eq!(word(buffer), 5);
    assert!(kernel.rules.was_broken(&NT_USER_TOUCH));
    let violation = &kernel.rules.violations()[0];
    assert_eq!(violation.context.entries, ["DxgkDdiEscape"]);
}

shims! {
    table GDI32;
    fn D3DKMTTest(m, value: u32) -> u32 {
        // CAST: a test's process ids are small.
        value + m.current_process_id() as u32
    }
}

/// A DLL with a counter in its data, the process heap, and a function of gdi32.
fn test_dll() -> Vec<u8> {
    let imports = ["kernel32.dll!HeapAlloc", "kernel32.dll!HeapFree", "gdi32.dll!D3DKMTTest", "ntdll.dll!memset"];
    let mut builder = DriverBuilder::new(&imports);
    let counter = builder.data(&[0; 8]);
    builder
        .code(|b| {
            // DllMain: TRUE.
            b.asm.mov(eax, 1)?;
            b.asm.ret()?;
            b.export("count");
            b.lea(rax, counter);
            b.asm.add(dword_ptr(rax), 1)?;
            b.asm.mov(eax, dword_ptr(rax))?;
            b.asm.ret()?;
            b.export("allocate");
            b.asm.sub(rsp, 0x28)?;
            b.asm.mov(r8, rcx)?;
            b.asm.xor(edx, edx)?;
            b.call("HeapAlloc");
            b.asm.add(rsp, 0x28)?;
            b.asm.ret()?;
            b.export("free");
            b.asm.sub(rsp, 0x28)?;
            b.asm.mov(r8, rcx)?;
            b.asm.xor(edx, edx)?;
            b.call("HeapFree");
            b.asm.add(rsp, 0x28)?;
            b.asm.ret()?;
            b.export("thunk");
            b.asm.sub(rsp, 0x28)?;
            b.call("D3DKMTTest");
            b.asm.add(rsp, 0x28)?;
            b.asm.ret()?;
            b.export("crash");
            b.asm.mov(dword_ptr(rcx), 1)?;
            b.asm.ret()
        })
        .build_dll()
}

fn call(image: &Image, name: &str, argument: usize) -> Result<usize, AccessViolation> {
    let address = image.export(name).unwrap_or_else(|| panic!("{name}"));
    try_user(|| callback::invoke(address, [argument]))
}

#[test]
fn a_dll_has_statics_heap_and_thunks_of_its_process() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    kernel.register_imports("gdi32.dll", GDI32);
    let processes = [kernel.create_process("a"), kernel.create_process("b")];
    let images = [0, 1].map(|at: usize| {
        let loaded = kernel.load_dll_bytes(&processes[at], "test.dll", &test_dll(), &LoadOptions::default());
        loaded.unwrap_or_else(|error| panic!("{error}"))
    });
    assert_ne!(images[0].base(), images[1].base());
    assert_eq!([call(&images[0], "count", 0), call(&images[0], "count", 0)], [Ok(1), Ok(2)]);
    assert_eq!(call(&images[1], "count", 0), Ok(1));
    let _at = kernel.enter_process(&processes[1]);
    // CAST: small numbers.
    assert_eq!(call(&images[1], "thunk", 7), Ok(7 + processes[1].id() as usize));
    let block = call(&images[1], "allocate", 100).unwrap_or_default();
    assert_eq!((processes[0].heap_usage().blocks, processes[1].heap_usage().bytes), (0, 100));
    assert!(kernel.page_at(block).is_some(), "heap memory is the process's memory");
    assert_eq!(call(&images[1], "free", block), Ok(1));
    assert!(kernel.rules.violations().is_empty());
    assert_eq!(call(&images[1], "free", block), Ok(0));
    assert!(kernel.rules.was_broken(&UM_HEAP));
    let block = call(&images[1], "allocate", 10).unwrap_or_default();
    host::write(block + 10, &[0]);
    assert_eq!(call(&images[1], "free", block), Ok(1));
    assert!(kernel.rules.was_broken(&UM_HEAP_OVERRUN));
}

#[test]
fn a_crash_in_a_dll_is_its_processs_access_violation() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    kernel.register_imports("gdi32.dll", GDI32);
    let process = kernel.create_process("client");
    let image = kernel.load_dll_bytes(&process, "test.dll", &test_dll(), &LoadOptions::default());
    let image = image.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(call(&image, "crash", 0x50), Err(AccessViolation { address: 0x50, write: true }));
    assert!(kernel.rules.violations().is_empty() && !kernel.rules.is_stopped());
    kernel.end_process(&process);
    kernel.unload_dlls(&process);
}

#[test]
fn a_dll_may_refuse_or_lack_an_import() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let process = kernel.create_process("client");
    let refusing = DriverBuilder::new(&[]).code(|b| {
        b.asm.xor(eax, eax)?;
        b.asm.ret()
    });
    let options = LoadOptions::default();
    let refused = kernel.load_dll_bytes(&process, "no.dll", &refusing.build_dll(), &options);
    assert_eq!(refused.err(), Some(DllError::Refused));
    // gdi32 is not registered here: its function is missing, and calling it is a crash of the process.
    let image = kernel.load_dll_bytes(&process, "test.dll", &test_dll(), &options);
    let image = image.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(image.missing_imports(), ["gdi32.dll!D3DKMTTest"]);
    assert!(call(&image, "thunk", 0).is_err());
}

/// Calls a function of kernel32 as a DLL does.
fn kernel32<const N: usize>(name: &str, arguments: [usize; N]) -> usize {
    let entry = super::kernel32::KERNEL32.iter().find(|entry| entry.name == name);
    let address = entry.unwrap_or_else(|| panic!("{name}")).address.get();
    callback::invoke(address, arguments)
}

#[test]
fn events_are_handles_of_the_process() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let process = kernel.create_process("client");
    let _at = kernel.enter_process(&process);
    let first = kernel32("CreateEventW", [0, 0, 0, 0]);
    let second = kernel32("CreateEventA", [0, 1, 1, 0]);
    let both = [first, second];
    let handles = both.as_ptr().expose_provenance();
    assert_eq!(kernel32("WaitForSingleObject", [first, 0]) as u32, 0x102);
    assert_eq!(kernel32("WaitForMultipleObjects", [2, handles, 0, 10]) as u32, 1);
    assert_eq!(kernel32("SetEvent", [first]) as u32, 1);
    assert_eq!(kernel32("WaitForMultipleObjects", [2, handles, 1, usize::MAX]) as u32, 0);
    let mut copy = 0_usize;
    let own = usize::MAX;
    let arguments = [own, second, own, (&raw mut copy).expose_provenance(), 0, 0, 2];
    assert_eq!(kernel32("DuplicateHandle", arguments) as u32, 1);
    assert_eq!(kernel32("CloseHandle", [second]) as u32, 1);
    assert_eq!(kernel32("ResetEvent", [copy]) as u32, 1);
    assert_eq!(kernel32("CloseHandle", [copy]) as u32, 1);
    assert!(kernel.rules.violations().is_empty());
    assert_eq!(kernel32("CloseHandle", [copy]) as u32, 0);
    assert_eq!(kernel32("GetLastError", []) as u32, 6);
    assert!(kernel.rules.was_broken(&UM_HANDLE));
}

#[test]
fn modules_and_procedures_are_found_by_name() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    kernel.register_imports("gdi32.dll", GDI32);
    let process = kernel.create_process("client");
    let _at = kernel.enter_process(&process);
    let module = |name: &std::ffi::CStr| kernel32("GetModuleHandleA", [name.as_ptr().expose_provenance()]);
    let find = |module, name: &std::ffi::CStr| kernel32("GetProcAddress", [module, name.as_ptr().expose_provenance()]);
    let gdi32 = module(c"GDI32.dll");
    assert!(gdi32 != 0 && gdi32 != module(c"kernel32"));
    assert_eq!(find(gdi32, c"D3DKMTTest"), GDI32[0].address.get());
    assert_eq!(find(gdi32, c"D3DKMTNothing"), 0);
    assert_ne!(find(module(c"kernel32.dll"), c"HeapAlloc"), 0);
    assert_eq!(module(c"nothing.dll"), 0);
}
