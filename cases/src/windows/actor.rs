//! Processes of the demo on Windows: this program once more, for each.
#![expect(unsafe_code, reason = "functions of kernel32")]

use crate::demo::child::Child;
use crate::demo::parts::Talk;
use crate::demo::play::{self, Actor as _};
use anyhow::{Context, Result, ensure};
use std::ffi::{OsStr, c_char, c_void};
use std::os::windows::io::AsRawHandle;
use std::process::Command;
use std::ptr;
use wddm_abi::HANDLE;

const DUPLICATE_CLOSE_SOURCE: u32 = 1;
const DUPLICATE_SAME_ACCESS: u32 = 2;
const WAIT_OBJECT_0: u32 = 0;
/// A handle that no process has: none has that many.
const NOBODYS: u64 = 0x7FFF_0000;

#[link(name = "kernel32", kind = "raw-dylib")]
unsafe extern "system" {
    fn DuplicateHandle(
        source: HANDLE,
        handle: HANDLE,
        target: HANDLE,
        duplicate: *mut HANDLE,
        access: u32,
        inherit: i32,
        options: u32,
    ) -> i32;
    fn QueryPerformanceCounter(count: *mut i64) -> i32;
    fn CreateEventA(attributes: *const c_void, manual: i32, set: i32, name: *const c_char) -> HANDLE;
    fn SetEvent(event: HANDLE) -> i32;
    fn WaitForSingleObject(handle: HANDLE, milliseconds: u32) -> u32;
}

/// A process of the demo.
pub struct Actor {
    name: &'static str,
    child: Child,
}

impl Actor {
    /// Starts this program with these arguments.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(name: &'static str, arguments: &[&OsStr]) -> Result<Self> {
        let program = std::env::current_exe().context("this program's file")?;
        Ok(Self { name, child: Child::start(Command::new(program).args(arguments))? })
    }

    /// It ends by itself, behind one more word.
    ///
    /// # Errors
    /// When it fails.
    pub fn ends(self) -> Result<()> {
        self.child.ends().with_context(|| format!("process {}", self.name))
    }
}

impl play::Actor for Actor {
    fn name(&self) -> &'static str {
        self.name
    }

    fn say(&mut self, line: &str) -> Result<()> {
        self.child.say(line).with_context(|| format!("process {}", self.name))
    }

    fn hear(&mut self) -> Result<String> {
        self.child.hear().with_context(|| format!("process {}", self.name))
    }

    fn receive(&self, other: &Self, handle: u64) -> Result<u64> {
        let process = |actor: &Self| actor.child.process().as_raw_handle();
        // CAST: a handle.
        let handle = ptr::with_exposed_provenance_mut(handle as usize);
        let mut received: HANDLE = ptr::null_mut();
        let options = DUPLICATE_CLOSE_SOURCE | DUPLICATE_SAME_ACCESS;
        // SAFETY: handles of two processes that were started here, which may be used for anything, and a place for the
        // result; any handle value may be passed, and one that is not open in the first process is refused.
        let done = unsafe { DuplicateHandle(process(other), handle, process(self), &raw mut received, 0, 0, options) };
        ensure!(done != 0, "a handle of process {}: {}", other.name, std::io::Error::last_os_error());
        Ok(received.expose_provenance() as u64)
    }
}

/// What a part talks by, in the process that plays it: its standard input and output.
pub struct Lines;

impl Talk for Lines {
    fn say(&self, line: &str) -> Result<()> {
        println!("{line}");
        Ok(())
    }

    fn hear(&self) -> Result<String> {
        let mut line = String::new();
        let read = std::io::stdin().read_line(&mut line)?;
        ensure!(read != 0, "the director is gone");
        Ok(line.trim_end().to_owned())
    }

    fn clock(&self) -> u64 {
        let mut count = 0;
        // SAFETY: a place for the result; the function always succeeds.
        let _always = unsafe { QueryPerformanceCounter(&raw mut count) };
        count.cast_unsigned()
    }
}

/// What a process does in a rehearsal, where there is no adapter: A makes an event, B sets it by a handle of its own,
/// and A says whether it is set.
///
/// # Errors
/// What the OS refuses.
pub fn rehearse(name: &str, talk: &dyn Talk) -> Result<()> {
    if name == "A" {
        // SAFETY: no security attributes and no name; auto-reset, not set.
        let event = unsafe { CreateEventA(ptr::null(), 0, 0, ptr::null()) };
        ensure!(!event.is_null(), "no event: {}", std::io::Error::last_os_error());
        // It stays open by another handle, which shows nothing: what the director takes away is the first.
        let mut kept: HANDLE = ptr::null_mut();
        // CAST: -1 is this process.
        let here = ptr::without_provenance_mut(usize::MAX);
        // SAFETY: this process's own handles, and a place for the result.
        let done = unsafe { DuplicateHandle(here, event, here, &raw mut kept, 0, 0, DUPLICATE_SAME_ACCESS) };
        ensure!(done != 0, "a second handle: {}", std::io::Error::last_os_error());
        talk.say(&(event.expose_provenance() as u64).to_string())?;
        talk.hear()?;
        // SAFETY: a handle of an event, kept open.
        let set = unsafe { WaitForSingleObject(kept, 0) } == WAIT_OBJECT_0;
        // SAFETY: any handle value may be passed; the director has taken this one away.
        let open = unsafe { SetEvent(event) } != 0;
        talk.say(&format!("[{set}, {open}]"))?;
    } else {
        let event = talk.hear()?.parse::<usize>().context("a handle")?;
        // SAFETY: any handle value may be passed; one that is no event is refused.
        let set = unsafe { SetEvent(ptr::with_exposed_provenance_mut(event)) };
        ensure!(set != 0, "the handle that came is no event: {}", std::io::Error::last_os_error());
        talk.say("null")?;
    }
    talk.hear()?;
    Ok(())
}

/// Plays a rehearsal with two processes.
///
/// # Errors
/// What of processes, lines and handles does not work.
pub fn rehearsal(mut a: Actor, mut b: Actor) -> Result<()> {
    let event: u64 = a.told()?;
    let received = b.receive(&a, event)?;
    b.tell(&received)?;
    b.done()?;
    let (set, open): (bool, bool) = a.asked()?;
    ensure!(set, "B has set another event");
    ensure!(!open, "A's handle is still open");
    ensure!(b.receive(&a, NOBODYS).is_err(), "a handle that is not open was handed over");
    a.ends()?;
    b.ends()
}
