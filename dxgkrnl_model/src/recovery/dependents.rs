//! Nodes that the reset of a packet node's engine takes along: all of them are asked to come off what they run, within
//! one time for all, and those that do not are reset behind it, in the order of their ordinals.
//!
//! Source: DDI page DxgkDdiQueryDependentEngineGroup, remarks.
//!
//! Chosen: the page knows packet nodes alone, and the reset of a hardware-scheduled node asks for no group. Where a
//! packet node's group has a hardware-scheduled node in it, that node's contexts are suspended, as packets are
//! preempted elsewhere: they are resumed behind the reset, or the node's engine is reset for those that owe the
//! acknowledgement.

use std::sync::Arc;

use nt_model::Details;
use wddm_abi::DXGKARG_QUERYDEPENDENTENGINEGROUP;

use super::hw_engine::Late;
use super::journal::Record;
use super::{hw_engine, packet};
use crate::objects::hw_context::{HwContext, Suspend};
use crate::port::ddi::{self, call_ddi};
use crate::port::miniport::Miniport;
use crate::port::rules::tdr::{TDR_MASK, TDR_QUERY};
use crate::port::tdr::steps::{Reason, Step};
use crate::sched::vidsch::{Node, VidSch};

/// A node that depends on one that is reset.
struct Dependent {
    node: Arc<Node>,
    /// Contexts that were suspended, of a hardware-scheduled node.
    contexts: Vec<Arc<HwContext>>,
}

/// The nodes that depend on one.
#[derive(Default)]
pub(super) struct Dependents {
    /// They came off in time.
    idle: Vec<Dependent>,
    /// They did not.
    late: Vec<Dependent>,
}

impl Dependents {
    /// Asks which nodes depend on this one, and lets those come off what they run.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(super) fn ask(adapter: &Arc<Miniport>, node: &Node, record: &Record<'_>) -> Self {
        let mut arguments = DXGKARG_QUERYDEPENDENTENGINEGROUP::zeroed();
        (arguments.NodeOrdinal, arguments.EngineOrdinal) = (node.place.node, node.place.engine);
        let (miniport, pointer) = (adapter.context(), &raw mut arguments);
        let status = ddi::status(call_ddi!(adapter, DxgkDdiQueryDependentEngineGroup(miniport, pointer)));
        let fine = ddi::succeeded(status);
        adapter.rules().check(&TDR_QUERY, fine, || format!("DxgkDdiQueryDependentEngineGroup: {status:?}"));
        if !status.is_success() {
            return Self::default();
        }
        let mask = arguments.DependentNodeOrdinalMask;
        record.step(Step::Dependents(mask));
        // The mask is of nodes of one engine.
        let here = VidSch::of(adapter).nodes().into_iter().filter(|other| other.place.engine == node.place.engine);
        let here: Vec<_> = here.collect();
        let count = here.len();
        let existing = if count >= 64 { u64::MAX } else { (1 << count) - 1 };
        let bit = |node: &Node| 1 << node.place.node;
        let sound = mask & bit(node) != 0 && mask & !existing == 0;
        adapter.rules().check(&TDR_MASK, sound, || {
            Details::new(format!("node {} of {count}: {mask:#x}", node.ordinal)).params([
                mask,
                node.ordinal.into(),
                count as u64,
            ])
        });
        let depends = |other: &Arc<Node>| other.ordinal != node.ordinal && mask & bit(other) != 0;
        // All contexts are asked before the first one is waited for.
        let asked = here.into_iter().filter(depends).map(|other| Dependent::begin(adapter, other));
        let asked: Vec<_> = asked.collect();
        let deadline = adapter.kernel().now() + adapter.personality().tdr.dependents_delay;
        let mut all = Self::default();
        for other in asked {
            if other.comes_off(adapter, deadline) {
                record.step(Step::DependentIdle(other.node.ordinal));
                all.idle.push(other);
            } else {
                all.late.push(other);
            }
        }
        all
    }

    /// The ordinals of all of them: they get nothing until the node is reset.
    pub(super) fn ordinals(&self) -> Vec<u32> {
        self.idle.iter().chain(&self.late).map(|other| other.node.ordinal).collect()
    }

    /// The node is reset: what came off goes on.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(super) fn resume_idle(&mut self) {
        std::mem::take(&mut self.idle).iter().for_each(Dependent::resume);
    }

    /// Resets the engines of the nodes that have not come off yet.
    ///
    /// IRQL: PASSIVE_LEVEL; on the worker, in no recovery.
    pub(super) fn reset_late(self, adapter: &Arc<Miniport>) {
        for other in self.late {
            // One that another of them takes along is over by then.
            if other.is_off() {
                other.resume();
            } else if other.node.is_hardware_scheduled {
                let late: Vec<_> = other.contexts.iter().filter(|context| context.is_suspending()).cloned().collect();
                // None owes where a suspension failed.
                let late = if late.is_empty() { Late::Nobody } else { Late::Owes(&late) };
                hw_engine::recover(adapter, other.node.ordinal, late, Reason::Dependent);
                other.resume();
            } else {
                packet::recover(adapter, &other.node, Reason::Dependent);
            }
        }
    }
}

impl Dependent {
    /// Asks a node to come off what it runs.
    fn begin(adapter: &Arc<Miniport>, node: Arc<Node>) -> Self {
        if !node.is_hardware_scheduled {
            node.packet.preempt(adapter);
            return Self { node, contexts: Vec::new() };
        }
        let here = HwContext::all_of(adapter).into_iter().filter(|context| context.node() == node.ordinal);
        // A context that is off the run list, or about to be, is resumed by the thread that takes it off.
        let suspended = |context: &Arc<HwContext>| {
            let Some(_held) = context.hold_now() else { return false };
            let runs = context.acknowledges() && !context.is_suspended() && !context.is_suspending();
            runs && context.device().usable().is_ok() && context.suspend() != Suspend::Failed
        };
        Self { contexts: here.filter(suspended).collect(), node }
    }

    /// Returns whether the node has come off.
    fn is_off(&self) -> bool {
        if self.node.is_hardware_scheduled {
            return !self.contexts.iter().any(|context| context.is_suspending());
        }
        self.node.packet.preempting_since().is_none()
    }

    /// Waits for that until `deadline`.
    fn comes_off(&self, adapter: &Miniport, deadline: nt_model::sched::Ticks) -> bool {
        let kernel = adapter.kernel();
        if !self.node.is_hardware_scheduled {
            let off = || self.is_off().then_some(());
            return self.node.packet.changed.wait_for(kernel, Some(deadline), off).is_some();
        }
        self.contexts.iter().all(|context| {
            let off = || (!context.is_suspending()).then_some(());
            context.changed.wait_for(kernel, Some(deadline), off).is_some()
        })
    }

    /// What was suspended runs on.
    fn resume(&self) {
        for context in &self.contexts {
            let Some(_held) = context.hold_now() else { continue };
            if context.acknowledges() && context.device().usable().is_ok() {
                context.resume_early();
            }
        }
    }
}
