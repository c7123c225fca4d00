/* DxgkInitialize and DxgkInitializeDisplayOnlyDriver: hand a driver's table to Dxgkrnl, as the WDK's displib.lib does,
   for drivers that are built without the WDK.

   They have the Dxgkrnl service loaded, open its device, ask it for the address of its own function of that name by an
   internal device control request, and call that.

   Source: no Microsoft document describes the request. Names and codes are those of public drivers that send or answer
   it: docs/decisions/0001-cross-build.md. */
#include "wddm_abi.h"

/* The table is a DRIVER_INITIALIZATION_DATA or a KMDDOD_INITIALIZATION_DATA. */
typedef NTSTATUS INITIALIZE(PDRIVER_OBJECT, PUNICODE_STRING, void *);

/* CTL_CODE(FILE_DEVICE_VIDEO, function, METHOD_NEITHER, FILE_ANY_ACCESS). Dxgkrnl stores the address of its
   function at the output buffer's own address. */
#define NEWER_REQUEST 0x230047 /* of Windows 8 and later: function 0x11 */
#define OLDER_REQUEST 0x23003F /* of Windows 7: function 0xF */
#define DISPLAY_ONLY_REQUEST 0x230043 /* of Windows 8 and later: function 0x10 */

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

/* Hands over a table by the function that the first request asks for or, where Dxgkrnl does not know that request and
   another is given, the second. Returns Dxgkrnl's status for the table, or that of the step that failed before Dxgkrnl
   saw it. IRQL: PASSIVE_LEVEL. */
static NTSTATUS hand_over(PDRIVER_OBJECT driver, PUNICODE_STRING path, void *table, ULONG first, ULONG second)
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
    status = ask(device, first, &function);
    if (status == STATUS_INVALID_DEVICE_REQUEST && second != 0)
        status = ask(device, second, &function);
    if (NT_SUCCESS(status))
        status = function != NULL ? function(driver, path, table) : STATUS_PROCEDURE_NOT_FOUND;
    ObDereferenceObject(file);
    return status;
}

/* IRQL: PASSIVE_LEVEL; called in DriverEntry with its own arguments. Table is one of the version that it states. */
NTSTATUS DxgkInitialize(PDRIVER_OBJECT DriverObject, PUNICODE_STRING RegistryPath, DRIVER_INITIALIZATION_DATA *Table)
{
    return hand_over(DriverObject, RegistryPath, Table, NEWER_REQUEST, OLDER_REQUEST);
}

/* The same for a display-only driver. */
NTSTATUS DxgkInitializeDisplayOnlyDriver(PDRIVER_OBJECT DriverObject, PUNICODE_STRING RegistryPath,
                                         KMDDOD_INITIALIZATION_DATA *Table)
{
    return hand_over(DriverObject, RegistryPath, Table, DISPLAY_ONLY_REQUEST, 0);
}
