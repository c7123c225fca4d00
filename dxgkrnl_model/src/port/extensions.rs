//! What the layers of the model keep of an adapter or of a machine: one value of each type.

use std::any::{Any, TypeId};
use std::sync::OnceLock;

struct Link {
    id: TypeId,
    value: Box<dyn Any + Send + Sync>,
    next: OnceLock<Box<Link>>,
}

/// One value of each type that was asked for. A value stays where it is, and is found without a lock.
#[derive(Default)]
pub(crate) struct Extensions {
    first: OnceLock<Box<Link>>,
}

impl Extensions {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The value of type `T`; made when it is first asked for.
    pub(crate) fn get<T: Any + Default + Send + Sync>(&self) -> &T {
        let mut at = &self.first;
        let id = TypeId::of::<T>();
        let link = || Box::new(Link { id, value: Box::new(T::default()), next: OnceLock::new() });
        loop {
            let found = at.get_or_init(link);
            if found.id == id
                && let Some(value) = found.value.downcast_ref()
            {
                return value;
            }
            at = &found.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    #[test]
    fn each_type_has_one_value_that_stays() {
        let extensions = Extensions::new();
        extensions.get::<AtomicU32>().store(7, Ordering::Relaxed);
        let first = core::ptr::from_ref(extensions.get::<AtomicU32>());
        assert_eq!(extensions.get::<AtomicU64>().load(Ordering::Relaxed), 0);
        assert_eq!(extensions.get::<AtomicU32>().load(Ordering::Relaxed), 7);
        assert!(core::ptr::eq(first, extensions.get::<AtomicU32>()));
    }

    #[test]
    fn threads_that_ask_at_once_get_the_same_value() {
        let extensions = Extensions::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    extensions.get::<AtomicU32>().fetch_add(1, Ordering::Relaxed);
                    extensions.get::<AtomicU64>().fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(extensions.get::<AtomicU32>().load(Ordering::Relaxed), 4);
        assert_eq!(extensions.get::<AtomicU64>().load(Ordering::Relaxed), 4);
    }
}
