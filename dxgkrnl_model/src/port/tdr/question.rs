//! What a driver reports while it is asked for a packet node's current fence.

use std::cell::Cell;

use crate::port::miniport::Miniport;

/// A call of `DxgkDdiQueryCurrentFence`.
#[derive(Clone, Copy, Debug)]
struct Question {
    /// Address of the adapter.
    adapter: usize,
    node: u32,
    /// The last packet of the node that the driver has reported in the call, on the thread that makes it.
    reported: Option<u32>,
}

thread_local! {
    /// The call that this thread makes.
    static QUESTION: Cell<Option<Question>> = const { Cell::new(None) };
}

/// Notes that the driver has reported a packet. What it reports from a synchronized routine may be in answer to a
/// question of this thread.
///
/// IRQL: the device's.
pub(crate) fn note_reported(adapter: &Miniport, node: u32, fence: u32) {
    QUESTION.with(|question| {
        let asked = question.get().filter(|asked| asked.adapter == core::ptr::from_ref(adapter).addr());
        if let Some(asked) = asked.filter(|asked| asked.node == node && !crate::port::section::in_isr()) {
            question.set(Some(Question { reported: Some(fence), ..asked }));
        }
    });
}

/// The calling thread asks for the current fence of a node.
pub(crate) fn begin(adapter: &Miniport, node: u32) {
    QUESTION.set(Some(Question { adapter: core::ptr::from_ref(adapter).addr(), node, reported: None }));
}

/// The answer is there. Returns the last packet of the node that the driver has reported meanwhile, on this thread.
pub(crate) fn end() -> Option<u32> {
    QUESTION.take().and_then(|asked| asked.reported)
}
