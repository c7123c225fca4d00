//! Stopping and removing an adapter.
//!
//! The system's own objects go first, through the driver's ordinary destruction DDIs, while everything still works;
//! then `DxgkDdiStopDevice`, then the interrupt is disconnected, then what the driver left is named and taken back.
//!
//! Chosen: devices of user processes that are still open when an adapter is stopped are put into the error state and
//! destroyed first, as on a surprise removal; their handles stay behind and answer STATUS_DEVICE_REMOVED. What such a
//! process has mapped stays readable and writable for it, and leads nowhere: doorbells read ABORT.

use std::sync::Arc;

use wddm_abi::{NTSTATUS, ntstatus};

use super::polls::Polls;
use crate::entry::interface::memory::DriverMemory;
use crate::memory::fence::kept::Kept;
use crate::memory::fence::window::Windows;
use crate::objects::fence::native::FenceOnAdapter;
use crate::objects::process::ProcessInner;
use crate::objects::scheduling_log::SchedulingLogSet;
use crate::port::ddi::{self, call_ddi};
use crate::port::features::Features;
use crate::port::miniport::{AdapterState, Miniport};
use crate::port::power::Power;
use crate::port::rules::start::{STOP_LINE, STOP_STATUS};
use crate::port::tdr::Tdr;
use crate::sched::interrupt::Interrupts;

impl Miniport {
    /// Stops a started adapter. Does nothing to one that is not.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn stop(self: &Arc<Self>) {
        if self.state() != AdapterState::Started {
            return;
        }
        self.call_every_slot();
        self.set_state(AdapterState::Stopping);
        Polls::of(self).stop(self);
        for process in ProcessInner::all_of(self.shared()) {
            process.leave_adapter(self);
        }
        // What NT handles hold.
        for fence in FenceOnAdapter::all_of(self) {
            fence.forsake();
        }
        Kept::of(self).judge(self);
        Tdr::of(self).end();
        SchedulingLogSet::of(self).finish(self);
        SchedulingLogSet::of(self).hide(self);
        crate::entry::system::stop(self);
        crate::recovery::end(self);
        Power::of(self).stop();
        crate::recovery::clear_idle(self);
        self.stop_device();
    }

    /// `DxgkDdiStopDevice` and what follows it.
    fn stop_device(self: &Arc<Self>) {
        let context = self.context();
        Features::of(self).reset(self);
        if self.personality().late_interrupts {
            let adapter = Arc::downgrade(self);
            self.kernel().set_at_thread_end(Some(Arc::new(move || {
                let adapter = adapter.upgrade();
                if let Some(edu) = adapter.as_ref().and_then(|adapter| adapter.device.edu()) {
                    edu.raise(1);
                }
            })));
        }
        let status = ddi::status(call_ddi!(self, DxgkDdiStopDevice(context)));
        self.kernel().set_at_thread_end(None);
        self.note("StopDevice", format!("{status:?}"));
        self.judge_stop("DxgkDdiStopDevice", status);
        let raised = self.device.edu().filter(|edu| edu.is_awake()).map_or(0, |edu| edu.interrupt_status());
        self.rules().check(&STOP_LINE, raised == 0, || format!("interrupt status {raised:#x}"));
        Interrupts::of(self).disconnect(self);
        SchedulingLogSet::of(self).stop(self);
        Windows::of(self).inspect(self);
        DriverMemory::of(self).reclaim(self);
        self.set_handle(None);
        self.set_caps(None);
        self.device.plug();
        self.set_state(AdapterState::Stopped);
    }

    /// Removes a stopped adapter.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn remove(self: &Arc<Self>) {
        if !matches!(self.state(), AdapterState::Stopped | AdapterState::Added) {
            return;
        }
        let context = self.context();
        let status = ddi::status(call_ddi!(self, DxgkDdiRemoveDevice(context)));
        self.note("RemoveDevice", format!("{status:?}"));
        self.judge_stop("DxgkDdiRemoveDevice", status);
        DriverMemory::of(self).judge_references(self);
        self.set_context(core::ptr::null_mut());
        self.set_state(AdapterState::Absent);
    }

    fn judge_stop(&self, ddi: &str, status: NTSTATUS) {
        let fine = ddi::succeeded(status);
        self.rules().check(&STOP_STATUS, fine, || format!("{ddi}: {status:?}"));
    }

    /// Undoes what a failed start has done.
    ///
    /// Chosen: an adapter that the system refuses after `DxgkDdiStartDevice` succeeded is stopped; one whose
    /// `DxgkDdiStartDevice` failed is not. Either is removed.
    pub(super) fn abandon_start(self: &Arc<Self>) {
        let started = self.transcript().iter().any(|line| {
            line.step == "StartDevice" && line.answer.starts_with(&format!("{:?}", ntstatus::STATUS_SUCCESS))
        });
        if started {
            Tdr::of(self).end();
            crate::entry::system::stop(self);
            crate::recovery::end(self);
            Power::of(self).stop();
            crate::recovery::clear_idle(self);
            self.stop_device();
        } else {
            Features::of(self).reset(self);
            Interrupts::of(self).disconnect(self);
            DriverMemory::of(self).reclaim(self);
            self.set_handle(None);
        }
        self.set_caps(None);
        if !self.context().is_null() {
            self.set_state(AdapterState::Stopped);
            self.remove();
        }
        self.set_state(AdapterState::Absent);
    }
}
