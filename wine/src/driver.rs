//! The driver's table, as calls that are safe to make in the order in which [`crate::run`] makes them.

#![expect(unsafe_code, reason = "calls the driver's functions")]

use crate::callbacks;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use wddm_abi::{
    DRIVER_INITIALIZATION_DATA, DXGK_NODEMETADATA, DXGK_QUERYADAPTERINFOTYPE, DXGK_START_INFO,
    DXGKARG_BUILDPAGINGBUFFER, DXGKARG_CREATECONTEXT, DXGKARG_CREATEDEVICE, DXGKARG_CREATEPROCESS,
    DXGKARG_GETROOTPAGETABLESIZE, DXGKARG_QUERYADAPTERINFO, DXGKARG_SETROOTPAGETABLE, DXGKARG_SUBMITCOMMANDVIRTUAL,
    HANDLE, NTSTATUS, Plain, ntstatus,
};

/// The copy of the table that the driver has registered.
struct Table(UnsafeCell<DRIVER_INITIALIZATION_DATA>);

// SAFETY: written once, before `IS_THERE` is set; read only after that.
unsafe impl Sync for Table {}

static TABLE: Table = Table(UnsafeCell::new(DRIVER_INITIALIZATION_DATA::zeroed()));
static IS_THERE: AtomicBool = AtomicBool::new(false);

/// Keeps a copy of the table. Returns its version.
///
/// # Safety
/// `table` is what the driver passed to `DxgkInitialize`. Called once.
pub unsafe fn register(table: *const DRIVER_INITIALIZATION_DATA) -> u32 {
    // SAFETY: the caller's promise.
    let table = unsafe { table.read() };
    // SAFETY: nobody reads it before the flag is set, and nobody else writes it (the caller's promise).
    unsafe { TABLE.0.get().write(table) };
    IS_THERE.store(true, Ordering::Release);
    table.Version
}

/// Returns the registered table.
pub fn table() -> Option<&'static DRIVER_INITIALIZATION_DATA> {
    // SAFETY: written before the flag, and never again.
    IS_THERE.load(Ordering::Acquire).then(|| unsafe { &*TABLE.0.get() })
}

/// What a DDI that the driver has not registered would have answered.
const ABSENT: NTSTATUS = ntstatus::STATUS_NOT_IMPLEMENTED;

/// Calls a DDI by its slot's name.
macro_rules! call {
    ($slot:ident($($argument:expr),*)) => {
        match table().and_then(|table| table.$slot) {
            // SAFETY: the driver's function, with records of the types of its page that live across the call, and
            // handles that are the driver's own.
            Some(function) => Some(unsafe { function($($argument),*) }),
            None => None,
        }
    };
}

fn context() -> *mut c_void {
    callbacks::CONTEXT.load(Ordering::Acquire)
}

/// `DxgkDdiAddDevice`; keeps the driver's context.
pub fn add_device() -> NTSTATUS {
    let mut made = ptr::null_mut();
    let device = callbacks::PDO.load(Ordering::Acquire).cast();
    let status = call!(DxgkDdiAddDevice(device, &raw mut made)).unwrap_or(ABSENT);
    callbacks::CONTEXT.store(made, Ordering::Release);
    status
}

/// `DxgkDdiStartDevice`. Returns sources and children, too.
pub fn start_device() -> (NTSTATUS, u32, u32) {
    let mut info = DXGK_START_INFO::zeroed();
    info.AdapterLuid.LowPart = 0x57;
    let mut interface = callbacks::interface();
    let (mut sources, mut children) = (u32::MAX, u32::MAX);
    let (to_sources, to_children) = (&raw mut sources, &raw mut children);
    let (info, interface) = (&raw mut info, &raw mut interface);
    let status = call!(DxgkDdiStartDevice(context(), info, interface, to_sources, to_children)).unwrap_or(ABSENT);
    (status, sources, children)
}

/// `DxgkDdiStopDevice`.
pub fn stop_device() -> NTSTATUS {
    call!(DxgkDdiStopDevice(context())).unwrap_or(ABSENT)
}

/// `DxgkDdiRemoveDevice`.
pub fn remove_device() -> NTSTATUS {
    call!(DxgkDdiRemoveDevice(context())).unwrap_or(ABSENT)
}

/// `DxgkDdiUnload`. Returns whether the driver has it.
pub fn unload() -> bool {
    call!(DxgkDdiUnload()).is_some()
}

/// `DxgkDdiQueryAdapterInfo` with a record in and out.
pub fn query(kind: DXGK_QUERYADAPTERINFOTYPE, input: &mut [u8], output: &mut [u8]) -> NTSTATUS {
    let mut args = DXGKARG_QUERYADAPTERINFO::zeroed();
    args.Type = kind;
    // CAST: records of some hundred bytes.
    (args.InputDataSize, args.OutputDataSize) = (input.len() as u32, output.len() as u32);
    (args.pInputData, args.pOutputData) = (input.as_mut_ptr().cast(), output.as_mut_ptr().cast());
    call!(DxgkDdiQueryAdapterInfo(context(), &raw const args)).unwrap_or(ABSENT)
}

/// `DxgkDdiGetNodeMetadata`.
pub fn node_metadata(node: u32, metadata: &mut DXGK_NODEMETADATA) -> NTSTATUS {
    call!(DxgkDdiGetNodeMetadata(context(), node, ptr::from_mut(metadata))).unwrap_or(ABSENT)
}

/// `DxgkDdiCreateProcess`.
pub fn create_process(args: &mut DXGKARG_CREATEPROCESS) -> NTSTATUS {
    call!(DxgkDdiCreateProcess(context(), ptr::from_mut(args))).unwrap_or(ABSENT)
}

/// `DxgkDdiDestroyProcess`.
pub fn destroy_process(process: HANDLE) -> NTSTATUS {
    call!(DxgkDdiDestroyProcess(context(), process)).unwrap_or(ABSENT)
}

/// `DxgkDdiCreateDevice`.
pub fn create_device(args: &mut DXGKARG_CREATEDEVICE) -> NTSTATUS {
    call!(DxgkDdiCreateDevice(context(), ptr::from_mut(args))).unwrap_or(ABSENT)
}

/// `DxgkDdiDestroyDevice`.
pub fn destroy_device(device: HANDLE) -> NTSTATUS {
    call!(DxgkDdiDestroyDevice(device)).unwrap_or(ABSENT)
}

/// `DxgkDdiCreateContext`.
pub fn create_context(device: HANDLE, args: &mut DXGKARG_CREATECONTEXT) -> NTSTATUS {
    call!(DxgkDdiCreateContext(device, ptr::from_mut(args))).unwrap_or(ABSENT)
}

/// `DxgkDdiDestroyContext`.
pub fn destroy_context(of: HANDLE) -> NTSTATUS {
    call!(DxgkDdiDestroyContext(of)).unwrap_or(ABSENT)
}

/// `DxgkDdiGetRootPageTableSize`; 0 where the driver has none.
pub fn root_page_table_size(args: &mut DXGKARG_GETROOTPAGETABLESIZE) -> usize {
    call!(DxgkDdiGetRootPageTableSize(context(), ptr::from_mut(args))).unwrap_or(0)
}

/// `DxgkDdiSetRootPageTable`. Returns whether the driver has it.
pub fn set_root_page_table(args: &DXGKARG_SETROOTPAGETABLE) -> bool {
    call!(DxgkDdiSetRootPageTable(context(), ptr::from_ref(args))).is_some()
}

/// `DxgkDdiBuildPagingBuffer`.
pub fn build_paging_buffer(args: &mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
    call!(DxgkDdiBuildPagingBuffer(context(), ptr::from_mut(args))).unwrap_or(ABSENT)
}

/// `DxgkDdiSubmitCommandVirtual`.
pub fn submit(args: &DXGKARG_SUBMITCOMMANDVIRTUAL) -> NTSTATUS {
    call!(DxgkDdiSubmitCommandVirtual(context(), ptr::from_ref(args))).unwrap_or(ABSENT)
}

/// A record that a query fills.
pub fn query_record<T: Plain>(kind: DXGK_QUERYADAPTERINFOTYPE, input: &mut [u8], mut record: T) -> (NTSTATUS, T) {
    let status = query(kind, input, record.as_bytes_mut());
    (status, record)
}
