//! Whose logs are read when, and who wakes because of what they say.
//!
//! | interrupt | whose logs | who wakes |
//! |---|---|---|
//! | an array of fences | all queues of the devices that have one of them open | who waits for those fences |
//! | no array | all queues of the adapter | whoever waits for a value that a fence has reached |
//! | optimized, a queue | that queue's | who waits for the fences that its new entries name |
//! | optimized, NULL | all queues of the engine | the same |
//!
//! With the optimized interrupt a reading that is not whole has the live values of all fences looked at that the
//! queue's process has open, as the article lets Dxgkrnl fall back.
//!
//! Source: article native-gpu-fence-objects, future hardware requirements, optimized native fence signaled interrupt,
//! log buffer overrun; DDI page DXGKARGCB_NOTIFY_INTERRUPT_DATA, `pSignaledNativeFenceArray` and `hHWQueue`.
//!
//! Chosen: a log says which fence to look at, and the fence's value which waits end: user mode chose what the entry
//! says, and the value is what a waiter is promised. Devices of a process share GPU addresses, so that the fallback
//! takes all of them. A handle that names no fence of the process (closed meanwhile, or never one) has every native
//! fence of the adapter looked at, and so has a queue without logs: one for kernel-mode submission, whose progress
//! fence no log has. The same goes for NULL where the engine's logs end no wait: user mode has not logged a signal, and
//! the documents do not say what then. Under the reading `wakes-by-log` ([`LogWakes::Entries`]) the entries' values say
//! which waits end, and nothing else is looked at.

use std::sync::Arc;

use wddm_abi::{DXGKARG_UPDATENATIVEFENCELOGS, HANDLE, NTSTATUS};

use super::News;
use crate::objects::fence::native::{FenceOnAdapter, NativeFence};
use crate::objects::fence::update::scan_native;
use crate::objects::hw_queue::HwQueue;
use crate::port::ddi::{self, call_ddi};
use crate::port::miniport::Miniport;
use crate::port::personality::LogWakes;
use crate::port::rules::fence::LOG_FLUSH;

/// Reads the logs of all queues that have news.
///
/// IRQL: at most DISPATCH_LEVEL.
pub(crate) fn collect(adapter: &Arc<Miniport>) {
    collect_from(adapter, &with_news(adapter, |_| true));
}

/// Reads the logs of the queues with news whose device has one of `fences` open.
///
/// IRQL: at most DISPATCH_LEVEL.
pub(crate) fn collect_for(adapter: &Arc<Miniport>, fences: &[Arc<FenceOnAdapter>]) {
    let concerned = |queue: &HwQueue| fences.iter().any(|fence| queue.context().device().has_open(fence));
    collect_from(adapter, &with_news(adapter, concerned));
}

/// Reads the logs of some queues, with news or not. Where interrupts name queues only, reading a log ends the waits
/// that it tells of. True: waits have ended.
///
/// IRQL: at most DISPATCH_LEVEL.
pub(crate) fn collect_from(adapter: &Arc<Miniport>, queues: &[Arc<HwQueue>]) -> bool {
    let readings = read_from(adapter, queues);
    let mut ended = false;
    if adapter.known_caps().has_optimized_interrupt() {
        for (queue, news) in readings {
            ended |= wake(adapter, &queue, &news);
        }
    }
    ended
}

/// The queue that an optimized interrupt names.
///
/// IRQL: DISPATCH_LEVEL.
pub(crate) fn wake_from(adapter: &Arc<Miniport>, queue: &Arc<HwQueue>) {
    if queue.has_logs() {
        collect_from(adapter, std::slice::from_ref(queue));
    } else {
        scan_native(adapter);
    }
}

/// An optimized interrupt of an engine that names no queue.
///
/// IRQL: DISPATCH_LEVEL.
pub(crate) fn wake_from_engine(adapter: &Arc<Miniport>, node: u32) {
    let on_engine = |queue: &HwQueue| queue.context().node() == node;
    let unlogged = HwQueue::all_of(adapter).iter().any(|queue| on_engine(queue) && !queue.has_logs());
    let ended = collect_from(adapter, &with_news(adapter, on_engine));
    let looks = adapter.personality().log_wakes == LogWakes::Values;
    if unlogged || (looks && !ended) {
        scan_native(adapter);
    }
}

/// Ends waits because of what was new in a queue's logs. True: there were some.
///
/// IRQL: at most DISPATCH_LEVEL.
pub(super) fn wake(adapter: &Arc<Miniport>, queue: &HwQueue, news: &News) -> bool {
    let Some(owner) = queue.context().device().process().process() else {
        scan_native(adapter);
        return true;
    };
    let mut ended = false;
    if !news.complete {
        adapter.shared().counters.log_scan();
        let devices = owner.gpu_process_on(adapter).into_iter().flat_map(|gpu_process| gpu_process.devices());
        for device in devices {
            ended |= device.look_at_fences(adapter);
        }
    }
    let signals = news.records.iter().filter(|record| !record.is_wait_log);
    let by_entries = adapter.personality().log_wakes == LogWakes::Entries;
    if by_entries {
        for record in signals.clone() {
            let fence = owner.native_fence(record.fence);
            ended |= fence.is_some_and(|fence| fence.fence().logged(adapter.kernel(), record.value));
        }
    }
    let mut named: Vec<_> = signals.map(|record| record.fence).collect();
    named.sort_unstable();
    named.dedup();
    for handle in named {
        match owner.native_fence(handle) {
            Some(fence) if by_entries && !fence.fence().is_cross_adapter() => {}
            Some(fence) => ended |= NativeFence::looked_at_on(adapter.kernel(), adapter, vec![fence.fence().clone()]),
            None => scan_native(adapter),
        }
    }
    ended
}

fn with_news(adapter: &Miniport, concerned: impl Fn(&HwQueue) -> bool) -> Vec<Arc<HwQueue>> {
    let queues = HwQueue::all_of(adapter).into_iter();
    queues.filter(|queue| queue.has_logs() && concerned(queue) && queue.log().has_news()).collect()
}

/// Lets the driver flush logs, and reads them. Nothing when it does not: then all is still new. A queue whose
/// `DxgkDdiDestroyHwQueue` has begun is not named to the driver, and nothing of it is read.
fn read_from(adapter: &Arc<Miniport>, queues: &[Arc<HwQueue>]) -> Vec<(Arc<HwQueue>, News)> {
    let (here, going): (Vec<_>, Vec<_>) =
        queues.iter().map(|queue| (queue, queue.name())).partition(|(_, named)| named.is_some());
    let mut read: Vec<_> = going.into_iter().map(|(queue, _)| (queue.clone(), News::default())).collect();
    if here.is_empty() {
        return read;
    }
    let handles: Vec<usize> = here.iter().map(|(queue, _)| queue.driver_handle()).collect();
    let status = flush(adapter, &handles);
    let fine = ddi::succeeded(status);
    adapter.rules().check(&LOG_FLUSH, fine, || format!("{} queues: {status:?}", here.len()));
    let news = |queue: &Arc<HwQueue>| if status.is_success() { queue.log().read(queue) } else { News::default() };
    read.extend(here.iter().map(|(queue, _)| ((*queue).clone(), news(queue))));
    read
}

/// `DxgkDdiUpdateNativeFenceLogs` for queues by the driver's handles.
///
/// IRQL: at most DISPATCH_LEVEL.
pub(crate) fn flush(adapter: &Arc<Miniport>, handles: &[usize]) -> NTSTATUS {
    let mut handles: Vec<_> = handles.iter().map(|number| HandleOf(crate::port::handle::of_driver(*number))).collect();
    let mut arguments = DXGKARG_UPDATENATIVEFENCELOGS::zeroed();
    // CAST: a process has fewer queues than that.
    arguments.NumberOfQueues = handles.len() as u32;
    arguments.hHWQueue = handles.as_mut_ptr().cast();
    let pointer = &raw const arguments;
    adapter.shared().counters.logs_flushed(handles.len() as u64);
    ddi::status(call_ddi!(adapter, DxgkDdiUpdateNativeFenceLogs(pointer)))
}

/// A driver's handle, as an array element.
#[repr(transparent)]
#[derive(Debug)]
struct HandleOf(HANDLE);
