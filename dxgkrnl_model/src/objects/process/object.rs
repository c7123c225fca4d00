//! What user-mode handles lead to.

use std::sync::Arc;

use super::ProcessAdapter;
use crate::objects::context::Context;
use crate::objects::device::Device;
use crate::objects::doorbell::Doorbell;
use crate::objects::fence::monitored::MonitoredFence;
use crate::objects::fence::native::LocalFence;
use crate::objects::hw_context::HwContext;
use crate::objects::hw_queue::HwQueue;
use crate::objects::open_allocation::{OpenAllocation, OpenResource};
use crate::objects::paging_queue::PagingQueue;
use crate::port::handle::HandleType;

/// What a user-mode handle leads to.
#[derive(Clone, Debug)]
pub(crate) enum UserObject {
    Adapter(Arc<ProcessAdapter>),
    Device(Arc<Device>),
    Context(Arc<Context>),
    HwContext(Arc<HwContext>),
    HwQueue(Arc<HwQueue>),
    PagingQueue(Arc<PagingQueue>),
    Allocation(Arc<OpenAllocation>),
    Resource(Arc<OpenResource>),
    Monitored(Arc<MonitoredFence>),
    Native(Arc<LocalFence>),
    Doorbell(Arc<Doorbell>),
}

impl UserObject {
    pub(super) fn kind(&self) -> HandleType {
        match self {
            Self::Adapter(_) => HandleType::Adapter,
            Self::Device(_) => HandleType::Device,
            Self::Context(_) => HandleType::Context,
            Self::HwContext(_) => HandleType::HwContext,
            Self::HwQueue(_) => HandleType::HwQueue,
            Self::PagingQueue(_) => HandleType::PagingQueue,
            Self::Allocation(_) => HandleType::Allocation,
            Self::Resource(_) => HandleType::Resource,
            Self::Monitored(_) => HandleType::SyncObject,
            Self::Native(_) => HandleType::NativeFence,
            Self::Doorbell(_) => HandleType::Doorbell,
        }
    }

    /// The device that it belongs to; none for adapters and devices, and for fences that were opened without one.
    pub(super) fn device(&self) -> Option<&Arc<Device>> {
        match self {
            Self::Adapter(_) | Self::Device(_) => None,
            Self::Context(context) => Some(context.device()),
            Self::HwContext(context) => Some(context.device()),
            Self::HwQueue(queue) => Some(queue.context().device()),
            Self::PagingQueue(queue) => Some(queue.device()),
            Self::Allocation(open) => Some(open.device()),
            Self::Resource(open) => Some(open.device()),
            Self::Monitored(fence) => fence.device(),
            Self::Native(fence) => Some(fence.device()),
            Self::Doorbell(doorbell) => Some(doorbell.queue().context().device()),
        }
    }

    /// Dependents have a lower number and go first.
    pub(super) fn order(&self) -> u8 {
        match self {
            Self::Doorbell(_) => 0,
            Self::HwQueue(_) => 1,
            Self::HwContext(_) => 2,
            Self::Context(_) => 3,
            Self::PagingQueue(_) => 4,
            Self::Native(_) => 5,
            Self::Monitored(_) => 6,
            Self::Resource(_) => 7,
            Self::Allocation(_) => 8,
            Self::Device(_) => 9,
            Self::Adapter(_) => 10,
        }
    }

    /// Destroys what the driver has of it. A second call does nothing.
    pub(crate) fn destroy(&self) {
        match self {
            Self::Doorbell(doorbell) => doorbell.destroy(),
            Self::HwQueue(queue) => queue.destroy(),
            Self::HwContext(context) => context.destroy(),
            Self::Context(context) => context.destroy(),
            Self::PagingQueue(queue) => queue.destroy(),
            Self::Native(fence) => fence.destroy(),
            Self::Monitored(fence) => fence.destroy(),
            Self::Resource(resource) => resource.destroy(),
            Self::Allocation(allocation) => allocation.destroy(),
            Self::Device(device) => device.destroy(),
            Self::Adapter(_) => (),
        }
    }
}
