//! What a process may have: the setting `ObjectsPerProcess`.
//!
//! What is made on a device counts for the device's process while it is there. A fence or an allocation has no device:
//! the DDI that makes it does not say for whom. It is opened for the process that asked for it before anybody else can
//! name it, so whoever opens it first has it counted until it is destroyed, also when no device has it open any more
//! and an NT handle keeps it. Later openings count for those who open, and leave nothing behind: a process that opens
//! what another one shares pays for its own opening alone.

use crate::status::{Error, Result};
use core::sync::atomic::{AtomicU32, Ordering};
use gpu_engine::host::Lock;
use gpu_engine::shared::Shared;

/// How many objects a process has, and how many it may have. All of it up to `DISPATCH_LEVEL` and without a lock.
pub struct Account {
    objects: AtomicU32,
    most: u32,
}

impl Account {
    /// For a process that may have `most` objects.
    pub fn new(most: u32) -> Self {
        Self { objects: AtomicU32::new(0), most }
    }

    /// Counts an object more. A process that has as many as it may gets no more, so that what it takes of the driver's
    /// tables, and of the memory that is never paged, leaves enough for others.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn add(&self) -> Result<()> {
        let more = |count: u32| count.checked_add(1).filter(|count| *count <= self.most);
        let counted = self.objects.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        counted.map(drop).map_err(|_| Error::NoMemory)
    }

    /// Counts `count` objects less.
    pub fn remove(&self, count: u32) {
        let less = |objects: u32| Some(objects.saturating_sub(count));
        // Cannot fail: the closure always has an answer.
        let _before = self.objects.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

/// An object that is counted until this is dropped.
pub struct Charge(Shared<Account>);

impl Charge {
    /// Counts an object more.
    ///
    /// # Errors
    /// As [`Account::add`].
    pub fn new(account: &Shared<Account>) -> Result<Self> {
        account.add()?;
        Ok(Self(account.clone()))
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.0.remove(1);
    }
}

/// Whose an object is that is on no device: `L` guards who has it counted.
pub struct Owned<L> {
    owner: L,
}

impl<L: Lock<Option<Charge>>> Owned<L> {
    /// Nobody's yet.
    pub fn new() -> Self {
        Self { owner: L::new(None) }
    }

    /// `account` opens the object: the first that does has it counted. Up to `DISPATCH_LEVEL`.
    ///
    /// # Errors
    /// As [`Account::add`]; the object stays nobody's.
    pub fn open(&self, account: &Shared<Account>) -> Result<()> {
        if self.owner.with(|owner| owner.is_some()) {
            return Ok(());
        }
        let charge = Charge::new(account)?;
        // One of two that open it at once; the other's is given back, outside of the lock.
        let spare = self.owner.with(|owner| {
            if owner.is_some() {
                return Some(charge);
            }
            *owner = Some(charge);
            None
        });
        drop(spare);
        Ok(())
    }

    /// The object is destroyed. Up to `DISPATCH_LEVEL`.
    pub fn end(&self) {
        drop(self.owner.with(Option::take));
    }
}

impl<L: Lock<Option<Charge>>> Default for Owned<L> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::{Account, Charge, Owned};
    use crate::status::Error;
    use gpu_engine::host::Lock;
    use gpu_engine::shared::Shared;
    use std::sync::Mutex;
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

    fn account(most: u32) -> Shared<Account> {
        Shared::try_new(Account::new(most)).unwrap()
    }

    /// Objects that can still be counted.
    fn left(account: &Shared<Account>) -> usize {
        let mut charges = Vec::new();
        while let Ok(charge) = Charge::new(account) {
            charges.push(charge);
        }
        charges.len()
    }

    #[test]
    fn a_process_has_as_many_objects_as_it_may_and_no_more() {
        let its = account(2);
        let first = Charge::new(&its).unwrap();
        let second = Charge::new(&its).unwrap();
        assert!(matches!(Charge::new(&its), Err(Error::NoMemory)));
        drop(first);
        let third = Charge::new(&its).unwrap();
        drop((second, third));
        assert_eq!(left(&its), 2);
        // A count that was given back twice is not less than none.
        its.remove(7);
        assert_eq!(left(&its), 2);
    }

    #[test]
    fn who_opens_an_object_first_has_it_counted_until_it_is_destroyed() {
        let (first, later) = (account(2), account(2));
        let object = Owned::<StdLock<Option<Charge>>>::new();
        assert_eq!((left(&first), left(&later)), (2, 2), "no one has it yet");
        for _ in 0..3 {
            object.open(&first).unwrap();
            object.open(&later).unwrap();
        }
        assert_eq!((left(&first), left(&later)), (1, 2));
        object.end();
        assert_eq!((left(&first), left(&later)), (2, 2));
    }

    #[test]
    fn a_full_account_opens_what_is_anothers_and_owns_nothing() {
        let (full, other) = (account(0), account(1));
        let object = Owned::<StdLock<Option<Charge>>>::new();
        assert_eq!(object.open(&full), Err(Error::NoMemory));
        object.open(&other).unwrap();
        object.open(&full).unwrap();
    }
}
