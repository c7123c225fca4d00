//! Objects behind NT handles: what one process shares and another opens.
//!
//! `D3DKMTShareObjects` gives an NT handle to a resource or a fence; duplicating that handle into another process is
//! the object manager's business ([`nt_model::Process::insert_handle`] stands for it). The object lives as long as a
//! handle to it or a device that opened it.
//!
//! Fences are opened with the access mask that they were shared with: without STANDARD_RIGHTS_READ not at all, and the
//! process's waits and signals need their own rights.
//!
//! Source: D3DKMTShareObjects, dwDesiredAccess.
//!
//! Chosen: security descriptors are taken and not looked at, nor are access masks of resources. What a GPU does to a
//! fence's memory no right restricts.

use std::sync::Arc;

use crate::fence::monitored::FenceState;
use crate::fence::native::Held;
use crate::memory::allocation::KeptResource;

/// What an NT handle of the graphics kernel leads to.
#[derive(Debug)]
pub(crate) enum SharedObject {
    Resource(KeptResource),
    Native(Held, u32),
    Monitored(Arc<FenceState>, u32),
}
