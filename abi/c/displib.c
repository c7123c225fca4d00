/* DxgkInitialize: hands a driver's table to Dxgkrnl, as the WDK's displib.lib does, for drivers that are built without
   the WDK.

   It has the Dxgkrnl service loaded, opens its device, asks it for the address of its own DxgkInitialize by an internal
   device control request, and calls that.

   Source: no Microsoft document describes the request. Names and codes are those of public drivers that send or answer
   it: docs/decisions/0001-cross-build.md. */
#include "wddm_abi.h"

typedef NTSTATUS INITIALIZE(PDRIVER_OBJECT, PUNICODE_STRING, DRIVER_INITIALIZATION_DATA *);

/* CTL_CODE(FILE_DEVICE_VIDEO, function, METHOD_NEITHER, FILE_ANY_ACCESS). Dxgkrnl stores the address of its
   DxgkInitialize at the output buffer's own address. */
#define NEWER_REQUEST 0x230047 /* of Windows 8 and later: function 0x11 */
#define OLDER_REQUEST 0x23003F /* of Windows 7: function 0xF */

NTSYSAPI NTSTATUS NTAPI ZwLoadDriver(PUNICODE_STRING DriverServiceName);

/* Asks for the function. IRQL: PASSIVE_LEVEL. */
static NTSTATUS ask(PDEVICE_OBJECT device, ULONG code, INITIALIZE **function)
{
    KEVENT done;
    IO_STATUS_BLOCK result;
    KeInitializeEvent(&done, NotificationEvent, FALSE);
    PIRP irp = IoBuildDeviceIoControlRequest(code, device, NULL, 0, function, sizeof *function, TRUE, &done, &result);
    if (irp == NULL)
        return STATUS_INSUFFICIENT_RESOURCES;
    NTSTATUS status = IoCallDriver(device, irp);
    if (status == STATUS_PENDING) {
        KeWaitForSingleObject(&done, Executive, KernelMode, FALSE, NULL);
        status = result.Status;
    }
    return status;
}

/* IRQL: PASSIVE_LEVEL; called in DriverEntry with its own arguments. Table is one of the version that it states.
   Returns Dxgkrnl's status for the table, or that of the step that failed before Dxgkrnl saw it. */
NTSTATUS DxgkInitialize(PDRIVER_OBJECT DriverObject, PUNICODE_STRING RegistryPath, DRIVER_INITIALIZATION_DATA *Table)
{
    UNICODE_STRING service, name;
    PFILE_OBJECT file;
    PDEVICE_OBJECT device;
    INITIALIZE *function = NULL;
    RtlInitUnicodeString(&service, L"\\Registry\\Machine\\System\\CurrentControlSet\\Services\\DXGKrnl");
    RtlInitUnicodeString(&name, L"\\Device\\DxgKrnl");
    NTSTATUS status = ZwLoadDriver(&service);
    if (!NT_SUCCESS(status) && status != STATUS_IMAGE_ALREADY_LOADED)
        return status;
    /* Its image may be loaded before its device exists. */
    for (int looks = 0; looks < 10; looks++) {
        status = IoGetDeviceObjectPointer(&name, FILE_ALL_ACCESS, &file, &device);
        if (status != STATUS_OBJECT_NAME_NOT_FOUND)
            break;
        LARGE_INTEGER pause = { .QuadPart = -1000000 }; /* 0.1 s */
        KeDelayExecutionThread(KernelMode, FALSE, &pause);
    }
    if (!NT_SUCCESS(status))
        return status;
    status = ask(device, NEWER_REQUEST, &function);
    if (status == STATUS_INVALID_DEVICE_REQUEST)
        status = ask(device, OLDER_REQUEST, &function);
    if (NT_SUCCESS(status))
        status = function != NULL ? function(DriverObject, RegistryPath, Table) : STATUS_PROCEDURE_NOT_FOUND;
    ObDereferenceObject(file);
    return status;
}
