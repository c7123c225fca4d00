//! Signals whose queues are not all awake.

use crate::host::Host;
use crate::queue::ParkedFence;
use crate::shared::Shared;

/// Signals that are left when a stream comes off: one whose queues are being woken, and the last one of the stream.
const AT_MOST: usize = 2;

/// A signal whose queues are not all awake.
pub(crate) struct Rest<H: Host> {
    pub fence: Shared<ParkedFence<H>>,
    pub value: u64,
    /// Waits with a lesser ticket began before the signal, which lets them go. A later one looks at the value by
    /// itself: that may have gone backwards since.
    pub before: u64,
    /// What parked behind the first look has read the value, and is not woken: see [`ParkingLot::wake_some`].
    ///
    /// [`ParkingLot::wake_some`]: crate::fence::ParkingLot::wake_some
    pub until: Option<u64>,
}

/// The signals whose queues are not all awake, oldest first.
pub(crate) struct Waking<H: Host>([Option<Rest<H>>; AT_MOST]);

impl<H: Host> Waking<H> {
    /// None.
    pub fn new() -> Self {
        Self([const { None }; AT_MOST])
    }

    /// Returns whether each queue is awake.
    pub fn is_over(&self) -> bool {
        self.0[0].is_none()
    }

    /// Returns whether there is room for another.
    pub fn has_room(&self) -> bool {
        self.0.iter().any(Option::is_none)
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Takes the oldest out if there is no room for another.
    pub fn take_if_full(&mut self) -> Option<Rest<H>> {
        if self.has_room() { None } else { self.take() }
    }

    /// Takes the oldest out.
    pub fn take(&mut self) -> Option<Rest<H>> {
        let oldest = self.0[0].take();
        self.0.rotate_left(1);
        oldest
    }

    /// Adds the newest. There is room.
    pub fn put(&mut self, rest: Rest<H>) {
        if let Some(place) = self.0.iter_mut().find(|place| place.is_none()) {
            *place = Some(rest);
        }
    }

    /// Puts what was taken out back as the oldest. There is room.
    pub fn put_back(&mut self, rest: Rest<H>) {
        self.0.rotate_right(1);
        self.0[0] = Some(rest);
    }
}
