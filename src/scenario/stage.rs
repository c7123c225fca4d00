//! A machine per case, and the audit at its end.

use super::{Played, readings};
use crate::client::Refused;
use crate::setting::{Assignment, registry_value};
use crate::world::{Form, User, World};
use anyhow::{Context, Result, bail, ensure};
use dxgkrnl_model::adapter::{Adapter, AdapterConfig};
use dxgkrnl_model::personality::{FeatureSetting, MS, Personality, SECOND, Windows};
use dxgkrnl_model::thunks::Thunks;
use nt_model::registry::RegistryValue;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wddm_abi::{DXGK_FEATURE_ID, NTSTATUS};

/// Long enough for anything that must happen on the slowest machine; nothing waits that long when all is well.
pub const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

/// Seconds of [`patience`].
static SECONDS: AtomicU64 = AtomicU64::new(20);

/// Makes cases of this process wait at most `seconds` for what must happen: for those that play a driver that is known to be
/// wrong.
pub fn wait_at_most(seconds: u64) {
    SECONDS.store(seconds, Ordering::Relaxed);
}

/// [`PATIENCE`], or less where it is known that all is not well.
pub(super) fn patience() -> Duration {
    Duration::from_secs(SECONDS.load(Ordering::Relaxed))
}

/// What cases are played on.
#[derive(Clone)]
pub struct Stage {
    form: Form,
    seed: u64,
    settings: Vec<Assignment>,
    windows: Windows,
    /// Readings of `windows` that are left out.
    without: Vec<&'static str>,
}

impl Stage {
    /// A stage for a form of the driver. `seed` feeds the cases that draw random numbers.
    pub fn new(form: Form, seed: u64) -> Self {
        Self { form, seed, settings: Vec::new(), windows: Windows::Default, without: Vec::new() }
    }

    /// A stage on which every adapter has a value under its registry key, whatever the cases set.
    #[must_use]
    pub fn with_setting(self, name: &str, value: u32) -> Self {
        self.with_settings(&[(name.to_owned(), value.into())])
    }

    /// The same for several values, of 64 bits.
    #[must_use]
    pub fn with_settings(mut self, settings: &[Assignment]) -> Self {
        self.settings.extend_from_slice(settings);
        self
    }

    /// A stage on another member of the family of Windows, except where a case chooses for itself, which is seen where it chose
    /// otherwise than the default; a case that chooses the default as well stands in `readings.rs`.
    #[must_use]
    pub fn with_windows(mut self, windows: Windows) -> Self {
        self.windows = windows;
        self
    }

    /// The stage for one case: without the readings that it cannot be played under.
    #[must_use]
    pub fn for_case(&self, id: &str) -> Self {
        Self { without: readings::not_under(id), ..self.clone() }
    }

    /// Returns whether nothing is left of the stage's Windows for this case: it could only be played on the default.
    pub fn is_pointless(&self, id: &str) -> bool {
        let without = readings::not_under(id);
        let readings = self.windows.readings();
        !readings.is_empty() && readings.iter().all(|reading| without.contains(&reading.name))
    }

    fn set(&self, mut setup: Setup) -> Setup {
        self.windows.apply_without(&mut setup.personality, &self.without);
        for adapter in std::iter::once(&mut setup.adapter).chain(&mut setup.others) {
            let settings = self.settings.iter().map(|(name, value)| (name.clone(), registry_value(*value)));
            // A case that plays a lower rung than the stage's is on it.
            let own = adapter.registry.get("MaxRung").cloned();
            adapter.registry.extend(settings);
            let lower = own.filter(|own| (0..self.rung()).any(|rung| *own == RegistryValue::dword(rung)));
            adapter.registry.extend(lower.map(|own| ("MaxRung".to_owned(), own)));
        }
        setup
    }

    /// A value that every adapter has whatever the cases set.
    pub fn setting(&self, name: &str) -> Option<u32> {
        self.settings.iter().find(|(known, _)| known == name).and_then(|(_, value)| u32::try_from(*value).ok())
    }

    /// The rung that the stage holds every adapter down to; 3: it does not.
    pub fn rung(&self) -> u32 {
        self.setting("MaxRung").unwrap_or(3).min(3)
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether the driver is linked in, as opposed to an image.
    pub fn is_native(&self) -> bool {
        matches!(self.form, Form::Native | Form::Decorated(_))
    }

    /// Boots a machine as `setup` says, plays, shuts down, and audits: no broken rule, nothing left behind, no engine whose
    /// reset the case did not announce.
    ///
    /// # Errors
    /// What `body` returns, or what the audit found.
    pub fn play(&self, setup: Setup, body: impl FnOnce(&Scene) -> Played) -> Played {
        let setup = self.set(setup);
        let scene = Scene::open(&self.form, &setup)?;
        let played = body(&scene);
        scene.close(&setup, played)
    }

    /// Boots a machine whose adapter must not start, and returns why it did not. Nothing may be left behind.
    ///
    /// # Errors
    /// When it starts, or breaks a rule that is not expected.
    pub fn refuses_to_start(&self, setup: Setup) -> Result<String> {
        let setup = self.set(setup);
        let world = World::boot(&self.form, setup.personality.clone())?;
        let started = world.adapter(setup.configuration());
        let why = match started {
            Ok(_) => Err(anyhow::anyhow!("the adapter started")),
            Err(error) => Ok(format!("{error:#}")),
        };
        world.os.shut_down();
        audit(&world, &setup)?;
        why
    }
}

/// How the machine of a case differs from the usual.
#[derive(Clone)]
pub struct Setup {
    /// Which Windows.
    pub personality: Personality,
    /// The device, and settings of the driver.
    pub adapter: AdapterConfig,
    /// How many such adapters.
    pub adapters: usize,
    /// The adapters behind the first, where they differ from it.
    pub others: Option<AdapterConfig>,
    /// Rules that the case breaks on purpose; each must be broken.
    pub breaks: Vec<&'static str>,
    /// Resets that the case causes; exactly so many must happen.
    pub resets: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            personality: Personality::collecting(),
            adapter: AdapterConfig::default(),
            adapters: 1,
            others: None,
            breaks: Vec::new(),
            resets: 0,
        }
    }
}

impl Setup {
    /// With a value under the driver's registry key (`docs/settings.md`).
    #[must_use]
    pub fn setting(mut self, name: &str, value: u32) -> Self {
        self.adapter.registry.insert(name.to_owned(), RegistryValue::dword(value));
        self
    }

    /// With `feature` not supported by the OS.
    #[must_use]
    pub fn without(mut self, feature: DXGK_FEATURE_ID) -> Self {
        self.personality = self.personality.with_feature(feature, false);
        self
    }

    /// With timeouts of a tenth, so that a hang costs the suite little.
    #[must_use]
    pub fn quick_tdr(mut self) -> Self {
        self.personality.tdr.delay = 200 * MS;
        self.personality.tdr.ddi_delay = 2 * SECOND;
        self
    }

    /// With so many adapters.
    #[must_use]
    pub fn adapters(mut self, count: usize) -> Self {
        self.adapters = count;
        self
    }

    /// With a second adapter that has no native fences.
    #[must_use]
    pub fn without_native_fences_on_the_second(mut self) -> Self {
        let mut other = self.adapter.clone();
        // CAST: the identifier as the 32 bits that it is.
        other.features.insert(DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE.0 as u32, FeatureSetting::OFF);
        self.others = Some(other);
        self.adapters(2)
    }

    /// With a value under the driver's registry key of the adapters behind the first.
    #[must_use]
    pub fn setting_of_others(mut self, name: &str, value: u32) -> Self {
        let mut other = self.others.unwrap_or_else(|| self.adapter.clone());
        other.registry.insert(name.to_owned(), RegistryValue::dword(value));
        self.others = Some(other);
        self
    }

    /// The case causes so many resets.
    #[must_use]
    pub fn resets(mut self, count: u64) -> Self {
        self.resets = count;
        self
    }

    /// The case makes the model find these rules broken.
    #[must_use]
    pub fn breaks(mut self, rules: &[&'static str]) -> Self {
        self.breaks.extend_from_slice(rules);
        self
    }

    /// With the personality changed.
    #[must_use]
    pub fn windows(mut self, change: impl FnOnce(&mut Personality)) -> Self {
        change(&mut self.personality);
        self
    }

    fn configuration(&self) -> AdapterConfig {
        self.adapter.clone()
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
        let world = World::boot(form, setup.personality.clone())?;
        let mut adapters = Vec::new();
        for index in 0..setup.adapters {
            let other = setup.others.clone().filter(|_| index != 0);
            adapters.push(world.adapter(other.unwrap_or_else(|| setup.configuration()))?);
        }
        Ok(Self { world, adapters, thunks: Thunks::new() })
    }

    fn close(self, setup: &Setup, played: Played) -> Played {
        let resets = self.world.os.report().counts.resets;
        drop(self.adapters);
        self.world.os.shut_down();
        let audited = audit(&self.world, setup);
        match (played, audited) {
            (Err(first), Err(second)) => Err(first.context(format!("and {second:#}"))),
            (Err(only), Ok(())) | (Ok(()), Err(only)) => Err(only),
            (Ok(()), Ok(())) => same("resets", resets, setup.resets),
        }
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
        self.adapter().ddi_journal().into_iter().filter(|name| names.contains(name)).collect()
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

/// What the model has to say at the end.
fn audit(world: &World, setup: &Setup) -> Played {
    let broken: Vec<_> = world.os.report().broken().map(|rule| rule.rule.name).collect();
    let unexpected = broken.iter().any(|rule| !setup.breaks.contains(rule));
    if unexpected {
        let violations = world.os.kernel().rules.violations();
        let first = violations.iter().find(|v| !setup.breaks.contains(&v.rule.name));
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
