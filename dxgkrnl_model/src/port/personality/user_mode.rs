//! How the OS answers user mode: statuses that may vary, and the order of events.
//!
//! The documents leave each of these open, or two of them disagree. A user-mode driver that holds under all of them
//! rests on none.

/// The kind of the progress fence of a kernel-mode queue, on an adapter with native fences. A user-mode queue always
/// has a native one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelProgress {
    /// Native. Source: DDI page DXGKARG_CREATEHWQUEUE ("on GPUs that support native fences").
    #[default]
    Native,
    /// Monitored. Source: article user-mode-work-submission, which asks for native ones with user-mode queues alone.
    Monitored,
}

/// When `DxgkDdiOpenNativeFence` is called for the native progress fence of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgressOpened {
    /// Before `DxgkDdiCreateHwQueue`.
    #[default]
    Before,
    /// After it. Source: DDI page DXGKARG_CREATEHWQUEUE promises that the fence was created, not that it was opened.
    After,
    /// Never: the driver knows addresses, and the handle where [`ProgressFenceHandle`](super::ProgressFenceHandle) puts
    /// it.
    Never,
}

/// How `D3DKMTMakeResident` and `D3DKMTMapGpuVirtualAddress` answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residency {
    /// STATUS_PENDING and a value to wait for; MakeResident of what is resident already: STATUS_SUCCESS and 0.
    #[default]
    Pending,
    /// STATUS_SUCCESS and 0, when everything is done. Source: DDI pages D3DDDI_MAKERESIDENT,
    /// D3DDDI_MAPGPUVIRTUALADDRESS ("a zero fence value might be returned").
    Immediate,
    /// MakeResident without `CantTrimFurther` is over the budget: STATUS_NO_MEMORY, `NumBytesToTrim`, and in
    /// `NumAllocations` how many were made resident, which is half of them. When the device has evicted as many bytes
    /// since, the next one succeeds, and the one after it is over the budget again. Everything else answers as
    /// [`Pending`](Self::Pending). Source: DDI page D3DDDI_MAKERESIDENT.
    OverBudget,
}

/// How the OS answers user mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserMode {
    /// A shared allocation is locked by the process that made it alone; `D3DKMTLock2` by another is
    /// STATUS_INVALID_PARAMETER.
    ///
    /// Source: DDI pages DXGK_ALLOCATIONINFOFLAGS and DXGK_ALLOCATIONINFOFLAGS_WDDM2_0, CpuVisible ("only the process
    /// that created a shared allocation can lock that allocation"). The pages of D3DKMTLock2 say nothing of it.
    pub creator_locks: bool,
    /// The kind of the progress fence of kernel-mode queues.
    pub kernel_progress: KernelProgress,
    /// When the driver is told that a native progress fence is open.
    pub progress_opened: ProgressOpened,
    /// How paging operations answer.
    pub residency: Residency,
    /// An event that waits for a monitored fence is set just before the OS stores the value, so that it reads as not
    /// reached.
    ///
    /// Source: none; a public user-mode driver reads the value again after the event, and waits again.
    pub event_before_value: bool,
    /// GPU addresses of fences are mapped behind paging operations that are on their way, at the earliest after 1 ms,
    /// while the call that made or opened the fence returns at once.
    ///
    /// Source: DDI page D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 ("mapped asynchronously"). Chosen: in the order of all
    /// paging operations of the adapter, so that one that comes later and is done says that the fence is mapped.
    pub fences_mapped_late: bool,
    /// Opening a shared fence takes no flags: any is STATUS_INVALID_PARAMETER.
    ///
    /// Source: DDI page D3DKMT_OPENNATIVEFENCEFROMNTHANDLE, whose flags say what the opener may do, while sharing is
    /// asked for at creation; Wine's tests, which real Windows passes, open with 0.
    pub bare_opening: bool,
    /// `D3DKMTDestroyHwQueue` waits for nothing: what the queue has not run by then is lost.
    ///
    /// Source: article user-mode-work-submission, which promises the wait for the last queued value at the end of a
    /// process alone.
    pub queues_end_at_once: bool,
    /// The first connection of a doorbell behind D3 has `DxgkDdiCreateDoorbell` called once more, for the doorbell that
    /// there is, in front of `DxgkDdiConnectDoorbell`.
    ///
    /// Source: article user-mode-work-submission, engine D-state transitions, which has the former called to establish
    /// the connection, and names the latter nowhere there. Chosen: both, since the former gives no address of a
    /// physical doorbell; with the ring, the handles and the private data of the first time, and without a call of
    /// `DxgkDdiDestroyDoorbell` in between, of which the article has nothing. What it leaves as the driver's handle is
    /// that from then on.
    pub creates_behind_d3: bool,
    /// Memory that the CPU does not see is mapped for the GPU in units of 64 KB alone: `D3DKMTMapGpuVirtualAddress` of
    /// anything else is STATUS_INVALID_PARAMETER.
    ///
    /// Source: none of Microsoft's; a public user-mode driver says so of the Windows that it was tried on.
    pub local_in_64k: bool,
    /// What is asked of a device in an error state fails with STATUS_GRAPHICS_GPU_EXCEPTION_ON_DEVICE; otherwise with
    /// STATUS_DEVICE_REMOVED.
    ///
    /// Source: logs of three clients, of submissions. No page says what such a call returns.
    pub gpu_exception: bool,
}
