//! Native fence logs: two buffers per user-mode queue, written by the GPU, read here.
//!
//! Everything in a buffer is hostile: user mode's commands name the entry to be written. So indices are bounded,
//! unknown operations are counted and skipped, and only what the documents promise about header and timestamps is
//! judged.
//!
//! | file | holds |
//! |---|---|
//! | `fence_log.rs` | [`FenceLog`]: a queue's buffers, from their making to their end |
//! | `buffer.rs` | one buffer: memory, mappings, the DDI |
//! | `reading.rs` | what is new in it, what was lost |
//! | `collecting.rs` | whose logs are read when, who wakes |
//!
//! A buffer has 4 KiB. While fences are traced ([`crate::entry::os::Os::set_fence_tracing`]) it is larger, and one that
//! was overrun is replaced by one that is larger still; what was overwritten before it was read is marked in the trace
//! ([`LogLoss`](crate::entry::report::LogLoss)).
//!
//! Source: article native-gpu-fence-objects, native fence log buffer design; DDI page DxgkDdiSetNativeFenceLogBuffer.
//!
//! Chosen: entries are read when a native fence interrupt is worked off, when a queue is destroyed, when its buffers
//! are replaced, and when the report is asked for. Both buffers of a queue have one size. They are made and replaced on
//! the paging worker, one queue after the other; at other times than those above when a test asks
//! ([`crate::entry::os::Os::recreate_fence_logs`]). A queue keeps the size that it has grown to when tracing ends.

mod buffer;
mod collecting;
mod reading;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use wddm_abi::{DXGK_NATIVE_FENCE_LOG_TYPE, NTSTATUS, ntstatus};

use crate::memory::{Manager, VidMm};
use crate::objects::hw_queue::HwQueue;
use crate::port::counters::LogRecord;
use crate::port::personality::LogReplacement;
use crate::port::rules::fence::LOG_STALE;
use crate::port::sync::{Lock, Rank};
use buffer::{Buffer, entries_in, pages_for};
pub(crate) use collecting::{collect, collect_for, collect_from, flush, wake_from, wake_from_engine};

/// The logs that are mandatory.
const KINDS: [DXGK_NATIVE_FENCE_LOG_TYPE; 2] = [
    DXGK_NATIVE_FENCE_LOG_TYPE::DXGK_NATIVE_FENCE_LOG_TYPE_WAITS,
    DXGK_NATIVE_FENCE_LOG_TYPE::DXGK_NATIVE_FENCE_LOG_TYPE_SIGNALS,
];

/// What was new in a queue's logs.
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

#[derive(Debug, Default)]
struct State {
    /// Of waits, of signals.
    buffers: Vec<Buffer>,
    /// The driver may write to a buffer that is not in the list yet.
    replacing: bool,
    /// The queue is being destroyed: the driver hears of no buffer any more.
    closed: bool,
}

/// The logs of one queue.
#[derive(Debug)]
pub(crate) struct FenceLog {
    state: Lock<State>,
    /// Buffers that were replaced, and what they held: nobody may write them any more.
    retired: Lock<Vec<(Buffer, Vec<u8>)>>,
    /// Entries that overruns have shown to be needed.
    grown: AtomicU32,
    /// Somebody has asked the worker for larger buffers.
    growing: AtomicBool,
}

impl FenceLog {
    pub(crate) fn new() -> Self {
        Self {
            state: Lock::new(Rank::Object, State::default()),
            retired: Lock::new(Rank::Object, Vec::new()),
            grown: AtomicU32::new(0),
            growing: AtomicBool::new(false),
        }
    }

    /// Makes both buffers and tells the driver; where there are some already, they are replaced, as the article lets
    /// Dxgkrnl do at any time. What they hold is read, and waits for it end.
    ///
    /// IRQL: PASSIVE_LEVEL.
    ///
    /// # Errors
    /// STATUS_NO_MEMORY, or what the driver returned.
    pub(crate) fn make(&self, queue: &Arc<HwQueue>) -> Result<(), NTSTATUS> {
        let adapter = queue.adapter();
        let manager = VidMm::of(adapter).manager().ok_or(ntstatus::STATUS_DEVICE_REMOVED)?;
        let this = queue.clone();
        let made = manager.run_on_worker(adapter, move |_, manager| this.log().make_on_worker(&this, manager));
        made.ok_or(ntstatus::STATUS_SYSTEM_SHUTDOWN)?
    }

    /// Makes room for what tools expect to see while fences are traced.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn make_room(&self, queue: &Arc<HwQueue>) {
        if self.state.lock().buffers.iter().any(|buffer| buffer.entries < self.wanted(queue)) {
            // A driver that refuses has broken DXG-LOG-SET.
            let _ = self.make(queue);
        }
    }

    /// Entries of the next buffers.
    fn wanted(&self, queue: &HwQueue) -> u32 {
        let shared = queue.adapter().shared();
        let personality = shared.personality();
        let usual =
            if personality.log_entries == 0 { entries_in(1) } else { personality.log_entries.min(entries_in(1)) };
        let traced = match personality.traced_log_pages {
            pages if pages != 0 && shared.is_tracing_fences() => entries_in(pages),
            _ => 0,
        };
        usual.max(traced).max(self.grown.load(Ordering::Acquire))
    }

    fn make_on_worker(&self, queue: &Arc<HwQueue>, manager: &Arc<Manager>) -> Result<(), NTSTATUS> {
        {
            let mut state = self.state.lock();
            if state.closed {
                return Ok(());
            }
            state.replacing = true;
        }
        let made = self.take_away(queue);
        let made = made.and_then(|()| KINDS.iter().try_for_each(|kind| self.replace(queue, manager, *kind)));
        let left = {
            let mut state = self.state.lock();
            state.replacing = false;
            state.buffers.len()
        };
        if let Err(status) = made {
            // Not everybody who asks for other buffers looks at the status.
            let (number, all) = (queue.driver_handle(), KINDS.len());
            let adapter = queue.adapter();
            adapter.note_event(format!("queue {number:#x} has {left} of {all} fence logs: {status:?}"));
        }
        made
    }

    /// Takes both logs of a queue away from the driver and judges what they hold, where
    /// [`log_replacement`](crate::port::personality::Personality::log_replacement) has that done before new ones are
    /// made.
    fn take_away(&self, queue: &Arc<HwQueue>) -> Result<(), NTSTATUS> {
        let address = match queue.adapter().personality().log_replacement {
            LogReplacement::NewFirst => return Ok(()),
            LogReplacement::Null => 0,
            LogReplacement::NoEntries => self.state.lock().buffers.first().map_or(0, Buffer::address),
        };
        if self.state.lock().buffers.is_empty() {
            return Ok(());
        }
        buffer::take_away(queue, address)?;
        let olds = std::mem::take(&mut self.state.lock().buffers);
        for mut old in olds {
            let reading = reading::read(queue, &mut old);
            self.note(queue, &reading);
            self.retire(queue, old, reading);
        }
        Ok(())
    }

    /// Judges what was read last from a buffer that the driver does not write to any more, ends the waits that it ends,
    /// and keeps the buffer, to see that it stays as it is. The reading is in the report already.
    fn retire(&self, queue: &Arc<HwQueue>, old: Buffer, reading: reading::Reading) {
        let adapter = queue.adapter();
        let held = old.bytes();
        self.retired.lock().push((old, held));
        let news = News { records: reading.records.clone(), complete: reading.complete };
        reading.judge(adapter);
        if adapter.known_caps().has_optimized_interrupt() {
            collecting::wake(adapter, queue, &news);
        }
    }

    fn replace(
        &self,
        queue: &Arc<HwQueue>,
        manager: &Arc<Manager>,
        kind: DXGK_NATIVE_FENCE_LOG_TYPE,
    ) -> Result<(), NTSTATUS> {
        let mut buffer = Buffer::make(queue, manager, kind, self.wanted(queue))?;
        if let Err(status) = buffer.set(queue) {
            buffer.hide(queue.context().device().process(), manager);
            return Err(status);
        }
        let mut state = self.state.lock();
        let Some(at) = state.buffers.iter().position(|old| old.kind == kind) else {
            state.buffers.push(buffer);
            return Ok(());
        };
        // The driver writes to the old one no more; the new one is not read before what the old one holds is in the
        // report.
        let reading = reading::read(queue, &mut state.buffers[at]);
        buffer.last_time = state.buffers[at].last_time;
        let old = std::mem::replace(&mut state.buffers[at], buffer);
        self.note(queue, &reading);
        drop(state);
        self.retire(queue, old, reading);
        Ok(())
    }

    /// Whether the GPU has written entries that were not read.
    fn has_news(&self) -> bool {
        self.state.lock().buffers.iter().any(reading::has_news)
    }

    /// Reads what is new. The driver has flushed.
    fn read(&self, queue: &Arc<HwQueue>) -> News {
        let mut readings = Vec::new();
        let mut news = News::default();
        {
            let mut state = self.state.lock();
            news.complete = state.buffers.len() == KINDS.len() && !state.replacing;
            for buffer in &mut state.buffers {
                let reading = reading::read(queue, buffer);
                news.complete &= reading.complete;
                news.records.extend(&reading.records);
                // Under the lock: the order of the report is that of the log.
                self.note(queue, &reading);
                readings.push(reading);
            }
        }
        let lost = readings.iter().filter(|reading| reading.loss.is_some()).map(|reading| reading.new).max();
        for reading in readings {
            reading.judge(queue.adapter());
        }
        if let Some(new) = lost {
            self.grow(queue, new);
        }
        news
    }

    /// Puts what was read into the report; a loss only while somebody traces.
    fn note(&self, queue: &HwQueue, reading: &reading::Reading) {
        let shared = queue.adapter().shared();
        shared.counters.add_log(&reading.records, reading.loss.filter(|_| shared.is_tracing_fences()));
    }

    /// `new` entries came between two readings, and not all of them could be read: while fences are traced, the worker
    /// makes buffers with room for twice as many, and at least a page more.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    fn grow(&self, queue: &Arc<HwQueue>, new: u64) {
        let adapter = queue.adapter();
        let Some(manager) = VidMm::of(adapter).manager() else { return };
        let now = self.state.lock().buffers.iter().map(|buffer| buffer.entries).min().unwrap_or(u32::MAX);
        let most = entries_in(adapter.personality().most_log_pages);
        if !adapter.shared().is_tracing_fences() || now >= most || self.growing.swap(true, Ordering::AcqRel) {
            return;
        }
        let pages = pages_for(new.saturating_mul(2)).max(pages_for(u64::from(now) + 1));
        self.grown.fetch_max(entries_in(pages).min(most), Ordering::AcqRel);
        let weak = Arc::downgrade(queue);
        manager.post(
            adapter,
            Box::new(move |_, manager| {
                if let Some(queue) = weak.upgrade() {
                    // A driver that refuses has broken DXG-LOG-SET.
                    let _ = queue.log().make_on_worker(&queue, manager);
                    queue.log().growing.store(false, Ordering::Release);
                }
            }),
        );
    }

    /// Offers the driver a buffer of a kind that need not exist; what it answers. Buffers of its own follow where it
    /// took it.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn offer(&self, queue: &Arc<HwQueue>, kind: DXGK_NATIVE_FENCE_LOG_TYPE) -> NTSTATUS {
        let adapter = queue.adapter();
        let Some(manager) = VidMm::of(adapter).manager() else { return ntstatus::STATUS_DEVICE_REMOVED };
        let this = queue.clone();
        let offered = manager.run_on_worker(adapter, move |_, manager| {
            let buffer = match Buffer::make(&this, manager, kind, entries_in(1)) {
                Ok(buffer) => buffer,
                Err(status) => return status,
            };
            let status = buffer.offer(&this);
            if status.is_success() {
                // The rule about refusals is judged.
                let _ = this.log().make_on_worker(&this, manager);
                let held = buffer.bytes();
                this.log().retired.lock().push((buffer, held));
            } else {
                buffer.hide(this.context().device().process(), manager);
            }
            status
        });
        offered.unwrap_or(ntstatus::STATUS_SYSTEM_SHUTDOWN)
    }

    /// The buffers, for tests and tools.
    pub(crate) fn describe(&self, queue: &HwQueue) -> Vec<LogBuffer> {
        let describe = |buffer: &Buffer| {
            let header = buffer.header();
            LogBuffer {
                process: queue.context().device().process().process().map_or(0, |process| process.nt().id()),
                queue: queue.user_handle(),
                driver: queue.driver_handle(),
                is_wait_log: buffer.is_waits(),
                entries: buffer.entries,
                cpu: buffer.address(),
                gpu: buffer.gpu,
                system: buffer.system,
                index: header.FirstFreeEntryIndex(),
                wraps: header.WraparoundCount(),
            }
        };
        self.state.lock().buffers.iter().map(describe).collect()
    }

    /// The queue is about to be destroyed: when this returns, nobody makes buffers any more.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn close(&self, queue: &HwQueue) {
        let busy = {
            let mut state = self.state.lock();
            state.closed = true;
            state.replacing
        };
        if busy && let Some(manager) = VidMm::of(queue.adapter()).manager() {
            manager.run_on_worker(queue.adapter(), |_, _| ());
        }
    }

    /// The queue is gone.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn destroy(&self, queue: &HwQueue) {
        let mut all = std::mem::take(&mut self.state.lock().buffers);
        let retired = std::mem::take(&mut *self.retired.lock());
        let adapter = queue.adapter();
        for (buffer, held) in retired {
            let same = buffer.bytes() == held;
            adapter.rules().check(&LOG_STALE, same, || format!("{:?}: a replaced buffer changed", buffer.kind));
            all.push(buffer);
        }
        if all.is_empty() {
            return;
        }
        let Some(manager) = VidMm::of(adapter).manager() else { return };
        let context = queue.context().clone();
        manager.run_on_worker(adapter, move |_, manager| {
            for buffer in all {
                buffer.hide(context.device().process(), manager);
            }
        });
    }
}
