use std::sync::mpsc::channel;

use minidump_common::format::{
    CONTEXT_AMD64, MINIDUMP_DIRECTORY, MINIDUMP_EXCEPTION_STREAM, MINIDUMP_HEADER, MINIDUMP_MISC_INFO, MINIDUMP_MODULE,
    MINIDUMP_STREAM_TYPE, MINIDUMP_SYSTEM_INFO, MINIDUMP_THREAD, MINIDUMP_THREAD_NAME,
};
use scroll::Pread;

use super::memory::Collected;
use super::{DumpThread, Exception, MEMORY_LIMIT, Module, NO_MEMORY, NO_THREADS, Registers, registers};
use crate::dump::Dump;
use crate::kernel::Kernel;
use crate::memory::host;
use crate::pool::POOL_FLAG_NON_PAGED;

const TAG: u32 = u32::from_le_bytes(*b"Test");
const MARK: u8 = 0xD5;

/// A machine with a piece of pool, filled with [`MARK`], and the piece's address.
fn with_pool(kernel: &Kernel) -> u64 {
    let pool = kernel.allocate_pool(POOL_FLAG_NON_PAGED, 64, TAG).unwrap_or_else(|| panic!("pool"));
    host::fill(pool, MARK, 64);
    pool as u64
}

/// Returns whether a dump has the piece of pool at `at`.
fn has(dump: &Dump, at: u64) -> bool {
    let ranges = &dump.memory.ranges;
    // CAST: an offset inside a range.
    let found = ranges.iter().find_map(|(start, bytes)| bytes.get(at.checked_sub(*start)? as usize..)?.get(..64));
    found.is_some_and(|found| found.iter().all(|byte| *byte == MARK))
}

#[test]
fn a_dump_has_pool_and_misses_nothing() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let pool = with_pool(&kernel);
    let dump = kernel.dump(None);
    assert!(has(&dump, pool));
    assert_eq!(dump.missing(), [""; 0]);
    kernel.free_pool(usize::try_from(pool).unwrap_or(0), Some(TAG));
}

#[test]
fn memory_whose_table_is_in_use_is_said_to_be_missing() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let pool = with_pool(&kernel);
    let dump = kernel.keeping_memory(|| kernel.dump(None));
    assert!(!has(&dump, pool), "the table was not kept");
    assert_eq!(dump.missing(), [NO_MEMORY]);
    assert!(dump.comment().ends_with(NO_MEMORY), "{}", dump.comment());
    kernel.free_pool(usize::try_from(pool).unwrap_or(0), Some(TAG));
}

#[test]
fn threads_whose_list_is_in_use_are_said_to_be_missing() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let kept = kernel.threads.lock();
    let dump = kernel.dump(None);
    drop(kept);
    assert_eq!(dump.missing(), [NO_THREADS]);
}

#[test]
fn a_thread_that_does_not_answer_is_named() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let (is_in, came) = channel();
    let (go, may_go) = channel::<()>();
    let kernel = &kernel;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            registers::unasked(|| {
                let _in = kernel.enter();
                is_in.send(kernel.current_thread_id()).expect("somebody waits");
                may_go.recv().expect("told to go");
            });
        });
        let id = came.recv().expect("the thread came");
        let dump = kernel.dump(None);
        go.send(()).expect("it waits");
        assert_eq!(dump.missing(), [format!("threads that did not answer in time are missing: {id} (host)")]);
    });
}

/// A record of a dump, which lies at `at`.
fn record<'a, T>(bytes: &'a [u8], at: u32) -> T
where
    T: scroll::ctx::TryFromCtx<'a, scroll::Endian, [u8], Error = scroll::Error>,
{
    // CAST: offsets of a file below 64 MiB.
    bytes.pread_with(at as usize, scroll::LE).expect("a record")
}

/// Each field of the file is what it was made of: readers of dumps look at few of them.
#[test]
fn a_file_says_what_it_was_given() {
    let general = core::array::from_fn(|number| 0x1000 + number as u64);
    let registers = Registers { rip: 0x5123, rsp: 0x1004, flags: 0x246, general };
    let module = Module {
        name: "a.sys".to_owned(),
        base: 0x5000,
        size: 0x3000,
        checksum: 0x1_2345,
        timestamp: 0x6_7890,
        codeview: b"RSDS".to_vec(),
    };
    let mut memory = Collected::new(MEMORY_LIMIT);
    memory.ranges.push((0x1000, vec![0xAB; 64]));
    let dump = Dump {
        modules: vec![module],
        threads: vec![DumpThread { id: 7, name: "seven".to_owned(), registers }],
        exception: Some(Exception { thread: 7, code: 0x119, parameters: [1, 2, 3, 4], registers }),
        comment: "a comment".to_owned(),
        missing: Vec::new(),
        processors: 3,
        memory,
        secondary: Vec::new(),
    };
    let bytes = dump.to_bytes();
    let header: MINIDUMP_HEADER = record(&bytes, 0);
    assert_eq!((header.flags, header.stream_count), (2, 8));
    let streams: Vec<MINIDUMP_DIRECTORY> =
        (0..header.stream_count).map(|number| record(&bytes, header.stream_directory_rva + number * 12)).collect();
    let stream = |kind: MINIDUMP_STREAM_TYPE| {
        let found = streams.iter().find(|stream| stream.stream_type == kind as u32).expect("a stream");
        found.location.rva
    };
    let is_registers = |at: u32| {
        let context: CONTEXT_AMD64 = record(&bytes, at);
        let found = [
            context.rax,
            context.rcx,
            context.rdx,
            context.rbx,
            context.rsp,
            context.rbp,
            context.rsi,
            context.rdi,
            context.r8,
            context.r9,
            context.r10,
            context.r11,
            context.r12,
            context.r13,
            context.r14,
            context.r15,
        ];
        assert_eq!((found, context.rip, context.eflags), (general, 0x5123, 0x246));
    };
    let module: MINIDUMP_MODULE = record(&bytes, stream(MINIDUMP_STREAM_TYPE::ModuleListStream) + 4);
    let said = (module.base_of_image, module.size_of_image, module.checksum, module.time_date_stamp);
    assert_eq!(said, (0x5000, 0x3000, 0x1_2345, 0x6_7890));
    let thread: MINIDUMP_THREAD = record(&bytes, stream(MINIDUMP_STREAM_TYPE::ThreadListStream) + 4);
    // From the stack pointer to the end of the memory that is there.
    let said = (thread.thread_id, thread.stack.start_of_memory_range, thread.stack.memory.data_size);
    assert_eq!(said, (7, 0x1004, 60));
    is_registers(thread.thread_context.rva);
    let name: MINIDUMP_THREAD_NAME = record(&bytes, stream(MINIDUMP_STREAM_TYPE::ThreadNamesStream) + 4);
    assert_eq!(name.thread_id, 7);
    let exception: MINIDUMP_EXCEPTION_STREAM = record(&bytes, stream(MINIDUMP_STREAM_TYPE::ExceptionStream));
    let of = &exception.exception_record;
    assert_eq!((exception.thread_id, of.exception_code, of.exception_address), (7, 0x119, 0x5123));
    assert_eq!((of.number_parameters, &of.exception_information[..5]), (4, &[1, 2, 3, 4, 0][..]));
    is_registers(exception.thread_context.rva);
    let system: MINIDUMP_SYSTEM_INFO = record(&bytes, stream(MINIDUMP_STREAM_TYPE::SystemInfoStream));
    let version = (system.major_version, system.minor_version, system.build_number);
    assert_eq!((version, system.number_of_processors, system.processor_architecture), ((10, 0, 26_100), 3, 9));
    let process: MINIDUMP_MISC_INFO = record(&bytes, stream(MINIDUMP_STREAM_TYPE::MiscInfoStream));
    assert_eq!((process.flags1, process.process_id), (1, 4));
}
