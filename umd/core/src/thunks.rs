//! The functions of gdi32 that this driver calls, as a trait: one method per `D3DKMT` function, and the few services of
//! the process (events, time) that go with them.
//!
//! The list is written once, in [`for_each_thunk!`](crate::for_each_thunk); the trait, the numbering [`Thunk`], the
//! counters and the gdi32 imports of the crate `umd` are made from it.
//!
//! Rules that hold for every call:
//! - The argument is a [`Padded`] record: zeroed, as long as the longest form that any kit declares, so that a system
//!   that knows a longer form under the same name finds zeros behind ours and writes into memory that is ours. Those
//!   that grew in the SDK 10.0.28000 are in `wddm_abi::kit_28000`.
//! - Records are built in this crate only, from live borrows: a pointer in a record points at memory that outlives the
//!   call and is as long as the record says. Other code can look at an argument but not make one.
//! - Output addresses are taken as they come back, once, and checked for null and alignment.

mod counted;
mod padded;

pub use counted::{Answer, CallCount, Os};
pub use padded::Padded;

use crate::tracing::Event;
use core::mem::size_of;
use wddm_abi::{D3DKMT_HANDLE, NTSTATUS, OBJECT_ATTRIBUTES, kit_28000};

/// An NT handle, a process-wide number: of a shared object or of an event. 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct NtHandle(pub u64);

impl NtHandle {
    /// The handle as records hold it.
    pub fn as_raw(self) -> wddm_abi::HANDLE {
        // CAST: handles are pointer-sized; both targets have 64 bits.
        core::ptr::without_provenance_mut(self.0 as usize)
    }

    /// The handle that a record holds; `None` for NULL.
    pub fn from_raw(raw: wddm_abi::HANDLE) -> Option<Self> {
        // CAST: usize is 64 bits wide.
        if raw.is_null() { None } else { Some(Self(raw.addr() as u64)) }
    }
}

/// How an event wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventWait {
    /// It was set.
    Set,
    /// Time ran out.
    Timeout,
    /// The handle is not waitable.
    Failed,
}

/// Bytes of a `D3DKMT_CONNECT_DOORBELL` in its longest known form.
pub const CONNECT_DOORBELL_BYTES: usize = size_of::<kit_28000::D3DKMT_CONNECT_DOORBELL>();
/// Bytes of a `D3DKMT_NOTIFY_WORK_SUBMISSION` in its longest known form.
pub const NOTIFY_WORK_SUBMISSION_BYTES: usize = size_of::<kit_28000::D3DKMT_NOTIFY_WORK_SUBMISSION>();

/// Calls `$callback!` with the list of thunks: `method, Id, Export, RECORD, presence, bytes;` each.
///
/// Presence is `required` for what Windows has had since hardware scheduling. It is `optional` for what 24H2 added: an
/// import of those would keep the image from loading on older systems. It is `fallback` for calls without which the
/// driver works, and which are looked for by name: those that are made only where another one was refused, and the
/// newer enumeration, which the SDK's gdi32.lib does not have. Bytes are those of the longest known form of the record.
#[macro_export]
macro_rules! for_each_thunk {
    ($callback:path) => {
        $callback! {
            enum_adapters3, EnumAdapters3, D3DKMTEnumAdapters3, D3DKMT_ENUMADAPTERS3, fallback, 24;
            enum_adapters2, EnumAdapters2, D3DKMTEnumAdapters2, D3DKMT_ENUMADAPTERS2, required, 16;
            open_adapter_from_luid, OpenAdapterFromLuid, D3DKMTOpenAdapterFromLuid, D3DKMT_OPENADAPTERFROMLUID, required, 12;
            query_adapter_info, QueryAdapterInfo, D3DKMTQueryAdapterInfo, D3DKMT_QUERYADAPTERINFO, required, 24;
            close_adapter, CloseAdapter, D3DKMTCloseAdapter, D3DKMT_CLOSEADAPTER, required, 4;
            create_device, CreateDevice, D3DKMTCreateDevice, D3DKMT_CREATEDEVICE, required, 64;
            destroy_device, DestroyDevice, D3DKMTDestroyDevice, D3DKMT_DESTROYDEVICE, required, 4;
            get_device_state, GetDeviceState, D3DKMTGetDeviceState, D3DKMT_GETDEVICESTATE, required, 56;
            create_paging_queue, CreatePagingQueue, D3DKMTCreatePagingQueue, D3DKMT_CREATEPAGINGQUEUE, required, 32;
            destroy_paging_queue, DestroyPagingQueue, D3DKMTDestroyPagingQueue, D3DDDI_DESTROYPAGINGQUEUE, required, 4;
            create_allocation2, CreateAllocation2, D3DKMTCreateAllocation2, D3DKMT_CREATEALLOCATION, required, 72;
            destroy_allocation2, DestroyAllocation2, D3DKMTDestroyAllocation2, D3DKMT_DESTROYALLOCATION2, required, 24;
            make_resident, MakeResident, D3DKMTMakeResident, D3DDDI_MAKERESIDENT, required, 48;
            map_gpu_virtual_address, MapGpuVirtualAddress, D3DKMTMapGpuVirtualAddress, D3DDDI_MAPGPUVIRTUALADDRESS, required, 104;
            lock2, Lock2, D3DKMTLock2, D3DKMT_LOCK2, required, 24;
            unlock2, Unlock2, D3DKMTUnlock2, D3DKMT_UNLOCK2, required, 8;
            query_resource_info_from_nt_handle, QueryResourceInfoFromNtHandle, D3DKMTQueryResourceInfoFromNtHandle, D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE, required, 40;
            open_resource_from_nt_handle, OpenResourceFromNtHandle, D3DKMTOpenResourceFromNtHandle, D3DKMT_OPENRESOURCEFROMNTHANDLE, required, 104;
            create_hw_context, CreateHwContext, D3DKMTCreateHwContext, D3DKMT_CREATEHWCONTEXT, fallback, 40;
            destroy_hw_context, DestroyHwContext, D3DKMTDestroyHwContext, D3DKMT_DESTROYHWCONTEXT, fallback, 4;
            create_context_virtual, CreateContextVirtual, D3DKMTCreateContextVirtual, D3DKMT_CREATECONTEXTVIRTUAL, required, 40;
            destroy_context, DestroyContext, D3DKMTDestroyContext, D3DKMT_DESTROYCONTEXT, required, 4;
            create_hw_queue, CreateHwQueue, D3DKMTCreateHwQueue, D3DKMT_CREATEHWQUEUE, required, 48;
            destroy_hw_queue, DestroyHwQueue, D3DKMTDestroyHwQueue, D3DKMT_DESTROYHWQUEUE, required, 4;
            submit_command_to_hw_queue, SubmitCommandToHwQueue, D3DKMTSubmitCommandToHwQueue, D3DKMT_SUBMITCOMMANDTOHWQUEUE, required, 56;
            submit_wait_for_sync_objects_to_hw_queue, SubmitWaitForSyncObjectsToHwQueue, D3DKMTSubmitWaitForSyncObjectsToHwQueue, D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE, required, 24;
            submit_signal_sync_objects_to_hw_queue, SubmitSignalSyncObjectsToHwQueue, D3DKMTSubmitSignalSyncObjectsToHwQueue, D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE, required, 40;
            submit_command, SubmitCommand, D3DKMTSubmitCommand, D3DKMT_SUBMITCOMMAND, required, 384;
            wait_for_synchronization_object_from_gpu, WaitForSynchronizationObjectFromGpu, D3DKMTWaitForSynchronizationObjectFromGpu, D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU, required, 80;
            signal_synchronization_object_from_gpu, SignalSynchronizationObjectFromGpu, D3DKMTSignalSynchronizationObjectFromGpu, D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU, required, 80;
            create_synchronization_object2, CreateSynchronizationObject2, D3DKMTCreateSynchronizationObject2, D3DKMT_CREATESYNCHRONIZATIONOBJECT2, required, 96;
            open_sync_object_from_nt_handle2, OpenSyncObjectFromNtHandle2, D3DKMTOpenSyncObjectFromNtHandle2, D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2, required, 88;
            destroy_synchronization_object, DestroySynchronizationObject, D3DKMTDestroySynchronizationObject, D3DKMT_DESTROYSYNCHRONIZATIONOBJECT, required, 4;
            wait_for_synchronization_object_from_cpu, WaitForSynchronizationObjectFromCpu, D3DKMTWaitForSynchronizationObjectFromCpu, D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU, required, 40;
            signal_synchronization_object_from_cpu, SignalSynchronizationObjectFromCpu, D3DKMTSignalSynchronizationObjectFromCpu, D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU, required, 32;
            create_native_fence, CreateNativeFence, D3DKMTCreateNativeFence, D3DKMT_CREATENATIVEFENCE, optional, 216;
            open_native_fence_from_nt_handle, OpenNativeFenceFromNtHandle, D3DKMTOpenNativeFenceFromNtHandle, D3DKMT_OPENNATIVEFENCEFROMNTHANDLE, optional, 176;
            create_doorbell, CreateDoorbell, D3DKMTCreateDoorbell, D3DKMT_CREATE_DOORBELL, optional, 72;
            connect_doorbell, ConnectDoorbell, D3DKMTConnectDoorbell, D3DKMT_CONNECT_DOORBELL, optional, 88;
            destroy_doorbell, DestroyDoorbell, D3DKMTDestroyDoorbell, D3DKMT_DESTROY_DOORBELL, optional, 4;
            notify_work_submission, NotifyWorkSubmission, D3DKMTNotifyWorkSubmission, D3DKMT_NOTIFY_WORK_SUBMISSION, optional, 72;
        }
    };
}

macro_rules! define {
    ($($method:ident, $id:ident, $export:ident, $record:ident, $presence:ident, $bytes:literal;)*) => {
        /// The functions of gdi32, and what the process has to offer.
        ///
        /// Methods are named after the export without `D3DKMT`. Any thread may call any of them at any time.
        ///
        /// # Safety
        /// What a method returns as a CPU address is mapped, readable where the documentation says so and writable
        /// where it says that, from the call on until the object that it belongs to is destroyed by a later call (for a
        /// locked allocation: unlocked or destroyed), and nothing holds a Rust reference into it. A method writes to
        /// its argument (all of it: [`Padded::as_mut_ptr`]) and to what the argument's output pointers name, nowhere
        /// else.
        #[expect(unsafe_code, reason = "its implementer promises that the addresses it returns are mapped")]
        pub unsafe trait Thunks: Sized + Send + Sync + 'static {
            /// What calls go to. Called once for each adapter that is opened.
            fn attach() -> Self;

            $(
                #[doc = concat!("`", stringify!($export), "`.")]
                fn $method(&self, argument: &mut Padded<wddm_abi::$record, { $bytes - size_of::<wddm_abi::$record>() }>) -> NTSTATUS;
            )*

            /// `D3DKMTShareObjects`, the one function whose arguments are not a record.
            fn share_objects(
                &self,
                objects: &[D3DKMT_HANDLE],
                attributes: &mut OBJECT_ATTRIBUTES,
                access: u32,
            ) -> (NTSTATUS, Option<NtHandle>);

            /// Whether gdi32 exports `name`.
            fn has_export(&self, name: &str) -> bool;

            /// An auto-reset event, not set; `None` when there is none to be had.
            fn create_event(&self) -> Option<NtHandle>;
            /// Sets the event.
            fn set_event(&self, event: NtHandle);
            /// Waits for the event, at most `milliseconds`; `u32::MAX` waits for ever.
            fn wait_event(&self, event: NtHandle, milliseconds: u32) -> EventWait;
            /// Closes an event or a shared object's handle.
            fn close_handle(&self, handle: NtHandle);

            /// The performance counter, in ticks.
            fn timestamp(&self) -> u64;
            /// Its ticks per second; never 0.
            fn timestamp_frequency(&self) -> u64;
            /// Writes the event to the traces that have the driver's provider on; where there is none, `event` is not
            /// called.
            fn trace(&self, event: impl FnOnce() -> Event) {
                let _ = event;
            }
            /// Returns whether a trace has the driver's provider on. Cheap.
            fn is_traced(&self) -> bool {
                false
            }

            /// A number of the calling thread that no other living thread of the process has.
            fn thread_id() -> u32;
        }

        /// A thunk, for counters and messages.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u32)]
        pub enum Thunk {
            $(
                #[doc = concat!("`", stringify!($export), "`.")]
                $id,
            )*
            /// `D3DKMTShareObjects`.
            ShareObjects,
        }

        impl Thunk {
            /// All of them, in order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$id,)* Self::ShareObjects];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// Name of the export.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$id => stringify!($export),)*
                    Self::ShareObjects => "D3DKMTShareObjects",
                }
            }

            /// Whether only 24H2 and later export it.
            pub const fn is_optional(self) -> bool {
                match self {
                    $(Self::$id => define!(@optional $presence),)*
                    Self::ShareObjects => false,
                }
            }
        }
    };
    (@optional required) => { false };
    (@optional fallback) => { false };
    (@optional optional) => { true };
}

for_each_thunk!(define);

const _: () = assert!(CONNECT_DOORBELL_BYTES == 88 && NOTIFY_WORK_SUBMISSION_BYTES == 72);

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;

    #[test]
    fn every_thunk_is_an_export_of_the_sdk_and_the_optional_ones_are_those_of_24h2() {
        for thunk in Thunk::ALL {
            let export = wddm_abi::exports::D3DKMT_EXPORTS.iter().find(|e| e.name == thunk.name());
            let export = export.unwrap_or_else(|| panic!("{} is not in the table", thunk.name()));
            // The SDK's gdi32.lib has all of them but one, which must not be imported then (presence `fallback`).
            let by_name = *thunk == Thunk::EnumAdapters3;
            assert!(export.declared && (export.dll == Some("GDI32.dll")) != by_name, "{}", export.name);
            // What came with 24H2 is in no API set.
            assert_eq!(thunk.is_optional(), export.api_set.is_none(), "{}", export.name);
        }
    }
}
