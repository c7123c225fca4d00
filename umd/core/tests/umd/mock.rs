//! A mock of gdi32 and of what is behind it: enough of an operating system to hand out handles and memory, and enough
//! of a GPU to execute rings and command buffers and to notice when they are wrong.
//!
//! It is a mock and no model: one thread at a time, no timing (time passes when a test waits for it), nothing beyond
//! what the tests ask. Everything that looks wrong is written down in [`World::complaints`]; a test that expects none
//! ends with [`Mock::assert_clean`].

mod calls;
mod gpu;
mod os;
mod thunks;

pub use os::{Adapter, Submission, World};

use gpu_wire::private::Rung;
use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use umd_core::adapter::{Adapter as UmdAdapter, Mode, Select};
use umd_core::device::Device;
use umd_core::queue::{Create, Queue};
use umd_core::thunks::Thunk;

thread_local! {
    static CURRENT: RefCell<Option<Mock>> = const { RefCell::new(None) };
}

/// The mock, shared by everybody who calls it.
#[derive(Clone)]
pub struct Mock {
    world: Arc<(Mutex<World>, Condvar)>,
}

/// Bytes of the ring in most tests: the smallest.
pub const RING: u64 = 4096;

impl Mock {
    /// One adapter of ours on the highest rung.
    pub fn new() -> Self {
        Self::with(Adapter::ours(Rung::UserModeSubmission))
    }

    /// One adapter.
    pub fn with(adapter: Adapter) -> Self {
        let mock = Self { world: Arc::new((Mutex::new(World::new(vec![adapter])), Condvar::new())) };
        mock.select();
        mock
    }

    /// Makes `Thunks::attach` of this thread give this mock.
    pub fn select(&self) {
        CURRENT.with(|current| *current.borrow_mut() = Some(self.clone()));
    }

    /// The world, for looking and for changing.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.0.lock().unwrap()
    }

    /// Lets the GPU run until nothing can go on.
    pub fn run(&self) {
        self.world().run();
    }

    /// Calls of a thunk so far.
    pub fn calls(&self, thunk: Thunk) -> usize {
        self.world().calls.iter().filter(|call| **call == thunk).count()
    }

    /// All thunks called so far.
    pub fn total_calls(&self) -> usize {
        self.world().calls.len()
    }

    /// Opens the adapter.
    pub fn adapter(&self) -> Arc<UmdAdapter<Self>> {
        UmdAdapter::open(self.clone(), Select::First, Mode::UserMode, 0).unwrap()
    }

    /// Opens the adapter and creates a device.
    pub fn device(&self) -> Arc<Device<Self>> {
        Device::create(&self.adapter()).unwrap()
    }

    /// A queue on node 0 with the smallest ring and a trace.
    pub fn queue(&self, device: &Arc<Device<Self>>) -> Queue<Self> {
        Queue::create(device, create(0)).unwrap()
    }

    /// Nothing was complained about, and nothing is left alive.
    pub fn assert_clean(&self) {
        let world = self.world();
        assert_eq!(world.complaints, Vec::<String>::new());
        assert_eq!(world.live(), Vec::<String>::new(), "left alive");
    }
}

/// A queue on `node` with the smallest ring and a trace.
pub fn create(node: u32) -> Create {
    Create {
        node: gpu_wire::NodeOrdinal(node),
        ring_size: RING,
        kernel_mode: false,
        no_timeout: false,
        trace_events: 64,
    }
}

/// The mock that this thread selected.
fn current() -> Mock {
    CURRENT.with(|current| current.borrow().clone()).expect("no mock selected")
}
