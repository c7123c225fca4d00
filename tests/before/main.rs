//! Mistakes of earlier states of the driver are noticed. Each was found by reading, or in logs of other drivers; a
//! function put in front of one of the driver's table (a decorator) or a setting brings it back, and a conformance case
//! or a plain start must then fail with the rule or the words that the table in `mistakes.rs` names. The product has no
//! code for it. Without the mistake the same case must pass.
//!
//! `./x test --test before -- DD-09` plays what has to do with a case, `-- flip` what has that in its name.

mod answers;
mod doorbells;
mod gate;
mod life;
mod mistakes;
mod notices;
mod objects;
mod room;
mod slots;
mod spaces;
mod start;

use dxgkrnl_model::personality::Windows;
use fencepost::scenario::{Played, Setup, Stage, all, wait_at_most};
use fencepost::world::{Decorator, Form};
use libtest_mimic::{Arguments, Failed, Trial};
use mistakes::{Brings, MISTAKES, Mistake};
use std::collections::BTreeSet;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// A case that boots its machine itself, with the mistake or without.
type Own = fn(Option<Decorator>) -> Played;

/// Cases of this test's own, by name.
const OWN: &[(&str, Own)] = &[
    (answers::NAME, answers::play),
    (room::NAME, room::play),
    (notices::SLEEP, notices::sleep),
    (notices::REMOVAL, notices::removal),
    (notices::ONES, notices::ones),
    (doorbells::KEPT, doorbells::kept),
    (doorbells::DESTROYED, doorbells::destroyed),
    (doorbells::LATE, doorbells::late),
];

/// Counts allocations, for [`room`].
#[global_allocator]
static ALLOCATOR: room::Counting = room::Counting;

/// The name of a case of this test's own: the adapter starts and stops, with every rule watching.
const START: &str = "start";

/// The function that plays the case with this id, or [`START`]; `None` if there is no such case.
fn case(name: &str) -> Option<fn(&Stage) -> Played> {
    match name {
        START => Some(|stage| stage.play(Setup::default(), |_| Ok(()))),
        _ => all().find(|case| case.id == name).map(|case| case.play),
    }
}

/// Plays the case of a mistake, on a driver with the mistake (`made`) or on the driver as it is.
fn play(mistake: &Mistake, made: bool) -> Played {
    if let Some((_, play)) = OWN.iter().find(|(name, _)| *name == mistake.case) {
        return match mistake.brings {
            Brings::Table(decorate) => play(made.then_some(decorate)),
            Brings::Registry(_) => anyhow::bail!("{} is played with functions before the table alone", mistake.case),
        };
    }
    let form = match mistake.brings {
        Brings::Table(decorate) if made => Form::Decorated(decorate),
        _ => Form::Native,
    };
    let mut stage = Stage::new(form, 1).with_windows(mistake.windows.parse::<Windows>()?);
    for (name, value) in mistake.settings {
        stage = stage.with_setting(name, *value);
    }
    if let (Brings::Registry((name, value)), true) = (mistake.brings, made) {
        stage = stage.with_setting(name, value);
    }
    match case(mistake.case) {
        Some(play) => play(&stage),
        None => anyhow::bail!("there is no case {}", mistake.case),
    }
}

/// The environment variable of a process that plays: the index of the mistake, and `true` if it is made, `false` if
/// not.
const PLAY: &str = "FENCEPOST_BEFORE";

/// How long a process may play.
const LIMIT: Duration = Duration::from_secs(180);
/// How long a process may play whose case may hang, at least.
const LIMIT_OF_HANGS: Duration = Duration::from_secs(15);
/// How many times as long as the case without the mistake, played just before.
const TIMES: u32 = 4;
/// The failure of a process that was ended after its limit.
const HANGS: &str = "it did not end";
/// Seconds that a case looks for what must happen, while a mistake is made.
const PATIENCE: u64 = 3;

/// Plays in a process of its own, since a wrong driver may take its process with it. Returns why the case failed,
/// `None` if it passed; [`HANGS`] if it was ended after `limit`.
fn apart(number: usize, made: bool, limit: Duration) -> Result<Option<String>, Failed> {
    let mut child = Command::new(std::env::current_exe()?);
    let child = child.env(PLAY, format!("{number} {made}")).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = child.spawn()?;
    // The thread empties the pipe, which would fill up otherwise and keep the process waiting.
    let mut pipe = child.stderr.take().ok_or("no pipe")?;
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let read = pipe.read_to_end(&mut text);
        read.map(|_| text)
    });
    let end = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            return Ok(Some(HANGS.to_owned()));
        }
        std::thread::park_timeout(Duration::from_millis(20));
    };
    let text = reader.join().map_err(|_| "the reader ended by itself")??;
    let text = String::from_utf8_lossy(&text);
    Ok(if status.success() { None } else { Some(format!("{status}: {text}")) })
}

/// Plays the mistake that `task`, the value of [`PLAY`], names; a failure goes to standard error.
fn played(task: &str) -> ExitCode {
    let task = task.split_once(' ').and_then(|(number, made)| Some((number.parse().ok()?, made.parse().ok()?)));
    let Some((mistake, made)) = task.and_then(|(number, made): (usize, bool)| Some((MISTAKES.get(number)?, made)))
    else {
        return ExitCode::from(2);
    };
    if made {
        wait_at_most(PATIENCE);
    }
    match catch_unwind(AssertUnwindSafe(|| play(mistake, made))) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
        Err(_) => ExitCode::FAILURE,
    }
}

/// Fails unless the mistake makes its case fail as the table says.
fn noticed(number: usize, mistake: &Mistake) -> Result<(), Failed> {
    let limit = if mistake.may_hang {
        let begun = Instant::now();
        if let Some(why) = apart(number, false, LIMIT)? {
            return Err(format!("{} fails without the mistake: {why}", mistake.case).into());
        }
        LIMIT_OF_HANGS.max(begun.elapsed() * TIMES)
    } else {
        LIMIT
    };
    match apart(number, true, limit)? {
        None => Err(format!("{} passed although {} ({})", mistake.case, mistake.name, mistake.source).into()),
        Some(why) if why.contains(mistake.says) || mistake.may_hang && why == HANGS => {
            println!("{}: {why}", mistake.name);
            Ok(())
        }
        Some(why) => Err(format!("'{}' is not in {why}", mistake.says).into()),
    }
}

fn main() -> ExitCode {
    if let Ok(task) = std::env::var(PLAY) {
        return played(&task);
    }
    let mut arguments = Arguments::from_args();
    // A case mostly waits, so six at a time suit any machine.
    arguments.test_threads = arguments.test_threads.or(Some(6));
    let mut trials = Vec::new();
    let mut without = BTreeSet::new();
    for (number, mistake) in MISTAKES.iter().enumerate() {
        let title = format!("{}: {} says {}", mistake.name, mistake.case, mistake.says);
        trials.push(Trial::test(title, move || noticed(number, mistake)));
        if without.insert((mistake.case, mistake.settings, mistake.windows)) {
            let title = format!("{} passes as it is, {:?}, {}", mistake.case, mistake.settings, mistake.windows);
            trials.push(Trial::test(title, move || match apart(number, false, LIMIT)? {
                None => Ok(()),
                Some(why) => Err(why.into()),
            }));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
