//! The model's verdict on a driver that it knows nothing of: start, what any driver must be able to do, stop.

use crate::dump::{self, Moment};
use crate::scenario::Raw;
use crate::setting::{self, Assignment};
use anyhow::{Context, Result};
use dxgkrnl_model::driver::{Driver, DriverError};
use dxgkrnl_model::os::Os;
use dxgkrnl_model::personality::{Personality, Windows};
use dxgkrnl_model::report::Report;
use serde::Serialize;
use std::sync::Arc;
use wddm_abi::{D3DKMT_CREATEPAGINGQUEUE, LUID};

/// A rule and what came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Its name.
    pub name: &'static str,
    /// The document that says so.
    pub source: &'static str,
    /// `held`, `broken` or `not reached`.
    pub status: &'static str,
    /// What was found, for a broken rule; what the rule says, for the others.
    pub detail: String,
}

/// What was done with the driver, and what came of it.
pub struct Checked {
    /// Every rule, in the model's order.
    pub rules: Vec<Verdict>,
    /// Steps that the driver took or refused, in words.
    pub steps: Vec<String>,
}

/// The name that this project's driver was made under.
const OURS: &str = "fencepost.sys";

/// Returns whether the image says in its version resource that it was made as this project's driver. A copy under
/// another name says it, too; a driver of another project does not, whatever its file is called.
pub fn is_ours(image: &[u8]) -> bool {
    let wide = |text: &str| text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect::<Vec<_>>();
    let (key, value) = (wide("OriginalFilename"), wide(OURS));
    let Some(at) = image.windows(key.len()).position(|bytes| bytes == key) else { return false };
    // The value begins at a multiple of 4 bytes behind the key.
    let behind = &image[at + key.len()..];
    behind.starts_with(&value) || behind.get(2..).is_some_and(|behind| behind.starts_with(&value))
}

/// Loads the driver on this Windows, starts an adapter with it and these values under its registry key (for this
/// project's own driver those of the service under the service's key, and the device of the class that the form wants),
/// uses the adapter as far as is possible without the driver's private data, and stops it.
///
/// # Errors
/// When the file is no driver image that can be loaded, or the model's start transcript is not understood. What the
/// driver does wrong is a verdict, not an error.
pub fn check(name: &str, bytes: Vec<u8>, settings: &[Assignment], windows: Windows) -> Result<Checked> {
    let mut personality = Personality::collecting();
    windows.apply(&mut personality);
    let os = Os::boot(personality).context("the start transcript is not understood")?;
    dump::watch(&os);
    let mut steps = Vec::new();
    // The service of this project's driver has one name, whatever the file's is.
    let (name, adapter) = if is_ours(&bytes) {
        setting::set_service(&os, settings);
        (OURS, setting::adapter_of_ours(settings))
    } else {
        (name, setting::adapter(settings))
    };
    match os.load_driver(&Driver::Image(name.to_owned(), bytes)) {
        Ok(driver) => match os.add_adapter(&driver, adapter) {
            Ok(adapter) => {
                for line in adapter.transcript() {
                    steps.push(format!("{}: {}", line.step, line.answer));
                }
                exercise(&os, adapter.luid(), &mut steps);
            }
            Err(error) => steps.push(format!("the adapter does not start: {error:#}")),
        },
        Err(DriverError::Image(error)) => {
            return Err(anyhow::Error::new(error).context(format!("{name} cannot be loaded")));
        }
        Err(error) => steps.push(format!("the driver does not load: {error:#}")),
    }
    os.kernel().dump_moment(Moment::Ended, "the machine before it was shut down");
    os.shut_down();
    let report = os.report();
    let violations = os.kernel().rules.violations();
    let found = |name| violations.iter().find(|v| v.rule.name == name).map(ToString::to_string);
    Ok(Checked { rules: verdicts(&report, &found), steps })
}

/// What any driver must stand: a process opens the adapter, makes devices and fences, and dies with them open.
fn exercise(os: &Os, luid: LUID, steps: &mut Vec<String>) {
    for round in ["orderly", "abrupt"] {
        let process = Arc::new(os.create_process(round));
        let mut tell = |what: &str, result: Result<()>| {
            let result = result.map_or_else(|error| format!("{error:#}"), |()| "done".to_owned());
            steps.push(format!("{round} process, {what}: {result}"));
        };
        let raw = match Raw::open(&process, luid) {
            Ok(raw) => raw,
            Err(error) => {
                tell("open the adapter", Err(error));
                continue;
            }
        };
        let device = match raw.device() {
            Ok(device) => device,
            Err(error) => {
                tell("create a device", Err(error.into()));
                continue;
            }
        };
        tell("create a device", Ok(()));
        let mut queue = D3DKMT_CREATEPAGINGQUEUE::zeroed();
        queue.hDevice = device;
        tell("create a paging queue", raw.ok(raw.thunks.D3DKMTCreatePagingQueue, &mut queue).map_err(Into::into));
        let monitored = raw.monitored_fence(device, 1, false);
        tell("create a monitored fence", monitored.map(drop).map_err(Into::into));
        let native = raw.native_fence(device, 1);
        tell("create a native fence", native.map(drop).map_err(Into::into));
        for fence in [monitored, native].into_iter().flatten() {
            let signaled = raw.signal_cpu(device, &[(fence.handle, 2)]);
            tell("signal it from the CPU", signaled.map_err(Into::into));
            let waited = raw.wait_cpu(device, &[(fence.handle, 2)], false, None);
            tell("wait for it on the CPU", waited.map_err(Into::into));
            if round == "orderly" {
                tell("destroy it", raw.destroy_fence(fence.handle).map_err(Into::into));
            }
        }
        if round == "orderly" {
            tell("destroy the device", raw.destroy_device(device).map_err(Into::into));
        }
    }
}

fn verdicts(report: &Report, found: &dyn Fn(&'static str) -> Option<String>) -> Vec<Verdict> {
    report
        .rules
        .iter()
        .map(|rule| {
            let status = match (rule.broken, rule.evaluations) {
                (0, 0) => "not reached",
                (0, _) => "held",
                _ => "broken",
            };
            let name = rule.rule.name;
            let detail = if status == "broken" { found(name) } else { None };
            let detail = detail.unwrap_or_else(|| rule.rule.title.to_owned());
            Verdict { name, source: rule.rule.source, status, detail }
        })
        .collect()
}
