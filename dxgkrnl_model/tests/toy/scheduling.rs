//! The scheduling log of each node 0.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use wddm_abi::ntstatus::{STATUS_SUCCESS, STATUS_UNSUCCESSFUL};
use wddm_abi::{DRIVER_INITIALIZATION_DATA, DXGKARG_SETSCHEDULINGLOGBUFFER, HANDLE, NTSTATUS, win_extern};

use super::gpu::word;
use super::{Notice, Toy, UNKNOWN, input, number, owner};

/// States of `DXGK_SCHEDULING_LOG_CONTEXT_STATE` that the toy logs.
pub const IDLE: u64 = 0;
pub const RUNNING: u64 = 1;
pub const READY: u64 = 2;

/// The log that Dxgkrnl gave, and how far it is written.
#[derive(Debug, Default)]
pub struct Log {
    address: usize,
    /// Address of the log before it, to which a mutant writes.
    old: usize,
    entries: u64,
    interrupt: u64,
    index: u64,
    wraps: u64,
    states: HashMap<usize, u64>,
}

impl Toy {
    /// Logs that a context of node 0 changes its state; the state that it is in already is not logged.
    pub fn schedules(&self, context: usize, new: u64) {
        let mut state = self.state();
        let Some((os, engine)) = state.contexts.get(&context).map(|context| (context.os, context.engine)) else {
            return;
        };
        let state = &mut state.engines[engine];
        let log = &mut state.scheduling;
        if log.address == 0 || log.states.get(&context).copied().unwrap_or(IDLE) == new || self.is("slog-ran") {
            return;
        }
        log.states.insert(context, new);
        let mut due = self.is("slog-int");
        for _ in 0..if self.is("slog-change") { 2 } else { 1 } {
            let time = if self.is("slog-time") { 1_000_000 - self.time() } else { self.time() };
            due |= log.write([time, 0, context as u64, new]);
        }
        if self.is("slog-entry") {
            let time = self.time();
            due |= log.write([time, 0, os, new]);
        }
        if self.is("slog-header") {
            word(log.address + 16).store(1, Ordering::SeqCst);
        }
        if self.is("slog-stale") && log.old != 0 {
            word(log.old + 32).store(time_of(new), Ordering::SeqCst);
        }
        let later = self.is("slog-int-lost-later") && self.counted("scheduling interrupt") != 0;
        if due && !self.is("slog-int-lost") && !later && !state.stopped {
            self.count("scheduling interrupt");
            state.notices.push_back(Notice::Scheduling);
        }
    }
}

fn time_of(state: u64) -> u64 {
    0x5_0000_0000 + state
}

impl Log {
    /// Writes an entry. Returns whether it is the one that interrupts.
    fn write(&mut self, words: [u64; 4]) -> bool {
        let at = self.address + 32 + self.index as usize * 32;
        for (index, value) in words.into_iter().enumerate() {
            word(at + index * 8).store(value, Ordering::SeqCst);
        }
        let due = self.index == self.interrupt;
        self.index += 1;
        if self.index == self.entries {
            (self.index, self.wraps) = (0, self.wraps + 1);
        }
        word(self.address).store(self.wraps << 32 | self.index, Ordering::SeqCst);
        due
    }
}

pub fn fill(table: &mut DRIVER_INITIALIZATION_DATA) {
    table.DxgkDdiSetSchedulingLogBuffer = Some(set_log);
}

win_extern! {
    fn set_log(adapter: HANDLE, arguments: *const DXGKARG_SETSCHEDULINGLOGBUFFER) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return UNKNOWN };
        let arguments = input(arguments);
        let mut state = toy.state();
        let Some(state) = state.engines.get_mut(arguments.EngineOrdinal as usize) else { return UNKNOWN };
        if toy.is("resume-status-log") {
            return STATUS_UNSUCCESSFUL;
        }
        let states = std::mem::take(&mut state.scheduling.states);
        if arguments.NodeOrdinal == 0 {
            state.scheduling = Log {
                address: number(arguments.LogBufferCpuVa.cast()),
                old: state.scheduling.address,
                entries: arguments.NumberOfEntries.into(),
                interrupt: arguments.InterruptEntry.into(),
                states,
                ..Log::default()
            };
        }
        STATUS_SUCCESS
    }
}
