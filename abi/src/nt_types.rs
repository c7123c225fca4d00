//! The NT types that the WDDM headers take from elsewhere.
//!
//! Written by hand: the fact tables are about the five WDDM headers. Layouts are those of 64-bit Windows and asserted.
//! What only a pointer to is ever needed is opaque.

use core::ffi::c_void;
use core::fmt;

use crate::D3DKMT_BUDGETCHANGENOTIFICATION;
use crate::D3DKMT_TRIMNOTIFICATION;
use crate::NTSTATUS;
use crate::open_enum::open_enum;
use crate::plain::Padding;
use crate::plain::plain_struct;
use crate::winfn;

/// A kernel or driver handle: an opaque pointer. Handles of the kernel-mode thunks are [`crate::D3DKMT_HANDLE`].
pub type HANDLE = *mut c_void;
/// A device context of GDI.
pub type HDC = *mut c_void;
/// A window.
pub type HWND = *mut c_void;
/// C's truth value: zero is false, anything else is true.
pub type BOOL = i32;
/// A one-byte truth value: zero is false, anything else is true.
pub type BOOLEAN = u8;
/// A UTF-16 code unit.
pub type WCHAR = u16;
/// Access rights to an object.
pub type ACCESS_MASK = u32;
/// Kernel mode (0) or user mode (1).
pub type KPROCESSOR_MODE = i8;
/// The class of a COM object.
pub type CLSID = GUID;

/// A function of an interface that counts a reference; the argument is the interface's `Context`.
pub type PINTERFACE_REFERENCE = Option<winfn!(fn(Context: *mut c_void))>;
/// A function of an interface that drops a reference; the argument is the interface's `Context`.
pub type PINTERFACE_DEREFERENCE = Option<winfn!(fn(Context: *mut c_void))>;
/// What `DxgkCbSynchronizeExecution` calls at the interrupt's level.
pub type PKSYNCHRONIZE_ROUTINE = Option<winfn!(fn(SynchronizeContext: *mut c_void) -> BOOLEAN)>;
/// A function of which nothing more is known.
pub type FARPROC = Option<winfn!(fn() -> isize)>;
/// Called when the process should give memory back (`D3DKMTRegisterTrimNotification`). Signature by the documentation.
pub type PFND3DKMT_TRIMNOTIFICATIONCALLBACK = Option<winfn!(fn(arg0: *mut D3DKMT_TRIMNOTIFICATION))>;
/// Called when the memory budget changes (`D3DKMTRegisterBudgetChangeNotification`). Signature by the documentation.
pub type PFND3DKMT_BUDGETCHANGENOTIFICATIONCALLBACK = Option<winfn!(fn(arg0: *mut D3DKMT_BUDGETCHANGENOTIFICATION))>;

/// A function pointer whose signature no table has: it can be stored, but not called as it is.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct UnknownSignature(pub winfn!(fn()));

/// Defines opaque types: known by pointer only.
macro_rules! opaque_types {
    ($($(#[$meta:meta])* $name:ident),* $(,)?) => {$(
        $(#[$meta])*
        #[repr(C)]
        pub struct $name {
            _bytes: [u8; 0],
            _marker: core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>,
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    )*};
}
pub(crate) use opaque_types;

opaque_types! {
    /// A memory descriptor list.
    MDL,
    /// A device object.
    DEVICE_OBJECT,
    /// A driver object.
    DRIVER_OBJECT,
    /// Input of an ACPI method.
    ACPI_EVAL_INPUT_BUFFER_COMPLEX,
    /// Output of an ACPI method.
    ACPI_EVAL_OUTPUT_BUFFER,
    /// Which PCI device `DxgkCbIsDevicePresent` looks for.
    PCI_DEVICE_PRESENCE_PARAMETERS,
    /// A video I/O request.
    VIDEO_REQUEST_PACKET,
}

/// Defines structures with their layout: `Name: size, alignment { member: type, at offset; … }`.
macro_rules! nt_structs {
    ($($(#[$meta:meta])* pub struct $name:ident: $size:literal, $align:literal {
        $($(#[$member_meta:meta])* $member:ident: $type:ty, at $offset:literal;)*
    })*) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name { $($(#[$member_meta])* pub $member: $type,)* }

        plain_struct! { $name, $size, $align, $($member: $type = $offset),* }

        impl $name {
            /// All bytes zero.
            #[inline]
            pub const fn zeroed() -> Self {
                crate::plain::zeroed()
            }
        }
    )*};
}

nt_structs! {
    /// The parameters of an adapter's translated resources.
    pub struct CM_RESOURCE_LIST: 40, 4 {
        /// Number of full descriptors that follow.
        Count: u32, at 0;
        /// The first of them; each is as long as its own count says.
        List: [CM_FULL_RESOURCE_DESCRIPTOR; 1], at 4;
    }

    /// The resources of a device on one bus.
    pub struct CM_FULL_RESOURCE_DESCRIPTOR: 36, 4 {
        /// The kind of bus (`INTERFACE_TYPE`).
        InterfaceType: i32, at 0;
        /// Its number.
        BusNumber: u32, at 4;
        /// The resources.
        PartialResourceList: CM_PARTIAL_RESOURCE_LIST, at 8;
    }

    /// A list of resources.
    pub struct CM_PARTIAL_RESOURCE_LIST: 28, 4 {
        /// Version of the bus's format.
        Version: u16, at 0;
        /// Revision of the bus's format.
        Revision: u16, at 2;
        /// Number of descriptors that follow.
        Count: u32, at 4;
        /// The first of them.
        PartialDescriptors: [CM_PARTIAL_RESOURCE_DESCRIPTOR; 1], at 8;
    }

    /// A resource. Its union is not interpreted here: `Type` says what it is.
    pub struct CM_PARTIAL_RESOURCE_DESCRIPTOR: 20, 4 {
        /// Kind of resource: port 1, interrupt 2, memory 3, …
        Type: u8, at 0;
        /// Who may share it.
        ShareDisposition: u8, at 1;
        /// Flags of the kind.
        Flags: u16, at 2;
        /// The union, packed to four bytes: memory has the physical address in the first two words and the length in
        /// the third; an interrupt has its level, its vector and in the last two words its affinity.
        u: [u32; 4], at 4;
    }

    /// What every interface that is queried for begins with.
    pub struct INTERFACE: 32, 8 {
        /// Size in bytes of the whole interface.
        Size: u16, at 0;
        /// Its version.
        Version: u16, at 2;
        #[doc(hidden)]
        _padding4: Padding<4>, at 4;
        /// Passed to its functions.
        Context: *mut c_void, at 8;
        /// Counts a reference.
        InterfaceReference: PINTERFACE_REFERENCE, at 16;
        /// Drops a reference.
        InterfaceDereference: PINTERFACE_DEREFERENCE, at 24;
    }

    /// The argument of `DxgkDdiQueryInterface`.
    pub struct QUERY_INTERFACE: 32, 8 {
        /// Which interface.
        InterfaceType: *const GUID, at 0;
        /// How many bytes there are for it.
        Size: u16, at 8;
        /// Which version.
        Version: u16, at 10;
        #[doc(hidden)]
        _padding12: Padding<4>, at 12;
        /// Where it goes.
        Interface: *mut INTERFACE, at 16;
        /// Depends on the interface.
        InterfaceSpecificData: *mut c_void, at 24;
    }

    /// How an I/O request ended.
    pub struct IO_STATUS_BLOCK: 16, 8 {
        /// The status, with a pointer's worth of bytes: in C a union with `PVOID Pointer`.
        Status: NTSTATUS, at 0;
        #[doc(hidden)]
        _padding4: Padding<4>, at 4;
        /// Depends on the request: mostly a number of bytes.
        Information: usize, at 8;
    }

    /// What an object is opened or created with.
    pub struct OBJECT_ATTRIBUTES: 48, 8 {
        /// Size of this structure.
        Length: u32, at 0;
        #[doc(hidden)]
        _padding4: Padding<4>, at 4;
        /// The directory that the name is relative to.
        RootDirectory: HANDLE, at 8;
        /// The name.
        ObjectName: *mut UNICODE_STRING, at 16;
        /// `OBJ_` flags.
        Attributes: u32, at 24;
        #[doc(hidden)]
        _padding28: Padding<4>, at 28;
        /// Who may use the object.
        SecurityDescriptor: *mut c_void, at 32;
        /// Whose rights are used.
        SecurityQualityOfService: *mut c_void, at 40;
    }

    /// A counted UTF-16 string.
    pub struct UNICODE_STRING: 16, 8 {
        /// Length in bytes.
        Length: u16, at 0;
        /// Capacity in bytes.
        MaximumLength: u16, at 2;
        #[doc(hidden)]
        _padding4: Padding<4>, at 4;
        /// The code units; not necessarily terminated.
        Buffer: *mut WCHAR, at 8;
    }

    /// A colour of a palette.
    pub struct PALETTEENTRY: 4, 1 {
        /// Red.
        peRed: u8, at 0;
        /// Green.
        peGreen: u8, at 1;
        /// Blue.
        peBlue: u8, at 2;
        /// `PC_` flags.
        peFlags: u8, at 3;
    }
}

/// Defines plain values that can be compared.
macro_rules! nt_values {
    ($($(#[$meta:meta])* pub struct $name:ident: $size:literal, $align:literal {
        $($(#[$member_meta:meta])* $member:ident: $type:ty, at $offset:literal;)*
    })*) => {$(
        nt_structs! {
            $(#[$meta])*
            #[derive(PartialEq, Eq, Hash)]
            pub struct $name: $size, $align { $($(#[$member_meta])* $member: $type, at $offset;)* }
        }
    )*};
}

nt_values! {
    /// A locally unique identifier: an adapter's, until the next boot.
    pub struct LUID: 8, 4 {
        /// Low half.
        LowPart: u32, at 0;
        /// High half.
        HighPart: i32, at 4;
    }

    /// A point in pixels.
    pub struct POINT: 8, 4 {
        /// Horizontal position.
        x: i32, at 0;
        /// Vertical position.
        y: i32, at 4;
    }

    /// A rectangle; right and bottom are just outside.
    pub struct RECT: 16, 4 {
        /// Left edge.
        left: i32, at 0;
        /// Top edge.
        top: i32, at 4;
        /// Right edge, outside.
        right: i32, at 8;
        /// Bottom edge, outside.
        bottom: i32, at 12;
    }

    /// The same as [`RECT`], under the name that GDI has for it.
    pub struct RECTL: 16, 4 {
        /// Left edge.
        left: i32, at 0;
        /// Top edge.
        top: i32, at 4;
        /// Right edge, outside.
        right: i32, at 8;
        /// Bottom edge, outside.
        bottom: i32, at 12;
    }

    /// A signed 64-bit number; in C a union of the number and its halves.
    pub struct LARGE_INTEGER: 8, 8 {
        /// The number.
        QuadPart: i64, at 0;
    }

    /// An unsigned 64-bit number; in C a union of the number and its halves.
    pub struct ULARGE_INTEGER: 8, 8 {
        /// The number.
        QuadPart: u64, at 0;
    }
}

impl LARGE_INTEGER {
    /// The low half.
    #[inline]
    pub const fn LowPart(self) -> u32 {
        self.QuadPart as u32
    }

    /// The high half.
    #[inline]
    pub const fn HighPart(self) -> i32 {
        (self.QuadPart >> 32) as i32
    }
}

impl ULARGE_INTEGER {
    /// The low half.
    #[inline]
    pub const fn LowPart(self) -> u32 {
        self.QuadPart as u32
    }

    /// The high half.
    #[inline]
    pub const fn HighPart(self) -> u32 {
        (self.QuadPart >> 32) as u32
    }
}

/// A globally unique identifier.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct GUID {
    /// First eight hexadecimal digits.
    pub Data1: u32,
    /// Next four.
    pub Data2: u16,
    /// Next four.
    pub Data3: u16,
    /// The other sixteen, byte by byte.
    pub Data4: [u8; 8],
}

plain_struct! { GUID, 16, 4, Data1: u32 = 0, Data2: u16 = 4, Data3: u16 = 6, Data4: [u8; 8] = 8 }

impl GUID {
    /// All bytes zero.
    #[inline]
    pub const fn zeroed() -> Self {
        crate::plain::zeroed()
    }
}

impl fmt::Debug for GUID {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{:08x}-{:04x}-{:04x}-", self.Data1, self.Data2, self.Data3)?;
        for (index, byte) in self.Data4.iter().enumerate() {
            let dash = if index == 2 { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        f.write_str("}")
    }
}

open_enum! {
    /// A device's power state.
    pub enum DEVICE_POWER_STATE: i32 {
        /// Not stated.
        PowerDeviceUnspecified = 0,
        /// Working.
        PowerDeviceD0 = 1,
        /// Light sleep.
        PowerDeviceD1 = 2,
        /// Deeper sleep.
        PowerDeviceD2 = 3,
        /// Off, or as good as.
        PowerDeviceD3 = 4,
        /// One more than the last.
        PowerDeviceMaximum = 5,
    }
}

open_enum! {
    /// Why the power state changes.
    pub enum POWER_ACTION: i32 {
        /// No reason.
        PowerActionNone = 0,
        /// Reserved.
        PowerActionReserved = 1,
        /// The system sleeps.
        PowerActionSleep = 2,
        /// The system hibernates.
        PowerActionHibernate = 3,
        /// The system shuts down.
        PowerActionShutdown = 4,
        /// The system restarts.
        PowerActionShutdownReset = 5,
        /// The system shuts down and is switched off.
        PowerActionShutdownOff = 6,
        /// The machine is taken out of its dock.
        PowerActionWarmEject = 7,
        /// The display is switched off.
        PowerActionDisplayOff = 8,
    }
}

open_enum! {
    /// Why a thread waits. Drivers say `Executive` or `UserRequest`.
    pub enum KWAIT_REASON: i32 {
        /// On behalf of the kernel or a driver.
        Executive = 0,
        /// On behalf of a user thread.
        UserRequest = 6,
    }
}

open_enum! {
    /// How memory is cached.
    pub enum MEMORY_CACHING_TYPE: i32 {
        /// Not at all.
        MmNonCached = 0,
        /// Normally.
        MmCached = 1,
        /// Writes are combined.
        MmWriteCombined = 2,
        /// Normally, and coherent with devices.
        MmHardwareCoherentCached = 3,
        /// Not at all, and unordered.
        MmNonCachedUnordered = 4,
        /// Writes are combined, uncached speculative.
        MmUSWCCached = 5,
        /// One more than the last.
        MmMaximumCacheType = 6,
        /// Not mapped.
        MmNotMapped = -1,
    }
}
