//! What the driver says by its private escapes: the engines' counters, and what its start was like.

use crate::{Process, call};
use anyhow::{Context, Result};
use gpu_wire::private::Rung;
pub use gpu_wire::private::{EscapeCounters, EscapeStart};
use gpu_wire::private::{EscapeHeader, MAGIC, escape_command};
use wddm_abi::{
    D3DKMT_CLOSEADAPTER, D3DKMT_ESCAPE, D3DKMT_ESCAPETYPE, D3DKMT_HANDLE, D3DKMT_OPENADAPTERFROMLUID, LUID,
};

/// Makes the call `D3DKMTEscape` with a record.
type Send<'a> = &'a mut dyn FnMut(&mut D3DKMT_ESCAPE) -> Result<()>;

/// The counters, of an adapter that is open.
///
/// # Errors
/// When the driver refuses the escape, or its answer is no block of counters.
pub fn counters(adapter: D3DKMT_HANDLE, send: Send<'_>) -> Result<EscapeCounters> {
    let block = ask(adapter, escape_command::COUNTERS, size_of::<EscapeCounters>(), send)?;
    EscapeCounters::read(&block).context("the counters' escape returned something else")
}

/// Which features and queries the OS asked for at the start, what the driver answered and what the OS granted; of an
/// adapter that is open.
///
/// # Errors
/// When the driver refuses the escape, or its answer is no block of that kind.
pub fn start(adapter: D3DKMT_HANDLE, send: Send<'_>) -> Result<EscapeStart> {
    let block = ask(adapter, escape_command::START, size_of::<EscapeStart>(), send)?;
    EscapeStart::read(&block).context("the start's escape returned something else")
}

/// Asks for `command` with a block of `size` bytes, and returns the block.
///
/// # Errors
/// When the driver refuses the escape.
pub fn ask(adapter: D3DKMT_HANDLE, command: u32, size: usize, send: Send<'_>) -> Result<Vec<u8>> {
    // CAST: at most some hundred bytes.
    let header =
        EscapeHeader { magic: MAGIC, interface_version: gpu_wire::INTERFACE_VERSION, command, size: size as u32 };
    let mut block = vec![0; size];
    block[..header.bytes().len()].copy_from_slice(header.bytes());
    let mut record = D3DKMT_ESCAPE::zeroed();
    record.hAdapter = adapter;
    record.Type = D3DKMT_ESCAPETYPE::D3DKMT_ESCAPE_DRIVERPRIVATE;
    record.pPrivateDriverData = block.as_mut_ptr().cast();
    record.PrivateDriverDataSize = header.size;
    send(&mut record).with_context(|| format!("escape {command}"))?;
    Ok(block)
}

/// What the driver of a process's adapter says of its start, and its counters.
///
/// # Errors
/// As [`counters`] and [`start`]; when the adapter cannot be opened once more.
pub fn said(process: &dyn Process) -> Result<(EscapeStart, EscapeCounters)> {
    let info = process.adapter().info()?;
    let mut open = D3DKMT_OPENADAPTERFROMLUID::zeroed();
    open.AdapterLuid = LUID { LowPart: info.luid_low, HighPart: info.luid_high };
    call(process, "D3DKMTOpenAdapterFromLuid", &mut open)?;
    let send = &mut |record: &mut D3DKMT_ESCAPE| call(process, "D3DKMTEscape", record);
    let both = start(open.hAdapter, send).and_then(|start| Ok((start, counters(open.hAdapter, send)?)));
    let mut close = D3DKMT_CLOSEADAPTER::zeroed();
    close.hAdapter = open.hAdapter;
    call(process, "D3DKMTCloseAdapter", &mut close)?;
    both
}

/// The features of [`EscapeStart`], by their bits.
const FEATURES: [&str; 4] = ["hardware scheduling", "native fences", "user-mode submission", "kernel-mode testing"];

/// What the driver's start was like: the rung with why it is no higher one, then features and queries, a line each.
pub fn words(start: &EscapeStart) -> Vec<String> {
    let name = Rung::from_raw(start.rung).map_or("which this program does not know", Rung::name);
    let why = match start.rung {
        3.. => "",
        rung if rung >= start.max_rung => ", the highest that its setting MaxRung allows: work goes through the kernel",
        _ => ", since Windows granted it no more: work goes through the kernel",
    };
    let list = |bits: u32| {
        let names = FEATURES.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 != 0).map(|(_, name)| *name);
        let names: Vec<_> = names.collect();
        if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
    };
    let types = |bits: u64| {
        let types: Vec<_> = (0..64).filter(|kind| bits >> kind & 1 != 0).map(|kind: u32| kind.to_string()).collect();
        if types.is_empty() { "none".to_owned() } else { types.join(" ") }
    };
    vec![
        format!("rung {}, {name}{why}", start.rung),
        format!("Windows asked about {}", list(start.asked)),
        format!("the driver answered yes to {}", list(start.answered)),
        format!("Windows granted {}", list(start.granted)),
        format!("queries {}; refused {}", types(start.queries), types(start.refused)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_said_in_words() {
        let mut start = EscapeStart::read(&[0; size_of::<EscapeStart>()]).unwrap();
        (start.rung, start.max_rung, start.asked, start.answered, start.granted) = (1, 3, 7, 7, 1);
        (start.queries, start.refused) = (1 << 1 | 1 << 30, 1 << 24);
        let said = words(&start);
        assert_eq!(said[0], "rung 1, hardware queues, since Windows granted it no more: work goes through the kernel");
        assert_eq!(said[1], "Windows asked about hardware scheduling, native fences, user-mode submission");
        assert_eq!(said[3], "Windows granted hardware scheduling");
        assert_eq!(said[4], "queries 1 30; refused 24");
        start.max_rung = 1;
        let kept = "rung 1, hardware queues, the highest that its setting MaxRung allows: work goes through the kernel";
        assert_eq!(words(&start)[0], kept);
        (start.rung, start.max_rung, start.granted) = (3, 3, 0);
        assert_eq!(words(&start)[0], "rung 3, user-mode submission");
        assert_eq!(words(&start)[3], "Windows granted nothing");
    }
}
