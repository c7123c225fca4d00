//! Rules of kernel-mode testing.

use nt_model::rules;

rules! {
    /// Kernel-mode testing.
    pub list TESTING_RULES;

    /// The interface.
    TESTING_INTERFACE = "DXG-TESTING-INTERFACE" {
        title: "with DXGK_FEATURE_KERNEL_MODE_TESTING enabled, QueryFeatureInterface hands out \
            DXGKDDI_KERNELMODETESTINGINTERFACE: InterfaceSize is its 8 bytes, pfnBuildTestCommandBuffer is set, and the \
            rest of a larger buffer is zero",
        source: "article kernel-mode-testing-of-wddm-features; article querying-wddm-feature-support-and-enablement \
            (sample)",
        bugcheck: none,
        fix: "fill the table in DxgkDdiQueryFeatureInterface, store its size, and zero what is behind it",
    }
    /// What has no interface.
    FEATURE_REFUSAL = "DXG-FEATURE-REFUSAL" {
        title: "QueryFeatureInterface fails for an unknown feature, for a version that the driver does not support, and \
            for a buffer that is too small, and writes nothing to the buffer then",
        source: "article querying-wddm-feature-support-and-enablement (sample: STATUS_INVALID_PARAMETER, \
            STATUS_UNSUCCESSFUL, STATUS_BUFFER_TOO_SMALL)",
        bugcheck: none,
        fix: "check FeatureId, Version and InterfaceSize before the table is stored",
    }
    /// The sizes that a command needs.
    TESTING_SIZE = "DXG-TESTING-SIZE" {
        title: "pfnBuildTestCommandBuffer, with buffers that are NULL or too small, returns STATUS_BUFFER_OVERFLOW and \
            the sizes of both: at most 4 KB, and 1 KB of private data",
        source: "DDI page DXGKDDI_BUILDTESTCOMMANDBUFFER; article kernel-mode-testing-of-wddm-features",
        bugcheck: none,
        fix: "calculate both sizes in the same call, and compare before anything is written",
    }
    /// A command that is built.
    TESTING_BUILD = "DXG-TESTING-BUILD" {
        title: "pfnBuildTestCommandBuffer builds COPY and FILL for every context and test queue of a node with \
            SupportBuildTestCommandBuffer, once the buffers are large enough",
        source: "DDI page DXGKDDI_BUILDTESTCOMMANDBUFFER; article kernel-mode-testing-of-wddm-features",
        bugcheck: none,
        fix: "support both on each such node, or leave the node's flag clear",
    }
    /// What is written.
    TESTING_OVERRUN = "DXG-TESTING-OVERRUN" {
        title: "pfnBuildTestCommandBuffer writes within the sizes that it is given, says how many bytes it has written, \
            and leaves the other members of its record as they came",
        source: "DDI page DXGKARG_BUILDTESTCOMMANDBUFFER ([in] and [in, out] members)",
        bugcheck: none,
        fix: "check the sizes first; store no more than the two sizes in the record",
    }
    /// Contexts and queues for tests.
    TESTING_CONTEXT = "DXG-TESTING-CONTEXT" {
        title: "DxgkDdiCreateContext with TestContext, and DxgkDdiCreateHwQueue with TestQueue, need no private data on \
            a node with SupportBuildTestCommandBuffer",
        source: "article kernel-mode-testing-of-wddm-features",
        bugcheck: none,
        fix: "make such a context or queue of what every one of them has in common",
    }
}
