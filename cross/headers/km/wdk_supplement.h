/* Routines newer than mingw-w64's DDK headers (its wdm.h stops around Windows 8), as the public documents declare them.
 * To add one: its declaration here, its name in ../../imports.txt. */
#ifndef CROSS_WDK_SUPPLEMENT_H
#define CROSS_WDK_SUPPLEMENT_H
typedef ULONG64 POOL_FLAGS;
NTKERNELAPI PVOID NTAPI ExAllocatePool2(POOL_FLAGS Flags, SIZE_T NumberOfBytes, ULONG Tag);
NTKERNELAPI ULONG64 NTAPI KeQueryInterruptTimePrecise(PULONG64 QpcTimeStamp);
NTKERNELAPI VOID NTAPI KeQuerySystemTimePrecise(PLARGE_INTEGER CurrentTime);
NTKERNELAPI PVOID NTAPI MmMapIoSpaceEx(PHYSICAL_ADDRESS PhysicalAddress, SIZE_T NumberOfBytes, ULONG Protect);
NTKERNELAPI NTSTATUS NTAPI MmGetCacheAttribute(PHYSICAL_ADDRESS PhysicalAddress, MEMORY_CACHING_TYPE *CacheType);
#endif
