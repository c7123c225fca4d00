//! A client that waits: one process with the user-mode driver and direct `D3DKMT*` calls on the same fences.

use super::stage::patience;
use super::{Denied, Played, Raw, Scene, same};
use crate::client::{Adapter, Allocation, Device, Fence, Queue};
use crate::world::User;
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::adapter::Notification;
use dxgkrnl_model::thunks::Thunks;
use gpu_wire::packet::Indirect;
use nt_model::{Event, Machine};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use umd_core::ffi::types::{FP_FENCE_MONITORED, FP_KIND_SYSTEM, FP_QUEUE_KERNEL_MODE};
use wddm_abi::{D3DKMT_HANDLE, HANDLE};

/// Long enough for anything that must happen.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a ring.
pub const RING: u64 = 64 << 10;

/// The process.
pub struct Client {
    /// The user-mode driver's device.
    pub device: Device,
    /// The user-mode driver's adapter.
    pub adapter: Adapter,
    /// A device without the user-mode driver, which waits and signals from the CPU name.
    pub plain: D3DKMT_HANDLE,
    /// Direct calls.
    pub raw: Raw,
    /// The process.
    pub user: User,
    /// Whether the adapter has native fences: on the lower rungs it has not.
    pub has_native: bool,
    /// Whether the adapter takes work by doorbells: on rung 3 only.
    has_doorbells: bool,
}

impl Client {
    /// Makes a process on the first adapter.
    ///
    /// # Errors
    /// When a step fails.
    pub fn open(scene: &Scene, name: &str) -> Result<Self> {
        let user = scene.process(name)?;
        let raw = Raw::open(&user.process, scene.adapter().luid())?;
        let plain = raw.device().context("device")?;
        let adapter = user.open()?;
        let device = adapter.device()?;
        let has_native = scene.adapter().caps().is_some_and(|caps| caps.has_native_fences());
        let has_doorbells = scene.adapter().caps().is_some_and(|caps| caps.has_user_mode_submission());
        Ok(Self { device, adapter, plain, raw, user, has_native, has_doorbells })
    }

    /// On rung 3, where queues wait for native fences by themselves, `got` must be `want`: MonitoredValue, calls of the
    /// driver, interrupts. On lower rungs the OS waits for the queues and each signal interrupts, so nothing is
    /// checked; what the case says of either kind of fence is checked by [`same`] on every rung.
    ///
    /// # Errors
    /// When a step fails.
    pub fn native_same<T: PartialEq + std::fmt::Debug>(&self, what: &str, got: T, want: T) -> Played {
        if self.has_doorbells { same(what, got, want) } else { Ok(()) }
    }

    /// A fence of either kind; on rungs without native fences a monitored one.
    ///
    /// # Errors
    /// When a step fails.
    pub fn fence(&self, initial: u64, native: bool) -> Result<Fence> {
        let native = native && self.has_native;
        let fence = self.device.fence(initial, if native { 0 } else { FP_FENCE_MONITORED })?;
        ensure!(fence.is_monitored()? != native, "the fence is of the other kind");
        Ok(fence)
    }

    /// A queue for user-mode submission.
    ///
    /// # Errors
    /// When a step fails.
    pub fn queue(&self, node: u32) -> Result<Queue> {
        Ok(self.device.queue(node, RING, 0, 0)?)
    }

    /// A queue that can signal fences of this kind: user-mode submission knows native ones only.
    ///
    /// # Errors
    /// When a step fails.
    pub fn queue_for(&self, native: bool) -> Result<Queue> {
        Ok(self.device.queue(0, RING, if native { 0 } else { FP_QUEUE_KERNEL_MODE }, 0)?)
    }

    /// A page of system memory.
    ///
    /// # Errors
    /// When a step fails.
    pub fn page(&self) -> Result<Page> {
        let memory = self.device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
        Ok(Page { gpu: memory.gpu_va()?, memory })
    }

    /// A view of MonitoredValues by the GPU.
    ///
    /// # Errors
    /// When a step fails.
    pub fn peek(&self) -> Result<MonitoredValue> {
        Ok(MonitoredValue { queue: self.queue(1)?, page: self.page()? })
    }

    /// Waits with an event; the call must return at once, since this thread is the one that goes on.
    ///
    /// # Errors
    /// When a step fails.
    pub fn wait(&self, waits: &[(&Fence, u64)], any: bool) -> Result<Waiting> {
        let (event, handle) = self.raw.event();
        self.raw.wait_cpu(self.plain, &handles(waits)?, any, Some(handle)).context("a wait with an event")?;
        Ok(Waiting { event, handle })
    }

    /// Waits on a thread of its own, without an event: what arrives is the call's result.
    ///
    /// # Errors
    /// When a step fails.
    pub fn block(&self, waits: &[(&Fence, u64)], any: bool) -> Result<Receiver<Result<(), Denied>>> {
        Ok(block(&self.raw, self.plain, handles(waits)?, any))
    }

    /// Signals from the CPU, all in one call.
    ///
    /// # Errors
    /// When a step fails.
    pub fn signal(&self, signals: &[(&Fence, u64)]) -> Played {
        self.raw.signal_cpu(self.plain, &handles(signals)?).context("a signal from the CPU")
    }

    /// Waits until DPCs that are queued have run.
    fn flush(&self) {
        let _inside = self.user.process.enter();
        Machine::with_current(|machine| machine.map(Machine::flush_queued_dpcs));
    }

    /// What is at the address by which the CPU follows the fence.
    ///
    /// # Errors
    /// When a step fails.
    pub fn value(&self, fence: &Fence) -> Result<u64> {
        // CAST: an address.
        Ok(self.raw.load(fence.info()?.value_address as usize)?)
    }
}

fn handles(fences: &[(&Fence, u64)]) -> Result<Vec<(D3DKMT_HANDLE, u64)>> {
    fences.iter().map(|(fence, value)| Ok((fence.info()?.handle, *value))).collect()
}

/// Waits as `raw`'s process on a thread of its own, without an event: what arrives is the call's result.
pub fn block(
    raw: &Raw,
    device: D3DKMT_HANDLE,
    waits: Vec<(D3DKMT_HANDLE, u64)>,
    any: bool,
) -> Receiver<Result<(), Denied>> {
    let (sender, receiver) = channel();
    let raw = Raw { process: raw.process.clone(), thunks: Thunks::new(), adapter: raw.adapter };
    std::thread::spawn(move || {
        let result = raw.wait_cpu(device, &waits, any, None);
        // Let go of the process first: it must not outlive the case because of this thread.
        drop(raw);
        // The receiver is gone when the case has failed.
        let _ = sender.send(result);
    });
    receiver
}

/// The result of a call on another thread, which must have come by now or come soon.
///
/// # Errors
/// When a step fails.
pub fn returned(what: &str, receiver: &Receiver<Result<(), Denied>>) -> Result<Result<(), Denied>> {
    receiver.recv_timeout(patience()).with_context(|| format!("{what} did not return"))
}

/// A wait that sets an event.
pub struct Waiting {
    event: Arc<Event>,
    /// The process's handle of the event.
    pub handle: HANDLE,
}

impl Waiting {
    /// Whether the event is set; it is cleared.
    pub fn is_set(&self, rig: &Client) -> bool {
        rig.raw.wait_event(&self.event, Duration::ZERO)
    }

    /// Waits for the event; whether it was set in time. It is closed.
    pub fn came(self, rig: &Client) -> bool {
        let came = rig.raw.wait_event(&self.event, patience());
        rig.raw.close(self.handle);
        came
    }

    /// The event must be set now or soon, and once only.
    ///
    /// # Errors
    /// When a step fails.
    pub fn comes(&self, rig: &Client, what: &str) -> Played {
        ensure!(rig.raw.wait_event(&self.event, patience()), "{what}: the event was not set");
        rig.flush();
        ensure!(!self.is_set(rig), "{what}: the event was set twice");
        Ok(())
    }

    /// The event must not be set, once DPCs that are queued have run.
    ///
    /// # Errors
    /// When a step fails.
    pub fn still_waits(&self, rig: &Client, what: &str) -> Played {
        rig.flush();
        ensure!(!self.is_set(rig), "{what}: the event was set");
        Ok(())
    }
}

/// A command buffer that jumps to itself; its address and length.
///
/// # Errors
/// When a step fails.
pub fn endless(device: &Device) -> Result<(Allocation, u64, u64)> {
    let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
    let address = memory.gpu_va()?;
    let mut packet = Indirect { address, length: 0 };
    let length = packet.to_packet().as_bytes().len() as u64;
    packet.length = length;
    memory.write(0, packet.to_packet().as_bytes())?;
    Ok((memory, address, length))
}

/// A page that queues write and the CPU reads.
pub struct Page {
    memory: Allocation,
    /// Where the GPU has it.
    pub gpu: u64,
}

impl Page {
    /// The word at `index`.
    ///
    /// # Errors
    /// When a step fails.
    pub fn word(&self, index: u64) -> Result<u64> {
        Ok(self.memory.read_u64(index * 8)?)
    }

    /// Stores bytes at an offset.
    ///
    /// # Errors
    /// When a step fails.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Played {
        Ok(self.memory.write(offset, bytes)?)
    }

    /// Its GPU address.
    pub fn at(&self, index: u64) -> u64 {
        self.gpu + index * 8
    }

    /// Waits until the word at `index` is `value`.
    ///
    /// # Errors
    /// When a step fails.
    pub fn until(&self, scene: &Scene, what: &str, index: u64, value: u64) -> Played {
        scene.until(what, || Ok(self.word(index)? == value))
    }
}

/// Waits until the queue is done with everything, by looking: no wait of the CPU comes into being.
///
/// # Errors
/// When a step fails.
pub fn until_idle(scene: &Scene, queue: &Queue) -> Played {
    scene.until_end("the end of what was submitted", || {
        let (done, submitted) = queue.progress()?;
        Ok((done < submitted).then_some(done))
    })
}

/// MonitoredValue as the GPU reads it: the CPU has no mapping in user mode.
pub struct MonitoredValue {
    queue: Queue,
    page: Page,
}

impl MonitoredValue {
    /// The MonitoredValue of a native fence; 0 of a monitored one, which has none.
    ///
    /// # Errors
    /// When a step fails.
    pub fn monitored(&self, scene: &Scene, fence: &Fence) -> Result<u64> {
        if fence.is_monitored()? {
            return Ok(0);
        }
        let from = fence.info()?.monitored_va;
        self.queue.run(|list| list.copy(from, self.page.at(0), 8))?;
        until_idle(scene, &self.queue)?;
        self.page.word(0)
    }

    /// Waits until MonitoredValue is `value`: the OS sets an event before it moves the value on. For a monitored fence,
    /// which has no MonitoredValue, nothing is waited for.
    ///
    /// # Errors
    /// When a step fails.
    pub fn becomes(&self, scene: &Scene, fence: &Fence, value: u64) -> Played {
        if fence.is_monitored()? {
            return Ok(());
        }
        let mut last = 0;
        let became = scene.until("MonitoredValue", || {
            last = self.monitored(scene, fence)?;
            Ok(last == value)
        });
        became.with_context(|| format!("MonitoredValue is {last:#x}, not {value:#x}"))
    }
}

/// Native fence interrupts so far.
pub fn native_interrupts(scene: &Scene) -> Vec<Notification> {
    scene.adapter().notification_journal().into_iter().filter(Notification::is_native_fence).collect()
}
