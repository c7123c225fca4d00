//! Objects behind NT handles: what one process shares and another opens.
//!
//! `D3DKMTShareObjects` gives an NT handle to a resource or a fence; duplicating that handle into another process is the
//! object manager's business ([`nt_model::Process::insert_handle`] stands for it). The object lives as long as a handle to
//! it or a device that opened it.
//!
//! Chosen: security descriptors and access masks are taken and not looked at.

use std::sync::Arc;

use crate::fence::monitored::FenceState;
use crate::fence::native::NativeFence;
use crate::memory::allocation::Resource;

/// What an NT handle of the graphics kernel leads to.
#[derive(Clone, Debug)]
pub(crate) enum SharedObject {
    Resource(Arc<Resource>),
    Native(Arc<NativeFence>),
    Monitored(Arc<FenceState>),
}
