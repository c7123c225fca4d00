//! Private data of packets, as the driver gets it: the first time, and each time that they come back.
#![expect(unsafe_code, reason = "records and private data that the OS passes are read")]

use super::super::{Played, Scene};
use crate::wrap::{copy, machine, own};
use anyhow::ensure;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use wddm_abi::{DRIVER_INITIALIZATION_DATA, DXGKARG_SUBMITCOMMANDVIRTUAL, HANDLE, NTSTATUS};

/// What was seen on a machine.
#[derive(Default)]
struct Seen {
    /// Of packets that have come once, by their numbers, which are the first words of the data.
    first: BTreeMap<u64, Vec<u8>>,
    /// How often one came back.
    replays: usize,
    /// What was not as it had been.
    wrong: Option<String>,
}

/// By machine.
static SEEN: Mutex<BTreeMap<usize, Seen>> = Mutex::new(BTreeMap::new());

fn seen<R>(f: impl FnOnce(&mut Seen) -> R) -> R {
    f(SEEN.lock().unwrap_or_else(PoisonError::into_inner).entry(machine()).or_default())
}

/// The private data of a packet; empty for one of the system's.
fn private(told: &DXGKARG_SUBMITCOMMANDVIRTUAL) -> Vec<u8> {
    let size = told.DmaBufferPrivateDataSize as usize;
    if told.Flags.Paging() || told.DmaBufferUmdPrivateDataSize == 0 || told.pDmaBufferPrivateData.is_null() {
        return Vec::new();
    }
    // SAFETY: the OS's memory of that size, valid for the call.
    unsafe { core::slice::from_raw_parts(told.pDmaBufferPrivateData.cast::<u8>(), size) }.to_vec()
}

fn note(again: bool, before: Vec<u8>, behind: &[u8]) {
    let Some(number) = before.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)) else { return };
    seen(|seen| {
        if before != behind {
            seen.wrong = Some(format!("packet {number}: the driver has written to its private data"));
        }
        if !again {
            seen.first.insert(number, before);
            return;
        }
        seen.replays += 1;
        if seen.first.get(&number) != Some(&before) {
            seen.wrong = Some(format!("packet {number} came back with other private data"));
        }
    });
}

crate::decorate! {
    sees: DxgkDdiSubmitCommandVirtual(adapter: HANDLE, args: *const DXGKARG_SUBMITCOMMANDVIRTUAL) -> NTSTATUS {
        let told = copy!(args);
        let before = private(&told);
        let status = own!(DxgkDdiSubmitCommandVirtual(adapter, args));
        note(told.Flags.Resubmission(), before, &private(&told));
        status
    }
}

/// Looks at the private data of what is submitted.
pub(super) fn watched(table: &mut DRIVER_INITIALIZATION_DATA) {
    sees(table);
}

/// At least so many packets came back, each with the private data that it had.
pub(super) fn is_unchanged(scene: &Scene, least: usize) -> Played {
    let (replays, wrong) = scene.world.os.run(|| seen(|seen| (seen.replays, seen.wrong.clone())));
    if let Some(wrong) = wrong {
        anyhow::bail!("{wrong}");
    }
    ensure!(replays >= least, "{replays} packets with private data came back");
    Ok(())
}
