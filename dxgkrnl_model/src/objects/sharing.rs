//! Objects behind NT handles: what one process shares and another opens.
//!
//! `D3DKMTShareObjects` gives an NT handle to a resource or a fence; duplicating that handle into another process is
//! the object manager's business ([`nt_model::Process::insert_handle`] stands for it). The object lives as long as a
//! handle to it or a device that opened it.
//!
//! Fences are opened with the access mask that they were shared with: without STANDARD_RIGHTS_READ not at all, and the
//! process's waits and signals need their own rights.
//!
//! Objects may have names, under which `D3DKMTOpenSyncObjectNtHandleFromName` and `D3DKMTOpenNtHandleFromName` make
//! further NT handles to them. A name ends with the last NT handle, though what was opened by one lives on; then the
//! name can be given again.
//!
//! Source: D3DKMTShareObjects, dwDesiredAccess; Wine's tests of D3DKMT, which run on Windows (names).
//!
//! Chosen: security descriptors are taken and not looked at, nor are access masks of resources: by name everything is
//! opened with the rights that are asked for. All names are in one folder, so that a root directory is not looked at.
//! What a GPU does to a fence's memory no right restricts.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use wddm_abi::{NTSTATUS, ntstatus};

use crate::objects::fence::monitored::FenceState;
use crate::objects::fence::native::KeptFence;
use crate::objects::open_allocation::KeptResource;
use crate::port::shared::Shared;
use crate::port::sync::{Lock, Rank};

/// What an NT handle of the graphics kernel leads to, and with which rights.
#[derive(Debug)]
pub(crate) struct SharedObject {
    pub body: Arc<Body>,
    pub access: u32,
}

/// A shared object, as long as an NT handle leads to it.
#[derive(Debug)]
pub(crate) enum Body {
    Resource(KeptResource),
    Native(KeptFence),
    Monitored(Arc<FenceState>),
}

/// A name, and whether letters count in any case.
#[derive(Debug)]
pub(crate) struct Name {
    pub text: String,
    pub any_case: bool,
}

/// The names of shared objects.
///
/// A [`Body`] leads to adapters, and these to the machine that has the names: as `Any` it is no part of the machine's
/// type, which the compiler would have to look through wherever a machine goes to another thread.
#[derive(Debug)]
pub(crate) struct Names(Lock<BTreeMap<String, Weak<dyn Any + Send + Sync>>>);

impl Default for Names {
    fn default() -> Self {
        Self::new()
    }
}

impl Names {
    /// Those of a machine.
    pub(crate) fn of(shared: &Shared) -> &Self {
        shared.extension()
    }

    pub fn new() -> Self {
        Self(Lock::new(Rank::Os, BTreeMap::new()))
    }

    /// Gives an object a name.
    ///
    /// # Errors
    ///
    /// `STATUS_OBJECT_NAME_COLLISION` where another has it. Chosen, as for other objects of NT.
    pub fn give(&self, name: &Name, body: &Arc<Body>) -> Result<(), NTSTATUS> {
        let mut names = self.0.lock();
        names.retain(|_, body| body.strong_count() != 0);
        if names.keys().any(|other| name.is(other)) {
            return Err(ntstatus::STATUS_OBJECT_NAME_COLLISION);
        }
        let body: Arc<dyn Any + Send + Sync> = body.clone();
        names.insert(name.text.clone(), Arc::downgrade(&body));
        Ok(())
    }

    /// The object of this name.
    pub fn find(&self, name: &Name) -> Option<Arc<Body>> {
        let names = self.0.lock();
        let found = names.iter().find(|(other, body)| name.is(other) && body.strong_count() != 0);
        found.and_then(|(_, body)| body.upgrade()?.downcast().ok())
    }
}

impl Name {
    fn is(&self, other: &str) -> bool {
        if self.any_case { self.text.to_lowercase() == other.to_lowercase() } else { self.text == other }
    }
}
