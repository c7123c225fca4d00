//! The bytes of a minidump.

use std::time::{SystemTime, UNIX_EPOCH};

use minidump_common::format::{
    CONTEXT_AMD64, CPU_INFORMATION, ContextFlagsAmd64, MINIDUMP_DIRECTORY, MINIDUMP_EXCEPTION,
    MINIDUMP_EXCEPTION_STREAM, MINIDUMP_HEADER, MINIDUMP_LOCATION_DESCRIPTOR, MINIDUMP_MEMORY_DESCRIPTOR,
    MINIDUMP_MEMORY_DESCRIPTOR64, MINIDUMP_MISC_INFO, MINIDUMP_MODULE, MINIDUMP_SIGNATURE, MINIDUMP_STREAM_TYPE,
    MINIDUMP_SYSTEM_INFO, MINIDUMP_THREAD, MINIDUMP_THREAD_NAME, MINIDUMP_VERSION, PlatformId, ProcessorArchitecture,
    VS_FIXEDFILEINFO,
};
use scroll::ctx::{SizeWith, TryIntoCtx};
use scroll::{Endian, LE, Pwrite};

use super::registers::Registers;
use super::{Dump, DumpThread, Exception, Module, SECONDARY_STREAM};

/// `MiniDumpWithFullMemory`: memory follows the other streams.
const WITH_FULL_MEMORY: u64 = 2;
/// `VER_NT_WORKSTATION`.
const WORKSTATION: u8 = 1;
/// The version that the model says it is, unless a reading says otherwise.
const WINDOWS: (u32, u32, u32) = (10, 0, 26_100);
/// Segment registers of user mode on x64 Windows.
const CODE: u16 = 0x33;
const DATA: u16 = 0x2B;
const PROCESS: u16 = 0x53;
/// Streams of a dump with an exception.
const STREAMS: usize = 9;

/// A file that grows.
struct File {
    bytes: Vec<u8>,
    streams: Vec<MINIDUMP_DIRECTORY>,
}

impl File {
    /// Appends `record`, at a multiple of eight. Returns where it is.
    fn record<T>(&mut self, record: T) -> MINIDUMP_LOCATION_DESCRIPTOR
    where
        T: TryIntoCtx<Endian, [u8], Error = scroll::Error> + SizeWith<Endian>,
    {
        let mut bytes = vec![0; T::size_with(&LE)];
        bytes.pwrite_with(record, 0, LE).expect("the buffer has the record's size");
        self.append(&bytes)
    }

    fn append(&mut self, bytes: &[u8]) -> MINIDUMP_LOCATION_DESCRIPTOR {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let at = MINIDUMP_LOCATION_DESCRIPTOR { data_size: number(bytes.len()), rva: number(self.bytes.len()) };
        self.bytes.extend(bytes);
        at
    }

    /// A counted string of UTF-16, with a zero behind it that is not counted.
    fn text(&mut self, text: &str) -> u32 {
        let units: Vec<u8> = text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
        let mut bytes = number(units.len() - 2).to_le_bytes().to_vec();
        bytes.extend(units);
        self.append(&bytes).rva
    }

    /// A count, and records close behind it.
    fn list<T>(&mut self, records: Vec<T>) -> MINIDUMP_LOCATION_DESCRIPTOR
    where
        T: TryIntoCtx<Endian, [u8], Error = scroll::Error> + SizeWith<Endian>,
    {
        let mut bytes = number(records.len()).to_le_bytes().to_vec();
        for record in records {
            let at = bytes.len();
            bytes.resize(at + T::size_with(&LE), 0);
            bytes.pwrite_with(record, at, LE).expect("the buffer has the record's size");
        }
        self.append(&bytes)
    }

    fn stream(&mut self, kind: MINIDUMP_STREAM_TYPE, location: MINIDUMP_LOCATION_DESCRIPTOR) {
        self.streams.push(MINIDUMP_DIRECTORY { stream_type: kind as u32, location });
    }
}

/// An offset or size in the file, which is below 64 MiB.
fn number(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn context(registers: &Registers) -> CONTEXT_AMD64 {
    let [rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15] = registers.general;
    let flags = ContextFlagsAmd64::CONTEXT_AMD64_CONTROL
        | ContextFlagsAmd64::CONTEXT_AMD64_INTEGER
        | ContextFlagsAmd64::CONTEXT_AMD64_SEGMENTS;
    CONTEXT_AMD64 {
        context_flags: flags.bits(),
        cs: CODE,
        ds: DATA,
        es: DATA,
        fs: PROCESS,
        gs: DATA,
        ss: DATA,
        // CAST: the flags that a program sees are in the lower half.
        eflags: registers.flags as u32,
        rax,
        rcx,
        rdx,
        rbx,
        rsp,
        rbp,
        rsi,
        rdi,
        r8,
        r9,
        r10,
        r11,
        r12,
        r13,
        r14,
        r15,
        rip: registers.rip,
        ..CONTEXT_AMD64::default()
    }
}

fn module(file: &mut File, module: &Module) -> MINIDUMP_MODULE {
    MINIDUMP_MODULE {
        base_of_image: module.base,
        size_of_image: module.size,
        checksum: module.checksum,
        time_date_stamp: module.timestamp,
        module_name_rva: file.text(&module.name),
        version_info: VS_FIXEDFILEINFO::default(),
        cv_record: file.append(&module.codeview),
        ..MINIDUMP_MODULE::default()
    }
}

/// A thread's stack is found in the memory stream; its descriptor says where it begins.
fn thread(file: &mut File, thread: &DumpThread, bytes: usize) -> MINIDUMP_THREAD {
    let stack = MINIDUMP_LOCATION_DESCRIPTOR { data_size: number(bytes), rva: 0 };
    MINIDUMP_THREAD {
        thread_id: thread.id,
        suspend_count: 0,
        priority_class: 0,
        priority: 0,
        teb: 0,
        stack: MINIDUMP_MEMORY_DESCRIPTOR { start_of_memory_range: thread.registers.rsp, memory: stack },
        thread_context: file.record(context(&thread.registers)),
    }
}

fn exception(file: &mut File, exception: &Exception) -> MINIDUMP_EXCEPTION_STREAM {
    let mut information = [0; 15];
    information[..4].copy_from_slice(&exception.parameters);
    MINIDUMP_EXCEPTION_STREAM {
        thread_id: exception.thread,
        __align: 0,
        exception_record: MINIDUMP_EXCEPTION {
            exception_code: exception.code,
            exception_address: exception.registers.rip,
            number_parameters: 4,
            exception_information: information,
            ..MINIDUMP_EXCEPTION::default()
        },
        thread_context: file.record(context(&exception.registers)),
    }
}

fn system(file: &mut File, dump: &Dump) -> MINIDUMP_SYSTEM_INFO {
    let (major_version, minor_version, build_number) = WINDOWS;
    MINIDUMP_SYSTEM_INFO {
        processor_architecture: ProcessorArchitecture::PROCESSOR_ARCHITECTURE_AMD64 as u16,
        processor_level: 6,
        processor_revision: 0,
        number_of_processors: dump.processors,
        product_type: WORKSTATION,
        major_version,
        minor_version,
        build_number,
        platform_id: PlatformId::VER_PLATFORM_WIN32_NT as u32,
        csd_version_rva: file.text(""),
        suite_mask: 0,
        reserved2: 0,
        cpu: CPU_INFORMATION { data: [0; 24] },
    }
}

/// The system process, whose number is 4.
fn process() -> MINIDUMP_MISC_INFO {
    const HAS_PROCESS_ID: u32 = 1;
    MINIDUMP_MISC_INFO {
        size_of_info: number(MINIDUMP_MISC_INFO::size_with(&LE)),
        flags1: HAS_PROCESS_ID,
        process_id: 4,
        process_create_time: 0,
        process_user_time: 0,
        process_kernel_time: 0,
    }
}

/// Bytes of the stack of the thread at `rsp` that the dump holds.
fn stack_bytes(dump: &Dump, rsp: u64) -> usize {
    let around = dump.memory.ranges.iter().find(|(at, bytes)| rsp >= *at && rsp < at + bytes.len() as u64);
    // CAST: a difference inside a range.
    around.map_or(0, |(at, bytes)| bytes.len() - (rsp - at) as usize).min(super::STACK)
}

/// The whole file: header, directory, streams, memory last.
pub(super) fn bytes(dump: &Dump) -> Vec<u8> {
    let directory = MINIDUMP_HEADER::size_with(&LE);
    let first = directory + (STREAMS + dump.secondary.len()) * MINIDUMP_DIRECTORY::size_with(&LE);
    let mut file = File { bytes: vec![0; first], streams: Vec::new() };
    let modules: Vec<_> = dump.modules.iter().map(|one| module(&mut file, one)).collect();
    let modules = file.list(modules);
    file.stream(MINIDUMP_STREAM_TYPE::ModuleListStream, modules);
    let threads = dump.threads.iter().map(|one| thread(&mut file, one, stack_bytes(dump, one.registers.rsp))).collect();
    let threads = file.list(threads);
    file.stream(MINIDUMP_STREAM_TYPE::ThreadListStream, threads);
    let names = dump
        .threads
        .iter()
        .map(|one| MINIDUMP_THREAD_NAME { thread_id: one.id, thread_name_rva: file.text(&one.name).into() })
        .collect();
    let names = file.list(names);
    file.stream(MINIDUMP_STREAM_TYPE::ThreadNamesStream, names);
    if let Some(one) = &dump.exception {
        let record = exception(&mut file, one);
        let at = file.record(record);
        file.stream(MINIDUMP_STREAM_TYPE::ExceptionStream, at);
    }
    let system = system(&mut file, dump);
    let system = file.record(system);
    file.stream(MINIDUMP_STREAM_TYPE::SystemInfoStream, system);
    let process = process();
    let process = file.record(process);
    file.stream(MINIDUMP_STREAM_TYPE::MiscInfoStream, process);
    let comment: Vec<u8> = dump.comment().bytes().chain([0]).collect();
    let comment = file.append(&comment);
    file.stream(MINIDUMP_STREAM_TYPE::CommentStreamA, comment);
    for (number, one) in (SECONDARY_STREAM..).zip(&dump.secondary) {
        let location = file.append(&[&one.tag[..], &one.bytes].concat());
        file.streams.push(MINIDUMP_DIRECTORY { stream_type: number, location });
    }
    let memory = memory(&mut file, dump);
    file.stream(MINIDUMP_STREAM_TYPE::Memory64ListStream, memory);
    let header = MINIDUMP_HEADER {
        signature: MINIDUMP_SIGNATURE,
        version: MINIDUMP_VERSION,
        stream_count: number(file.streams.len()),
        stream_directory_rva: number(directory),
        checksum: 0,
        // CAST: the format's seconds have 32 bits.
        time_date_stamp: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as u32),
        flags: WITH_FULL_MEMORY,
    };
    file.bytes.pwrite_with(header, 0, LE).expect("the header's place was kept");
    let mut at = directory;
    for stream in std::mem::take(&mut file.streams) {
        file.bytes.pwrite_with(stream, at, LE).expect("the directory's place was kept");
        at += MINIDUMP_DIRECTORY::size_with(&LE);
    }
    file.bytes
}

/// A table of ranges, and their content close behind it.
fn memory(file: &mut File, dump: &Dump) -> MINIDUMP_LOCATION_DESCRIPTOR {
    let mut ranges: Vec<_> = dump.memory.ranges.iter().collect();
    ranges.sort_by_key(|(at, _)| *at);
    let table = 16 + ranges.len() * MINIDUMP_MEMORY_DESCRIPTOR64::size_with(&LE);
    let start = file.bytes.len().next_multiple_of(8);
    let mut head = (ranges.len() as u64).to_le_bytes().to_vec();
    head.extend(((start + table) as u64).to_le_bytes());
    for (at, bytes) in &ranges {
        head.extend(at.to_le_bytes());
        head.extend((bytes.len() as u64).to_le_bytes());
    }
    let location = file.append(&head);
    for (_, bytes) in ranges {
        file.bytes.extend(bytes);
    }
    location
}
