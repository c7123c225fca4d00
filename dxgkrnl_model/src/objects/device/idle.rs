//! Waiting for a device to be idle.
//!
//! Source: DDI pages D3DKMTWaitForIdle, D3DKMT_WAITFORIDLE, which do not say what idle is. Chosen: engines have nothing
//! of the device, and nothing of it could go to them. What waits for a fence that nothing has signaled, and what is
//! behind that, is not waited for, as at the end of a context. What queues with doorbells have is what user mode says
//! that it has queued last.

use nt_model::sched::Ticks;

use super::Device;
use crate::objects::command::Commands;

impl Device {
    /// Waits until the device is idle, is lost, or is destroyed.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn wait_until_idle(&self) {
        for context in self.contexts() {
            self.settle(context.commands());
        }
        for context in self.hw_contexts() {
            self.settle(context.commands());
            for queue in context.queues() {
                if queue.is_user_mode() {
                    queue.wait_for_queued(|| self.is_over());
                } else {
                    self.settle(queue.commands());
                }
            }
        }
    }

    /// Returns whether nothing of the device runs any more, whatever it has left.
    fn is_over(&self) -> bool {
        self.usable().is_err() || self.driver_handle() == 0 || !self.adapter().is_working()
    }

    /// When a wait looks next whether it is over, without being told.
    fn next_look(&self) -> Ticks {
        self.adapter().kernel().now() + self.adapter().personality().tdr.delay
    }

    /// Waits until a list has nothing that could go on.
    fn settle(&self, commands: &Commands) {
        let kernel = self.adapter().kernel();
        let is_done = || (commands.is_settled() || self.is_over()).then_some(());
        while !kernel.rules.is_stopped() {
            if commands.changed.wait_for(kernel, Some(self.next_look()), is_done).is_some() {
                return;
            }
        }
    }
}
