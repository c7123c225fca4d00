//! Owners of the driver's objects. Dropping one destroys what it owns.

use super::{Client, Inside, List, Result, size};
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;
use umd_core::ffi::FpUmdTable;
use umd_core::ffi::types::{
    FP_ALLOCATION_SHARED, FP_FENCE_MONITORED, FP_FENCE_SHARED, FP_INFINITE, FpAdapter, FpAdapterInfo, FpAdapterOpen,
    FpAllocation, FpAllocationCreate, FpAllocationInfo, FpDevice, FpDeviceState, FpFence, FpFenceCreate, FpFenceInfo,
    FpNodeInfo, FpQueue, FpQueueCounters, FpQueueCreate, FpQueueInfo, FpThunkCalls, FpTraceEvent,
};

macro_rules! owner {
    ($(#[$doc:meta])* $name:ident($raw:ty), $destroy:ident) => {
        $(#[$doc])*
        pub struct $name {
            pub(super) client: Arc<Client>,
            pub(super) raw: *mut $raw,
        }

        // SAFETY: the C ABI's objects may be used from any thread.
        unsafe impl Send for $name {}
        // SAFETY: as above; the functions lock what they must.
        unsafe impl Sync for $name {}

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: our object, destroyed once. A process that has ended refuses, which harms nobody.
                let _ = self.client.call(stringify!($destroy), |t| unsafe { (t.$destroy)(self.raw) });
            }
        }
    };
}

owner! {
    /// An open adapter.
    Adapter(FpAdapter), fp_adapter_close
}
owner! {
    /// A device.
    Device(FpDevice), fp_device_destroy
}
owner! {
    /// An allocation.
    Allocation(FpAllocation), fp_allocation_destroy
}
owner! {
    /// A queue.
    Queue(FpQueue), fp_queue_destroy
}
owner! {
    /// A fence.
    Fence(FpFence), fp_fence_destroy
}

/// A structure that the driver fills in.
fn filled<T: Copy>(mut value: T, fill: impl FnOnce(*mut T) -> Result<()>) -> Result<T> {
    fill(&raw mut value)?;
    Ok(value)
}

/// All zeros but for the size in the first four bytes.
///
/// Every `Fp…` structure that is filled in is made of integers and raw pointers.
fn blank<T: Copy>() -> T {
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: the first member of each of these structures is `size: u32`.
    unsafe { value.as_mut_ptr().cast::<u32>().write(size::<T>()) };
    // SAFETY: integers, byte arrays and raw pointers, for which zeros are values.
    unsafe { value.assume_init() }
}

/// A wait's limit in the C ABI's nanoseconds.
fn nanoseconds(timeout: Option<Duration>) -> u64 {
    timeout.map_or(FP_INFINITE, |t| u64::try_from(t.as_nanos()).unwrap_or(FP_INFINITE - 1))
}

impl Adapter {
    /// Opens the first Fencepost adapter, or the one with `luid`. `flags`: `FP_OPEN_…` besides the LUID's. `mutant`:
    /// the step that the driver does wrong, 0 for none; without effect on a driver that has no such steps.
    ///
    /// # Errors
    /// Those of `fp_adapter_open`.
    pub fn open(
        table: FpUmdTable,
        process: Box<dyn Inside>,
        luid: Option<u64>,
        flags: u32,
        mutant: u32,
    ) -> Result<Self> {
        let client = Client::new(table, process);
        let mut open: FpAdapterOpen = blank();
        (open.flags, open.reserved[0]) = (flags, mutant);
        if let Some(luid) = luid {
            open.flags |= umd_core::ffi::types::FP_OPEN_BY_LUID;
            // CAST: the two halves.
            (open.luid_low, open.luid_high) = (luid as u32, (luid >> 32) as i32);
        }
        let mut raw = ptr::null_mut();
        // SAFETY: a structure that states its size, and a place for the result.
        client.call("fp_adapter_open", |t| unsafe { (t.fp_adapter_open)(&raw const open, &raw mut raw) })?;
        Ok(Self { client, raw })
    }

    /// The process and driver it was opened by.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// What it is.
    ///
    /// # Errors
    /// Those of `fp_adapter_info`.
    pub fn info(&self) -> Result<FpAdapterInfo> {
        // SAFETY: our object, and a structure that states its size.
        filled(blank(), |to| self.client.call("fp_adapter_info", |t| unsafe { (t.fp_adapter_info)(self.raw, to) }))
    }

    /// What node `node` is.
    ///
    /// # Errors
    /// Those of `fp_adapter_node`.
    pub fn node(&self, node: u32) -> Result<FpNodeInfo> {
        filled(blank(), |to| {
            // SAFETY: our object, and a structure that states its size.
            self.client.call("fp_adapter_node", |t| unsafe { (t.fp_adapter_node)(self.raw, node, to) })
        })
    }

    /// How often each function of gdi32 was called: name, calls, refusals.
    ///
    /// # Errors
    /// Those of `fp_adapter_thunk_calls`.
    pub fn thunk_calls(&self) -> Result<Vec<(String, u64, u64)>> {
        let mut all = Vec::new();
        for index in 0.. {
            let read = filled(blank::<FpThunkCalls>(), |to| {
                // SAFETY: our object, and a structure that states its size.
                self.client
                    .call("fp_adapter_thunk_calls", |t| unsafe { (t.fp_adapter_thunk_calls)(self.raw, index, to) })
            });
            match read {
                Ok(calls) => {
                    let name = calls.name.iter().take_while(|b| **b != 0).map(|b| char::from(*b)).collect();
                    all.push((name, calls.calls, calls.failures));
                }
                Err(end) if end.status == wddm_abi::ntstatus::STATUS_INVALID_PARAMETER => break,
                Err(other) => return Err(other),
            }
        }
        Ok(all)
    }

    /// Closes an NT handle of the process.
    ///
    /// # Errors
    /// Those of `fp_adapter_close_nt_handle`.
    pub fn close_nt_handle(&self, handle: u64) -> Result<()> {
        // SAFETY: our object.
        self.client.call("fp_adapter_close_nt_handle", |t| unsafe { (t.fp_adapter_close_nt_handle)(self.raw, handle) })
    }

    /// Creates a device.
    ///
    /// # Errors
    /// Those of `fp_device_create`.
    pub fn device(&self) -> Result<Device> {
        let mut raw = ptr::null_mut();
        // SAFETY: our object, and a place for the result.
        self.client.call("fp_device_create", |t| unsafe { (t.fp_device_create)(self.raw, 0, &raw mut raw) })?;
        Ok(Device { client: self.client.clone(), raw })
    }
}

impl Device {
    /// How it is.
    ///
    /// # Errors
    /// Those of `fp_device_state`.
    pub fn state(&self) -> Result<FpDeviceState> {
        // SAFETY: our object, and a structure that states its size.
        filled(blank(), |to| self.client.call("fp_device_state", |t| unsafe { (t.fp_device_state)(self.raw, to) }))
    }

    /// Allocates `bytes` of `kind` (`FP_KIND_…`); `flags`: `FP_ALLOCATION_…`.
    ///
    /// # Errors
    /// Those of `fp_allocation_create`.
    pub fn allocate(&self, kind: u32, bytes: u64, flags: u32) -> Result<Allocation> {
        let mut create: FpAllocationCreate = blank();
        (create.kind, create.bytes, create.flags) = (kind, bytes, flags);
        let mut raw = ptr::null_mut();
        self.client.call("fp_allocation_create", |t| {
            // SAFETY: our object, a structure that states its size, a place for the result.
            unsafe { (t.fp_allocation_create)(self.raw, &raw const create, &raw mut raw) }
        })?;
        Ok(Allocation { client: self.client.clone(), raw })
    }

    /// Allocates what other processes may open.
    ///
    /// # Errors
    /// As [`Self::allocate`].
    pub fn allocate_shared(&self, kind: u32, bytes: u64) -> Result<Allocation> {
        self.allocate(kind, bytes, FP_ALLOCATION_SHARED)
    }

    /// Opens what another process shared.
    ///
    /// # Errors
    /// Those of `fp_allocation_open`.
    pub fn open_allocation(&self, nt_handle: u64) -> Result<Allocation> {
        let mut raw = ptr::null_mut();
        self.client.call("fp_allocation_open", |t| {
            // SAFETY: our object, and a place for the result.
            unsafe { (t.fp_allocation_open)(self.raw, nt_handle, &raw mut raw) }
        })?;
        Ok(Allocation { client: self.client.clone(), raw })
    }

    /// Creates a queue on `node` with a ring of `ring_bytes`; `flags`: `FP_QUEUE_…`; `trace`: operations that it
    /// remembers.
    ///
    /// # Errors
    /// Those of `fp_queue_create`.
    pub fn queue(&self, node: u32, ring_bytes: u64, flags: u32, trace: u32) -> Result<Queue> {
        let mut create: FpQueueCreate = blank();
        (create.node, create.ring_bytes, create.flags, create.trace_events) = (node, ring_bytes, flags, trace);
        let mut raw = ptr::null_mut();
        self.client.call("fp_queue_create", |t| {
            // SAFETY: our object, a structure that states its size, a place for the result.
            unsafe { (t.fp_queue_create)(self.raw, &raw const create, &raw mut raw) }
        })?;
        Ok(Queue { client: self.client.clone(), raw })
    }

    /// Creates a fence. `flags`: `FP_FENCE_…`.
    ///
    /// # Errors
    /// Those of `fp_fence_create`.
    pub fn fence(&self, initial: u64, flags: u32) -> Result<Fence> {
        self.fence_with(initial, flags, [0; 48])
    }

    /// Creates a fence whose private data are `private`.
    ///
    /// # Errors
    /// Those of `fp_fence_create`.
    pub fn fence_with(&self, initial: u64, flags: u32, private: [u8; 48]) -> Result<Fence> {
        let mut create: FpFenceCreate = blank();
        (create.initial_value, create.flags, create.private_data) = (initial, flags, private);
        let mut raw = ptr::null_mut();
        self.client.call("fp_fence_create", |t| {
            // SAFETY: our object, a structure that states its size, a place for the result.
            unsafe { (t.fp_fence_create)(self.raw, &raw const create, &raw mut raw) }
        })?;
        Ok(Fence { client: self.client.clone(), raw })
    }

    /// Creates a fence that other processes may open.
    ///
    /// # Errors
    /// Those of `fp_fence_create`.
    pub fn shared_fence(&self, initial: u64) -> Result<Fence> {
        self.fence(initial, FP_FENCE_SHARED)
    }

    /// Opens a fence that another process shared. `monitored`: as a monitored fence.
    ///
    /// # Errors
    /// Those of `fp_fence_open`.
    pub fn open_fence(&self, nt_handle: u64, monitored: bool) -> Result<Fence> {
        let flags = if monitored { FP_FENCE_MONITORED } else { 0 };
        let mut raw = ptr::null_mut();
        self.client.call("fp_fence_open", |t| {
            // SAFETY: our object, and a place for the result.
            unsafe { (t.fp_fence_open)(self.raw, nt_handle, flags, &raw mut raw) }
        })?;
        Ok(Fence { client: self.client.clone(), raw })
    }
}

impl Allocation {
    /// What it is.
    ///
    /// # Errors
    /// Those of `fp_allocation_info`.
    pub fn info(&self) -> Result<FpAllocationInfo> {
        filled(blank(), |to| {
            // SAFETY: our object, and a structure that states its size.
            self.client.call("fp_allocation_info", |t| unsafe { (t.fp_allocation_info)(self.raw, to) })
        })
    }

    /// Its GPU address.
    ///
    /// # Errors
    /// As [`Self::info`].
    pub fn gpu_va(&self) -> Result<u64> {
        Ok(self.info()?.gpu_va)
    }

    /// An NT handle for another process.
    ///
    /// # Errors
    /// Those of `fp_allocation_share`.
    pub fn share(&self) -> Result<u64> {
        let mut handle = 0;
        // SAFETY: our object, and a place for the result.
        self.client.call("fp_allocation_share", |t| unsafe { (t.fp_allocation_share)(self.raw, &raw mut handle) })?;
        Ok(handle)
    }

    /// Writes `bytes` at `offset`.
    ///
    /// # Errors
    /// Those of `fp_allocation_write`.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let (from, length) = (bytes.as_ptr().cast::<c_void>(), bytes.len());
        self.client.call("fp_allocation_write", |t| {
            // SAFETY: our object, and a buffer of that length.
            unsafe { (t.fp_allocation_write)(self.raw, offset, from, length) }
        })
    }

    /// Reads `bytes` from `offset`.
    ///
    /// # Errors
    /// Those of `fp_allocation_read`.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let (to, length) = (bytes.as_mut_ptr().cast::<c_void>(), bytes.len());
        self.client.call("fp_allocation_read", |t| {
            // SAFETY: our object, and a buffer of that length.
            unsafe { (t.fp_allocation_read)(self.raw, offset, to, length) }
        })
    }

    /// The 8 bytes at `offset`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_u64(&self, offset: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.read(offset, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

impl Queue {
    /// What it is.
    ///
    /// # Errors
    /// Those of `fp_queue_info`.
    pub fn info(&self) -> Result<FpQueueInfo> {
        // SAFETY: our object, and a structure that states its size.
        filled(blank(), |to| self.client.call("fp_queue_info", |t| unsafe { (t.fp_queue_info)(self.raw, to) }))
    }

    /// What it counted.
    ///
    /// # Errors
    /// Those of `fp_queue_counters`.
    pub fn counters(&self) -> Result<FpQueueCounters> {
        // SAFETY: our object, and a structure that states its size.
        filled(blank(), |to| self.client.call("fp_queue_counters", |t| unsafe { (t.fp_queue_counters)(self.raw, to) }))
    }

    /// An empty command list for this queue.
    ///
    /// # Errors
    /// Those of `fp_command_list_create`.
    pub fn list(&self) -> Result<List> {
        let mut raw = ptr::null_mut();
        self.client.call("fp_command_list_create", |t| {
            // SAFETY: our object, and a place for the result.
            unsafe { (t.fp_command_list_create)(self.raw, &raw mut raw) }
        })?;
        Ok(List { client: self.client.clone(), raw })
    }

    /// Submits a list; its progress value.
    ///
    /// # Errors
    /// Those of `fp_queue_submit`.
    pub fn submit(&self, list: &mut List) -> Result<u64> {
        self.submit_with(list, 0)
    }

    /// Submits a list with `flags` (`FP_SUBMIT_…`).
    ///
    /// # Errors
    /// Those of `fp_queue_submit`.
    pub fn submit_with(&self, list: &mut List, flags: u32) -> Result<u64> {
        let mut progress = 0;
        self.client.call("fp_queue_submit", |t| {
            // SAFETY: our objects, and a place for the result.
            unsafe { (t.fp_queue_submit)(self.raw, list.raw, flags, &raw mut progress) }
        })?;
        Ok(progress)
    }

    /// Submits lists as one submission, with `flags` (`FP_SUBMIT_…`); its progress value.
    ///
    /// # Errors
    /// Those of `fp_queue_submit_lists`.
    pub fn submit_lists(&self, lists: &mut [List], flags: u32) -> Result<u64> {
        let raw: Vec<_> = lists.iter().map(|list| list.raw).collect();
        // More than fit are more than the call takes, too.
        let count = u32::try_from(raw.len()).unwrap_or(u32::MAX);
        let mut progress = 0;
        self.client.call("fp_queue_submit_lists", |t| {
            // SAFETY: our objects, as many as said, and a place for the result.
            unsafe { (t.fp_queue_submit_lists)(self.raw, raw.as_ptr(), count, flags, &raw mut progress) }
        })?;
        Ok(progress)
    }

    /// Records with `record` and submits.
    ///
    /// # Errors
    /// What recording or submitting refuses.
    pub fn run(&self, record: impl FnOnce(&mut List) -> Result<()>) -> Result<u64> {
        let mut list = self.list()?;
        record(&mut list)?;
        self.submit(&mut list)
    }

    /// Waits for a submission; 0: the last one.
    ///
    /// # Errors
    /// Those of `fp_queue_wait`.
    pub fn wait(&self, progress: u64, timeout: Option<Duration>) -> Result<()> {
        let timeout = nanoseconds(timeout);
        // SAFETY: our object.
        self.client.call("fp_queue_wait", |t| unsafe { (t.fp_queue_wait)(self.raw, progress, timeout) })
    }

    /// The last submission that is done, and the last that was made.
    ///
    /// # Errors
    /// Those of `fp_queue_progress`.
    pub fn progress(&self) -> Result<(u64, u64)> {
        let (mut completed, mut submitted) = (0, 0);
        self.client.call("fp_queue_progress", |t| {
            // SAFETY: our object, and places for the results.
            unsafe { (t.fp_queue_progress)(self.raw, &raw mut completed, &raw mut submitted) }
        })?;
        Ok((completed, submitted))
    }

    /// Makes a lost queue anew. `flags`: `FP_QUEUE_…`.
    ///
    /// # Errors
    /// Those of `fp_queue_recreate`.
    pub fn recreate(&self, flags: u32) -> Result<()> {
        // SAFETY: our object.
        self.client.call("fp_queue_recreate", |t| unsafe { (t.fp_queue_recreate)(self.raw, flags) })
    }

    /// Gives the queue a ring of so many bytes.
    ///
    /// # Errors
    /// Those of `fp_queue_resize`.
    pub fn resize(&self, ring_size: u64) -> Result<()> {
        // SAFETY: our object.
        self.client.call("fp_queue_resize", |t| unsafe { (t.fp_queue_resize)(self.raw, ring_size) })
    }

    /// Takes the trace: what was recorded and queued when, and how many events were lost.
    ///
    /// # Errors
    /// Those of `fp_queue_trace_read`.
    pub fn trace(&self) -> Result<(Vec<FpTraceEvent>, u64)> {
        const AT_ONCE: usize = 256;
        let mut all = Vec::new();
        let mut lost_in_all = 0;
        loop {
            let mut events =
                [FpTraceEvent { kind: 0, fence: 0, value: 0, recorded: 0, queued: 0, progress: 0 }; AT_ONCE];
            let (mut count, mut lost) = (0, 0);
            self.client.call("fp_queue_trace_read", |t| {
                // SAFETY: our object, a buffer of that many events, and places for the results.
                unsafe {
                    // CAST: 256.
                    (t.fp_queue_trace_read)(
                        self.raw,
                        events.as_mut_ptr(),
                        AT_ONCE as u32,
                        &raw mut count,
                        &raw mut lost,
                    )
                }
            })?;
            lost_in_all += lost;
            all.extend_from_slice(&events[..(count as usize).min(AT_ONCE)]);
            if (count as usize) < AT_ONCE {
                return Ok((all, lost_in_all));
            }
        }
    }
}

impl Fence {
    /// What it is.
    ///
    /// # Errors
    /// Those of `fp_fence_info`.
    pub fn info(&self) -> Result<FpFenceInfo> {
        // SAFETY: our object, and a structure that states its size.
        filled(blank(), |to| self.client.call("fp_fence_info", |t| unsafe { (t.fp_fence_info)(self.raw, to) }))
    }

    /// An NT handle for another process.
    ///
    /// # Errors
    /// Those of `fp_fence_share`.
    pub fn share(&self) -> Result<u64> {
        let mut handle = 0;
        // SAFETY: our object, and a place for the result.
        self.client.call("fp_fence_share", |t| unsafe { (t.fp_fence_share)(self.raw, &raw mut handle) })?;
        Ok(handle)
    }

    /// Its value.
    ///
    /// # Errors
    /// Those of `fp_fence_value`.
    pub fn value(&self) -> Result<u64> {
        let mut value = 0;
        // SAFETY: our object, and a place for the result.
        self.client.call("fp_fence_value", |t| unsafe { (t.fp_fence_value)(self.raw, &raw mut value) })?;
        Ok(value)
    }

    /// Sets it from the CPU.
    ///
    /// # Errors
    /// Those of `fp_fence_signal`.
    pub fn signal(&self, value: u64) -> Result<()> {
        // SAFETY: our object.
        self.client.call("fp_fence_signal", |t| unsafe { (t.fp_fence_signal)(self.raw, value) })
    }

    /// Waits for a value.
    ///
    /// # Errors
    /// Those of `fp_fence_wait`.
    pub fn wait(&self, value: u64, timeout: Option<Duration>) -> Result<()> {
        let timeout = nanoseconds(timeout);
        // SAFETY: our object.
        self.client.call("fp_fence_wait", |t| unsafe { (t.fp_fence_wait)(self.raw, value, timeout) })
    }

    /// Whether it is of the monitored kind.
    ///
    /// # Errors
    /// As [`Self::info`].
    pub fn is_monitored(&self) -> Result<bool> {
        Ok(self.info()?.native == 0)
    }
}
