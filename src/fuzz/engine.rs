//! The GPU by itself: hostile rings, packets, page tables and resets on engine threads, with the OS played here, beside
//! a good process. Nothing of WDDM is between, so that a second holds thousands of turns.
//!
//! What is held: memory that the hostile process has not mapped writable never changes; no mapping of a page outlives
//! the flush behind its unmapping, and nothing writes to the page from then on; engines hold and flush in time; nothing
//! is written behind a log; the good process's work goes on.

mod host;
mod os;

use super::packets::{KINDS, packet, sound};
use super::{Dice, ROUND, Round};
use crate::scenario::Played;
use anyhow::{Result, anyhow, ensure};
use gpu_engine::engine::{BETWEEN_LOOKS, Engine, Step};
use gpu_engine::fence::update_monitored;
use gpu_engine::fence_log::Barriers;
use gpu_engine::gpu::{Gpu, Setup};
use gpu_engine::host::Host as _;
use gpu_engine::memory::SharedWord;
use gpu_engine::monitored::MonitoredFences;
use gpu_engine::node::Control;
use gpu_engine::packet_node::PacketSubmission;
use gpu_engine::queue::{ParkedFence, State, Submission};
use gpu_engine::shared::Shared;
use gpu_wire::doorbell::Model;
use gpu_wire::packet::{FaultKind, Privilege, Store};
use gpu_wire::pte::{Place, Pte};
use gpu_wire::ring::{FAULT_KIND, Geometry};
use gpu_wire::{GpuVa, PAGE_SIZE};
use host::{FuzzHost, WORDS};
use os::{BEHIND_LOG, LOG_BYTES, Made, Os, Owner, PATIENCE, RING, Seat, made};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Doorbells, of which the good process has the last but one.
const DOORBELLS: u64 = 8;
/// As above.
const GOOD_BELL: usize = 6;

/// Hostile queues; the first four are rung, the others take command buffers.
const QUEUES: usize = 6;

/// Pages of the hostile process that come and go, their addresses, and its pages of command buffers.
const FLIPS: u64 = 64;
/// As above.
const FLIP_VA: u64 = 0x4000_0000;
/// As above.
const CODE: u64 = 16;

/// The hostile process's pages of the local segment; the next as many are the good one's.
const LOCAL_PAGES: u64 = 32;
/// As above.
const LOCAL_VA: u64 = 0x5000_0000;

/// How long the good process's work may wait before the engine is reset, as the OS would.
const DELAY: Duration = Duration::from_millis(100);

/// What the word `index` of `frame` holds that nobody may change.
fn grain(frame: u64, index: u64) -> u64 {
    0x5EC2_E700_0000_0000 | frame << 16 | index
}

/// A round on a GPU of its own.
pub fn play(round: &Round) -> Played {
    let mut dice = round.dice(0x200);
    let host = FuzzHost::new();
    let doorbells: Vec<_> = (0..DOORBELLS).map(|page| host.system.span(page, 1)).collect();
    let setup = Setup {
        model: if dice.one_in(3) { Model::Global } else { Model::Dedicated },
        doorbells: &doorbells,
        barriers: Barriers::Two,
        names_queues: dice.one_in(2),
        monitored: MonitoredFences::default(),
        preempts_in_buffers: true,
    };
    let gpu = made(Shared::try_new(made(Gpu::new(host, &setup))?))?;
    gpu.mutation.set(round.mutation);
    let mut attack = Attack::new(round, gpu.clone(), dice)?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for node in 0..gpu.nodes.len() {
        let (engine, stop) = (made(Engine::new(gpu.clone(), node))?, stop.clone());
        threads.push(std::thread::spawn(move || steps(engine, &stop)));
    }
    threads.push(attack.scribbler(stop.clone()));
    let played = attack.play(&stop);
    let early = stop.swap(true, Ordering::AcqRel);
    (0..gpu.nodes.len()).for_each(|node| gpu.command(node, Control::Stop));
    played?;
    ensure!(!early, "a thread ended by itself");
    let ended = threads.into_iter().try_for_each(JoinHandle::join);
    ended.map_err(|_| anyhow!("a thread of the GPU panicked"))?;
    let totals = gpu.totals();
    for (name, count) in gpu_engine::counters::Totals::NAMES.iter().zip(totals.values()) {
        match *name {
            "most_between_looks" => round.coverage.most(&format!("engines: {name} (most)"), count),
            name => round.coverage.count(&format!("engines: {name}"), count),
        }
    }
    let most = totals.most_between_looks;
    ensure!(
        most <= BETWEEN_LOOKS,
        "an engine did work for {most} bytes before it looked up: {BETWEEN_LOOKS} is the most"
    );
    Ok(())
}

/// Sets it when dropped in a panic, so that the round notices.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Release);
        }
    }
}

fn steps(mut engine: Engine<FuzzHost>, stop: &AtomicBool) {
    let _alarm = Alarm(stop);
    loop {
        match engine.step() {
            Step::Stopped => return,
            Step::Idle(_) | Step::Waiting | Step::Held => std::thread::yield_now(),
            Step::Worked => (),
        }
    }
}

/// The hostile process, the good one, and the OS between them.
struct Attack<'a> {
    round: &'a Round,
    os: Os,
    dice: Dice,
    bad: Owner,
    good: Owner,
    /// What packets are aimed at: first, bytes.
    ranges: Vec<(u64, u64)>,
    /// Memory for packets that are right, and the addresses of their fences.
    plain: (u64, u64),
    fence_addresses: Vec<u64>,
    seats: Vec<Seat>,
    queues: Vec<Made>,
    /// A fence, the frame of its value, and that of MonitoredValue.
    fences: Vec<(Shared<ParkedFence<FuzzHost>>, u64, u64)>,
    /// A fence of a device that is lost, and the frame of its value, which nothing may change any more.
    dead: (Shared<ParkedFence<FuzzHost>>, u64),
    /// Address and first frame of the hostile command buffers.
    code: (u64, u64),
    /// First frame of the pages that come and go, and their entries as they were stored.
    flips: u64,
    entries: Vec<u64>,
    /// The frame of the table with these entries.
    table: u64,
    /// Pages that nobody may change: frame, words.
    canaries: Vec<(u64, Vec<u64>)>,
    victim: Made,
    victim_seat: Seat,
    /// The page that the good process stores to, the value that is due, and since when.
    word: (u64, u64),
    due: u64,
    since: Instant,
    packet_fence: u32,
    /// Packets written, by kind.
    kinds: [u64; KINDS.len()],
}

impl<'a> Attack<'a> {
    fn new(round: &'a Round, gpu: Shared<Gpu<FuzzHost>>, dice: Dice) -> Result<Self> {
        let mut os = Os::new(gpu, DOORBELLS);
        let (bad, good) = (os.process()?, os.process()?);
        let word = os.map(&good, 1, false, true);
        let secret = os.map(&good, 16, false, false);
        let (code, data) = (os.map(&bad, CODE, false, true), os.map(&bad, 32, false, true));
        let fixed = os.map(&bad, 8, true, false);
        for frame in (secret.1..secret.1 + 16).chain(fixed.1..fixed.1 + 8) {
            (0..WORDS).for_each(|index| os.word(frame, index).store(grain(frame, index), Ordering::SeqCst));
        }
        let flips = os.take(FLIPS, true);
        let mut entries = Vec::new();
        for page in 0..FLIPS {
            os.map_at(&bad, FLIP_VA + page * PAGE_SIZE, Place::System(flips + page), false);
            entries.push(os.leaf(&bad, FLIP_VA + page * PAGE_SIZE).load(Ordering::SeqCst));
        }
        // The table that holds these entries changes; `look` knows how.
        let table = os.frames() - 1;
        // CAST: below the number of frames.
        os.open[table as usize] = true;
        for page in 0..LOCAL_PAGES {
            let place = Place::Local(if page % 2 == 0 { page } else { LOCAL_PAGES - page });
            os.map_at(&bad, LOCAL_VA + page * PAGE_SIZE, place, false);
        }
        let mut ranges = vec![
            (code.0, CODE * PAGE_SIZE),
            (data.0, 32 * PAGE_SIZE),
            (fixed.0, 8 * PAGE_SIZE),
            (FLIP_VA, FLIPS * PAGE_SIZE),
            (LOCAL_VA, LOCAL_PAGES * PAGE_SIZE),
        ];
        let (plain, mut fence_addresses) = ((data.0, 32 * PAGE_SIZE), Vec::new());
        let mut fences = Vec::new();
        for index in 0..4 {
            let (fence, current, monitored) = os.fence(&bad, index % 2 == 1)?;
            ranges.extend([(current.0, 8), (current.0, 8), (monitored.0, 8)]);
            fence_addresses.push(current.0);
            fences.push((fence, current.1, monitored.1));
        }
        let seats: Vec<_> = (0..QUEUES).map(|_| os.seat(&bad)).collect();
        seats.iter().for_each(|seat| ranges.extend([(seat.ring.0, RING), (seat.control.0, PAGE_SIZE)]));
        let victim_seat = os.seat(&good);
        let victim = os.queue(&good, &victim_seat, 1, Some(GOOD_BELL))?;
        let mut queues = Vec::new();
        for (index, seat) in seats.iter().enumerate() {
            queues.push(os.queue(&bad, seat, index % 2, (index < 4).then_some(index))?);
        }
        for page in LOCAL_PAGES..2 * LOCAL_PAGES {
            (0..WORDS)
                .for_each(|index| os.gpu.host.local.word(page, index).store(grain(page, index), Ordering::SeqCst));
        }
        let dead =
            (made(Shared::try_new(ParkedFence::new(made(os.gpu.slots.allocate(0xDEAD))?, false)))?, os.take(1, false));
        let word_of_dead = SharedWord::of(os.word(dead.1, 0));
        dead.0.set_always_signaled(Some((&word_of_dead, u64::MAX)), |_, _| ());
        // CAST: below the number of frames.
        let closed = (0..os.frames()).filter(|frame| !os.open[*frame as usize]);
        let words = |frame| (0..WORDS).map(|index| os.word(frame, index).load(Ordering::SeqCst)).collect();
        let canaries = closed.map(|frame| (frame, words(frame))).collect();
        let (since, due, packet_fence, kinds) = (Instant::now(), 0, 0, [0; KINDS.len()]);
        Ok(Self {
            round,
            os,
            dice,
            bad,
            good,
            ranges,
            plain,
            fence_addresses,
            seats,
            queues,
            fences,
            dead,
            code,
            flips,
            entries,
            table,
            canaries,
            victim,
            victim_seat,
            word,
            due,
            since,
            packet_fence,
            kinds,
        })
    }

    /// A thread that changes what engines read: rings, control pages, command buffers, doorbells.
    fn scribbler(&self, stop: Arc<AtomicBool>) -> JoinHandle<()> {
        let (gpu, seats, code) = (self.os.gpu.clone(), self.seats.clone(), self.code.1);
        let mut dice = self.round.dice(0x201);
        // In every other round little is changed, so that queues live for longer.
        let calm = dice.one_in(2);
        std::thread::spawn(move || {
            let _alarm = Alarm(&stop);
            while !stop.load(Ordering::Acquire) {
                let seat = dice.of(&seats);
                let (frame, index) = match dice.below(16) {
                    0..=6 => (seat.ring.1, dice.below(WORDS)),
                    7 => (seat.control.1, 1 + dice.below(WORDS - 1)),
                    8..=14 => (code + dice.below(CODE), dice.below(WORDS)),
                    _ => (dice.below(DOORBELLS), 0),
                };
                gpu.host.system.word(frame, index).store(dice.draw(), Ordering::Relaxed);
                match calm {
                    true => std::thread::park_timeout(Duration::from_micros(dice.below(2000))),
                    false if dice.one_in(16) => std::thread::yield_now(),
                    false => (),
                }
            }
        })
    }

    fn play(&mut self, stop: &AtomicBool) -> Played {
        let begun = Instant::now();
        let mut turn = 0;
        while begun.elapsed() < ROUND {
            ensure!(!stop.load(Ordering::Acquire), "an engine's thread ended by itself");
            turn += 1;
            (0..QUEUES).try_for_each(|index| self.submit(index, turn))?;
            if turn % 4 == 0 {
                self.write_buffers();
            }
            if turn % 16 == 0 {
                self.submit_packet()?;
            }
            self.fences();
            for node in self.os.gpu.nodes.iter() {
                self.os.gpu.drain(node.index, |_| ());
            }
            if self.dice.one_in(64) {
                self.suspend(turn);
            }
            if turn % 512 == 0 {
                (0..3).try_for_each(|node| self.reset(node, stop))?;
            }
            if turn % 8 == 0 {
                self.flip(stop)?;
            }
            self.victim(stop)?;
            if turn % 1024 == 0 {
                self.look()?;
            }
        }
        self.round.coverage.count("round: turns", turn);
        for (kind, count) in KINDS.iter().zip(self.kinds) {
            self.round.coverage.count(&format!("packets written: {kind}"), count);
        }
        (0..3).try_for_each(|node| self.reset(node, stop))?;
        self.look()
    }

    /// Fills a queue's ring or gives it a command buffer; one that has stopped is replaced by another.
    fn submit(&mut self, index: usize, turn: u64) -> Played {
        let seat = self.seats[index];
        let stopped = self.queues[index].queue.state() != State::Active;
        let lost = !self.queues[index].queue.context.is_runnable() && self.queues[index].stuck > 20;
        if stopped || lost || self.dice.one_in(400) {
            let kind = self.os.word(seat.control.1, FAULT_KIND as u64 / 8).swap(0, Ordering::SeqCst);
            let kind = u32::try_from(kind).ok().and_then(FaultKind::from_raw);
            if let Some(kind) = kind.filter(|_| stopped) {
                self.round.coverage.count(&format!("faults: {kind:?}"), 1);
            }
            self.os.destroy(&self.queues[index]);
            // CAST: 0 or 1.
            let node = self.dice.below(2) as usize;
            self.queues[index] = self.os.queue(&self.bad, &seat, node, (index < 4).then_some(index))?;
            return Ok(());
        }
        let queue = &mut self.queues[index];
        queue.stuck += 1;
        let Some(doorbell) = queue.doorbell else {
            let address = GpuVa(self.code.0 + self.dice.below(CODE * WORDS) * 8);
            let length = self.dice.below(64) * 8;
            queue.queue.submit(Submission { address, length, progress: turn, null: self.dice.one_in(16) });
            self.os.gpu.make_ready(&queue.queue);
            return Ok(());
        };
        let wild = self.dice.one_in(8);
        for _ in 0..self.dice.below(12) {
            let packets = match wild {
                true => vec![packet(&mut self.dice, &self.ranges)],
                false => sound(&mut self.dice, self.plain, &self.fence_addresses),
            };
            let bytes: Vec<_> = packets.iter().flat_map(|(packet, _)| packet.as_bytes()).copied().collect();
            if queue.written + bytes.len() as u64 > queue.queue.consumed.load(Ordering::Relaxed) + RING {
                break;
            }
            append(&self.os, &seat, &mut queue.written, &bytes)?;
            packets.iter().for_each(|(_, kind)| self.kinds[*kind] += 1);
        }
        let pointer = match self.dice.below(200) {
            0 => self.dice.draw(),
            1 => queue.written + 8,
            _ => queue.written,
        };
        self.os.word(seat.control.1, 0).store(pointer, Ordering::Release);
        self.os.word(doorbell as u64, 0).store(self.dice.draw() | 1, Ordering::Release);
        Ok(())
    }

    /// New command buffers, over those that may be running.
    fn write_buffers(&mut self) {
        let frame = self.code.1 + self.dice.below(CODE);
        let mut bytes = Vec::new();
        while bytes.len() < PAGE_SIZE as usize {
            bytes.extend_from_slice(packet(&mut self.dice, &self.ranges).0.as_bytes());
        }
        self.os.gpu.host.system.span(frame, 1).write(&bytes[..PAGE_SIZE as usize]);
    }

    /// A packet of the hostile process on the node of packets.
    fn submit_packet(&mut self) -> Played {
        self.packet_fence += 1;
        let packet = PacketSubmission {
            fence: self.packet_fence,
            context: self.bad.context.clone(),
            privilege: Privilege::User,
            address: GpuVa(self.code.0 + self.dice.below(CODE * WORDS) * 8),
            length: self.dice.below(64) * 8,
            silent: false,
            resumes: false,
        };
        let gpu = &self.os.gpu;
        made(gpu.nodes[2].packets.with(|packets| packets.submit(packet, &gpu.mutation)))?;
        self.os.gpu.wake(2);
        Ok(())
    }

    /// What the CPU does with fences.
    fn fences(&mut self) {
        let gpu = &self.os.gpu;
        let (fence, current, monitored) = self.dice.of(&self.fences);
        let value = self.dice.below(1000);
        match self.dice.below(6) {
            0 => {
                let word = SharedWord::of(self.os.word(*monitored, 0));
                let _ = update_monitored(&word, fence.shadow.as_ref(), value, &gpu.mutation);
            }
            1 => {
                let word = SharedWord::of(self.os.word(*current, 0));
                fence.signal_from_cpu(&word, value, &gpu.mutation, |queue, ticket| {
                    queue.wake(ticket, true, gpu.host.clock());
                    gpu.make_ready(&queue);
                });
            }
            2 => {
                let (fence, frame) = &self.dead;
                fence.signal_from_cpu(&SharedWord::of(self.os.word(*frame, 0)), value, &gpu.mutation, |_, _| ());
            }
            3 => {
                fence.parked.look_again(|queue, ticket| {
                    queue.wake(ticket, false, gpu.host.clock());
                    gpu.make_ready(&queue);
                });
            }
            _ => (),
        }
    }

    fn suspend(&mut self, turn: u64) {
        let queue = &self.dice.of(&self.queues).queue;
        let _ = self.os.gpu.suspend(&queue.context, turn);
        if self.dice.one_in(2) {
            queue.context.resume();
            self.os.gpu.make_ready(queue);
        }
    }

    /// Resets a node, which ends loops. When it was the good process's queue that was cut off, it makes another.
    fn reset(&mut self, node: usize, stop: &AtomicBool) -> Played {
        let begun = Instant::now();
        let cut = self.os.reset(node, stop)?;
        // CAST: milliseconds of a round.
        self.round.coverage.most("slowest: hold in ms (most)", begun.elapsed().as_millis() as u64);
        if cut.is_some_and(|cut| Shared::ptr_eq(&cut, &self.victim.queue)) {
            self.os.destroy(&self.victim);
            self.victim = self.os.queue(&self.good, &self.victim_seat, 1, Some(GOOD_BELL))?;
            self.due = 0;
            self.os.word(self.word.1, 0).store(0, Ordering::SeqCst);
        }
        if node == 2 {
            let (_, gone) = self.os.gpu.nodes[2].packets.with(|packets| packets.reset());
            drop(gone);
        }
        Ok(())
    }

    /// A page goes: unmapped, flushed, another's, and back.
    fn flip(&mut self, stop: &AtomicBool) -> Played {
        let page = self.dice.below(FLIPS);
        let (va, frame) = (FLIP_VA + page * PAGE_SIZE, self.flips + page);
        self.os.leaf(&self.bad, va).store(0, Ordering::SeqCst);
        let begun = Instant::now();
        let gpu = &self.os.gpu;
        if self.dice.one_in(2) {
            // Another one that is not waited for, of everything or of an address far away.
            let far = if self.dice.one_in(2) { 0 } else { va << 9 };
            gpu.flush(self.bad.process.number, far, far);
        }
        let number = gpu.flush(self.bad.process.number, va, va + PAGE_SIZE);
        self.os.wait(stop, "a flush is not served", || gpu.flush_done(number))?;
        // CAST: milliseconds of a round; below the number of frames.
        self.round.coverage.most("slowest: flush in ms (most)", begun.elapsed().as_millis() as u64);
        let live = gpu.host.live[frame as usize].load(Ordering::SeqCst);
        ensure!(live == 0, "{live} mappings of frame {frame} outlived the flush behind its unmapping");
        let theirs = self.dice.draw();
        (0..WORDS).for_each(|index| self.os.word(frame, index).store(theirs ^ index, Ordering::SeqCst));
        std::thread::yield_now();
        for index in 0..WORDS {
            let found = self.os.word(frame, index).load(Ordering::SeqCst);
            ensure!(found == theirs ^ index, "frame {frame} was written behind the flush: word {index} is {found:#x}");
        }
        let entry = Pte::leaf(Place::System(frame), self.dice.one_in(4)).unwrap_or(Pte::INVALID);
        self.os.leaf(&self.bad, va).store(entry.0, Ordering::SeqCst);
        // CAST: below the number of pages.
        self.entries[page as usize] = entry.0;
        Ok(())
    }

    /// The good process submits when its last store has come.
    fn victim(&mut self, stop: &AtomicBool) -> Played {
        let found = self.os.word(self.word.1, 0).load(Ordering::SeqCst);
        let waited = self.since.elapsed();
        if found < self.due {
            ensure!(
                waited < PATIENCE,
                "the good process's store {} has not come for {} s",
                self.due,
                PATIENCE.as_secs()
            );
            // As the OS does with an engine that makes no progress.
            if waited > DELAY {
                self.round.coverage.count("round: resets for the good process", 1);
                self.reset(1, stop)?;
            }
            return Ok(());
        }
        ensure!(found == self.due, "the good process stored {} and finds {found:#x}", self.due);
        if self.due != 0 {
            // CAST: milliseconds of a round.
            self.round.coverage.most("slowest: good store in ms (most)", waited.as_millis() as u64);
            self.round.coverage.count("victim: submissions", 1);
        }
        self.due += 1;
        self.since = Instant::now();
        let store = Store { address: self.word.0, value: self.due }.to_packet();
        append(&self.os, &self.victim_seat, &mut self.victim.written, store.as_bytes())?;
        self.os.word(self.victim_seat.control.1, 0).store(self.victim.written, Ordering::Release);
        // In the global model the value is a name that is looked at, too; any change has all rings looked at.
        self.os.word(GOOD_BELL as u64, 0).store(self.victim.written | 1 << 40, Ordering::Release);
        self.os.gpu.make_ready(&self.victim.queue);
        Ok(())
    }

    /// Looks at what nobody may change.
    fn look(&self) -> Played {
        for (frame, words) in &self.canaries {
            for (index, word) in (0..).zip(words) {
                let now = self.os.word(*frame, index).load(Ordering::SeqCst);
                ensure!(now == *word, "frame {frame}, word {index}: {word:#x} became {now:#x}");
            }
        }
        for page in LOCAL_PAGES..2 * LOCAL_PAGES {
            for index in 0..WORDS {
                let now = self.os.gpu.host.local.word(page, index).load(Ordering::SeqCst);
                ensure!(now == grain(page, index), "local page {page}, word {index}: {now:#x}");
            }
        }
        for (index, entry) in (0..).zip(&self.entries) {
            let now = self.os.word(self.table, index).load(Ordering::SeqCst);
            ensure!(now == *entry, "the page table entry {index}: {entry:#x} became {now:#x}");
        }
        for seat in &self.seats {
            for (frame, index) in seat.logs.iter().flat_map(|frame| (LOG_BYTES / 8..WORDS).map(move |at| (*frame, at)))
            {
                let now = self.os.word(frame, index).load(Ordering::SeqCst);
                ensure!(now == BEHIND_LOG, "behind the log, word {index}: {now:#x}");
            }
        }
        Ok(())
    }
}

/// Writes bytes to a ring.
fn append(os: &Os, seat: &Seat, written: &mut u64, bytes: &[u8]) -> Played {
    let geometry = Geometry::new(RING).map_err(|_| anyhow!("no ring"))?;
    let spans = geometry.spans(*written, bytes.len() as u64);
    // CAST: below the ring's size.
    let (first, rest) = bytes.split_at(spans.first_len as usize);
    let ring = os.gpu.host.system.span(seat.ring.1, 1);
    ring.part(spans.first, RING).write(first);
    ring.write(rest);
    *written += bytes.len() as u64;
    Ok(())
}
