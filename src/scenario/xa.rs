//! XA: cross-adapter fences.
//!
//! | file | holds |
//! |---|---|
//! | `xa.rs` | the cases by id, and an adapter as a case has it |
//! | `native.rs` | both adapters have native fences |
//! | `mixed.rs` | one of them has not |

mod mixed;
mod native;
mod once;

use super::nf::Probe;
use super::raw::duplicate_number;
use super::{Played, Raw, Scenario, Scene, Stage};
use crate::client::{Device, Fence};
use crate::world::User;
use anyhow::{Context, Result};
use dxgkrnl_model::adapter::Adapter;
use nt_model::Event;
use std::sync::Arc;
use std::time::Duration;
use umd_core::ffi::types::{FP_FENCE_CROSS_ADAPTER, FP_FENCE_SHARED};
use wddm_abi::{D3DKMT_HANDLE, DXGK_INTERRUPT_TYPE};

const ARTICLE: &str = "Native GPU fence object, Cross-adapter native fences";
const ONE: &str = "Native GPU fence object, Scenario 1";
const WIDTHS: &str = "DXGK_VIDSCHCAPS, No64BitAtomics; D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2";
const TWO_A: &str = "Native GPU fence object, Scenario 2a";
const TWO_B: &str = "Native GPU fence object, Scenario 2b";

pub(super) const CASES: &[Scenario] = &[
    case("XA-01", "a cross-adapter fence is of the default type", ARTICLE, native::types),
    case("XA-02", "one CurrentValue, a MonitoredValue for each adapter", ARTICLE, native::values),
    case("XA-03", "MonitoredValue stays 0 whoever waits", ARTICLE, native::monitored_value),
    case("XA-04", "signals on one adapter, waits on the other", ONE, native::signal_and_wait),
    case("XA-06", "a native fence, opened where there are none", TWO_A, mixed::native_as_monitored),
    case("XA-07", "a monitored fence, opened where native ones are", TWO_B, mixed::monitored_as_native),
    case("XA-09", "a notification that nobody waits for", ONE, native::nobody_waits),
    case(
        "XA-10",
        "the other adapter is removed",
        "DXGK_UPDATECURRENTVALUESFROMCPU_FLAGS, AlwaysSignaled",
        native::removed,
    ),
    case("XA-11", "queues of both adapters take turns, 10000 rounds", ONE, native::turns),
    case("XA-12", "every signal interrupts, 10000 signals", ARTICLE, native::interrupts),
    case("XA-13", "a wait and a signal on one adapter: nobody tells its driver", ARTICLE, native::same_adapter),
    case(
        "XA-14",
        "packet contexts of the adapter without native fences wait and signal",
        TWO_A,
        mixed::packet_contexts,
    ),
    case("XA-17", "many fences signaled in one call: one call of each driver", ONE, native::many),
    case(
        "XA-16",
        "an adapter is removed, where one has native fences and the other has not",
        "DXGK_UPDATECURRENTVALUESFROMCPU_FLAGS, AlwaysSignaled; Context monitoring",
        mixed::removed,
    ),
    case("XA-18", "looks while the CPU signals: each driver is told once", ONE, once::told_once),
    case("XA-15", "fences of 32 bits and of 64 are not opened for each other", WIDTHS, mixed::widths),
];

const fn case(id: &'static str, title: &'static str, source: &'static str, play: fn(&Stage) -> Played) -> Scenario {
    Scenario { id, title, source, play }
}

/// A process on one of the adapters.
struct Side {
    adapter: Arc<Adapter>,
    device: Device,
    probe: Probe,
    /// For waits and signals from the CPU.
    plain: D3DKMT_HANDLE,
    raw: Raw,
    user: User,
}

/// A wait that sets an event.
struct Waiting(Arc<Event>);

impl Side {
    fn open(scene: &Scene, index: usize) -> Result<Self> {
        let adapter = scene.adapters[index].clone();
        let user = scene.process(if index == 0 { "first" } else { "second" })?;
        let device = user.open_with(Some(adapter.luid_number()), 0)?.device()?;
        let probe = Probe::new(&device)?;
        let raw = Raw::open(&user.process, adapter.luid())?;
        let plain = raw.device().context("device")?;
        Ok(Self { adapter, device, probe, plain, raw, user })
    }

    /// How often the adapter's driver was called at `ddi`.
    fn calls(&self, ddi: &str) -> u64 {
        self.adapter.ddi_calls().get(ddi).copied().unwrap_or(0)
    }

    /// How often it was told of a value that the CPU wrote, or that it must not write.
    fn told(&self) -> u64 {
        self.calls("DxgkDdiUpdateCurrentValuesFromCpu")
    }

    /// Whether the adapter has native fences: on the lower rungs it has not.
    fn has_native(&self) -> bool {
        self.adapter.caps().is_some_and(|caps| caps.has_native_fences())
    }

    /// How many interrupts for native fences it reported.
    fn reported(&self) -> u64 {
        self.adapter.notifications_of(DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_NATIVE_FENCE_SIGNALED)
    }

    /// A fence for both adapters.
    fn fence(&self, initial: u64) -> Result<Fence> {
        Ok(self.device.fence(initial, FP_FENCE_SHARED | FP_FENCE_CROSS_ADAPTER)?)
    }

    /// Opens what the other side made.
    fn open_fence(&self, fence: &Fence, of: &Self) -> Result<Fence> {
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
    fn wait(&self, fence: &Fence, value: u64) -> Result<Waiting> {
        let (event, handle) = self.raw.event();
        self.raw.wait_cpu(self.plain, &[(fence.info()?.handle, value)], false, Some(handle)).context("a wait")?;
        Ok(Waiting(event))
    }

    /// Whether the event is set in time.
    fn is_woken(&self, waiting: &Waiting, limit: Duration) -> bool {
        self.raw.wait_event(&waiting.0, limit)
    }

    /// Signals from the CPU.
    fn signal(&self, fence: &Fence, value: u64) -> Played {
        self.raw.signal_cpu(self.plain, &[(fence.info()?.handle, value)]).context("a signal")
    }

    /// Queues a wait; the value that memory has behind it.
    fn queue_wait(&self, fence: &Fence, value: u64) -> Result<u64> {
        let at = self.probe.memory.gpu_va()?;
        self.probe.queue.run(|list| {
            list.wait(fence, value)?;
            list.store(at, value)
        })?;
        Ok(value)
    }

    /// Queues a signal.
    fn queue_signal(&self, fence: &Fence, value: u64) -> Played {
        self.probe.queue.run(|list| list.signal(fence, value))?;
        Ok(())
    }

    /// Waits until what is behind [`Self::queue_wait`] has run, without a wait of the CPU.
    fn until_ran(&self, scene: &Scene, what: &str, value: u64) -> Played {
        scene.until(what, || Ok(self.probe.memory.read_u64(0)? == value))
    }
}
