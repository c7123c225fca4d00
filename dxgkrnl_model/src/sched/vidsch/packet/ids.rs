//! Which packet an id means.

use super::{FIRST_ID, State};

impl State {
    /// The id that a driver means by `id`: that of the packet before it, where it has refused that one. No page says
    /// whether a driver counts what it refuses; chosen: it may, in its place, as it may leave it out. The same holds
    /// for a preemption that an adapter reset has ended, where preemptions do not count as submitted. Before the first
    /// completion of a node 0 means none: no page says which id the OS begins with.
    pub(super) fn meant_by(&self, id: u32) -> u32 {
        if id == 0 && self.last_completed == FIRST_ID {
            return FIRST_ID;
        }
        if !is_before(id, self.last_completed) && !is_before(self.ended, id) {
            return self.last_completed;
        }
        if !self.refused.contains(&id) {
            return id;
        }
        let known = self.flights.iter().map(|packet| packet.id).filter(|other| is_before(*other, id));
        known.fold(self.last_completed, |last, other| if is_before(last, other) { other } else { last })
    }
}

/// Whether `first` comes before `second`. Ids wrap.
pub(crate) fn is_before(first: u32, second: u32) -> bool {
    second.wrapping_sub(first).cast_signed() > 0
}
