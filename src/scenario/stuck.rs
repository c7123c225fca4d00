//! A thread of the driver's that stays in the kernel.

use super::Scene;
use nt_model::ThreadKind;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The thread that is held.
#[derive(Default)]
struct State {
    /// Its number, once it has come.
    held: Option<u64>,
    is_over: bool,
}

/// Holds the first thread of the driver's that maps pages, in the call by which it does so.
pub struct Stuck<'a> {
    scene: &'a Scene,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl<'a> Stuck<'a> {
    /// Holds the first that comes.
    pub fn new(scene: &'a Scene) -> Self {
        let state = Arc::new((Mutex::new(State::default()), Condvar::new()));
        let of = state.clone();
        scene.world.os.kernel().set_at_mapping(Some(Arc::new(move |thread| {
            if !matches!(thread.kind(), ThreadKind::System | ThreadKind::NativeSystem) {
                return;
            }
            let (state, over) = &*of;
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            if *state.held.get_or_insert(thread.id()) == thread.id() {
                let held = over.wait_while(state, |state| !state.is_over);
                drop(held.unwrap_or_else(PoisonError::into_inner));
            }
        })));
        Self { scene, state }
    }

    /// Returns whether one has come.
    pub fn has_come(&self) -> bool {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner).held.is_some()
    }

    /// The thread goes on, and no other is held.
    pub fn let_go(&self) {
        self.scene.world.os.kernel().set_at_mapping(None);
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
        self.state.1.notify_all();
    }
}

impl Drop for Stuck<'_> {
    fn drop(&mut self) {
        self.let_go();
    }
}
