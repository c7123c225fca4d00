//! How long nodes ran for which process.

use std::collections::BTreeMap;

/// What a process, or all of them, had of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Use {
    /// How long it ran; in which units the collection says.
    pub(crate) time: u64,
    /// How often the node turned to it.
    pub(crate) switches: u32,
}

/// What processes had of a node, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct NodeUse(BTreeMap<u64, Use>);

impl NodeUse {
    /// `process` ran for `time` more, and the node turned to it `switches` times.
    pub(crate) fn add(&mut self, process: u64, time: u64, switches: u32) {
        let of = self.0.entry(process).or_default();
        (of.time, of.switches) = (of.time.saturating_add(time), of.switches.wrapping_add(switches));
    }

    /// What `process` had; all processes together for `None`.
    pub(crate) fn of(&self, process: Option<u64>) -> Use {
        let wanted = self.0.iter().filter(|(number, _)| process.is_none_or(|process| process == **number));
        wanted.fold(Use::default(), |sum, (_, of)| Use {
            time: sum.time.saturating_add(of.time),
            switches: sum.switches.wrapping_add(of.switches),
        })
    }
}

/// Running time by a scheduling log, in ticks of the GPU's clock.
#[derive(Debug, Default)]
pub(crate) struct LoggedUse {
    node: NodeUse,
    /// The context that runs: its handle, its process, and since when.
    running: Option<(usize, u64, u64)>,
}

impl LoggedUse {
    /// An entry of `time`: the context `handle` of `process` begins to run, or is in another state.
    pub(crate) fn entry(&mut self, handle: usize, process: u64, runs: bool, time: u64) {
        let ends = |(running, ..): &(usize, u64, u64)| runs || *running == handle;
        if let Some((_, of, since)) = self.running.take_if(|running| ends(running)) {
            self.node.add(of, time.saturating_sub(since), 0);
        }
        if runs {
            self.node.add(process, 0, 1);
            self.running = Some((handle, process, time));
        }
    }

    /// The context `handle` is gone, and may have no last entry.
    pub(crate) fn gone(&mut self, handle: usize) {
        self.running.take_if(|(running, ..)| *running == handle);
    }

    /// Entries are lost: what ran is not known any more.
    pub(crate) fn forget(&mut self) {
        self.running = None;
    }

    /// What `process`, or all, had until `now`, which may be before the last entry.
    pub(crate) fn until(&self, process: Option<u64>, now: u64) -> Use {
        let mut of = self.node.of(process);
        let running = self.running.filter(|(_, owner, _)| process.is_none_or(|process| process == *owner));
        of.time += running.map_or(0, |(_, _, since)| now.saturating_sub(since));
        of
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_says_who_ran_and_for_how_long() {
        let mut usage = LoggedUse::default();
        usage.entry(0x10, 1, true, 100);
        // The other context becomes ready, and then takes the engine.
        usage.entry(0x20, 2, false, 110);
        usage.entry(0x20, 2, true, 150);
        usage.entry(0x10, 1, false, 151);
        usage.entry(0x20, 2, false, 160);
        assert_eq!(usage.until(Some(1), 500), Use { time: 50, switches: 1 });
        assert_eq!(usage.until(Some(2), 500), Use { time: 10, switches: 1 });
        // What runs now has run until now.
        usage.entry(0x10, 1, true, 400);
        assert_eq!(usage.until(None, 500), Use { time: 160, switches: 3 });
        assert_eq!(usage.until(Some(3), 500), Use::default());
        // One that is gone runs no more, whatever its last entry was.
        usage.gone(0x20);
        assert_eq!(usage.until(None, 500), Use { time: 160, switches: 3 });
        usage.gone(0x10);
        assert_eq!(usage.until(None, 600), Use { time: 60, switches: 3 });
        usage.entry(0x10, 1, true, 700);
        usage.forget();
        assert_eq!(usage.until(None, 800), Use { time: 60, switches: 4 });
    }
}
