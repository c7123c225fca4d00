//! VidSch: nodes, and what is submitted to them.
//!
//! On the adapter's worker ([`crate::port::worker`]), whose round [`crate::recovery`] says, buffers are submitted,
//! waits and signals of queues that the OS schedules are carried out, and contexts share a packet node ([`cadence`]).

mod cadence;
pub(crate) mod dpc;
pub(crate) mod journal;
pub(crate) mod packet;
mod usage;

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use wddm_abi::DXGKARG_SETUPPRIORITYBANDS;

use crate::memory::completion::{self, Completion};
use crate::memory::paging::PagingContext;
use crate::objects::context::{Context, Retire};
use crate::objects::hw_context::HwContext;
use crate::objects::hw_queue::HwQueue;
use crate::port::caps::Caps;
use crate::port::ddi::{self, call_ddi};
use crate::port::hook::Hook;
use crate::port::miniport::Miniport;
use crate::port::personality::{Departure, PacketCap};
use crate::port::place::Place;
use crate::port::sync::{Lock, Rank};
use crate::port::worker::Worker;
use packet::{PacketNode, PagingBuffer};
use usage::PacketUse;

/// A node.
#[derive(Debug)]
pub(crate) struct Node {
    /// Its number on the adapter.
    pub(crate) ordinal: u32,
    /// As the driver knows it.
    pub(crate) place: Place,
    /// The GPU schedules contexts itself: no packets.
    pub(crate) is_hardware_scheduled: bool,
    pub(crate) packet: PacketNode,
    cadence: Lock<cadence::Cadence>,
    /// How long packets ran.
    pub(crate) usage: Lock<PacketUse>,
}

/// VidSch of an adapter.
pub(crate) struct VidSch {
    nodes: Lock<Vec<Arc<Node>>>,
    system: Lock<Option<Arc<Context>>>,
    paging: Lock<VecDeque<PagingBuffer>>,
    /// The number of the newest paging buffer.
    paging_number: AtomicU64,
    /// The queue that is looked at first, where a node's queues share a number of buffers.
    turn: AtomicUsize,
    /// Paging is refused: see [`lose_system`](Self::lose_system).
    system_lost: AtomicBool,
}

impl std::fmt::Debug for VidSch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VidSch").finish_non_exhaustive()
    }
}

impl Default for VidSch {
    fn default() -> Self {
        Self::new()
    }
}

impl VidSch {
    /// That of an adapter.
    pub(crate) fn of(adapter: &Miniport) -> &Self {
        adapter.extension()
    }

    fn new() -> Self {
        Self {
            nodes: Lock::new(Rank::Registry, Vec::new()),
            system: Lock::new(Rank::Registry, None),
            paging: Lock::new(Rank::Leaf, VecDeque::new()),
            paging_number: AtomicU64::new(0),
            turn: AtomicUsize::new(0),
            system_lost: AtomicBool::new(false),
        }
    }

    /// Makes the nodes.
    pub(crate) fn start(&self, adapter: &Arc<Miniport>, caps: &Arc<Caps>) {
        Hook::<Retire>::enter(adapter, |adapter, context| Self::of(adapter).retire_context(adapter, context));
        let crate::port::personality::Preemption { seed, submitted, .. } = adapter.personality().preemption;
        let node = |(ordinal, info): (u32, &crate::port::caps::NodeInfo)| {
            Arc::new(Node {
                ordinal,
                place: info.place,
                is_hardware_scheduled: info.is_hardware_scheduled(),
                packet: PacketNode::new(ordinal, info.place, submitted),
                cadence: Lock::new(Rank::Leaf, cadence::Cadence::new(seed, ordinal)),
                usage: Lock::new(Rank::Leaf, PacketUse::default()),
            })
        };
        *self.nodes.lock() = (0..).zip(&caps.nodes).map(node).collect();
    }

    /// The worker has ended: what it had is given up.
    pub(crate) fn stop(&self, adapter: &Arc<Miniport>) {
        let paging = std::mem::take(&mut *self.paging.lock());
        for buffer in paging {
            buffer.completion.end(adapter.kernel(), false);
        }
        let nodes = std::mem::take(&mut *self.nodes.lock());
        drop(nodes);
        Context::leave_nodes(adapter);
        Worker::of(adapter).forget();
    }

    /// A node by number.
    pub(crate) fn node(&self, ordinal: u32) -> Option<Arc<Node>> {
        self.nodes.lock().get(ordinal as usize).cloned()
    }

    /// A node by what the driver calls it.
    ///
    /// IRQL: any.
    pub(crate) fn node_at(&self, place: Place) -> Option<Arc<Node>> {
        self.nodes.lock().iter().find(|node| node.place == place).cloned()
    }

    /// All nodes.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        self.nodes.lock().clone()
    }

    pub(crate) fn set_system_context(&self, context: &Arc<Context>) {
        *self.system.lock() = Some(context.clone());
    }

    /// The context of the paging process, while the adapter is started.
    pub(crate) fn system_context(&self) -> Option<Arc<Context>> {
        self.system.lock().clone()
    }

    pub(crate) fn clear_system_context(&self) {
        let old = self.system.lock().take();
        drop(old);
    }

    /// Submits a paging buffer: see [`Submit`](crate::memory::paging::Submit).
    pub(crate) fn submit_paging(
        &self,
        adapter: &Miniport,
        companion: Option<&Arc<dyn PagingContext>>,
        (address, size): (u64, usize),
        (private, private_size): (usize, usize),
        refers: Arc<[usize]>,
    ) -> Option<Arc<Completion>> {
        let companion = companion.map(|companion| {
            let companion: Arc<dyn Any + Send + Sync> = companion.clone();
            companion.downcast::<Context>()
        });
        let Ok(companion) = companion.transpose() else { return None };
        let present = self.system.lock().is_some() && !self.system_lost.load(Ordering::Acquire);
        if !present || Worker::of(adapter).is_stopping() {
            return None;
        }
        let completion = Completion::new();
        let mut paging = self.paging.lock();
        let number = self.paging_number.fetch_add(1, Ordering::Relaxed) + 1;
        paging.push_back(PagingBuffer {
            number,
            address,
            // CAST: paging buffers are far smaller than 4 GiB.
            size: size as u32,
            private,
            private_size: private_size as u32,
            companion,
            refers,
            id: None,
            again: false,
            completion: completion.clone(),
        });
        drop(paging);
        Worker::of(adapter).kick(adapter);
        Some(completion)
    }

    /// The system device is in error from here on, as no Windows has it: [`Departure::LosesTheSystem`].
    ///
    /// [`Departure::LosesTheSystem`]: crate::port::personality::Departure::LosesTheSystem
    pub(crate) fn lose_system(&self) {
        self.system_lost.store(true, Ordering::Release);
    }

    /// Ends every paging buffer as lost: the driver does not.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn give_up_paging(&self, adapter: &Miniport) {
        for node in self.nodes() {
            node.packet.give_up_paging(adapter.kernel());
        }
        let queued = std::mem::take(&mut *self.paging.lock());
        for buffer in queued {
            buffer.completion.end(adapter.kernel(), false);
        }
    }

    /// Takes out the oldest paging buffer of a context on this node.
    fn next_paging(&self, system: &Arc<Context>, node: u32) -> Option<PagingBuffer> {
        let mut paging = self.paging.lock();
        let at = paging.iter().position(|buffer| is_of_node(buffer, system, node))?;
        paging.remove(at)
    }

    /// Returns whether a paging buffer waits for this node.
    fn has_paging(&self, node: u32) -> bool {
        let system = self.system_context();
        system.is_some_and(|system| self.paging.lock().iter().any(|buffer| is_of_node(buffer, &system, node)))
    }

    /// An adapter reset has moved the last completed fences on to those that were submitted last: what was given back
    /// before it gets new ids. How many paging buffers wait.
    pub(crate) fn forget_paging_ids(&self) -> usize {
        let mut paging = self.paging.lock();
        paging.iter_mut().for_each(|buffer| buffer.id = None);
        paging.len()
    }

    /// Returns whether a paging buffer of `node` waits that stands before the one with this number. `context`: the
    /// context of that one.
    pub(crate) fn has_paging_before(&self, number: u64, node: u32, context: &Arc<Context>) -> bool {
        // Of the system context, without a companion, are those of the node that pages.
        let is_here = |buffer: &PagingBuffer| match &buffer.companion {
            Some(companion) => companion.node() == node,
            None => context.node() == node,
        };
        self.paging.lock().iter().any(|buffer| buffer.number < number && is_here(buffer))
    }

    /// Puts a paging buffer that the driver gave back, or did not get, at its place.
    pub(crate) fn return_paging(&self, buffer: PagingBuffer) {
        let mut paging = self.paging.lock();
        let at = paging.iter().position(|other| other.number > buffer.number).unwrap_or(paging.len());
        paging.insert(at, buffer);
    }

    /// Whether a context of the node has this handle, in Dxgkrnl's numbers or in the driver's.
    pub(crate) fn has_context(&self, adapter: &Miniport, node: u32, handle: usize) -> bool {
        let is_meant = |context: Arc<Context>| context.node() == node && context.has_handle(handle);
        Context::on_node(adapter, node).into_iter().chain(self.system_context()).any(is_meant)
    }

    /// Waits until no buffer of a context is with the driver. A paging buffer that does not end is waited for as
    /// [`Completion::wait`] does. Others are preempted when they take TdrDelay: what comes back is not submitted again,
    /// since the context takes nothing any more.
    ///
    /// IRQL: PASSIVE_LEVEL.
    fn retire_context(&self, adapter: &Arc<Miniport>, context: &Arc<Context>) {
        if let Some(node) = self.node(context.node()) {
            let over = || (!node.packet.has_buffers_of(context) || !adapter.is_working()).then_some(());
            let is_paging = self.system_context().is_some_and(|system| Arc::ptr_eq(&system, context));
            if is_paging {
                completion::owed(adapter, &node.packet.changed, over);
            } else {
                let kernel = adapter.kernel();
                let limit = || Some(kernel.now() + adapter.personality().tdr.delay);
                while node.packet.changed.wait_for(kernel, limit(), over).is_none() && !kernel.rules.is_stopped() {
                    let (node, context) = (node.clone(), context.clone());
                    let preempt = move |adapter: &Arc<Miniport>| {
                        if node.packet.has_buffers_of(&context) {
                            node.packet.preempt(adapter);
                        }
                    };
                    Worker::of(adapter).defer(adapter, Box::new(preempt));
                }
            }
        }
    }

    /// Returns whether a node has work that the kernel has submitted, or is about to.
    pub(crate) fn has_work(&self, adapter: &Miniport, node: u32) -> bool {
        let in_queues = || {
            let queues = HwQueue::all_of(adapter).into_iter();
            queues.filter(|queue| queue.context().node() == node).any(|queue| queue.has_flights())
        };
        self.node(node).is_some_and(|node| node.packet.oldest().is_some()) || in_queues()
    }

    /// Tells the driver the quanta of priority bands, when it schedules in hardware.
    ///
    /// Chosen: the numbers that the documents leave open (100 ns units: 10 ms grace, and none for the real-time band,
    /// as is typical; 40 ms quantum). The normal band's share is the default of desktop systems, 10 %. `change` changes
    /// them.
    pub(crate) fn set_priority_bands(
        &self,
        adapter: &Arc<Miniport>,
        change: impl FnOnce(&mut DXGKARG_SETUPPRIORITYBANDS),
    ) {
        if !adapter.known_caps().has_hardware_scheduling() {
            return;
        }
        let mut arguments = DXGKARG_SETUPPRIORITYBANDS::zeroed();
        arguments.gracePeriodForBand = [100_000, 100_000, 100_000, 0];
        arguments.processQuantumForBand = [400_000; 4];
        arguments.processGracePeriodForBand = [100_000; 4];
        arguments.targetNormalBandPercentage = 10;
        change(&mut arguments);
        let (miniport, pointer) = (adapter.context(), &raw const arguments);
        let status = ddi::status(call_ddi!(adapter, DxgkDdiSetupPriorityBands(miniport, pointer)));
        adapter.judge_resume("DxgkDdiSetupPriorityBands", status);
    }

    /// Hands over work of the nodes but for those that a reset is about, by their ordinals, between its steps.
    ///
    /// IRQL: PASSIVE_LEVEL; on the worker.
    pub(crate) fn pump_beside(&self, adapter: &Arc<Miniport>, but: &[u32]) {
        if !adapter.personality().departs(Departure::StopsBesideResets) {
            self.pump_but(adapter, but);
        }
    }

    pub(crate) fn pump(&self, adapter: &Arc<Miniport>) {
        self.pump_but(adapter, &[]);
    }

    /// Hands over work of every node but for these.
    fn pump_but(&self, adapter: &Arc<Miniport>, but: &[u32]) {
        for node in self.nodes().into_iter().filter(|node| !but.contains(&node.ordinal)) {
            if !node.is_hardware_scheduled {
                self.pump_packets(adapter, &node);
            }
        }
        let mut queues = HwQueue::all_of(adapter);
        queues.retain(|queue| !but.contains(&queue.context().node()));
        if adapter.personality().packet_cap == PacketCap::Nodes && !queues.is_empty() {
            // The room of a node goes to another queue first each time.
            let first = self.turn.fetch_add(1, Ordering::Relaxed) % queues.len();
            queues.rotate_left(first);
        }
        for queue in queues {
            queue.pump(adapter);
        }
        for context in HwContext::all_of(adapter).into_iter().filter(|context| !but.contains(&context.node())) {
            context.commands().pump(adapter, || false, |_| (), |_| ());
        }
    }
}

fn is_of_node(buffer: &PagingBuffer, system: &Arc<Context>, node: u32) -> bool {
    buffer.companion.as_ref().unwrap_or(system).node() == node
}
