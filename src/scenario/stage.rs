//! A machine per case, and the audit at its end.

use super::seen::Seen;
use super::setup::Setup;
use super::{Played, Raw, readings};
use crate::client::Refused;
use crate::dump::OfCases;
use crate::setting::{Assignment, class, is_of_service, registry_value};
use crate::world::{Form, User, World};
use anyhow::{Context, Result, anyhow, bail, ensure};
use dxgkrnl_model::adapter::{Adapter, DdiCall, Recovery};
use dxgkrnl_model::personality::family::Reading;
use dxgkrnl_model::personality::{Departure, Windows};
use dxgkrnl_model::thunks::Thunks;
use nt_model::registry::RegistryValue;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use wddm_abi::{DXGK_SUBMITCOMMANDFLAGS, NTSTATUS, ntstatus};

/// Long enough for anything that must happen on the slowest machine; nothing waits that long when all is well.
pub const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

/// Events, and calls of the first adapter's driver, that the text of a failure ends with, at most.
const LAST: usize = 12;

/// Seconds of [`patience`].
static SECONDS: AtomicU64 = AtomicU64::new(20);

/// Makes the cases of this process wait at most `seconds` where they look for what must happen ([`Scene::until`],
/// events, calls on other threads), for tests that play a driver known to be wrong. A wait that a case gives
/// `PATIENCE` itself keeps it.
pub fn wait_at_most(seconds: u64) {
    SECONDS.store(seconds, Ordering::Relaxed);
}

/// How long a case looks for what must happen: as long as [`PATIENCE`], or what [`wait_at_most`] has set.
pub fn patience() -> Duration {
    Duration::from_secs(SECONDS.load(Ordering::Relaxed))
}

/// How much is played of what takes long.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// A fifth of many rounds.
    Part,
    /// Many rounds; of what takes longer than the suite has, a part.
    Usual,
    /// All.
    Whole,
}

/// What cases are played on.
#[derive(Clone)]
pub struct Stage {
    form: Form,
    seed: u64,
    settings: Vec<Assignment>,
    windows: Windows,
    /// Names of readings of `windows` that are left out, since the case cannot be played under them.
    without: Vec<&'static str>,
    /// What the model does otherwise than the documents say.
    departure: Option<Departure>,
    extent: Extent,
    /// Where dumps of cases go.
    dumps: Option<Arc<OfCases>>,
    /// The recoveries of the machines that were played, those of each behind those of the one before.
    recoveries: Arc<Mutex<Vec<Recovery>>>,
    /// The rules that were reached on them.
    reached: Arc<Mutex<BTreeSet<&'static str>>>,
    /// The numbers that the case has noted.
    numbers: Arc<Mutex<BTreeMap<&'static str, u64>>>,
    /// A choice of Windows that every machine makes, or none does, whatever the cases set.
    forced: Option<(&'static Reading, bool)>,
    /// What machines were seen to do, where it is kept.
    record: Option<Arc<Mutex<Vec<Seen>>>>,
}

/// The setting that makes an endless command buffer a hang, or none: without a case's own value its title says what is
/// not so.
const PREEMPTS: &str = "PreemptInBuffers";

impl Stage {
    /// A stage for a form of the driver. `seed` feeds the cases that draw random numbers.
    pub fn new(form: Form, seed: u64) -> Self {
        let (settings, without) = (Vec::new(), Vec::new());
        let windows = Windows::Default;
        Self {
            form,
            seed,
            settings,
            windows,
            without,
            departure: None,
            extent: Extent::Usual,
            dumps: None,
            recoveries: Arc::default(),
            reached: Arc::default(),
            numbers: Arc::default(),
            forced: None,
            record: None,
        }
    }

    /// A stage of whose cases dumps are kept.
    #[must_use]
    pub fn with_dumps(mut self, dumps: &Arc<OfCases>) -> Self {
        self.dumps = Some(dumps.clone());
        self
    }

    /// A stage that keeps what each of its machines was seen to do, one behind the other.
    #[must_use]
    pub fn with_record(mut self, record: &Arc<Mutex<Vec<Seen>>>) -> Self {
        self.record = Some(record.clone());
        self
    }

    /// A stage on which every machine makes the choice of a reading, or the default's, whatever the cases set: a case
    /// that is about the choice may fail.
    #[must_use]
    pub fn forced(mut self, reading: &'static Reading, is_made: bool) -> Self {
        self.forced = Some((reading, is_made));
        self
    }

    fn keep(&self, seen: Option<Seen>) {
        if let (Some(record), Some(seen)) = (&self.record, seen) {
            record.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
        }
    }

    /// Where dumps of cases go, if they are kept.
    pub(super) fn dumps(&self) -> Option<&OfCases> {
        self.dumps.as_deref()
    }

    /// A stage on which cases play all of what they are about, where that takes longer than the suite has.
    #[must_use]
    pub fn whole(mut self) -> Self {
        self.extent = Extent::Whole;
        self
    }

    /// Returns whether it is such a stage.
    pub fn is_whole(&self) -> bool {
        self.extent == Extent::Whole
    }

    /// A stage beside others: a fifth of many rounds will do ([`Self::rounds`]).
    #[must_use]
    pub fn in_part(mut self) -> Self {
        self.extent = Extent::Part;
        self
    }

    /// How many of a case's `whole` rounds are played here: all of them, or a fifth.
    pub fn rounds(&self, whole: u64) -> u64 {
        if self.extent == Extent::Part { whole.div_ceil(5) } else { whole }
    }

    /// The form of the driver.
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// A stage on which every adapter has a value under its registry key, whatever the cases set. A case that is about
    /// engines which come off command buffers, or do not, keeps the value of `PreemptInBuffers` that makes them so.
    #[must_use]
    pub fn with_setting(self, name: &str, value: u32) -> Self {
        self.with_settings(&[(name.to_owned(), value.into())])
    }

    /// As [`with_setting`](Self::with_setting), for several values, of up to 64 bits each. Of one name given twice, the
    /// last counts.
    #[must_use]
    pub fn with_settings(mut self, settings: &[Assignment]) -> Self {
        for (name, value) in settings {
            self.settings.retain(|(known, _)| known != name);
            self.settings.push((name.clone(), *value));
        }
        self
    }

    /// A stage on another member of the family of Windows. What a case has set otherwise than the default stays as the
    /// case set it; a case that needs the default itself is listed in `readings.rs`.
    #[must_use]
    pub fn with_windows(mut self, windows: Windows) -> Self {
        self.windows = windows;
        self
    }

    /// A stage whose Windows departs from the documents in this way: for tests that show that a case notices.
    #[must_use]
    pub fn with_departure(mut self, how: Departure) -> Self {
        self.departure = Some(how);
        self
    }

    /// The stage for one case: without the readings that it cannot be played under, and with recoveries and rules of
    /// its own.
    #[must_use]
    pub fn for_case(&self, id: &str) -> Self {
        let without = readings::not_under(id);
        let (recoveries, reached, numbers) = (Arc::default(), Arc::default(), Arc::default());
        Self { without, recoveries, reached, numbers, ..self.clone() }
    }

    /// Has the case's result carry a number, which `scenario` shows: of one name the last counts.
    pub fn note(&self, name: &'static str, value: u64) {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).insert(name, value);
    }

    /// The numbers that were noted.
    pub(super) fn numbers(&self) -> BTreeMap<&'static str, u64> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The recoveries of the machines that were shut down, in order.
    pub(super) fn recoveries(&self) -> Vec<Recovery> {
        self.recoveries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The names of the rules that were reached on machines that were shut down.
    pub(super) fn reached(&self) -> BTreeSet<&'static str> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes the rules that `world` has reached.
    fn note_reached(&self, world: &World) {
        let rules = world.os.report().rules;
        let reached = rules.iter().filter(|rule| rule.evaluations != 0).map(|rule| rule.rule.name);
        self.reached.lock().unwrap_or_else(PoisonError::into_inner).extend(reached);
    }

    /// Returns whether nothing is left of the stage's Windows for this case: it could only be played on the default.
    pub fn is_pointless(&self, id: &str) -> bool {
        self.why_pointless(id).is_some()
    }

    /// Why nothing is left of the stage's Windows for this case, reading by reading; `None` if something is, or if the
    /// stage's Windows is the default.
    pub fn why_pointless(&self, id: &str) -> Option<String> {
        let readings = self.windows.readings();
        let why: Option<Vec<_>> = readings
            .iter()
            .map(|reading| readings::why_not(id, reading.name).map(|why| format!("not under {}: {why}", reading.name)))
            .collect();
        why.filter(|why| !why.is_empty()).map(|why| why.join("; "))
    }

    /// Returns whether this setting was given for all cases: then that is its value, whatever a case asks for.
    pub fn sets(&self, name: &str) -> bool {
        self.settings.iter().any(|(given, _)| given == name)
    }

    fn set(&self, mut setup: Setup) -> Setup {
        let tests = setup.personality.test_signing;
        let without = [&self.without[..], &setup.chosen].concat();
        self.windows.apply_without(&mut setup.personality, &without);
        // A case that breaks the GPU on purpose is of a machine for tests, whatever the stage's Windows says.
        if setup.adapter.registry.keys().any(|name| name.starts_with("Fault")) {
            setup.personality.test_signing = tests;
        }
        if let Some((reading, is_made)) = self.forced {
            reading.choose(&mut setup.personality, is_made);
        }
        setup.personality.faults.departure = self.departure;
        for (name, value) in self.settings.iter().filter(|(name, _)| is_of_service(name)) {
            // A case that is about such a value keeps its own.
            if !setup.service.iter().any(|(own, _)| own == name) {
                setup.service.push((name.clone(), *value));
            }
        }
        let class = class(&setup.service);
        for adapter in std::iter::once(&mut setup.adapter).chain(&mut setup.others) {
            adapter.class = adapter.class.or(Some(class));
            let settings = self.settings.iter().filter(|(name, _)| !is_of_service(name));
            let settings = settings.map(|(name, value)| (name.clone(), registry_value(*value)));
            // A case that sets a lower rung than the stage's keeps it; rung 3 holds no case down.
            let own = adapter.registry.get("MaxRung").cloned();
            let own_preemption = adapter.registry.get(PREEMPTS).cloned();
            adapter.registry.extend(settings);
            adapter.registry.extend(own_preemption.map(|own| (PREEMPTS.to_owned(), own)));
            let lower = |own: &RegistryValue| (0..self.rung()).any(|rung| *own == RegistryValue::dword(rung));
            let kept = own.filter(|own| self.rung() == 3 || lower(own));
            adapter.registry.extend(kept.map(|own| ("MaxRung".to_owned(), own)));
        }
        setup
    }

    /// A value that every adapter has whatever the cases set, but for those of [`with_setting`](Self::with_setting).
    pub fn setting(&self, name: &str) -> Option<u32> {
        self.settings.iter().find(|(known, _)| known == name).and_then(|(_, value)| u32::try_from(*value).ok())
    }

    /// The rung that the stage holds every adapter down to, 0 to 3; 3 holds none down.
    pub fn rung(&self) -> u32 {
        self.setting("MaxRung").unwrap_or(3).min(3)
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether the driver is linked in, as opposed to an image.
    pub fn is_native(&self) -> bool {
        self.form.mode() == "native"
    }

    /// Boots a machine as `setup` says, plays, shuts down, and audits: no broken rule, nothing left behind, no engine
    /// whose reset the case did not announce.
    ///
    /// # Errors
    /// What `body` returns, or what the audit found.
    pub fn play(&self, setup: Setup, body: impl FnOnce(&Scene) -> Played) -> Played {
        let setup = self.set(setup);
        let scene = Scene::open(&self.form, &setup)?;
        let played = body(&scene);
        let mut seen = self.record.as_ref().map(|_| Seen::of(&setup.personality, &scene));
        let adapters = scene.adapters.clone();
        let closed = scene.close(&setup, played, |world| self.note_reached(world));
        seen.iter_mut().for_each(|seen| seen.end(&adapters));
        self.keep(seen);
        let recoveries = adapters.iter().flat_map(|adapter| adapter.recoveries());
        self.recoveries.lock().unwrap_or_else(PoisonError::into_inner).extend(recoveries);
        closed
    }

    /// Boots a machine whose adapter must not start, and returns why it did not. Nothing may be left behind.
    ///
    /// # Errors
    /// When it starts, or breaks a rule that is not expected.
    pub fn refuses_to_start(&self, setup: Setup) -> Result<String> {
        let setup = self.set(setup);
        let world = World::boot_with(&self.form, setup.personality.clone(), &setup.service)?;
        let started = world.adapter(setup.configuration());
        self.keep(started.as_ref().err().map(|error| Seen::refused(&setup.personality, &format!("{error:#}"))));
        let why = match started {
            Ok(_) => Err(anyhow::anyhow!("the adapter started")),
            Err(error) => Ok(format!("{error:#}")),
        };
        world.os.shut_down();
        self.note_reached(&world);
        audit(&world, &setup)?;
        why
    }
}

/// A machine with started adapters.
pub struct Scene {
    /// The machine.
    pub world: World,
    /// The adapters, in order.
    pub adapters: Vec<Arc<Adapter>>,
    /// gdi32.
    pub thunks: Thunks,
}

impl Scene {
    fn open(form: &Form, setup: &Setup) -> Result<Self> {
        let world = World::boot_decorated(form, setup.personality.clone(), &setup.service, setup.decorate)?;
        let mut adapters = Vec::new();
        for index in 0..setup.adapters {
            let other = setup.others.clone().filter(|_| index != 0);
            adapters.push(world.adapter(other.unwrap_or_else(|| setup.configuration()))?);
        }
        Ok(Self { world, adapters, thunks: Thunks::new() })
    }

    /// Shuts the machine down; `end` looks at it then.
    fn close(self, setup: &Setup, played: Played, end: impl FnOnce(&World)) -> Played {
        let report = self.world.os.report();
        let resets = report.counts.resets;
        let calls = self.adapters.first().map(|adapter| adapter.ddi_journal()).unwrap_or_default();
        let held = setup.personality.gates.callback.as_ref().and_then(|(name, gate)| {
            let counts = self.adapters.iter().map(|adapter| adapter.callback_calls().get(name).copied().unwrap_or(0));
            gate.why_held_nothing(name, counts.sum())
        });
        let played = played.and_then(|()| held.map_or(Ok(()), |why| Err(anyhow!(why))));
        drop(self.adapters);
        self.world.os.shut_down();
        let audited = audit(&self.world, setup);
        end(&self.world);
        let outcome = match (played, audited) {
            (Err(first), Err(second)) => Err(anyhow!("{first:#}\n    at the end: {second:#}")),
            (Err(only), Ok(())) | (Ok(()), Err(only)) => Err(only),
            (Ok(()), Ok(())) if setup.resets.contains(&resets) => Ok(()),
            (Ok(()), Ok(())) if setup.resets.start() == setup.resets.end() => {
                same("resets", resets, *setup.resets.start())
            }
            (Ok(()), Ok(())) => Err(anyhow!("resets: {resets}, not within {:?}", setup.resets)),
        };
        // A case that is not played has nothing to explain.
        let outcome = match outcome {
            Err(error) if error.is::<Skipped>() => return Err(error),
            outcome => outcome,
        };
        // A reset that nothing asked for is often the reason, and so is what the driver was told last.
        let events: Vec<_> = report.events.iter().map(|event| event.text.clone()).collect();
        let calls: Vec<_> = calls.iter().filter(|call| is_telling(call)).map(ToString::to_string).collect();
        outcome.map_err(|error| anyhow!("{error:#}{}{}", last("events", &events), last("calls", &calls)))
    }

    /// The first adapter.
    pub fn adapter(&self) -> &Arc<Adapter> {
        &self.adapters[0]
    }

    /// A process with the user-mode driver in it.
    ///
    /// # Errors
    /// When the library does not load.
    pub fn process(&self, name: &str) -> Result<User> {
        self.world.process(name)
    }

    /// Direct calls of a new process, which does not load the user-mode driver, on the first adapter.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn raw(&self, name: &str) -> Result<Raw> {
        Raw::open(&Arc::new(self.world.os.create_process(name)), self.adapter().luid())
    }

    /// How often a rule was looked at so far; 0 for one that there is not.
    pub fn evaluations(&self, rule: &str) -> u64 {
        let rules = self.world.os.report().rules;
        rules.iter().find(|known| known.rule.name == rule).map_or(0, |known| known.evaluations)
    }

    /// What calls of a device that is lost are refused with, by this Windows' reading.
    pub fn status_of_lost(&self) -> NTSTATUS {
        match self.adapter().personality().user_mode.gpu_exception {
            true => ntstatus::STATUS_GRAPHICS_GPU_EXCEPTION_ON_DEVICE,
            false => ntstatus::STATUS_DEVICE_REMOVED,
        }
    }

    /// How often the first adapter's driver was called at `ddi`.
    pub fn calls(&self, ddi: &str) -> u64 {
        self.adapter().ddi_calls().get(ddi).copied().unwrap_or(0)
    }

    /// How often the first adapter's driver called `callback`.
    pub fn callbacks(&self, callback: &str) -> u64 {
        self.adapter().callback_calls().get(callback).copied().unwrap_or(0)
    }

    /// The calls at those of `names` that the first adapter's driver has had, in their order.
    pub fn journal(&self, names: &[&str]) -> Vec<&'static str> {
        self.journal_with_arguments(names).iter().map(|call| call.name).collect()
    }

    /// The same, with handles, places, fences and flags of each call: [`DdiCall::get`] has a member by its name.
    pub fn journal_with_arguments(&self, names: &[&str]) -> Vec<DdiCall> {
        self.adapter().ddi_journal().into_iter().filter(|call| names.contains(&call.name)).collect()
    }

    /// Interrupts that the first adapter has raised.
    pub fn interrupts(&self) -> u64 {
        self.world.os.report().adapters.first().map_or(0, |adapter| adapter.interrupts)
    }

    /// Waits until `ready`, looking every millisecond.
    ///
    /// # Errors
    /// When it does not become so in time; `what` names it.
    pub fn until(&self, what: &str, ready: impl FnMut() -> Result<bool>) -> Played {
        until(what, ready, || std::thread::park_timeout(Duration::from_millis(1)))
    }

    /// As [`until`](Self::until), for what comes step by step: `place` says how far it is, and `None` at its end. Each
    /// step may take as long as a whole [`until`](Self::until).
    ///
    /// # Errors
    /// As [`until`](Self::until).
    pub fn until_end(&self, what: &str, mut place: impl FnMut() -> Result<Option<u64>>) -> Played {
        let mut now = place()?;
        while now.is_some() {
            let before = now;
            self.until(what, || {
                now = place()?;
                Ok(now != before)
            })?;
        }
        Ok(())
    }

    /// As [`until`](Self::until), for what happens at once, and many times: without a pause between looks.
    ///
    /// # Errors
    /// As [`until`](Self::until).
    pub fn until_now(&self, what: &str, ready: impl FnMut() -> Result<bool>) -> Played {
        until(what, ready, std::thread::yield_now)
    }
}

fn until(what: &str, mut ready: impl FnMut() -> Result<bool>, pause: impl Fn()) -> Played {
    let end = Instant::now() + patience();
    while !ready()? {
        if Instant::now() > end {
            bail!("{what} did not happen");
        }
        pause();
    }
    Ok(())
}

/// Returns whether a call says something of what the case was about, and not of the paging and the destructions that
/// come behind it.
fn is_telling(call: &DdiCall) -> bool {
    let flags =
        DXGK_SUBMITCOMMANDFLAGS { Value: call.get("Flags").and_then(|flags| flags.try_into().ok()).unwrap_or(0) };
    let pages =
        call.name.starts_with("DxgkDdiSubmitCommand") && flags.Paging() || call.name == "DxgkDdiBuildPagingBuffer";
    !pages && !call.members().is_empty() && !call.name.starts_with("DxgkDdiDestroy")
}

/// A line of the last of what happened, for the text of a failure; empty where nothing did.
fn last(what: &str, all: &[String]) -> String {
    let earlier = all.len().saturating_sub(LAST);
    let shown = all[earlier..].join("; ");
    match (all.len(), earlier) {
        (0, _) => String::new(),
        (_, 0) => format!("\n    {what}: {shown}"),
        _ => format!("\n    {what}, behind {earlier} others: {shown}"),
    }
}

/// Why a case was not played.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Skipped(pub(super) String);

/// What a case returns that cannot be played on its stage: its result is [`Skip`](super::Status::Skip), with this
/// reason.
///
/// # Errors
/// Always.
pub fn skip(why: impl Into<String>) -> Played {
    Err(Skipped(why.into()).into())
}

/// What the model has to say at the end.
fn audit(world: &World, setup: &Setup) -> Played {
    let report = world.os.report();
    let faults: Vec<_> = report.user_faults.iter().map(ToString::to_string).collect();
    ensure!(setup.client_errs || faults.is_empty(), "faults of user mode: {}", faults.join("; "));
    ensure!(!setup.client_errs || !faults.is_empty(), "no fault of user mode was found");
    let broken: Vec<_> = report.broken().map(|rule| rule.rule.name).collect();
    let is_expected = |rule: &&str| setup.breaks.contains(rule) || setup.may_break.contains(rule);
    if !broken.iter().all(is_expected) {
        let violations = world.os.kernel().rules.violations();
        let first = violations.iter().find(|v| !is_expected(&v.rule.name));
        bail!("{} broken: {}", broken.join(", "), first.map(ToString::to_string).unwrap_or_default());
    }
    for rule in &setup.breaks {
        ensure!(broken.contains(rule), "{rule} was not found broken");
    }
    Ok(())
}

/// `got` must be `want`.
///
/// # Errors
/// With both, when it is not.
pub fn same<T: PartialEq + Debug>(what: &str, got: T, want: T) -> Played {
    ensure!(got == want, "{what}: {got:?}, not {want:?}");
    Ok(())
}

/// A call of the user-mode driver must be refused with `status`.
///
/// # Errors
/// When it is not refused, or otherwise.
pub fn refused<T>(what: &str, result: Result<T, Refused>, status: NTSTATUS) -> Played {
    match result {
        Ok(_) => bail!("{what}: succeeded, instead of {status:?}"),
        Err(error) if error.status == status => Ok(()),
        Err(error) => Err(error).with_context(|| format!("{what}: not {status:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_that_hangs_an_engine_keeps_what_makes_it_hang() {
        let value = |given, setup: Setup| {
            let stage = Stage::new(Form::Native, 1).with_setting(PREEMPTS, given).with_setting("EngineShare", 50);
            let set = stage.set(setup).adapter.registry;
            (set.get(PREEMPTS).cloned(), set.get("EngineShare").cloned())
        };
        let share = || Some(RegistryValue::dword(50));
        for (own, given) in [(0, 1), (1, 0)] {
            let case = Setup::default().setting(PREEMPTS, own);
            assert_eq!(value(given, case), (Some(RegistryValue::dword(own)), share()));
            assert_eq!(value(given, Setup::default()), (Some(RegistryValue::dword(given)), share()));
        }
        assert_eq!(value(1, Setup::default().resets(1)), (Some(RegistryValue::dword(0)), share()));
    }
}
