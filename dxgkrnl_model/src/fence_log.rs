//! Native fence logs: two buffers of 4 KiB per user-mode queue, written by the GPU, read here.
//!
//! Everything in a buffer is hostile: user mode's commands name the entry to be written. So indices are bounded, unknown
//! operations are counted and skipped, and only what the documents promise about header and timestamps is judged.
//!
//! Source: article native-gpu-fence-objects, native fence log buffer design.
//!
//! Chosen: entries are read when a native fence interrupt is worked off, when a queue is destroyed, and when the report is
//! asked for. Buffers are recreated when somebody asks ([`crate::os::Os::recreate_fence_logs`]), with room for as many
//! entries as before (the article has the size grow).

use std::sync::Arc;

use wddm_abi::{
    DXGK_NATIVE_FENCE_LOG_ENTRY, DXGK_NATIVE_FENCE_LOG_HEADER, DXGK_NATIVE_FENCE_LOG_TYPE,
    DXGKARG_SETNATIVEFENCELOGBUFFER, DXGKARG_UPDATENATIVEFENCELOGS, HANDLE, NTSTATUS, Plain, ntstatus,
};

use crate::adapter::Adapter;
use crate::ddi::{self, call_ddi};
use crate::fence::monitored::View;
use crate::hw_queue::HwQueue;
use crate::memory::pages::Page;
use crate::memory::residency::status_of;
use crate::memory::va::{PAGE, Protection, Wanted};
use crate::report::LogRecord;
use crate::rules::fence::{LOG_COMPLETE, LOG_FLUSH, LOG_HEADER, LOG_SET, LOG_STALE, LOG_TIME};
use crate::sync::{Lock, Rank};

/// Where entries begin.
const ENTRIES: usize = size_of::<DXGK_NATIVE_FENCE_LOG_HEADER>();
/// Bytes of one.
const ENTRY: usize = size_of::<DXGK_NATIVE_FENCE_LOG_ENTRY>();
/// What an entry that nobody has written holds.
const UNWRITTEN: u64 = 0xE0E0_E0E0_E0E0_E0E0;

/// One buffer.
#[derive(Debug)]
struct Buffer {
    page: Page,
    view: View,
    /// Where the paging process sees it; 0 where it does not.
    system: u64,
    kind: DXGK_NATIVE_FENCE_LOG_TYPE,
    entries: u32,
    /// What the header said when it was read last.
    index: u32,
    wraps: u32,
    last_time: u64,
}

/// The logs of one queue.
#[derive(Debug)]
pub(crate) struct FenceLog {
    buffers: Lock<Vec<Buffer>>,
    /// Buffers that were replaced, and what they held: nobody may write them any more.
    retired: Lock<Vec<(Buffer, Vec<u8>)>>,
}

impl FenceLog {
    pub(crate) fn new() -> Self {
        Self { buffers: Lock::new(Rank::Object, Vec::new()), retired: Lock::new(Rank::Object, Vec::new()) }
    }

    /// Makes both buffers and tells the driver.
    ///
    /// IRQL: PASSIVE_LEVEL.
    ///
    /// # Errors
    /// STATUS_NO_MEMORY, or what the driver returned.
    pub(crate) fn create(&self, queue: &HwQueue) -> Result<(), NTSTATUS> {
        for kind in [
            DXGK_NATIVE_FENCE_LOG_TYPE::DXGK_NATIVE_FENCE_LOG_TYPE_WAITS,
            DXGK_NATIVE_FENCE_LOG_TYPE::DXGK_NATIVE_FENCE_LOG_TYPE_SIGNALS,
        ] {
            let buffer = make(queue, kind)?;
            set(queue, &buffer)?;
            self.buffers.lock().push(buffer);
        }
        Ok(())
    }

    /// Replaces both buffers, as the article lets Dxgkrnl do at any time; what the old ones held is read first.
    ///
    /// IRQL: PASSIVE_LEVEL.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub(crate) fn recreate(&self, queue: &Arc<HwQueue>) -> Result<(), NTSTATUS> {
        let old = std::mem::take(&mut *self.buffers.lock());
        let created = self.create(queue);
        for mut buffer in old {
            read_buffer(queue, &mut buffer);
            let held = crate::raw::bytes_at(buffer.page.address(), nt_model::PAGE_SIZE);
            self.retired.lock().push((buffer, held));
        }
        created
    }

    /// Whether the GPU has written entries that were not read.
    fn has_news(&self) -> bool {
        self.buffers.lock().iter().any(|buffer| {
            let header = header(buffer);
            (header.FirstFreeEntryIndex(), header.WraparoundCount()) != (buffer.index, buffer.wraps)
        })
    }

    /// Reads what is new. The driver has flushed.
    fn read(&self, queue: &Arc<HwQueue>) {
        let mut buffers = std::mem::take(&mut *self.buffers.lock());
        for buffer in &mut buffers {
            read_buffer(queue, buffer);
        }
        *self.buffers.lock() = buffers;
    }

    /// The queue is gone.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn destroy(&self, queue: &HwQueue) {
        let retired = std::mem::take(&mut *self.retired.lock());
        let adapter = queue.adapter();
        for (buffer, held) in retired {
            let now = crate::raw::bytes_at(buffer.page.address(), nt_model::PAGE_SIZE);
            adapter.rules().check(&LOG_STALE, now == held, || format!("{:?}: a replaced buffer changed", buffer.kind));
            take_down(queue, &buffer);
        }
        let buffers = std::mem::take(&mut *self.buffers.lock());
        for buffer in buffers {
            take_down(queue, &buffer);
        }
    }
}

fn make(queue: &HwQueue, kind: DXGK_NATIVE_FENCE_LOG_TYPE) -> Result<Buffer, NTSTATUS> {
    let adapter = queue.adapter();
    let manager = adapter.memory.manager().ok_or(ntstatus::STATUS_DEVICE_REMOVED)?;
    let page = manager.pool.allocate_alone().ok_or(ntstatus::STATUS_NO_MEMORY)?;
    let most = (nt_model::PAGE_SIZE - ENTRIES) / ENTRY;
    let wanted = adapter.personality().log_entries as usize;
    let entries = if wanted == 0 { most } else { wanted.min(most) };
    for word in (ENTRIES..nt_model::PAGE_SIZE - 7).step_by(8) {
        crate::raw::store(page.address() + word, UNWRITTEN);
    }
    let mut header = DXGK_NATIVE_FENCE_LOG_HEADER::zeroed();
    header.Type = kind;
    header.NumberOfEntries = entries as u64;
    crate::raw::copy_to(page.address(), header.as_bytes());
    let part = queue.context().device().process();
    let wanted = Wanted { size: PAGE, alignment: PAGE, ..Wanted::default() };
    let view = View::create(part, &page, false, Protection::READ_WRITE, &wanted, false)?;
    let mut system = 0;
    if manager.caps.native_fence.is_some_and(|caps| caps.MapToGpuSystemProcess != 0) {
        let frame = page.frame();
        let mapped = manager.run_on_worker(adapter, move |adapter, manager| {
            manager.map_for_system(adapter, vec![frame], Protection::READ_WRITE, false)
        });
        system = mapped.ok_or(ntstatus::STATUS_SYSTEM_SHUTDOWN)?.map_err(status_of)?;
    }
    // CAST: at most 84.
    Ok(Buffer { page, view, system, kind, entries: entries as u32, index: 0, wraps: 0, last_time: 0 })
}

fn set(queue: &HwQueue, buffer: &Buffer) -> Result<(), NTSTATUS> {
    let adapter = queue.adapter();
    let mut arguments = DXGKARG_SETNATIVEFENCELOGBUFFER::zeroed();
    arguments.hHwQueue = core::ptr::with_exposed_provenance_mut(queue.driver_handle());
    arguments.NumberOfEntries = buffer.entries;
    arguments.LogBufferCpuVa = core::ptr::with_exposed_provenance_mut(buffer.page.address());
    arguments.LogBufferGpuVa = buffer.view.gpu;
    arguments.LogBufferSystemProcessGpuVa = buffer.system;
    let pointer = &raw const arguments;
    let status = ddi::status(call_ddi!(adapter, DxgkDdiSetNativeFenceLogBuffer(pointer)));
    let stopped = status == ntstatus::STATUS_SYSTEM_SHUTDOWN;
    adapter.rules().check(&LOG_SET, status.is_success() || stopped, || format!("{:?}: {status:?}", buffer.kind));
    if status.is_success() { Ok(()) } else { Err(status) }
}

fn take_down(queue: &HwQueue, buffer: &Buffer) {
    buffer.view.remove(queue.context().device().process());
    let (adapter, system) = (queue.adapter(), buffer.system);
    if system != 0
        && let Some(manager) = adapter.memory.manager()
    {
        manager.run_on_worker(adapter, move |adapter, manager| manager.unmap_for_system(adapter, system, 1));
    }
}

fn header(buffer: &Buffer) -> DXGK_NATIVE_FENCE_LOG_HEADER {
    let bytes = crate::raw::bytes_at(buffer.page.address(), ENTRIES);
    let mut header = DXGK_NATIVE_FENCE_LOG_HEADER::from_bytes(&bytes).unwrap_or_else(DXGK_NATIVE_FENCE_LOG_HEADER::zeroed);
    // Index and count are one word and read as one.
    let word = crate::raw::load(buffer.page.address());
    header.as_bytes_mut()[..8].copy_from_slice(&word.to_le_bytes());
    header
}

fn read_buffer(queue: &Arc<HwQueue>, buffer: &mut Buffer) {
    let adapter = queue.adapter();
    let header = header(buffer);
    let (index, wraps) = (header.FirstFreeEntryIndex(), header.WraparoundCount());
    let kept = header.Type == buffer.kind
        && header.NumberOfEntries == u64::from(buffer.entries)
        && header.Reserved == [0; 2]
        && index < buffer.entries
        && wraps >= buffer.wraps;
    adapter.rules().check(&LOG_HEADER, kept, || {
        format!(
            "index {index}, count {wraps} after {}, type {:?}, {} entries of {}",
            buffer.wraps, header.Type, header.NumberOfEntries, buffer.entries
        )
    });
    if !kept {
        buffer.index = buffer.index.min(buffer.entries.saturating_sub(1));
        return;
    }
    let written = u64::from(wraps - buffer.wraps) * u64::from(buffer.entries) + u64::from(index);
    let Some(new) = written.checked_sub(buffer.index.into()) else { return };
    let overrun = new > buffer.entries.into();
    if overrun {
        adapter.shared().counters.log_overrun();
    }
    let count = new.min(buffer.entries.into());
    let mut records = Vec::new();
    for back in (1..=count).rev() {
        let total = u64::from(buffer.entries);
        // CAST: below the number of entries.
        let at = ((u64::from(index) + total * 2 - back) % total) as usize;
        let bytes = crate::raw::bytes_at(buffer.page.address() + ENTRIES + at * ENTRY, ENTRY);
        let Some(entry) = DXGK_NATIVE_FENCE_LOG_ENTRY::from_bytes(&bytes) else { continue };
        judge_entry(adapter, buffer, &entry, overrun);
        records.push(record(queue, buffer, &entry));
        if entry.FenceEndGpuTimestamp != 0 {
            buffer.last_time = buffer.last_time.max(entry.FenceEndGpuTimestamp);
        }
    }
    (buffer.index, buffer.wraps) = (index, wraps);
    adapter.shared().counters.add_log_records(records);
}

fn judge_entry(adapter: &Adapter, buffer: &Buffer, entry: &DXGK_NATIVE_FENCE_LOG_ENTRY, overrun: bool) {
    let complete = entry.FenceEndGpuTimestamp != UNWRITTEN && entry.FenceValue != UNWRITTEN;
    adapter.rules().check(&LOG_COMPLETE, complete, || format!("{:?}: {entry:?}", buffer.kind));
    let (observed, end) = (entry.FenceObservedGpuTimestamp, entry.FenceEndGpuTimestamp);
    let waits = buffer.kind == DXGK_NATIVE_FENCE_LOG_TYPE::DXGK_NATIVE_FENCE_LOG_TYPE_WAITS;
    // After an overrun the oldest entries may be newer than the ones behind them.
    let ordered = overrun || end == 0 || end >= buffer.last_time;
    let inner = !waits || observed == 0 || end == 0 || observed <= end || !complete;
    adapter.rules().check(&LOG_TIME, (ordered && inner) || !complete, || {
        format!("{:?}: observed {observed}, end {end}, the entry before {}", buffer.kind, buffer.last_time)
    });
}

fn record(queue: &HwQueue, buffer: &Buffer, entry: &DXGK_NATIVE_FENCE_LOG_ENTRY) -> LogRecord {
    LogRecord {
        adapter: queue.adapter().luid_number(),
        process: queue.context().device().process().process().map_or(0, |process| process.nt().id()),
        queue: queue.user_handle(),
        node: queue.context().node(),
        fence: entry.hNativeFence,
        value: entry.FenceValue,
        operation: entry.OperationType,
        is_wait_log: buffer.kind == DXGK_NATIVE_FENCE_LOG_TYPE::DXGK_NATIVE_FENCE_LOG_TYPE_WAITS,
        observed: entry.FenceObservedGpuTimestamp,
        end: entry.FenceEndGpuTimestamp,
    }
}

/// Lets the driver flush the logs of queues that have news, and reads them.
///
/// IRQL: at most DISPATCH_LEVEL.
pub(crate) fn collect(adapter: &Arc<Adapter>) {
    let queues: Vec<_> = adapter.scheduler.queues().into_iter().filter(|queue| queue.log().has_news()).collect();
    collect_from(adapter, &queues);
}

/// [`collect`] for some queues, with news or not.
pub(crate) fn collect_from(adapter: &Arc<Adapter>, queues: &[Arc<HwQueue>]) {
    if queues.is_empty() {
        return;
    }
    let mut handles: Vec<HandleOf> = queues.iter().map(|queue| HandleOf::of(queue)).collect();
    let mut arguments = DXGKARG_UPDATENATIVEFENCELOGS::zeroed();
    // CAST: a process has fewer queues than that.
    arguments.NumberOfQueues = handles.len() as u32;
    arguments.hHWQueue = handles.as_mut_ptr().cast();
    let pointer = &raw const arguments;
    let status = ddi::status(call_ddi!(adapter, DxgkDdiUpdateNativeFenceLogs(pointer)));
    let stopped = status == ntstatus::STATUS_SYSTEM_SHUTDOWN;
    adapter.rules().check(&LOG_FLUSH, status.is_success() || stopped, || format!("{} queues: {status:?}", queues.len()));
    if !status.is_success() {
        return;
    }
    for queue in queues {
        queue.log().read(queue);
    }
}

/// A driver's handle, as an array element.
#[repr(transparent)]
#[derive(Debug)]
struct HandleOf(HANDLE);

impl HandleOf {
    fn of(queue: &HwQueue) -> Self {
        Self(core::ptr::with_exposed_provenance_mut(queue.driver_handle()))
    }
}

