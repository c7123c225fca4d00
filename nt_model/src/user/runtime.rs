//! State of a process's user-mode DLLs.

use parking_lot::Mutex;

/// Heap, modules and the like; filled in when a DLL is loaded.
#[derive(Debug, Default)]
pub(crate) struct Runtime {
    pub(crate) modules: Mutex<Vec<String>>,
}
