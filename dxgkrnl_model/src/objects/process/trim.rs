//! Callbacks by which a process hears that it is to evict memory.
//!
//! Source: DDI pages D3DKMTRegisterTrimNotification, D3DKMT_TRIMNOTIFICATION, D3DDDI_TRIMRESIDENCYSET_FLAGS. Chosen: a
//! device has as many as are registered for it, which are called in their order, on a thread of the process; what is
//! registered goes with its device, though the page has it unregistered before; a process that is a Linux process of its
//! own is not called.

use std::sync::{Arc, Weak};

use nt_model::call_user;
use wddm_abi::{D3DDDI_TRIMRESIDENCYSET_FLAGS, D3DKMT_TRIMNOTIFICATION};

use super::ProcessInner;
use crate::objects::device::Device;
use crate::port::miniport::Miniport;
use crate::port::sync::{Lock, Rank};

/// Most callbacks of a process.
const MOST: usize = 1024;

/// A callback of a device.
#[derive(Clone, Debug)]
struct Registered {
    handle: usize,
    device: Weak<Device>,
    callback: usize,
    context: usize,
}

/// The callbacks of a process, and the last handle that one got.
#[derive(Debug)]
pub(crate) struct Trims(Lock<(usize, Vec<Registered>)>);

impl Trims {
    pub(super) fn new() -> Self {
        Self(Lock::new(Rank::Leaf, (0, Vec::new())))
    }

    /// Registers a callback of a device. Returns its handle, which is no address. `None`: there are too many.
    pub(crate) fn register(&self, device: &Arc<Device>, callback: usize, context: usize) -> Option<usize> {
        let mut all = self.0.lock();
        all.1.retain(|one| one.device.upgrade().is_some_and(|device| device.driver_handle() != 0));
        if all.1.len() >= MOST {
            return None;
        }
        all.0 += 8;
        let handle = all.0;
        all.1.push(Registered { handle, device: Arc::downgrade(device), callback, context });
        Some(handle)
    }

    /// Takes a callback back. `false`: there is none with this handle and this function, or its device is gone.
    pub(crate) fn unregister(&self, handle: usize, callback: usize) -> bool {
        let mut all = self.0.lock();
        let at = all.1.iter().position(|one| one.handle == handle && one.callback == callback);
        let gone = at.map(|at| all.1.remove(at));
        gone.and_then(|gone| gone.device.upgrade()).is_some_and(|device| device.driver_handle() != 0)
    }
}

impl ProcessInner {
    /// Calls the callbacks of the devices that the process has on `adapter`. Returns how many returned.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn notify_trim(&self, adapter: &Miniport, flags: D3DDDI_TRIMRESIDENCYSET_FLAGS, bytes: u64) -> usize {
        if self.nt.separate().is_some() {
            return 0;
        }
        // A callback may register and unregister.
        let all = self.trims.0.lock().1.clone();
        let is_there = |device: Arc<Device>| {
            device.driver_handle() != 0 && core::ptr::eq(&raw const **device.adapter(), core::ptr::from_ref(adapter))
        };
        let _inside = adapter.kernel().enter_process(&self.nt);
        let mut returned = 0;
        for one in all {
            if one.device.upgrade().is_some_and(is_there) {
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
