//! A system thread of the model's.
#![expect(unsafe_code, reason = "an IRQL token is a claim")]

use crate::machine;
use kmd_core::irql::Passive;
use kmd_core::platform::Body;
use nt_model::Thread;
use std::sync::Arc;

/// A thread object.
pub struct SystemThread(Arc<Thread>);

impl SystemThread {
    pub(crate) fn start(body: Body) -> Self {
        Self(machine(|m| {
            m.spawn_system_thread("engine", move || {
                // SAFETY: system threads start at PASSIVE_LEVEL, and stay there outside of lock sections.
                let irql = unsafe { Passive::assume() };
                body(&irql);
            })
        }))
    }

    pub(crate) fn join(self) {
        machine(|m| m.wait_for_object(self.0.header(), None));
    }
}
