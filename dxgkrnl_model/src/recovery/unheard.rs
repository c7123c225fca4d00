//! A fence that is waited for passes its monitored value, and no interrupt tells of it.
//!
//! The watch finds a fence that stays so for a whole TdrDelay. A process that ends before that would hide it: where a
//! process ends or destroys a device, the driver has a TdrDelay to tell of each fence that is overdue then.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nt_model::sched::{TICKS_PER_MS, Ticks};

use crate::objects::fence::native::FenceOnAdapter;
use crate::port::miniport::Miniport;
use crate::port::rules::fence::NF_LOST;
use crate::port::tdr::Tdr;
use crate::recovery::Watch;
use crate::sched::vidsch::VidSch;

/// A fence that is waited for, at one look.
#[derive(Clone, Copy, Debug)]
struct Waited {
    /// Dxgkrnl's handle, as a number.
    handle: u64,
    /// The least value that is waited for.
    least: u64,
    value: u64,
    /// Its device is lost, and nothing tells of it any more.
    always: bool,
}

impl Waited {
    fn is_overdue(&self) -> bool {
        self.value >= self.least && !self.always
    }

    fn judge_lost(&self, adapter: &Miniport) {
        adapter.rules().check(&NF_LOST, false, || {
            let Self { handle, least, value, .. } = self;
            format!("fence {handle:#x} is {value:#x}, {least:#x} is waited for, and no interrupt came")
        });
    }
}

/// The adapter's fences that are waited for.
fn waited(adapter: &Miniport) -> Vec<Waited> {
    let waits = |driver_fence: &Arc<FenceOnAdapter>| {
        let fence = driver_fence.fence()?;
        let (least, value, always) = (fence.waiters().least()?, fence.value(), fence.is_always_signaled());
        Some(Waited { handle: driver_fence.handle(), least, value, always })
    };
    FenceOnAdapter::all_of(adapter).iter().filter_map(waits).collect()
}

/// Judges that no fence is overdue for `delay`: such a fence was signaled without an interrupt. `at` is told when to
/// look again.
pub(super) fn audit(adapter: &Arc<Miniport>, now: Ticks, delay: Ticks, at: &mut impl FnMut(Ticks)) {
    let waited = waited(adapter);
    if !waited.is_empty() {
        at(now + delay);
    }
    let known = std::mem::take(&mut *Watch::of(adapter).lost.lock());
    let mut candidates = Vec::new();
    for fence in waited.iter().filter(|fence| fence.is_overdue()) {
        let since = known.iter().find(|(known, _)| *known == fence.handle).map_or(now, |(_, since)| *since);
        if now >= since + delay {
            fence.judge_lost(adapter);
            crate::objects::fence::update::scan_native(adapter);
        } else {
            candidates.push((fence.handle, since));
        }
    }
    if !waited.is_empty() {
        adapter.rules().count(&NF_LOST);
    }
    *Watch::of(adapter).lost.lock() = candidates;
    Watch::of(adapter).last_audit.store(now, Ordering::Relaxed);
}

/// Waits until the driver has told of every fence that is overdue now, TdrDelay at most; what a reset keeps from being
/// heard has its time behind that.
///
/// IRQL: PASSIVE_LEVEL.
pub(crate) fn judge_at_end(adapter: &Miniport) {
    let kernel = adapter.kernel();
    let delay = adapter.personality().tdr.delay;
    let overdue = || waited(adapter).into_iter().filter(Waited::is_overdue);
    let mut left: Vec<_> = overdue().collect();
    let mut until = kernel.now() + delay;
    while !left.is_empty() && adapter.is_working() && !adapter.rules().is_stopped() {
        if is_unheard(adapter) {
            until = kernel.now() + delay;
        } else if kernel.now() >= until {
            left.iter().for_each(|fence| fence.judge_lost(adapter));
            return crate::objects::fence::update::scan_native(adapter);
        }
        // CAST: a constant.
        kernel.delay_execution(-(TICKS_PER_MS as i64));
        let still: Vec<_> = overdue().collect();
        left.retain(|fence| still.iter().any(|other| (other.handle, other.least) == (fence.handle, fence.least)));
    }
}

/// Returns whether a reset is under way, in which what a node says of fences is not heard.
fn is_unheard(adapter: &Miniport) -> bool {
    let nodes = VidSch::of(adapter).nodes();
    nodes.iter().any(|node| node.packet.is_ignored() || Tdr::of(adapter).is_resetting(node.ordinal))
}
