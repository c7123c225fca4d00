//! How Dxgkrnl hands its `DxgkInitialize` to a driver that asks for it by a request, as displib.lib does.

use nt_model::sched::Ticks;

/// Which requests Dxgkrnl answers. No Microsoft document describes them: public filter drivers that sit on the request
/// know an older code, of Windows 7, and a newer one, of Windows 8 and later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Requests {
    /// Both, and tables of every version by either.
    #[default]
    Both,
    /// The older one alone; the newer one is STATUS_INVALID_DEVICE_REQUEST.
    Older,
    /// The newer one alone.
    Newer,
    /// Both, but what answers to the older code takes no table of WDDM 2.0 or later.
    OlderForOldTables,
}

/// How Dxgkrnl answers the request of a driver that is not linked to displib.lib.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshake {
    /// Which requests are answered.
    pub requests: Requests,
    /// How long Dxgkrnl's device is missing after its image was loaded, in units of 100 ns. A public filter driver
    /// looks ten times before it gives up.
    pub device_after: Ticks,
}
