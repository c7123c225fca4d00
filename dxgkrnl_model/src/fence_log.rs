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

/// What was new in a log.
#[derive(Debug, Default)]
struct News {
    records: Vec<LogRecord>,
    /// Nothing was overwritten, and nothing was wrong with it.
    complete: bool,
}

/// A log buffer as the driver was given it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBuffer {
    /// Identifier of the queue's process.
    pub process: u64,
    /// User mode's handle of the queue.
    pub queue: u32,
    /// The driver's handle of the queue, as a number.
    pub driver: usize,
    /// For waits; otherwise for signals.
    pub is_wait_log: bool,
    /// `NumberOfEntries`.
    pub entries: u32,
    /// `LogBufferCpuVa`, as a number.
    pub cpu: usize,
    /// `LogBufferGpuVa`.
    pub gpu: u64,
    /// `LogBufferSystemProcessGpuVa`; 0 where the driver did not ask for it.
    pub system: u64,
    /// `FirstFreeEntryIndex` now.
    pub index: u32,
    /// `WraparoundCount` now.
    pub wraps: u32,
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
            let reading = read_buffer(queue, &mut buffer);
            queue.adapter().shared().counters.add_log_records(&reading.records);
            reading.judge(queue.adapter());
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
    fn read(&self, queue: &Arc<HwQueue>) -> News {
        let mut readings = Vec::new();
        let mut news = News::default();
        {
            let mut buffers = self.buffers.lock();
            // None: they are being replaced, or there never were any.
            news.complete = buffers.len() == 2;
            for buffer in buffers.iter_mut() {
                let reading = read_buffer(queue, buffer);
                news.complete &= reading.complete;
                news.records.extend(&reading.records);
                readings.push(reading);
            }
            // Under the lock: the order of the report is that of the log.
            queue.adapter().shared().counters.add_log_records(&news.records);
        }
        for reading in readings {
            reading.judge(queue.adapter());
        }
        news
    }

    /// The buffers, for tests and tools.
    pub(crate) fn describe(&self, queue: &HwQueue) -> Vec<LogBuffer> {
        let describe = |buffer: &Buffer| {
            let header = header(buffer);
            LogBuffer {
                process: queue.context().device().process().process().map_or(0, |process| process.nt().id()),
                queue: queue.user_handle(),
                driver: queue.driver_handle(),
                is_wait_log: is_waits(buffer),
                entries: buffer.entries,
                cpu: buffer.page.address(),
                gpu: buffer.view.gpu,
                system: buffer.system,
                index: header.FirstFreeEntryIndex(),
                wraps: header.WraparoundCount(),
            }
        };
        self.buffers.lock().iter().map(describe).collect()
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
    let mut header =
        DXGK_NATIVE_FENCE_LOG_HEADER::from_bytes(&bytes).unwrap_or_else(DXGK_NATIVE_FENCE_LOG_HEADER::zeroed);
    // Index and count are one word and read as one.
    let word = crate::raw::load(buffer.page.address());
    header.as_bytes_mut()[..8].copy_from_slice(&word.to_le_bytes());
    header
}

fn is_waits(buffer: &Buffer) -> bool {
    buffer.kind == DXGK_NATIVE_FENCE_LOG_TYPE::DXGK_NATIVE_FENCE_LOG_TYPE_WAITS
}

/// What was found in a buffer. The rules are evaluated afterwards, without its lock.
#[derive(Debug, Default)]
struct Reading {
    records: Vec<LogRecord>,
    /// Nothing was overwritten, and the header is sound.
    complete: bool,
    overrun: bool,
    /// Whether the header is sound; what it says.
    header: (bool, String),
    /// Entry by entry: whether it was written, whether its times are in order, what it says.
    entries: Vec<(bool, bool, String)>,
}

impl Reading {
    fn judge(self, adapter: &Adapter) {
        let (sound, text) = self.header;
        adapter.rules().check(&LOG_HEADER, sound, || text);
        if self.overrun {
            adapter.shared().counters.log_overrun();
        }
        for (complete, ordered, text) in self.entries {
            adapter.rules().check(&LOG_COMPLETE, complete, || text.clone());
            adapter.rules().check(&LOG_TIME, ordered || !complete, || text);
        }
    }
}

fn read_buffer(queue: &HwQueue, buffer: &mut Buffer) -> Reading {
    let header = header(buffer);
    let (index, wraps) = (header.FirstFreeEntryIndex(), header.WraparoundCount());
    let sound = header.Type == buffer.kind
        && header.NumberOfEntries == u64::from(buffer.entries)
        && header.Reserved == [0; 2]
        && index < buffer.entries
        && wraps >= buffer.wraps;
    let text = format!(
        "index {index}, count {wraps} after {}, type {:?}, {} entries of {}",
        buffer.wraps, header.Type, header.NumberOfEntries, buffer.entries
    );
    let mut reading = Reading { header: (sound, text), ..Reading::default() };
    if !sound {
        buffer.index = buffer.index.min(buffer.entries.saturating_sub(1));
        return reading;
    }
    let total = u64::from(buffer.entries);
    let written = u64::from(wraps - buffer.wraps) * total + u64::from(index);
    let Some(new) = written.checked_sub(buffer.index.into()) else { return reading };
    reading.overrun = new > total;
    reading.complete = !reading.overrun;
    for back in (1..=new.min(total)).rev() {
        // CAST: below the number of entries.
        let at = ((u64::from(index) + total * 2 - back) % total) as usize;
        let bytes = crate::raw::bytes_at(buffer.page.address() + ENTRIES + at * ENTRY, ENTRY);
        let Some(entry) = DXGK_NATIVE_FENCE_LOG_ENTRY::from_bytes(&bytes) else { continue };
        reading.entries.push(verdict(buffer, &entry, reading.overrun));
        reading.records.push(record(queue, buffer, &entry));
        if entry.FenceEndGpuTimestamp != 0 {
            buffer.last_time = buffer.last_time.max(entry.FenceEndGpuTimestamp);
        }
    }
    (buffer.index, buffer.wraps) = (index, wraps);
    reading
}

/// Whether an entry was written, whether its times are in order, and what it says.
fn verdict(buffer: &Buffer, entry: &DXGK_NATIVE_FENCE_LOG_ENTRY, overrun: bool) -> (bool, bool, String) {
    let (observed, end) = (entry.FenceObservedGpuTimestamp, entry.FenceEndGpuTimestamp);
    let complete = end != UNWRITTEN && entry.FenceValue != UNWRITTEN;
    // After an overrun the oldest entries may be newer than the ones behind them.
    let ordered = overrun || end == 0 || end >= buffer.last_time;
    let inner = !is_waits(buffer) || observed == 0 || end == 0 || observed <= end;
    (
        complete,
        ordered && inner,
        format!("{:?}, the entry before ended at {}: {entry:?}", buffer.kind, buffer.last_time),
    )
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
        is_wait_log: is_waits(buffer),
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

/// [`collect`] for some queues, with news or not. What was new; `None` when the driver did not flush.
fn read_from(adapter: &Arc<Adapter>, queues: &[Arc<HwQueue>]) -> Option<News> {
    if queues.is_empty() {
        return None;
    }
    let handles: Vec<usize> = queues.iter().map(|queue| queue.driver_handle()).collect();
    let status = flush(adapter, &handles);
    // Shut down, or one of them was destroyed meanwhile.
    let excused = status == ntstatus::STATUS_SYSTEM_SHUTDOWN || queues.iter().any(|queue| !queue.is_alive());
    adapter
        .rules()
        .check(&LOG_FLUSH, status.is_success() || excused, || format!("{} queues: {status:?}", queues.len()));
    if !status.is_success() {
        return None;
    }
    let mut all = News { records: Vec::new(), complete: true };
    for queue in queues {
        let news = queue.log().read(queue);
        all.complete &= news.complete;
        all.records.extend(news.records);
    }
    Some(all)
}

/// [`collect`] for some queues, with news or not. Where interrupts name queues only, whoever reads a log wakes.
pub(crate) fn collect_from(adapter: &Arc<Adapter>, queues: &[Arc<HwQueue>]) {
    if !adapter.known_caps().has_optimized_interrupt() {
        read_from(adapter, queues);
        return;
    }
    for queue in queues {
        wake_from(adapter, queue);
    }
}

/// `DxgkDdiUpdateNativeFenceLogs` for queues by the driver's handles.
///
/// IRQL: at most DISPATCH_LEVEL.
pub(crate) fn flush(adapter: &Arc<Adapter>, handles: &[usize]) -> NTSTATUS {
    let mut handles: Vec<_> =
        handles.iter().map(|number| HandleOf(core::ptr::with_exposed_provenance_mut(*number))).collect();
    let mut arguments = DXGKARG_UPDATENATIVEFENCELOGS::zeroed();
    // CAST: a process has fewer queues than that.
    arguments.NumberOfQueues = handles.len() as u32;
    arguments.hHWQueue = handles.as_mut_ptr().cast();
    let pointer = &raw const arguments;
    adapter.shared().counters.logs_flushed(handles.len() as u64);
    ddi::status(call_ddi!(adapter, DxgkDdiUpdateNativeFenceLogs(pointer)))
}

/// Reads the log of the queue that an interrupt names, and wakes who waits for the fences in it. Every fence is looked at
/// where that does not say all: after an overrun, for a queue without a log, and where nothing is new.
///
/// Source: article native-gpu-fence-objects, optimized native fence signaled interrupt.
///
/// Chosen: a log without news is one that user mode does not write.
///
/// IRQL: DISPATCH_LEVEL.
pub(crate) fn wake_from(adapter: &Arc<Adapter>, queue: &Arc<HwQueue>) {
    let news = if queue.is_user_mode() { read_from(adapter, std::slice::from_ref(queue)) } else { None };
    let owner = queue.context().device().process().process();
    let (Some(news), Some(owner)) = (news.filter(|news| news.complete && !news.records.is_empty()), owner) else {
        crate::fence::update::scan_native(adapter);
        return;
    };
    let mut named: Vec<_> =
        news.records.iter().filter(|record| !record.is_wait_log).map(|record| record.fence).collect();
    named.sort_unstable();
    named.dedup();
    for handle in named {
        match owner.native_fence(handle) {
            Some(fence) => fence.fence().rescan(adapter.kernel()),
            // Closed meanwhile; other processes may have it open.
            None => crate::fence::update::scan_native(adapter),
        }
    }
}

/// A driver's handle, as an array element.
#[repr(transparent)]
#[derive(Debug)]
struct HandleOf(HANDLE);
