//! What a doorbell keeps of its ring while it lives, connected or not, its context suspended or not.
//!
//! Source: article user-mode-work-submission, residency model of doorbell memory and ring buffer allocations.

use std::sync::Arc;

use super::Request;
use crate::objects::open_allocation::OpenAllocation;

/// A ring and its control words, which stay alive and resident until this is dropped, at PASSIVE_LEVEL.
#[derive(Debug)]
pub(super) struct Rings(Vec<Arc<OpenAllocation>>);

impl Rings {
    /// `None`: one of them is not resident, or its handle is gone.
    pub(super) fn hold(request: &Request) -> Option<Self> {
        let mut rings = Self(Vec::new());
        for open in std::iter::once(&request.ring).chain(&request.control) {
            if !open.hold_resident() {
                return None;
            }
            rings.0.push(open.clone());
        }
        Some(rings)
    }

    /// The ring, and its control words.
    pub(super) fn ring_and_control(&self) -> Option<(Arc<OpenAllocation>, Option<Arc<OpenAllocation>>)> {
        Some((self.0.first()?.clone(), self.0.get(1).cloned()))
    }

    pub(super) fn allocations(&self) -> Vec<Arc<OpenAllocation>> {
        self.0.clone()
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        self.0.iter().for_each(|ring| ring.release_resident());
    }
}
