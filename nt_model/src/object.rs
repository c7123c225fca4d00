//! The object manager: reference counts and kernel handles.
//!
//! Drivers hold object addresses and handles; both are looked up here, never trusted. An entry leaves the table when
//! its last reference goes.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::cpu::Site;
use crate::dispatcher::Event;
use crate::kernel::Machine;
use crate::records::DispatcherHeader;
use crate::routines;
use crate::rules::Details;
use crate::rules_nt::{NT_HANDLE, NT_REFERENCE};
use crate::thread::Thread;

/// Kernel handles have their top bits set.
const FIRST_HANDLE: u64 = 0xFFFF_FFFF_8000_0004;

/// What an object is.
#[derive(Clone, Debug)]
pub enum Object {
    /// A thread.
    Thread(Arc<Thread>),
    /// An event made by `IoCreate…Event`, `ZwCreateEvent` or the user side.
    Event(Arc<Event>),
    /// An open registry key: its path.
    Key(Arc<str>),
    /// Something whose body is memory of another part of the model (device, driver, file objects): its address and
    /// kind.
    Body(usize, &'static str),
}

impl Object {
    /// The address that drivers know it by.
    pub fn address(&self) -> usize {
        match self {
            Self::Thread(thread) => thread.address(),
            Self::Event(event) => core::ptr::from_ref(event.as_kevent()).expose_provenance(),
            Self::Key(path) => path.as_ptr().addr(),
            Self::Body(address, _) => *address,
        }
    }

    /// Type name.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Thread(_) => "Thread",
            Self::Event(_) => "Event",
            Self::Key(_) => "Key",
            Self::Body(_, kind) => kind,
        }
    }

    /// The dispatcher object in it, if it can be waited for.
    pub fn header(&self) -> Option<&DispatcherHeader> {
        match self {
            Self::Thread(thread) => Some(thread.header()),
            Self::Event(event) => Some(&event.as_kevent().header),
            Self::Key(_) | Self::Body(..) => None,
        }
    }
}

#[derive(Debug)]
struct Entry {
    object: Object,
    references: u64,
}

#[derive(Clone, Debug)]
struct Handle {
    address: usize,
    /// Who opened it.
    opened_by: Site,
}

#[derive(Debug, Default)]
struct Table {
    objects: HashMap<usize, Entry>,
    handles: HashMap<u64, Handle>,
    last_handle: u64,
}

impl Table {
    fn reference(&mut self, address: usize) -> Option<u64> {
        let entry = self.objects.get_mut(&address)?;
        entry.references += 1;
        Some(entry.references)
    }

    /// The dropped object is returned so that it is freed outside the lock.
    fn dereference(&mut self, address: usize) -> Option<(u64, Option<Object>)> {
        let entry = self.objects.get_mut(&address)?;
        entry.references -= 1;
        let left = entry.references;
        let gone = if left == 0 { self.objects.remove(&address).map(|entry| entry.object) } else { None };
        Some((left, gone))
    }
}

/// Objects and handles of one machine.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    table: Mutex<Table>,
}

impl Objects {
    /// Adds an object with one reference: that of its running (a thread) or of its creator.
    pub(crate) fn insert_running(&self, object: Object) {
        self.table.lock().objects.insert(object.address(), Entry { object, references: 1 });
    }

    /// Adds a reference to an object, which becomes one with its first.
    pub(crate) fn reference_or_insert(&self, object: Object) {
        let mut table = self.table.lock();
        table.objects.entry(object.address()).or_insert(Entry { object, references: 0 }).references += 1;
    }

    /// Drops the reference of [`insert_running`](Self::insert_running).
    pub(crate) fn release_running(&self, address: usize) {
        let gone = self.table.lock().dereference(address);
        drop(gone);
    }

    pub(crate) fn find(&self, address: usize) -> Option<Object> {
        self.table.lock().objects.get(&address).map(|entry| entry.object.clone())
    }

    /// Open handles: value, type, who opened it.
    pub(crate) fn open_handles(&self) -> Vec<(u64, &'static str, Site)> {
        let table = self.table.lock();
        let kind = |handle: &Handle| table.objects.get(&handle.address).map_or("?", |entry| entry.object.kind());
        let mut handles: Vec<_> = table.handles.iter().map(|(v, h)| (*v, kind(h), h.opened_by)).collect();
        handles.sort_by_key(|handle| handle.0);
        handles
    }

    /// Running system threads.
    pub(crate) fn threads(&self) -> Vec<Arc<Thread>> {
        let table = self.table.lock();
        let thread = |entry: &Entry| match &entry.object {
            Object::Thread(thread) => Some(thread.clone()),
            _ => None,
        };
        table.objects.values().filter_map(thread).collect()
    }
}

impl Machine {
    /// Opens a kernel handle to `object`, adding it to the table when it is new.
    pub fn open_handle(&self, object: Object) -> u64 {
        let opened_by = Site::here();
        let mut table = self.objects.table.lock();
        let address = object.address();
        table.objects.entry(address).or_insert(Entry { object, references: 0 }).references += 1;
        table.last_handle = if table.last_handle == 0 { FIRST_HANDLE } else { table.last_handle + 4 };
        let value = table.last_handle;
        table.handles.insert(value, Handle { address, opened_by });
        value
    }

    /// Closes a kernel handle. False, and NT-HANDLE broken, when it is not open.
    ///
    /// IRQL: PASSIVE_LEVEL.
    #[doc(alias = "ZwClose")]
    #[track_caller]
    pub fn close_handle(&self, handle: u64) -> bool {
        let _service = self.service(&routines::ZW_CLOSE, [handle]);
        let gone = {
            let mut table = self.objects.table.lock();
            let closed = table.handles.remove(&handle);
            closed.map(|closed| table.dereference(closed.address))
        };
        let open = self.rules.check(&NT_HANDLE, gone.is_some(), || bad_handle(handle, "closed"));
        self.dispose(gone.flatten().and_then(|(_, gone)| gone));
        open
    }

    /// The object behind a kernel handle, with a reference added for the caller.
    ///
    /// IRQL: PASSIVE_LEVEL. `None`, and NT-HANDLE broken, when the handle is not open.
    #[doc(alias = "ObReferenceObjectByHandle")]
    #[track_caller]
    pub fn reference_object_by_handle(&self, handle: u64) -> Option<Object> {
        let _service = self.service(&routines::OB_REFERENCE_OBJECT_BY_HANDLE, [handle, 0, 0, 0, 0, 0]);
        let found = {
            let mut table = self.objects.table.lock();
            let address = table.handles.get(&handle).map(|found| found.address);
            address.and_then(|address| {
                table.reference(address)?;
                table.objects.get(&address).map(|entry| entry.object.clone())
            })
        };
        self.rules.check(&NT_HANDLE, found.is_some(), || bad_handle(handle, "referenced"));
        found
    }

    /// The object behind a kernel handle, without a reference and without a rule: for the model's own services.
    pub fn object_of_handle(&self, handle: u64) -> Option<Object> {
        let table = self.objects.table.lock();
        let found = table.handles.get(&handle)?;
        table.objects.get(&found.address).map(|entry| entry.object.clone())
    }

    /// Adds a reference to the object at `address`. Returns the new count, 0 (and NT-REFERENCE broken) when there is
    /// none.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "ObfReferenceObject")]
    #[track_caller]
    pub fn reference_object(&self, address: usize) -> u64 {
        let _service = self.service(&routines::OBF_REFERENCE_OBJECT, [address as u64]);
        let count = self.objects.table.lock().reference(address);
        self.rules.check(&NT_REFERENCE, count.is_some(), || bad_object(address, 1));
        count.unwrap_or(0)
    }

    /// Drops a reference to the object at `address`. Returns the new count.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "ObfDereferenceObject")]
    #[track_caller]
    pub fn dereference_object(&self, address: usize) -> u64 {
        let _service = self.service(&routines::OBF_DEREFERENCE_OBJECT, [address as u64]);
        let left = self.objects.table.lock().dereference(address);
        self.rules.check(&NT_REFERENCE, left.is_some(), || bad_object(address, u64::MAX));
        let (count, gone) = left.unwrap_or_default();
        self.dispose(gone);
        count
    }

    /// Frees the body of an object whose last reference is gone, where the model made it.
    fn dispose(&self, gone: Option<Object>) {
        if let Some(Object::Body(address, "File")) = gone {
            self.file_is_gone(address);
        }
    }
}

fn bad_handle(handle: u64, what: &str) -> Details {
    let details = Details::new(format!("handle {handle:#x} was {what} but is not open")).params([handle, 0, 0]);
    if handle == 0 { details.param1(0xF5) } else { details }
}

fn bad_object(address: usize, change: u64) -> Details {
    Details::new(format!("{address:#x} is no object with references")).params([address as u64, change, 0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;

    #[test]
    fn a_handle_keeps_its_object_until_closed() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let event = Arc::new(Event::notification(false));
        let handle = kernel.open_handle(Object::Event(event.clone()));
        assert_eq!(Arc::strong_count(&event), 2);
        let object = kernel.reference_object_by_handle(handle);
        assert_eq!(object.map(|object| object.kind()), Some("Event"));
        assert!(kernel.close_handle(handle));
        let address = Object::Event(event.clone()).address();
        assert_eq!(kernel.dereference_object(address), 0);
        assert_eq!(Arc::strong_count(&event), 1);
        assert!(kernel.rules.violations().is_empty());
    }

    #[test]
    fn a_closed_handle_is_caught() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        assert!(!kernel.close_handle(0x44));
        assert!(kernel.reference_object_by_handle(0).is_none());
        assert!(kernel.rules.was_broken(&NT_HANDLE));
        let violations = kernel.rules.violations();
        assert_eq!(violations.iter().map(|v| v.params[0]).collect::<Vec<_>>(), [0x3C, 0xF5]);
    }

    #[test]
    fn a_reference_too_many_dropped_is_caught() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        kernel.dereference_object(0x1000);
        kernel.reference_object(0x1000);
        assert!(kernel.rules.was_broken(&NT_REFERENCE));
    }
}
