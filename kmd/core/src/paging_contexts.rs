//! Which context the packets are taken to be of that the OS submits without one.
//!
//! Every system context of the paging process has an address space, and a root page table, of its own. A packet without
//! a context (`hContext` is NULL) is the paging process's, and no page says which of its contexts' tables translate it
//! where there are several. Here it is the context made last of those that are alive and have a root page table: the
//! newest one is what the OS has set up for now, and before SetRootPageTable nothing can run in it. When that one goes,
//! the one made before it serves.
//!
//! Source: `DxgkDdiSubmitCommandVirtual`, `hContext`; `DxgkDdiSetRootPageTable`.

use crate::status::{Error, Result};
use alloc::vec::Vec;
use core::marker::PhantomData;
use gpu_engine::host::Lock;

/// The system contexts that are alive, in the order in which they were made.
pub struct PagingContexts<S, L> {
    alive: L,
    marker: PhantomData<fn() -> S>,
}

impl<S: Clone + Send, L: Lock<Vec<S>>> PagingContexts<S, L> {
    /// None.
    pub fn new() -> Self {
        Self { alive: L::new(Vec::new()), marker: PhantomData }
    }

    /// Adds a new context. Up to `DISPATCH_LEVEL`.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn add(&self, context: S) -> Result<()> {
        self.alive.with(|alive| {
            alive.try_reserve(1).map_err(|_| Error::NoMemory)?;
            alive.push(context);
            Ok(())
        })
    }

    /// The context of packets without one: the newest that is `usable`, or else the newest. `None` where
    /// no system context is alive. `usable` runs under the lock. Up to `DISPATCH_LEVEL`.
    pub fn current(&self, mut usable: impl FnMut(&S) -> bool) -> Option<S> {
        self.alive.with(|alive| alive.iter().rfind(|context| usable(context)).or(alive.last()).cloned())
    }

    /// Takes out every context that is `gone`. `PASSIVE_LEVEL`: the last references may fall here, and do so
    /// outside of the lock.
    pub fn remove(&self, mut gone: impl FnMut(&S) -> bool) {
        // One at a time: what is taken out is dropped without the lock, and no list is made for it.
        while let Some(context) = self.alive.with(|alive| {
            let at = alive.iter().position(&mut gone)?;
            Some(alive.remove(at))
        }) {
            drop(context);
        }
    }
}

impl<S: Clone + Send, L: Lock<Vec<S>>> Default for PagingContexts<S, L> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::PagingContexts;
    use gpu_engine::host::Lock;
    use std::sync::{Arc, Mutex};
    use std::vec::Vec;

    struct StdLock<T>(Mutex<T>);

    impl<T: Send> Lock<T> for StdLock<T> {
        fn new(value: T) -> Self {
            Self(Mutex::new(value))
        }
        fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
            f(&mut self.0.lock().unwrap())
        }
    }

    type Spaces = PagingContexts<Arc<u32>, StdLock<Vec<Arc<u32>>>>;

    fn spaces(of: &[&Arc<u32>]) -> Spaces {
        let spaces = Spaces::new();
        for space in of {
            spaces.add(Arc::clone(space)).unwrap();
        }
        spaces
    }

    #[test]
    fn packets_without_a_context_run_in_the_newest_space_that_is_alive() {
        let (first, second, third) = (Arc::new(1), Arc::new(2), Arc::new(3));
        let spaces = spaces(&[&first, &second, &third]);
        assert_eq!(spaces.current(|_| true).as_deref(), Some(&3));
        spaces.remove(|space| Arc::ptr_eq(space, &third));
        assert_eq!(spaces.current(|_| true).as_deref(), Some(&2), "a living context serves");
        // One that goes while it does not serve changes nothing.
        spaces.remove(|space| Arc::ptr_eq(space, &first));
        assert_eq!(spaces.current(|_| true).as_deref(), Some(&2));
        spaces.remove(|space| Arc::ptr_eq(space, &second));
        assert_eq!(spaces.current(|_| true), None);
        for space in [first, second, third] {
            assert_eq!(Arc::strong_count(&space), 1, "no reference is kept");
        }
    }

    #[test]
    fn a_space_without_a_root_serves_only_where_none_has_one() {
        let (first, second) = (Arc::new(1), Arc::new(2));
        let spaces = spaces(&[&first, &second]);
        assert_eq!(spaces.current(|space| **space == 1).as_deref(), Some(&1), "the newest has no root yet");
        assert_eq!(spaces.current(|_| false).as_deref(), Some(&2), "no one has");
    }

    #[test]
    fn a_process_that_goes_takes_its_spaces_along_and_no_other() {
        let (its, others) = (Arc::new(1), Arc::new(2));
        let spaces = spaces(&[&others, &its, &its]);
        spaces.remove(|space| **space == 1);
        assert_eq!((spaces.current(|_| true).as_deref(), Arc::strong_count(&its)), (Some(&2), 1));
    }
}
