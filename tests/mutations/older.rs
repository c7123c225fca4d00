//! A user-mode driver of an older kit on the 28000 line, as an image: `fencepost_umd.dll`, which does not find that
//! line's exports, with records of 26100 that end at a page behind which nothing is. It gets STATUS_ACCESS_VIOLATION,
//! and the run names the function. On 26100 the same works.
//!
//! What makes it older stands between it and gdi32: functions that move its records, and a name that leads to nothing.
#![expect(unsafe_code, reason = "a function of gdi32 moves its caller's record")]

use dxgkrnl_model::personality::Build;
use dxgkrnl_model::thunks::address;
use fencepost::client::Device;
use fencepost::scenario::{Played, Scene, Setup, Stage, same};
use fencepost::world::{Form, Images};
use libtest_mimic::{Failed, Trial};
use nt_model::{CodeAddress, Machine, PAGE_SIZE};
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use umd_core::ffi::types::{FP_KIND_SYSTEM, FP_MODE_USER};
use wddm_abi::ntstatus::{
    STATUS_ACCESS_VIOLATION, STATUS_CONNECTION_ABORTED, STATUS_NO_MEMORY, STATUS_PROCEDURE_NOT_FOUND, STATUS_SUCCESS,
};
use wddm_abi::{D3DKMT_CONNECT_DOORBELL, D3DKMT_NOTIFY_WORK_SUBMISSION, NTSTATUS, win_extern, winfn};

/// What the user-mode driver looks for in gdi32 to know the line.
const NEWER: &str = "D3DKMTCreateHwQueueForUserModeSubmission";
/// What the functions have returned beside success.
static FAILED: Mutex<Vec<NTSTATUS>> = Mutex::new(Vec::new());

/// Long enough for a job.
const PATIENCE: Duration = Duration::from_secs(20);

win_extern! {
    fn connect_tight(record: *mut c_void) -> NTSTATUS {
        tight("D3DKMTConnectDoorbell", record, size_of::<D3DKMT_CONNECT_DOORBELL>())
    }

    fn notify_tight(record: *mut c_void) -> NTSTATUS {
        tight("D3DKMTNotifyWorkSubmission", record, size_of::<D3DKMT_NOTIFY_WORK_SUBMISSION>())
    }
}

/// Calls the function `name` with a copy of `bytes` of the caller's record that end at a page's end.
fn tight(name: &str, record: *mut c_void, bytes: usize) -> NTSTATUS {
    let Some(edge) = edge() else { return STATUS_NO_MEMORY };
    let copy = std::ptr::with_exposed_provenance_mut::<c_void>(edge - bytes);
    // SAFETY: the caller's record has so many bytes at least, and the copy a page of the process to itself.
    unsafe { copy.cast::<u8>().copy_from_nonoverlapping(record.cast(), bytes) };
    let at = std::ptr::with_exposed_provenance::<c_void>(address(name));
    // SAFETY: null, or the address of the model's function with this name, which takes its record's address.
    let thunk = unsafe { std::mem::transmute::<*const c_void, Option<winfn!(fn(*mut c_void) -> NTSTATUS)>>(at) };
    // SAFETY: the model's function guards what it takes of its record: this one may be too short.
    let status = thunk.map_or(STATUS_PROCEDURE_NOT_FOUND, |thunk| unsafe { thunk(copy) });
    if !status.is_success() {
        FAILED.lock().unwrap_or_else(PoisonError::into_inner).push(status);
    }
    status
}

/// The end of a page of the process that the calling thread is in, behind which it has nothing, now and later.
fn edge() -> Option<usize> {
    Machine::with_current(|machine| {
        let machine = machine?;
        let process = machine.current_process();
        let mut pages = BTreeSet::new();
        for _ in 0..256 {
            let page = machine.allocate_user(&process, 1).ok()?;
            pages.insert(page);
            let pair = [page, page.wrapping_sub(PAGE_SIZE)];
            if let Some(first) = pair.into_iter().find(|at| pages.contains(at) && pages.contains(&(at + PAGE_SIZE))) {
                // What a process gives up stays its own, and is not mapped.
                machine.free_user(&process, first + PAGE_SIZE).ok()?;
                return Some(first + PAGE_SIZE);
            }
        }
        None
    })
}

/// A job by a doorbell: what its submission came to, and what it stored.
fn job(scene: &Scene) -> anyhow::Result<(NTSTATUS, u64)> {
    let kernel = scene.world.os.kernel();
    for (name, function) in [
        (NEWER, std::ptr::null()),
        ("D3DKMTConnectDoorbell", connect_tight as *const ()),
        ("D3DKMTNotifyWorkSubmission", notify_tight as *const ()),
    ] {
        kernel.register_import("gdi32.dll", name, CodeAddress(function));
    }
    let user = scene.process("older")?;
    let device: Device = user.open()?.device()?;
    let (queue, memory) = (device.queue(0, 64 << 10, 0, 0)?, device.allocate(FP_KIND_SYSTEM, 4096, 0)?);
    same("the mode of the queue", queue.info()?.mode, FP_MODE_USER)?;
    let target = memory.gpu_va()?;
    let status = match queue.run(|list| list.store(target, 77)) {
        Ok(progress) => {
            queue.wait(progress, Some(PATIENCE))?;
            STATUS_SUCCESS
        }
        Err(refused) => refused.status,
    };
    Ok((status, memory.read_u64(0)?))
}

fn played(build: Build, wanted: (NTSTATUS, u64)) -> Result<Played, Failed> {
    let images = Images::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("out"))?;
    let stage = Stage::new(Form::Image(Arc::new(images)), 1);
    let setup = Setup::default().setting("ConnectNotify", 1).windows(|windows| windows.build = build);
    Ok(stage.play(setup, |scene| same("what the job came to", job(scene)?, wanted)))
}

/// To the user-mode driver a connection that fails is a lost queue, whatever the status is.
fn noticed() -> Result<(), Failed> {
    let Err(why) = played(Build::W28000, (STATUS_CONNECTION_ABORTED, 0))? else { return Err("the run passed".into()) };
    let text = format!("{why:#}");
    println!("{text}");
    let failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if failed.first() != Some(&STATUS_ACCESS_VIOLATION) {
        return Err(format!("it got {failed:?}").into());
    }
    let is_named = text.starts_with("faults of user mode") && text.contains("D3DKMTConnectDoorbell");
    if is_named { Ok(()) } else { Err(text.into()) }
}

fn works_on_26100() -> Result<(), Failed> {
    Ok(played(Build::W26100Update, (STATUS_SUCCESS, 77))??)
}

/// Both.
pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("records of 26100 at a page's end, by an image on the 28000 line, are noticed", noticed),
        Trial::test("records of 26100 at a page's end, by an image on 26100, are right", works_on_26100),
    ]
}
