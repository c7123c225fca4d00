//! The rules of user-mode code.

use crate::rules;

rules! {
    /// Rules of user-mode code.
    pub list USER_RULES;

    /// Heap pointers.
    UM_HEAP = "UM-HEAP" {
        title: "HeapFree, HeapReAlloc and HeapSize are given a live block of the heap",
        source: "heapapi.h HeapFree: freeing an invalid pointer corrupts the heap; Application Verifier, Basics/Heaps",
        bugcheck: none,
        fix: "clear the pointer when you free it; look for two owners",
    }
    /// Heap overruns.
    UM_HEAP_OVERRUN = "UM-HEAP-OVERRUN" {
        title: "user-mode code writes only inside its heap blocks",
        source: "Application Verifier, Basics/Heaps",
        bugcheck: none,
        fix: "check the length that is written",
    }
    /// Handles.
    UM_HANDLE = "UM-HANDLE" {
        title: "a handle given to kernel32 is open in the calling process and of the right kind",
        source: "Application Verifier, Basics/Handles; handleapi.h CloseHandle",
        bugcheck: none,
        fix: "close each handle once, and do not use it afterwards",
    }
}
