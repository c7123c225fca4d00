//! Services of which each is owed its counterpart: lookaside lists, the resolution of the clock. And events by name.
//!
//! Source: DDI pages ExInitializeNPagedLookasideList, ExDeleteNPagedLookasideList ("the reciprocal"),
//! ExSetTimerResolution (the default is restored, as a rule before the driver is unloaded), IoCreateNotificationEvent.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::cpu::Site;
use crate::dispatcher::Event;
use crate::kernel::Machine;
use crate::object::Object;
use crate::routines;

/// The finest resolution of the clock, in units of 100 ns: half a millisecond.
const FINEST: u32 = 5_000;

/// What drivers of one machine owe a counterpart for.
#[derive(Debug, Default)]
pub(crate) struct Paired {
    /// Lookaside lists by their address.
    lookasides: Mutex<HashMap<usize, Site>>,
    /// Requests for a resolution of the clock, in units of 100 ns.
    resolutions: Mutex<Vec<(u32, Site)>>,
    events: Mutex<HashMap<String, Weak<Event>>>,
}

impl Paired {
    /// Notes a lookaside list. Returns `false` where there is one at the address.
    pub(crate) fn begin_lookaside(&self, address: usize) -> bool {
        self.lookasides.lock().insert(address, Site::here()).is_none()
    }

    /// Forgets a lookaside list. Returns `false` where there is none at the address.
    pub(crate) fn end_lookaside(&self, address: usize) -> bool {
        self.lookasides.lock().remove(&address).is_some()
    }

    /// Lookaside lists that were not deleted, in the order of their addresses.
    pub(crate) fn lookasides(&self) -> Vec<(usize, Site)> {
        let mut lists: Vec<_> = self.lookasides.lock().iter().map(|(address, site)| (*address, *site)).collect();
        lists.sort_unstable_by_key(|list| list.0);
        lists
    }

    /// Requests for a resolution of the clock that were not taken back.
    pub(crate) fn resolutions(&self) -> Vec<(u32, Site)> {
        self.resolutions.lock().clone()
    }
}

impl Machine {
    /// Asks for a resolution of the clock, in units of 100 ns, or takes the last request of the calling driver back.
    /// Returns the resolution that holds then; timers and waits of the machine end as they did before.
    ///
    /// IRQL: at most APC_LEVEL.
    #[doc(alias = "ExSetTimerResolution")]
    #[track_caller]
    pub(crate) fn set_timer_resolution(&self, desired: u32, sets: bool) -> u32 {
        let _service = self.service(&routines::EX_SET_TIMER_RESOLUTION, [desired.into(), sets.into()]);
        let mut requests = self.paired.resolutions.lock();
        if sets {
            requests.push((desired.max(FINEST), Site::here()));
        } else {
            let here = Site::here();
            let own = requests.iter().rposition(|(_, site)| self.is_of_one_driver(site, &here));
            own.map(|at| requests.remove(at));
        }
        // CAST: 156,250, or what a test says.
        let usual = self.config().clock.tick as u32;
        requests.iter().map(|request| request.0).fold(usual, u32::min)
    }

    /// Whether two places are of one image, or both of none.
    fn is_of_one_driver(&self, one: &Site, other: &Site) -> bool {
        let image = |site: &Site| self.images.locate(site.address).map(|(name, _)| name);
        image(one) == image(other)
    }

    /// Opens the event of this name, or makes it, signalled; one without a name is always made. Returns its address and
    /// a handle, which keeps it.
    ///
    /// IRQL: PASSIVE_LEVEL.
    #[doc(alias = "IoCreateNotificationEvent")]
    #[doc(alias = "IoCreateSynchronizationEvent")]
    #[track_caller]
    pub(crate) fn open_named_event(&self, name: &str, notification: bool) -> (usize, u64) {
        let name = name.to_ascii_lowercase();
        let mut events = self.paired.events.lock();
        let known = events.get(&name).and_then(Weak::upgrade).filter(|_| !name.is_empty());
        let event = known.unwrap_or_else(|| {
            let event = Arc::new(if notification { Event::notification(true) } else { Event::synchronization(true) });
            events.insert(name, Arc::downgrade(&event));
            event
        });
        drop(events);
        let object = Object::Event(event);
        (object.address(), self.open_handle(object))
    }
}
