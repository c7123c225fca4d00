//! A device that goes while it runs: pulled out, or taken from the virtual machine.
//!
//! From the moment the device is gone it reads as ones and drops what is written; the interrupt line that it shared
//! with others goes on interrupting for them. A driver with SupportSurpriseRemovalInHibernation is then told, and
//! everything that it has is taken down without the device. Without that capability the driver is not told: Windows
//! reboots.
//!
//! Source: DDI page DxgkDdiNotifySurpriseRemoval; PCI Local Bus Specification (a read that no function claims returns
//! ones).

use std::sync::Arc;

use nt_model::Rule;
use wddm_abi::{DXGK_SURPRISE_REMOVAL_TYPE, NTSTATUS};

use crate::port::caps::Caps;
use crate::port::ddi::{self, call_ddi};
use crate::port::miniport::Miniport;
use crate::port::rules::removal::{SURPRISE_CAPS, SURPRISE_STATUS, SURPRISE_TOUCH};

/// Judges whether the two capabilities and the slot of surprise removal fit together.
pub(super) fn judge(adapter: &Miniport, caps: &Caps) -> (&'static Rule, bool, String) {
    let (running, asleep) = (caps.driver.SupportSurpriseRemoval, caps.driver.SupportSurpriseRemovalInHibernation);
    let told = adapter.table().DxgkDdiNotifySurpriseRemoval.is_some();
    let text = format!("SupportSurpriseRemoval {running}, InHibernation {asleep}, the function is there: {told}");
    (&SURPRISE_CAPS, (running == 0 || asleep != 0) && (asleep == 0 || told), text)
}

impl Miniport {
    /// Takes the device off the bus, tells the driver, stops the adapter, and returns what the driver answered. `None`:
    /// the device is of a kind that cannot go, or the driver does not advertise SupportSurpriseRemovalInHibernation; it
    /// is not told then, and the adapter stays as it is (Windows would reboot).
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn remove_by_surprise(self: &Arc<Self>) -> Option<NTSTATUS> {
        let edu = self.device.edu()?;
        edu.vanish();
        // Another device on the shared line interrupts before the driver is told.
        crate::sched::interrupt::probe_foreign_interrupt(self);
        if self.known_caps().driver.SupportSurpriseRemovalInHibernation == 0 {
            return None;
        }
        let (context, kind) = (self.context(), DXGK_SURPRISE_REMOVAL_TYPE::DxgkRemovalPnPNotify);
        let status = ddi::status(call_ddi!(self, DxgkDdiNotifySurpriseRemoval(context, kind)));
        let fine = ddi::succeeded(status);
        self.rules().check(&SURPRISE_STATUS, fine, || format!("{status:?}"));
        edu.watch();
        crate::sched::interrupt::probe_foreign_interrupt(self);
        self.stop();
        let touched = edu.touched();
        self.rules().check(&SURPRISE_TOUCH, touched == 0, || format!("{touched} times, until it was stopped"));
        Some(status)
    }
}
