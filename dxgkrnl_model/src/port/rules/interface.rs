//! Rules of the callbacks in `DXGKRNL_INTERFACE`. Their IRQL limits are checked by NT-IRQL.

use nt_model::rules;

rules! {
    /// Callbacks.
    pub list INTERFACE_RULES;

    /// The handle of the adapter.
    CB_HANDLE = "DXG-CB-HANDLE" {
        title: "a callback gets the DeviceHandle of DXGKRNL_INTERFACE of a started adapter",
        source: "DDI page DXGKRNL_INTERFACE, DeviceHandle; DDI pages of the callbacks",
        bugcheck: none,
        fix: "pass the DeviceHandle that DxgkDdiStartDevice got, and none after DxgkDdiStopDevice",
    }
    /// Other handles.
    CB_OBJECT = "DXG-CB-OBJECT" {
        title: "a callback gets the handle of an object that exists, of the right type",
        source: "DDI pages of the callbacks",
        bugcheck: none,
        fix: "drop the handle when the object is destroyed",
    }
    /// Pointers.
    CB_POINTER = "DXG-CB-POINTER" {
        title: "a callback gets pointers that it may use",
        source: "DDI pages of the callbacks",
        bugcheck: none,
        fix: "pass the record and the output that the page names",
    }
    /// From the ISR.
    CB_FROM_ISR = "DXG-CB-FROM-ISR" {
        title: "DxgkDdiInterruptRoutine calls no callback but DxgkCbQueueDpc and DxgkCbNotifyInterrupt",
        source: "DDI page DxgkDdiInterruptRoutine, remarks",
        bugcheck: none,
        fix: "do it in the DPC",
    }
    /// `DxgkCbMapMemory`.
    CB_MAP_RANGE = "DXG-CB-MAP-RANGE" {
        title: "DxgkCbMapMemory maps what the translated resources list",
        source: "DDI page DxgkCbMapMemory (TranslatedAddress, Length)",
        bugcheck: none,
        fix: "take address and length from DXGK_DEVICE_INFO.TranslatedResourceList",
    }
    /// `DxgkCbUnmapMemory`.
    CB_UNMAP = "DXG-CB-UNMAP" {
        title: "DxgkCbUnmapMemory gets an address that DxgkCbMapMemory returned, once",
        source: "DDI page DxgkCbUnmapMemory",
        bugcheck: none,
        fix: "unmap each mapping once",
    }
    /// Freeing memory that a callback allocated.
    CB_FREE = "DXG-CB-FREE" {
        title: "memory that a callback allocated is freed once, by its counterpart",
        source: "DDI pages DxgkCbFreeContiguousMemory, DxgkCbFreePagesFromMdl, DxgkCbUnmapPhysicalMemory, DxgkCbDestroyPhysicalMemoryObject",
        bugcheck: none,
        fix: "pair the calls",
    }
    /// `DxgkCbDisconnectDoorbell`.
    CB_DISCONNECT = "DXG-CB-DISCONNECT" {
        title: "DxgkCbDisconnectDoorbell names a doorbell of that queue, which is there until it returns, and a reason that \
            is a DISCONNECTED_ value",
        source: "DDI page DxgkCbDisconnectDoorbell, return value (STATUS_INVALID_PARAMETER)",
        bugcheck: none,
        fix: "pass DISCONNECTED_RETRY or DISCONNECTED_ABORT and the handles that Dxgkrnl gave, and let \
            DxgkDdiDestroyDoorbell wait for the call",
    }
}
