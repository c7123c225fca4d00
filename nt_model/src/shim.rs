//! The win64 boundary: how a driver's call becomes a call of a service.
//!
//! [`shims!`](crate::shims!) declares functions with the Windows calling convention and gathers them in a table of
//! imports. Each begins with a three-instruction thunk (see `arch.rs`) and then runs its body inside [`run`], which
//! measures the driver's stack, takes the thread out of the driver when the machine has stopped, and hands the body the
//! machine.
//!
//! Arguments that are pointers arrive as [`In`] and [`Out`]: only the boundary makes them (they have no constructor),
//! and the first access probes the memory, so that a bad pointer is the driver's broken rule and not a crash of the
//! model. Other crates use the same macro for the callbacks that they offer to drivers.
//!
//! ```
//! use nt_model::{In, Out, shims};
//!
//! shims! {
//!     /// Callbacks of this example.
//!     pub table EXAMPLE_CALLBACKS;
//!     fn CbAdd(machine, left: In<u32>, right: u32, sum: Out<u32>) -> i32 {
//!         let _ = machine.irql();
//!         sum.set(*left.get() + right);
//!         0
//!     }
//! }
//!
//! assert_eq!(EXAMPLE_CALLBACKS[0].name, "CbAdd");
//! ```
#![expect(unsafe_code, reason = "the boundary: pointers from driver code become references here")]

use std::fmt;
use std::marker::PhantomData;

use crate::arch;
use crate::cpu;
use crate::kernel::Machine;
use crate::records::{AnsiString, UnicodeString};
use crate::rules::Details;
use crate::rules_nt::NT_POINTER;

/// A function that images can import, or that a driver is given a pointer to.
#[derive(Clone, Copy, Debug)]
pub struct ShimEntry {
    /// Name as exported.
    pub name: &'static str,
    /// Address of the thunk.
    pub address: CodeAddress,
}

/// The address of code with the Windows calling convention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeAddress(pub *const ());

// SAFETY: the address of code; nothing is read or written through it.
unsafe impl Send for CodeAddress {}
// SAFETY: as above.
unsafe impl Sync for CodeAddress {}

impl CodeAddress {
    /// As a number, for an import slot or a table that a driver reads.
    pub fn get(self) -> usize {
        self.0.expose_provenance()
    }
}

/// Declares functions that drivers call, and a table of them.
///
/// The first parameter is a name for the [`Machine`](crate::Machine) that the calling thread is in; the others are the
/// arguments, of types that the C ABI knows ([`In`](crate::In), [`Out`](crate::Out), integers, `usize` for handles and
/// addresses). The name is Microsoft's; one that does not begin with a capital is given as `Name = "name"`. See
/// [`crate::shim`] for an example.
#[macro_export]
macro_rules! shims {
    (
        $(#[$tm:meta])* $tv:vis table $table:ident;
        $( $(#[$fm:meta])* fn $name:ident $(= $export:literal)? ($m:ident $(, $arg:ident : $ty:ty)* $(,)?) $(-> $ret:ty)? $body:block )*
    ) => {
        $(
            $(#[$fm])*
            enum $name {}
            impl $name {
                #[unsafe(naked)]
                extern "win64" fn thunk($($arg: $ty),*) $(-> $ret)? {
                    ::core::arch::naked_asm!(
                        "mov rax, qword ptr [rip + __nt_model_shim_frame@GOTTPOFF]",
                        "mov qword ptr fs:[rax], rsp",
                        "jmp {inner}",
                        inner = sym Self::inner,
                    )
                }

                extern "win64" fn inner($($arg: $ty),*) $(-> $ret)? {
                    $crate::shim::run(move |$m: &$crate::Machine| $body)
                }
            }
        )*
        $(#[$tm])*
        $tv static $table: &[$crate::ShimEntry] = &[
            $($crate::ShimEntry {
                name: $crate::shims!(@name $name $(, $export)?),
                address: $crate::CodeAddress($name::thunk as *const ()),
            }),*
        ];
    };
    (@name $name:ident) => { ::core::stringify!($name) };
    (@name $name:ident, $export:literal) => { $export };
}

/// [`shims!`] for functions with `...`: the last parameter gets the variable arguments. `fixed` is how many arguments
/// come before them (1 to 3). A naked thunk spills the register arguments into their home slots, where the C convention
/// continues them with those on the stack.
macro_rules! variadic_shims {
    (
        $(#[$tm:meta])* $tv:vis table $table:ident;
        $( fn $name:ident = $export:literal ($m:ident, $($arg:ident : $ty:ty),* ; $va:ident from $register:literal at $offset:literal) -> $ret:ty $body:block )*
    ) => {
        $(
            enum $name {}
            impl $name {
                #[unsafe(naked)]
                extern "win64" fn thunk() -> $ret {
                    ::core::arch::naked_asm!(
                        "mov [rsp + 8], rcx",
                        "mov [rsp + 16], rdx",
                        "mov [rsp + 24], r8",
                        "mov [rsp + 32], r9",
                        "mov rax, qword ptr [rip + __nt_model_shim_frame@GOTTPOFF]",
                        "mov qword ptr fs:[rax], rsp",
                        concat!("lea ", $register, ", [rsp + ", $offset, "]"),
                        "sub rsp, 40",
                        "call {inner}",
                        "add rsp, 40",
                        "ret",
                        inner = sym Self::inner,
                    )
                }

                extern "win64" fn inner($($arg: $ty,)* $va: $crate::shim::VaList) -> $ret {
                    $crate::shim::run(move |$m: &$crate::Machine| $body)
                }
            }
        )*
        $(#[$tm])*
        $tv static $table: &[$crate::ShimEntry] = &[
            $($crate::ShimEntry {
                name: $export,
                address: $crate::CodeAddress($name::thunk as *const ()),
            }),*
        ];
    };
}
pub(crate) use variadic_shims;

/// Runs the body of a shim. Called by [`shims!`](crate::shims!).
#[inline]
pub fn run<R>(body: impl FnOnce(&Machine) -> R) -> R {
    cpu::with(|cpu| {
        let outer = cpu.enter_shim();
        let Some(machine) = cpu.machine() else { outside() };
        machine.measure_stack(cpu.shim_frame());
        if machine.rules.is_stopped() {
            machine.leave_image();
        }
        let result = body(machine);
        if machine.rules.is_stopped() {
            machine.leave_image();
        }
        cpu.leave_shim(outer);
        result
    })
}

#[cold]
fn outside() -> ! {
    // Returning into the driver would run it with a made-up value; there is no machine to record a violation in.
    eprintln!("nt_model: a kernel service was called by a thread that has entered no kernel");
    std::process::abort()
}

/// A type that any bytes are a valid value of, so that a reference into driver memory may be made.
///
/// # Safety
/// Every bit pattern must be valid, and fields that driver threads may change concurrently must be atomics.
pub unsafe trait Plain {}

macro_rules! plain {
    ($($ty:ty),* $(,)?) => {
        $(
            // SAFETY: integers, raw pointers and records of atomics or of those; any bytes are valid.
            unsafe impl Plain for $ty {}
        )*
    };
}

plain!(
    u8,
    u16,
    u32,
    u64,
    i8,
    i16,
    i32,
    i64,
    usize,
    isize,
    UnicodeString,
    AnsiString,
    std::sync::atomic::AtomicU32,
    std::sync::atomic::AtomicU64,
    std::sync::atomic::AtomicUsize,
    crate::records::DispatcherHeader,
    crate::records::KEVENT,
    crate::records::KSEMAPHORE,
    crate::records::KMUTANT,
    crate::records::KTIMER,
    crate::records::KDPC,
    crate::records::LockQueueHandle,
    crate::records::FastMutex,
    crate::records::ObjectAttributes,
    crate::records::MDL,
    crate::records_io::DriverObject,
    crate::records_io::DeviceObject,
    crate::records_io::FileObject,
    crate::records_io::IRP,
    crate::records_io::IoStackLocation,
);

// SAFETY: a pointer that is not followed before it was probed.
unsafe impl<T> Plain for In<T> {}
// SAFETY: an array of what is valid with any bytes.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}
// SAFETY: a raw pointer is valid with any bytes; it is not followed.
unsafe impl<T> Plain for *const T {}
// SAFETY: as above.
unsafe impl<T> Plain for *mut T {}

/// A pointer that driver code passed, to something it may share with the service. May be null until [`get`](Self::get).
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T> fmt::Debug for In<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.address())
    }
}

impl<T> In<T> {
    /// As a number.
    pub fn address(self) -> usize {
        self.0.expose_provenance()
    }

    /// Whether nothing was passed.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl<T: Plain> In<T> {
    /// What it points to. A null or inaccessible pointer breaks NT-POINTER and ends the driver's call.
    pub fn get<'a>(self) -> &'a T {
        probe(self.address(), size_of::<T>(), align_of::<T>(), std::any::type_name::<T>());
        // SAFETY: the pointer comes from driver code, which vouches that it is valid for the call; the probe has shown
        // that the memory is there and aligned; any bytes are a valid `T`.
        unsafe { &*self.0 }
    }

    /// What it points to, if anything.
    pub fn get_opt<'a>(self) -> Option<&'a T> {
        (!self.is_null()).then(|| self.get())
    }
}

/// A pointer that driver code passed for a result. May be null.
#[repr(transparent)]
pub struct Out<T>(*mut T, PhantomData<T>);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> fmt::Debug for Out<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.address())
    }
}

impl<T> Out<T> {
    /// As a number.
    pub fn address(self) -> usize {
        self.0.expose_provenance()
    }

    /// Whether nothing was passed.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl<T: Plain> Out<T> {
    /// Stores the result. A null or inaccessible pointer breaks NT-POINTER and ends the driver's call.
    pub fn set(self, value: T) {
        probe(self.address(), size_of::<T>(), align_of::<T>(), std::any::type_name::<T>());
        // SAFETY: as `In::get`; the driver passed the pointer for being written.
        unsafe { self.0.write(value) };
    }

    /// Stores the result if a place was passed.
    pub fn set_opt(self, value: T) {
        if !self.is_null() {
            self.set(value);
        }
    }
}

/// Checks that memory given by a driver can be read. A fault here is reported as the driver's.
#[inline]
pub(crate) fn probe(address: usize, bytes: usize, align: usize, what: &'static str) {
    if address == 0 || !address.is_multiple_of(align) {
        bad_pointer(address, what);
    }
    cpu::with(|cpu| {
        cpu.probing.set(Some(what));
        read_pages(address, bytes);
        cpu.probing.set(None);
    });
}

/// Whether a range can be read.
pub(crate) fn touch(address: usize, bytes: usize) -> bool {
    let old = cpu::with(|cpu| cpu.guard.get());
    let read = || read_pages(address, bytes);
    let result = arch::enter(|context| cpu::with(|cpu| cpu.guard.set(context)), read);
    cpu::with(|cpu| cpu.guard.set(old));
    result.is_ok()
}

/// Reads one byte of every page of a range.
#[inline]
fn read_pages(address: usize, bytes: usize) {
    let Some(last) = bytes.checked_sub(1).map(|more| address.saturating_add(more)) else { return };
    let mut at = address;
    loop {
        let byte: *const u8 = core::ptr::with_exposed_provenance(at);
        // SAFETY: a volatile read of one byte whose value is not used. When the page is not there the trap handler ends
        // the call: it sees the mark of `probe`, or the guard of `touch`.
        let _ = unsafe { byte.read_volatile() };
        let next = (at | 0xFFF) + 1;
        if next > last {
            return;
        }
        at = next;
    }
}

#[cold]
fn bad_pointer(address: usize, what: &'static str) -> ! {
    Machine::with_current(|machine| match machine {
        Some(machine) => machine.fatal(
            &NT_POINTER,
            Details::new(format!("{address:#x} was given as a pointer to {what}")).params([address as u64, 0, 0]),
        ),
        None => outside(),
    })
}

/// The number that bytes hold in little-endian order: the first eight of them, or as many as there are.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Copies driver memory.
pub(crate) fn read_bytes(address: usize, bytes: usize) -> Vec<u8> {
    if bytes == 0 {
        return Vec::new();
    }
    probe(address, bytes, 1, "a buffer");
    let mut copy = vec![0; bytes];
    crate::memory::host::read(address, &mut copy);
    copy
}

/// Copies into driver memory.
pub(crate) fn write_bytes(address: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    probe(address, bytes.len(), 1, "a buffer");
    crate::memory::host::write(address, bytes);
}

/// A terminated byte string, without the terminator.
pub(crate) fn read_c_string(address: usize) -> Vec<u8> {
    let mut text = Vec::new();
    let mut at = address;
    loop {
        let room = 0x1000 - at % 0x1000;
        let piece = read_bytes(at, room.min(256));
        match piece.iter().position(|byte| *byte == 0) {
            Some(end) => {
                text.extend_from_slice(&piece[..end]);
                return text;
            }
            None => text.extend_from_slice(&piece),
        }
        at += piece.len();
    }
}

/// A terminated UTF-16 string, without the terminator.
pub(crate) fn read_wide_string(address: usize) -> Vec<u16> {
    let mut text = Vec::new();
    for at in (address..).step_by(2) {
        let unit = read_bytes(at, 2);
        let unit = u16::from_le_bytes([unit[0], unit[1]]);
        if unit == 0 {
            return text;
        }
        text.push(unit);
    }
    text
}

impl UnicodeString {
    /// The characters.
    pub fn units(&self) -> Vec<u16> {
        let bytes = read_bytes(self.buffer.expose_provenance(), usize::from(self.length & !1));
        bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect()
    }

    /// The characters as text; what is no UTF-16 becomes U+FFFD.
    pub fn text(&self) -> String {
        String::from_utf16_lossy(&self.units())
    }
}

impl AnsiString {
    /// The characters.
    pub fn bytes(&self) -> Vec<u8> {
        read_bytes(self.buffer.expose_provenance(), usize::from(self.length))
    }
}

/// Variable arguments: a pointer to 8-byte slots.
#[repr(transparent)]
#[derive(Debug)]
pub struct VaList(*const u64);

impl VaList {
    /// The list that a driver passed as a `va_list`.
    pub(crate) fn from_in(list: In<u64>) -> Self {
        Self(list.0)
    }

    /// The next argument, as its 8 bytes.
    pub fn next_word(&mut self) -> u64 {
        let slot = In(self.0);
        self.0 = self.0.wrapping_add(1);
        *slot.get()
    }
}

/// A pointer that a driver passed inside a record.
pub(crate) fn in_from_address<T>(address: usize) -> In<T> {
    In(core::ptr::with_exposed_provenance(address))
}

/// A place for a result that a driver named inside a record.
pub(crate) fn out_from_address<T>(address: usize) -> Out<T> {
    Out(core::ptr::with_exposed_provenance_mut(address), PhantomData)
}
