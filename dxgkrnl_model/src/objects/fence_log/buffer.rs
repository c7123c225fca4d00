//! One log buffer: its memory, where everybody sees it, and how the driver hears of it.

use std::sync::Arc;

use wddm_abi::{
    DXGK_NATIVE_FENCE_LOG_ENTRY, DXGK_NATIVE_FENCE_LOG_HEADER, DXGK_NATIVE_FENCE_LOG_TYPE,
    DXGKARG_SETNATIVEFENCELOGBUFFER, NTSTATUS, Plain, ntstatus,
};

use crate::memory::Manager;
use crate::memory::page_table::Purpose;
use crate::memory::pages::Block;
use crate::memory::residency::status_of;
use crate::memory::space::Content;
use crate::memory::va::{PAGE, Protection, Use, Wanted};
use crate::objects::hw_queue::HwQueue;
use crate::objects::process::ProcessAdapter;
use crate::port::ddi::{self, call_ddi};
use crate::port::rules::fence::LOG_SET;

/// Where entries begin.
const ENTRIES: usize = size_of::<DXGK_NATIVE_FENCE_LOG_HEADER>();
/// Bytes of one.
const ENTRY: usize = size_of::<DXGK_NATIVE_FENCE_LOG_ENTRY>();
/// What an entry that nobody has written holds.
pub(super) const UNWRITTEN: u64 = 0xE0E0_E0E0_E0E0_E0E0;

/// Entries that fit so many pages.
pub(super) fn entries_in(pages: u32) -> u32 {
    let bytes = pages.clamp(1, 1 << 16) as usize * nt_model::PAGE_SIZE;
    // CAST: less than the bytes, which are less than 2^28.
    ((bytes - ENTRIES) / ENTRY) as u32
}

/// Pages that so many entries take.
pub(super) fn pages_for(entries: u64) -> u32 {
    let bytes = entries.saturating_mul(ENTRY as u64).saturating_add(ENTRIES as u64);
    u32::try_from(bytes.div_ceil(PAGE)).unwrap_or(u32::MAX)
}

/// One buffer.
#[derive(Debug)]
pub(super) struct Buffer {
    block: Block,
    /// Where the process's GPU sees it.
    pub(super) gpu: u64,
    /// Where the paging process sees it; 0 where it does not.
    pub(super) system: u64,
    pub(super) kind: DXGK_NATIVE_FENCE_LOG_TYPE,
    pub(super) entries: u32,
    /// What the header said when it was read last.
    pub(super) index: u32,
    pub(super) wraps: u32,
    /// The latest end of an entry that was read, in this buffer or the one before.
    pub(super) last_time: u64,
}

impl Buffer {
    /// Memory for `entries`, mapped everywhere. On the paging worker.
    ///
    /// # Errors
    /// STATUS_NO_MEMORY, or what paging ended with.
    pub(super) fn make(
        queue: &HwQueue,
        manager: &Arc<Manager>,
        kind: DXGK_NATIVE_FENCE_LOG_TYPE,
        entries: u32,
    ) -> Result<Self, NTSTATUS> {
        let adapter = queue.adapter();
        let pages = pages_for(entries.into());
        let block = manager.pool.allocate_block(pages as usize).ok_or(ntstatus::STATUS_NO_MEMORY)?;
        for word in (ENTRIES..block.bytes() - 7).step_by(8) {
            crate::port::raw::store(block.address() + word, UNWRITTEN);
        }
        let mut header = DXGK_NATIVE_FENCE_LOG_HEADER::zeroed();
        header.Type = kind;
        header.NumberOfEntries = entries.into();
        crate::port::raw::copy_to(block.address(), header.as_bytes());
        let frames: Vec<u64> = (0..pages as usize).map(|page| block.object().frame(page)).collect();
        let gpu_process = queue.context().device().process();
        let gpu = show(gpu_process, manager, &frames)?;
        let mut buffer = Self { block, gpu, system: 0, kind, entries, index: 0, wraps: 0, last_time: 0 };
        if manager.caps.native_fence.is_some_and(|caps| caps.MapToGpuSystemProcess != 0) {
            match manager.map_for_system(adapter, frames, Protection::READ_WRITE) {
                Ok(system) => buffer.system = system,
                Err(error) => {
                    buffer.hide(gpu_process, manager);
                    return Err(status_of(error));
                }
            }
        }
        Ok(buffer)
    }

    /// Tells the driver, which has to take it.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    ///
    /// # Errors
    /// What the driver returned.
    pub(super) fn set(&self, queue: &HwQueue) -> Result<(), NTSTATUS> {
        let status = self.offer(queue);
        let rules = queue.adapter().rules();
        rules.check(&LOG_SET, ddi::succeeded(status), || format!("{:?}: {status:?}", self.kind));
        if status.is_success() { Ok(()) } else { Err(status) }
    }

    /// Tells the driver.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(super) fn offer(&self, queue: &HwQueue) -> NTSTATUS {
        let adapter = queue.adapter();
        let mut arguments = DXGKARG_SETNATIVEFENCELOGBUFFER::zeroed();
        arguments.hHwQueue = crate::port::handle::of_driver(queue.driver_handle());
        arguments.NumberOfEntries = self.entries;
        arguments.LogBufferCpuVa = core::ptr::with_exposed_provenance_mut(self.address());
        arguments.LogBufferGpuVa = self.gpu;
        arguments.LogBufferSystemProcessGpuVa = self.system;
        let pointer = &raw const arguments;
        ddi::status(call_ddi!(adapter, DxgkDdiSetNativeFenceLogBuffer(pointer)))
    }

    /// Takes the GPU's mappings away. On the paging worker.
    pub(super) fn hide(&self, gpu_process: &Arc<ProcessAdapter>, manager: &Arc<Manager>) {
        let (adapter, pages) = (gpu_process.adapter(), self.pages());
        let _ = gpu_process.set_entries(adapter, manager, self.gpu, pages, &Content::None, Purpose::default());
        gpu_process.address_space().with_ranges(|ranges| ranges.remove(self.gpu, 0));
        if self.system != 0 {
            manager.unmap_for_system(adapter, self.system, pages);
        }
    }

    /// Kernel address.
    pub(super) fn address(&self) -> usize {
        self.block.address()
    }

    fn pages(&self) -> u64 {
        self.block.bytes() as u64 / PAGE
    }

    /// Everything in it.
    pub(super) fn bytes(&self) -> Vec<u8> {
        crate::port::raw::bytes_at(self.address(), self.block.bytes())
    }

    /// The header now.
    pub(super) fn header(&self) -> DXGK_NATIVE_FENCE_LOG_HEADER {
        let bytes = crate::port::raw::bytes_at(self.address(), ENTRIES);
        let mut header =
            DXGK_NATIVE_FENCE_LOG_HEADER::from_bytes(&bytes).unwrap_or_else(DXGK_NATIVE_FENCE_LOG_HEADER::zeroed);
        // Index and count are one word and read as one.
        let word = crate::port::raw::load(self.address());
        header.as_bytes_mut()[..8].copy_from_slice(&word.to_le_bytes());
        header
    }

    /// The bytes of the entry that was written as number `sequence`, from 0.
    pub(super) fn entry(&self, sequence: u64) -> Vec<u8> {
        // CAST: below the number of entries.
        let at = (sequence % u64::from(self.entries.max(1))) as usize;
        crate::port::raw::bytes_at(self.address() + ENTRIES + at * ENTRY, ENTRY)
    }

    /// Whether it is the one of waits.
    pub(super) fn is_waits(&self) -> bool {
        self.kind == DXGK_NATIVE_FENCE_LOG_TYPE::DXGK_NATIVE_FENCE_LOG_TYPE_WAITS
    }
}

/// Tells the driver that a queue has no logs any more, which it may not refuse: no entries, and `address`, which is
/// that of the log that was there, or 0 (NULL).
///
/// IRQL: at most DISPATCH_LEVEL.
///
/// # Errors
/// What the driver returned.
pub(super) fn take_away(queue: &HwQueue, address: usize) -> Result<(), NTSTATUS> {
    let adapter = queue.adapter();
    let mut arguments = DXGKARG_SETNATIVEFENCELOGBUFFER::zeroed();
    arguments.hHwQueue = crate::port::handle::of_driver(queue.driver_handle());
    arguments.LogBufferCpuVa = core::ptr::with_exposed_provenance_mut(address);
    let pointer = &raw const arguments;
    let status = ddi::status(call_ddi!(adapter, DxgkDdiSetNativeFenceLogBuffer(pointer)));
    adapter.rules().check(&LOG_SET, ddi::succeeded(status), || format!("a log was taken away: {status:?}"));
    if status.is_success() { Ok(()) } else { Err(status) }
}

/// Maps pages for a process's GPU, readable and writable. On the paging worker.
fn show(gpu_process: &Arc<ProcessAdapter>, manager: &Arc<Manager>, frames: &[u64]) -> Result<u64, NTSTATUS> {
    let pages = frames.len() as u64;
    let wanted = Wanted { size: pages * PAGE, alignment: PAGE, ..Wanted::default() };
    let gpu = gpu_process.address_space().insert(&wanted, Use::System).ok_or(ntstatus::STATUS_NO_MEMORY)?;
    let addresses = frames.iter().map(|frame| frame * PAGE).collect();
    let content = Content::Pages { segment: 0, addresses, protection: Protection::READ_WRITE };
    let set = gpu_process.set_entries(gpu_process.adapter(), manager, gpu, pages, &content, Purpose::default());
    set.map(|()| gpu).map_err(|error| {
        gpu_process.address_space().with_ranges(|ranges| ranges.remove(gpu, 0));
        status_of(error)
    })
}

#[cfg(test)]
mod tests {
    use super::{entries_in, pages_for};

    #[test]
    fn what_fits_a_page_is_what_the_article_names() {
        assert_eq!((entries_in(0), entries_in(1), entries_in(4)), (84, 84, 340));
        for pages in 1..100 {
            let entries = u64::from(entries_in(pages));
            assert_eq!((pages_for(entries), pages_for(entries + 1)), (pages, pages + 1));
        }
        assert_eq!(pages_for(u64::MAX), u32::MAX);
    }
}
