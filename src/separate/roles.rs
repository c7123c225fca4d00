//! What client processes do. A role speaks with the case that plays it by lines: over its standard output, and back
//! over its standard input.

mod attack;

use super::wire::Kind;
use crate::client::{Adapter, Allocation, Device, Fence, Inside, Queue, Refused};
use anyhow::{Context, Result, bail, ensure};
pub use attack::{keep, refuses};
use portable_cases::demo::parts::{Talk, part};
use std::ptr;
use std::time::{Duration, Instant};
use umd_core::ffi::FpUmdTable;
use umd_core::ffi::types::FP_KIND_SYSTEM;
use wddm_abi::NTSTATUS;

/// Longer than anything takes that comes.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));
/// Bytes of a queue's ring.
const RING: u64 = 64 << 10;

/// The process that plays a role.
pub struct Here {
    table: FpUmdTable,
    inside: Box<dyn Fn() -> Box<dyn Inside>>,
    clock: Box<dyn Fn() -> u64>,
}

impl Here {
    /// The process with this user-mode driver, and the performance counter.
    pub fn new(
        table: FpUmdTable,
        inside: impl Fn() -> Box<dyn Inside> + 'static,
        clock: impl Fn() -> u64 + 'static,
    ) -> Self {
        Self { table, inside: Box::new(inside), clock: Box::new(clock) }
    }

    /// Opens the first adapter.
    ///
    /// # Errors
    /// Those of `fp_adapter_open`.
    pub fn open(&self) -> Result<Adapter, Refused> {
        Adapter::open(self.table, (self.inside)(), None, 0, 0)
    }
}

/// What a part of the demo talks by.
struct Lines<'a>(&'a Here);

impl Talk for Lines<'_> {
    fn say(&self, line: &str) -> Result<()> {
        say(line);
        Ok(())
    }

    fn hear(&self) -> Result<String> {
        listen()
    }

    fn clock(&self) -> u64 {
        (self.0.clock)()
    }
}

/// Says a line.
fn say(line: &str) {
    println!("{line}");
}

/// Waits for the case's next line.
fn listen() -> Result<String> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

/// Waits until the case says this line.
fn hear(wanted: &str) -> Result<()> {
    let line = listen()?;
    ensure!(line == wanted, "the case says {line:?}, not {wanted:?}");
    Ok(())
}

/// Calls a thunk without the user-mode driver.
fn thunk<T>(name: &str, record: &mut T) -> NTSTATUS {
    let status = super::client::ask(Kind::Thunk, &[ptr::from_mut(record).expose_provenance() as u64], name);
    // CAST: the low half is the status.
    NTSTATUS((status as u32).cast_signed())
}

/// Waits until the queue is done, by looking alone.
fn look_until(queue: &Queue, value: u64) -> Result<()> {
    let end = Instant::now() + PATIENCE.context("a limit")?;
    while queue.progress()?.0 < value {
        ensure!(Instant::now() < end, "progress stays {:?}", queue.progress()?);
        std::thread::yield_now();
    }
    Ok(())
}

/// What comes before the agent's start.
pub fn begin(role: &str) {
    attack::begin(role);
    if role == "older" {
        super::stubs::be_older();
    }
}

/// Plays a role.
///
/// # Errors
/// When there is none of this name, or it fails.
pub fn play(role: &str, here: &Here) -> Result<()> {
    match role {
        "submit" => submit(here),
        "busy" => busy(here),
        "hang" => hang(here),
        "churn" => churn(here),
        "leave" => leave(here),
        "late" => late(here),
        "share" => share(here),
        "trips" => trips(here),
        "older" => older(here),
        "outlive" => outlive(here),
        "demo-a" => part("A", &Lines(here), &|| here.open()),
        "demo-b" => part("B", &Lines(here), &|| here.open()),
        "foreign" => attack::foreign(),
        "pages" => attack::pages(here),
        "forge" => attack::forge(),
        "behind" => attack::leave_behind(here),
        "stuck" => stuck(),
        "refuses" => attack::refuse(here),
        "spins" => attack::spin(here),
        "crowd" => attack::crowd(here),
        _ => bail!("no role is called {role}"),
    }
}

/// Submits a list through a doorbell, and a hundred more when the case says so, each by stores alone.
fn submit(here: &Here) -> Result<()> {
    let adapter = here.open()?;
    let device = adapter.device()?;
    let queue = device.queue(0, RING, 0, 0)?;
    let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
    let at = memory.gpu_va()?;
    let progress = queue.run(|list| list.store(at, 1))?;
    queue.wait(progress, PATIENCE)?;
    say("connected");
    hear("go")?;
    let mut last = 0;
    for value in 2..=101 {
        last = queue.run(|list| list.store(at, value))?;
    }
    look_until(&queue, last)?;
    let seen = memory.read_u64(0)?;
    let rings = queue.counters()?.rings;
    say(&format!("memory {seen}, rings {rings}"));
    hear("end")
}

/// Keeps both engines busy until it is killed.
fn busy(here: &Here) -> Result<()> {
    const BYTES: u64 = 1 << 20;
    let adapter = here.open()?;
    let device = adapter.device()?;
    let queues = [device.queue(0, RING, 0, 0)?, device.queue(1, RING, 0, 0)?];
    let (from, to) = (device.allocate(FP_KIND_SYSTEM, BYTES, 0)?, device.allocate(FP_KIND_SYSTEM, BYTES, 0)?);
    let (from, to) = (from.gpu_va().map(|at| (from, at))?, to.gpu_va().map(|at| (to, at))?);
    for round in 0_u64.. {
        for queue in &queues {
            queue.run(|list| list.copy(from.1, to.1, BYTES))?;
        }
        if round == 3 {
            say("busy");
        }
    }
    Ok(())
}

/// Hangs an engine, and waits until it is killed.
fn hang(here: &Here) -> Result<()> {
    let adapter = here.open()?;
    let device = adapter.device()?;
    let queue = device.queue(0, RING, 0, 0)?;
    let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
    let mark = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
    let (at, begun) = (memory.gpu_va()?, mark.gpu_va()?);
    let mut jump = gpu_wire::packet::Indirect { address: at, length: 0 };
    jump.length = jump.to_packet().as_bytes().len() as u64;
    memory.write(0, jump.to_packet().as_bytes())?;
    queue.run(|list| {
        list.store(begun, 1)?;
        list.indirect(at, jump.length)
    })?;
    let end = Instant::now() + PATIENCE.context("a limit")?;
    while mark.read_u64(0)? == 0 {
        ensure!(Instant::now() < end, "the work does not begin");
        std::thread::yield_now();
    }
    say("hung");
    hear("never")
}

/// One of everything, in the order in which it is let go.
struct Client {
    memory: Allocation,
    _fence: Fence,
    queue: Queue,
    _device: Device,
    _adapter: Adapter,
}

/// One of everything, behind a job that has stored `value` and signaled the fence.
fn worked(here: &Here, value: u64) -> Result<Client> {
    let adapter = here.open()?;
    let device = adapter.device()?;
    let queue = device.queue(0, RING, 0, 0)?;
    let fence = device.fence(0, 0)?;
    let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
    let at = memory.gpu_va()?;
    let progress = queue.run(|list| {
        list.store(at, value)?;
        list.signal(&fence, 1)
    })?;
    queue.wait(progress, PATIENCE)?;
    ensure!(memory.read_u64(0)? == value, "a result is wrong");
    Ok(Client { memory, _fence: fence, queue, _device: device, _adapter: adapter })
}

/// Makes and destroys everything, again and again, until it is killed.
fn churn(here: &Here) -> Result<()> {
    loop {
        drop(worked(here, 7)?);
        say("round");
    }
}

/// Makes everything, and destroys nothing.
fn leave(here: &Here) -> Result<()> {
    let adapter = here.open()?;
    let device = adapter.device()?;
    for node in [0, 1] {
        let queue = device.queue(node, RING, 0, 0)?;
        let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
        let at = memory.gpu_va()?;
        queue.run(|list| list.store(at, 1))?;
        std::mem::forget((queue, memory, device.fence(0, 0)?));
    }
    std::mem::forget((device, adapter));
    say("left");
    hear("end")
}

/// Exits, or is killed, while a thread waits for an event that nobody sets.
fn stuck() -> Result<()> {
    let event = super::client::ask(Kind::CreateEvent, &[0, 0], "");
    ensure!(event != 0, "no event");
    std::thread::spawn(move || super::client::ask(Kind::WaitEvent, &[event, u32::MAX.into()], ""));
    // Until the machine's thread waits.
    std::thread::park_timeout(Duration::from_millis(50));
    say("waits");
    hear("end")
}

/// Exits with much work under way, at whose end a fence of the case's is signalled.
fn late(here: &Here) -> Result<()> {
    const BYTES: u64 = 1 << 20;
    say("ready");
    let handle = listen()?.parse()?;
    let adapter = here.open()?;
    let device = adapter.device()?;
    let queue = device.queue(0, RING, 0, 0)?;
    let fence = device.open_fence(handle, false)?;
    let (from, to) = (device.allocate(FP_KIND_SYSTEM, BYTES, 0)?, device.allocate(FP_KIND_SYSTEM, BYTES, 0)?);
    let (source, destination) = (from.gpu_va()?, to.gpu_va()?);
    queue.run(|list| list.nop(16))?;
    queue.wait(0, PATIENCE)?;
    for _ in 0..400 {
        queue.run(|list| list.copy(source, destination, BYTES))?;
    }
    queue.run(|list| list.signal(&fence, 1))?;
    ensure!(fence.value()? == 0, "the work is done already");
    std::mem::forget((from, to, fence, queue, device, adapter));
    Ok(())
}

/// A driver that knows kernel-mode submission alone, whatever the application asks for: it stores and signals, in turns
/// with the case.
fn older(here: &Here) -> Result<()> {
    const ROUNDS: u64 = 50;
    let adapter = here.open()?;
    let device = adapter.device()?;
    let queue = device.queue(0, RING, 0, 0)?;
    let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
    let at = memory.gpu_va()?;
    say("ready");
    let fence = device.open_fence(listen()?.parse()?, false)?;
    for round in 1..=ROUNDS {
        queue.run(|list| {
            list.wait(&fence, 2 * round - 1)?;
            list.store(at, round)?;
            list.signal(&fence, 2 * round)
        })?;
    }
    queue.wait(0, PATIENCE)?;
    say(&format!("memory {}, mode {}", memory.read_u64(0)?, queue.info()?.mode));
    hear("end")
}

/// Uses an adapter that goes, and says what it hears of that. Where the case says so, it uses the one that is there
/// then.
fn outlive(here: &Here) -> Result<()> {
    let adapter = here.open()?;
    let device = adapter.device()?;
    let (queue, gate) = (device.queue(0, RING, 0, 0)?, device.fence(0, 0)?);
    let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
    let at = memory.gpu_va()?;
    let done = queue.run(|list| list.store(at, 1))?;
    queue.wait(done, PATIENCE)?;
    // Work that waits for what does not come.
    let stuck = queue.run(|list| list.wait(&gate, 1))?;
    say("waits");
    let waited = queue.wait(stuck, PATIENCE).err();
    say(if waited.is_some() { "refused" } else { "ended" });
    hear("gone")?;
    ensure!(queue.run(|list| list.store(at, 2)).is_err(), "work was taken on an adapter that is gone");
    ensure!(device.queue(0, RING, 0, 0).is_err(), "a queue was made on an adapter that is gone");
    ensure!(device.allocate(FP_KIND_SYSTEM, 4096, 0).is_err(), "memory was had on an adapter that is gone");
    say("knows");
    if listen()? == "again" {
        let adapter = here.open()?;
        let device = adapter.device()?;
        let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
        let (queue, at) = (device.queue(0, RING, 0, 0)?, memory.gpu_va()?);
        let done = queue.run(|list| list.store(at, 3))?;
        queue.wait(done, PATIENCE)?;
        say(&format!("memory {}", memory.read_u64(0)?));
        hear("end")?;
    }
    Ok(())
}

/// Times submissions, each until it is seen to be done: as many means of 32 in a row as the case says, until that is 0.
fn trips(here: &Here) -> Result<()> {
    let mut played = Ok(());
    // Entered once, not in each call: as in a real process.
    (here.inside)().inside(&mut || played = trips_inside(here));
    played
}

/// The thread is inside already.
struct Stays;

impl Inside for Stays {
    fn inside(&self, f: &mut dyn FnMut()) {
        f();
    }
}

fn trips_inside(here: &Here) -> Result<()> {
    const BATCH: u32 = 32;
    let adapter = Adapter::open(here.table, Box::new(Stays), None, 0, 0)?;
    let device = adapter.device()?;
    let queue = device.queue(0, RING, 0, 0)?;
    let mut list = queue.list()?;
    list.nop(16)?;
    let mut batch = || -> Result<f64> {
        let begun = Instant::now();
        for _ in 0..BATCH {
            let value = queue.submit(&mut list)?;
            let mut looks = 0_u32;
            while queue.progress()?.0 < value {
                looks += 1;
                ensure!(looks != u32::MAX, "the queue does not go on");
            }
        }
        Ok(begun.elapsed().as_nanos() as f64 / f64::from(BATCH))
    };
    batch()?;
    say("connected");
    loop {
        let count: usize = listen()?.parse()?;
        if count == 0 {
            return Ok(());
        }
        batch()?;
        let means = (0..count).map(|_| batch()).collect::<Result<Vec<_>>>()?;
        say(&means.iter().map(f64::to_string).collect::<Vec<_>>().join(" "));
    }
}

/// Submits fifty times, each when the one before is done, while another process takes the doorbell away.
fn share(here: &Here) -> Result<()> {
    let adapter = here.open()?;
    let device = adapter.device()?;
    let queue = device.queue(0, RING, 0, 0)?;
    let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
    let at = memory.gpu_va()?;
    for value in 1..=50 {
        let progress = queue.run(|list| list.store(at, value))?;
        look_until(&queue, progress)?;
        ensure!(memory.read_u64(0)? == value, "the result of {value} is {}", memory.read_u64(0)?);
        if value == 1 {
            say("sharing");
        }
    }
    say("shared");
    hear("end")
}
