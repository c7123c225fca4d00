//! An adapter: one device of one driver, from AddDevice to RemoveDevice.
//!
//! [`Adapter`] is what tools and tests hold; the way into its driver is its [`Miniport`]. What happens to an adapter is
//! in the submodules: [`start`] and [`stop`], [`judge`] and [`first`] (whether what the driver answered is consistent).

mod cross;
mod display_only;
mod every_slot;
mod first;
pub(crate) mod judge;
pub(crate) mod link;
mod polls;
mod problem;
mod removal;
pub(crate) mod start;
pub(crate) mod stop;

use std::ops::Deref;
use std::sync::Arc;

use wddm_abi::DXGK_FEATURE_ID;

use crate::objects::fence::native::FenceOnAdapter;
use crate::port::driver::LoadedDriver;
use crate::port::features::{FeatureState, Features};
use crate::port::miniport::Miniport;
use crate::port::shared::Shared;
use crate::recovery::Watch;
use crate::sched::vidsch::VidSch;

pub use crate::port::compute;
pub use crate::port::miniport::{AdapterConfig, AdapterState, DdiCall, JOURNAL};
pub use crate::port::place::Place;
pub use crate::port::tdr::steps::{Reason, Recovery, Step, What};
pub use crate::recovery::collect::{DebugBlob, DebugQuestion};
pub use crate::sched::interrupt::Notification;
pub use crate::sched::vidsch::journal::{PacketEvent, Preemptions};
pub use problem::{FailureReason, Problem, StartError};

/// An adapter as tools and tests hold it. What is asked of its driver, and what is known of both, is the
/// [`Miniport`]'s, to which it leads.
#[derive(Debug)]
pub struct Adapter {
    miniport: Arc<Miniport>,
}

impl Deref for Adapter {
    type Target = Arc<Miniport>;

    fn deref(&self) -> &Arc<Miniport> {
        &self.miniport
    }
}

impl Adapter {
    pub(crate) fn new(shared: &Arc<Shared>, driver: &Arc<LoadedDriver>, config: AdapterConfig) -> Arc<Self> {
        Arc::new(Self { miniport: Miniport::new(shared, driver, config) })
    }

    /// What user mode would pass to have a cross-adapter resource of this driver made: the private data of allocation
    /// and resource. `None`: the driver advertises none, or has none.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub fn cross_adapter_data(&self) -> Option<[Vec<u8>; 2]> {
        cross::private_data(self)
    }

    /// The state of a feature; the driver is asked when it was not before.
    pub fn feature(&self, id: DXGK_FEATURE_ID) -> FeatureState {
        Features::of(self).query(self, id)
    }

    /// What the driver wrote last into the buffer of `DxgkDdiCollectDbgInfo` or `DxgkDdiCollectDbgInfo2`, whole, as a
    /// live dump of Windows has it; empty before the first reset.
    pub fn debug_info(&self) -> Vec<u8> {
        Watch::of(self).debug_info()
    }

    /// Where the values of each native fence lie: segments of CurrentValue and MonitoredValue; 0: system memory. In no
    /// order.
    pub fn native_fence_segments(&self) -> Vec<(u32, u32)> {
        FenceOnAdapter::all_of(self).iter().map(|driver_fence| driver_fence.slot().segments()).collect()
    }

    /// Debug information that the driver gave, the newest last; the last 16.
    pub fn debug_blobs(&self) -> Vec<DebugBlob> {
        Watch::of(self).debug_blobs()
    }

    /// What was recovered, step by step, in order.
    pub fn recoveries(&self) -> Vec<Recovery> {
        Watch::of(self).journal.recoveries()
    }

    /// What has happened to the packets of a node, in order; empty for a node that is not there.
    pub fn packet_journal(&self, node: u32) -> Vec<PacketEvent> {
        VidSch::of(self).node(node).map(|node| node.packet.journal()).unwrap_or_default()
    }

    /// How often a packet node was preempted, ever.
    pub fn packet_preemptions(&self, node: u32) -> Preemptions {
        VidSch::of(self).node(node).map(|node| node.packet.preemptions()).unwrap_or_default()
    }
}
