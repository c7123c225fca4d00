//! A machine with Windows' graphics kernel in it.
//!
//! [`Os`] is what tools and tests hold: boot, load drivers, add adapters, make processes, ask for the report, shut
//! down.

use std::fmt;
use std::sync::Arc;

use nt_model::sched::patient::PatientScheduler;
use nt_model::sched::seeded::SeededScheduler;
use nt_model::{Kernel, KernelConfig};
use wddm_abi::NTSTATUS;

use crate::entry::adapter::{Adapter, AdapterConfig, StartError};
use crate::entry::report::Report;
use crate::objects::hw_queue::HwQueue;
use crate::objects::process::{Process, ProcessInner};
use crate::port::counters::{Counts, HotWindow};
use crate::port::driver::{self, Driver, DriverError, LoadedDriver};
use crate::port::personality::{Clock, Personality};
use crate::port::shared::Shared;
use crate::port::sync::{Lock, Rank};
use crate::port::transcript::{self, BadTranscript, START_26100};

/// A simulated machine that runs Windows' graphics kernel. Dropping it shuts it down.
pub struct Os {
    shared: Arc<Shared>,
    scheduler: Option<Arc<SeededScheduler>>,
    adapters: Lock<Vec<Arc<Adapter>>>,
}

impl fmt::Debug for Os {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.fmt(f)
    }
}

impl Os {
    /// Boots a machine.
    ///
    /// # Errors
    /// [`BadTranscript`] when the personality's start transcript is not understood.
    pub fn boot(personality: Personality) -> Result<Self, BadTranscript> {
        let steps = transcript::parse(personality.start_transcript.as_deref().unwrap_or(START_26100))?;
        let scheduler = match &personality.clock {
            Clock::Patient | Clock::Real => None,
            Clock::Seeded(options) => Some(SeededScheduler::new(options.clone())),
        };
        let patient = || matches!(personality.clock, Clock::Patient).then(|| Arc::new(PatientScheduler::new()) as _);
        let config = KernelConfig {
            policy: personality.policy,
            scheduler: scheduler.clone().map(|scheduler| scheduler as _).or_else(patient),
            rules: crate::port::rules::ALL.to_vec(),
            echo_debug_print: personality.echo_debug_print,
            interrupt_delivery: personality.interrupt_delivery,
            dpc_delivery: personality.dpc_delivery,
            processors: personality.processors,
            clock: personality.time_outs,
            unmap_time: personality.unmap_time,
            separate_processes: personality.separate_processes,
            test_signing: (!personality.faults.signing_untold).then_some(personality.test_signing),
            ..KernelConfig::default()
        };
        let kernel = Kernel::new(config);
        let shared = Shared::new(kernel, personality, steps);
        let os = Self { shared, scheduler, adapters: Lock::new(Rank::Os, Vec::new()) };
        {
            let _inside = os.kernel().enter();
            driver::register(&os.shared);
            crate::entry::thunks::register(&os.shared);
        }
        Ok(os)
    }

    /// The machine under it.
    pub fn kernel(&self) -> &Kernel {
        self.shared.kernel()
    }

    /// Which Windows it is.
    pub fn personality(&self) -> &Personality {
        self.shared.personality()
    }

    /// The scheduler that picks the interleaving, when the clock is virtual.
    pub fn seeded_scheduler(&self) -> Option<&Arc<SeededScheduler>> {
        self.scheduler.as_ref()
    }

    /// Loads a driver and calls its `DriverEntry`.
    ///
    /// # Errors
    /// See [`DriverError`].
    pub fn load_driver(&self, driver: &Driver) -> Result<Arc<LoadedDriver>, DriverError> {
        let _inside = self.kernel().enter();
        driver::load(&self.shared, driver)
    }

    /// Unloads a driver whose adapters are removed: `DxgkDdiUnload`, then the image, then a look for leftovers.
    pub fn unload_driver(&self, driver: &Arc<LoadedDriver>) {
        let _inside = self.kernel().enter();
        for adapter in self.adapters().iter().filter(|adapter| Arc::ptr_eq(adapter.driver(), driver)) {
            self.remove_adapter(adapter);
        }
        driver::unload(&self.shared, driver);
    }

    /// Adds and starts an adapter.
    ///
    /// # Errors
    /// See [`StartError`]; the adapter is removed again.
    pub fn add_adapter(&self, driver: &Arc<LoadedDriver>, config: AdapterConfig) -> Result<Arc<Adapter>, StartError> {
        let (adapter, started) = self.try_adapter(driver, config);
        started.map(|()| adapter)
    }

    /// As [`add_adapter`](Self::add_adapter), and returns the adapter that did not start as well: what it was asked,
    /// and what it answered.
    pub fn try_adapter(
        &self,
        driver: &Arc<LoadedDriver>,
        config: AdapterConfig,
    ) -> (Arc<Adapter>, Result<(), StartError>) {
        let _inside = self.kernel().enter();
        let adapter = Adapter::new(&self.shared, driver, config);
        self.shared.add_adapter(&adapter);
        self.adapters.lock().push(adapter.clone());
        let started = adapter.start();
        if started.is_err() {
            self.forget_adapter(&adapter);
        }
        (adapter, started)
    }

    /// Stops an adapter and keeps it: what disabling the device does, up to its removal.
    pub fn stop_adapter(&self, adapter: &Arc<Adapter>) {
        let _inside = self.kernel().enter();
        adapter.stop();
    }

    /// Starts a stopped adapter again, with a new LUID.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn restart_adapter(&self, adapter: &Arc<Adapter>) -> Result<(), StartError> {
        let _inside = self.kernel().enter();
        adapter.start()
    }

    /// Stops and removes an adapter.
    pub fn remove_adapter(&self, adapter: &Arc<Adapter>) {
        let _inside = self.kernel().enter();
        adapter.stop();
        adapter.remove();
        self.forget_adapter(adapter);
    }

    fn forget_adapter(&self, adapter: &Arc<Adapter>) {
        adapter.device.unplug(&self.shared);
        self.shared.remove_adapter(adapter);
        self.adapters.lock().retain(|other| !Arc::ptr_eq(other, adapter));
    }

    /// Tells an adapter's driver the device's power state: D0, or D3. The caller has no work outstanding.
    pub fn set_adapter_power(&self, adapter: &Arc<Adapter>, on: bool) {
        let _inside = self.kernel().enter();
        if adapter.is_started() {
            crate::recovery::sleep::set_device_state(adapter, on, wddm_abi::POWER_ACTION::PowerActionNone);
        }
    }

    /// Takes the device of a started adapter off the bus, as pulling it out does: the driver is told by
    /// `DxgkDdiNotifySurpriseRemoval`, and the adapter is stopped. Returns what the driver answered. `None`: the
    /// adapter was not started or its device cannot go; or the driver does not advertise
    /// SupportSurpriseRemovalInHibernation, is not told, and the adapter stays started without its device (Windows
    /// would reboot).
    pub fn remove_by_surprise(&self, adapter: &Arc<Adapter>) -> Option<NTSTATUS> {
        let _inside = self.kernel().enter();
        if adapter.is_started() { adapter.remove_by_surprise() } else { None }
    }

    /// Replaces the native fence log buffers of every queue of an adapter, as Dxgkrnl may at any time.
    pub fn recreate_fence_logs(&self, adapter: &Arc<Adapter>) {
        let _inside = self.kernel().enter();
        for queue in HwQueue::all_of(adapter).iter().filter(|queue| queue.is_user_mode()) {
            // A driver that refuses has broken DXG-LOG-SET.
            let _ = queue.log().make(queue);
        }
    }

    /// Begins or ends a trace of native fences, as a tool does by an ETW session. While there is one, log buffers have
    /// [`traced_log_pages`](Personality::traced_log_pages), one that was overrun is replaced by a larger one, and the
    /// report says where entries were lost.
    ///
    /// Source: article native-gpu-fence-objects, log buffer overrun is permitted.
    pub fn set_fence_tracing(&self, on: bool) {
        let _inside = self.kernel().enter();
        self.shared.trace_fences(on);
        for adapter in self.adapters().iter().filter(|adapter| on && adapter.is_started()) {
            for queue in HwQueue::all_of(adapter).iter().filter(|queue| queue.is_user_mode()) {
                queue.log().make_room(queue);
            }
        }
    }

    /// The adapters.
    pub fn adapters(&self) -> Vec<Arc<Adapter>> {
        self.adapters.lock().clone()
    }

    /// Makes a process.
    pub fn create_process(&self, name: &str) -> Process {
        let _inside = self.kernel().enter();
        Process::new(&self.shared, name)
    }

    /// Where a process has locked what lies at a GPU address of its own; `None`: nothing is there, or it is not locked.
    /// For tests that look at memory where the GPU has it.
    pub fn locked_at(&self, process: &Process, adapter: &Arc<Adapter>, gpu: u64) -> Option<usize> {
        let all = ProcessInner::all_of(&self.shared);
        let inner = all.iter().find(|one| one.nt().id() == process.nt().id())?;
        let found = inner.gpu_process_on(adapter)?.address_space().allocation_at(gpu);
        let (allocation, offset) = found?;
        // CAST: an offset in an allocation that is mapped.
        inner.opens_of(&allocation).iter().find_map(|open| Some(open.locked()? + offset as usize))
    }

    /// Rules, counters and records so far.
    pub fn report(&self) -> Report {
        Report::of(&self.shared)
    }

    /// The counts so far: no call of a driver, unlike [`report`](Self::report), which reads fence logs.
    pub fn counts(&self) -> Counts {
        self.shared.counters.counts()
    }

    /// Counts the thunk calls that are made until the guard is dropped apart, in
    /// [`Counts::hot_thunks`](Counts).
    pub fn hot_window(&self) -> HotWindow {
        HotWindow::open(&self.shared)
    }

    /// Runs `f` as a thread of the machine, in the system process.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        let _inside = self.kernel().enter();
        f()
    }

    /// Ends processes, stops and removes adapters, unloads drivers; every leak rule is evaluated. Further calls do
    /// nothing.
    pub fn shut_down(&self) {
        let _inside = self.kernel().enter();
        for process in ProcessInner::all_of(&self.shared) {
            process.end(crate::objects::process::End::Normal);
        }
        for adapter in self.adapters() {
            self.remove_adapter(&adapter);
        }
        let drivers = self.shared.drivers();
        for loaded in drivers {
            driver::unload(&self.shared, &loaded);
        }
    }
}

impl Drop for Os {
    fn drop(&mut self) {
        self.shut_down();
        crate::port::shared::forget(self.kernel());
    }
}
