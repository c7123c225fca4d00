//! A boot with a race in it, and the engines' store buffers.

mod buffers;
mod packets;
mod told;

pub use buffers::install;
use packets::Packets;
use told::Watch;

use anyhow::{Context, Result, bail, ensure};
use dxgkrnl_model::adapter::AdapterConfig;
use dxgkrnl_model::personality::Personality;
use fencepost::client::{Device, Fence, List, Queue};
use fencepost::scenario::Raw;
use fencepost::world::{Form, User, World};
use gpu_wire::GpuVa;
use gpu_wire::packet::Encoded;
use nt_model::registry::RegistryValue;
use nt_model::sched::YieldPoint;
use nt_model::{Event, Machine};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use wddm_abi::{D3DKMT_HANDLE, HANDLE};

/// Virtual time that a waiter may take from the signal on: a hundred of an idle engine's pauses.
const LIMIT: Duration = Duration::from_millis(100);
/// Bytes of a ring.
const RING: u64 = 64 << 10;

/// A boot to be played.
pub struct Race<'a> {
    /// Of the scheduler, and of the choice of rounds.
    pub seed: u64,
    /// How many.
    pub rounds: u64,
    /// Values under the driver's registry key.
    pub settings: &'a [(&'a str, u32)],
    /// The driver, or one with functions in front of its table.
    pub form: Form,
    /// The OS leaves it to the driver to find what was signaled before an update of MonitoredValue.
    pub trusts: bool,
    /// What the rounds play.
    pub of: Of,
}

/// What a round plays.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Waits and signals.
    Waits,
    /// Rings behind pauses in which an engine may let its doorbells go.
    Pauses,
    /// Packets of two processes on a node that is preempted as often as it answers.
    Preemptions,
    /// Submissions one behind the other, between whose stores engines look.
    Submissions,
}

/// What path a boot took.
pub struct Path {
    /// A hash of each round's decisions.
    pub rounds: Vec<u64>,
    /// Yield points and parks in all.
    pub steps: u64,
}

/// A second, relative, in units of 100 ns: engines sleep long before.
const SLEEP: i64 = -10_000_000;

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        // Knuth's multiplier; the high bits are the good ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

impl Race<'_> {
    /// Boots, plays, shuts down.
    ///
    /// # Errors
    /// A lost wake, with its round, or a rule that was broken.
    pub fn play(&self) -> Result<Path> {
        let mut windows = Personality::collecting().seeded(self.seed);
        windows.faults.trusts_updates = self.trusts;
        if self.of == Of::Preemptions {
            (windows.preemption.slice, windows.preemption.seed) = (packets::SLICE, self.seed);
            // CAST: below three.
            windows.preemption.in_flight = [1, 2, 8][(self.seed % 3) as usize];
        }
        let world = World::boot(&self.form, windows)?;
        let path = {
            // Inside from here on: the schedule is the seed's alone.
            let _inside = world.os.kernel().enter();
            let path = self.inside(&world);
            // Until every thread of the driver sleeps: one that went to sleep while this thread is outside would be the
            // last, which the scheduler takes for a deadlock.
            world.os.kernel().delay_execution(SLEEP);
            path
        };
        world.os.shut_down();
        let path = path?;
        if let Some(violation) = world.os.kernel().rules.violations().first() {
            bail!("{violation}");
        }
        if let Some(fault) = world.os.report().user_faults.first() {
            bail!("{fault:?}");
        }
        Ok(path)
    }

    fn inside(&self, world: &World) -> Result<Path> {
        let mut config = AdapterConfig::default();
        config.registry.insert("LocalSegmentSize".into(), RegistryValue::dword(16 << 20));
        for (name, value) in self.settings {
            config.registry.insert((*name).into(), RegistryValue::dword(*value));
        }
        let adapter = world.adapter(config)?;
        let mut client = match self.of {
            Of::Preemptions => Player::Packets(Box::new(Packets::open(world, &adapter)?)),
            _ => Player::Client(Box::new(Client::open(world.process("client")?, adapter.luid())?)),
        };
        let scheduler = world.os.seeded_scheduler().context("a seeded scheduler")?;
        let mut dice = Dice(self.seed);
        let mut ends = vec![scheduler.steps()];
        for round in 0..self.rounds {
            let played = match &mut client {
                Player::Packets(packets) => packets.round(&mut dice),
                Player::Client(client) if self.of == Of::Waits => client.round(&mut dice),
                Player::Client(client) if self.of == Of::Submissions => client.submit(&mut dice),
                Player::Client(client) => client.pause_and_ring(&mut dice),
            };
            played.with_context(|| format!("round {round}"))?;
            ends.push(scheduler.steps());
        }
        if let Player::Packets(packets) = &client {
            packets.was_preempted(self.rounds)?;
        }
        let decisions = scheduler.decisions();
        let mut left = decisions.as_slice();
        let mut rounds = Vec::with_capacity(ends.len());
        for range in ends.windows(2) {
            let [from, to] = range else { continue };
            let before = left.iter().take_while(|decision| decision.step <= *from).count();
            let inside = left[before..].iter().take_while(|decision| decision.step <= *to).count();
            let mut hash = DefaultHasher::new();
            for decision in &left[before..before + inside] {
                (decision.step - from, decision.thread).hash(&mut hash);
            }
            rounds.push(hash.finish());
            left = &left[before + inside..];
        }
        Ok(Path { rounds, steps: scheduler.steps() })
    }
}

/// Who plays the rounds.
enum Player {
    Client(Box<Client>),
    Packets(Box<Packets>),
}

/// A process with two queues that signal and two fences.
struct Client {
    queues: [Queue; 2],
    signaled: Fence,
    other: Fence,
    _device: Device,
    plain: D3DKMT_HANDLE,
    raw: Raw,
    _user: User,
    /// What the fences reached.
    value: u64,
}

/// A wait with an event.
struct Waiting {
    event: Arc<Event>,
    handle: HANDLE,
}

impl Client {
    fn open(user: User, luid: wddm_abi::LUID) -> Result<Self> {
        let raw = Raw::open(&user.process, luid)?;
        let plain = raw.device()?;
        let device = user.open()?.device()?;
        let queues = [device.queue(0, RING, 0, 0)?, device.queue(1, RING, 0, 0)?];
        let (signaled, other) = (device.fence(0, 0)?, device.fence(0, 0)?);
        Ok(Self { queues, signaled, other, _device: device, plain, raw, _user: user, value: 0 })
    }

    fn wait(&self, waits: &[(&Fence, u64)], any: bool) -> Result<Waiting> {
        let (event, handle) = self.raw.event();
        let waits: Vec<_> =
            waits.iter().map(|(fence, value)| Ok((fence.info()?.handle, *value))).collect::<Result<_>>()?;
        self.raw.wait_cpu(self.plain, &waits, any, Some(handle)).context("a wait with an event")?;
        Ok(Waiting { event, handle })
    }

    fn wakes(&self, what: &str, wait: Waiting) -> Result<()> {
        let woken = self.raw.wait_event(&wait.event, LIMIT);
        self.raw.close(wait.handle);
        ensure!(woken, "{what} sleeps on at {}", self.value);
        Ok(())
    }

    /// Signals, with an entry in the log behind it or without: the entry is a barrier of its own.
    fn record(&self, list: &mut List, value: u64, logged: bool) -> fencepost::client::Result<()> {
        if logged {
            return list.signal(&self.signaled, value);
        }
        let at = GpuVa(self.signaled.info()?.gpu_va);
        list.raw(Encoded::fence_signal(at, value).as_bytes())
    }

    fn dies(&self, queue: &Queue) -> Result<()> {
        let fence = self.raw.native_fence(self.plain, 0)?;
        let (_event, handle) = self.raw.event();
        self.raw.wait_cpu(self.plain, &[(fence.handle, 1)], false, Some(handle))?;
        queue.run(|list| list.raw(Encoded::fence_signal(GpuVa(fence.gpu), 1).as_bytes()))?;
        for _ in 0..100_000 {
            if self.raw.load(fence.cpu)? == 1 {
                break;
            }
            Machine::with_current(|machine| machine.map(|machine| machine.yield_point(YieldPoint::Custom(2))));
        }
        ensure!(self.raw.load(fence.cpu)? == 1, "the signal did not come");
        self.raw.destroy_fence(fence.handle)?;
        self.raw.close(handle);
        Ok(())
    }

    /// Rings often enough for the doorbell to be looked at, pauses until about the moment at which it goes, and rings.
    fn pause_and_ring(&mut self, dice: &mut Dice) -> Result<()> {
        // CAST: 0 or 1.
        let number = dice.below(2) as usize;
        let many = 2 + dice.below(11);
        for ring in 0..=many {
            if ring == many {
                let pause = dice.below(32_000);
                // CAST: at most 3.2 ms.
                Machine::with_current(|machine| machine.map(|machine| machine.delay_execution(-(pause as i64))));
            }
            let value = self.value + 1;
            self.queues[number].run(|list| self.record(list, value, false))?;
            let wait = self.wait(&[(&self.signaled, value)], false)?;
            self.wakes("what was rung", wait)?;
            self.value = value;
        }
        Ok(())
    }

    /// Submits to both queues in turns, while engines look at them; then waits for all of it.
    fn submit(&mut self, dice: &mut Dice) -> Result<()> {
        let watch = Watch::new(&self.queues)?;
        let mut last = [None; 2];
        for _ in 0..2 + dice.below(6) {
            // CAST: 0 or 1.
            let number = dice.below(2) as usize;
            last[number] = Some(self.queues[number].run(|list| list.nop(16))?);
            if dice.below(2) == 0 {
                Machine::with_current(|machine| machine.map(|machine| machine.delay_execution(-100)));
            }
        }
        for (queue, last) in self.queues.iter().zip(last) {
            last.map_or(Ok(()), |last| queue.wait(last, Some(LIMIT)))?;
        }
        let (looks, mistake) = watch.seen();
        ensure!(looks != 0, "no engine has looked");
        mistake.map_or(Ok(()), |mistake| bail!("{mistake}"))
    }

    fn round(&mut self, dice: &mut Dice) -> Result<()> {
        let (base, logged) = (self.value, dice.below(2) == 0);
        // CAST: 0 or 1.
        let queue = &self.queues[dice.below(2) as usize];
        let submit = |count: u64| queue.run(|list| (1..=count).try_for_each(|n| self.record(list, base + n, logged)));
        let kind = dice.below(7);
        let count = match kind {
            // A waiter comes while its value is signaled.
            0 | 1 => {
                submit(1)?;
                let wait = self.wait(&[(&self.signaled, base + 1)], false)?;
                self.wakes("the waiter", wait)?;
                1
            }
            // A waiter is there.
            2 => {
                let wait = self.wait(&[(&self.signaled, base + 1)], false)?;
                submit(1)?;
                self.wakes("the waiter", wait)?;
                1
            }
            // Several come, in one order or the other, while all of their values are signaled.
            3 | 4 => {
                let count = 2 + dice.below(3);
                submit(count)?;
                let up = dice.below(2) == 0;
                let value = |n: u64| base + if up { n } else { count + 1 - n };
                let waits = (1..=count).map(|n| self.wait(&[(&self.signaled, value(n))], false));
                let waits: Vec<_> = waits.collect::<Result<_>>()?;
                for (n, wait) in (1..).zip(waits) {
                    self.wakes(&format!("the waiter for {}", value(n)), wait)?;
                }
                count
            }
            // A fence that dies as soon as its value is there: its interrupt may be on its way.
            5 => {
                self.dies(queue)?;
                0
            }
            // The lowest one leaves, since the CPU signals another fence that would do; one more stays.
            _ => {
                let leaves = self.wait(&[(&self.signaled, base + 1), (&self.other, base + 2)], true)?;
                let stays = self.wait(&[(&self.signaled, base + 2)], false)?;
                submit(2)?;
                self.raw.signal_cpu(self.plain, &[(self.other.info()?.handle, base + 2)]).context("a signal")?;
                self.wakes("the waiter that leaves", leaves)?;
                self.wakes("the waiter that stays", stays)?;
                2
            }
        };
        self.value += count;
        Ok(())
    }
}
