//! One scheduling log: its memory, what is new in it, and what is to be said of that.
//!
//! The GPU goes on writing while a log is read. So the header is read again after the entries: entries that were
//! counted meanwhile lie over the oldest ones, and the slot behind the newest entry may be half written at any time.

use std::sync::Arc;

use wddm_abi::{
    DXGK_SCHEDULING_LOG_CONTEXT_STATE, DXGK_SCHEDULING_LOG_ENTRY, DXGK_SCHEDULING_LOG_HEADER,
    DXGK_SCHEDULING_LOG_OPERATION, Plain,
};

use super::{KEPT, SchedulingRecord, State};
use crate::memory::Manager;
use crate::memory::pages::Block;
use crate::memory::va::{PAGE, Protection};
use crate::port::miniport::Miniport;
use crate::port::rules::scheduling::{SLOG_CHANGE, SLOG_ENTRY, SLOG_HEADER, SLOG_TIME};

/// Byte offset of the first entry.
const ENTRIES: usize = size_of::<DXGK_SCHEDULING_LOG_HEADER>();
/// Bytes of an entry.
const ENTRY: usize = size_of::<DXGK_SCHEDULING_LOG_ENTRY>();
/// What each word of an unwritten entry holds: the page says that a driver finds entries uninitialized.
const UNWRITTEN: u64 = 0xE1E1_E1E1_E1E1_E1E1;

/// The memory of one log, and how far it was read.
#[derive(Debug)]
pub(super) struct Buffer {
    block: Block,
    /// Where the paging process sees it; 0 where it does not.
    gpu: u64,
    entries: u32,
    /// Entries that were read.
    seen: u64,
    /// The time of the entry that was read last.
    last: u64,
}

impl Buffer {
    /// Memory for `entries`, mapped for the GPU. On the paging worker.
    pub(super) fn make(adapter: &Arc<Miniport>, manager: &Arc<Manager>, entries: u32) -> Option<Self> {
        let bytes = ENTRIES + entries as usize * ENTRY;
        let block = manager.pool.allocate_block(bytes.div_ceil(nt_model::PAGE_SIZE))?;
        for word in (0..block.bytes()).step_by(8) {
            crate::port::raw::store(block.address() + word, UNWRITTEN);
        }
        let mut header = DXGK_SCHEDULING_LOG_HEADER::zeroed();
        header.NumberOfEntries = entries.into();
        crate::port::raw::copy_to(block.address(), header.as_bytes());
        let pages = block.bytes() as u64 / PAGE;
        // CAST: as many pages as the block has.
        let frames = (0..pages as usize).map(|page| block.object().frame(page)).collect();
        // An adapter without page tables of its own has no such address.
        let gpu = manager.map_for_system(adapter, frames, Protection::READ_WRITE).unwrap_or(0);
        Some(Self { block, gpu, entries, seen: 0, last: 0 })
    }

    /// Kernel address.
    pub(super) fn address(&self) -> usize {
        self.block.address()
    }

    /// Address in the paging process, 0 for none; and the number of pages.
    pub(super) fn place(&self) -> (u64, u64) {
        (self.gpu, self.block.bytes() as u64 / PAGE)
    }

    /// `InterruptEntry`: in the middle, so that half a log is left to be written until the interrupt is served.
    pub(super) fn interrupt(&self) -> u32 {
        self.entries / 2
    }

    /// A copy of the whole log, header and entries.
    pub(super) fn bytes(&self) -> Vec<u8> {
        crate::port::raw::bytes_at(self.address(), self.block.bytes())
    }

    /// FirstFreeEntryIndex and WraparoundCount as they are now: one 64-bit word, read as one.
    fn position(&self) -> (u64, u64) {
        let word = crate::port::raw::load(self.address());
        (word & u64::from(u32::MAX), word >> 32)
    }

    /// Entries that were written in all, those that were overwritten included.
    fn written(&self) -> u64 {
        let (index, wraps) = self.position();
        wraps * u64::from(self.entries) + index
    }

    /// Whether anything was written.
    pub(super) fn is_used(&self) -> bool {
        self.written() != 0
    }

    /// How often the interrupt's entry was written.
    pub(super) fn reached(&self) -> u64 {
        let (index, wraps) = self.position();
        wraps + u64::from(index > self.interrupt().into())
    }

    fn entry(&self, sequence: u64) -> DXGK_SCHEDULING_LOG_ENTRY {
        // CAST: below the number of entries.
        let at = (sequence % u64::from(self.entries)) as usize;
        let bytes = crate::port::raw::bytes_at(self.address() + ENTRIES + at * ENTRY, ENTRY);
        DXGK_SCHEDULING_LOG_ENTRY::from_bytes(&bytes).unwrap_or_else(DXGK_SCHEDULING_LOG_ENTRY::zeroed)
    }

    /// A description of the header; `None`: it is sound.
    fn unsound(&self) -> Option<String> {
        let bytes = crate::port::raw::bytes_at(self.address(), ENTRIES);
        let header = DXGK_SCHEDULING_LOG_HEADER::from_bytes(&bytes)?;
        let (index, wraps) = self.position();
        let sound = header.NumberOfEntries == u64::from(self.entries)
            && header.Reserved == [0; 2]
            && index < u64::from(self.entries)
            && self.written() >= self.seen;
        let said = || format!("index {index}, count {wraps} after {} entries; {header:?}", self.seen);
        (!sound).then(said)
    }
}

/// What is to be said of an entry.
#[derive(Debug)]
struct Finding {
    text: String,
    written: bool,
    /// Whether it says another state than the context's entry before; `None`: that entry is not known.
    changes: Option<bool>,
    ordered: bool,
}

/// What is to be said of a reading. Its rules are checked after the lock was released.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    node: u32,
    read: bool,
    unsound: Option<String>,
    findings: Vec<Finding>,
}

impl Verdict {
    pub(super) fn judge(self, adapter: &Miniport) {
        let (rules, node) = (adapter.rules(), self.node);
        if self.read {
            rules.check(&SLOG_HEADER, self.unsound.is_none(), || {
                format!("node {node}: {}", self.unsound.unwrap_or_default())
            });
        }
        for finding in self.findings {
            let text = || format!("node {node}: {}", finding.text);
            rules.check(&SLOG_ENTRY, finding.written, text);
            if finding.written {
                rules.check(&SLOG_TIME, finding.ordered, text);
                rules.check(&SLOG_CHANGE, finding.changes != Some(false), text);
            }
        }
    }
}

/// Reads what is new in the current log. `making`: the driver may name contexts that the model does not know yet.
pub(super) fn read(node: u32, state: &mut State, making: bool) -> Verdict {
    let mut verdict = Verdict { node, ..Verdict::default() };
    let Some(mut buffer) = state.current.take() else { return verdict };
    verdict.read = true;
    verdict.unsound = buffer.unsound();
    if verdict.unsound.is_none() {
        read_entries(node, state, &mut buffer, making, &mut verdict);
    } else {
        forget(state);
    }
    state.current = Some(buffer);
    verdict
}

/// Forgets the states of all contexts, since entries are lost.
fn forget(state: &mut State) {
    for known in state.contexts.values_mut() {
        (known.state, known.excused) = (None, true);
    }
    state.usage.forget();
}

fn read_entries(node: u32, state: &mut State, buffer: &mut Buffer, making: bool, verdict: &mut Verdict) {
    let total = u64::from(buffer.entries);
    let end = buffer.written();
    let oldest = buffer.seen.max(end.saturating_sub(total));
    let copies: Vec<_> = (oldest..end).map(|sequence| (sequence, buffer.entry(sequence))).collect();
    let now = buffer.written().max(end);
    // The slot of the next entry may be half written.
    let kept: Vec<_> = copies.into_iter().filter(|(sequence, _)| sequence + total > now).collect();
    if kept.first().map_or(end, |(sequence, _)| *sequence) != buffer.seen {
        forget(state);
    }
    for (_, entry) in &kept {
        let change = entry.ContextStateChange();
        let (handle, new) = (change.hKmdContext.expose_provenance(), change.newContextState);
        let known = state.contexts.get_mut(&handle);
        let fits = entry.OperationType()
            == DXGK_SCHEDULING_LOG_OPERATION::DXGK_SCHEDULING_LOG_OPERATION_CONTEXT_STATE_CHANGE.0 as u32
            && entry.ReservedOperationTypeBits() == 0
            && (0..=DXGK_SCHEDULING_LOG_CONTEXT_STATE::DXGK_SCHEDULING_LOG_CONTEXT_STATE_READY_STANDBY.0)
                .contains(&new.0);
        verdict.findings.push(Finding {
            text: format!("context {handle:#x} becomes {new:?} at {}, after {}", entry.GpuTimeStamp, buffer.last),
            written: fits && entry.GpuTimeStamp != UNWRITTEN && (known.is_some() || making),
            changes: known.as_ref().and_then(|known| known.state).map(|old| old != new.0),
            ordered: entry.GpuTimeStamp >= buffer.last,
        });
        if let Some(known) = known {
            known.state = Some(new.0);
            let runs = new == DXGK_SCHEDULING_LOG_CONTEXT_STATE::DXGK_SCHEDULING_LOG_CONTEXT_STATE_RUNNING;
            known.ran |= runs;
            state.usage.entry(handle, known.process, runs, entry.GpuTimeStamp);
        }
        buffer.last = buffer.last.max(entry.GpuTimeStamp);
        if state.records.len() < KEPT {
            state.records.push(SchedulingRecord { node, context: handle, state: new.0, time: entry.GpuTimeStamp });
        }
    }
    buffer.seen = end;
}
