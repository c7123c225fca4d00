/* mingw-w64's wdm.h, brought nearer to the WDK's:
 * - DEVICE_OBJECT and IRP are aligned to 16 bytes there (DEVICE_OBJECT is 0x150 bytes, not 0x148). An earlier declaration
 *   carries the alignment over to the definition.
 * - IRQL routines that mingw-w64 has as inline functions must be imports, because wdk-sys's PAGED_CODE! calls
 *   ntddk::KeGetCurrentIrql. They are renamed away below and declared again at the end.
 * - It has no ARM64 part: "Unknown Architecture". For ARM it includes armddk.h, which is ours. */
#include <ntdef.h>
#ifndef CROSS_WDM_H
#define CROSS_WDM_H
struct DECLSPEC_ALIGN(MEMORY_ALLOCATION_ALIGNMENT) _DEVICE_OBJECT;
struct DECLSPEC_ALIGN(MEMORY_ALLOCATION_ALIGNMENT) _IRP;
#define KeGetCurrentIrql mingw_KeGetCurrentIrql
#define KeLowerIrql mingw_KeLowerIrql
#define KfRaiseIrql mingw_KfRaiseIrql
#define KeRaiseIrqlToDpcLevel mingw_KeRaiseIrqlToDpcLevel
#ifdef _M_ARM64
#define _M_ARM
#endif
#include "mingw/wdm.h"
#undef KeGetCurrentIrql
#undef KeLowerIrql
#undef KfRaiseIrql
#undef KeRaiseIrqlToDpcLevel
NTKERNELAPI KIRQL NTAPI KeGetCurrentIrql(VOID);
NTKERNELAPI VOID NTAPI KeLowerIrql(KIRQL NewIrql);
NTKERNELAPI KIRQL NTAPI KfRaiseIrql(KIRQL NewIrql);
NTKERNELAPI KIRQL NTAPI KeRaiseIrqlToDpcLevel(VOID);
#endif
