//! What a case has another process do, which knows of it no more than its name and some numbers.

use crate::{Process, status};
use anyhow::{Result, ensure};
use umd_core::ffi::types::FP_KIND_SYSTEM;
use wddm_abi::{
    D3DKMT_CONNECT_DOORBELL, D3DKMT_DESTROY_DOORBELL, D3DKMT_DESTROYHWQUEUE, D3DKMT_NOTIFY_WORK_SUBMISSION, NTSTATUS,
};

/// An act. Its process has opened the adapter by the user-mode driver, and closes nothing at its end.
#[derive(Debug)]
pub struct Act {
    /// The name by which the process is told what to play.
    pub name: &'static str,
    /// Plays it with the case's numbers.
    pub play: fn(&dyn Process, &[u64]) -> Result<()>,
}

/// Makes devices, queues, doorbells, memory and fences, works with them, and leaves them open.
pub const LEAVE: Act = Act { name: "leave", play: leave };
/// Calls functions with another process's hardware queue and doorbell.
pub const FOREIGN: Act = Act { name: "foreign", play: foreign };

/// Every act that a process can be told to play.
pub const ACTS: &[&Act] = &[&LEAVE, &FOREIGN];

/// The act with this name.
pub fn find(name: &str) -> Option<&'static Act> {
    ACTS.iter().find(|act| act.name == name).copied()
}

fn leave(process: &dyn Process, _: &[u64]) -> Result<()> {
    let device = process.adapter().device()?;
    for node in [0, 1] {
        let queue = device.queue(node, 64 << 10, 0, 0)?;
        let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
        let at = memory.gpu_va()?;
        queue.run(|list| list.store(at, 1))?;
        std::mem::forget((queue, memory, device.fence(0, 0)?));
    }
    std::mem::forget(device);
    Ok(())
}

fn foreign(process: &dyn Process, numbers: &[u64]) -> Result<()> {
    ensure!(numbers.len() == 2, "a queue and a doorbell");
    // CAST: handles of user mode.
    let (queue, doorbell) = (numbers[0] as u32, numbers[1] as u32);
    let refused = |what: &str, status: NTSTATUS| {
        ensure!(!status.is_success(), "{what} with another process's handle returned {status:?}");
        Ok(())
    };
    let mut connect = D3DKMT_CONNECT_DOORBELL::zeroed();
    connect.hDoorbell = doorbell;
    refused("a connection", status(process, "D3DKMTConnectDoorbell", &mut connect))?;
    let mut notify = D3DKMT_NOTIFY_WORK_SUBMISSION::zeroed();
    notify.hDoorbell = doorbell;
    refused("an announcement", status(process, "D3DKMTNotifyWorkSubmission", &mut notify))?;
    let mut destroy = D3DKMT_DESTROY_DOORBELL::zeroed();
    destroy.hDoorbell = doorbell;
    refused("a doorbell's destruction", status(process, "D3DKMTDestroyDoorbell", &mut destroy))?;
    let mut destroy = D3DKMT_DESTROYHWQUEUE::zeroed();
    destroy.hHwQueue = queue;
    refused("a queue's destruction", status(process, "D3DKMTDestroyHwQueue", &mut destroy))
}
