//! Rules of compute-only drivers.

use nt_model::rules;

rules! {
    /// Rules for drivers that say they are compute-only.
    pub list COMPUTE_RULES;

    /// Class and kind.
    COMPUTE_CLASS = "DXG-COMPUTE-CLASS" {
        title: "MiscCaps.ComputeOnly is set exactly where the device is of class ComputeAccelerator",
        source: "article mcdm-implementation-guidelines, Driver INF file; Driver capability requirements (ComputeOnly \
            must be TRUE)",
        bugcheck: none,
        fix: "let one value of the service, written by the INF of the class, decide both",
    }
    /// Functions that must not be there.
    COMPUTE_SLOT = "DXG-COMPUTE-SLOT" {
        title: "a compute-only driver leaves the functions NULL that such drivers must not have",
        source: "article mcdm-implementation-guidelines, Prohibited functions, WDDM 1.x functions",
        bugcheck: none,
        fix: "leave the slot NULL; DriverEntry must know that the driver is compute-only",
    }
    /// Functions that must be there.
    COMPUTE_NEEDED = "DXG-COMPUTE-NEEDED" {
        title: "a compute-only driver has the functions that such drivers must have, and those of what it supports",
        source: "article mcdm-implementation-guidelines, Minimum required support, and the sections behind it",
        bugcheck: none,
        fix: "fill the slot; a function that has nothing to do may say so",
    }
    /// Judged at DXGKQAITYPE_DRIVERCAPS.
    COMPUTE_CAPS = "DXG-COMPUTE-CAPS" {
        title: "of a compute-only driver's capabilities those that a display has are zero, and those of its scheduling \
            are what such drivers must have",
        source: "article mcdm-implementation-guidelines, Driver capability requirements, SchedulingCaps requirements, \
            MemoryManagementCaps requirements",
        bugcheck: none,
        fix: "clear what has to do with flips, pointers, overlays, primaries and hybrid systems, NoDmaPatching and \
            HwQueuePacketCap; set SupportPerEngineTDR and VirtualAddressingSupported",
    }
    /// Judged at each query of such a type.
    COMPUTE_QUERY = "DXG-COMPUTE-QUERY" {
        title: "a compute-only driver refuses the types of DxgkDdiQueryAdapterInfo that such drivers must not support",
        source: "article mcdm-implementation-guidelines, Query adapter info requirements",
        bugcheck: none,
        fix: "return STATUS_INVALID_PARAMETER",
    }
}
