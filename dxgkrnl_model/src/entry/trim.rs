//! Callbacks by which processes hear that they are to evict memory.
//!
//! Source: DDI pages D3DKMTRegisterTrimNotification, D3DKMT_TRIMNOTIFICATION, D3DDDI_TRIMRESIDENCYSET_FLAGS. Chosen: a
//! device has as many as are registered for it, which are called in their order, on a thread of the process; what is
//! registered goes with its device, though the page has it unregistered before; a process that is a Linux process of
//! its own is not called.

use std::sync::{Arc, Weak};

use nt_model::{Process, call_user};
use wddm_abi::{D3DDDI_TRIMRESIDENCYSET_FLAGS, D3DKMT_TRIMNOTIFICATION};

use crate::objects::device::Device;
use crate::port::miniport::Miniport;
use crate::port::shared::Shared;
use crate::port::sync::{Lock, Rank};

/// Most callbacks of a process.
const MOST: usize = 1024;

/// A callback of a device.
#[derive(Clone, Debug)]
struct Registered {
    handle: usize,
    /// The process's number.
    process: u64,
    device: Weak<Device>,
    callback: usize,
    context: usize,
}

impl Registered {
    /// Its device, while that is there.
    fn device(&self) -> Option<Arc<Device>> {
        self.device.upgrade().filter(|device| device.driver_handle() != 0)
    }
}

/// The callbacks of a machine's processes, and the last handle that one got.
#[derive(Debug)]
pub(crate) struct Trims(Lock<(usize, Vec<Registered>)>);

impl Default for Trims {
    fn default() -> Self {
        Self(Lock::new(Rank::Leaf, (0, Vec::new())))
    }
}

impl Trims {
    /// Those of a machine.
    pub(crate) fn of(shared: &Shared) -> &Self {
        shared.extension()
    }

    /// Registers a callback of a device of `process`. Returns its handle, which is no address. `None`: there are too
    /// many.
    pub(crate) fn register(
        &self,
        process: &Process,
        device: &Arc<Device>,
        (callback, context): (usize, usize),
    ) -> Option<usize> {
        let process = process.id();
        let mut all = self.0.lock();
        all.1.retain(|one| one.device().is_some());
        if all.1.iter().filter(|one| one.process == process).count() >= MOST {
            return None;
        }
        all.0 += 8;
        let handle = all.0;
        all.1.push(Registered { handle, process, device: Arc::downgrade(device), callback, context });
        Some(handle)
    }

    /// Takes a callback of `process` back. `false`: there is none with this handle and this function, or its device is
    /// gone.
    pub(crate) fn unregister(&self, process: &Process, handle: usize, callback: usize) -> bool {
        let mut all = self.0.lock();
        let is_it = |one: &Registered| (one.process, one.handle, one.callback) == (process.id(), handle, callback);
        let at = all.1.iter().position(is_it);
        at.map(|at| all.1.remove(at)).is_some_and(|gone| gone.device().is_some())
    }

    /// Calls the callbacks of the devices that `process` has on `adapter`. Returns how many returned.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn notify(
        &self,
        process: &Process,
        adapter: &Arc<Miniport>,
        (flags, bytes): (D3DDDI_TRIMRESIDENCYSET_FLAGS, u64),
    ) -> usize {
        if process.separate().is_some() {
            return 0;
        }
        // A callback may register and unregister.
        let mut all = self.0.lock().1.clone();
        all.retain(|one| one.process == process.id());
        let _inside = adapter.kernel().enter_process(process);
        let mut returned = 0;
        for one in all {
            if one.device().is_some_and(|device| Arc::ptr_eq(device.adapter(), adapter)) {
                let mut record = D3DKMT_TRIMNOTIFICATION::zeroed();
                record.Context = core::ptr::with_exposed_provenance_mut(one.context);
                (record.Flags, record.NumBytesToTrim) = (flags, bytes);
                let called = call_user(one.callback, core::ptr::from_mut(&mut record).expose_provenance());
                returned += usize::from(called.is_ok());
            }
        }
        returned
    }
}
