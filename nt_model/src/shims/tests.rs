//! The wrappers, called by address as an image calls them.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::callback;
use crate::io::properties::{self, DeviceProperty};
use crate::kernel::{Kernel, KernelConfig, Machine};
use crate::memory::PAGE_SIZE;
use crate::records::{AnsiString, FastMutex, KEVENT, ObjectAttributes, UnicodeString, status};
use crate::registry::{REG_DWORD, RegistryValue};
use crate::rules_nt::{NT_ATTACH, NT_HANDLE, NT_IRQL, NT_LOOKASIDE, NT_MUTEX_NOT_OWNED, NT_POINTER, NT_REFERENCE};
use crate::{In, InterruptLine, Trigger, shims};

fn call<const N: usize>(name: &str, arguments: [usize; N]) -> usize {
    let address = Machine::with_current(|machine| machine.and_then(|machine| machine.system_routine(name)));
    callback::invoke(address.unwrap_or_else(|| panic!("{name}")), arguments)
}

fn at<T: ?Sized>(value: &T) -> usize {
    core::ptr::from_ref(value).cast::<u8>().expose_provenance()
}

fn at_mut<T: ?Sized>(value: &mut T) -> usize {
    core::ptr::from_mut(value).cast::<u8>().expose_provenance()
}

/// The result as an NTSTATUS.
fn status_of<const N: usize>(name: &str, arguments: [usize; N]) -> i32 {
    // CAST: the low half of the return register.
    call(name, arguments) as i32
}

fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}

fn string(units: &[u16]) -> UnicodeString {
    // CAST: tests' strings are short.
    let length = (2 * units.iter().take_while(|unit| **unit != 0).count()) as u16;
    UnicodeString { length, maximum_length: (2 * units.len()) as u16, buffer: units.as_ptr().cast_mut() }
}

fn empty(buffer: &mut [u16]) -> UnicodeString {
    UnicodeString { length: 0, maximum_length: (2 * buffer.len()) as u16, buffer: buffer.as_mut_ptr() }
}

#[test]
fn every_name_is_there_once() {
    let names: Vec<_> = super::TABLES.iter().flat_map(|table| table.iter()).map(|entry| entry.name).collect();
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), names.len());
    assert!(names.len() > 230, "{}", names.len());
}

#[test]
fn interlocked_lists() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let lock = 0_u64;
    let mut entries = [[0_usize; 2]; 4];
    let places: [usize; 4] = core::array::from_fn(|index| at(&entries[index]));
    let [head, first, second, third] = places;
    entries[0] = [head, head];
    let lock = at(&lock);
    let entries = std::hint::black_box(&mut entries);
    let _ = entries;
    for irql in [0, crate::routines::DISPATCH_LEVEL, crate::routines::MAX_DEVICE_LEVEL] {
        let old = kernel.raise_irql(irql);
        assert_eq!(call("ExInterlockedInsertTailList", [head, second, lock]), 0, "the list was empty");
        assert_eq!(call("ExInterlockedInsertHeadList", [head, first, lock]), second);
        assert_eq!(call("ExInterlockedInsertTailList", [head, third, lock]), second);
        for entry in [first, second, third, 0] {
            assert_eq!(call("ExInterlockedRemoveHeadList", [head, lock]), entry);
        }
        assert_eq!(kernel.irql(), irql);
        kernel.lower_irql(old);
    }
    crate::shim::write_bytes(head, &[0; 16]);
    assert_eq!(call("ExInterlockedPushEntryList", [head, first, lock]), 0);
    assert_eq!(call("ExInterlockedPushEntryList", [head, second, lock]), first);
    for entry in [second, first, 0] {
        assert_eq!(call("ExInterlockedPopEntryList", [head, lock]), entry);
    }
    assert_eq!(kernel.rules.violations().len(), 0);
}

#[test]
fn lookaside_lists() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    #[repr(align(64))]
    struct List([u64; 16]);
    let mut list = List([0x5C5C_5C5C_5C5C_5C5C; 16]);
    let at = at_mut(&mut list.0);
    let word =
        |index: usize| crate::shim::read_bytes(at + 8 * index, 8).iter().rev().fold(0, |w, b| w << 8 | usize::from(*b));
    let tag = 0x6C6F_6F50;
    let initialize = || call("ExInitializeNPagedLookasideList", [at, 0, 0, 512, 0x40, tag, 0]);
    let _ = kernel.call_driver("DxgkDdiStartDevice", || {
        initialize();
        // As the inline functions of wdm.h do it: POOL_TYPE and size, tag, and the two routines.
        assert_eq!((word(4) >> 32, word(5)), (512, 0x40 << 32 | tag));
        assert_eq!(call("ExpInterlockedPopEntrySList", [at]), 0);
        let [first, second] = [0; 2].map(|_| callback::invoke(word(6), [word(4) >> 32, word(5) >> 32, tag]));
        assert!(kernel.pool_outstanding().iter().any(|leak| leak.address == first && leak.size == 0x40));
        assert_eq!(call("ExQueryDepthSList", [at]) & 0xFFFF, word(2) & 0xFFFF, "nothing is kept");
        callback::invoke(word(7), [first]);
        // What a list has all the same is freed with it.
        assert_eq!(call("ExpInterlockedPushEntrySList", [at, second]), 0);
        assert_eq!(call("ExQueryDepthSList", [at]) & 0xFFFF, 1);
        assert_eq!(kernel.paired.lookasides().iter().map(|list| list.0).collect::<Vec<_>>(), [at]);
        call("ExDeleteNPagedLookasideList", [at]);
        assert!(kernel.paired.lookasides().is_empty() && kernel.pool_outstanding().is_empty());
        assert!(!kernel.rules.was_broken(&NT_LOOKASIDE));
        call("ExDeleteNPagedLookasideList", [at]);
        assert!(kernel.rules.was_broken(&NT_LOOKASIDE));
    });
    let mut entries = [0_u128; 4];
    let [head, first, second, third] = [0, 1, 2, 3].map(|index| at_mut(&mut entries[index]));
    call("InitializeSListHead", [head]);
    for (entry, before) in [(first, 0), (second, first), (third, second)] {
        assert_eq!(call("ExpInterlockedPushEntrySList", [head, entry]), before);
    }
    assert_eq!(call("ExpInterlockedPopEntrySList", [head]), third);
    assert_eq!(call("ExQueryDepthSList", [head]) & 0xFFFF, 2);
    assert_eq!(call("ExpInterlockedFlushSList", [head]), second);
    assert_eq!((call("ExpInterlockedPopEntrySList", [head]), call("ExQueryDepthSList", [head]) & 0xFFFF), (0, 0));
    assert!(!kernel.rules.was_broken(&NT_POINTER) && !kernel.rules.was_broken(&NT_IRQL));
    call("ExpInterlockedPushEntrySList", [head, first + 8]);
    assert!(kernel.rules.was_broken(&NT_POINTER));
    kernel.raise_irql(3);
    call("ExQueryDepthSList", [head]);
    kernel.lower_irql(0);
    assert!(kernel.rules.was_broken(&NT_IRQL));
}

#[test]
fn attaching_to_processes() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let [one, other] = ["one.exe", "other.exe"].map(|name| kernel.create_process(name));
    let here = || call("PsGetCurrentProcess", []);
    let system = here();
    let mut state = [0_u64; 6];
    let state = at_mut(&mut state);
    let _ = kernel.call_driver("DxgkDdiEscape", || {
        call("KeAttachProcess", [one.address()]);
        assert_eq!(here(), one.address());
        call("KeStackAttachProcess", [other.address(), state]);
        assert_eq!(here(), other.address());
        call("KeUnstackDetachProcess", [state]);
        assert_eq!(here(), one.address());
        call("KeDetachProcess", []);
        assert_eq!(here(), system);
    });
    assert_eq!(kernel.rules.violations().len(), 0);
    let broken = |text: &str| {
        let found = kernel.rules.violations();
        assert!(found.iter().any(|found| found.to_string().contains(text)), "{text}: {found:?}");
    };
    let _ = kernel.call_driver("DxgkDdiEscape", || call("KeStackAttachProcess", [one.address(), state]));
    assert_eq!(here(), system, "what the driver left is put right");
    broken("returned with 1");
    let fresh = Kernel::collecting();
    drop(_in);
    let _in = fresh.enter();
    let _ = fresh.call_driver("DxgkDdiEscape", || {
        let process = fresh.create_process("one.exe").address();
        call("KeAttachProcess", [process]);
        call("KeAttachProcess", [process]);
        call("KeDetachProcess", []);
        call("KeDetachProcess", []);
        call("KeDetachProcess", []);
        call("KeAttachProcess", [0x1234]);
        call("KeDetachProcess", []);
    });
    let reports = fresh.rules.report();
    let attach = reports.iter().find(|report| std::ptr::eq(report.rule, &NT_ATTACH)).map(|report| report.broken);
    assert_eq!(attach, Some(3), "nested, detached once more, and no process");
}

#[test]
fn modes_and_tokens() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let process = kernel.create_process("one.exe");
    let mode = || call("ExGetPreviousMode", []) & 0xFF;
    assert_eq!(mode(), 0, "a thread of no process");
    let at = kernel.enter_process(&process);
    assert_eq!(mode(), 1);
    let mut state = [0_u64; 6];
    let state = at_mut(&mut state);
    call("KeStackAttachProcess", [kernel.system_process().address(), state]);
    assert_eq!(mode(), 1, "attaching changes no mode");
    call("KeUnstackDetachProcess", [state]);
    drop(at);
    let tokens = [process.address(), kernel.system_process().address()].map(|at| call("PsReferencePrimaryToken", [at]));
    assert_eq!(tokens.map(|token| call("SeTokenIsAdmin", [token]) & 0xFF), [0, 1]);
    assert_eq!(call("PsReferencePrimaryToken", [process.address()]), tokens[0]);
    for token in [tokens[0], tokens[0], tokens[1]] {
        call("PsDereferencePrimaryToken", [token]);
    }
    assert_eq!(kernel.rules.violations().len(), 0);
    call("PsDereferencePrimaryToken", [tokens[0]]);
    assert!(kernel.rules.was_broken(&NT_REFERENCE));
}

#[test]
fn events_by_name_and_the_clock() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let (units, other) = (wide("\\BaseNamedObjects\\Thing"), wide("\\basenamedobjects\\thing"));
    let (name, other) = (string(&units), string(&other));
    let mut handles = [0_u64; 2];
    let event = call("IoCreateNotificationEvent", [at(&name), at_mut(&mut handles[0])]);
    assert_eq!(call("KeReadStateEvent", [event]) as i32, 1, "made signalled");
    call("KeClearEvent", [event]);
    assert_eq!(call("IoCreateSynchronizationEvent", [at(&other), at_mut(&mut handles[1])]), event, "opened");
    assert_eq!(call("KeReadStateEvent", [event]) as i32, 0);
    // CAST: 64 bits here.
    for handle in handles {
        assert_eq!(status_of("ZwClose", [handle as usize]), status::SUCCESS);
    }
    let again = call("IoCreateSynchronizationEvent", [at(&name), at_mut(&mut handles[0])]);
    assert_eq!(call("KeReadStateEvent", [again]) as i32, 1, "nobody had it any more");
    assert_eq!(status_of("ZwClose", [handles[0] as usize]), status::SUCCESS);
    let resolution = |desired: usize, sets: usize| call("ExSetTimerResolution", [desired, sets]) & 0xFFFF_FFFF;
    let _ = kernel.call_driver("DxgkDdiStartDevice", || {
        let usual = resolution(0, 0);
        assert_eq!(resolution(10_000_000, 1), usual, "only finer ones");
        assert_eq!(resolution(10_000, 1), 10_000);
        assert_eq!(resolution(0, 0), usual);
        assert_eq!(kernel.paired.resolutions().len(), 1);
        resolution(0, 0);
        assert!(kernel.paired.resolutions().is_empty());
    });
}

#[test]
fn ranges_of_resources() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let decode = |kind: u8, flags: u16, length: u32| {
        let mut descriptor = [0_u8; 20];
        descriptor[0] = kind;
        descriptor[2..4].copy_from_slice(&flags.to_le_bytes());
        descriptor[4..12].copy_from_slice(&0x12_3456_7000_u64.to_le_bytes());
        descriptor[12..16].copy_from_slice(&length.to_le_bytes());
        let mut start = 0_u64;
        (call("RtlCmDecodeMemIoResource", [at(&descriptor), at_mut(&mut start)]), start)
    };
    let range = |length| (length, 0x12_3456_7000);
    assert_eq!(decode(3, 0, 0x1000), range(0x1000));
    assert_eq!(decode(1, 0, 8), range(8));
    assert_eq!(decode(7, 0x200, 3), range(0x300));
    assert_eq!(decode(7, 0x400, 3), range(0x3_0000));
    assert_eq!(decode(7, 0x800, 3), range(0x3_0000_0000));
    assert_eq!(decode(2, 0, 1), (0, 0), "an interrupt");
}

#[test]
fn texts_in_buffers() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let mut buffer = [0xFFFF_u16; 6];
    let format = wide("%d %s");
    let text = wide("ab");
    let fitting = [42, at(&*text)];
    let print = |buffer: &mut [u16], words: &[usize]| {
        // CAST: an `int`.
        call("_vsnwprintf", [at_mut(buffer), buffer.len(), at(&*format), at(words)]) as i32
    };
    assert_eq!(print(&mut buffer, &fitting), 5);
    assert_eq!(buffer[..], wide("42 ab")[..]);
    let (long, mut buffer) = (wide("abcdef"), [0xFFFF_u16; 6]);
    assert_eq!(print(&mut buffer, &[42, at(&*long)]), -1);
    assert_eq!(String::from_utf16_lossy(&buffer), "42 abc", "cut, and without a terminator");
    let mut narrow = [0xFF_u8; 8];
    let count = narrow.len();
    let words = [7_usize];
    assert_eq!(call("_vsnprintf", [at_mut(&mut narrow), count, at(b"%03u\0"), at(&words)]), 3);
    assert_eq!(&narrow[..4], b"007\0");
    let mut units = [0_u16; 5];
    let mut target = empty(&mut units);
    let place = at_mut(&mut target);
    assert_eq!(status_of("RtlIntegerToUnicodeString", [0xBEEF, 16, place]), status::SUCCESS);
    assert_eq!(String::from_utf16_lossy(&target.units()), "BEEF");
    assert_eq!(status_of("RtlIntegerToUnicodeString", [0xBEEF, 2, place]), status::BUFFER_OVERFLOW);
    assert_eq!(status_of("RtlIntegerToUnicodeString", [0xBEEF, 7, place]), status::INVALID_PARAMETER);
    assert_eq!(kernel.rules.violations().len(), 0);
}

#[test]
fn properties_of_a_device() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let device = [0_u64; 64];
    let mut needed = 0_u32;
    let mut buffer = [0xFFFF_u16; 12];
    let bytes = size_of_val(&buffer);
    let ask = |device: usize, property: usize, bytes: usize, buffer: &mut [u16], needed: &mut u32| {
        status_of("IoGetDeviceProperty", [device, property, bytes, at_mut(buffer), at_mut(needed)])
    };
    let mut refused = |property, expected| {
        assert_eq!(ask(at(&device), property, bytes, &mut buffer, &mut needed), expected);
    };
    refused(1, status::INVALID_DEVICE_REQUEST);
    let ids = ["PCI\\A", "B"].map(str::to_owned).to_vec();
    kernel.set_device_properties(
        at(&device),
        vec![DeviceProperty::Texts(properties::HARDWARE_ID, ids), DeviceProperty::Number(properties::BUS_NUMBER, 3)],
    );
    refused(23, status::INVALID_PARAMETER_2);
    refused(10, status::OBJECT_NAME_NOT_FOUND);
    assert_eq!(ask(at(&device), 1, 8, &mut buffer, &mut needed), status::BUFFER_TOO_SMALL);
    assert_eq!((needed, buffer[0]), (18, 0xFFFF));
    assert_eq!(ask(at(&device), 1, bytes, &mut buffer, &mut needed), status::SUCCESS);
    assert_eq!(String::from_utf16_lossy(&buffer[..9]), "PCI\\A\0B\0\0");
    assert_eq!((needed, buffer[9]), (18, 0xFFFF));
    assert_eq!(ask(at(&device), 14, 4, &mut buffer, &mut needed), status::SUCCESS);
    assert_eq!((needed, buffer[0], buffer[1]), (4, 3, 0));
    assert_eq!(kernel.rules.violations().len(), 0);
}

#[test]
fn a_device_is_opened_as_a_file() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let heard = std::sync::Arc::new(AtomicUsize::new(0));
    let hears = heard.clone();
    assert!(kernel.register_device("\\Device\\Thing", move |request| {
        hears.store(usize::from(request.major) << 8 | request.read_input().len(), Ordering::Relaxed);
        if request.major == crate::records_io::IRP_MJ_READ {
            request.write_output(&[7; 2]);
        }
        status::SUCCESS
    }));
    let mut handle = 0_u64;
    let mut iosb = [0xFF_u64; 2];
    let open = |name: &str, handle: &mut u64, iosb: &mut [u64; 2]| {
        let units = wide(name);
        let name = string(&units);
        let attributes = ObjectAttributes {
            length: 0x30,
            root_directory: 0,
            object_name: &raw const name,
            attributes: 0x200,
            security_descriptor: 0,
            security_quality_of_service: 0,
        };
        let [handle, iosb] = [at_mut(handle), at_mut(iosb)];
        let address =
            Machine::with_current(|machine| machine.and_then(|machine| machine.system_routine("ZwCreateFile")));
        let arguments = [handle, 0, at(&attributes), iosb, 0, 0, 0, 1, 0, 0, 0];
        // CAST: the low half of the return register.
        callback::invoke(address.unwrap_or_default(), arguments) as i32
    };
    assert_eq!(open("\\Device\\Nothing", &mut handle, &mut iosb), status::OBJECT_NAME_NOT_FOUND);
    assert_eq!(open("\\Device\\Thing", &mut handle, &mut iosb), status::SUCCESS);
    assert_eq!(iosb, [0, 1], "opened");
    let mut file = 0_usize;
    // CAST: 64 bits here.
    let value = handle as usize;
    let reference = [value, 0, 0, 0, 0x6761_7454, at_mut(&mut file), 0];
    assert_eq!(status_of("ObReferenceObjectByHandleWithTag", reference), status::SUCCESS);
    assert_eq!(status_of("ZwClose", [value]), status::SUCCESS);
    let device = call("IoGetRelatedDeviceObject", [file]);
    assert_eq!(Some(device), kernel.find_device("\\device\\thing"));
    let mut data = *b"abc";
    let event = crate::Event::notification(false);
    let mut offset = 0_i64;
    let mut send = |major: usize, data: usize, bytes: usize, iosb: &mut [u64; 2]| {
        let (event, iosb) = (at(event.as_kevent()), at_mut(iosb));
        let arguments = [major, device, data, bytes, at_mut(&mut offset), event, iosb];
        let irp = call("IoBuildSynchronousFsdRequest", arguments);
        if irp == 0 { status::INSUFFICIENT_RESOURCES } else { status_of("IofCallDriver", [device, irp]) }
    };
    assert_eq!(send(4, at(&data), 3, &mut iosb), status::SUCCESS);
    assert_eq!((iosb, heard.load(Ordering::Relaxed)), ([0, 3], 0x403));
    assert!(kernel.read_event(event.as_kevent()));
    assert_eq!(send(3, at_mut(&mut data), 2, &mut iosb), status::SUCCESS);
    assert_eq!((iosb, data), ([0, 2], [7, 7, b'c']));
    assert_eq!(send(9, 0, 0, &mut iosb), status::SUCCESS);
    assert_eq!(heard.load(Ordering::Relaxed), 0x900);
    assert_eq!(send(5, 0, 0, &mut iosb), status::INSUFFICIENT_RESOURCES, "no function of the page");
    assert_eq!(kernel.dereference_object(file), 0);
    assert!(!kernel.pool_outstanding().iter().any(|leak| leak.address == file), "the file object is gone");
    assert_eq!(kernel.rules.violations().len(), 0);
    assert_eq!(call("IoGetRelatedDeviceObject", [file]), 0);
    assert!(kernel.rules.was_broken(&crate::rules_nt::NT_DEVICE));
}

#[test]
fn a_break_point_without_a_debugger_is_found_and_passed() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    assert_eq!(call("KdRefreshDebuggerNotPresent", []) & 0xFF, 1);
    let entered = kernel.call_driver("DxgkDdiTest", || {
        call("DbgBreakPoint", []);
        call("DbgBreakPointWithStatus", [7])
    });
    assert!(entered.is_ok() && !kernel.rules.is_stopped());
    let found = kernel.rules.violations();
    assert_eq!(found.iter().map(|found| found.rule.name).collect::<Vec<_>>(), [crate::rules_nt::NT_EXCEPTION.name; 2]);
    assert!(found[1].to_string().contains("DbgBreakPointWithStatus(0x7)"), "{}", found[1]);
}

/// A shim that Windows does not export would hide a missing function of the driver's import library.
#[test]
fn every_shim_stands_for_an_export_of_windows() {
    const NOT_IN_THE_TABLE: &[&str] = &[
        // The C library, and names that the table leaves out because headers wrap them in macros.
        "IopInvalidDeviceRequest",
        "KfLowerIrql",
        "PsGetCurrentThread",
        "PsGetCurrentProcess",
        "RtlQueryRegistryValuesEx",
        "RtlLookupFunctionEntry",
        // In no header of the WDK; drivers find it by name.
        "ZwQuerySystemInformation",
    ];
    let c_library = |name: &str| name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
    let unknown: Vec<_> = super::TABLES
        .iter()
        .flat_map(|table| table.iter())
        .map(|entry| entry.name)
        .filter(|name| !c_library(name) && !NOT_IN_THE_TABLE.contains(name))
        .filter(|name| !crate::routines::facts().0.contains_key(name))
        .collect();
    assert_eq!(unknown, [""; 0]);
}

#[test]
fn strings() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let text = wide("Text");
    let mut made = string(&[]);
    call("RtlInitUnicodeString", [at_mut(&mut made), at(&text[..])]);
    assert_eq!((made.length, made.maximum_length, made.text().as_str()), (8, 10, "Text"));
    let (upper, longer) = (wide("TEXT"), wide("Textual"));
    let (upper, longer) = (string(&upper), string(&longer));
    assert_eq!(call("RtlEqualUnicodeString", [at(&made), at(&upper), 0]) as u8, 0);
    assert_eq!(call("RtlEqualUnicodeString", [at(&made), at(&upper), 1]) as u8, 1);
    assert!(status_of("RtlCompareUnicodeString", [at(&made), at(&longer), 0]) < 0);
    assert_eq!(call("RtlPrefixUnicodeString", [at(&upper), at(&longer), 1]) as u8, 1);
    let mut room = [0; 6];
    let mut target = empty(&mut room);
    call("RtlCopyUnicodeString", [at_mut(&mut target), at(&longer)]);
    assert_eq!(target.text(), "Textua");
    assert_eq!(status_of("RtlAppendUnicodeToString", [at_mut(&mut target), at(&text[..])]), status::BUFFER_TOO_SMALL);
    let narrow = b"narrow\0";
    let mut ansi = AnsiString { length: 0, maximum_length: 0, buffer: core::ptr::null_mut() };
    call("RtlInitAnsiString", [at_mut(&mut ansi), at(&narrow[..])]);
    assert_eq!(ansi.length, 6);
    let mut converted = string(&[]);
    assert_eq!(status_of("RtlAnsiStringToUnicodeString", [at_mut(&mut converted), at(&ansi), 1]), 0);
    assert_eq!(converted.text(), "narrow");
    let mut back = AnsiString { length: 0, maximum_length: 0, buffer: core::ptr::null_mut() };
    assert_eq!(status_of("RtlUnicodeStringToAnsiString", [at_mut(&mut back), at(&converted), 1]), 0);
    assert_eq!(back.bytes(), b"narrow");
    call("RtlFreeUnicodeString", [at_mut(&mut converted)]);
    call("RtlFreeAnsiString", [at_mut(&mut back)]);
    assert_eq!(kernel.pool_usage().paged, 0);
    assert!(kernel.rules.violations().is_empty());
}

#[test]
fn c_library() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let (a, b) = (wide("abc"), wide("ABD"));
    assert_eq!(call("wcslen", [at(&a[..])]), 3);
    assert!(status_of("wcscmp", [at(&a[..]), at(&b[..])]) > 0);
    assert!(status_of("_wcsicmp", [at(&a[..]), at(&b[..])]) < 0);
    let mut buffer = [0_u8; 16];
    call("memset", [at_mut(&mut buffer[..]), 7, 16]);
    call("RtlZeroMemory", [at_mut(&mut buffer[..]), 8]);
    call("RtlFillMemory", [at_mut(&mut buffer[..]), 4, 9]);
    assert_eq!(buffer, [9, 9, 9, 9, 0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7]);
    let copy = buffer;
    assert_eq!(call("RtlCompareMemory", [at(&copy[..]), at(&buffer[..]), 16]), 16);
    buffer[5] = 1;
    assert_eq!(call("RtlCompareMemory", [at(&copy[..]), at(&buffer[..]), 16]), 5);
    assert!(status_of("memcmp", [at(&copy[..]), at(&buffer[..]), 16]) < 0);
    let text = b"text\0";
    assert_eq!(call("strlen", [at(&text[..])]), 4);
    let mut out = [0xFF_u8; 16];
    let format = b"%s-%d\0";
    assert_eq!(call("_snprintf", [at_mut(&mut out[..]), 16, at(&format[..]), at(&text[..]), 42]), 7);
    assert_eq!(&out[..8], b"text-42\0");
}

#[test]
fn versions_and_processors() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let mut version = [0_u32; 70];
    version[0] = 276;
    assert_eq!(status_of("RtlGetVersion", [at_mut(&mut version[..])]), 0);
    assert_eq!(version[1..4], [10, 0, 26100]);
    assert_eq!(call("KeQueryActiveProcessorCountEx", [0xFFFF]) as u32, kernel.config().processors);
    let mut number = 0_u32;
    let processor = call("KeGetCurrentProcessorNumberEx", [at_mut(&mut number)]) as u32;
    assert_eq!(number, processor << 16);
    let name = wide("KeSetEvent");
    assert_eq!(
        call("MmGetSystemRoutineAddress", [at(&string(&name))]),
        kernel.system_routine("KeSetEvent").unwrap_or(0)
    );
    let name = wide("KeNothing");
    assert_eq!(call("MmGetSystemRoutineAddress", [at(&string(&name))]), 0);
}

#[test]
fn code_integrity() {
    const INFORMATION: &str = "ZwQuerySystemInformation";
    for (test_signing, options) in [(Some(true), Some(3)), (Some(false), Some(1)), (None, None)] {
        let kernel = Kernel::new(KernelConfig { test_signing, ..KernelConfig::collecting() });
        let _in = kernel.enter();
        let (mut information, mut needed) = ([8_u32, 0], 0_u32);
        let asked = status_of(INFORMATION, [103, at_mut(&mut information), 8, at_mut(&mut needed)]);
        assert_eq!((asked == 0).then_some(information[1]), options, "{test_signing:?}");
        // Other classes are refused, and so are lengths that are not the record's.
        assert_eq!(status_of(INFORMATION, [0, at_mut(&mut information), 8, 0]), status::INVALID_INFO_CLASS);
        for (length, member) in [(4, 8), (8, 0), (16, 8)] {
            let mut information = [member, 0, 0, 0_u32];
            let asked = status_of(INFORMATION, [103, at_mut(&mut information), length, 0]);
            assert_eq!(asked == status::INFO_LENGTH_MISMATCH, test_signing.is_some(), "{length} {member}");
            assert_eq!(information[1], 0);
        }
    }
}

#[test]
fn clocks() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let (mut frequency, mut counter, mut time) = (0_u64, 0_u64, 0_u64);
    let first = call("KeQueryPerformanceCounter", [at_mut(&mut frequency)]);
    assert_eq!(frequency, 10_000_000);
    call("KeStallExecutionProcessor", [50]);
    assert!(call("KeQueryPerformanceCounter", [0]) >= first + 500);
    call("KeQueryInterruptTimePrecise", [at_mut(&mut counter)]);
    call("KeQuerySystemTimePrecise", [at_mut(&mut time)]);
    assert!(counter > 0 && time > crate::time::BOOT_SYSTEM_TIME);
    assert_eq!(call("KeQueryTimeIncrement", []) as u32, 156_250);
}

#[test]
fn copying_with_faults() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let (source, mut target, mut copied) = ([1_u8, 2, 3, 4], [0_u8; 4], 0_usize);
    let result = status_of("MmCopyMemory", [at_mut(&mut target[..]), at(&source[..]), 4, 2, at_mut(&mut copied)]);
    assert_eq!((result, copied, target), (0, 4, source));
    let result = status_of("MmCopyMemory", [at_mut(&mut target[..]), 0x1000, 4, 2, at_mut(&mut copied)]);
    assert_eq!((result, copied), (status::ACCESS_VIOLATION, 0));
    let pool = kernel.allocate_pool(0x40, PAGE_SIZE, 1).unwrap_or_default();
    crate::memory::host::write(pool + 10, &[9; 4]);
    let physical = kernel.physical_address(pool) as usize + 10;
    let result = status_of("MmCopyMemory", [at_mut(&mut target[..]), physical, 4, 1, at_mut(&mut copied)]);
    assert_eq!((result, copied, target), (0, 4, [9; 4]));
}

#[test]
fn keys_and_values() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let path = wide("\\Registry\\Machine\\Software\\Test");
    let path = string(&path);
    let attributes = ObjectAttributes {
        length: 0x30,
        root_directory: 0,
        object_name: &raw const path,
        attributes: 0,
        security_descriptor: 0,
        security_quality_of_service: 0,
    };
    let (mut key, mut disposition, mut needed) = (0_usize, 0_u32, 0_u32);
    let arguments = [at_mut(&mut key), 0, at(&attributes), 0, 0, 0, at_mut(&mut disposition)];
    assert_eq!((status_of("ZwCreateKey", arguments), disposition), (0, 1));
    let name = wide("Count");
    let name = string(&name);
    let value = 7_u32;
    assert_eq!(status_of("ZwSetValueKey", [key, at(&name), 0, REG_DWORD as usize, at(&value), 4]), 0);
    // KEY_VALUE_PARTIAL_INFORMATION: title, type, length, data.
    let mut record = [0_u32; 4];
    let query = |record: &mut [u32; 4], length, needed: &mut u32| {
        status_of("ZwQueryValueKey", [key, at(&name), 2, at_mut(record), length, at_mut(needed)])
    };
    assert_eq!((query(&mut record, 16, &mut needed), needed, record), (0, 16, [0, REG_DWORD, 4, 7]));
    assert_eq!(query(&mut record, 12, &mut needed), status::BUFFER_OVERFLOW);
    assert_eq!(query(&mut record, 8, &mut needed), status::BUFFER_TOO_SMALL);
    let mut again = 0_usize;
    assert_eq!(status_of("ZwOpenKey", [at_mut(&mut again), 0, at(&attributes)]), 0);
    assert_eq!(status_of("ZwClose", [again]), 0);
    assert_eq!(status_of("ZwClose", [key]), 0);
    assert!(kernel.rules.violations().is_empty());
    assert_eq!(status_of("ZwClose", [key]), status::INVALID_HANDLE);
    assert!(kernel.rules.was_broken(&NT_HANDLE));
}

shims! {
    table ROUTINES;

    fn CountValues(_m, _name: usize, kind: u32, data: In<u32>, length: u32, context: usize, count: In<AtomicUsize>) -> i32 {
        assert_eq!((kind, length, context), (REG_DWORD, 4, 0x55));
        // CAST: a small number.
        count.get().fetch_add(*data.get() as usize, Ordering::Relaxed);
        0
    }

    fn SetAndEnd(m, event: In<KEVENT>) {
        m.set_event(event.get(), false);
    }

    fn Claim(_m, _interrupt: usize, count: In<AtomicUsize>) -> u8 {
        count.get().fetch_add(1, Ordering::Relaxed);
        1
    }

    fn Enabled(_m, _source: usize, code: u32, level: u8, keywords: u64, _all: u64, _filter: usize, context: In<AtomicUsize>) {
        // CAST: small numbers.
        context.get().store(code as usize * 1000 + level as usize * 100 + keywords as usize, Ordering::Relaxed);
    }
}

#[test]
fn query_tables() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let base = "\\Registry\\Machine\\System\\CurrentControlSet\\Services\\Test";
    kernel.registry().set(base, "Number", RegistryValue::dword(5));
    kernel.registry().set(base, "Text", RegistryValue::string("abc"));
    let (number, text, absent) = (wide("Number"), wide("Text"), wide("Absent"));
    let mut room = [0_u16; 8];
    let mut target = empty(&mut room);
    let (mut direct, mut default_target, default) = (0_u32, 0_u32, 77_u32);
    let count = AtomicUsize::new(0);
    const DIRECT: usize = 0x20;
    const REQUIRED: usize = 4;
    let table: [usize; 42] = [
        // Routine, flags, name, context, default type, default data, default length.
        ROUTINES[0].address.get(),
        0,
        at(&number[..]),
        at(&count),
        0,
        0,
        0,
        0,
        DIRECT,
        at(&number[..]),
        at_mut(&mut direct),
        0,
        0,
        0,
        0,
        DIRECT,
        at(&text[..]),
        at_mut(&mut target),
        0,
        0,
        0,
        0,
        DIRECT,
        at(&absent[..]),
        at_mut(&mut default_target),
        REG_DWORD as usize,
        at(&default),
        4,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
    ];
    let service = wide("Test");
    // RTL_REGISTRY_SERVICES.
    assert_eq!(status_of("RtlQueryRegistryValues", [1, at(&service[..]), at(&table[..]), 0x55, 0]), 0);
    assert_eq!((count.load(Ordering::Relaxed), direct, target.text().as_str(), default_target), (5, 5, "abc", 77));
    let required = [0, DIRECT | REQUIRED, at(&absent[..]), at_mut(&mut direct), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let result = status_of("RtlQueryRegistryValues", [1, at(&service[..]), at(&required[..]), 0, 0]);
    assert_eq!(result, status::OBJECT_NAME_NOT_FOUND);
}

#[test]
fn threads_handles_and_waits() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let (event, other) = (KEVENT::default(), KEVENT::default());
    call("KeInitializeEvent", [at(&event), 0, 0]);
    call("KeInitializeEvent", [at(&other), 1, 1]);
    let (mut handle, mut thread) = (0_usize, 0_usize);
    let arguments = [at_mut(&mut handle), 0, 0, 0, 0, ROUTINES[1].address.get(), at(&event)];
    assert_eq!(status_of("PsCreateSystemThread", arguments), 0);
    let kind = crate::shims::data::variables().find(|(name, _)| *name == "PsThreadType").map_or(0, |(_, at)| at);
    let kind = *crate::shims::pointer::<usize>(kind).get();
    assert_eq!(status_of("ObReferenceObjectByHandle", [handle, 0, kind, 0, at_mut(&mut thread), 0]), 0);
    assert_eq!(status_of("ZwClose", [handle]), 0);
    let objects = [at(&event), at(&other), thread];
    // WaitAll.
    assert_eq!(status_of("KeWaitForMultipleObjects", [3, at(&objects[..]), 0, 0, 0, 0, 0, 0]), 0);
    let zero = 0_i64;
    assert_eq!(status_of("KeWaitForSingleObject", [at(&other), 0, 0, 0, at(&zero)]), status::TIMEOUT);
    call("ObfDereferenceObject", [thread]);
    assert!(kernel.rules.violations().is_empty(), "{:?}", kernel.rules.violations());
    let mut wrong = 1_usize;
    let handle = kernel.open_handle(crate::object::Object::Key("k".into()));
    let result = status_of("ObReferenceObjectByHandle", [handle as usize, 0, kind, 0, at_mut(&mut wrong), 0]);
    assert_eq!(result, status::OBJECT_TYPE_MISMATCH);
    assert!(kernel.rules.was_broken(&NT_HANDLE));
}

#[test]
fn fast_mutexes() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let mutex = FastMutex::default();
    call("ExInitializeFastMutex", [at(&mutex)]);
    call("ExAcquireFastMutex", [at(&mutex)]);
    assert_eq!(kernel.irql(), 1);
    assert_eq!(call("ExTryToAcquireFastMutex", [at(&mutex)]) as u8, 0);
    call("ExReleaseFastMutex", [at(&mutex)]);
    assert_eq!(kernel.irql(), 0);
    assert!(kernel.rules.violations().is_empty());
    call("ExReleaseFastMutex", [at(&mutex)]);
    assert!(kernel.rules.was_broken(&NT_MUTEX_NOT_OWNED));
}

#[test]
fn event_tracing_is_enabled_and_written() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let (id, descriptor) = ([3_u8; 16], [4_u8; 16]);
    let seen = AtomicUsize::new(0);
    let mut handle = 0_usize;
    assert_eq!(status_of("EtwRegister", [at(&id), ROUTINES[3].address.get(), at(&seen), at_mut(&mut handle)]), 0);
    kernel.enable_etw(5, 7);
    assert_eq!(seen.load(Ordering::Relaxed), 1507);
    let (first, second) = ([1_u8, 2, 3], [9_u8; 2]);
    let items = [at(&first[..]), 3, at(&second[..]), 2];
    assert_eq!(status_of("EtwWriteTransfer", [handle, at(&descriptor), 0, 0, 2, at(&items[..])]), 0);
    let events = kernel.take_etw_events();
    assert_eq!(events[0].data, [first.to_vec(), second.to_vec()]);
    assert_eq!((events[0].provider, events[0].descriptor), (id, descriptor));
    assert_eq!(status_of("EtwUnregister", [handle]), 0);
    assert!(kernel.rules.violations().is_empty());
}

#[test]
fn a_fully_specified_interrupt_connection() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let line = InterruptLine::new("test", Trigger::Message, 0);
    kernel.assign_interrupt(0x41, &line);
    let (count, mut object) = (AtomicUsize::new(0), 0_usize);
    let level = 6;
    let parameters = [1, 0, at_mut(&mut object), ROUTINES[2].address.get(), at(&count), 0, 0x41 << 32 | level, level];
    assert_eq!(status_of("IoConnectInterruptEx", [at(&parameters[..])]), 0);
    kernel.signal_interrupt(&line);
    assert_eq!(count.load(Ordering::Relaxed), 1);
    call("IoDisconnectInterruptEx", [at(&[1, object][..])]);
    assert!(kernel.rules.violations().is_empty());
}
