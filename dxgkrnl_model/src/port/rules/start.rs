//! Rules of loading, starting and stopping.

use nt_model::rules;

rules! {
    /// Loading, starting, stopping.
    pub list START_RULES;

    /// `DRIVER_INITIALIZATION_DATA.Version`.
    INIT_VERSION = "DXG-INIT-VERSION" {
        title: "DRIVER_INITIALIZATION_DATA.Version is a published interface version that this system knows",
        source: "DDI page DxgkInitialize; macros DXGKDDI_INTERFACE_VERSION_",
        bugcheck: none,
        fix: "set Version to the DXGKDDI_INTERFACE_VERSION_ constant of the WDDM version that the driver implements",
    }
    /// The table as a whole.
    INIT_SLOT = "DXG-INIT-SLOT" {
        title: "every function that Windows calls for what the driver advertises is in the table",
        source: "DDI page DRIVER_INITIALIZATION_DATA; article native-gpu-fence-objects (driver must implement and \
            supply pointers); article tdr-changes-in-windows-8 (all of the listed functions); article \
            mcdm-implementation-guidelines",
        bugcheck: none,
        fix: "fill the slot, with a refusing stub at least, or do not advertise the capability",
    }
    /// Functions that the version of the table asks for.
    INIT_SLOT_VERSION = "DXG-INIT-SLOT-VERSION" {
        title: "the functions that Windows misses in a table of this version are there: DxgkDdiCalibrateGpuClock and \
            DxgkDdiSetStablePowerState from 2.0 on, DxgkDdiSetVirtualMachineData from 2.4 on, and there with \
            IoMmuSupported DxgkDdiBeginExclusiveAccess and DxgkDdiEndExclusiveAccess",
        source: "seen by authors of drivers, whose adapters did not start, not documented",
        bugcheck: none,
        fix: "fill the slot, with a refusing stub at least",
    }
    /// `DriverUnload`.
    INIT_UNLOAD = "DXG-INIT-UNLOAD" {
        title: "the driver leaves DriverObject.DriverUnload to Dxgkrnl",
        source: "DDI page DxgkDdiUnload",
        bugcheck: (0x139, 0x3),
        fix: "free in DxgkDdiUnload; never store to DriverObject->DriverUnload after DxgkInitialize",
    }
    /// What DriverEntry returns.
    INIT_STATUS = "DXG-INIT-STATUS" {
        title: "DriverEntry returns a failure when DxgkInitialize failed, and calls it when it succeeds",
        source: "article driverentry-of-display-miniport-driver",
        bugcheck: none,
        fix: "return the status of DxgkInitialize",
    }
    /// `DxgkDdiAddDevice`.
    ADD_CONTEXT = "DXG-ADD-CONTEXT" {
        title: "DxgkDdiAddDevice succeeds with a context for a device that the driver supports",
        source: "DDI page DxgkDdiAddDevice",
        bugcheck: none,
        fix: "return a non-NULL MiniportDeviceContext, or a failure",
    }
    /// `DxgkDdiStartDevice` on a good machine.
    START_STATUS = "DXG-START-STATUS" {
        title: "DxgkDdiStartDevice succeeds when nothing that it needs has failed",
        source: "DDI page DxgkDdiStartDevice (what it needs of its hardware the model may lack)",
        bugcheck: none,
        severity: warning,
        fix: "look at what the driver refused: the transcript shows every query and callback before it",
    }
    /// Stop, remove, unload.
    STOP_STATUS = "DXG-STOP-STATUS" {
        title: "DxgkDdiStopDevice and DxgkDdiRemoveDevice succeed",
        source: "DDI pages DxgkDdiStopDevice, DxgkDdiRemoveDevice",
        bugcheck: none,
        fix: "tear down without failing: nobody can repeat the call",
    }
    /// A stopped device is silent.
    STOP_LINE = "DXG-STOP-LINE" {
        title: "a device that is there asserts no interrupt when DxgkDdiStopDevice has returned",
        source: "DDI page DxgkDdiStopDevice (resets a display adapter)",
        bugcheck: none,
        fix: "stop what raises interrupts, then acknowledge what was raised, before the registers are unmapped: a line \
            that no routine claims interrupts again for ever",
    }
    /// Versions agree.
    VERSION_AGREES = "DXG-VERSION-AGREES" {
        title: "init table, DRIVERCAPS.WDDMVersion, WDDMDEVICECAPS, VIDMMCAPS.GpuMmuSupported and each node's GpuMmuSupported name one driver model",
        source: "DDI page DXGK_WDDMDEVICECAPS (same value as DXGK_DRIVERCAPS); article mcdm-implementation-guidelines",
        bugcheck: none,
        fix: "derive the five places from one constant",
    }
    /// `DxgkDdiQueryAdapterInfo` must not write beyond its buffer.
    QAI_OVERRUN = "DXG-QAI-OVERRUN" {
        title: "DxgkDdiQueryAdapterInfo writes inside OutputDataSize only, and not behind the last segment",
        source: "DDI page DXGKARG_QUERYADAPTERINFO, OutputDataSize (an older system's DXGK_DRIVERCAPS is shorter); DDI \
            page DXGK_QUERYSEGMENTOUT4",
        bugcheck: none,
        fix: "zero the buffer and copy min(OutputDataSize, sizeof) bytes",
    }
    /// `DxgkDdiQueryAdapterInfo` for types that the driver does not know.
    QAI_STATUS = "DXG-QAI-STATUS" {
        title: "DxgkDdiQueryAdapterInfo fails with STATUS_INVALID_PARAMETER, STATUS_NO_MEMORY or STATUS_GRAPHICS_DRIVER_MISMATCH",
        source: "DDI page DxgkDdiQueryAdapterInfo, return value (such as one of these: the list is not a closed one)",
        bugcheck: none,
        severity: note,
        fix: "return STATUS_INVALID_PARAMETER for a type that the driver does not answer",
    }
    /// Queries without which no adapter starts.
    QAI_REQUIRED = "DXG-QAI-REQUIRED" {
        title: "the queries that a start rests on succeed: DRIVERCAPS, QUERYSEGMENT4, HISTORYBUFFERPRECISION, \
            NUMPOWERCOMPONENTS of a compute-only driver or one with SupportRuntimePowerManagement, and \
            POWERCOMPONENTINFO, GPUMMUCAPS, PAGETABLELEVELDESC, NATIVE_FENCE_CAPS, USERMODESUBMISSION_CAPS where \
            advertised",
        source: "article mcdm-implementation-guidelines, Query adapter info requirements; DDI pages of the structures",
        bugcheck: none,
        fix: "answer the query",
    }
    /// `UMDRIVERPRIVATE`.
    QAI_PRIVATE = "DXG-QAI-PRIVATE" {
        title: "UMDRIVERPRIVATE is answered alike whether input and output are one buffer or two",
        source: "none of how the driver gets it: a user-mode driver has one buffer, D3DKMT_QUERYADAPTERINFO, \
            pPrivateDriverData; DDI page DXGKARG_QUERYADAPTERINFO has two members",
        bugcheck: none,
        severity: warning,
        fix: "read the input before the output is written, and take the same address for both",
    }
    /// Queries that drivers start without.
    QAI_EXPECTED = "DXG-QAI-EXPECTED" {
        title: "WDDMDEVICECAPS, NUMPOWERCOMPONENTS and PHYSICALADAPTERCAPS are answered",
        source: "DDI page DXGK_WDDMDEVICECAPS; article mcdm-implementation-guidelines, where the last is optional; \
            authors of drivers saw drivers start that refuse some of them, and one that did not: \
            Personality::power_components_demanded, Personality::physical_adapter_caps",
        bugcheck: none,
        severity: warning,
        fix: "answer the query: no power component, the nodes of DRIVERCAPS, the version of DRIVERCAPS",
    }
    /// The first of the two segment queries.
    SEGMENT_PROBE = "DXG-SEGMENT-PROBE" {
        title: "the first QUERYSEGMENT4 call (NbSegment 0) succeeds and writes the count and nothing else",
        source: "DDI page DXGK_QUERYSEGMENTOUT4; a driver that fills the rest as well was seen to start on 26100",
        bugcheck: none,
        severity: warning,
        fix: "on NbSegment 0 set NbSegment and return STATUS_SUCCESS",
    }
    /// The second.
    SEGMENT_STRIDE = "DXG-SEGMENT-STRIDE" {
        title: "segment descriptors are written SegmentDescriptorStride bytes apart",
        source: "DDI page DXGK_QUERYSEGMENTOUT4; a driver that advances by sizeof was seen to start on 26100",
        bugcheck: none,
        severity: warning,
        fix: "advance pSegmentDescriptor by SegmentDescriptorStride, not by sizeof",
    }
    /// Node metadata.
    NODE_METADATA = "DXG-NODE-METADATA" {
        title: "DxgkDdiGetNodeMetadata succeeds for every node and fails with STATUS_INVALID_PARAMETER beyond the last",
        source: "DDI page DxgkDdiGetNodeMetadata",
        bugcheck: none,
        fix: "answer for 0 to count - 1, refuse the rest",
    }
    /// Name of a node of type OTHER.
    NODE_NAME = "DXG-NODE-NAME" {
        title: "the FriendlyName of each node is terminated, whatever its type is",
        source: "DDI page DXGK_NODEMETADATA",
        bugcheck: none,
        fix: "write a name of at most 31 characters",
    }
    /// Engines for 3-D work.
    NODE_3D = "DXG-NODE-3D" {
        title: "an adapter has one 3-D engine at most",
        source: "DDI page DXGK_ENGINE_TYPE, Remarks (all adapters that are not a display-only device have one; that none has more is held here, since the MCDM article asks compute-only adapters for no 3-D engine)",
        bugcheck: none,
        fix: "give DXGK_ENGINE_TYPE_3D to the node that does the 3-D work, and another type to the others",
    }
    /// `DxgkDdiQueryInterface`.
    QUERY_INTERFACE = "DXG-QUERY-INTERFACE" {
        title: "DxgkDdiQueryInterface fills interfaces within QueryInterface->Size and refuses others with STATUS_NOT_SUPPORTED",
        source: "DDI page DxgkDdiQueryInterface; article querying-wddm-feature-support-and-enablement (sample)",
        bugcheck: none,
        fix: "compare the GUID and the size before writing",
    }
    /// `DxgkDdiQueryFeatureSupport`.
    FEATURE_SUPPORT = "DXG-FEATURE-SUPPORT" {
        title: "DxgkDdiQueryFeatureSupport succeeds, or fails with STATUS_INVALID_PARAMETER for an unknown feature; a supported one has a version range 1 <= min <= max",
        source: "DDI page DXGKARG_QUERYFEATURESUPPORT; article querying-wddm-feature-support-and-enablement (sample)",
        bugcheck: none,
        fix: "store both versions with SupportedByDriver",
    }
    /// The input of a question about a feature.
    FEATURE_INPUT = "DXG-FEATURE-INPUT" {
        title: "DxgkDdiQueryFeatureSupport leaves FeatureId and AllowExperimental as they came, and what it supports \
            without experimental support it supports with it",
        source: "DDI page DXGKARG_QUERYFEATURESUPPORT ([in] members; with AllowExperimental FALSE an experimental \
            feature is unsupported)",
        bugcheck: none,
        fix: "read AllowExperimental, write the [out] members only",
    }
    /// The interface of a feature.
    FEATURE_INTERFACE = "DXG-FEATURE-INTERFACE" {
        title: "DXGK_FEATURE_INTERFACE.QueryFeatureInterface is called for a feature that IsFeatureEnabled said is on, in \
            the version that it said",
        source: "article native-gpu-fence-objects (sample: the interface is asked for if the feature is enabled, with \
            Version of the answer); DDI page DXGKARGCB_QUERYFEATUREINTERFACE (versions need not be compatible)",
        bugcheck: none,
        fix: "ask IsFeatureEnabled first, keep Enabled and Version of its answer, and ask for the interface by them",
    }
    /// A feature that was enabled and is not used.
    FEATURE_UNUSED = "DXG-FEATURE-UNUSED" {
        title: "a feature that driver and OS have enabled is used: HWSCH by a node's ContextSchedulingSupported, \
            NATIVE_FENCE by NativeGpuFence, USER_MODE_SUBMISSION by a node's UserModeSubmission, KERNEL_MODE_TESTING by \
            a node's SupportBuildTestCommandBuffer",
        source: "article querying-wddm-feature-support-and-enablement (a driver says what it supports on the current \
            configuration); what an OS does with a feature that it enabled and no capability shows is not documented",
        bugcheck: none,
        fix: "answer SupportedByDriver or SupportedOnCurrentConfig with FALSE for what the capabilities will not say",
    }
    /// What the OS can do with native fences.
    FEATURE_OS_CAPS = "DXG-FEATURE-OS-CAPS" {
        title: "a driver that advertises NativeGpuFence has called DXGK_FEATURE_INTERFACE.QueryFeatureInterface for \
            what the OS supports of native fences",
        source: "article native-gpu-fence-objects (KMD must query this feature interface table to determine the OS's \
            capabilities)",
        bugcheck: none,
        fix: "ask for DXGKCBINT_FEATURE_NATIVEFENCE_1 in DxgkDdiStartDevice, and call its GetOSCaps",
    }
    /// Advertising native fences.
    FEATURE_NATIVE_FENCE = "DXG-FEATURE-NATIVE-FENCE" {
        title: "DXGK_VIDSCHCAPS.NativeGpuFence is set only when the OS has enabled DXGK_FEATURE_NATIVE_FENCE",
        source: "article native-gpu-fence-objects: the OS fails adapter initialization otherwise",
        bugcheck: none,
        fix: "ask IsFeatureEnabled in DxgkDdiStartDevice and build the caps from the answer",
    }
    /// Advertising user-mode submission.
    FEATURE_USER_MODE = "DXG-FEATURE-USER-MODE" {
        title: "DXGK_NODEMETADATA_FLAGS.UserModeSubmission is set only when the OS has enabled DXGK_FEATURE_USER_MODE_SUBMISSION",
        source: "article querying-wddm-feature-support-and-enablement (the driver asks the OS first)",
        bugcheck: none,
        fix: "ask IsFeatureEnabled in DxgkDdiStartDevice and build the node flags from the answer",
    }
    /// Advertising hardware scheduling.
    FEATURE_HWSCH = "DXG-FEATURE-HWSCH" {
        title: "DXGK_NODEMETADATA_FLAGS.ContextSchedulingSupported is set only when the OS has enabled DXGK_FEATURE_HWSCH",
        source: "article querying-wddm-feature-support-and-enablement (the driver asks the OS first)",
        bugcheck: none,
        fix: "ask IsFeatureEnabled in DxgkDdiStartDevice and build the node flags from the answer",
    }
    /// Advertising kernel-mode testing.
    FEATURE_TESTING = "DXG-FEATURE-TESTING" {
        title: "DXGK_NODEMETADATA_FLAGS.SupportBuildTestCommandBuffer is set only when the OS has enabled DXGK_FEATURE_KERNEL_MODE_TESTING",
        source: "article kernel-mode-testing-of-wddm-features",
        bugcheck: none,
        fix: "ask IsFeatureEnabled and build the node flags from the answer",
    }
    /// `DxgkDdiCalibrateGpuClock`, where nothing of the GPU's has its time.
    CLOCK_ANSWER = "DXG-CLOCK-ANSWER" {
        title: "DxgkDdiCalibrateGpuClock succeeds and names a frequency on an adapter without native fences, too",
        source: "DDI page DXGKDDI_CALIBRATEGPUCLOCK; one driver of 2.1 is known to run with a frequency of 0",
        bugcheck: none,
        severity: warning,
        fix: "return the clock that the node's timestamps are taken from",
    }
    /// `DxgkDdiCalibrateGpuClock`, where fence logs have its times.
    CLOCK_STATUS = "DXG-CLOCK-STATUS" {
        title: "DxgkDdiCalibrateGpuClock succeeds for every node and names a frequency, on an adapter with native fences",
        source: "DDI page DXGKDDI_CALIBRATEGPUCLOCK; article native-gpu-fence-objects, log buffer (timestamps are GPU time)",
        bugcheck: none,
        fix: "return the clock that the node's timestamps are taken from",
    }
    /// Its CPU half.
    CLOCK_PAIR = "DXG-CLOCK-PAIR" {
        title: "CpuClockCounter is the performance counter during the call",
        source: "DDI page DXGKDDI_CALIBRATEGPUCLOCK, remarks (both counters as nearly simultaneously as possible)",
        bugcheck: none,
        fix: "read both counters one right after the other, in the call",
    }
    /// Its GPU half.
    CLOCK_FORWARD = "DXG-CLOCK-FORWARD" {
        title: "GpuClockCounter does not go back, and GpuFrequency stays",
        source: "DDI page DXGKDDI_CALIBRATEGPUCLOCK (drift between the clocks is estimated from it)",
        bugcheck: none,
        fix: "use one monotonic clock of fixed frequency",
    }
}
