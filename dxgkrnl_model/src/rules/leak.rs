//! Rules of what must be gone when an object or the adapter is.

use nt_model::rules;

rules! {
    /// Leaks.
    pub list LEAK_RULES;

    /// `DxgkCbMapMemory` without its counterpart.
    LEAK_MAPPING = "DXG-LEAK-MAPPING" {
        title: "DxgkDdiStopDevice has unmapped what DxgkCbMapMemory mapped",
        source: "DDI page DxgkDdiStopDevice (frees what DxgkDdiStartDevice allocated)",
        bugcheck: none,
        fix: "call DxgkCbUnmapMemory in DxgkDdiStopDevice",
    }
    /// Memory from callbacks.
    LEAK_MEMORY = "DXG-LEAK-MEMORY" {
        title: "DxgkDdiStopDevice has freed contiguous memory, pages and physical memory objects that callbacks allocated",
        source: "DDI page DxgkDdiStopDevice (frees what DxgkDdiStartDevice allocated)",
        bugcheck: none,
        fix: "free it in DxgkDdiStopDevice",
    }
    /// Interfaces.
    LEAK_INTERFACE = "DXG-LEAK-INTERFACE" {
        title: "interfaces that were referenced are dereferenced before the adapter is removed",
        source: "DDI page DxgkCbQueryServices; INTERFACE contract (InterfaceReference, InterfaceDereference)",
        bugcheck: none,
        fix: "call InterfaceDereference as often as InterfaceReference",
    }
    /// Threads.
    LEAK_THREAD = "DXG-LEAK-THREAD" {
        title: "no thread of the driver runs when DxgkDdiRemoveDevice has returned",
        source: "DDI page DxgkDdiRemoveDevice; B133",
        bugcheck: none,
        fix: "signal the threads and wait for them in DxgkDdiStopDevice",
    }
}
