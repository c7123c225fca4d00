//! Rules of a device that goes while it runs.

use nt_model::rules;

rules! {
    /// Surprise removal.
    pub list REMOVAL_RULES;

    /// Capabilities and slot of surprise removal agree.
    SURPRISE_CAPS = "DXG-SURPRISE-CAPS" {
        title: "SupportSurpriseRemoval comes with SupportSurpriseRemovalInHibernation and DxgkDdiNotifySurpriseRemoval",
        source: "DDI page DxgkDdiNotifySurpriseRemoval, remarks (called only if SupportSurpriseRemovalInHibernation is \
            1)",
        bugcheck: none,
        fix: "set both members and fill the slot, or neither",
    }
    /// What the driver answers to a removal.
    SURPRISE_STATUS = "DXG-SURPRISE-STATUS" {
        title: "DxgkDdiNotifySurpriseRemoval succeeds, in a driver that says that it survives a removal",
        source: "DDI page DxgkDdiNotifySurpriseRemoval, remarks (for any failure the OS bug-checks)",
        bugcheck: none,
        fix: "mark the device as gone and return STATUS_SUCCESS",
    }
    /// Registers of a device that is gone.
    SURPRISE_TOUCH = "DXG-SURPRISE-TOUCH" {
        title: "after DxgkDdiNotifySurpriseRemoval the driver touches no register of the device",
        source: "DDI page DxgkDdiNotifySurpriseRemoval, remarks (must not touch or access any hardware in these DDI \
            calls)",
        bugcheck: none,
        fix: "look at the mark before every access, in the interrupt routine and while the adapter is stopped, too",
    }
}
