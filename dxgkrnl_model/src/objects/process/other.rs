//! NT handles of a process to another one: what OpenProcess makes, for a monitor.

use std::sync::Arc;

use super::{Process, ProcessInner};

/// What such a handle leads to.
#[derive(Debug)]
pub(crate) struct OtherProcess {
    process: Arc<ProcessInner>,
    queries: bool,
}

impl OtherProcess {
    /// The process that it was opened for, which may have ended.
    pub(crate) fn process(&self) -> &Arc<ProcessInner> {
        &self.process
    }

    /// Returns whether it was opened with PROCESS_QUERY_INFORMATION.
    pub(crate) fn may_query(&self) -> bool {
        self.queries
    }
}

impl Process {
    fn open(&self, process: Arc<ProcessInner>, queries: bool) -> u64 {
        self.inner.nt.insert_handle(Arc::new(OtherProcess { process, queries }))
    }

    /// OpenProcess: an NT handle of this process to `other`, with the right PROCESS_QUERY_INFORMATION or without.
    pub fn open_process(&self, other: &Self, queries: bool) -> u64 {
        self.open(other.inner.clone(), queries)
    }

    /// The other processes: number, name, and a new NT handle to each, with the right to ask.
    pub fn open_others(&self) -> Vec<(u64, String, u64)> {
        let others = ProcessInner::all_of(&self.shared).into_iter().filter(|other| !Arc::ptr_eq(other, &self.inner));
        let open = |other: Arc<ProcessInner>| (other.nt.id(), other.nt.name().to_owned(), self.open(other, true));
        others.map(open).collect()
    }
}
