//! A device that goes while it runs: pulled out, or taken from the virtual machine.
//!
//! From the moment it is gone it reads as ones and drops what is written; the line that it shared with others goes on
//! interrupting for them. A driver that says so is then told, and everything it has is taken down without the device. One that
//! does not say so is not called again: Windows reboots.
//!
//! Source: DDI page DxgkDdiNotifySurpriseRemoval; PCI Local Bus Specification (a read that no function claims returns ones).

use std::sync::Arc;

use nt_model::Rule;
use wddm_abi::{DXGK_SURPRISE_REMOVAL_TYPE, NTSTATUS, ntstatus};

use super::Adapter;
use super::caps::Caps;
use crate::ddi::{self, call_ddi};
use crate::rules::removal::{SURPRISE_CAPS, SURPRISE_STATUS, SURPRISE_TOUCH};

/// Whether what a driver says of its removal fits together.
pub(super) fn judge(adapter: &Adapter, caps: &Caps) -> (&'static Rule, bool, String) {
    let (running, asleep) = (caps.driver.SupportSurpriseRemoval, caps.driver.SupportSurpriseRemovalInHibernation);
    let told = adapter.table().DxgkDdiNotifySurpriseRemoval.is_some();
    let text = format!("SupportSurpriseRemoval {running}, InHibernation {asleep}, the function is there: {told}");
    (&SURPRISE_CAPS, (running == 0 || asleep != 0) && (asleep == 0 || told), text)
}

impl Adapter {
    /// Takes the device away and tells the driver; the adapter is stopped then. What the driver said; `None`: it is not told, and
    /// Windows reboots.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn remove_by_surprise(self: &Arc<Self>) -> Option<NTSTATUS> {
        let edu = self.device.edu()?;
        edu.vanish();
        // The line's other devices interrupt before anybody has told the driver.
        crate::interrupt::probe_foreign_interrupt(self);
        if self.known_caps().driver.SupportSurpriseRemovalInHibernation == 0 {
            return None;
        }
        let (context, kind) = (self.context(), DXGK_SURPRISE_REMOVAL_TYPE::DxgkRemovalPnPNotify);
        let status = ddi::status(call_ddi!(self, DxgkDdiNotifySurpriseRemoval(context, kind)));
        let fine = status.is_success() || status == ntstatus::STATUS_SYSTEM_SHUTDOWN;
        self.rules().check(&SURPRISE_STATUS, fine, || format!("{status:?}"));
        edu.watch();
        crate::interrupt::probe_foreign_interrupt(self);
        self.stop();
        let touched = edu.touched();
        self.rules().check(&SURPRISE_TOUCH, touched == 0, || format!("{touched} times, until it was stopped"));
        Some(status)
    }
}
