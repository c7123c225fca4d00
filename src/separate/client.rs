//! The client's side: its agent, its connections, its start.
#![expect(unsafe_code, reason = "addresses of exports become functions")]

use super::agent::rights;
use super::roles::{self, Here};
use super::server::now;
use super::stubs::{self, Stubs};
use super::wire::{Kind, Message};
use crate::client::Inside;
use anyhow::{Context, Result, ensure};
use nt_model::memory::Handed;
use nt_model::sched::patient::PatientScheduler;
use nt_model::user::space::Window;
use nt_model::{Kernel, KernelConfig, LoadOptions, Process};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::cell::OnceCell;
use std::io::{Read, Seek};
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use umd_core::ffi::FpUmdTable;

/// The machine's socket.
static MACHINE: OnceLock<String> = OnceLock::new();

thread_local! {
    /// The calling thread's connection.
    static CONNECTION: OnceCell<OwnedFd> = const { OnceCell::new() };
}

/// Opens a connection to the machine whose socket has this name.
///
/// # Errors
/// What the host reports.
pub fn connect_to(name: &str, hello: Kind) -> Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Message::new(hello, &[]).send(&socket)?;
    Ok(socket)
}

/// The name of the machine's socket.
pub fn machine() -> &'static str {
    MACHINE.get().map_or("", String::as_str)
}

/// Asks the machine for something, and waits for its answer. Without the machine the process is at its end.
pub fn ask(kind: Kind, words: &[u64], text: &str) -> u64 {
    let answer = CONNECTION.with(|connection| {
        if connection.get().is_none() {
            let _ = connection.set(connect_to(machine(), Kind::HelloThread)?);
        }
        let socket = connection.get().context("a connection")?;
        Message::new(kind, words).with_text(text.as_bytes()).send(socket)?;
        anyhow::Ok(Message::receive(socket)?.words[0])
    });
    answer.unwrap_or_else(|_| std::process::exit(3))
}

/// Maps what the machine says, until it is gone.
fn serve(socket: &OwnedFd, window: &Window) {
    while let Ok(message) = Message::receive(socket) {
        let done = if roles::refuses() { Err(std::io::ErrorKind::Other.into()) } else { carry_out(message, window) };
        if Message::new(Kind::Done, &[done.is_err().into()]).send(socket).is_err() {
            break;
        }
    }
}

fn carry_out(message: Message, window: &Window) -> std::io::Result<()> {
    let [at, second, third, ..] = message.words;
    // CAST: addresses and sizes of this machine.
    let (mut at, bytes) = (at as usize, second as usize);
    match message.kind {
        Kind::Show => {
            for (file, numbers) in message.files.into_iter().zip(message.text.as_chunks::<16>().0) {
                let number =
                    |half: usize| numbers[half * 8..].first_chunk().map_or(0, |part| u64::from_le_bytes(*part));
                // CAST: page counts.
                let handed = Handed { file, first: number(0) as usize, pages: number(1) as usize };
                window.show(at, &handed, rights(second))?;
                let pages = handed.pages;
                roles::keep(at, handed, rights(second));
                at += pages * nt_model::PAGE_SIZE;
            }
            Ok(())
        }
        Kind::Clear => window.clear(at, bytes),
        Kind::Protect => window.protect(at, bytes, rights(third)),
        _ => Err(std::io::ErrorKind::InvalidData.into()),
    }
}

/// Agrees with the machine on a window. Returns it, the machine's time of boot, and the user-mode driver's file.
fn meet(socket: &OwnedFd) -> Result<(Window, u64, Option<Vec<u8>>)> {
    loop {
        let greeting = Message::receive(socket).context("the machine does not greet")?;
        let [start, bytes, booted, ..] = greeting.words;
        // CAST: addresses and sizes of this machine.
        let window = Window::reserve_at(start as usize, bytes as usize);
        Message::new(Kind::Done, &[window.is_err().into()]).send(socket)?;
        let Ok(window) = window else { continue };
        let file = greeting.files.into_iter().next();
        let read = |file: OwnedFd| {
            let (mut file, mut bytes) = (std::fs::File::from(file), Vec::new());
            file.rewind()?;
            file.read_to_end(&mut bytes)?;
            anyhow::Ok(bytes)
        };
        return Ok((window, booted, file.map(read).transpose()?));
    }
}

/// This process, to its own user-mode driver.
struct Inner {
    kernel: Kernel,
    process: Arc<Process>,
}

impl Inside for Inner {
    fn inside(&self, f: &mut dyn FnMut()) {
        let _entered = self.kernel.enter();
        let _inside = self.kernel.enter_process(&self.process);
        f();
    }
}

/// The user-mode driver from its file.
fn load(kernel: &Kernel, process: &Process, file: &[u8]) -> Result<FpUmdTable> {
    let _entered = kernel.enter();
    let _inside = kernel.enter_process(process);
    stubs::register(kernel);
    let loaded = kernel.load_dll_bytes(process, "fencepost_umd.dll", file, &LoadOptions::default());
    let image = loaded.context("the user-mode driver does not load")?;
    let find = |name: &'static str| std::ptr::with_exposed_provenance(image.export(name).unwrap_or(0));
    // SAFETY: the exports of this image, which stays loaded as long as this process; the machine that has sent it is of
    // the same program.
    let table = unsafe { FpUmdTable::from_exports(find) };
    table.map_err(|name| anyhow::anyhow!("the user-mode driver does not export {name}"))
}

/// Plays a role as a client of the machine whose socket has this name. Returns when the role has been played.
///
/// # Errors
/// When the machine does not answer, or the role fails.
pub fn main(machine: &str, role: &str) -> Result<()> {
    ensure!(MACHINE.set(machine.to_owned()).is_ok(), "a process is one client");
    // The machine reads and writes the memory of this process number: no program of more rights takes its place.
    rustix::thread::set_no_new_privs(true).context("no_new_privs")?;
    roles::begin(role);
    let agent = connect_to(machine, Kind::HelloAgent)?;
    let (window, booted, file) = meet(&agent)?;
    std::thread::spawn(move || {
        // The machine looks at this thread when it does not answer.
        // CAST: a thread's number is positive.
        let number = rustix::thread::gettid().as_raw_nonzero().get() as u64;
        if Message::new(Kind::Done, &[0, number]).send(&agent).is_ok() {
            serve(&agent, &window);
        }
    });
    let age = Duration::from_nanos(now().saturating_sub(booted));
    // As the machine's: where the host stands still, it does for both.
    let scheduler = Arc::new(PatientScheduler::aged(age));
    let kernel = Kernel::new(KernelConfig { scheduler: Some(scheduler), ..KernelConfig::collecting() });
    let process = kernel.create_process(role);
    let table = match file {
        Some(file) => load(&kernel, &process, &file)?,
        None => *umd_core::c_abi_table!(Stubs),
    };
    let clock = kernel.clone();
    let inside = move || -> Box<dyn Inside> { Box::new(Inner { kernel: kernel.clone(), process: process.clone() }) };
    let here = Here::new(table, inside, move || clock.query_performance_counter());
    roles::play(role, &here)?;
    ask(Kind::Goodbye, &[], "");
    Ok(())
}
