//! What the driver may call of Dxgkrnl: `DXGKRNL_INTERFACE`, with the six functions that a device without resources
//! needs on the lowest rung. The others are NULL.
//!
//! Wine has neither IRQLs nor DPCs. The device's level is a lock, which `DxgkCbSynchronizeExecution` holds; the DPC is
//! a thread of the stand-in's.
//!
//! Source: DDI pages DXGKCB_SYNCHRONIZE_EXECUTION, DXGKCB_NOTIFY_INTERRUPT, DXGKCB_QUEUE_DPC, DXGKCB_NOTIFY_DPC,
//! DXGKCB_GET_DEVICE_INFORMATION, DXGKCB_QUERY_SERVICES.

#![expect(unsafe_code, reason = "functions that the driver calls, with raw arguments")]

use crate::log::report;
use crate::nt::{self, Event};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_NOT_SUPPORTED, STATUS_SUCCESS};
use wddm_abi::{
    BOOLEAN, DXGK_DEVICE_INFO, DXGK_INTERRUPT_TYPE, DXGK_SERVICES, DXGKARGCB_NOTIFY_INTERRUPT_DATA, DXGKRNL_INTERFACE,
    HANDLE, INTERFACE, LARGE_INTEGER, NTSTATUS, PDXGK_DEVICE_INFO, PKSYNCHRONIZE_ROUTINE, UNICODE_STRING, win_extern,
};

/// The handle of the adapter that the driver gets: any number that is not an address.
const ADAPTER: usize = 0xADA0;
/// `HighestPhysicalAddress`: the largest address of a process.
const HIGHEST: i64 = (1 << 47) - 1;
/// The registry path of the device, whose values are the driver's settings; [`crate::dxgkrnl`] has who makes it.
const PATH: &str =
    r"\Registry\Machine\System\CurrentControlSet\Control\Class\{4d36e968-e325-11ce-bfc1-08002be10318}\0777";
static PATH_UNITS: [u16; PATH.len()] = {
    let mut units = [0; PATH.len()];
    let mut i = 0;
    while i < PATH.len() {
        units[i] = PATH.as_bytes()[i] as u16; // CAST: widening
        i += 1;
    }
    units
};

/// The device's level: held by who is at it.
static LEVEL: AtomicBool = AtomicBool::new(false);
/// Whether the holder has notified an interrupt outside of the level; that is a failure.
static STRAY: AtomicBool = AtomicBool::new(false);
/// The driver's context, from AddDevice.
pub static CONTEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// The physical device object.
pub static PDO: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// `DxgkDdiDpcRoutine`, as an address.
static DPC_ROUTINE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// What was called so far.
pub struct Counts {
    /// `DxgkCbSynchronizeExecution`.
    pub synchronized: AtomicU64,
    /// `DxgkCbNotifyInterrupt`.
    pub interrupts: AtomicU64,
    /// Runs of the driver's DPC.
    pub dpcs: AtomicU64,
    /// `DxgkCbNotifyDpc`.
    pub notified: AtomicU64,
}

/// See [`Counts`].
pub static COUNTS: Counts = Counts {
    synchronized: AtomicU64::new(0),
    interrupts: AtomicU64::new(0),
    dpcs: AtomicU64::new(0),
    notified: AtomicU64::new(0),
};

/// The last DMA_COMPLETED: node in the upper half, `SubmissionFenceId` in the lower; all ones before the first.
static COMPLETED: AtomicU64 = AtomicU64::new(u64::MAX);
/// Whether an interrupt told of signaled monitored fences.
static FENCES: AtomicBool = AtomicBool::new(false);
/// The type of the last interrupt that was neither; 0 for none.
static OTHER: AtomicU32 = AtomicU32::new(0);

/// Set for every DPC that is queued.
static DPC: Event = Event::new();
/// Whether a DPC is queued, and whether one runs or is about to.
static QUEUED: AtomicBool = AtomicBool::new(false);
static RUNNING: AtomicBool = AtomicBool::new(false);
/// The DPC's thread: 0 there is none, 1 it runs, 2 it is to end.
static THREAD: AtomicU32 = AtomicU32::new(0);

/// The interface, as StartDevice passes it.
pub fn interface() -> DXGKRNL_INTERFACE {
    // CAST: some 600 bytes.
    DXGKRNL_INTERFACE {
        Size: size_of::<DXGKRNL_INTERFACE>() as u32,
        Version: wddm_abi::DXGKDDI_INTERFACE_VERSION_WDDM3_2,
        DeviceHandle: ptr::without_provenance_mut(ADAPTER),
        DxgkCbGetDeviceInformation: Some(get_device_information),
        DxgkCbQueryServices: Some(query_services),
        DxgkCbSynchronizeExecution: Some(synchronize_execution),
        DxgkCbNotifyInterrupt: Some(notify_interrupt),
        DxgkCbQueueDpc: Some(queue_dpc),
        DxgkCbNotifyDpc: Some(notify_dpc),
        ..DXGKRNL_INTERFACE::zeroed()
    }
}

/// Starts the thread that calls `routine`, the driver's `DxgkDdiDpcRoutine`. Returns whether it could.
pub fn start_dpcs(routine: wddm_abi::DXGKDDI_DPC_ROUTINE) -> bool {
    DPC_ROUTINE.store(routine as *mut c_void, Ordering::Release);
    DPC.reset();
    THREAD.store(1, Ordering::Release);
    nt::spawn(serve_dpcs)
}

/// Ends the thread, behind the DPCs that are queued. Returns whether it ended, or never began.
pub fn stop_dpcs() -> bool {
    if THREAD.load(Ordering::Acquire) == 0 {
        return true;
    }
    THREAD.store(2, Ordering::Release);
    DPC.set();
    nt::until(60_000, || THREAD.load(Ordering::Acquire) == 0)
}

/// Waits until no DPC is queued or runs; without the thread, none does.
pub fn flush_dpcs() {
    let is_served = || THREAD.load(Ordering::Acquire) != 0;
    while is_served() && (QUEUED.load(Ordering::SeqCst) || RUNNING.load(Ordering::SeqCst)) {
        nt::pause();
    }
}

/// Returns the node and the fence of the last DMA_COMPLETED.
pub fn completed() -> Option<(u32, u32)> {
    let last = COMPLETED.load(Ordering::Acquire);
    // CAST: the two halves.
    (last != u64::MAX).then_some(((last >> 32) as u32, last as u32))
}

/// Returns whether an interrupt told of signaled monitored fences.
pub fn told_of_fences() -> bool {
    FENCES.load(Ordering::Acquire)
}

/// Returns the type of the last interrupt that told of neither a completed packet nor fences, if there was one.
pub fn other_interrupt() -> Option<u32> {
    Some(OTHER.load(Ordering::Acquire)).filter(|kind| *kind != 0)
}

/// Returns whether an interrupt was notified by who was not at the device's level.
pub fn was_stray() -> bool {
    STRAY.load(Ordering::Acquire)
}

fn serve_dpcs() {
    loop {
        let _was_set = DPC.wait(100);
        RUNNING.store(true, Ordering::SeqCst);
        if QUEUED.swap(false, Ordering::SeqCst) {
            let routine = DPC_ROUTINE.load(Ordering::Acquire);
            // SAFETY: `start_dpcs` stored a function of this type.
            let routine = unsafe { core::mem::transmute::<*mut c_void, wddm_abi::DXGKDDI_DPC_ROUTINE>(routine) };
            // SAFETY: the driver's routine with its own context; the adapter is not removed before this thread ends.
            unsafe { routine(CONTEXT.load(Ordering::Acquire)) };
            COUNTS.dpcs.fetch_add(1, Ordering::AcqRel);
        }
        RUNNING.store(false, Ordering::SeqCst);
        if THREAD.load(Ordering::Acquire) == 2 && !QUEUED.load(Ordering::SeqCst) {
            THREAD.store(0, Ordering::Release);
            return;
        }
    }
}

win_extern! {
    fn get_device_information(_device: HANDLE, info: PDXGK_DEVICE_INFO) -> NTSTATUS {
        // CAST: some 200 bytes.
        let bytes = size_of_val(&PATH_UNITS) as u16;
        let path = UNICODE_STRING {
            Length: bytes,
            MaximumLength: bytes,
            Buffer: PATH_UNITS.as_ptr().cast_mut(),
            ..UNICODE_STRING::zeroed()
        };
        let answer = DXGK_DEVICE_INFO {
            MiniportDeviceContext: CONTEXT.load(Ordering::Acquire),
            PhysicalDeviceObject: PDO.load(Ordering::Acquire).cast(),
            DeviceRegistryPath: path,
            SystemMemorySize: LARGE_INTEGER { QuadPart: 4 << 30 },
            HighestPhysicalAddress: LARGE_INTEGER { QuadPart: HIGHEST },
            ..DXGK_DEVICE_INFO::zeroed()
        };
        // SAFETY: the driver's record.
        unsafe { info.write(answer) };
        STATUS_SUCCESS
    }

    /// There is no feature interface: the driver is to be a packet driver.
    fn query_services(_device: HANDLE, _services: DXGK_SERVICES, _interface: *mut INTERFACE) -> NTSTATUS {
        STATUS_NOT_SUPPORTED
    }

    fn synchronize_execution(
        _device: HANDLE,
        routine: PKSYNCHRONIZE_ROUTINE,
        context: *mut c_void,
        _message: u32,
        returned: *mut BOOLEAN,
    ) -> NTSTATUS {
        let Some(routine) = routine else { return STATUS_INVALID_PARAMETER };
        COUNTS.synchronized.fetch_add(1, Ordering::AcqRel);
        while LEVEL.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
        // SAFETY: the driver's routine with the argument that it gave for it, at the device's level.
        let result = unsafe { routine(context) };
        LEVEL.store(false, Ordering::Release);
        // SAFETY: the driver's place.
        unsafe { returned.write(result) };
        STATUS_SUCCESS
    }

    fn notify_interrupt(_adapter: HANDLE, data: *mut DXGKARGCB_NOTIFY_INTERRUPT_DATA) {
        // SAFETY: the driver's record, valid for the call.
        let data = unsafe { &*data };
        if !LEVEL.load(Ordering::Acquire) {
            STRAY.store(true, Ordering::Release);
        }
        match data.InterruptType {
            DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_DMA_COMPLETED => {
                let done = data.DmaCompleted();
                let both = u64::from(done.NodeOrdinal) << 32 | u64::from(done.SubmissionFenceId);
                COMPLETED.store(both, Ordering::Release);
            }
            DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_MONITORED_FENCE_SIGNALED => FENCES.store(true, Ordering::Release),
            // CAST: a small enumerator.
            other => OTHER.store(other.0 as u32, Ordering::Release),
        }
        COUNTS.interrupts.fetch_add(1, Ordering::AcqRel);
    }

    fn queue_dpc(_device: HANDLE) -> BOOLEAN {
        let was_queued = QUEUED.swap(true, Ordering::SeqCst);
        DPC.set();
        (!was_queued).into()
    }

    fn notify_dpc(_adapter: HANDLE) {
        COUNTS.notified.fetch_add(1, Ordering::AcqRel);
    }
}

/// Reports how often the driver called what.
pub fn report_counts() {
    let counts = [
        ("DxgkCbSynchronizeExecution", &COUNTS.synchronized),
        ("DxgkCbNotifyInterrupt", &COUNTS.interrupts),
        ("DxgkDdiDpcRoutine", &COUNTS.dpcs),
        ("DxgkCbNotifyDpc", &COUNTS.notified),
    ];
    for (name, count) in counts {
        report!("count\t{name}\t{}", count.load(Ordering::Acquire));
    }
}
