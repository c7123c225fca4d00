//! The GPU's side: executes what was published or submitted, and writes down what is wrong about it.

use super::os::{Queue, Submission, World};
use gpu_wire::GpuVa;
use gpu_wire::packet::{HEADER_SIZE, Header, MAX_SIZE, Packet, Privilege, log_operation, opcode};
use gpu_wire::ring::{Geometry, READ_POINTER};
use std::sync::atomic::Ordering;
use umd_core::command_list::LOG_ENTRIES;

/// How a stream came to rest.
#[derive(PartialEq, Eq)]
enum Rest {
    Drained,
    Parked,
    Stopped,
}

impl World {
    /// Runs all queues until nothing goes on.
    pub fn run(&mut self) {
        if !self.gpu_runs {
            return;
        }
        loop {
            let before = self.progress_sum();
            let handles: Vec<u32> = self.queues.keys().copied().collect();
            for handle in handles {
                self.run_queue(handle);
            }
            if self.progress_sum() == before {
                return;
            }
        }
    }

    fn progress_sum(&self) -> usize {
        self.queues.values().map(|queue| queue.executed.len() + usize::from(queue.parked.is_some())).sum()
    }

    fn run_queue(&mut self, handle: u32) {
        let Some(mut queue) = self.queues.remove(&handle) else { return };
        if let Some((va, value)) = queue.parked {
            if self.read_word(va) < value {
                self.queues.insert(handle, queue);
                return;
            }
            queue.parked = None;
        }
        if queue.user_mode {
            self.run_ring(&mut queue);
        } else {
            self.run_buffers(&mut queue);
        }
        self.queues.insert(handle, queue);
    }

    fn read_word(&mut self, va: GpuVa) -> u64 {
        self.translate(va, 8).map_or(0, |(block, offset)| block.word(offset).load(Ordering::Acquire))
    }

    /// The ring: looked at when the doorbell rang while it was connected, or when the queue was parked.
    fn run_ring(&mut self, queue: &mut Queue) {
        let Some(doorbell) = &queue.doorbell else { return };
        let rang = doorbell.word.swap(0, Ordering::AcqRel) != 0;
        let looked_at = rang && doorbell.connected && doorbell.status.load(Ordering::Relaxed) == 0;
        if !looked_at && queue.resume.is_none() {
            return;
        }
        queue.resume = None;
        self.consume(queue);
    }

    /// Consumes what is published. Also what a KMD does at connect and notify.
    pub fn consume(&mut self, queue: &mut Queue) {
        let Some(doorbell) = &queue.doorbell else { return };
        let (ring, control) = (self.memory[&doorbell.ring].clone(), self.memory[&doorbell.control].clone());
        let last_queued = doorbell.last_queued;
        let geometry = Geometry::new(ring.data.size).unwrap();
        let published = control.block.word(0).load(Ordering::Acquire);
        let mut left = match geometry.pending(published, queue.consumed) {
            Ok(left) => left,
            Err(error) => {
                self.complain(format!("write pointer {published:#x}: {error:?}"));
                return;
            }
        };
        if left != 0 && last_queued.load(Ordering::Acquire) <= queue.last_progress {
            self.complain("work is visible that the OS does not know is queued");
        }
        while left != 0 {
            let mut copy = [0; MAX_SIZE];
            let read = |at: u64, to: &mut [u8]| {
                let spans = geometry.spans(at, to.len() as u64);
                let (first, second) = to.split_at_mut(spans.first_len as usize);
                ring.block.read(spans.first, first);
                ring.block.read(0, second);
            };
            read(queue.consumed, &mut copy[..HEADER_SIZE]);
            let header = Header::read(copy.first_chunk().unwrap());
            let Ok(length) = header.check_length(left) else {
                self.complain(format!("bad length {} at {:#x}", header.length, queue.consumed));
                return;
            };
            let bytes = if header.opcode == opcode::NOP { HEADER_SIZE } else { length as usize };
            read(queue.consumed, &mut copy[..bytes]);
            queue.consumed += length;
            left -= length;
            let rest = self.execute(queue, &copy[..bytes]);
            control.block.word(READ_POINTER as u64).store(queue.consumed, Ordering::Release);
            match rest {
                Rest::Drained => {}
                Rest::Parked => {
                    queue.resume = Some((GpuVa(0), 0));
                    return;
                }
                Rest::Stopped => return,
            }
        }
        self.check_end(queue);
        if queue.last_progress > last_queued.load(Ordering::Acquire) {
            self.complain("progress went beyond what was queued");
        }
    }

    /// Kernel-mode submissions, in order.
    fn run_buffers(&mut self, queue: &mut Queue) {
        if let Some((at, end)) = queue.resume.take()
            && self.buffer(queue, at, end) != Rest::Drained
        {
            return;
        }
        while let Some(next) = queue.submitted.front().copied() {
            match next {
                Submission::Wait { fence, value } => {
                    if self.value(fence) < value {
                        return;
                    }
                    queue.submitted.pop_front();
                }
                Submission::Signal { fence, value } => {
                    queue.submitted.pop_front();
                    if fence == queue.progress {
                        queue.last_progress = value;
                    }
                    self.signal(fence, value);
                }
                Submission::Buffer { address, length, progress } => {
                    queue.submitted.pop_front();
                    if self.buffer(queue, address, address.0 + length) != Rest::Drained {
                        return;
                    }
                    if queue.last_progress > progress {
                        self.complain("a command buffer signaled more than its progress value");
                    }
                    if queue.submitted.is_empty() {
                        self.check_end(queue);
                    }
                }
            }
        }
    }

    /// Executes a command buffer from `at` to `end`.
    fn buffer(&mut self, queue: &mut Queue, mut at: GpuVa, mut end: u64) -> Rest {
        while at.0 < end {
            let mut copy = [0; MAX_SIZE];
            let Some((block, offset)) = self.translate(at, HEADER_SIZE as u64) else {
                self.complain(format!("no translation for {at:x}"));
                return Rest::Stopped;
            };
            block.read(offset, &mut copy[..HEADER_SIZE]);
            let header = Header::read(copy.first_chunk().unwrap());
            let Ok(length) = header.check_length(end - at.0) else {
                self.complain(format!("bad length {} at {at:x}", header.length));
                return Rest::Stopped;
            };
            let bytes = if header.opcode == opcode::NOP { HEADER_SIZE } else { length as usize };
            block.read(offset, &mut copy[..bytes]);
            at = GpuVa(at.0 + length);
            // There is no stack: a jump replaces the command buffer.
            if let Ok(Packet::Indirect(jump)) = Packet::decode(&copy[..bytes], Privilege::User) {
                queue.executed.push(Packet::Indirect(jump));
                (at, end) = (GpuVa(jump.address), jump.address + jump.length);
                continue;
            }
            match self.execute(queue, &copy[..bytes]) {
                Rest::Drained => {}
                Rest::Parked => {
                    queue.resume = Some((at, end));
                    return Rest::Parked;
                }
                Rest::Stopped => return Rest::Stopped,
            }
        }
        Rest::Drained
    }

    /// Whoever comes to the end has just heard that a submission is done.
    fn check_end(&mut self, queue: &Queue) {
        let progress = self.fences.get(&queue.progress).map(|fence| fence.gpu_va.0);
        let last = queue.executed.last();
        let ends = match last {
            Some(Packet::Log(log)) => log.fence_handle == queue.progress && log.value == queue.last_progress,
            Some(Packet::MonitoredSignal(signal)) => Some(signal.address) == progress,
            _ => false,
        };
        if !ends {
            self.complain(format!("the last packet is not the progress fence's: {last:?}"));
        }
    }

    fn execute(&mut self, queue: &mut Queue, bytes: &[u8]) -> Rest {
        let packet = match Packet::decode(bytes, Privilege::User) {
            Ok(Packet::TableWrite(..) | Packet::TableCopy(_) | Packet::TlbFlush(_)) | Err(_) => {
                self.complain(format!("bad packet {bytes:02x?}"));
                return Rest::Stopped;
            }
            Ok(packet) => own(packet),
        };
        let progress = self.fences.get(&queue.progress).map(|fence| fence.gpu_va);
        let Ok((packet, log)) = packet.split(progress) else {
            self.complain(format!("PROGRESS without a progress fence: {bytes:02x?}"));
            return Rest::Stopped;
        };
        let rest = self.perform(queue, packet);
        if let Some(log) = log.map(Packet::Log) {
            // An entry in the packet itself: as the LOG behind it.
            self.check_log(queue, &log);
            queue.executed.push(log);
        }
        rest
    }

    fn perform(&mut self, queue: &mut Queue, packet: Packet<'static>) -> Rest {
        self.check_log(queue, &packet);
        queue.executed.push(packet);
        match packet {
            Packet::Nop => {}
            Packet::Store(b) => self.store(GpuVa(b.address), &b.value.to_le_bytes()),
            Packet::Store32(b) => self.store(GpuVa(b.address), &(b.value as u32).to_le_bytes()),
            Packet::Timestamp(b) => self.store(GpuVa(b.address), &self.time.to_le_bytes()),
            Packet::Fill(b) => {
                let pattern = b.pattern.to_le_bytes();
                let bytes: Vec<u8> = (0..b.length as usize).map(|i| pattern[i % 4]).collect();
                self.store(GpuVa(b.address), &bytes);
            }
            Packet::Copy(b) => self.copy(b.source, b.destination, b.length),
            Packet::CopyRect(b) => {
                for row in 0..u64::from(b.rows) {
                    let source = b.source + row * u64::from(b.source_pitch);
                    let destination = b.destination + row * u64::from(b.destination_pitch);
                    self.copy(source, destination, b.row_bytes.into());
                }
            }
            Packet::FenceWait(b) => {
                queue.waits += 1;
                if self.read_word(GpuVa(b.fence)) < b.value {
                    queue.parked = Some((GpuVa(b.fence), b.value));
                    return Rest::Parked;
                }
            }
            Packet::FenceSignal(b) => {
                queue.signals += 1;
                self.signal_at(queue, GpuVa(b.fence), b.value, true);
            }
            Packet::MonitoredSignal(b) => {
                // The mock's engines can either all write monitored fences or none.
                let unable = self.adapters[0].info.is_some_and(|info| info.software_signal_nodes != 0);
                if unable && self.fence_at(GpuVa(b.address)) != Some(queue.progress) {
                    self.complain("a packet signals a monitored fence, which the engine cannot");
                }
                self.signal_at(queue, GpuVa(b.address), b.value, false);
            }
            Packet::Indirect(b) => return self.buffer(queue, GpuVa(b.address), b.address + b.length),
            Packet::FilterRect(_) | Packet::Log(_) => {}
            Packet::TableWrite(..) | Packet::TableCopy(_) | Packet::TlbFlush(_) => unreachable!("refused above"),
            Packet::FenceWaitLogged(_) | Packet::FenceSignalLogged(_) | Packet::Progress(_) => {
                unreachable!("taken apart above")
            }
        }
        Rest::Drained
    }

    fn signal_at(&mut self, queue: &mut Queue, va: GpuVa, value: u64, native: bool) {
        let Some(fence) = self.fence_at(va) else {
            self.complain(format!("{va:x} is no fence"));
            return;
        };
        if self.fences[&fence].native != native {
            self.complain(format!("fence {fence:#x} is signaled as one of the other kind"));
        }
        if fence == queue.progress {
            if value <= queue.last_progress {
                self.complain(format!("progress {value} again, after {}", queue.last_progress));
            }
            queue.last_progress = value;
        }
        self.signal(fence, value);
    }

    /// Every native operation is followed by its LOG, and every LOG follows one and counts on.
    fn check_log(&mut self, queue: &Queue, packet: &Packet<'_>) {
        let pending = match queue.executed.last() {
            Some(Packet::FenceWait(b)) => Some((b.fence, b.value, log_operation::WAIT_UNBLOCKED, queue.waits)),
            Some(Packet::FenceSignal(b)) => Some((b.fence, b.value, log_operation::SIGNAL_EXECUTED, queue.signals)),
            _ => None,
        };
        match (pending, packet) {
            (None, Packet::Log(log)) => self.complain(format!("LOG after nothing: {log:?}")),
            (Some((va, value, operation, count)), Packet::Log(log)) => {
                let fence = self.fence_at(GpuVa(va)).unwrap_or(0);
                if (log.fence_handle, log.value, log.operation) != (fence, value, operation) {
                    self.complain(format!("LOG of something else: {log:?}"));
                }
                let index = (count - 1) % LOG_ENTRIES;
                if u64::from(log.index_hint) != index {
                    self.complain(format!("index hint {} and not {index}", log.index_hint));
                }
            }
            (Some(_), other) => self.complain(format!("no LOG but {other:?}")),
            (None, _) => {}
        }
    }

    fn store(&mut self, va: GpuVa, bytes: &[u8]) {
        match self.translate(va, bytes.len() as u64) {
            Some((block, offset)) => block.write(offset, bytes),
            None => self.complain(format!("no translation for {va:x}")),
        }
    }

    fn copy(&mut self, source: u64, destination: u64, length: u64) {
        let mut bytes = vec![0; length as usize];
        match self.translate(GpuVa(source), length) {
            Some((block, offset)) => block.read(offset, &mut bytes),
            None => self.complain(format!("no translation for {source:#x}")),
        }
        self.store(GpuVa(destination), &bytes);
    }
}

/// The packet without its borrow: packets about page tables, of which one kind has one, are refused before.
fn own(packet: Packet<'_>) -> Packet<'static> {
    match packet {
        Packet::Nop | Packet::TableWrite(..) | Packet::TableCopy(_) => Packet::Nop,
        Packet::Store(b) => Packet::Store(b),
        Packet::Store32(b) => Packet::Store32(b),
        Packet::Fill(b) => Packet::Fill(b),
        Packet::Copy(b) => Packet::Copy(b),
        Packet::CopyRect(b) => Packet::CopyRect(b),
        Packet::FilterRect(b) => Packet::FilterRect(b),
        Packet::FenceWait(b) => Packet::FenceWait(b),
        Packet::FenceSignal(b) => Packet::FenceSignal(b),
        Packet::Log(b) => Packet::Log(b),
        Packet::Timestamp(b) => Packet::Timestamp(b),
        Packet::Indirect(b) => Packet::Indirect(b),
        Packet::MonitoredSignal(b) => Packet::MonitoredSignal(b),
        Packet::TlbFlush(b) => Packet::TlbFlush(b),
        Packet::FenceWaitLogged(b) => Packet::FenceWaitLogged(b),
        Packet::FenceSignalLogged(b) => Packet::FenceSignalLogged(b),
        Packet::Progress(b) => Packet::Progress(b),
    }
}
