//! The GPU: a thread that runs packets on node 1 and queues on node 0, an MMU, an interrupt.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};

use nt_model::{Machine, PageObject};
use wddm_abi::ntstatus::STATUS_INVALID_PARAMETER;
use wddm_abi::{
    BOOLEAN, DXGK_ENGINE_STATE, DXGK_INTERRUPT_TYPE, DXGK_PAGE_FAULT_FLAGS, DXGKARGCB_NOTIFY_INTERRUPT_DATA, HANDLE,
    win_extern,
};

use super::start::{LOCAL_BASE, LOCAL_BYTES, bits};
use super::{Notice, Root, State, Toy, Work, callback, owner, raw};

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
/// A table that is named by a GPU virtual address.
pub const BY_ADDRESS: u64 = 99;

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

fn word(address: usize) -> &'static AtomicU64 {
    let pointer: *const AtomicU64 = core::ptr::with_exposed_provenance(address);
    // SAFETY: the address is that of memory that this GPU has mapped.
    unsafe { &*pointer }
}

impl Toy {
    /// Host address of a byte of a segment.
    fn segment_address(&self, segment: u64, address: u64) -> Option<usize> {
        match segment {
            0 => self.physical.at(address),
            2 => {
                let offset = address.checked_sub(LOCAL_BASE).filter(|offset| *offset < LOCAL_BYTES as u64)?;
                Some(self.local.load(Ordering::Acquire) + offset as usize)
            }
            _ => None,
        }
    }

    /// Host address behind a GPU virtual one. `None`: a fault.
    pub fn translate(&self, root: Root, address: u64, write: bool) -> Option<usize> {
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
            (segment, table) = ((entry >> SEGMENT_SHIFT) & 0x1F, entry & !0xFFF);
            if level == 0 {
                if write && entry & WRITE == 0 {
                    return None;
                }
                return self.segment_address(segment, table + (address & 0xFFF));
            }
        }
        None
    }

    fn read(&self, root: Root, address: u64) -> Option<u64> {
        Some(word(self.translate(root, address, false)?).load(Ordering::SeqCst))
    }

    fn store(&self, root: Root, address: u64, value: u64) -> Option<()> {
        word(self.translate(root, address, true)?).store(value, Ordering::SeqCst);
        Some(())
    }

    fn time(&self) -> u64 {
        self.clock.fetch_add(10, Ordering::Relaxed)
    }

    /// Raises the interrupt for what is in `notices`.
    pub fn interrupt(&self) {
        if self.state().notices.is_empty() {
            return;
        }
        let registers = self.registers.load(Ordering::Acquire);
        if registers != 0 {
            let raise: *mut u32 = core::ptr::with_exposed_provenance_mut(registers + 0x60);
            // SAFETY: a register of the mapped BAR.
            unsafe { raise.write_volatile(1) };
            return;
        }
        let mut returned = 0;
        let handle = self.device_handle();
        let context = raw(self.handle);
        let _ = callback!(self, DxgkCbSynchronizeExecution(handle, Some(synchronized), context, 0, &raw mut returned));
    }
}

win_extern! {
    pub fn interrupt_routine(context: *mut core::ffi::c_void, _message: u32) -> BOOLEAN {
        let Some(toy) = owner(context) else { return 0 };
        let registers = toy.registers.load(Ordering::Acquire);
        if registers == 0 {
            return 0;
        }
        let status: *const u32 = core::ptr::with_exposed_provenance(registers + 0x24);
        // SAFETY: a register of the mapped BAR.
        let pending = unsafe { status.read_volatile() };
        if pending == 0 && !toy.is("isr-claim") {
            return 0;
        }
        if !toy.is("isr-dismiss") || toy.counted("isr") > 0 {
            let acknowledge: *mut u32 = core::ptr::with_exposed_provenance_mut(registers + 0x64);
            // SAFETY: as above.
            unsafe { acknowledge.write_volatile(pending) };
        }
        toy.count("isr");
        if toy.is("cb-from-isr") && toy.counted("isr") == 1 {
            let _ = callback!(toy, DxgkCbSetPowerComponentIdle(toy.device_handle(), 0));
        }
        report(&toy);
        1
    }

    fn synchronized(context: *mut core::ffi::c_void) -> BOOLEAN {
        if let Some(toy) = owner(context) {
            report(&toy);
        }
        1
    }

    pub fn dpc_routine(context: *mut core::ffi::c_void) {
        let Some(toy) = owner(context) else { return };
        if toy.is("dpc-notify") && toy.counted("dpc") == 0 {
            toy.count("dpc");
            return;
        }
        toy.count("dpc");
        let _ = callback!(toy, DxgkCbNotifyDpc(toy.device_handle()));
    }
}

/// Tells Dxgkrnl everything that is pending. At the device's level.
fn report(toy: &Toy) {
    let notices = std::mem::take(&mut toy.state().notices);
    if notices.is_empty() {
        return;
    }
    for notice in notices {
        let mut fences: Vec<HANDLE> = Vec::new();
        let data = data(toy, &notice, &mut fences);
        notify(toy, data);
    }
    if !(toy.is("int-dpc") && toy.counted("int-dpc") == 0) {
        let _ = callback!(toy, DxgkCbQueueDpc(toy.device_handle()));
    }
    toy.count("int-dpc");
}

/// One call of DxgkCbNotifyInterrupt.
pub fn notify(toy: &Toy, mut data: DXGKARGCB_NOTIFY_INTERRUPT_DATA) {
    let _ = callback!(toy, DxgkCbNotifyInterrupt(toy.device_handle(), &raw mut data));
}

fn data(toy: &Toy, notice: &Notice, fences: &mut Vec<HANDLE>) -> DXGKARGCB_NOTIFY_INTERRUPT_DATA {
    use DXGK_INTERRUPT_TYPE as Type;
    let mut data = DXGKARGCB_NOTIFY_INTERRUPT_DATA::zeroed();
    match notice {
        Notice::Completed(fence) => {
            data.InterruptType = Type::DXGK_INTERRUPT_DMA_COMPLETED;
            let part = data.DmaCompleted_mut();
            part.SubmissionFenceId = *fence;
            part.NodeOrdinal = 1;
            let user = toy.state().created != 0;
            match toy.options.mutant {
                "int-fence" if user => part.SubmissionFenceId += 0x1000,
                "int-node" if user => part.NodeOrdinal = 7,
                "int-type" if user => part.NodeOrdinal = 0,
                "int-vsync" if user => {
                    let mut extra = DXGKARGCB_NOTIFY_INTERRUPT_DATA::zeroed();
                    extra.InterruptType = Type::DXGK_INTERRUPT_CRTC_VSYNC;
                    notify(toy, extra);
                }
                _ => (),
            }
            if user && toy.counted("wrong") == 0 && matches!(toy.options.mutant, "int-fence" | "int-node" | "int-type") {
                toy.count("wrong");
                notify(toy, data);
                let part = data.DmaCompleted_mut();
                part.SubmissionFenceId = *fence;
                part.NodeOrdinal = 1;
            } else if matches!(toy.options.mutant, "int-fence" | "int-node" | "int-type") {
                let part = data.DmaCompleted_mut();
                part.SubmissionFenceId = *fence;
                part.NodeOrdinal = 1;
            }
        }
        Notice::Preempted(fence, completed) => {
            data.InterruptType = Type::DXGK_INTERRUPT_DMA_PREEMPTED;
            let part = data.DmaPreempted_mut();
            part.PreemptionFenceId = *fence;
            part.LastCompletedFenceId = *completed;
            part.NodeOrdinal = 1;
        }
        Notice::Faulted(fence) => {
            data.InterruptType = Type::DXGK_INTERRUPT_DMA_FAULTED;
            let part = data.DmaFaulted_mut();
            part.FaultedFenceId = *fence;
            part.Status = STATUS_INVALID_PARAMETER;
            part.NodeOrdinal = 1;
        }
        Notice::PageFaulted(fence, address) => {
            data.InterruptType = Type::DXGK_INTERRUPT_DMA_PAGE_FAULTED;
            let part = data.DmaPageFaulted_mut();
            part.FaultedFenceId = *fence;
            part.FaultedVirtualAddress = *address;
            part.NodeOrdinal = 1;
        }
        Notice::Native(handles, queue) => {
            data.InterruptType = Type::DXGK_INTERRUPT_NATIVE_FENCE_SIGNALED;
            let part = data.NativeFenceSignaled_mut();
            if toy.options.optimized {
                part.hHWQueue = raw(if toy.is("int-native-queue") { 0x1234 } else { *queue });
            } else {
                fences.extend(handles.iter().map(|handle| raw(*handle as usize)));
                if toy.is("int-native-fence") {
                    fences.push(raw(0x1234));
                }
                part.SignaledNativeFenceCount = fences.len() as u32;
                part.pSignaledNativeFenceArray = fences.as_mut_ptr();
            }
        }
        Notice::Monitored => data.InterruptType = Type::DXGK_INTERRUPT_MONITORED_FENCE_SIGNALED,
        Notice::QueueFaulted(queue, fence, address) => {
            data.InterruptType = Type::DXGK_INTERRUPT_HWQUEUE_PAGE_FAULTED;
            let part = data.HwQueuePageFaulted_mut();
            part.FaultedFenceId = *fence;
            part.FaultedVirtualAddress = *address;
            part.set_FaultedHwQueue(raw(if toy.is("int-fault-handle") { 0x1234 } else { *queue as usize }));
            part.PageFaultFlags = match toy.options.mutant {
                "int-fatal" => DXGK_PAGE_FAULT_FLAGS::DXGK_PAGE_FAULT_FATAL_HARDWARE_ERROR,
                "int-fault-flags" => DXGK_PAGE_FAULT_FLAGS::DXGK_PAGE_FAULT_FENCE_INVALID,
                _ => DXGK_PAGE_FAULT_FLAGS(0),
            };
        }
        Notice::Suspended(context, fence) => {
            data.InterruptType = Type::DXGK_INTERRUPT_SUSPEND_CONTEXT_COMPLETED;
            let part = data.SuspendContextCompleted_mut();
            part.hContext = raw(*context as usize);
            part.ContextSuspendFence = *fence;
            if toy.is("int-suspend-fence") {
                let mut wrong = data;
                wrong.SuspendContextCompleted_mut().ContextSuspendFence = 1;
                notify(toy, wrong);
            }
        }
        Notice::ToF1 => {
            data.InterruptType = Type::DXGK_INTERRUPT_GPU_ENGINE_STATE_CHANGE;
            let state = if toy.is("int-engine-state") { 17 } else { 1 };
            data.EngineStateChange_mut().NewState = DXGK_ENGINE_STATE(state);
        }
    }
    data
}

/// The thread.
pub fn run(toy: &Arc<Toy>) {
    loop {
        if toy.stop.load(Ordering::Acquire) {
            return;
        }
        let mut worked = packets(toy);
        worked |= queues(toy);
        worked |= suspensions(toy);
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

/// Runs packets of node 1 to their end. True: something was done.
fn packets(toy: &Toy) -> bool {
    if let Some(fence) = {
        let mut state = toy.state();
        if state.packet_hung { None } else { state.preempt.take() }
    } {
        let mut state = toy.state();
        // Everything that has not run goes back.
        state.packets.clear();
        let completed = state.completed;
        state.notices.push_back(Notice::Preempted(fence, completed));
        return true;
    }
    let (packet, root) = {
        let state = toy.state();
        if state.packet_hung {
            return false;
        }
        let Some(packet) = state.packets.front().cloned() else { return false };
        let root = state.contexts.get(&packet.context).and_then(|context| context.root);
        (packet, root)
    };
    let Some(root) = root else {
        toy.error(format!("packet {:#x} of a context without a root", packet.fence));
        toy.state().packets.pop_front();
        return true;
    };
    let mut work = Work { address: packet.address, size: packet.size, at: packet.at, progress: 0 };
    let ended = run_commands(toy, root, &mut work, None);
    let mut state = toy.state();
    match ended {
        Ended::Done => {
            state.packets.pop_front();
            state.completed = packet.fence;
            let notice = if packet.paging && toy.is("int-system-fault") && toy.counted("faulted") == 0 {
                toy.count("faulted");
                Notice::Faulted(packet.fence)
            } else {
                Notice::Completed(packet.fence)
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
            if packet.paging {
                drop(state);
                toy.error(format!("paging packet {:#x} faulted at {address:#x}", packet.fence));
                state = toy.state();
            }
            state.notices.push_back(Notice::PageFaulted(packet.fence, address));
        }
    }
    true
}

/// Takes contexts off the run list that are to be suspended.
fn suspensions(toy: &Toy) -> bool {
    let mut state = toy.state();
    if state.node_hung || toy.is("suspend-ack") {
        return false;
    }
    let mut done = Vec::new();
    for context in state.contexts.values_mut() {
        if let Some(fence) = context.suspending.take() {
            context.suspended = true;
            done.push(Notice::Suspended(context.os, fence));
        }
    }
    let any = !done.is_empty();
    state.notices.extend(done);
    any
}

/// Runs the queues of node 0 until nothing moves.
fn queues(toy: &Toy) -> bool {
    let keys: Vec<_> = {
        let state = toy.state();
        if state.node_hung || state.stopped {
            return false;
        }
        let mut keys: Vec<_> = state.queues.keys().copied().collect();
        keys.sort_unstable();
        keys
    };
    let mut worked = false;
    for key in keys {
        worked |= run_queue(toy, key);
        if toy.state().node_hung {
            break;
        }
    }
    worked
}

fn run_queue(toy: &Toy, key: usize) -> bool {
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
    toy.state().running = key;
    let before = work.at;
    let ended = run_commands(toy, root, &mut work, Some(key));
    let mut state = toy.state();
    let Some(queue) = state.queues.get_mut(&key) else { return false };
    match ended {
        Ended::Done => {
            if work.progress != 0 {
                let (address, progress) = (queue.progress_gpu, work.progress);
                drop(state);
                signal(toy, root, key, address, progress, 0);
            }
            true
        }
        Ended::Blocked => {
            let moved = work.at != before;
            queue.current = Some(work);
            moved
        }
        Ended::Hung => {
            queue.current = Some(work);
            state.node_hung = true;
            false
        }
        Ended::Fault(address) => {
            queue.faulted = true;
            let os = queue.os;
            state.notices.push_back(Notice::QueueFaulted(os, 0, address));
            true
        }
    }
}

/// Takes the next entry of a ring: address and size of a command buffer.
fn fetch(toy: &Toy, key: usize, root: Root) -> Option<Work> {
    let (ring, control, read, connected) = {
        let state = toy.state();
        let queue = state.queues.get(&key)?;
        let bell = state.doorbells.values().find(|doorbell| doorbell.queue == key);
        (queue.ring, queue.control, queue.read, bell.is_some())
    };
    if ring == 0 || !connected {
        return None;
    }
    let written = toy.read(root, control)?;
    if written == read {
        return None;
    }
    let slot = ring + (read % 64) * 16;
    let (address, size) = (toy.read(root, slot)?, toy.read(root, slot + 8)?);
    toy.state().queues.get_mut(&key)?.read = read + 1;
    toy.store(root, control + 8, read + 1);
    Some(Work { address, size, ..Work::default() })
}

enum Ended {
    Done,
    Blocked,
    Hung,
    Fault(u64),
}

/// Runs commands until the end of a buffer.
fn run_commands(toy: &Toy, root: Root, work: &mut Work, queue: Option<usize>) -> Ended {
    while work.at + 8 <= work.size {
        let at = work.address + work.at;
        match run_command(toy, root, at, work.size - work.at, queue) {
            Ok(Some(length)) => work.at += length,
            Ok(None) => return Ended::Blocked,
            Err(None) => return Ended::Hung,
            Err(Some(address)) => return Ended::Fault(address),
        }
    }
    Ended::Done
}

/// One command: bytes that it has; `Ok(None)`: it waits; `Err(None)`: it hangs; `Err(Some)`: a fault.
fn run_command(toy: &Toy, root: Root, at: u64, room: u64, queue: Option<usize>) -> Result<Option<u64>, Option<u64>> {
    let get = |index: u64| {
        let address = at + index * 8;
        if (index + 1) * 8 > room { Err(Some(address)) } else { toy.read(root, address).ok_or(Some(address)) }
    };
    let code = get(0)?;
    match code {
        opcode::ENTRIES | opcode::REPEAT => {
            let (segment, table, first, count) = (get(1)?, get(2)?, get(3)?, get(4)?);
            for index in 0..count {
                let value = get(5 + if code == opcode::REPEAT { 0 } else { index })?;
                let address = table + (first + index) * 8;
                let place = if segment == BY_ADDRESS {
                    toy.translate(root, address, true)
                } else {
                    toy.segment_address(segment, address)
                };
                word(place.ok_or(Some(address))?).store(value, Ordering::Release);
            }
            Ok(Some((5 + if code == opcode::REPEAT { 1 } else { count }) * 8))
        }
        opcode::FLUSH => Ok(Some(8)),
        opcode::FILL => {
            let (address, size, pattern) = (get(1)?, get(2)?, get(3)?);
            let value = pattern | pattern << 32;
            for offset in (0..size).step_by(8) {
                toy.store(root, address + offset, value).ok_or(Some(address + offset))?;
            }
            Ok(Some(32))
        }
        opcode::COPY => {
            let (source, destination, size) = (get(1)?, get(2)?, get(3)?);
            for offset in (0..size).step_by(8) {
                let value = toy.read(root, source + offset).ok_or(Some(source + offset))?;
                toy.store(root, destination + offset, value).ok_or(Some(destination + offset))?;
            }
            Ok(Some(32))
        }
        opcode::WRITE => {
            let (address, value) = (get(1)?, get(2)?);
            toy.store(root, address, value).ok_or(Some(address))?;
            Ok(Some(24))
        }
        opcode::SIGNAL => {
            let (address, value, handle) = (get(1)?, get(2)?, get(3)?);
            let queue = queue.ok_or(Some(at))?;
            if !signal(toy, root, queue, address, value, handle) {
                return Err(Some(address));
            }
            Ok(Some(32))
        }
        opcode::SIGNAL_MONITORED => {
            let (address, value) = (get(1)?, get(2)?);
            toy.store(root, address, value).ok_or(Some(address))?;
            toy.state().notices.push_back(Notice::Monitored);
            Ok(Some(24))
        }
        opcode::WAIT => {
            let (address, value, handle) = (get(1)?, get(2)?, get(3)?);
            let dead = is_dead(&toy.state(), address);
            let now = toy.read(root, address).ok_or(Some(address))?;
            let queue = queue.ok_or(Some(at))?;
            if now >= value || dead {
                let observed = std::mem::take(&mut toy.state().queues.get_mut(&queue).ok_or(Some(at))?.waiting_since);
                log(toy, root, queue, 0, [value, handle | 1 << 32, 0, observed, 0]);
                return Ok(Some(32));
            }
            if toy.state().queues.get(&queue).is_some_and(|queue| queue.waiting_since == 0) {
                let time = toy.time();
                if let Some(queue) = toy.state().queues.get_mut(&queue) {
                    queue.waiting_since = time;
                }
            }
            Ok(None)
        }
        opcode::HANG => Err(None),
        opcode::LONG => {
            let wanted = get(1)?;
            let mut state = toy.state();
            state.worked += 1;
            Ok((state.worked > wanted).then_some(16))
        }
        opcode::IDLE => {
            toy.state().notices.push_back(Notice::ToF1);
            Ok(Some(8))
        }
        _ => Err(Some(at)),
    }
}

/// Whether a fence was declared dead, by the address of its current value.
fn is_dead(state: &State, current: u64) -> bool {
    state.fences.values().any(|fence| fence.always && fence.current.iter().any(|(_, known, _)| *known == current))
}

/// Signals a native fence: value, log, interrupt when somebody waits. A monitored one gets the value and an interrupt.
fn signal(toy: &Toy, root: Root, queue: usize, address: u64, value: u64, handle: u64) -> bool {
    let found = {
        let state = toy.state();
        state.fences.values().find_map(|fence| {
            let (_, _, monitored) = fence.current.iter().find(|(_, current, _)| *current == address)?;
            Some((fence.os, *monitored, fence.always))
        })
    };
    if found.is_some_and(|(.., always)| always) && !toy.is("nf-write-after") {
        return true;
    }
    if toy.store(root, address, value).is_none() {
        return false;
    }
    let Some((os, monitored, _)) = found else {
        toy.state().notices.push_back(Notice::Monitored);
        return true;
    };
    log(toy, root, queue, 1, [value, handle, 0, 0, 0]);
    fence(Ordering::SeqCst);
    let watched = toy.read(root, monitored).unwrap_or(0);
    if value > watched && !toy.is("nf-lost") {
        toy.state().notices.push_back(Notice::Native(vec![os], queue));
    }
    true
}

/// Writes a log entry: fence value, handle and operation, reserved, observed, reserved; the end is added here.
fn log(toy: &Toy, root: Root, queue: usize, which: usize, head: [u64; 5]) {
    let Some(mut log) = toy.state().queues.get(&queue).map(|queue| queue.logs[which]) else { return };
    if log.entries == 0 || log.gpu == 0 {
        return;
    }
    let entry = log.gpu + 40 + u64::from(log.index) * 48;
    let skip = toy.is("log-complete");
    for (index, word) in head.into_iter().enumerate() {
        if !skip {
            toy.store(root, entry + index as u64 * 8, word);
        }
    }
    let time = if toy.is("log-time") && toy.counted("logged") > 0 { 5 } else { toy.time() };
    toy.count("logged");
    if !skip {
        toy.store(root, entry + 40, time);
    }
    log.index += 1;
    if log.index == log.entries {
        log.index = 0;
        log.wraps += 1;
    }
    fence(Ordering::SeqCst);
    toy.store(root, log.gpu, u64::from(log.index) | u64::from(log.wraps) << 32);
    if toy.is("log-header") {
        toy.store(root, log.gpu + 16, 3);
    }
    if let Some(queue) = toy.state().queues.get_mut(&queue) {
        queue.logs[which] = log;
    }
}
