//! What a layer has done by one above it.

use std::sync::OnceLock;

use crate::port::miniport::Miniport;

/// A function that a layer above enters for an adapter, once and before it is needed. Each has a type of its own, by
/// which it is found.
#[derive(Debug)]
pub(crate) struct Hook<F>(OnceLock<F>);

impl<F> Default for Hook<F> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<F: Copy + Send + Sync + 'static> Hook<F> {
    /// The layer above enters what it does.
    pub(crate) fn enter(adapter: &Miniport, what: F) {
        let Self(slot) = adapter.extension();
        slot.get_or_init(|| what);
    }

    /// What was entered. `None`: the adapter has not started.
    pub(crate) fn of(adapter: &Miniport) -> Option<F> {
        let Self(slot) = adapter.extension();
        slot.get().copied()
    }
}
