/* A render-only display miniport driver of WDDM 2.1 with GPU virtual addresses, for a GPU that executes nothing: it
   takes a command buffer, and a millisecond later it is done with it. So it is complete in what Dxgkrnl asks of a
   driver (start, devices, contexts, submission, paging, preemption, resets) and has no commands of its own.

   docs/judge_your_driver.md builds and judges it. */
#include <dispmprt.h>

#define TAG 'dneR'
#define NODE 0
/* Command buffers that Dxgkrnl hands over at most: SchedulingCaps.HwQueuePacketCap. */
#define ROOM 8
#define LEVELS 3
#define INDEX_BITS 9

typedef struct {
    DXGKRNL_INTERFACE dxgkrnl;
    KTIMER timer;
    KDPC dpc;
    /* What follows is used under the interrupt lock: by routines that DxgkCbSynchronizeExecution runs. */
    UINT waiting[ROOM]; /* fence ids, the oldest first */
    UINT count;
    UINT completed; /* the last fence id that is over */
    UINT submitted;
} ADAPTER;

/* What a handle of ours points at: a process, device or context. */
typedef struct {
    ADAPTER *adapter;
} OBJECT;

/* --- the GPU ----------------------------------------------------------------------------------------------------- */

typedef struct {
    ADAPTER *adapter;
    UINT fence;
    BOOLEAN again; /* there is more to do, or something to tell */
} CALL;

/* Runs a routine under the interrupt lock. IRQL: at most DISPATCH_LEVEL. */
static void synchronize(PKSYNCHRONIZE_ROUTINE routine, CALL *call)
{
    BOOLEAN returned;
    DXGKRNL_INTERFACE *dxgkrnl = &call->adapter->dxgkrnl;
    dxgkrnl->DxgkCbSynchronizeExecution(dxgkrnl->DeviceHandle, routine, call, 0, &returned);
}

static void notify(ADAPTER *adapter, DXGKARGCB_NOTIFY_INTERRUPT_DATA *data)
{
    adapter->dxgkrnl.DxgkCbNotifyInterrupt(adapter->dxgkrnl.DeviceHandle, data);
    adapter->dxgkrnl.DxgkCbQueueDpc(adapter->dxgkrnl.DeviceHandle);
}

static BOOLEAN begin(PVOID context)
{
    CALL *call = context;
    ADAPTER *adapter = call->adapter;
    adapter->waiting[adapter->count++] = adapter->submitted = call->fence;
    return TRUE;
}

static BOOLEAN finish(PVOID context)
{
    CALL *call = context;
    ADAPTER *adapter = call->adapter;
    if (adapter->count == 0)
        return FALSE;
    DXGKARGCB_NOTIFY_INTERRUPT_DATA data = { .InterruptType = DXGK_INTERRUPT_DMA_COMPLETED };
    data.DmaCompleted.SubmissionFenceId = adapter->completed = adapter->waiting[0];
    data.DmaCompleted.NodeOrdinal = NODE;
    adapter->count--;
    for (UINT at = 0; at < adapter->count; at++)
        adapter->waiting[at] = adapter->waiting[at + 1];
    notify(adapter, &data);
    call->again = adapter->count != 0;
    return TRUE;
}

static BOOLEAN preempt(PVOID context)
{
    CALL *call = context;
    ADAPTER *adapter = call->adapter;
    /* None of them has begun: Dxgkrnl hands them over again. */
    adapter->count = 0;
    DXGKARGCB_NOTIFY_INTERRUPT_DATA data = { .InterruptType = DXGK_INTERRUPT_DMA_PREEMPTED };
    data.DmaPreempted.PreemptionFenceId = call->fence;
    data.DmaPreempted.LastCompletedFenceId = adapter->completed;
    data.DmaPreempted.NodeOrdinal = NODE;
    notify(adapter, &data);
    return TRUE;
}

/* The oldest is lost, and the others come again. */
static BOOLEAN reset(PVOID context)
{
    CALL *call = context;
    ADAPTER *adapter = call->adapter;
    if (adapter->count != 0)
        adapter->completed = adapter->waiting[0];
    adapter->count = 0;
    call->fence = adapter->completed;
    return TRUE;
}

static BOOLEAN forget(PVOID context)
{
    CALL *call = context;
    call->adapter->count = 0;
    call->adapter->completed = call->adapter->submitted;
    return TRUE;
}

static BOOLEAN look(PVOID context)
{
    CALL *call = context;
    call->fence = call->adapter->completed;
    return TRUE;
}

static void start_timer(ADAPTER *adapter)
{
    LARGE_INTEGER due = { .QuadPart = -10000 }; /* 1 ms */
    KeSetTimer(&adapter->timer, due, &adapter->dpc);
}

static VOID tick(PKDPC dpc, PVOID context, PVOID first, PVOID second)
{
    CALL call = { .adapter = context };
    synchronize(finish, &call);
    if (call.again)
        start_timer(context);
}

/* --- the adapter's life -------------------------------------------------------------------------------------------- */

static NTSTATUS add_device(PDEVICE_OBJECT device, PVOID *context)
{
    ADAPTER *adapter = ExAllocatePoolWithTag(NonPagedPoolNx, sizeof *adapter, TAG);
    if (adapter == NULL)
        return STATUS_NO_MEMORY;
    RtlZeroMemory(adapter, sizeof *adapter);
    KeInitializeTimer(&adapter->timer);
    KeInitializeDpc(&adapter->dpc, tick, adapter);
    *context = adapter;
    return STATUS_SUCCESS;
}

static NTSTATUS start_device(PVOID context, PDXGK_START_INFO start, PDXGKRNL_INTERFACE dxgkrnl, PULONG sources,
                             PULONG children)
{
    ADAPTER *adapter = context;
    RtlCopyMemory(&adapter->dxgkrnl, dxgkrnl, min(dxgkrnl->Size, sizeof adapter->dxgkrnl));
    adapter->count = adapter->completed = adapter->submitted = 0;
    *sources = *children = 0;
    return STATUS_SUCCESS;
}

static NTSTATUS stop_device(PVOID context)
{
    ADAPTER *adapter = context;
    KeCancelTimer(&adapter->timer);
    KeFlushQueuedDpcs();
    return STATUS_SUCCESS;
}

static NTSTATUS remove_device(PVOID context)
{
    ExFreePoolWithTag(context, TAG);
    return STATUS_SUCCESS;
}

static VOID unload(VOID)
{
}

/* This GPU has no interrupt: what comes on the line is another device's. */
static BOOLEAN interrupt(PVOID context, ULONG message)
{
    return FALSE;
}

static VOID dpc(PVOID context)
{
    ADAPTER *adapter = context;
    adapter->dxgkrnl.DxgkCbNotifyDpc(adapter->dxgkrnl.DeviceHandle);
}

static NTSTATUS set_power_state(PVOID context, ULONG device, DEVICE_POWER_STATE state, POWER_ACTION action)
{
    return STATUS_SUCCESS;
}

static VOID set_stable_power_state(HANDLE adapter, const DXGKARG_SETSTABLEPOWERSTATE *arguments)
{
}

/* --- what the adapter is ------------------------------------------------------------------------------------------- */

static NTSTATUS give(const DXGKARG_QUERYADAPTERINFO *arguments, const void *answer, SIZE_T size)
{
    RtlCopyMemory(arguments->pOutputData, answer, min(size, arguments->OutputDataSize));
    return STATUS_SUCCESS;
}

static NTSTATUS segments(DXGK_QUERYSEGMENTOUT4 *out)
{
    if (out->NbSegment == 0) {
        out->NbSegment = 1;
        return STATUS_SUCCESS;
    }
    out->PagingBufferSegmentId = 0;
    out->PagingBufferSize = PAGE_SIZE;
    out->PagingBufferPrivateDataSize = 0;
    DXGK_SEGMENTDESCRIPTOR4 aperture = { .Size = 64 << 20 };
    aperture.Flags.Aperture = aperture.Flags.CpuVisible = aperture.Flags.CacheCoherent = 1;
    RtlCopyMemory(out->pSegmentDescriptor, &aperture, min(sizeof aperture, out->SegmentDescriptorStride));
    return STATUS_SUCCESS;
}

static NTSTATUS driver_caps(const DXGKARG_QUERYADAPTERINFO *arguments)
{
    DXGK_DRIVERCAPS caps = { .WDDMVersion = DXGKDDI_WDDMv2_1 };
    caps.HighestAcceptableAddress.QuadPart = -1;
    caps.FlipCaps.FlipOnVSyncMmIo = 1;
    caps.MaxQueuedFlipOnVSync = 1;
    caps.SchedulingCaps.MultiEngineAware = 1;
    caps.SchedulingCaps.PreemptionAware = 1;
    caps.SchedulingCaps.HwQueuePacketCap = ROOM;
    caps.PreemptionCaps.GraphicsPreemptionGranularity = D3DKMDT_GRAPHICS_PREEMPTION_DMA_BUFFER_BOUNDARY;
    caps.PreemptionCaps.ComputePreemptionGranularity = D3DKMDT_COMPUTE_PREEMPTION_DMA_BUFFER_BOUNDARY;
    caps.MemoryManagementCaps.GpuMmuSupported = 1;
    caps.MemoryManagementCaps.VirtualAddressingSupported = 1;
    caps.MemoryManagementCaps.PagingNode = NODE;
    caps.GpuEngineTopology.NbAsymetricProcessingNodes = 1;
    caps.SupportPerEngineTDR = TRUE;
    return give(arguments, &caps, sizeof caps);
}

static NTSTATUS query(HANDLE handle, const DXGKARG_QUERYADAPTERINFO *arguments)
{
    ADAPTER *adapter = handle;
    switch (arguments->Type) {
    case DXGKQAITYPE_DRIVERCAPS:
        return driver_caps(arguments);
    case DXGKQAITYPE_WDDMDEVICECAPS:
        return give(arguments, &(DXGK_WDDMVERSION) { DXGKDDI_WDDMv2_1 }, sizeof(DXGK_WDDMVERSION));
    case DXGKQAITYPE_PHYSICAL_MEMORY_CAPS:
        return give(arguments, &(ULONGLONG) { ~0ULL }, sizeof(ULONGLONG));
    case DXGKQAITYPE_HISTORYBUFFERPRECISION:
        return give(arguments, &(UINT) { 64 }, sizeof(UINT));
    case DXGKQAITYPE_NUMPOWERCOMPONENTS:
        return give(arguments, &(UINT) { 0 }, sizeof(UINT));
    case DXGKQAITYPE_QUERYSEGMENT4:
        return segments(arguments->pOutputData);
    case DXGKQAITYPE_PHYSICALADAPTERCAPS: {
        DXGK_PHYSICALADAPTERCAPS caps = { .NumExecutionNodes = 1, .PagingNodeIndex = NODE };
        caps.DxgkPhysicalAdapterHandle = adapter->dxgkrnl.DeviceHandle;
        caps.Flags.GpuMmuSupported = 1;
        return give(arguments, &caps, sizeof caps);
    }
    case DXGKQAITYPE_GPUMMUCAPS: {
        DXGK_GPUMMUCAPS caps = { .PageTableUpdateMode = DXGK_PAGETABLEUPDATE_CPU_VIRTUAL };
        caps.ReadOnlyMemorySupported = caps.CacheCoherentMemorySupported = 1;
        caps.VirtualAddressBitCount = 12 + LEVELS * INDEX_BITS;
        caps.PageTableLevelCount = LEVELS;
        return give(arguments, &caps, sizeof caps);
    }
    case DXGKQAITYPE_PAGETABLELEVELDESC: {
        /* In system memory. */
        DXGK_PAGE_TABLE_LEVEL_DESC level = { .PageTableIndexBitCount = INDEX_BITS, .PageTableSizeInBytes = PAGE_SIZE };
        return give(arguments, &level, sizeof level);
    }
    default:
        return STATUS_INVALID_PARAMETER;
    }
}

static NTSTATUS node_metadata(HANDLE adapter, UINT ordinal, DXGKARG_GETNODEMETADATA *metadata)
{
    if (ordinal != NODE)
        return STATUS_INVALID_PARAMETER;
    RtlZeroMemory(metadata, sizeof *metadata);
    metadata->EngineType = DXGK_ENGINE_TYPE_3D;
    metadata->GpuMmuSupported = TRUE;
    return STATUS_SUCCESS;
}

static NTSTATUS calibrate(HANDLE adapter, UINT node, UINT engine, DXGKARG_CALIBRATEGPUCLOCK *clock)
{
    LARGE_INTEGER frequency, now = KeQueryPerformanceCounter(&frequency);
    clock->GpuFrequency = frequency.QuadPart;
    clock->GpuClockCounter = clock->CpuClockCounter = now.QuadPart;
    return STATUS_SUCCESS;
}

/* --- objects ------------------------------------------------------------------------------------------------------- */

static OBJECT *create(ADAPTER *adapter)
{
    OBJECT *object = ExAllocatePoolWithTag(NonPagedPoolNx, sizeof *object, TAG);
    if (object != NULL)
        object->adapter = adapter;
    return object;
}

static NTSTATUS create_process(HANDLE adapter, DXGKARG_CREATEPROCESS *arguments)
{
    arguments->hKmdProcess = create(adapter);
    return arguments->hKmdProcess != NULL ? STATUS_SUCCESS : STATUS_NO_MEMORY;
}

static NTSTATUS destroy_process(HANDLE adapter, HANDLE process)
{
    ExFreePoolWithTag(process, TAG);
    return STATUS_SUCCESS;
}

static NTSTATUS create_device(HANDLE adapter, DXGKARG_CREATEDEVICE *arguments)
{
    OBJECT *device = create(adapter);
    if (device == NULL)
        return STATUS_NO_MEMORY;
    arguments->hDevice = device;
    return STATUS_SUCCESS;
}

static NTSTATUS create_context(HANDLE device, DXGKARG_CREATECONTEXT *arguments)
{
    OBJECT *context = create(((OBJECT *)device)->adapter);
    if (context == NULL)
        return STATUS_NO_MEMORY;
    arguments->hContext = context;
    RtlZeroMemory(&arguments->ContextInfo, sizeof arguments->ContextInfo);
    arguments->ContextInfo.DmaBufferSegmentSet = 1; /* bit 0: the aperture */
    arguments->ContextInfo.PagingCompanionNodeId = NODE;
    if (arguments->Flags.GdiContext)
        arguments->ContextInfo.AllocationListSize = 256;
    return STATUS_SUCCESS;
}

/* Of a device or a context. */
static NTSTATUS destroy(HANDLE object)
{
    ExFreePoolWithTag(object, TAG);
    return STATUS_SUCCESS;
}

/* There is no user-mode half that would know of allocations. */
static NTSTATUS create_allocation(HANDLE adapter, DXGKARG_CREATEALLOCATION *arguments)
{
    return STATUS_NO_MEMORY;
}

static NTSTATUS destroy_allocation(HANDLE adapter, const DXGKARG_DESTROYALLOCATION *arguments)
{
    return STATUS_SUCCESS;
}

static NTSTATUS open_allocation(HANDLE device, const DXGKARG_OPENALLOCATION *arguments)
{
    return STATUS_NO_MEMORY;
}

static NTSTATUS close_allocation(HANDLE device, const DXGKARG_CLOSEALLOCATION *arguments)
{
    return STATUS_SUCCESS;
}

/* --- work ---------------------------------------------------------------------------------------------------------- */

/* Nothing reads this table: a GPU that executes nothing translates nothing. */
static VOID set_root_page_table(HANDLE adapter, const DXGKARG_SETROOTPAGETABLE *arguments)
{
}

static NTSTATUS build_paging_buffer(HANDLE adapter, DXGKARG_BUILDPAGINGBUFFER *arguments)
{
    if (arguments->Operation == DXGK_OPERATION_UPDATE_PAGE_TABLE) {
        DXGK_BUILDPAGINGBUFFER_UPDATEPAGETABLE *update = &arguments->UpdatePageTable;
        ULONGLONG *table = update->PageTableAddress.CpuVirtual;
        for (UINT at = 0; at < update->NumPageTableEntries; at++) {
            DXGK_PTE *entry = &update->pPageTableEntries[update->Flags.Repeat ? 0 : at];
            table[update->StartIndex + at] = entry->PageAddress << 12 | (entry->Flags & 0xFFF);
        }
    }
    /* What moves between segments does not come up with an aperture alone, and nothing caches translations. */
    return STATUS_SUCCESS;
}

static NTSTATUS submit(HANDLE adapter, const DXGKARG_SUBMITCOMMANDVIRTUAL *arguments)
{
    CALL call = { .adapter = adapter, .fence = arguments->SubmissionFenceId };
    synchronize(begin, &call);
    start_timer(adapter);
    return STATUS_SUCCESS;
}

static NTSTATUS preempt_command(HANDLE adapter, const DXGKARG_PREEMPTCOMMAND *arguments)
{
    CALL call = { .adapter = adapter, .fence = arguments->PreemptionFenceId };
    synchronize(preempt, &call);
    return STATUS_SUCCESS;
}

static NTSTATUS current_fence(HANDLE adapter, DXGKARG_QUERYCURRENTFENCE *arguments)
{
    CALL call = { .adapter = adapter };
    synchronize(look, &call);
    arguments->CurrentFence = call.fence;
    return STATUS_SUCCESS;
}

/* --- recovery ------------------------------------------------------------------------------------------------------ */

static NTSTATUS dependent_engines(HANDLE adapter, DXGKARG_QUERYDEPENDENTENGINEGROUP *arguments)
{
    arguments->DependentNodeOrdinalMask = 1 << NODE;
    return STATUS_SUCCESS;
}

static NTSTATUS engine_status(HANDLE adapter, DXGKARG_QUERYENGINESTATUS *arguments)
{
    arguments->EngineStatus.Value = 0;
    arguments->EngineStatus.Responsive = 1;
    return STATUS_SUCCESS;
}

static NTSTATUS reset_engine(HANDLE adapter, DXGKARG_RESETENGINE *arguments)
{
    CALL call = { .adapter = adapter };
    synchronize(reset, &call);
    arguments->LastAbortedFenceId = call.fence;
    return STATUS_SUCCESS;
}

static NTSTATUS reset_from_timeout(HANDLE adapter)
{
    CALL call = { .adapter = adapter };
    synchronize(forget, &call);
    return STATUS_SUCCESS;
}

static NTSTATUS restart_from_timeout(HANDLE adapter)
{
    return STATUS_SUCCESS;
}

static NTSTATUS collect_debug_info(HANDLE adapter, const DXGKARG_COLLECTDBGINFO *arguments)
{
    return STATUS_SUCCESS;
}

static DRIVER_INITIALIZATION_DATA table = {
    .Version = DXGKDDI_INTERFACE_VERSION_WDDM2_1,
    .DxgkDdiAddDevice = add_device,
    .DxgkDdiStartDevice = start_device,
    .DxgkDdiStopDevice = stop_device,
    .DxgkDdiRemoveDevice = remove_device,
    .DxgkDdiUnload = unload,
    .DxgkDdiInterruptRoutine = interrupt,
    .DxgkDdiDpcRoutine = dpc,
    .DxgkDdiSetPowerState = set_power_state,
    .DxgkDdiSetStablePowerState = set_stable_power_state,
    .DxgkDdiQueryAdapterInfo = query,
    .DxgkDdiGetNodeMetadata = node_metadata,
    .DxgkDdiCalibrateGpuClock = calibrate,
    .DxgkDdiCreateProcess = create_process,
    .DxgkDdiDestroyProcess = destroy_process,
    .DxgkDdiCreateDevice = create_device,
    .DxgkDdiDestroyDevice = destroy,
    .DxgkDdiCreateContext = create_context,
    .DxgkDdiDestroyContext = destroy,
    .DxgkDdiCreateAllocation = create_allocation,
    .DxgkDdiDestroyAllocation = destroy_allocation,
    .DxgkDdiOpenAllocation = open_allocation,
    .DxgkDdiCloseAllocation = close_allocation,
    .DxgkDdiSetRootPageTable = set_root_page_table,
    .DxgkDdiBuildPagingBuffer = build_paging_buffer,
    .DxgkDdiSubmitCommandVirtual = submit,
    .DxgkDdiPreemptCommand = preempt_command,
    .DxgkDdiQueryCurrentFence = current_fence,
    .DxgkDdiQueryDependentEngineGroup = dependent_engines,
    .DxgkDdiQueryEngineStatus = engine_status,
    .DxgkDdiResetEngine = reset_engine,
    .DxgkDdiResetFromTimeout = reset_from_timeout,
    .DxgkDdiRestartFromTimeout = restart_from_timeout,
    .DxgkDdiCollectDbgInfo = collect_debug_info,
};

NTSTATUS DriverEntry(PDRIVER_OBJECT driver, PUNICODE_STRING path)
{
    return DxgkInitialize(driver, path, &table);
}
