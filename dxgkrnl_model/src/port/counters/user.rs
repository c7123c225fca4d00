//! Mistakes of user-mode drivers, as far as the OS can see them. The kernel-mode driver can do nothing about them, so
//! they are no rules.

use std::fmt;

/// What a user-mode driver did wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UserMistake {
    /// Work was done that the queue's last queued value does not count yet: the OS takes such a queue for idle.
    ///
    /// Source: article user-mode-work-submission, hardware queue progress fence changes ("must ensure that the queued
    /// value is updated immediately before the new submission is made visible to the GPU").
    ProgressAhead {
        /// User mode's handle of the queue.
        queue: u32,
        /// What the progress fence said.
        progress: u64,
        /// What the last queued value said then.
        queued: u64,
    },
    /// A record that ends before the last byte of the form that this Windows has under the same name.
    ///
    /// Source: d3dkmthk.h of the SDKs 10.0.26100 and 10.0.28000.
    ShortRecord {
        /// The function.
        thunk: &'static str,
        /// Bytes that it reads and writes.
        bytes: usize,
    },
}

/// A mistake, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserFault {
    /// Id of the process.
    pub process: u64,
    /// What it did.
    pub mistake: UserMistake,
}

impl fmt::Display for UserFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}: ", self.process)?;
        match self.mistake {
            UserMistake::ProgressAhead { queue, progress, queued } => {
                write!(f, "queue {queue:#x} has done {progress:#x}, and {queued:#x} is what it says that it queued")
            }
            UserMistake::ShortRecord { thunk, bytes } => {
                write!(f, "{thunk}: its record has {bytes} bytes on this Windows, and less of it can be accessed")
            }
        }
    }
}
