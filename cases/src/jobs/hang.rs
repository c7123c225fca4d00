//! A command buffer that runs until it is ended.

use crate::client::{Allocation, Device};
use anyhow::{Result, bail};
use gpu_wire::packet::{Copy, Encoded, Indirect};
use std::time::{Duration, Instant};
use umd_core::ffi::types::FP_KIND_SYSTEM;

/// Where the buffer says that it runs, and the word that it copies there.
const RUNS: u64 = 2048;
const RUN: u64 = 3072;

/// The buffer: it says that it runs, and jumps to its own beginning.
pub struct Loop {
    memory: Allocation,
    /// Where it is.
    pub address: u64,
    /// Its bytes.
    pub length: u64,
}

impl Loop {
    /// Makes it, in a device's memory.
    ///
    /// # Errors
    /// When it has none.
    pub fn new(device: &Device) -> Result<Self> {
        let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
        let address = memory.gpu_va()?;
        let begun = Copy { source: address + RUN, destination: address + RUNS, length: 8 }.to_packet();
        let bytes = |packet: &Encoded| packet.as_bytes().len() as u64;
        let length = bytes(&begun) + bytes(&Indirect { address, length: 0 }.to_packet());
        let jump = Indirect { address, length }.to_packet();
        memory.write(0, &[begun.as_bytes(), jump.as_bytes()].concat())?;
        memory.write(RUN, &1_u64.to_le_bytes())?;
        Ok(Self { memory, address, length })
    }

    /// Returns whether it has begun.
    ///
    /// # Errors
    /// None that a live process brings about.
    pub fn runs(&self) -> Result<bool> {
        Ok(self.memory.read_u64(RUNS)? == 1)
    }

    /// Forgets that it has begun: if it runs, it says so again.
    ///
    /// # Errors
    /// None that a live process brings about.
    pub fn forget(&self) -> Result<()> {
        Ok(self.memory.write(RUNS, &0_u64.to_le_bytes())?)
    }

    /// Waits until it runs.
    ///
    /// # Errors
    /// When it does not.
    pub fn begins(&self, patience: Duration) -> Result<()> {
        until("the run of a buffer that does not end", patience, || self.runs())
    }

    /// Lets it end: its jump becomes nothing.
    ///
    /// # Errors
    /// None that a live process brings about.
    pub fn end(&self) -> Result<()> {
        let jump = Indirect { address: 0, length: 0 }.to_packet();
        let length = u32::try_from(jump.as_bytes().len())?;
        let at = self.length - u64::from(length);
        // The first word of a packet says what it is: one store, since an engine reads meanwhile.
        Ok(self.memory.write(at, &Encoded::nop(length).as_bytes()[..8])?)
    }
}

/// Waits until `ready` says so.
///
/// # Errors
/// Those of `ready`; when it does not within `limit`.
pub fn until(what: &str, limit: Duration, mut ready: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + limit;
    while !ready()? {
        if Instant::now() >= end {
            bail!("{what} did not happen");
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    Ok(())
}
