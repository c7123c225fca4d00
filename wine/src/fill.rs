//! The services that Wine 8 lacks or has as a stub, and that the driver under test cannot do without: ours, by name.
//!
//! The report names every one of them: what goes through here is no second opinion of it. Under Wine a driver lives in
//! a process, and Wine's `MmGetPhysicalAddress` answers with the address itself; so here the frame of a page is its
//! address divided by the page size, and a mapping of consecutive frames is their address.

#![expect(unsafe_code, reason = "takes the place of kernel routines, whose arguments are raw")]

use crate::callbacks;
use crate::log::report;
use crate::nt;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use wdk_sys::_MEMORY_CACHING_TYPE::MmCached;
use wdk_sys::_POOL_TYPE::NonPagedPoolNx;
use wdk_sys::_TIMER_TYPE::SynchronizationTimer;
use wdk_sys::ntddk::{
    ExFreePool, KeCancelTimer, KeInitializeTimerEx, KeSetTimerEx, MmIsAddressValid, ObfReferenceObject,
};
use wdk_sys::{
    BOOLEAN, KTIMER, LARGE_INTEGER, MDL, MDL_PAGES_LOCKED, MEMORY_CACHING_TYPE, NTSTATUS, PMDL,
    STATUS_INVALID_PARAMETER, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS, UNICODE_STRING,
};

unsafe extern "C" {
    /// Wine's allocator of pool memory, which the bindings leave out as obsolete.
    fn ExAllocatePoolWithTag(kind: i32, bytes: u64, tag: u32) -> *mut c_void;
}

/// A service of ours.
#[derive(Clone, Copy)]
pub struct Filled {
    /// Its import.
    name: &'static str,
    /// Where it is.
    pub ours: *const c_void,
    /// What Wine has in its place.
    pub why: &'static str,
}

/// The service that takes the place of an import; `None`: the import is Wine's.
pub fn of(name: &str) -> Option<Filled> {
    table().into_iter().find(|filled| filled.name == name)
}

/// Every service of ours.
fn table() -> [Filled; 21] {
    macro_rules! table {
        ($($name:literal $ours:ident $why:expr;)*) => {
            [$(Filled { name: $name, ours: $ours as *const c_void, why: $why },)*]
        };
    }
    const ABSENT: &str = "Wine has none";
    const STUB: &str = "Wine's is a stub that ends the process";
    table! {
        "EtwRegister" etw_register "Wine has none; ours takes a provider that nobody listens to";
        "EtwSetInformation" etw_set_information ABSENT;
        "EtwUnregister" etw_unregister ABSENT;
        "EtwWriteTransfer" etw_write_transfer ABSENT;
        "ExAllocatePool2" ex_allocate_pool2 "Wine has none; ours clears what its ExAllocatePoolWithTag gives";
        "ExAllocateTimer" ex_allocate_timer "Wine has none; ours is a KTIMER of Wine's";
        "ExCancelTimer" ex_cancel_timer ABSENT;
        "ExDeleteTimer" ex_delete_timer ABSENT;
        "ExSetTimer" ex_set_timer ABSENT;
        "IoGetDeviceObjectPointer" io_get_device_object_pointer "Wine's is a stub: a device of nobody's";
        "KeDeregisterBugCheckReasonCallback" ke_deregister_bug_check STUB;
        "KeFlushQueuedDpcs" ke_flush_queued_dpcs "Wine's does nothing; the DPCs are the stand-in's";
        "KeRegisterBugCheckReasonCallback" ke_register_bug_check "Wine's ends the process; ours calls nobody";
        "MmAllocateMappingAddress" mm_allocate_mapping_address STUB;
        "MmAllocatePagesForMdlEx" mm_allocate_pages "Wine has none; ours are pages of the process";
        "MmFreeMappingAddress" mm_free_mapping_address STUB;
        "MmFreePagesFromMdl" mm_free_pages STUB;
        "MmGetCacheAttribute" mm_get_cache_attribute "Wine has none; ours: cached, where an address is valid";
        "MmMapLockedPagesSpecifyCache" mm_map_locked_pages "Wine's maps nothing; ours gives the frames' address";
        "MmMapLockedPagesWithReservedMapping" mm_map_reserved "Wine's ends the process; ours as above";
        "MmUnmapReservedMapping" mm_unmap_reserved STUB;
    }
}

/// The device that `\Device\DxgKrnl` names; NULL before there is one.
pub static DEVICE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// The name of that device, as it ends.
pub const DEVICE_NAME: &str = r"\Device\DxgKrnl";

unsafe extern "C" fn etw_register(
    _provider: *const c_void,
    _callback: *const c_void,
    _context: *const c_void,
    handle: *mut u64,
) -> NTSTATUS {
    // SAFETY: the caller's place for the handle.
    unsafe { handle.write(1) };
    STATUS_SUCCESS
}

unsafe extern "C" fn etw_set_information(_handle: u64, _class: i32, _data: *const c_void, _length: u32) -> NTSTATUS {
    STATUS_SUCCESS
}

unsafe extern "C" fn etw_unregister(_handle: u64) -> NTSTATUS {
    STATUS_SUCCESS
}

/// Nobody listens, so a driver that looks at what is enabled does not come here.
unsafe extern "C" fn etw_write_transfer(
    _handle: u64,
    _event: *const c_void,
    _activity: *const c_void,
    _related: *const c_void,
    _count: u32,
    _data: *const c_void,
) -> NTSTATUS {
    STATUS_SUCCESS
}

/// `POOL_FLAG_UNINITIALIZED`.
const UNINITIALIZED: u64 = 2;

unsafe extern "C" fn ex_allocate_pool2(flags: u64, bytes: u64, tag: u32) -> *mut c_void {
    // SAFETY: no pointer comes in.
    let block = unsafe { ExAllocatePoolWithTag(NonPagedPoolNx, bytes as _, tag) };
    if !block.is_null() && flags & UNINITIALIZED == 0 {
        // CAST: the process is 64-bit.
        // SAFETY: a block of that many bytes that nobody else knows.
        unsafe { ptr::write_bytes(block.cast::<u8>(), 0, bytes as usize) };
    }
    block
}

/// A tag for what is allocated here.
const TAG: u32 = u32::from_le_bytes(*b"Wine");

/// Without a callback only, as the driver under test has it: NULL otherwise.
unsafe extern "C" fn ex_allocate_timer(
    callback: *const c_void,
    _context: *mut c_void,
    _attributes: u32,
) -> *mut c_void {
    if !callback.is_null() {
        report!("failed\tExAllocateTimer with a callback, which is not filled in");
        return ptr::null_mut();
    }
    // SAFETY: no pointer comes in.
    let timer = unsafe { ExAllocatePoolWithTag(NonPagedPoolNx, size_of::<KTIMER>() as _, TAG) };
    if !timer.is_null() {
        // SAFETY: a block of the right size that nobody else knows.
        unsafe { KeInitializeTimerEx(timer.cast(), SynchronizationTimer) };
    }
    timer
}

unsafe extern "C" fn ex_set_timer(timer: *mut c_void, due: i64, _period: i64, _more: *mut c_void) -> BOOLEAN {
    let due = LARGE_INTEGER { QuadPart: due };
    // SAFETY: a timer of ours. It expires once, as the driver under test has it.
    unsafe { KeSetTimerEx(timer.cast(), due, 0, ptr::null_mut()) }
}

unsafe extern "C" fn ex_cancel_timer(timer: *mut c_void, _more: *mut c_void) -> BOOLEAN {
    // SAFETY: a timer of ours.
    unsafe { KeCancelTimer(timer.cast()) }
}

unsafe extern "C" fn ex_delete_timer(
    timer: *mut c_void,
    _cancel: BOOLEAN,
    _wait: BOOLEAN,
    _more: *mut c_void,
) -> BOOLEAN {
    // SAFETY: a timer of ours. Wine's waits until nothing of it is under way.
    let was_set = unsafe { KeCancelTimer(timer.cast()) };
    // SAFETY: our block, freed once.
    unsafe { ExFreePool(timer) };
    was_set
}

/// Answers the one name that there is. The device stands for the file object too: a driver gives its reference back,
/// and does nothing else with it.
unsafe extern "C" fn io_get_device_object_pointer(
    name: *const UNICODE_STRING,
    _access: u32,
    file: *mut *mut c_void,
    device: *mut *mut c_void,
) -> NTSTATUS {
    let found = DEVICE.load(Ordering::Acquire);
    // SAFETY: the caller's string.
    if found.is_null() || !unsafe { nt::ends_with(name, DEVICE_NAME) } {
        return STATUS_OBJECT_NAME_NOT_FOUND;
    }
    // SAFETY: a device object of ours.
    let _count = unsafe { ObfReferenceObject(found) };
    // SAFETY: the caller's place.
    unsafe { file.write(found) };
    // SAFETY: as above.
    unsafe { device.write(found) };
    STATUS_SUCCESS
}

unsafe extern "C" fn ke_register_bug_check(
    _record: *mut c_void,
    _routine: *const c_void,
    _reason: i32,
    _component: *const u8,
) -> BOOLEAN {
    1
}

unsafe extern "C" fn ke_deregister_bug_check(_record: *mut c_void) -> BOOLEAN {
    1
}

unsafe extern "C" fn ke_flush_queued_dpcs() {
    callbacks::flush_dpcs();
}

/// The frames that an MDL names.
///
/// # Safety
/// `mdl` is an MDL that says how many there are, and that nobody changes during the call.
unsafe fn frames<'a>(mdl: PMDL) -> &'a [u64] {
    // SAFETY: the caller's promise.
    let header = unsafe { mdl.read() };
    // CAST: widening.
    let count = (header.ByteCount as usize + header.ByteOffset as usize).div_ceil(nt::PAGE);
    // The numbers follow the header.
    let first = mdl.wrapping_add(1).cast::<u64>();
    // SAFETY: as many as the header says (the caller's promise).
    unsafe { core::slice::from_raw_parts(first, count) }
}

/// Where the pages of an MDL are; NULL, and a line in the report, where their frames are not consecutive.
///
/// # Safety
/// As for [`frames`].
unsafe fn place_of(mdl: PMDL, who: &str) -> *mut c_void {
    // SAFETY: the caller's promise.
    let frames = unsafe { frames(mdl) };
    let Some(first) = frames.first() else { return ptr::null_mut() };
    if !(0..).zip(frames).all(|(index, frame)| *frame == first + index) {
        report!("failed\t{who}: {} frames that are not consecutive, which is not filled in", frames.len());
        return ptr::null_mut();
    }
    // CAST: the process is 64-bit.
    ptr::with_exposed_provenance_mut((first * nt::PAGE as u64) as usize)
}

unsafe extern "C" fn mm_allocate_pages(
    _low: i64,
    _high: i64,
    _skip: i64,
    bytes: u64,
    _cache: MEMORY_CACHING_TYPE,
    _flags: u32,
) -> PMDL {
    // CAST: the process is 64-bit.
    let count = (bytes as usize).div_ceil(nt::PAGE);
    let size = size_of::<MDL>() + count * size_of::<u64>();
    // SAFETY: no pointer comes in. ExFreePool, which is Wine's, takes it back.
    let mdl = unsafe { ExAllocatePoolWithTag(NonPagedPoolNx, size as _, TAG) }.cast::<MDL>();
    if mdl.is_null() {
        return mdl;
    }
    let Some(pages) = nt::allocate_pages(count) else {
        // SAFETY: our block, freed once.
        unsafe { ExFreePool(mdl.cast()) };
        return ptr::null_mut();
    };
    // CAST: small numbers; Windows' own member overflows for large MDLs too.
    let header = MDL {
        Size: size as i16,
        MdlFlags: MDL_PAGES_LOCKED as i16,
        StartVa: pages.as_ptr().cast(),
        ByteCount: (count * nt::PAGE) as u32,
        ..MDL::default()
    };
    // SAFETY: our block, which has room for it.
    unsafe { mdl.write(header) };
    // The numbers follow the header.
    let first = mdl.wrapping_add(1).cast::<u64>();
    let frame = pages.as_ptr().expose_provenance() / nt::PAGE;
    for index in 0..count {
        // SAFETY: the block has room for `count` numbers.
        unsafe { first.wrapping_add(index).write((frame + index) as u64) };
    }
    mdl
}

unsafe extern "C" fn mm_free_pages(mdl: PMDL) {
    // SAFETY: an MDL that `mm_allocate_pages` made.
    let pages = unsafe { (*mdl).StartVa };
    // SAFETY: its pages, given back once.
    unsafe { nt::free_pages(pages) };
}

unsafe extern "C" fn mm_get_cache_attribute(physical: i64, cache: *mut MEMORY_CACHING_TYPE) -> NTSTATUS {
    // CAST: a physical address is not negative; here it is the address itself.
    let address = ptr::with_exposed_provenance_mut(physical as usize);
    // SAFETY: looks only.
    if unsafe { MmIsAddressValid(address) } == 0 {
        return STATUS_INVALID_PARAMETER;
    }
    // SAFETY: the caller's place.
    unsafe { cache.write(MmCached) };
    STATUS_SUCCESS
}

unsafe extern "C" fn mm_map_locked_pages(
    mdl: PMDL,
    _mode: i8,
    _cache: MEMORY_CACHING_TYPE,
    _at: *mut c_void,
    _bug_check: u32,
    _priority: u32,
) -> *mut c_void {
    // SAFETY: the caller's MDL.
    unsafe { place_of(mdl, "MmMapLockedPagesSpecifyCache") }
}

/// Addresses are only a name here: what is mapped by them has the address of its pages.
unsafe extern "C" fn mm_allocate_mapping_address(_bytes: u64, _tag: u32) -> *mut c_void {
    // SAFETY: no pointer comes in.
    unsafe { ExAllocatePoolWithTag(NonPagedPoolNx, 16, TAG) }
}

unsafe extern "C" fn mm_free_mapping_address(address: *mut c_void, _tag: u32) {
    // SAFETY: what `mm_allocate_mapping_address` gave, freed once.
    unsafe { ExFreePool(address) };
}

unsafe extern "C" fn mm_map_reserved(
    _address: *mut c_void,
    _tag: u32,
    mdl: PMDL,
    _cache: MEMORY_CACHING_TYPE,
) -> *mut c_void {
    // SAFETY: the caller's MDL.
    unsafe { place_of(mdl, "MmMapLockedPagesWithReservedMapping") }
}

unsafe extern "C" fn mm_unmap_reserved(_address: *mut c_void, _tag: u32, _mdl: PMDL) {}
