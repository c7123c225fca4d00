//! NT handles of a process to another one: what OpenProcess makes, for a monitor.

use std::sync::Arc;

use super::{Process, ProcessInner};

/// What such a handle leads to.
#[derive(Debug)]
pub(crate) struct OtherProcess {
    process: Arc<ProcessInner>,
    rights: ProcessRights,
}

/// What an NT handle to a process allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessRights {
    /// PROCESS_QUERY_INFORMATION.
    pub query: bool,
    /// PROCESS_SET_INFORMATION.
    pub set: bool,
}

impl OtherProcess {
    /// The process that it was opened for, which may have ended.
    pub(crate) fn process(&self) -> &Arc<ProcessInner> {
        &self.process
    }

    /// The rights that it was opened with.
    pub(crate) fn rights(&self) -> ProcessRights {
        self.rights
    }
}

impl Process {
    fn open(&self, process: Arc<ProcessInner>, rights: ProcessRights) -> u64 {
        self.inner.nt.insert_handle(Arc::new(OtherProcess { process, rights }))
    }

    /// OpenProcess: an NT handle of this process to `other`, with these rights.
    pub fn open_process(&self, other: &Self, rights: ProcessRights) -> u64 {
        self.open(other.inner.clone(), rights)
    }

    /// The other processes: number, name, and a new NT handle to each, with the right to ask.
    pub fn open_others(&self) -> Vec<(u64, String, u64)> {
        let others = ProcessInner::all_of(&self.shared).into_iter().filter(|other| !Arc::ptr_eq(other, &self.inner));
        let rights = ProcessRights { query: true, set: false };
        let open = |other: Arc<ProcessInner>| (other.nt.id(), other.nt.name().to_owned(), self.open(other, rights));
        others.map(open).collect()
    }
}
