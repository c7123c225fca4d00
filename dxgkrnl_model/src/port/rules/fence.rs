//! Rules of native and monitored fences and of the fence logs.

use nt_model::rules;

rules! {
    /// Fences.
    pub list FENCE_RULES;

    /// `DxgkDdiUpdateMonitoredValues`.
    NF_MONITORED_STATUS = "DXG-NF-MONITORED-STATUS" {
        title: "DxgkDdiUpdateMonitoredValues succeeds",
        source: "bug check 0x119/0x12; DDI page DxgkDdiUpdateMonitoredValues",
        bugcheck: (0x119, 0x12),
        fix: "write the values; nothing in it may fail",
    }
    /// `DxgkDdiUpdateCurrentValuesFromCpu`.
    NF_CURRENT_STATUS = "DXG-NF-CURRENT-STATUS" {
        title: "DxgkDdiUpdateCurrentValuesFromCpu succeeds",
        source: "bug check 0x119/0x13; DDI page DxgkDdiUpdateCurrentValuesFromCpu",
        bugcheck: (0x119, 0x13),
        fix: "write the values; nothing in it may fail",
    }
    /// The monitored value is written.
    NF_MONITORED_WRITTEN = "DXG-NF-MONITORED-WRITTEN" {
        title: "DxgkDdiUpdateMonitoredValues has written each value to its location when it returns",
        source: "DDI page DxgkDdiUpdateMonitoredValues, remarks",
        bugcheck: none,
        fix: "store UpdatedValueArray[i] to MonitoredValueKernelCpuVa[i] as one 64-bit write",
    }
    /// The current value is written.
    NF_CURRENT_WRITTEN = "DXG-NF-CURRENT-WRITTEN" {
        title: "DxgkDdiUpdateCurrentValuesFromCpu has written each value to its location when it returns",
        source: "DDI page DxgkDdiUpdateCurrentValuesFromCpu, remarks",
        bugcheck: none,
        fix: "store UpdatedValueArray[i] to CurrentValueKernelCpuVa[i] as one 64-bit write",
    }
    /// Nothing is written when only a notification is asked for, or when the fence is dead.
    NF_CURRENT_UNTOUCHED = "DXG-NF-CURRENT-UNTOUCHED" {
        title: "with NotificationOnly DxgkDdiUpdateCurrentValuesFromCpu leaves CurrentValue alone",
        source: "article native-gpu-fence-objects, cross-adapter native fences; DDI page DXGKARG_UPDATECURRENTVALUESFROMCPU, flags",
        bugcheck: none,
        fix: "only rescan the waiting queues",
    }
    /// Kernel addresses are for the call.
    NF_ADDRESS_CACHED = "DXG-NF-ADDRESS-CACHED" {
        title: "MonitoredValueKernelCpuVa and CurrentValueKernelCpuVa are used during the call only",
        source: "DDI pages DxgkDdiUpdateMonitoredValues, DxgkDdiUpdateCurrentValuesFromCpu, remarks",
        bugcheck: none,
        fix: "keep the GPU virtual addresses, never these pointers",
    }
    /// No signal is lost.
    NF_LOST = "DXG-NF-LOST" {
        title: "a fence that passes its MonitoredValue while somebody waits raises a native fence interrupt, within \
            TdrDelay, also where the process that waits ends or destroys its device meanwhile",
        source: "article native-gpu-fence-objects, synchronization issues (an interrupt that is not received is not acceptable)",
        bugcheck: none,
        fix: "store CurrentValue, full fence, then read MonitoredValue; raise when greater; retry a notification that failed",
    }
    /// Handles of fences.
    NF_HANDLE = "DXG-NF-HANDLE" {
        title: "DxgkDdiCreateNativeFence and DxgkDdiOpenNativeFence store a handle of their own when they succeed",
        source: "DDI pages DXGKARG_CREATENATIVEFENCE, DXGKARG_OPENNATIVEFENCE (on output the internal, KMD-maintained handle)",
        bugcheck: none,
        fix: "store a non-NULL handle",
    }
    /// Asking for storage.
    NF_STORAGE_STATUS = "DXG-NF-STORAGE-STATUS" {
        title: "DxgkDdiGetStandardAllocationDriverData describes the storage of native fences, or has no memory; private data are neither asked for nor touched",
        source: "DDI pages DxgkDdiGetStandardAllocationDriverData, D3DKMDT_FENCESTORAGESURFACEDATA, Remarks",
        bugcheck: none,
        fix: "fill SupportedWriteSegmentSet, EvictionSegmentSet and PreferredSegment of AllocationInfo, and nothing else",
    }
    /// Segments of storage.
    NF_STORAGE_SEGMENT = "DXG-NF-STORAGE-SEGMENT" {
        title: "values of intra-GPU fences go to local segments that the CPU does not see, MonitoredValue of others to such as it does; preferred segments are supported ones, eviction goes to apertures",
        source: "D3DKMTCreateNativeFence, Remarks (D3DDDI_NATIVEFENCE_TYPE_INTRA_GPU); DDI page D3DKMDT_FENCESTORAGESURFACEDATA, Remarks",
        bugcheck: none,
        fix: "name an aperture where no local segment suits the default type",
    }
    /// Closing and destroying.
    NF_DESTROY = "DXG-NF-DESTROY" {
        title: "DxgkDdiCloseNativeFence and DxgkDdiDestroyNativeFence succeed",
        source: "DDI page DxgkDdiDestroyNativeFence (after the call returns the OS deallocates the storage)",
        bugcheck: none,
        fix: "free without failing",
    }
    /// Stores after destruction.
    NF_WRITE_AFTER = "DXG-NF-WRITE-AFTER" {
        title: "nothing writes a fence's storage after DxgkDdiDestroyNativeFence, as long as the model keeps it (that of \
            fences that can be shared: until 32 others are destroyed, or a process leaves the adapter), or CurrentValue \
            of an always-signaled fence",
        source: "DDI page DxgkDdiDestroyNativeFence, remarks; article native-gpu-fence-objects",
        bugcheck: none,
        fix: "purge what is pending for the fence before returning",
    }
    /// Log buffers are accepted.
    LOG_SET = "DXG-LOG-SET" {
        title: "DxgkDdiSetNativeFenceLogBuffer accepts both log types of every queue, also when called again",
        source: "article native-gpu-fence-objects (WAITS and SIGNALS are mandatory; called each time that a buffer is recreated)",
        bugcheck: none,
        fix: "switch to the new buffer",
    }
    /// Flushing.
    LOG_FLUSH = "DXG-LOG-FLUSH" {
        title: "DxgkDdiUpdateNativeFenceLogs succeeds for live queues",
        source: "DDI page DxgkDdiUpdateNativeFenceLogs",
        bugcheck: none,
        fix: "put a barrier per queue",
    }
    /// Header of a log.
    LOG_HEADER = "DXG-LOG-HEADER" {
        title: "the GPU changes FirstFreeEntryIndex and WraparoundCount of a log header and nothing else, the index \
            stays below NumberOfEntries and the count never falls: of a process whose own stores keep away from its \
            logs, which the model cannot see",
        source: "DDI page DXGK_NATIVE_FENCE_LOG_HEADER; article native-gpu-fence-objects, log buffer mechanism (the log \
            is in the process's GPU address space, at an address that nobody tells it)",
        bugcheck: none,
        fix: "advance the 64-bit word atomically; where a client aims at its own log, the driver is not to blame",
    }
    /// Timestamps.
    LOG_TIME = "DXG-LOG-TIME" {
        title: "timestamps of a log are zero or not before the previous entry's, and a wait is observed before it ends",
        source: "article native-gpu-fence-objects, empty or repeated log buffer timestamps; DDI page DXGK_NATIVE_FENCE_LOG_ENTRY",
        bugcheck: none,
        fix: "take the timestamp from one monotonic clock when the entry is written",
    }
    /// Entries are complete after a flush.
    LOG_COMPLETE = "DXG-LOG-COMPLETE" {
        title: "after DxgkDdiUpdateNativeFenceLogs every entry below FirstFreeEntryIndex is complete",
        source: "article native-gpu-fence-objects, synchronous update of native fence logs",
        bugcheck: none,
        fix: "write the entry, then the index; flush in the DDI",
    }
    /// Old buffers are left alone.
    LOG_STALE = "DXG-LOG-STALE" {
        title: "after DxgkDdiSetNativeFenceLogBuffer the GPU writes no more to the previous buffer",
        source: "article native-gpu-fence-objects (Dxgkrnl may destroy and recreate a log buffer)",
        bugcheck: none,
        fix: "finish the write in progress before returning, and forget the old addresses",
    }
}
