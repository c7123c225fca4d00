//! What commands do.

use std::sync::atomic::{Ordering, fence};

use super::gpu::{BY_ADDRESS, opcode, word};
use super::{Notice, Root, State, Toy, Work};

/// How a buffer ended.
pub enum Ended {
    Done,
    Blocked,
    Hung,
    Fault(u64),
}

/// Runs commands until the end of a buffer.
pub fn run_commands(toy: &Toy, root: Root, work: &mut Work, queue: Option<usize>) -> Ended {
    while work.at + 8 <= work.size {
        let at = work.address + work.at;
        match run_command(toy, work.engine, root, at, work.size - work.at, queue) {
            Ok(Some(length)) => work.at += length,
            Ok(None) => return Ended::Blocked,
            Err(None) => return Ended::Hung,
            Err(Some(address)) => return Ended::Fault(address),
        }
    }
    Ended::Done
}

/// One command: bytes that it has; `Ok(None)`: it waits; `Err(None)`: it hangs; `Err(Some)`: a fault.
fn run_command(
    toy: &Toy,
    engine: usize,
    root: Root,
    at: u64,
    room: u64,
    queue: Option<usize>,
) -> Result<Option<u64>, Option<u64>> {
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
            signal_monitored(toy, engine, root, address, value).ok_or(Some(address))?;
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
            toy.state().engines[engine].notices.push_back(Notice::ToF1);
            Ok(Some(8))
        }
        _ => Err(Some(at)),
    }
}

/// Whether a fence was declared dead, by the address of its current value.
fn is_dead(state: &State, current: u64) -> bool {
    state.fences.values().any(|fence| fence.always && fence.current.iter().any(|(_, known, _)| *known == current))
}

/// Signals a monitored fence: as many bits as this GPU stores in one piece, and an interrupt, if it raises any.
fn signal_monitored(toy: &Toy, engine: usize, root: Root, address: u64, value: u64) -> Option<()> {
    if toy.options.narrow {
        toy.store_low(root, address, value as u32)?;
    } else {
        toy.store(root, address, value)?;
    }
    if !toy.options.silent {
        toy.state().engines[engine].notices.push_back(Notice::Monitored);
    }
    Some(())
}

/// Signals a native fence: value, log, interrupt when somebody waits. A monitored one gets the value and an interrupt.
pub fn signal(toy: &Toy, root: Root, queue: usize, address: u64, value: u64, handle: u64) -> bool {
    let found = {
        let state = toy.state();
        let opened = state.fences.values().find_map(|fence| {
            let (_, _, monitored) = fence.current.iter().find(|(_, current, _)| *current == address)?;
            Some((fence.os, (root, *monitored), fence.always))
        });
        // A progress fence that was not opened: the paging process sees it as well.
        opened.or_else(|| {
            let queue = state.queues.get(&queue).filter(|queue| queue.progress_gpu == address)?;
            let fence = state.fences.get(&queue.progress_fence)?;
            let paging = state.paging_root()?;
            Some((fence.os, (paging, fence.system.1), fence.always))
        })
    };
    if found.is_some_and(|(.., always)| always) {
        return true;
    }
    let Some((os, monitored, _)) = found else {
        let engine = toy.state().engine_of(queue);
        return signal_monitored(toy, engine, root, address, value).is_some();
    };
    if toy.store(root, address, value).is_none() {
        return false;
    }
    log(toy, root, queue, 1, [value, handle, 0, 0, 0]);
    fence(Ordering::SeqCst);
    let watched = toy.read(monitored.0, monitored.1).unwrap_or(0);
    if value > watched && !toy.is("nf-lost") {
        let mut state = toy.state();
        // A queue that was destroyed meanwhile is not named in an interrupt.
        if state.queues.contains_key(&queue) {
            let engine = state.engine_of(queue);
            state.engines[engine].notices.push_back(Notice::Native(vec![os], queue));
        }
    }
    true
}

/// The paging process must see the same entry.
fn same_in_system(toy: &Toy, root: Root, log: &super::Log, entry: u64) {
    let paging = toy.state().paging_root();
    let (Some(paging), true) = (paging, log.system != 0) else { return };
    for offset in (0..48).step_by(8) {
        let there = toy.read(paging, log.system + (entry - log.gpu) + offset);
        let here = toy.read(root, entry + offset);
        if there != here {
            toy.error(format!("entry {}: {there:?} in the paging process, {here:?} in the queue's", log.index));
        }
    }
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
    let mut time = if toy.is("log-time") { 1_000_000 - toy.time() } else { toy.time() };
    toy.count("logged");
    if toy.options.skips_writes {
        // By turns: as it is, with the end of an entry before, without an end, without any time.
        match toy.counted("logged") % 4 {
            2 => time = toy.last_logged.load(Ordering::Relaxed).max(head[3]),
            3 => time = 0,
            0 => {
                time = 0;
                toy.store(root, entry + 24, 0);
            }
            _ => (),
        }
        toy.last_logged.fetch_max(time, Ordering::Relaxed);
    }
    if !skip {
        toy.store(root, entry + 40, time);
    }
    same_in_system(toy, root, &log, entry);
    log.index += 1;
    if log.index == log.entries {
        log.index = 0;
        log.wraps += 1;
    }
    fence(Ordering::SeqCst);
    toy.store(root, log.gpu, u64::from(log.index) | u64::from(log.wraps) << 32);
    if toy.is("log-header-index") {
        toy.store(root, log.gpu, u64::from(log.entries) | u64::from(log.wraps) << 32);
    }
    if toy.is("log-header") {
        toy.store(root, log.gpu + 16, 3);
    }
    if let Some(queue) = toy.state().queues.get_mut(&queue) {
        queue.logs[which] = log;
    }
}
