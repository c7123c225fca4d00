//! The portable cases over the model: what `cases` needs of a machine, and each as a conformance case.
#![expect(unsafe_code, reason = "entry points of the model are called by name")]

use super::stage::patience;
use super::te::in_time::in_time;
use super::{Played, Raw, Scene, Setup, Stage};
use crate::client::Adapter;
use crate::world::User;
use anyhow::{Context, Result};
use dxgkrnl_model::process::End;
use dxgkrnl_model::thunks::{address, is_exported};
use nt_model::{Event, Machine};
use portable_cases::apart::Act;
use portable_cases::jobs::{Portable, TooBusy, find};
use portable_cases::submission;
use portable_cases::{Process, System};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use wddm_abi::ntstatus::STATUS_PROCEDURE_NOT_FOUND;
use wddm_abi::{NTSTATUS, winfn};

/// A scene, as a system.
struct World<'a> {
    scene: &'a Scene,
    needs: Option<(&'static str, u32)>,
    delay: Duration,
}

/// A process of it.
struct Inhabitant {
    adapter: Adapter,
    raw: Raw,
    _user: User,
    events: Mutex<BTreeMap<u64, Arc<Event>>>,
}

impl World<'_> {
    fn inhabitant(&self, name: &str, trusted: bool) -> Result<Inhabitant> {
        let user = self.scene.process(name)?;
        if trusted {
            user.process.trust();
        }
        let raw = Raw::open(&user.process, self.scene.adapter().luid())?;
        Ok(Inhabitant { adapter: user.open()?, raw, _user: user, events: Mutex::default() })
    }
}

impl System for World<'_> {
    fn process(&self, name: &str, trusted: bool) -> Result<Box<dyn Process>> {
        Ok(Box::new(self.inhabitant(name, trusted)?))
    }

    fn apart(&self, act: &'static Act, numbers: &[u64]) -> Result<()> {
        let guest = self.inhabitant("guest", false)?;
        (act.play)(&guest, numbers)?;
        let Inhabitant { adapter, raw, _user, .. } = guest;
        // What is left open keeps its adapter open in the user-mode driver.
        drop(adapter);
        raw.process.finish(End::Normal);
        Ok(())
    }

    fn tdr_delay(&self) -> Duration {
        self.delay
    }

    fn patience(&self) -> Duration {
        patience()
    }

    fn fence_waits(&self) -> Option<u64> {
        let thunks = self.scene.world.os.counts().thunks;
        Some(thunks.get("D3DKMTWaitForSynchronizationObjectFromCpu").copied().unwrap_or(0))
    }

    fn setting(&self, name: &str) -> Option<u32> {
        self.needs.and_then(|(known, value)| (name == known).then_some(value))
    }
}

impl Process for Inhabitant {
    fn adapter(&self) -> &Adapter {
        &self.adapter
    }

    unsafe fn thunk(&self, name: &'static str, record: *mut c_void) -> NTSTATUS {
        let _inside = self.raw.process.enter();
        let at = std::ptr::with_exposed_provenance::<c_void>(address(name));
        // SAFETY: null, or the address of the entry point with this name, which takes its record's address.
        let thunk = unsafe { std::mem::transmute::<*const c_void, Option<winfn!(fn(*mut c_void) -> NTSTATUS)>>(at) };
        // SAFETY: the caller's promise.
        thunk.map_or(STATUS_PROCEDURE_NOT_FOUND, |thunk| unsafe { thunk(record) })
    }

    fn load(&self, address: usize) -> Result<u64> {
        Ok(self.raw.load(address)?)
    }

    fn store(&self, address: usize, value: u64) -> Result<()> {
        Ok(self.raw.store(address, value)?)
    }

    fn exports(&self, name: &str) -> bool {
        let _inside = self.raw.process.enter();
        Machine::with_current(|machine| machine.is_some_and(|machine| is_exported(machine, name)))
    }

    fn event(&self) -> Result<u64> {
        let (event, handle) = self.raw.event();
        let handle = handle.expose_provenance() as u64;
        self.events.lock().unwrap_or_else(PoisonError::into_inner).insert(handle, event);
        Ok(handle)
    }

    fn wait_event(&self, event: u64, limit: Duration) -> bool {
        let found = self.events.lock().unwrap_or_else(PoisonError::into_inner).get(&event).cloned();
        found.is_some_and(|event| self.raw.wait_event(&event, limit))
    }

    fn close(&self, event: u64) {
        drop(self.events.lock().unwrap_or_else(PoisonError::into_inner).remove(&event));
        // CAST: a handle.
        self.raw.close(std::ptr::with_exposed_provenance_mut(event as usize));
    }
}

/// Plays the portable part of a job, on a machine with what it needs.
fn job(stage: &Stage, id: &str) -> Played {
    let job = find(id).context("a job")?;
    let Portable { needs, resets, play, .. } = job.portable.map_err(anyhow::Error::msg)?;
    let setup = || Setup::default().quick_tdr().resets(*resets).setting(needs.0, needs.1);
    in_time(stage, setup, |scene, watch| {
        let played = play(&World { scene, needs: Some(*needs), delay: watch.delay });
        watch.late.set(played.as_ref().is_err_and(|error| error.is::<TooBusy>()));
        played
    })
}

/// Plays the portable part of a case in a scene that has what it needs.
pub(super) fn part(scene: &Scene, id: &str) -> Played {
    let case = submission::find(id).context("a portable part")?;
    // `Setup::quick_tdr`.
    (case.play)(&World { scene, needs: case.needs, delay: Duration::from_millis(200) })
}

/// What the portable part of a case needs of the machine.
pub(super) fn setup(id: &str) -> Setup {
    match submission::find(id).and_then(|case| case.needs) {
        Some((name, value)) => Setup::default().setting(name, value),
        None => Setup::default(),
    }
}

/// Plays the portable part of a case, on a machine with what it needs; `behind`: what the driver's side must show then.
pub(super) fn case(stage: &Stage, id: &str, behind: impl FnOnce(&Scene) -> Played) -> Played {
    stage.play(setup(id), |scene| {
        part(scene, id)?;
        behind(scene)
    })
}

/// Two devices.
pub(super) fn two_devices(stage: &Stage) -> Played {
    job(stage, "two-device")
}

/// A long buffer that comes off.
pub(super) fn long(stage: &Stage) -> Played {
    job(stage, "long-no-tdr")
}

/// A long buffer that does not.
pub(super) fn too_long(stage: &Stage) -> Played {
    job(stage, "long-tdr")
}

/// Many buffers.
pub(super) fn many(stage: &Stage) -> Played {
    job(stage, "large-payload")
}

/// Resets that are asked for.
pub(super) fn forced(stage: &Stage) -> Played {
    job(stage, "preemption")
}

/// Each engine by itself.
pub(super) fn claim(stage: &Stage) -> Played {
    job(stage, "claim")
}

/// Packets that are taken off.
pub(super) fn granularity(stage: &Stage) -> Played {
    job(stage, "granularity")
}

/// Many resets that are asked for.
pub(super) fn storm(stage: &Stage) -> Played {
    job(stage, "storm")
}

#[cfg(test)]
mod tests {
    use crate::scenario::{all, lowest};
    use portable_cases::submission::CASES;

    #[test]
    fn each_portable_case_is_a_conformance_case() {
        for case in CASES {
            let here: Vec<_> = all().filter(|here| here.id == case.id).collect();
            let [here] = here[..] else { panic!("{} is no case", case.id) };
            assert_eq!((here.title, here.source), (case.title, case.source), "{}", case.id);
            assert_eq!(lowest(case.id).0, case.rung, "{}", case.id);
        }
    }
}
