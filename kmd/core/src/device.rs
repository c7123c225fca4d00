//! Devices. Source: `DxgkDdiCreateDevice`, `DxgkDdiDestroyDevice`.
//!
//! A device remembers what was made on it. A process that dies abruptly may get DestroyDevice without a destroy call
//! for everything else; then the device runs down what is left, and a destroy call that comes late finds a dead handle.

use crate::adapter::{Counted, Started};
use crate::handle::{Handle, Tag, object};
use crate::irql::Passive;
use crate::platform::Platform;
use crate::process::Process;
use crate::quota::Charge;
use crate::status::{Error, Result};
use alloc::vec::Vec;
use gpu_engine::host::Lock;
use gpu_engine::mutation::Mutation;
use gpu_engine::shared::Shared;

/// A device of a process.
pub struct Device<P: Platform> {
    /// The process that the device is of.
    pub process: Shared<Process<P>>,
    /// Dxgkrnl's handle.
    pub os: u64,
    /// What was made on it and not destroyed yet.
    children: P::Lock<Children>,
    /// The device itself counts as an object of its process.
    _charge: Charge,
    /// Counted in the census, and a reference to the adapter.
    pub counted: Counted<P>,
}

object!(Device: Device<P>);

/// An object on a device.
struct Child {
    tag: Tag,
    handle: Handle,
    /// The function that destroys or closes it.
    destroy: fn(&Passive, Handle) -> Result<()>,
}

/// What was made on a device and not destroyed yet; `None` once the device is being destroyed.
struct Children(Option<Vec<Child>>);

impl Children {
    fn new() -> Self {
        Self(Some(Vec::new()))
    }

    /// # Errors
    /// [`Error::NoMemory`], the error that every DDI which makes such an object lists, also when the device is being
    /// destroyed: nobody would run the object down any more.
    fn add(&mut self, child: Child) -> Result<()> {
        let children = self.0.as_mut().ok_or(Error::NoMemory)?;
        children.try_reserve(1).map_err(|_| Error::NoMemory)?;
        children.push(child);
        Ok(())
    }

    /// Returns whether `handle` was among them.
    fn remove(&mut self, handle: Handle) -> bool {
        let Some(children) = &mut self.0 else { return false };
        let at = children.iter().position(|child| child.handle == handle);
        at.map(|at| children.swap_remove(at)).is_some()
    }

    /// What is left; no more are added.
    fn close(&mut self) -> Vec<Child> {
        self.0.take().unwrap_or_default()
    }
}

/// In which order a device runs down its objects: users before what they use. Allocations that it has open are not
/// among them: Dxgkrnl closes each, of a process that was terminated behind the device's destruction.
const RUN_DOWN: [Tag; 5] = [Tag::Doorbell, Tag::HwQueue, Tag::HwContext, Tag::Context, Tag::LocalFence];

impl<P: Platform> Device<P> {
    /// Creates a device of `process`.
    ///
    /// # Errors
    /// [`Error::NoMemory`] is the only one that the DDI lists besides success. It is also the answer to a process that
    /// has as many objects as it may.
    pub fn create(
        _irql: &Passive,
        started: &Shared<Started<P>>,
        process: Shared<Process<P>>,
        os: u64,
    ) -> Result<Handle> {
        let counted = Counted::new(started.clone(), |c| &c.devices);
        let children = P::Lock::new(Children::new());
        let _charge = Charge::new(&process.account)?;
        let device = Shared::try_new(Self { process, os, children, _charge, counted })?;
        Ok(Handle::create(device)?)
    }

    /// Remembers an object that was just made, with the function that destroys it where nothing else has.
    ///
    /// # Errors
    /// [`Error::NoMemory`], also when the process has as many objects as it may or the device is being destroyed; the
    /// caller destroys the object.
    pub(crate) fn adopt(&self, tag: Tag, handle: Handle, destroy: fn(&Passive, Handle) -> Result<()>) -> Result<()> {
        self.process.account.add()?;
        let adopted = self.children.with(|children| children.add(Child { tag, handle, destroy }));
        adopted.inspect_err(|_| self.process.account.remove(1))
    }

    /// Forgets an object that is being destroyed.
    pub(crate) fn disown(&self, handle: Handle) {
        if self.children.with(|children| children.remove(handle)) {
            self.process.account.remove(1);
        }
    }

    /// Destroys the device, and what was made on it and not destroyed.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`].
    pub fn destroy(irql: &Passive, handle: Handle) -> Result<()> {
        let device = handle.take::<Self>()?;
        let left = device.children.with(Children::close);
        // CAST: no more than the process was allowed.
        device.process.account.remove(left.len() as u32);
        for tag in RUN_DOWN {
            if tag == Tag::Doorbell && device.counted.started.gpu.mutation.is(Mutation::KeepsDoorbells) {
                continue;
            }
            for child in left.iter().filter(|child| child.tag == tag) {
                // A handle that died meanwhile is refused, which is what is wanted.
                let _gone = (child.destroy)(irql, child.handle);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Child, Children};
    use crate::handle::{Handle, Tag};
    use crate::status::Error;

    fn child(number: u64) -> Child {
        Child { tag: Tag::Context, handle: Handle::from_raw(number), destroy: |_, _| Ok(()) }
    }

    /// An object may be made on a device that another thread destroys: it is run down with the rest, or is refused.
    #[test]
    fn a_device_that_is_being_destroyed_takes_no_object_that_nobody_would_destroy() {
        let mut children = Children::new();
        for number in [1, 2] {
            children.add(child(number)).unwrap();
        }
        assert!(children.remove(Handle::from_raw(1)) && !children.remove(Handle::from_raw(1)));
        let left = children.close();
        assert!(left.iter().map(|child| child.handle.raw()).eq([2]));
        assert_eq!(children.add(child(3)), Err(Error::NoMemory));
        // Counted out with what was left: not once more.
        assert!(!children.remove(Handle::from_raw(2)) && children.close().is_empty());
    }
}
