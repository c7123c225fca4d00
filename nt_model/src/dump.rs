//! A machine as a Windows minidump: what a debugger opens when there is no machine any more.
//!
//! [`Machine::dump`] takes a [`Dump`] of a machine that runs or has stopped: the loaded images as modules, so that a
//! debugger finds their symbol files by GUID and age; each thread that is in driver code, with its registers and its
//! stack; the broken rule's bug check as the exception, with its four parameters, and its text as a comment, which
//! WinDbg shows when it opens the file; and the memory that matters: images with their data, stacks, pool, and what the
//! driver has mapped or allocated. [`Dump::to_bytes`] is the file.
//!
//! Other threads go on while they are looked at, so that memory of theirs may be a moment younger than their registers.
//! A thread that waits in a service is shown at its call of it, where only `rip` and `rsp` are known. What could not be
//! had, [`Dump::missing`] says, and so does the comment of the file.
//!
//! ```
//! use nt_model::Kernel;
//!
//! let kernel = Kernel::collecting();
//! let _inside = kernel.enter();
//! let bytes = kernel.dump(None).to_bytes();
//! assert_eq!(&bytes[..4], b"MDMP");
//! ```
//!
//! Source: "MINIDUMP_HEADER structure" and its neighbours (minidumpapiset.h).

mod format;
mod keeper;
mod memory;
pub(crate) mod registers;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::bug_check::SecondaryData;
use crate::cpu;
use crate::image::Image;
use crate::kernel::Machine;
use crate::rules::Violation;
use crate::thread::Thread;
pub(crate) use keeper::Keeper;
pub use keeper::Moment;
use memory::Collected;
pub(crate) use memory::read;
pub use registers::Registers;

/// The memory of a dump ends before this, in bytes; what does not fit of the largest pieces is left out.
pub const MEMORY_LIMIT: usize = 60 << 20;
/// The exception code of a broken rule for which Windows has no bug check: an error of a customer's facility.
/// Source: "Defining New Error Types" (winerror.h), bits 29 to 31.
pub const RULE_BROKEN: u32 = 0xE000_4650;
/// The first of the streams that have what bug check callbacks gave: the tag's 16 bytes, then the data. Numbers above
/// `LastReservedStream` are programs' own. Source: `MINIDUMP_STREAM_TYPE`.
pub const SECONDARY_STREAM: u32 = 0x4650_0000;
/// Bytes of stack that are kept of a thread, from its stack pointer on.
const STACK: usize = 32 * 1024;

/// What a dump says where another thread had the table of memory for too long.
const NO_MEMORY: &str = "pool and mapped memory are missing: the model's table of them was in use";
/// The same of the list of threads.
const NO_THREADS: &str = "threads but the one of the dump are missing: the model's list of them was in use";
/// What a dump says whose rule was not broken by a call of a driver.
const NO_CALL: &str = "the rule was broken outside of driver code: its thread has no registers and no stack";

/// A loaded image.
#[derive(Clone, Debug)]
pub(crate) struct Module {
    name: String,
    base: u64,
    size: u32,
    checksum: u32,
    timestamp: u32,
    /// The record of the debug directory that names the symbol file: `RSDS`, GUID, age, path.
    codeview: Vec<u8>,
}

/// A thread that is in driver code, or that broke a rule.
#[derive(Clone, Debug)]
pub struct DumpThread {
    /// Its number in the machine.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its registers in driver code; all 0 of a thread that is in none.
    pub registers: Registers,
}

/// What stopped the machine.
#[derive(Clone, Debug)]
struct Exception {
    thread: u32,
    code: u32,
    parameters: [u64; 4],
    registers: Registers,
}

/// A machine at one moment.
#[derive(Clone, Debug)]
pub struct Dump {
    modules: Vec<Module>,
    threads: Vec<DumpThread>,
    exception: Option<Exception>,
    comment: String,
    /// What a reader would look for and not find, a sentence each.
    missing: Vec<String>,
    processors: u8,
    memory: Collected,
    /// What drivers' bug check callbacks gave.
    secondary: Vec<SecondaryData>,
}

impl Dump {
    /// The threads that are in driver code, and the one that broke a rule, by number.
    pub fn threads(&self) -> &[DumpThread] {
        &self.threads
    }

    /// The comment: the broken rule, or what was asked for, and what is missing.
    pub fn comment(&self) -> String {
        let lines = std::iter::once(self.comment.as_str()).chain(self.missing.iter().map(String::as_str));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// What could not be had, a sentence each: memory or threads whose table another thread had for too long,
    /// registers of threads that did not answer, memory beyond [`MEMORY_LIMIT`]. Empty: all is there.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// What drivers' bug check callbacks gave: for a broken rule alone.
    pub fn secondary(&self) -> &[SecondaryData] {
        &self.secondary
    }

    /// Bytes of memory that did not fit into [`MEMORY_LIMIT`].
    pub fn left_out(&self) -> usize {
        self.memory.left_out
    }

    /// Says what it shows.
    fn say(&mut self, text: &str) {
        text.clone_into(&mut self.comment);
    }

    /// The minidump.
    pub fn to_bytes(&self) -> Vec<u8> {
        format::bytes(self)
    }
}

impl Module {
    fn of(image: &Image) -> Self {
        let codeview = image.codeview().unwrap_or_default();
        Self {
            name: image.name().to_owned(),
            base: image.base() as u64,
            // CAST: the loader takes images below 512 MiB.
            size: image.size() as u32,
            checksum: image.checksum(),
            timestamp: image.timestamp(),
            codeview,
        }
    }
}

impl Machine {
    /// Takes a dump of the machine. With `violation`, which the calling thread has just made, its bug check is the
    /// exception and its text the comment; without, there is no exception.
    ///
    /// Takes some milliseconds; other threads are interrupted for a moment each, by a signal. IRQL: any.
    pub fn dump(&self, violation: Option<&Violation>) -> Dump {
        let own = cpu::with(|cpu| cpu.is_in(self).then(|| cpu.thread().map(Thread::id)).flatten());
        let mut missing = Vec::new();
        let mut threads = self.other_threads(own, &mut missing);
        let mine = registers::mine();
        let here = mine.and_then(|mine| self.in_driver(mine));
        if let (Some(id), Some(registers)) = (own, here) {
            let name = cpu::with(|cpu| cpu.thread().map(Thread::name)).unwrap_or_default();
            // CAST: numbers of threads count from 1.
            threads.push(DumpThread { id: id as u32, name, registers });
        }
        // A debugger needs the exception's thread: LLDB ends by a signal where there is none.
        let outside = violation.map(|violation| &violation.context);
        // CAST: as above.
        if let Some(context) = outside.filter(|it| threads.iter().all(|thread| thread.id != it.thread as u32)) {
            missing.push(NO_CALL.to_owned());
            let (id, name) = (context.thread as u32, context.thread_name.to_string());
            threads.push(DumpThread { id, name, registers: Registers::default() });
        }
        threads.sort_by_key(|thread| thread.id);
        let exception = violation.map(|violation| Exception {
            // CAST: as above.
            thread: violation.context.thread as u32,
            code: if violation.code == 0 { RULE_BROKEN } else { violation.code },
            parameters: violation.params,
            registers: here.unwrap_or_default(),
        });
        let comment = violation.map_or_else(|| "taken on demand: no rule was broken".to_owned(), ToString::to_string);
        let images = self.images.all();
        let mut memory = Collected::new(MEMORY_LIMIT);
        for image in &images {
            memory.add(image.base()..image.base() + image.size());
        }
        for thread in threads.iter().filter(|thread| thread.registers.rsp != 0) {
            // CAST: an address.
            let rsp = thread.registers.rsp as usize;
            memory.add(rsp..rsp.saturating_add(STACK));
        }
        match self.ranges_that_matter() {
            Some(ranges) => ranges.into_iter().for_each(|range| memory.add(range)),
            None => missing.push(NO_MEMORY.to_owned()),
        }
        if memory.left_out != 0 {
            missing.push(format!("{} bytes of the largest pieces of memory are left out", memory.left_out));
        }
        Dump {
            modules: images.iter().map(|image| Module::of(image)).collect(),
            threads,
            exception,
            comment,
            missing,
            // CAST: at most as many as a byte holds; a machine has few.
            processors: self.config().processors.min(255) as u8,
            memory,
            // Of a driver's own affair: Windows would stop here, and ask.
            secondary: if violation.is_some() { self.secondary_data() } else { Vec::new() },
        }
    }

    /// Runs `f` while the calling thread keeps the table of mapped memory, as one does that maps or frees. `f` must not
    /// map, allocate or free anything of the machine's. For tests of what a dump says then.
    pub fn keeping_memory<R>(&self, f: impl FnOnce() -> R) -> R {
        self.memory.regions.keeping(f)
    }

    /// Every thread but `own` that is in driver code. `missing`: what is not known of others.
    fn other_threads(&self, own: Option<u64>, missing: &mut Vec<String>) -> Vec<DumpThread> {
        let Some(all) = self.all_threads() else {
            missing.push(NO_THREADS.to_owned());
            return Vec::new();
        };
        let threads: Vec<Arc<Thread>> = all.into_iter().filter(|thread| Some(thread.id()) != own).collect();
        let found = registers::of(&threads);
        let silent = threads.iter().zip(&found).filter(|(_, found)| matches!(found, registers::Answer::Silent));
        let silent: Vec<_> = silent.map(|(thread, _)| format!("{} ({})", thread.id(), thread.name())).collect();
        if !silent.is_empty() {
            missing.push(format!("threads that did not answer in time are missing: {}", silent.join(", ")));
        }
        threads
            .iter()
            .zip(found)
            .filter_map(|(thread, found)| {
                let registers::Answer::Seen(found) = found else { return None };
                let registers = self.in_driver(found)?;
                // CAST: numbers of threads count from 1.
                Some(DumpThread { id: thread.id() as u32, name: thread.name(), registers })
            })
            .collect()
    }

    /// What a thread's registers are in driver code: its own where it runs there, `rip` and `rsp` of its call where it
    /// is in a service. `None`: it is not in an image.
    fn in_driver(&self, seen: registers::Seen) -> Option<Registers> {
        // CAST: addresses.
        if self.images.contains(seen.registers.rip as usize) {
            return Some(seen.registers);
        }
        let rip = memory::word(seen.shim_frame)?;
        self.images.contains(rip as usize).then(|| Registers::at(rip, seen.shim_frame as u64 + 8))
    }
}
