//! Waiting until the engines have let go of what the OS is about to free.
//!
//! "Destroyed" is said when it is true, however long that takes: an engine that is late would read or write pages that
//! the OS has given to others. Engines look up every 50 µs of work, whatever a packet says; so a wait is long only
//! where their threads do not run at all. An engine that a test has broken (`FaultWedgeAt`) touches nothing, and is not
//! waited for.

use crate::adapter::{EngineHost, Started};
use crate::irql::Passive;
use crate::platform::Platform;
use gpu_engine::mutation::Mutation;
use gpu_engine::node::Phase;
use gpu_engine::queue::Queue;
use gpu_wire::NodeOrdinal;

/// Drops every translation of the process with that number, and returns when no engine has any mapped. Nothing of the
/// process runs, or what runs has no root page table that is to go.
pub fn translations<P: Platform>(irql: &Passive, started: &Started<P>, process: u64) {
    flushed(irql, started, started.gpu.flush(process, 0, 0));
}

/// Returns when every engine has served that flush.
pub fn flushed<P: Platform>(irql: &Passive, started: &Started<P>, flush: u64) {
    wait(irql, started, || started.gpu.flush_done(flush));
}

/// Returns when the engine is off a queue that was destroyed.
pub fn queue<P: Platform>(irql: &Passive, started: &Started<P>, queue: &Queue<EngineHost<P>>) {
    let mutation = &started.gpu.mutation;
    wait(irql, started, || mutation.is(Mutation::LeavesBusyQueue) || !started.gpu.is_on(queue));
}

/// Returns when the engine touches no ring of a queue any more that it had before the last change of them.
pub fn rings<P: Platform>(irql: &Passive, started: &Started<P>, queue: &Queue<EngineHost<P>>) {
    let mutation = &started.gpu.mutation;
    wait(irql, started, || mutation.is(Mutation::LeavesRing) || !started.gpu.is_on(queue) || queue.is_off_rings());
}

/// Returns when the engine of `node`, which was told to hold or to stop, has let go of everything.
pub fn held<P: Platform>(irql: &Passive, started: &Started<P>, node: NodeOrdinal) {
    let Some(engine) = started.gpu.node(node) else { return };
    let leaves = started.gpu.mutation.is(Mutation::LeavesHeldEngine);
    let is_off = || engine.phase() != Phase::Running || engine.is_wedged() || leaves;
    wait(irql, started, is_off);
}

/// Returns when `done`, which an engine makes true.
fn wait<P: Platform>(irql: &Passive, started: &Started<P>, done: impl FnMut() -> bool) {
    started.gpu.host.answers().wait(irql, &started.platform, None, done);
}
