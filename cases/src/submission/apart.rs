//! Cases with another process.

use crate::System;
use crate::apart::{FOREIGN, LEAVE};
use crate::room::{CONNECTED, RingQueue, Room, same};
use anyhow::{Context, Result};

/// Processes that leave everything open.
const LEAVING: usize = 3;

/// The queue of a process that stays works behind each that has gone.
pub fn leaves(system: &dyn System) -> Result<()> {
    let process = system.process("neighbour", false)?;
    let room = Room::new(system, &*process)?;
    let queue = RingQueue::connected(&room, 0, 4096)?;
    for round in 0..LEAVING {
        system.apart(&LEAVE, &[]).with_context(|| format!("process {round}"))?;
        let progress = queue.submit_through(&[])?;
        queue.wait(progress)?;
    }
    Ok(())
}

/// Handles of a process name nothing in another one, and nothing is lost of what they name here.
pub fn foreign(system: &dyn System) -> Result<()> {
    let process = system.process("owner", false)?;
    let room = Room::new(system, &*process)?;
    let queue = RingQueue::connected(&room, 0, 4096)?;
    system.apart(&FOREIGN, &[queue.queue.handle.into(), queue.bell.handle.into()])?;
    let (progress, status) = queue.submit(&[])?;
    same("the status", status, CONNECTED)?;
    queue.wait(progress)
}
