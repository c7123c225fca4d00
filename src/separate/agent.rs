//! The machine's side of an agent: the thread of a client process that maps what it is told to.

use super::wire::{Kind, MOST_FILES, Message};
use crate::schedstat::Schedstat;
use nt_model::Rights;
use nt_model::memory::Handed;
use nt_model::user::space::{Agent, Gone};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A process whose agent has not answered for so long is ended.
pub const PATIENCE: Duration = Duration::from_millis(200);
/// Parts of that wait.
const PARTS: u32 = 10;
/// It is waited for so long at most. What counts against [`PATIENCE`] is the time that the agent's thread has had for
/// the answer: in which it ran, slept or was stopped. The time in which it was ready to run and the host had no
/// processor for it, since engines have a higher priority, or held it in its kernel, does not count (SECURITY.md).
const MOST: Duration = Duration::from_secs(2);
/// An ended process is gone after so long at most.
const DEATH: Duration = Duration::from_secs(5);

/// A client process by its descriptor.
#[derive(Debug)]
pub struct Host {
    pidfd: OwnedFd,
    /// Messages of the process's connections, either way.
    pub messages: AtomicU64,
    /// The machine has ended it.
    killed: AtomicBool,
}

/// Waits until there is something to read, or the other side is gone. Returns whether it came.
fn comes(fd: impl AsFd, within: Duration) -> bool {
    let mut wanted = [PollFd::new(&fd, PollFlags::IN)];
    let time = Timespec::try_from(within).ok();
    loop {
        match poll(&mut wanted, time.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            came => return came.is_ok_and(|count| count != 0),
        }
    }
}

impl Host {
    /// The process that `pidfd` names.
    pub fn new(pidfd: OwnedFd) -> Self {
        Self { pidfd, messages: AtomicU64::new(0), killed: AtomicBool::new(false) }
    }

    /// Ends it, and waits until it runs no more.
    pub fn kill(&self) {
        self.killed.store(true, Ordering::Release);
        // One that is gone already cannot be ended.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        self.ends(DEATH);
    }

    /// Returns whether the machine has ended it.
    pub fn was_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire)
    }

    /// Returns whether a signal has ended the process, which runs no more. Where its end was asked for elsewhere, Linux
    /// has forgotten how it was: no.
    pub fn ended_by_signal(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::PidFd(self.pidfd.as_fd()), options);
        status.ok().flatten().is_some_and(|status| !status.exited())
    }

    /// Stops it, as SIGSTOP does, and waits until all of its threads have stopped.
    pub fn stop(&self) {
        // One that is gone already cannot be stopped.
        let _ = pidfd_send_signal(&self.pidfd, Signal::STOP);
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let _ = waitid(WaitId::PidFd(self.pidfd.as_fd()), options);
    }

    /// Waits until it runs no more. Returns whether that came.
    pub fn ends(&self, within: Duration) -> bool {
        comes(&self.pidfd, within)
    }
}

/// An agent at the other end of a socket.
#[derive(Debug)]
pub struct SocketAgent {
    /// One question at a time.
    socket: Mutex<OwnedFd>,
    host: Arc<Host>,
    /// The host's account of the agent's thread: its folder below `/proc`.
    thread: PathBuf,
    gone: AtomicBool,
}

impl SocketAgent {
    /// The agent of `host`, behind its greeting. `thread`: the host's account of its thread.
    pub fn new(socket: OwnedFd, host: Arc<Host>, thread: PathBuf) -> Self {
        Self { socket: Mutex::new(socket), host, thread, gone: AtomicBool::new(false) }
    }

    /// Returns whether the agent would run if the host let it, as opposed to one that was stopped, sleeps or is gone:
    /// it is ready to run, or in a wait of the host's kernel that nothing interrupts.
    fn is_runnable(&self) -> bool {
        let text = std::fs::read_to_string(self.thread.join("stat")).unwrap_or_default();
        text.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['R', 'D']))
    }

    /// How long the agent's thread has run, ever. A host that does not say so has none run.
    fn ran(&self) -> Duration {
        Schedstat::of(&self.thread).unwrap_or_default().ran
    }

    /// Waits for the agent's answer. Returns whether one came.
    fn answers(&self, socket: &OwnedFd) -> bool {
        // In parts: where the host stands still, both processes do, and one part alone is over.
        const PART: Duration = Duration::from_nanos(PATIENCE.as_nanos() as u64 / PARTS as u64);
        let begun = Instant::now();
        let (mut had, mut ran) = (Duration::ZERO, self.ran());
        while had < PATIENCE && begun.elapsed() < MOST {
            if comes(socket, PART) {
                return true;
            }
            let now = self.ran();
            had += if self.is_runnable() { now.saturating_sub(ran).min(PART) } else { PART };
            ran = now;
        }
        false
    }

    /// Tells it something, and waits until it is done. A process that does not do it cannot be left to run: it would
    /// see pages that are another one's.
    fn tell(&self, message: &Message) -> Result<(), Gone> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        if self.gone.load(Ordering::Acquire) {
            return Err(Gone);
        }
        self.host.messages.fetch_add(1, Ordering::Relaxed);
        let told = message.send(&*socket).is_ok() && self.answers(&socket);
        let done =
            told && Message::receive(&*socket).is_ok_and(|answer| answer.kind == Kind::Done && answer.words[0] == 0);
        if done {
            return Ok(());
        }
        self.gone.store(true, Ordering::Release);
        self.host.kill();
        Err(Gone)
    }
}

/// The number that rights have in messages.
fn number(rights: Rights) -> u64 {
    match rights {
        Rights::None => 0,
        Rights::Read | Rights::ReadExecute => 1,
        Rights::ReadWrite => 2,
    }
}

/// The rights that have this number.
pub fn rights(number: u64) -> Rights {
    match number {
        1 => Rights::Read,
        2 => Rights::ReadWrite,
        _ => Rights::None,
    }
}

impl Agent for SocketAgent {
    fn end(&self) {
        self.gone.store(true, Ordering::Release);
        self.host.kill();
    }

    fn show(&self, at: usize, pages: Vec<Handed>, rights: Rights) -> Result<(), Gone> {
        let mut at = at;
        let mut pages = pages.into_iter().peekable();
        while pages.peek().is_some() {
            let (mut text, mut files, start) = (Vec::new(), Vec::new(), at);
            for handed in pages.by_ref().take(MOST_FILES) {
                text.extend((handed.first as u64).to_le_bytes());
                text.extend((handed.pages as u64).to_le_bytes());
                files.push(handed.file);
                at += handed.pages * nt_model::PAGE_SIZE;
            }
            let message = Message::new(Kind::Show, &[start as u64, number(rights)]);
            self.tell(&message.with_text(&text).with_files(files))?;
        }
        Ok(())
    }

    fn clear(&self, at: usize, bytes: usize) -> Result<(), Gone> {
        self.tell(&Message::new(Kind::Clear, &[at as u64, bytes as u64]))
    }

    fn protect(&self, at: usize, bytes: usize, rights: Rights) -> Result<(), Gone> {
        self.tell(&Message::new(Kind::Protect, &[at as u64, bytes as u64, number(rights)]))
    }
}
