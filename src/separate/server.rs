//! A client process as the machine has it: its start, its connections, its end.

use super::agent::{Host, SocketAgent};
use super::calls::answer;
use super::wire::{Kind, Message};
use anyhow::{Context, Result, bail, ensure};
use dxgkrnl_model::process::{End, Process};
use nt_model::Kernel;
use nt_model::user::space::{Separate as Space, Window};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};
use rustix::process::{DumpableBehavior, Pid, PidfdFlags, pidfd_open, set_dumpable_behavior};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// A client has started, or said its next line, after so long.
const PATIENCE: Duration = Duration::from_secs(30);
/// Addresses that are reserved for a client's mappings.
const WINDOW: usize = 16 << 30;
/// Windows that are proposed to a client.
const PROPOSALS: usize = 8;
/// Connections of a client at a time: each is a thread of the machine and two of its descriptors.
const MOST_CONNECTIONS: usize = 256;
/// The user and group of clients where this process is root's: nobody's.
const NOBODY: u32 = 65534;

/// What the threads of the machine share of a client.
struct Shared {
    kernel: Kernel,
    process: Arc<Process>,
    host: Arc<Host>,
    pid: i32,
    /// It said that it would end by itself.
    said_goodbye: AtomicBool,
    /// It runs no more.
    is_gone: AtomicBool,
    /// Connections of others than the client's.
    refused: AtomicU64,
    connections: Mutex<Vec<Connection>>,
}

/// A connection that a thread of the machine serves.
struct Connection {
    /// The same socket once more: a process that the client left behind may hold the other end.
    socket: OwnedFd,
    served: JoinHandle<()>,
}

/// A client process. Dropping it ends the process as SIGKILL does, if it still runs.
pub struct Separate {
    shared: Arc<Shared>,
    child: Child,
    input: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
    watch: Option<JoinHandle<()>>,
}

/// Where the client program is: this program, or the one beside a test.
fn program() -> Result<PathBuf> {
    let this = std::env::current_exe().context("this program's path")?;
    if this.file_stem().is_some_and(|name| name == "fencepost") {
        return Ok(this);
    }
    let folder = this.parent().and_then(|folder| folder.parent()).context("this program's folder")?;
    let beside = folder.join("fencepost");
    ensure!(beside.is_file(), "{} has not been built", beside.display());
    Ok(beside)
}

/// No other process looks into this one, and a client gets no further than what it was handed.
fn close_up() -> Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).context("this process stays dumpable")
}

/// Starts the client program, to connect to `name`.
fn start(name: &str, role: &str) -> Result<Child> {
    let file = std::fs::File::open(program()?).context("the client program")?;
    // By descriptor: the other user need not reach the folder. The child closes it when the program runs.
    let mut command = Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
    command.args(["client", name, role]).stdin(Stdio::piped()).stdout(Stdio::piped()).current_dir("/");
    if rustix::process::getuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.spawn().context("the client does not start")
}

fn listener() -> Result<(OwnedFd, String)> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let name = format!("fencepost-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    listen(&socket, 16)?;
    Ok((socket, name))
}

impl Separate {
    /// Starts a client that plays `role`. `driver`: the user-mode driver's file; `None`: the one that is linked in.
    ///
    /// # Errors
    /// When the machine was not made for it, or the client does not come up.
    pub fn start(kernel: &Kernel, process: Arc<Process>, role: &str, driver: Option<&[u8]>) -> Result<Self> {
        ensure!(kernel.config().separate_processes, "the machine was booted without separate_processes");
        close_up()?;
        let (listener, name) = listener()?;
        let mut child = start(&name, role)?;
        let opened = Self::open(kernel, process, &mut child, &listener, driver);
        let (shared, lines) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        };
        let input = child.stdin.take();
        let (accepting, watching) = (shared.clone(), shared.clone());
        let accept = std::thread::spawn(move || accepting.accept(&listener));
        let watch = std::thread::spawn(move || {
            watching.watch();
            let _ = accept.join();
        });
        Ok(Self { shared, child, input, lines, watch: Some(watch) })
    }

    fn open(
        kernel: &Kernel,
        process: Arc<Process>,
        child: &mut Child,
        listener: &OwnedFd,
        driver: Option<&[u8]>,
    ) -> Result<(Arc<Shared>, mpsc::Receiver<String>)> {
        let pid = Pid::from_child(child);
        let host = Arc::new(Host::new(pidfd_open(pid, PidfdFlags::empty()).context("pidfd_open")?));
        let (said, lines) = mpsc::channel();
        let output = child.stdout.take().context("the client's output")?;
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The machine may have ceased to listen.
                let _ = said.send(line);
            }
        });
        let shared = Arc::new(Shared {
            kernel: kernel.clone(),
            process,
            host,
            pid: pid.as_raw_nonzero().get(),
            said_goodbye: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            connections: Mutex::default(),
        });
        // The agent is first; nothing of the client can be mapped before it is there.
        let socket = loop {
            ensure!(!shared.host.ends(Duration::ZERO), "the client ended before it came up");
            if let Some(socket) = shared.next(listener) {
                ensure!(shared.hello(&socket) == Some(Kind::HelloAgent), "the client does not begin with its agent");
                break socket;
            }
        };
        let window = shared.greet(&socket, driver)?;
        let thread = Message::receive(&socket).context("the client's agent does not come up")?.words[1];
        set_socket_timeout(&socket, Timeout::Recv, None)?;
        let account = format!("/proc/{}/task/{thread}", shared.pid).into();
        let agent = SocketAgent::new(socket, shared.host.clone(), account);
        let space = Space { pid: shared.pid, window, agent: Box::new(agent), used: AtomicUsize::new(0) };
        ensure!(shared.process.nt().set_separate(space), "the process has an address space already");
        Ok((shared, lines))
    }

    /// Waits for the client's next line.
    ///
    /// # Errors
    /// When it says none, or ends.
    pub fn hear(&self) -> Result<String> {
        self.hear_for(PATIENCE)
    }

    /// As [`hear`](Self::hear), for so long.
    ///
    /// # Errors
    /// As there.
    pub fn hear_for(&self, patience: Duration) -> Result<String> {
        // Why the channel is empty is told in our words alone.
        self.lines.recv_timeout(patience).ok().with_context(|| match self.shared.host.ends(Duration::from_secs(1)) {
            true if self.shared.host.was_killed() => {
                "the machine has ended the client, which did not map what it was told"
            }
            true => "the client has ended",
            false => "the client says nothing",
        })
    }

    /// The client's next line must be this one.
    ///
    /// # Errors
    /// When it is not.
    pub fn expect(&self, line: &str) -> Result<()> {
        let heard = self.hear()?;
        ensure!(heard == line, "the client says {heard:?}, not {line:?}");
        Ok(())
    }

    /// Says a line to the client.
    ///
    /// # Errors
    /// When it is gone.
    pub fn say(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("the client's input is closed")?;
        writeln!(input, "{line}").context("the client does not listen")
    }

    /// Messages between machine and client so far.
    pub fn messages(&self) -> u64 {
        self.shared.host.messages.load(Ordering::Relaxed)
    }

    /// Connections that were refused, since they were not the client's.
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }

    /// The client's process id, for the host.
    pub fn pid(&self) -> i32 {
        self.shared.pid
    }

    /// The process, as the graphics kernel has it.
    pub fn process(&self) -> &Arc<Process> {
        &self.shared.process
    }

    /// Stops it by SIGSTOP, its agent included.
    pub fn stop(&self) {
        self.shared.host.stop();
    }

    /// Ends it by SIGKILL, and waits until the graphics kernel has nothing of it any more.
    pub fn kill(mut self) {
        self.shared.host.kill();
        self.finish();
    }

    /// Waits until it has ended by itself, and until the graphics kernel has nothing of it any more.
    ///
    /// # Errors
    /// When it does not end.
    pub fn exit(mut self) -> Result<ExitStatus> {
        drop(self.input.take());
        ensure!(self.shared.host.ends(PATIENCE), "the client does not end");
        self.finish();
        self.child.wait().context("the client's status")
    }

    /// The end of everything that the machine has of it, once it runs no more.
    fn finish(&mut self) {
        if let Some(watch) = self.watch.take() {
            let _ = watch.join();
        }
        // Not before: its id names it as long as its memory may be looked at.
        let _ = self.child.wait();
    }
}

impl Drop for Separate {
    fn drop(&mut self) {
        if self.watch.is_some() {
            self.shared.host.kill();
            self.finish();
        }
    }
}

impl Shared {
    /// The next connection of the client's. `None`: it is another's, or there is none for a while.
    fn next(&self, listener: &OwnedFd) -> Option<OwnedFd> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let while_ = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        let came = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&while_));
        if came.ok() != Some(1) {
            return None;
        }
        let socket = accept_with(listener, SocketFlags::CLOEXEC).ok()?;
        let peer = rustix::net::sockopt::socket_peercred(&socket).ok()?;
        if peer.pid.as_raw_nonzero().get() != self.pid {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(socket)
    }

    /// What a connection is for. `None`: it does not say so in time.
    fn hello(&self, socket: &OwnedFd) -> Option<Kind> {
        set_socket_timeout(socket, Timeout::Recv, Some(PATIENCE)).ok()?;
        let hello = Message::receive(socket).ok()?;
        self.host.messages.fetch_add(1, Ordering::Relaxed);
        Some(hello.kind)
    }

    /// Agrees with the client on its window.
    fn greet(&self, socket: &OwnedFd, driver: Option<&[u8]>) -> Result<Window> {
        let mut proposed = Vec::new();
        for _ in 0..PROPOSALS {
            let window = Window::reserve(WINDOW).context("addresses")?;
            let booted = now().saturating_sub(self.kernel.now() * 100);
            let numbers = [window.start() as u64, window.bytes() as u64, booted, driver.is_some().into()];
            let mut greeting = Message::new(Kind::Greeting, &numbers);
            if let Some(bytes) = driver {
                let mut file = tempfile::tempfile().context("a file for the user-mode driver")?;
                file.write_all(bytes)?;
                greeting = greeting.with_files(vec![file.into()]);
            }
            greeting.send(socket).context("the greeting")?;
            let answer = Message::receive(socket).context("the client's answer to the greeting")?;
            if answer.words[0] == 0 {
                return Ok(window);
            }
            // Kept, or the next one would be the same.
            proposed.push(window);
        }
        bail!("the client has no room where this process has");
    }

    /// Takes connections of the client's threads until it runs no more.
    fn accept(self: &Arc<Self>, listener: &OwnedFd) {
        while !self.is_gone.load(Ordering::Acquire) {
            if let Some(socket) = self.next(listener) {
                let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
                connections.retain(|connection| !connection.served.is_finished());
                let Some(twin) = socket.try_clone().ok().filter(|_| connections.len() < MOST_CONNECTIONS) else {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    continue;
                };
                let this = self.clone();
                // On a thread of its own: one that says nothing keeps no other waiting.
                let served = std::thread::spawn(move || {
                    let is_thread = this.hello(&socket) == Some(Kind::HelloThread);
                    if is_thread && set_socket_timeout(&socket, Timeout::Recv, None).is_ok() {
                        this.serve(&socket);
                    }
                });
                connections.push(Connection { socket: twin, served });
            }
        }
    }

    /// A thread of the client.
    fn serve(&self, socket: &OwnedFd) {
        let _inside = self.process.enter();
        while let Ok(message) = Message::receive(socket) {
            self.host.messages.fetch_add(1, Ordering::Relaxed);
            let result = match message.kind {
                Kind::Goodbye => {
                    self.said_goodbye.store(true, Ordering::Release);
                    Some(0)
                }
                _ => answer(&self.kernel, &message, &self.is_gone),
            };
            let Some(result) = result else { break };
            if Message::new(Kind::Done, &[result]).send(socket).is_err() {
                break;
            }
        }
    }

    /// Waits until the client runs no more, and ends its process in the graphics kernel.
    fn watch(&self) {
        while !self.host.ends(Duration::from_secs(3600)) {}
        self.is_gone.store(true, Ordering::Release);
        // One that says goodbye and is ended by a signal all the same has not ended by itself.
        let is_normal = self.said_goodbye.load(Ordering::Acquire) && !self.host.ended_by_signal();
        let how = if is_normal { End::Normal } else { End::Terminated };
        self.process.finish(how);
        let served = std::mem::take(&mut *self.connections.lock().unwrap_or_else(PoisonError::into_inner));
        for Connection { socket, served } in served {
            let _ = rustix::net::shutdown(&socket, Shutdown::Both);
            let _ = served.join();
        }
    }
}

/// The host's monotonic clock, in nanoseconds.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // CAST: time since the host was booted.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
