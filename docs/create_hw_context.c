/* The first question to a Windows 11: how are contexts for hardware queues made? It needs no GPU and no Fencepost.
   Build: cl create_hw_context.c, or clang create_hw_context.c. Run it as any user. It was never run on Windows. */
#include <windows.h>
#include <stdio.h>

int main(void) {
    LONG (WINAPI *create)(void *) =
        (LONG (WINAPI *)(void *))GetProcAddress(LoadLibraryA("gdi32.dll"), "D3DKMTCreateHwContext");
    LONG status = create ? create(NULL) : 1;
    const char *means = status == 1 ? "gdi32.dll has no such function: contexts come by D3DKMTCreateContextVirtual"
        : status == (LONG)0xC0000002
            ? "not implemented: contexts come by D3DKMTCreateContextVirtual with HwQueueSupported"
        : status == (LONG)0xC000000D ? "invalid parameter: the function exists, so the older way may work, too"
        : "something else: docs/first_boot.md has no row for it";
    printf("D3DKMTCreateHwContext(NULL) = 0x%08lX: %s\n", (unsigned long)status, means);
    return 0;
}
