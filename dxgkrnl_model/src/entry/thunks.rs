//! The D3DKMT entry points: what gdi32 exports and a user-mode driver calls.
//!
//! Two ways in, one implementation: images loaded into a process import them by name from gdi32 or an API set; native
//! clients call them through [`Thunks`]. Every export of 26100 exists; one that the model does not implement answers
//! STATUS_NOT_SUPPORTED and is counted.
//!
//! Arguments are copied once, guarded, before anything looks at them ([`capture`]); results are stored when the call
//! succeeds, and only then.
//!
//! Chosen statuses, where pages list none: STATUS_INVALID_PARAMETER for NULL, for a handle that is foreign, dead or of
//! another type, and for reserved flags and members that are not zero; STATUS_ACCESS_VIOLATION for memory that cannot
//! be read or written; STATUS_NOT_SUPPORTED for what the adapter or the model does not have; STATUS_DEVICE_REMOVED for
//! a device in an error state; STATUS_INVALID_HANDLE for an NT handle that is not one.

mod adapter;
pub(crate) mod capture;
mod device;
mod doorbell;
mod fence;
mod memory;
mod offers;
mod priority;
mod process;
mod query;
mod queue;
mod records;
mod refused;
mod sharing;
mod standard;
mod statistics;
mod testing;
mod trim;
mod update;
mod wait;

use std::cell::RefCell;
use std::sync::Arc;

use nt_model::{Machine, ShimEntry};
use wddm_abi::exports::D3DKMT_EXPORTS;
use wddm_abi::{D3DKMT_HANDLE, NTSTATUS, Plain, ntstatus};

use crate::objects::device::Device;
use crate::objects::hw_context::HwContext;
use crate::objects::hw_queue::HwQueue;
use crate::objects::process::{Admitted, ProcessInner, UserObject};
use crate::port::shared::Shared;
use crate::port::sync::Naming;

/// Who calls.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) shared: Arc<Shared>,
    pub(crate) process: Arc<ProcessInner>,
    admitted: Admitted,
    used: RefCell<Vec<Used>>,
    made: RefCell<Vec<D3DKMT_HANDLE>>,
}

/// What a thunk makes something of. Its destruction waits for the end of the thunk, so that nothing is made of it
/// behind the look for what there is.
#[derive(Clone, Debug)]
pub(crate) enum Used {
    Device(Arc<Device>),
    Context(Arc<HwContext>),
    Queue(Arc<HwQueue>),
}

impl Used {
    fn users(&self) -> &Naming {
        match self {
            Self::Device(device) => &device.users,
            Self::Context(context) => &context.users,
            Self::Queue(queue) => &queue.users,
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.release();
    }
}

impl Call {
    /// Runs `wait`, which waits for a fence: neither a stop of an adapter nor a destruction waits for the calling
    /// thread meanwhile.
    pub(crate) fn waiting<R>(&self, wait: impl FnOnce() -> R) -> R {
        self.release();
        self.admitted.waiting(self.machine(), wait)
    }

    /// Keeps a device from being destroyed until the thunk returns.
    ///
    /// # Errors
    /// [`INVALID`] when its destruction has begun.
    pub(crate) fn uses_device(&self, device: &Arc<Device>) -> Result<(), NTSTATUS> {
        self.uses(Used::Device(device.clone()))
    }

    /// Keeps a hardware context, and its device, from being destroyed until the thunk returns.
    ///
    /// # Errors
    /// [`INVALID`] when the destruction of either has begun.
    pub(crate) fn uses_context(&self, context: &Arc<HwContext>) -> Result<(), NTSTATUS> {
        self.uses_device(context.device())?;
        self.uses(Used::Context(context.clone()))
    }

    /// Keeps a hardware queue, its context and its device from being destroyed until the thunk returns.
    ///
    /// # Errors
    /// [`INVALID`] when the destruction of one of them has begun.
    pub(crate) fn uses_queue(&self, queue: &Arc<HwQueue>) -> Result<(), NTSTATUS> {
        self.uses_context(queue.context())?;
        self.uses(Used::Queue(queue.clone()))
    }

    fn uses(&self, used: Used) -> Result<(), NTSTATUS> {
        if !used.users().begin() {
            return Err(INVALID);
        }
        self.used.borrow_mut().push(used);
        Ok(())
    }

    fn release(&self) {
        for used in self.used.take() {
            used.users().end(self.machine());
        }
    }

    /// A handle of what the thunk has made. Where the thunk fails later, the object goes.
    ///
    /// # Errors
    /// STATUS_NO_MEMORY when the table is full; the object goes.
    pub(crate) fn insert(&self, object: UserObject) -> Result<D3DKMT_HANDLE, NTSTATUS> {
        match self.process.insert(object.clone()) {
            Some(handle) => {
                self.makes(handle);
                Ok(handle)
            }
            None => {
                object.destroy();
                Err(ntstatus::STATUS_NO_MEMORY)
            }
        }
    }

    /// What has this handle was made by the thunk: where that fails later, it goes.
    pub(crate) fn makes(&self, handle: D3DKMT_HANDLE) {
        self.made.borrow_mut().push(handle);
    }

    /// The thunk has failed: user mode has no handle of what it has made.
    fn undo(&self) {
        let made = self.made.take();
        if !made.is_empty() {
            self.process.destroy_made(&made);
        }
    }

    /// The machine.
    pub(crate) fn machine(&self) -> &Machine {
        self.shared.kernel()
    }
}

/// What a thunk comes to.
pub(crate) type Outcome = Result<NTSTATUS, NTSTATUS>;

/// The call succeeded.
pub(crate) const DONE: Outcome = Ok(ntstatus::STATUS_SUCCESS);
/// The usual refusal.
pub(crate) const INVALID: NTSTATUS = ntstatus::STATUS_INVALID_PARAMETER;

/// Declares thunks with one record: it is read before the body runs, and stored afterwards when the body succeeded and
/// has changed it, or the record is one that this Windows stores in any case ([`records::is_stored`]).
macro_rules! thunks {
    ($(#[$meta:meta])* table $table:ident; $(fn $name:ident($call:ident, $record:ident: $type:ty) $body:block)*) => {
        nt_model::shims! {
            $(#[$meta])*
            pub(super) table $table;

            $(fn $name(machine, arguments: usize) -> wddm_abi::NTSTATUS {
                #[expect(clippy::allow_attributes, reason = "not every body changes its record or asks who calls")]
                #[allow(unused_variables, unused_mut, reason = "as above")]
                let body = |$call: &$crate::entry::thunks::Call, $record: &mut $type| -> $crate::entry::thunks::Outcome { $body };
                $crate::entry::thunks::run(machine, stringify!($name), arguments, body)
            })*
        }
    };
}
pub(crate) use thunks;

/// Runs a thunk.
pub(crate) fn run<T: Plain>(
    machine: &Machine,
    name: &'static str,
    arguments: usize,
    body: impl FnOnce(&Call, &mut T) -> Outcome,
) -> NTSTATUS {
    enter(machine, name, |call| {
        let build = call.shared.personality().build;
        let form = records::form(name, build);
        let before: T = form.read(arguments).inspect_err(|_| records::report(call, name, arguments))?;
        let mut record = before;
        let status = body(call, &mut record)?;
        if record.as_bytes() != before.as_bytes() || records::is_stored(name, build) {
            form.write(arguments, &record).inspect_err(|_| records::report(call, name, arguments))?;
        }
        Ok(status)
    })
}

/// The thunk that asks nothing of a device: a client that waits in parts lets it sleep.
const WAITS: &str = "D3DKMTWaitForSynchronizationObjectFromCpu";

/// Counts a call, finds who makes it, and wakes the devices of adapters that the process has open.
///
/// Chosen: the article has a connection wake the device, and says nothing of other calls.
pub(crate) fn enter(machine: &Machine, name: &'static str, body: impl FnOnce(&Call) -> Outcome) -> NTSTATUS {
    let Some(shared) = crate::port::shared::shared_of(machine) else { return ntstatus::STATUS_UNSUCCESSFUL };
    shared.counters.thunk(name);
    let Some(process) = crate::objects::process::current(machine) else { return INVALID };
    if machine.rules.is_stopped() {
        return ntstatus::STATUS_SYSTEM_SHUTDOWN;
    }
    let Some(admitted) = process.admit(machine) else { return ntstatus::STATUS_PROCESS_IS_TERMINATING };
    if name != WAITS {
        process.wake_devices();
    }
    let call = Call { shared, process, admitted, used: RefCell::default(), made: RefCell::default() };
    let status = body(&call).inspect_err(|_| call.undo()).unwrap_or_else(|status| status);
    call.shared.counters.answered(name, status);
    status
}

/// Every table, implementations first.
fn tables() -> [&'static [ShimEntry]; 16] {
    [
        adapter::THUNKS,
        device::THUNKS,
        doorbell::THUNKS,
        fence::THUNKS,
        memory::THUNKS,
        offers::THUNKS,
        priority::THUNKS,
        process::THUNKS,
        queue::THUNKS,
        wait::THUNKS,
        sharing::THUNKS,
        statistics::THUNKS,
        sharing::SHARE,
        trim::THUNKS,
        update::THUNKS,
        refused::THUNKS,
    ]
}

/// The address of an entry point; 0 when 26100 has no such export.
pub fn address(name: &str) -> usize {
    let entries = tables().into_iter().flatten();
    entries.into_iter().find(|entry| entry.name == name).map_or(0, |entry| entry.address.get())
}

/// Whether gdi32 of the machine that the calling thread is in has this export.
pub fn is_exported(machine: &Machine, name: &str) -> bool {
    let later = || {
        crate::port::shared::shared_of(machine)
            .is_some_and(|shared| later(&shared).iter().any(|entry| entry.name == name))
    };
    address(name) != 0 || later()
}

/// What gdi32 of this Windows has beyond 26100.
fn later(shared: &Shared) -> &'static [ShimEntry] {
    if shared.personality().build.has_queue_doorbells() { refused::LATER } else { &[] }
}

/// Names of the entry points that do something.
pub fn implemented() -> Vec<&'static str> {
    let [rest @ .., _] = tables();
    rest.into_iter().flatten().map(|entry| entry.name).collect()
}

/// Lets images import the entry points.
pub(crate) fn register(shared: &Arc<Shared>) {
    let kernel = shared.kernel();
    for entry in tables().into_iter().flatten().chain(later(shared)) {
        kernel.register_import("gdi32.dll", entry.name, entry.address);
        let api_set = D3DKMT_EXPORTS.iter().find(|export| export.name == entry.name).and_then(|export| export.api_set);
        if let Some(api_set) = api_set {
            kernel.register_import(api_set, entry.name, entry.address);
        }
    }
}

/// Makes [`Thunks`].
macro_rules! table_of {
    ($($name:ident,)*) => {
        /// The implemented entry points as a table, for native clients. The members have the types of `wddm_abi`.
        #[derive(Clone, Copy, Debug)]
        #[expect(non_snake_case, missing_docs, reason = "the members are Microsoft's entry points")]
        pub struct Thunks {
            $(pub $name: wddm_abi::$name,)*
        }

        impl Thunks {
            /// The table. It is the same in every process.
            pub fn new() -> Self {
                Self {
                    $($name: {
                        let address: *const () = core::ptr::with_exposed_provenance(address(stringify!($name)));
                        // SAFETY: the tables have a function of this name; its thunk takes one pointer (other arguments
                        // for D3DKMTShareObjects and the priorities of processes) and returns a status, as the type
                        // says.
                        #[expect(unsafe_code, reason = "an address becomes a function of the type that it has")]
                        unsafe { core::mem::transmute::<*const (), wddm_abi::$name>(address) }
                    },)*
                }
            }
        }

        #[cfg(test)]
        const TABLE: &[&str] = &[$(stringify!($name)),*];
    };
}

table_of! {
    D3DKMTEnumAdapters, D3DKMTQueryClockCalibration, D3DKMTCreateAllocation, D3DKMTDestroyAllocation,
    D3DKMTSetAllocationPriority, D3DKMTGetAllocationPriority, D3DKMTQueryAllocationResidency, D3DKMTOfferAllocations,
    D3DKMTReclaimAllocations, D3DKMTReclaimAllocations2, D3DKMTInvalidateCache,
    D3DKMTEnumAdapters2, D3DKMTEnumAdapters3, D3DKMTOpenAdapterFromLuid, D3DKMTOpenAdapterFromDeviceName,
    D3DKMTCloseAdapter, D3DKMTQueryAdapterInfo,
    D3DKMTIsFeatureEnabled, D3DKMTEscape, D3DKMTQueryStatistics, D3DKMTQueryVideoMemoryInfo,
    D3DKMTCreateDevice, D3DKMTDestroyDevice, D3DKMTGetDeviceState, D3DKMTCreateContextVirtual, D3DKMTDestroyContext,
    D3DKMTSubmitCommand,
    D3DKMTSetContextSchedulingPriority, D3DKMTGetContextSchedulingPriority,
    D3DKMTSetContextInProcessSchedulingPriority, D3DKMTGetContextInProcessSchedulingPriority,
    D3DKMTCreatePagingQueue, D3DKMTDestroyPagingQueue, D3DKMTCreateAllocation2, D3DKMTDestroyAllocation2,
    D3DKMTMakeResident, D3DKMTEvict, D3DKMTLock2, D3DKMTUnlock2, D3DKMTMapGpuVirtualAddress,
    D3DKMTReserveGpuVirtualAddress, D3DKMTFreeGpuVirtualAddress, D3DKMTUpdateGpuVirtualAddress,
    D3DKMTCreateHwContext, D3DKMTDestroyHwContext, D3DKMTCreateHwQueue, D3DKMTDestroyHwQueue,
    D3DKMTSubmitCommandToHwQueue, D3DKMTSubmitWaitForSyncObjectsToHwQueue, D3DKMTSubmitSignalSyncObjectsToHwQueue,
    D3DKMTCreateDoorbell, D3DKMTConnectDoorbell, D3DKMTDestroyDoorbell, D3DKMTNotifyWorkSubmission,
    D3DKMTCreateSynchronizationObject2, D3DKMTDestroySynchronizationObject, D3DKMTCreateNativeFence,
    D3DKMTOpenNativeFenceFromNtHandle, D3DKMTOpenSyncObjectFromNtHandle2, D3DKMTGetNativeFenceLogDetail,
    D3DKMTWaitForSynchronizationObjectFromCpu, D3DKMTSignalSynchronizationObjectFromCpu,
    D3DKMTWaitForSynchronizationObjectFromGpu, D3DKMTSignalSynchronizationObjectFromGpu,
    D3DKMTSignalSynchronizationObjectFromGpu2,
    D3DKMTShareObjects, D3DKMTOpenResourceFromNtHandle, D3DKMTQueryResourceInfoFromNtHandle,
    D3DKMTOpenSyncObjectNtHandleFromName, D3DKMTOpenNtHandleFromName, D3DKMTOpenSyncObjectFromNtHandle,
    D3DKMTWaitForIdle, D3DKMTRegisterTrimNotification, D3DKMTUnregisterTrimNotification,
    D3DKMTSetProcessSchedulingPriorityClass, D3DKMTGetProcessSchedulingPriorityClass,
    D3DKMTChangeVideoMemoryReservation,
    D3DKMTMarkDeviceAsError, D3DKMTGetProcessDeviceRemovalSupport, D3DKMTGetScanLine,
}

impl Default for Thunks {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_export_is_there_once() {
        for export in D3DKMT_EXPORTS.iter().filter(|export| export.dll.is_some() && export.first_build <= 26100) {
            let count = tables().into_iter().flatten().filter(|entry| entry.name == export.name).count();
            assert_eq!(count, 1, "{}", export.name);
        }
        for name in TABLE {
            assert_ne!(address(name), 0, "{name}");
        }
        assert_eq!(address("D3DKMTNothing"), 0);
    }
}
