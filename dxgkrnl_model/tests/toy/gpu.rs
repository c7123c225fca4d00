//! The GPU: a thread that runs packets on node 1 and queues on node 0, and an MMU.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use nt_model::{Machine, PageObject};

use super::caps::bits;
use super::commands::{Ended, run_commands, signal};
use super::scheduling::{IDLE, READY, RUNNING};
use super::start::{HIDDEN_BASE, HIDDEN_BYTES, LOCAL_BASE, LOCAL_BYTES};
use super::{Notice, Root, Toy, Work};

/// Commands, as 64-bit words.
pub mod opcode {
    pub const ENTRIES: u64 = 1;
    pub const REPEAT: u64 = 2;
    pub const FLUSH: u64 = 3;
    pub const FILL: u64 = 4;
    pub const COPY: u64 = 5;
    /// address, value
    pub const WRITE: u64 = 6;
    /// current value's address, value, user mode's handle of the fence
    pub const SIGNAL: u64 = 7;
    /// current value's address, value, user mode's handle of the fence
    pub const WAIT: u64 = 8;
    pub const HANG: u64 = 9;
    /// A monitored fence: address, value
    pub const SIGNAL_MONITORED: u64 = 10;
    /// Wants F1.
    pub const IDLE: u64 = 11;
    /// Takes so many milliseconds in all, however often it is preempted.
    pub const LONG: u64 = 12;
}

pub const VALID: u64 = 1;
pub const WRITE: u64 = 2;
pub const ZERO: u64 = 4;
pub const SEGMENT_SHIFT: u32 = 3;
/// Dxgkrnl asked for accesses that are coherent with the processors' caches, as this GPU's are anyway.
pub const COHERENT: u64 = 1 << 8;
/// A table that is named by a GPU virtual address.
pub const BY_ADDRESS: u64 = 99;

/// Looks for which a mutant leaves a buffer where it is: half a second of them.
const STALLS: u64 = 500;

/// 100 ns units between two looks at doorbells.
const TICK: i64 = 10_000;

/// Physical memory of the machine, as the GPU reaches it.
#[derive(Debug, Default)]
pub struct Physical {
    maps: Mutex<HashMap<u64, (Arc<PageObject>, usize)>>,
}

impl Physical {
    /// Host address of a physical one.
    fn at(&self, physical: u64) -> Option<usize> {
        Machine::with_current(|machine| {
            let machine = machine?;
            let (object, index) = machine.page_of_frame(physical / 4096)?;
            if !object.is_page_resident(index) {
                return None;
            }
            let mut maps = self.maps.lock().unwrap_or_else(|error| error.into_inner());
            let base = match maps.get(&object.id()) {
                Some((_, base)) => *base,
                None => {
                    let base = machine.map_for_model(&object)?;
                    maps.insert(object.id(), (object.clone(), base));
                    base
                }
            };
            Some(base + index * 4096 + (physical % 4096) as usize)
        })
    }

    pub fn clear(&self) {
        let maps = std::mem::take(&mut *self.maps.lock().unwrap_or_else(|error| error.into_inner()));
        Machine::with_current(|machine| {
            if let Some(machine) = machine {
                for (_, base) in maps.into_values() {
                    machine.unmap_for_model(base);
                }
            }
        });
    }
}

/// A word of memory that the GPU has mapped.
pub fn word(address: usize) -> &'static AtomicU64 {
    let pointer: *const AtomicU64 = core::ptr::with_exposed_provenance(address);
    // SAFETY: the address is that of memory that this GPU has mapped.
    unsafe { &*pointer }
}

impl Toy {
    /// Host address of a byte of a segment.
    pub fn segment_address(&self, segment: u64, address: u64) -> Option<usize> {
        match segment {
            0 => self.physical.at(address),
            2 => {
                let offset = address.checked_sub(LOCAL_BASE).filter(|offset| *offset < LOCAL_BYTES as u64)?;
                Some(self.local.load(Ordering::Acquire) + offset as usize)
            }
            3 => {
                let offset = address.checked_sub(HIDDEN_BASE).filter(|offset| *offset < HIDDEN_BYTES as u64)?;
                Some(self.local.load(Ordering::Acquire) + LOCAL_BYTES + offset as usize)
            }
            _ => None,
        }
    }

    /// The content of memory that the CPU does not see is lost; Dxgkrnl overwrites the rest.
    pub fn lose_memory(&self) {
        let memory: *mut u8 = core::ptr::with_exposed_provenance_mut(self.local.load(Ordering::Acquire) + LOCAL_BYTES);
        // SAFETY: the segment's memory, which the adapter has while it is started.
        unsafe { memory.write_bytes(0, HIDDEN_BYTES) };
    }

    /// Host address behind a GPU virtual one. `None`: a fault.
    pub fn translate(&self, root: Root, address: u64, write: bool) -> Option<usize> {
        if self.options.io_mmu {
            // The IOMMU has the process's own translations: this GPU reaches what the process does.
            return (address != 0).then_some(address as usize);
        }
        let entry = self.entry(root, address)?;
        if write && entry & WRITE == 0 {
            return None;
        }
        self.segment_address((entry >> SEGMENT_SHIFT) & 0x1F, (entry & !0xFFF) + (address & 0xFFF))
    }

    /// The page table entry behind a GPU virtual address. `None`: there is none that is valid.
    pub fn entry(&self, root: Root, address: u64) -> Option<u64> {
        let bits = bits(self);
        let (mut segment, mut table) = (u64::from(root.0), root.1);
        let mut shift = 12 + bits.iter().sum::<u32>();
        if address >> shift != 0 {
            return None;
        }
        for (level, width) in bits.iter().enumerate().rev() {
            shift -= width;
            let index = (address >> shift) & ((1 << width) - 1);
            // Tables of several pages lie in local memory, which is contiguous.
            let entry = word(self.segment_address(segment, table + index * 8)?).load(Ordering::Acquire);
            if entry & VALID == 0 {
                return None;
            }
            if level == 0 {
                return Some(entry);
            }
            (segment, table) = ((entry >> SEGMENT_SHIFT) & 0x1F, entry & !0xFFF);
        }
        None
    }

    pub fn read(&self, root: Root, address: u64) -> Option<u64> {
        Some(word(self.translate(root, address, false)?).load(Ordering::SeqCst))
    }

    pub fn store(&self, root: Root, address: u64, value: u64) -> Option<()> {
        word(self.translate(root, address, true)?).store(value, Ordering::SeqCst);
        Some(())
    }

    /// Stores the low half of a word.
    pub fn store_low(&self, root: Root, address: u64, value: u32) -> Option<()> {
        let place = self.translate(root, address, true)?;
        let pointer: *const AtomicU32 = core::ptr::with_exposed_provenance(place);
        // SAFETY: memory that this GPU has mapped, aligned as its 64-bit words are.
        unsafe { &*pointer }.store(value, Ordering::SeqCst);
        Some(())
    }

    pub fn time(&self) -> u64 {
        self.clock.fetch_add(10, Ordering::Relaxed)
    }
}

/// The machine's time.
pub fn now() -> u64 {
    Machine::with_current(|machine| machine.map_or(0, Machine::now))
}

/// The thread.
pub fn run(toy: &Arc<Toy>) {
    loop {
        if toy.stop.load(Ordering::Acquire) {
            return;
        }
        let mut worked = false;
        for engine in 0..toy.options.engines {
            worked |= packets(toy, engine);
            worked |= queues(toy, engine);
            worked |= suspensions(toy, engine);
        }
        worked |= super::late::run(toy);
        toy.interrupt();
        if !worked {
            let stopped = Machine::with_current(|machine| {
                let Some(machine) = machine else { return true };
                machine.wait_for_event(&toy.wake, Some(-TICK));
                machine.rules.is_stopped()
            });
            if stopped {
                return;
            }
        }
    }
}

/// Runs packets of an engine's node 1 to their end. True: something was done.
fn packets(toy: &Toy, engine: usize) -> bool {
    if let Some(fence) = {
        let state = &mut toy.state().engines[engine];
        if state.packet_hung { None } else { state.preempt.take() }
    } {
        let mut state = toy.state();
        let state = &mut state.engines[engine];
        if toy.is("preempt-answer")
            && let Some(packet) = state.packets.pop_front()
        {
            // Said to be done, and the preemption is forgotten.
            state.packets.clear();
            state.completed = packet.fence;
            state.notices.push_back(Notice::Completed(packet.fence, packet.paging));
            return true;
        }
        // Everything that has not run goes back.
        state.packets.clear();
        let completed = state.completed;
        state.notices.push_back(Notice::Preempted(fence, completed));
        return true;
    }
    let (packet, root) = {
        let all = toy.state();
        let state = &all.engines[engine];
        if state.packet_hung {
            return false;
        }
        let Some(packet) = state.packets.front().cloned() else { return false };
        let root = all.contexts.get(&packet.context).and_then(|context| context.root);
        (packet, root.or(toy.options.io_mmu.then_some((0, 0))))
    };
    let Some(root) = root else {
        toy.error(format!("packet {:#x} of a context without a root", packet.fence));
        toy.state().engines[engine].packets.pop_front();
        return true;
    };
    let mut work = Work { address: packet.address, size: packet.size, at: packet.at, progress: 0, engine };
    let ended = run_commands(toy, root, &mut work, None);
    if let (Ended::Fault(address), true) = (&ended, packet.paging) {
        toy.error(format!("paging packet {:#x} faulted at {address:#x}", packet.fence));
    }
    let mut state = toy.state();
    let state = &mut state.engines[engine];
    match ended {
        Ended::Done => {
            state.packets.pop_front();
            state.completed = packet.fence;
            let notice = if packet.paging && toy.is("int-system-fault") && toy.counted("faulted") == 0 {
                toy.count("faulted");
                Notice::Faulted(packet.fence)
            } else {
                Notice::Completed(packet.fence, packet.paging)
            };
            state.notices.push_back(notice);
        }
        Ended::Hung => state.packet_hung = true,
        Ended::Blocked => {
            if let Some(front) = state.packets.front_mut() {
                front.at = work.at;
            }
            return false;
        }
        Ended::Fault(address) => {
            state.packets.pop_front();
            state.completed = packet.fence;
            state.notices.push_back(Notice::PageFaulted(packet.fence, address));
        }
    }
    true
}

/// Takes contexts off the run list that are to be suspended.
fn suspensions(toy: &Toy, engine: usize) -> bool {
    let mut state = toy.state();
    let own = &state.engines[engine];
    if own.node_hung || own.stopped || now() < own.rests || toy.is("suspend-ack") {
        return false;
    }
    let mut done = Vec::new();
    for context in state.contexts.values_mut().filter(|context| context.engine == engine) {
        if let Some(fence) = context.suspending.take() {
            context.suspended = true;
            done.push(Notice::Suspended(context.os, fence));
        }
    }
    let any = !done.is_empty();
    state.engines[engine].notices.extend(done);
    any
}

/// Runs the queues of an engine's node 0 until nothing moves.
fn queues(toy: &Toy, engine: usize) -> bool {
    let keys: Vec<_> = {
        let state = toy.state();
        let own = &state.engines[engine];
        if own.node_hung || own.stopped || now() < own.rests {
            return false;
        }
        let mut keys: Vec<_> = state.queues.keys().copied().filter(|queue| state.engine_of(*queue) == engine).collect();
        keys.sort_unstable();
        keys
    };
    let mut worked = false;
    for key in keys {
        worked |= run_queue(toy, engine, key);
        if toy.state().engines[engine].node_hung {
            break;
        }
    }
    worked
}

fn run_queue(toy: &Toy, engine: usize, key: usize) -> bool {
    let (mut work, root) = {
        let mut state = toy.state();
        let state = &mut *state;
        let Some(queue) = state.queues.get_mut(&key) else { return false };
        let Some(context) = state.contexts.get(&queue.context) else { return false };
        if context.suspended || context.suspending.is_some() || queue.faulted {
            return false;
        }
        let Some(root) = context.root else { return false };
        (queue.current.take().or_else(|| queue.work.pop_front()), root)
    };
    if work.is_none() {
        work = fetch(toy, key, root);
    }
    let Some(mut work) = work else { return false };
    work.engine = engine;
    if work.progress != 0 && toy.is("hw-stall") && toy.counted("stall") < STALLS {
        toy.count("stall");
        let context = toy.state().queues.get(&key).map_or(0, |queue| queue.context);
        toy.schedules(context, READY);
        if let Some(queue) = toy.state().queues.get_mut(&key) {
            queue.current = Some(work);
        }
        return false;
    }
    let context = {
        let mut state = toy.state();
        state.engines[engine].running = key;
        state.queues.get(&key).map_or(0, |queue| queue.context)
    };
    let before = work.at;
    toy.schedules(context, RUNNING);
    let ended = run_commands(toy, root, &mut work, Some(key));
    match ended {
        Ended::Blocked => toy.schedules(context, READY),
        Ended::Fault(_) => toy.schedules(context, IDLE),
        Ended::Done | Ended::Hung => (),
    }
    let mut state = toy.state();
    let Some(queue) = state.queues.get_mut(&key) else { return false };
    match ended {
        Ended::Done => {
            if work.progress != 0 {
                let (address, progress) = (queue.progress_gpu, work.progress);
                drop(state);
                signal(toy, root, key, address, progress, 0);
            } else {
                drop(state);
            }
            toy.schedules(context, IDLE);
            true
        }
        Ended::Blocked => {
            let moved = work.at != before;
            queue.current = Some(work);
            moved
        }
        Ended::Hung => {
            queue.current = Some(work);
            state.engines[engine].node_hung = true;
            if toy.options.asks_for_reset {
                state.engines[engine].notices.push_back(Notice::Timeout);
            }
            toy.options.asks_for_reset
        }
        Ended::Fault(address) => {
            queue.faulted = true;
            let os = queue.os;
            state.engines[engine].notices.push_back(Notice::QueueFaulted(os, 0, address));
            true
        }
    }
}

/// Whether the doorbell of a queue says that there may be work: it has changed in the device's memory, or what it said
/// before is not done. A doorbell that is not connected says nothing.
fn has_rung(toy: &Toy, key: usize) -> bool {
    let pages = toy.doorbell_pages.lock().unwrap_or_else(|error| error.into_inner()).clone();
    let mut state = toy.state();
    let Some(bell) = state.doorbells.values_mut().find(|doorbell| doorbell.queue == key) else { return false };
    let Some((_, address)) = bell.physical.and_then(|physical| pages.get(physical)) else { return false };
    // Before the write pointer is read.
    let value = word(*address).load(Ordering::Acquire);
    if value != bell.seen {
        (bell.seen, bell.rang) = (value, true);
        toy.count("rung in a BAR");
    }
    bell.rang
}

/// Takes the next entry of a ring: address and size of a command buffer.
fn fetch(toy: &Toy, key: usize, root: Root) -> Option<Work> {
    let (ring, control, read, connected) = {
        let state = toy.state();
        let queue = state.queues.get(&key)?;
        let bell = state.doorbells.values().find(|doorbell| doorbell.queue == key);
        (queue.ring, queue.control, queue.read, bell.is_some())
    };
    if ring == 0 || !connected || toy.options.doorbells_in_bar && !has_rung(toy, key) {
        return None;
    }
    let written = toy.read(root, control)?;
    if written == read {
        if let Some(bell) = toy.state().doorbells.values_mut().find(|doorbell| doorbell.queue == key) {
            bell.rang = false;
        }
        return None;
    }
    let slot = ring + (read % 64) * 16;
    let (address, size) = (toy.read(root, slot)?, toy.read(root, slot + 8)?);
    toy.state().queues.get_mut(&key)?.read = read + 1;
    toy.store(root, control + 8, read + 1);
    Some(Work { address, size, ..Work::default() })
}
