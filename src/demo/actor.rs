//! A process of the demo, as the director has it: a Linux process of its own, or one on a thread of the machine's.

use crate::separate::Separate;
use crate::world::World;
use anyhow::{Context, Result, anyhow, ensure};
use dxgkrnl_model::process::Process;
use nt_model::Kernel;
use portable_cases::demo::parts::{Talk, part};
use portable_cases::demo::play;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a step may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// A part on a thread.
struct Thread {
    process: Arc<Process>,
    say: mpsc::Sender<String>,
    hear: mpsc::Receiver<String>,
    part: JoinHandle<Result<()>>,
}

enum Kind {
    Separate(Separate),
    Thread(Option<Thread>),
}

/// A process of the demo.
pub struct Actor {
    kind: Kind,
    name: &'static str,
}

/// What a part on a thread talks by.
struct Channel {
    say: mpsc::Sender<String>,
    hear: mpsc::Receiver<String>,
    kernel: Kernel,
}

impl Talk for Channel {
    fn say(&self, line: &str) -> Result<()> {
        self.say.send(line.to_owned()).context("the director is gone")
    }

    fn hear(&self) -> Result<String> {
        self.hear.recv_timeout(PATIENCE).context("the director says nothing")
    }

    fn clock(&self) -> u64 {
        self.kernel.query_performance_counter()
    }
}

impl Actor {
    /// Starts process A or B.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(world: &World, name: &'static str, separate: bool) -> Result<Self> {
        if separate {
            let role = if name == "A" { "demo-a" } else { "demo-b" };
            return Ok(Self { kind: Kind::Separate(world.separate(role)?), name });
        }
        let user = world.process(name)?;
        let process = user.process.clone();
        let (say, theirs) = mpsc::channel();
        let (ours, hear) = mpsc::channel();
        let channel = Channel { say: ours, hear: theirs, kernel: world.os.kernel().clone() };
        let part = std::thread::spawn(move || part(name, &channel, &|| user.open()));
        Ok(Self { kind: Kind::Thread(Some(Thread { process, say, hear, part })), name })
    }

    fn thread(&self) -> Option<&Thread> {
        if let Kind::Thread(thread) = &self.kind { thread.as_ref() } else { None }
    }

    fn process(&self) -> Result<&Arc<Process>> {
        match &self.kind {
            Kind::Separate(client) => Ok(client.process()),
            Kind::Thread(thread) => Ok(&thread.as_ref().context("it has ended")?.process),
        }
    }

    /// Its identifier.
    pub fn id(&self) -> u64 {
        self.process().map_or(0, |process| process.nt().id())
    }

    /// Messages between it and the machine so far; none where it is a thread.
    pub fn messages(&self) -> u64 {
        if let Kind::Separate(client) = &self.kind { client.messages() } else { 0 }
    }

    /// Why it says nothing more.
    fn failure(&mut self) -> anyhow::Error {
        let ended = |thread: &mut Option<Thread>| thread.take_if(|thread| thread.part.is_finished());
        let thread = if let Kind::Thread(thread) = &mut self.kind { ended(thread) } else { None };
        match thread.map(|thread| thread.part.join()) {
            Some(Ok(Err(error))) => error.context(format!("process {}", self.name)),
            _ => anyhow!("process {} says nothing more", self.name),
        }
    }

    /// It ends by itself.
    ///
    /// # Errors
    /// When it does not.
    pub fn ends(mut self) -> Result<()> {
        play::Actor::tell(&mut self, &())?;
        match self.kind {
            Kind::Separate(client) => ensure!(client.exit()?.success(), "process {} failed at its end", self.name),
            Kind::Thread(thread) => {
                let joined = thread.context("it has ended")?.part.join();
                joined.map_err(|_| anyhow!("process {} panicked", self.name))??;
            }
        }
        Ok(())
    }
}

impl play::Actor for Actor {
    fn name(&self) -> &'static str {
        self.name
    }

    fn say(&mut self, line: &str) -> Result<()> {
        if let Kind::Separate(client) = &mut self.kind {
            return client.say(line);
        }
        // What it came to is said by who waits for its answer.
        let _ = self.thread().context("it has ended")?.say.send(line.to_owned());
        Ok(())
    }

    fn hear(&mut self) -> Result<String> {
        match &mut self.kind {
            Kind::Separate(client) => client.hear_for(PATIENCE).with_context(|| format!("process {}", self.name)),
            Kind::Thread(thread) => match thread.as_ref().context("it has ended")?.hear.recv_timeout(PATIENCE) {
                Ok(line) => Ok(line),
                Err(_) => Err(self.failure()),
            },
        }
    }

    fn receive(&self, other: &Self, handle: u64) -> Result<u64> {
        let theirs = other.process()?.nt();
        let object = theirs.handle_any(handle).context("the NT handle is not open")?;
        let received = self.process()?.nt().insert_handle(object);
        drop(theirs.close_handle(handle));
        Ok(received)
    }
}
