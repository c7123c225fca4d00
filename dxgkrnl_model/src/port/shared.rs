//! What every object of one machine shares.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use nt_model::{Kernel, Machine};
use parking_lot::RwLock;

use crate::port::counters::Counters;
use crate::port::driver::LoadedDriver;
use crate::port::extensions::Extensions;
use crate::port::miniport::Miniport;
use crate::port::personality::Personality;
use crate::port::sync::{Lock, Rank};
use crate::port::transcript::Step;

/// Machines by address, so that a function without any handle finds its own.
static MACHINES: RwLock<Vec<(usize, Weak<Shared>)>> = RwLock::new(Vec::new());

/// What every object of one machine shares.
pub(crate) struct Shared {
    kernel: Kernel,
    personality: Personality,
    steps: Vec<Step>,
    drivers: Lock<Vec<Arc<LoadedDriver>>>,
    miniports: Lock<Vec<Arc<Miniport>>>,
    /// Some tool traces fences.
    tracing_fences: AtomicBool,
    pub(crate) counters: Counters,
    /// What other layers keep of the machine.
    extensions: Extensions,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("build", &self.personality.build).finish_non_exhaustive()
    }
}

impl Shared {
    /// That of a machine that boots; it is found by [`shared_of`] from here on.
    pub(crate) fn new(kernel: Kernel, personality: Personality, steps: Vec<Step>) -> Arc<Self> {
        let shared = Arc::new(Self {
            kernel,
            personality,
            steps,
            drivers: Lock::new(Rank::Os, Vec::new()),
            miniports: Lock::new(Rank::Os, Vec::new()),
            tracing_fences: AtomicBool::new(false),
            counters: Counters::new(),
            extensions: Extensions::new(),
        });
        let address = core::ptr::from_ref::<Machine>(&shared.kernel).addr();
        let mut machines = MACHINES.write();
        machines.retain(|(_, shared)| shared.strong_count() != 0);
        machines.push((address, Arc::downgrade(&shared)));
        shared
    }

    pub(crate) fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    pub(crate) fn personality(&self) -> &Personality {
        &self.personality
    }

    pub(crate) fn start_steps(&self) -> Vec<Step> {
        self.steps.clone()
    }

    pub(crate) fn add_driver(&self, driver: &Arc<LoadedDriver>) {
        self.drivers.lock().push(driver.clone());
    }

    pub(crate) fn remove_driver(&self, driver: &Arc<LoadedDriver>) {
        self.drivers.lock().retain(|other| !Arc::ptr_eq(other, driver));
    }

    /// The driver whose entry point runs: the one with this object, or the image that has none yet.
    pub(crate) fn loading_driver(&self, object: usize) -> Option<Arc<LoadedDriver>> {
        let drivers = self.drivers.lock();
        let by_object = drivers.iter().find(|driver| driver.object() == object);
        by_object.or_else(|| drivers.iter().rev().find(|driver| driver.adopt_object(object))).cloned()
    }

    pub(crate) fn driver_by_object(&self, object: usize) -> Option<Arc<LoadedDriver>> {
        self.drivers.lock().iter().find(|driver| driver.object() == object).cloned()
    }

    /// The ways into the drivers of all adapters.
    pub(crate) fn adapters(&self) -> Vec<Arc<Miniport>> {
        self.miniports.lock().clone()
    }

    /// The started adapter with this LUID.
    pub(crate) fn adapter_by_luid(&self, luid: u64) -> Option<Arc<Miniport>> {
        self.adapters().into_iter().find(|adapter| adapter.is_started() && adapter.luid_number() == luid)
    }

    /// Whether some tool traces fences.
    pub(crate) fn is_tracing_fences(&self) -> bool {
        self.tracing_fences.load(Ordering::Acquire)
    }

    /// Begins or ends the time in which a tool traces fences.
    pub(crate) fn trace_fences(&self, on: bool) {
        self.tracing_fences.store(on, Ordering::Release);
    }

    /// Enters an adapter.
    pub(crate) fn add_adapter(&self, miniport: &Arc<Miniport>) {
        self.miniports.lock().push(miniport.clone());
    }

    /// Takes an adapter out.
    pub(crate) fn remove_adapter(&self, miniport: &Arc<Miniport>) {
        self.miniports.lock().retain(|other| !Arc::ptr_eq(other, miniport));
    }

    /// The drivers that are loaded.
    pub(crate) fn drivers(&self) -> Vec<Arc<LoadedDriver>> {
        self.drivers.lock().clone()
    }

    /// What the layer of `T` keeps of the machine; made when it is first asked for.
    pub(crate) fn extension<T: Any + Default + Send + Sync>(&self) -> &T {
        self.extensions.get()
    }
}

/// The shared part of the machine.
pub(crate) fn shared_of(machine: &Machine) -> Option<Arc<Shared>> {
    let address = core::ptr::from_ref(machine).addr();
    MACHINES.read().iter().find(|(at, _)| *at == address).and_then(|(_, shared)| shared.upgrade())
}

/// The machine is shut down: nothing finds it any more.
pub(crate) fn forget(machine: &Machine) {
    let address = core::ptr::from_ref(machine).addr();
    MACHINES.write().retain(|(at, _)| *at != address);
}
