//! A process of the demo that the director started, by its standard input and output.

use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child as Started, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long a step may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// The process. Dropping one that is still there ends it.
pub struct Child {
    process: Started,
    say: Option<ChildStdin>,
    hear: mpsc::Receiver<String>,
}

impl Child {
    /// Starts it. What it says to its standard error goes to the director's.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(command: &mut Command) -> Result<Self> {
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = started.with_context(|| format!("{} does not start", command.get_program().display()))?;
        let (lines, hear) = mpsc::channel();
        let output = process.stdout.take().context("its output")?;
        // The thread ends with the process, whose end closes the pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::io::Result::ok) {
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
        let say = process.stdin.take();
        Ok(Self { process, say, hear })
    }

    /// The process.
    pub fn process(&self) -> &Started {
        &self.process
    }

    /// Says a line to it.
    ///
    /// # Errors
    /// When it is gone.
    pub fn say(&mut self, line: &str) -> Result<()> {
        let pipe = self.say.as_mut().context("it has ended")?;
        // In one piece, so that a process that is gone is found out by one error.
        pipe.write_all(format!("{line}\n").as_bytes()).context("it is gone")?;
        Ok(pipe.flush()?)
    }

    /// Its next line.
    ///
    /// # Errors
    /// When it ends, or says nothing for long.
    pub fn hear(&mut self) -> Result<String> {
        match self.hear.recv_timeout(PATIENCE) {
            Ok(line) => Ok(line),
            Err(mpsc::RecvTimeoutError::Timeout) => anyhow::bail!("it says nothing"),
            Err(mpsc::RecvTimeoutError::Disconnected) => anyhow::bail!("it ended: {}", self.process.wait()?),
        }
    }

    /// It ends by itself, behind one more word.
    ///
    /// # Errors
    /// When it fails.
    pub fn ends(mut self) -> Result<()> {
        self.say("null")?;
        drop(self.say.take());
        // Nothing more is said, so the channel closes when the process does.
        ensure!(self.hear().is_err(), "it says more than it should");
        let status = self.process.wait()?;
        ensure!(status.success(), "it failed at its end: {status}");
        Ok(())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // A process that has ended refuses its end, which changes nothing.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        Child::start(Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn lines_go_both_ways() {
        let mut child = shell("read a; echo \"$a $a\"; read b; exit 0");
        child.say("line").unwrap();
        assert_eq!(child.hear().unwrap(), "line line");
        child.ends().unwrap();
    }

    #[test]
    fn a_process_that_ends_early_or_badly_is_named() {
        let error = format!("{:#}", shell("exit 3").hear().unwrap_err());
        assert!(error.contains("it ended: exit status: 3"), "{error}");
        let error = format!("{:#}", shell("read a; exit 1").ends().unwrap_err());
        assert!(error.contains("it failed at its end"), "{error}");
        let error = format!("{:#}", shell("read a; echo more").ends().unwrap_err());
        assert!(error.contains("more than it should"), "{error}");
        assert!(Child::start(&mut Command::new("/nonexistent/program")).is_err());
    }
}
