//! `DxgkInitialize`: hands the driver's table to Dxgkrnl.
//!
//! In a WDK build the function comes from displib.lib (`cfg(displib)`, set by build.rs). The Linux cross build has no
//! such library, so this file does what it does: have the Dxgkrnl service loaded, open its device, ask it for the
//! address of its own `DxgkInitialize` by an internal device control request, and call that. Why both exist:
//! `docs/decisions/0001-cross-build.md`.
//!
//! Source: no Microsoft document describes the request. Names and codes are those of public drivers that send or answer
//! it: ReactOS (its `displib`, MIT) sends the older code; filter drivers that sit on the request know both, and take
//! the newer one on Windows 8 and later. `docs/decisions/0001-cross-build.md` says how far they are confirmed.

#![expect(unsafe_code, reason = "calls ntoskrnl and a function whose address another driver hands over")]

use wddm_abi::DRIVER_INITIALIZATION_DATA;
use wdk_sys::NTSTATUS;
use wdk_sys::PCUNICODE_STRING;
use wdk_sys::PDRIVER_OBJECT;

/// The table that Dxgkrnl gets.
pub type InitializationData = DRIVER_INITIALIZATION_DATA;

/// Registers the driver's table with Dxgkrnl.
///
/// IRQL: PASSIVE_LEVEL, with APCs enabled (the request that asks for the function completes by one).
///
/// # Errors
/// Dxgkrnl's status for the table; or, before Dxgkrnl sees it, that of the step which failed: ZwLoadDriver,
/// IoGetDeviceObjectPointer, the device control request. STATUS_PROCEDURE_NOT_FOUND if the request succeeds and hands
/// over no function.
///
/// # Safety
/// Called in DriverEntry with its own arguments. `data` is a table of the version it states, valid for the call.
/// `code` is the setting `HandshakeCode`; it means nothing with Microsoft's library.
pub unsafe fn dxgk_initialize(
    driver: PDRIVER_OBJECT,
    registry_path: PCUNICODE_STRING,
    data: *mut InitializationData,
    code: u32,
) -> NTSTATUS {
    #[cfg(displib)]
    let _unused = code;
    #[cfg(displib)]
    // SAFETY: the caller's promise.
    return unsafe { wdk_displib::DxgkInitialize(driver, registry_path.cast_mut(), data) };
    #[cfg(not(displib))]
    match handshake::Dxgkrnl::open(code) {
        // SAFETY: the caller's promise; the function is the one that Dxgkrnl has for this purpose, and Dxgkrnl's device
        // is referenced until it returns.
        Ok(dxgkrnl) => unsafe { (dxgkrnl.initialize)(driver, registry_path.cast_mut(), data) },
        Err(status) => status,
    }
}

/// The function in Dxgkrnl, of the type that dispmprt.h gives the one in displib.lib.
#[cfg(not(displib))]
type DxgkInitialize =
    unsafe extern "C" fn(PDRIVER_OBJECT, *mut wdk_sys::UNICODE_STRING, *mut InitializationData) -> NTSTATUS;

#[cfg(displib)]
mod wdk_displib {
    use super::InitializationData;
    use wdk_sys::NTSTATUS;
    use wdk_sys::PDRIVER_OBJECT;
    use wdk_sys::UNICODE_STRING;

    unsafe extern "C" {
        pub fn DxgkInitialize(
            driver: PDRIVER_OBJECT,
            registry_path: *mut UNICODE_STRING,
            data: *mut InitializationData,
        ) -> NTSTATUS;
    }
}

#[cfg(not(displib))]
mod handshake {
    use super::DxgkInitialize;
    use core::mem;
    use core::ptr;
    use wdk_sys::_EVENT_TYPE::NotificationEvent;
    use wdk_sys::_KWAIT_REASON::Executive;
    use wdk_sys::_MODE::KernelMode;
    use wdk_sys::FILE_ALL_ACCESS;
    use wdk_sys::IO_STATUS_BLOCK;
    use wdk_sys::KEVENT;
    use wdk_sys::LARGE_INTEGER;
    use wdk_sys::NT_SUCCESS;
    use wdk_sys::NTSTATUS;
    use wdk_sys::PDEVICE_OBJECT;
    use wdk_sys::PFILE_OBJECT;
    use wdk_sys::STATUS_IMAGE_ALREADY_LOADED;
    use wdk_sys::STATUS_INSUFFICIENT_RESOURCES;
    use wdk_sys::STATUS_INVALID_DEVICE_REQUEST;
    use wdk_sys::STATUS_OBJECT_NAME_NOT_FOUND;
    use wdk_sys::STATUS_PENDING;
    use wdk_sys::STATUS_PROCEDURE_NOT_FOUND;
    use wdk_sys::UNICODE_STRING;
    use wdk_sys::ntddk::IoBuildDeviceIoControlRequest;
    use wdk_sys::ntddk::IoGetDeviceObjectPointer;
    use wdk_sys::ntddk::IofCallDriver;
    use wdk_sys::ntddk::KeDelayExecutionThread;
    use wdk_sys::ntddk::KeInitializeEvent;
    use wdk_sys::ntddk::KeWaitForSingleObject;
    use wdk_sys::ntddk::ObfDereferenceObject;
    use wdk_sys::ntddk::ZwLoadDriver;

    const SERVICE_NAME: &str = r"\Registry\Machine\System\CurrentControlSet\Services\DXGKrnl";
    const DEVICE_NAME: &str = r"\Device\DxgKrnl";
    static SERVICE: [u16; SERVICE_NAME.len()] = utf16(SERVICE_NAME);
    static DEVICE: [u16; DEVICE_NAME.len()] = utf16(DEVICE_NAME);

    /// CTL_CODE(FILE_DEVICE_VIDEO, 0x11, METHOD_NEITHER, FILE_ANY_ACCESS): the output buffer's address goes to Dxgkrnl
    /// as it is, and Dxgkrnl stores the address of its `DxgkInitialize` there. The request of Windows 8 and later.
    const NEWER_CODE: u32 = 0x0023_0047;
    /// The same request of Windows 7: function 0xF.
    const OLDER_CODE: u32 = 0x0023_003F;

    /// How often Dxgkrnl's device is asked for: its image may be loaded before its device exists.
    const LOOKS: u32 = 10;
    /// Between two looks, in units of 100 ns, relative: 0.1 s.
    const PAUSE: i64 = -1_000_000;

    /// Dxgkrnl, loaded, with its control device referenced.
    pub struct Dxgkrnl {
        /// Its `DxgkInitialize`.
        pub initialize: DxgkInitialize,
        _device: Device,
    }

    impl Dxgkrnl {
        /// Loads Dxgkrnl and asks it for its function. `code`: 0 asks with the newer code and, where Dxgkrnl does not
        /// know that, with the older one; 1 and 2 ask with the newer or the older one alone.
        pub fn open(code: u32) -> Result<Self, NTSTATUS> {
            load_service()?;
            let device = Device::open()?;
            let asked = match code {
                1 => device.ask_for_function(NEWER_CODE),
                2 => device.ask_for_function(OLDER_CODE),
                _ => match device.ask_for_function(NEWER_CODE) {
                    Err(STATUS_INVALID_DEVICE_REQUEST) => device.ask_for_function(OLDER_CODE),
                    answered => answered,
                },
            };
            let initialize = asked?.ok_or(STATUS_PROCEDURE_NOT_FOUND)?;
            Ok(Self { initialize, _device: device })
        }
    }

    /// Windows loads Dxgkrnl on demand, and the first display driver is the demand.
    fn load_service() -> Result<(), NTSTATUS> {
        let mut name = unicode_string(&SERVICE);
        // SAFETY: `name` describes a static string. IRQL: PASSIVE_LEVEL by the caller's promise.
        let status = unsafe { ZwLoadDriver(&raw mut name) };
        if NT_SUCCESS(status) || status == STATUS_IMAGE_ALREADY_LOADED { Ok(()) } else { Err(status) }
    }

    /// Dxgkrnl's control device, referenced through a file object.
    struct Device {
        object: PDEVICE_OBJECT,
        file: PFILE_OBJECT,
    }

    impl Device {
        /// Opens the device. Where Dxgkrnl has made none yet, it is looked for during a second.
        fn open() -> Result<Self, NTSTATUS> {
            let mut looks = 1;
            loop {
                match Self::look() {
                    Err(STATUS_OBJECT_NAME_NOT_FOUND) if looks < LOOKS => {
                        looks += 1;
                        let mut pause = LARGE_INTEGER { QuadPart: PAUSE };
                        // CAST: an enumerator, 0.
                        // SAFETY: PASSIVE_LEVEL; the interval is on this stack.
                        let _status = unsafe { KeDelayExecutionThread(KernelMode as i8, 0, &raw mut pause) };
                    }
                    found => return found,
                }
            }
        }

        fn look() -> Result<Self, NTSTATUS> {
            let mut name = unicode_string(&DEVICE);
            let mut file = ptr::null_mut();
            let mut object = ptr::null_mut();
            // SAFETY: `name` describes a static string and the results have a place each. IRQL: PASSIVE_LEVEL.
            let status =
                unsafe { IoGetDeviceObjectPointer(&raw mut name, FILE_ALL_ACCESS, &raw mut file, &raw mut object) };
            if NT_SUCCESS(status) { Ok(Self { object, file }) } else { Err(status) }
        }

        fn ask_for_function(&self, code: u32) -> Result<Option<DxgkInitialize>, NTSTATUS> {
            let mut function: Option<DxgkInitialize> = None;
            let mut done = KEVENT::default();
            let mut result = IO_STATUS_BLOCK::default();
            // SAFETY: `done` is on this (resident) stack and outlives the request, which is waited for below.
            unsafe { KeInitializeEvent(&raw mut done, NotificationEvent, 0) };
            // SAFETY: `function`, `done` and `result` outlive the request. The I/O manager frees the IRP.
            let irp = unsafe {
                IoBuildDeviceIoControlRequest(
                    code,
                    self.object,
                    ptr::null_mut(),
                    0,
                    (&raw mut function).cast(),
                    // CAST: eight bytes.
                    mem::size_of_val(&function) as u32,
                    1, // IRP_MJ_INTERNAL_DEVICE_CONTROL
                    &raw mut done,
                    &raw mut result,
                )
            };
            if irp.is_null() {
                return Err(STATUS_INSUFFICIENT_RESOURCES);
            }
            // SAFETY: `irp` was built for this device and is not touched again.
            let mut status = unsafe { IofCallDriver(self.object, irp) };
            if status == STATUS_PENDING {
                // TIMEOUT: none; Dxgkrnl answers this request in its dispatch routine, and the event lives on this
                // stack.
                // SAFETY: `done` is an initialised event. IRQL: PASSIVE_LEVEL.
                let _ = unsafe {
                    // CAST: an enumerator, 0.
                    KeWaitForSingleObject((&raw mut done).cast(), Executive, KernelMode as i8, 0, ptr::null_mut())
                };
                // SAFETY: the request is complete, so the block's status has been written.
                status = unsafe { result.__bindgen_anon_1.Status };
            }
            wdk::println!("fencepost: Dxgkrnl answered {status:#x} to the request {code:#x}");
            if NT_SUCCESS(status) { Ok(function) } else { Err(status) }
        }
    }

    impl Drop for Device {
        fn drop(&mut self) {
            // SAFETY: IoGetDeviceObjectPointer referenced the file object, and this gives the reference back, once.
            unsafe { ObfDereferenceObject(self.file.cast()) };
        }
    }

    /// A string without a terminator.
    fn unicode_string(text: &'static [u16]) -> UNICODE_STRING {
        // CAST: both names are far shorter than 32,767 characters.
        let bytes = mem::size_of_val(text) as u16;
        // Nothing writes through the buffer of a name that is passed in.
        UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: text.as_ptr().cast_mut() }
    }

    /// An ASCII string as UTF-16, at compile time.
    const fn utf16<const N: usize>(text: &str) -> [u16; N] {
        let ascii = text.as_bytes();
        assert!(ascii.len() == N, "N is the length of the text");
        let mut units = [0; N];
        let mut i = 0;
        while i < N {
            assert!(ascii[i].is_ascii(), "one byte per character");
            units[i] = ascii[i] as u16; // CAST: widening
            i += 1;
        }
        units
    }
}
