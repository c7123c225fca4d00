//! A process on one of several adapters.

use super::raw::duplicate_number;
use super::{GpuReader, Played, Raw, Scene};
use crate::client::{Device, Fence};
use crate::world::User;
use anyhow::{Context, Result};
use dxgkrnl_model::adapter::Adapter;
use nt_model::Event;
use std::sync::Arc;
use std::time::Duration;
use umd_core::ffi::types::{FP_FENCE_CROSS_ADAPTER, FP_FENCE_SHARED};
use wddm_abi::{D3DKMT_HANDLE, DXGK_INTERRUPT_TYPE};

/// A process on one of the adapters.
pub struct AdapterClient {
    /// The adapter.
    pub adapter: Arc<Adapter>,
    /// The user-mode driver's device.
    pub device: Device,
    /// A queue on node 0, and memory.
    pub probe: GpuReader,
    /// For waits and signals from the CPU.
    pub plain: D3DKMT_HANDLE,
    /// Direct calls.
    pub raw: Raw,
    /// The process.
    pub user: User,
}

/// A wait that sets an event.
pub struct AdapterWait(Arc<Event>);

impl AdapterClient {
    /// A new process on the adapter at `index`.
    ///
    /// # Errors
    /// When a step fails.
    pub fn open(scene: &Scene, index: usize) -> Result<Self> {
        let adapter = scene.adapters[index].clone();
        let user = scene.process(if index == 0 { "first" } else { "second" })?;
        let device = user.open_with(Some(adapter.luid_number()), 0)?.device()?;
        let probe = GpuReader::new(&device)?;
        let raw = Raw::open(&user.process, adapter.luid())?;
        let plain = raw.device().context("device")?;
        Ok(Self { adapter, device, probe, plain, raw, user })
    }

    /// How often the adapter's driver was called at `ddi`.
    pub fn calls(&self, ddi: &str) -> u64 {
        self.adapter.ddi_calls().get(ddi).copied().unwrap_or(0)
    }

    /// How often it was told of a value that the CPU wrote, or that it must not write.
    pub fn current_value_updates(&self) -> u64 {
        self.calls("DxgkDdiUpdateCurrentValuesFromCpu")
    }

    /// Waits until its driver was told of a value once more than `before`: the OS may wake the CPU first, and an engine
    /// may see the value in memory before its driver hears of it.
    ///
    /// # Errors
    /// When the driver is not told.
    pub fn until_told(&self, scene: &Scene, before: u64) -> Played {
        scene.until("the notification of the adapter's driver", || Ok(self.current_value_updates() > before))
    }

    /// Whether the adapter has native fences: on the lower rungs it has not.
    pub fn has_native(&self) -> bool {
        self.adapter.caps().is_some_and(|caps| caps.has_native_fences())
    }

    /// How many interrupts for native fences it reported.
    pub fn native_fence_interrupts(&self) -> u64 {
        self.adapter.notifications_of(DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_NATIVE_FENCE_SIGNALED)
    }

    /// A fence for both adapters.
    ///
    /// # Errors
    /// When a step fails.
    pub fn fence(&self, initial: u64) -> Result<Fence> {
        Ok(self.device.fence(initial, FP_FENCE_SHARED | FP_FENCE_CROSS_ADAPTER)?)
    }

    /// Opens what the other side made.
    ///
    /// # Errors
    /// When a step fails.
    pub fn open_fence(&self, fence: &Fence, of: &Self) -> Result<Fence> {
        let handle = fence.share()?;
        let copy = duplicate_number(handle, &of.user.process, &self.user.process)?;
        drop(of.user.process.nt().close_handle(handle));
        let opened = self.device.open_fence(copy, false);
        let closed = self.user.process.nt().close_handle(copy);
        let _inside = self.user.process.enter();
        drop(closed);
        Ok(opened?)
    }

    /// Has an event set when the fence is at `value`.
    ///
    /// # Errors
    /// When a step fails.
    pub fn wait(&self, fence: &Fence, value: u64) -> Result<AdapterWait> {
        let (event, handle) = self.raw.event();
        self.raw.wait_cpu(self.plain, &[(fence.info()?.handle, value)], false, Some(handle)).context("a wait")?;
        Ok(AdapterWait(event))
    }

    /// Whether the event is set in time.
    pub fn is_woken(&self, waiting: &AdapterWait, limit: Duration) -> bool {
        self.raw.wait_event(&waiting.0, limit)
    }

    /// Signals from the CPU.
    ///
    /// # Errors
    /// When a step fails.
    pub fn signal(&self, fence: &Fence, value: u64) -> Played {
        self.raw.signal_cpu(self.plain, &[(fence.info()?.handle, value)]).context("a signal")
    }

    /// Queues a wait; the value that memory has behind it.
    ///
    /// # Errors
    /// When a step fails.
    pub fn queue_wait(&self, fence: &Fence, value: u64) -> Result<u64> {
        let at = self.probe.memory.gpu_va()?;
        self.probe.queue.run(|list| {
            list.wait(fence, value)?;
            list.store(at, value)
        })?;
        Ok(value)
    }

    /// Queues a signal.
    ///
    /// # Errors
    /// When a step fails.
    pub fn queue_signal(&self, fence: &Fence, value: u64) -> Played {
        self.probe.queue.run(|list| list.signal(fence, value))?;
        Ok(())
    }

    /// Waits until what is behind [`Self::queue_wait`] has run, without a wait of the CPU.
    ///
    /// # Errors
    /// When a step fails.
    pub fn until_ran(&self, scene: &Scene, what: &str, value: u64) -> Played {
        scene.until(what, || Ok(self.probe.memory.read_u64(0)? == value))
    }
}
