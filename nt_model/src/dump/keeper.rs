//! When a machine takes a dump of itself.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;

use super::Dump;
use crate::kernel::Machine;
use crate::rules::Violation;

/// What a dump shows, the most telling last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// The machine, before it is shut down.
    Ended,
    /// A device that did not answer in time.
    TimedOut,
    /// The first broken rule, on the thread that broke it.
    Broken,
}

type Keep = Arc<dyn Fn(Moment, Dump) + Send + Sync>;

/// Who is given a machine's dumps. Part of each [`Machine`].
#[derive(Default)]
pub(crate) struct Keeper {
    keep: Mutex<Option<(&'static [Moment], Keep)>>,
    /// A bit for each moment of which a dump was taken.
    taken: AtomicU8,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("taken", &self.taken).finish_non_exhaustive()
    }
}

impl Machine {
    /// Has a dump taken at the first moment of each of these kinds, on the thread that comes to it, and given to
    /// `keep`. The thread is held up meanwhile: for some milliseconds, and longer on a busy host.
    pub fn keep_dumps(&self, moments: &'static [Moment], keep: impl Fn(Moment, Dump) + Send + Sync + 'static) {
        *self.dumps.keep.lock() = Some((moments, Arc::new(keep)));
    }

    /// This is such a moment: `text` says which, in one line. Nothing happens on a machine that keeps no dumps, or has
    /// one of this kind. IRQL: any.
    pub fn dump_moment(&self, moment: Moment, text: &str) {
        self.take(moment, |machine| {
            let mut dump = machine.dump(None);
            dump.say(text);
            dump
        });
    }

    /// The calling thread broke a rule.
    pub(crate) fn dump_violation(&self, violation: &Violation) {
        self.take(Moment::Broken, |machine| machine.dump(Some(violation)));
    }

    fn take(&self, moment: Moment, dump: impl FnOnce(&Self) -> Dump) {
        let kept = self.dumps.keep.lock().clone();
        let Some((_, keep)) = kept.filter(|(moments, _)| moments.contains(&moment)) else { return };
        // CAST: a bit of three.
        let bit = 1 << moment as u8;
        if self.dumps.taken.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            keep(moment, dump(self));
        }
    }
}
