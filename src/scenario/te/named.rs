//! What the OS calls the contexts that the driver made, and the suspensions that it asked for.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use super::super::Scene;
use crate::wrap::{copy, machine, own};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use wddm_abi::{
    DRIVER_INITIALIZATION_DATA, DXGKARG_CREATECONTEXT, DXGKARG_CREATEHWCONTEXT, DXGKARG_SUSPENDCONTEXT, HANDLE,
    NTSTATUS,
};

/// A context.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    node: u32,
    /// The OS's handle.
    pub(super) os: usize,
    /// The driver's.
    driver: usize,
    /// The last suspension that was asked for; 0: none was.
    pub(super) suspension: u64,
}

/// Contexts that were made on machines, in their order.
static MADE: Mutex<BTreeMap<usize, Vec<Made>>> = Mutex::new(BTreeMap::new());

fn made<R>(f: impl FnOnce(&mut Vec<Made>) -> R) -> R {
    f(MADE.lock().unwrap_or_else(PoisonError::into_inner).entry(machine()).or_default())
}

fn note(status: NTSTATUS, node: u32, os: HANDLE, driver: HANDLE) -> NTSTATUS {
    if status.is_success() {
        let (os, driver) = (os.expose_provenance(), driver.expose_provenance());
        made(|all| all.push(Made { node, os, driver, suspension: 0 }));
    }
    status
}

crate::decorate! {
    makes_contexts: DxgkDdiCreateContext(device: HANDLE, args: *mut DXGKARG_CREATECONTEXT) -> NTSTATUS {
        let asked = copy!(args);
        let status = own!(DxgkDdiCreateContext(device, args));
        note(status, asked.NodeOrdinal, asked.hContext, copy!(args).hContext)
    }

    makes_hw_contexts: DxgkDdiCreateHwContext(device: HANDLE, args: *mut DXGKARG_CREATEHWCONTEXT) -> NTSTATUS {
        let asked = copy!(args);
        let status = own!(DxgkDdiCreateHwContext(device, args));
        note(status, asked.NodeOrdinal, asked.hHwContext, copy!(args).hHwContext)
    }

    suspends: DxgkDdiSuspendContext(adapter: HANDLE, args: *const DXGKARG_SUSPENDCONTEXT) -> NTSTATUS {
        let asked = copy!(args);
        let driver = asked.hContext.expose_provenance();
        made(|all| {
            let of = all.iter_mut().rev().find(|one| one.driver == driver);
            of.into_iter().for_each(|one| one.suspension = asked.contextSuspendFence);
        });
        own!(DxgkDdiSuspendContext(adapter, args))
    }
}

/// Notes what the OS makes and suspends.
pub(super) fn notes(table: &mut DRIVER_INITIALIZATION_DATA) {
    makes_contexts(table);
    if table.DxgkDdiCreateHwContext.is_some() {
        makes_hw_contexts(table);
    }
    if table.DxgkDdiSuspendContext.is_some() {
        suspends(table);
    }
}

/// The contexts of a node that the OS has made so far, the oldest first.
pub(super) fn contexts(scene: &Scene, node: u32) -> Vec<Made> {
    scene.world.os.run(|| made(|all| all.iter().filter(|one| one.node == node).copied().collect()))
}

/// The OS's handle of the node's context that it has made last, on a thread that is in the driver.
pub(super) fn last_of(node: u32) -> Option<usize> {
    made(|all| all.iter().rev().find(|one| one.node == node).map(|one| one.os))
}
