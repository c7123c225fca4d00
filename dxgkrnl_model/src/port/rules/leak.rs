//! Rules of what must be gone when an object or the adapter is. Threads, pool and the like are nt_model's:
//! NT-THREAD-LEAKED and the rules beside it are evaluated when the driver is unloaded.

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
}
