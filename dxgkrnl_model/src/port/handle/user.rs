//! Handles of user mode, as Windows makes them: six bits that are 0 for what is not global, 24 of index, two that
//! change each time an index is used again and are never both 0. The types share one table, so that a process's handles
//! rise by 0x40 from one object to the next, whatever it is; a free index goes to the end of the line. A handle of
//! another process, of another type, or of a dead object is refused; the type is the object's, the handle does not show
//! it.
//!
//! Source: Microsoft's dxgkrnl for Linux (layout; the line of free indices); Wine's tests of D3DKMT, which run on
//! Windows (the low bits, the distance of two handles). Chosen: the table grows by 1,024 indices, when 128 are left.

use std::collections::VecDeque;

use wddm_abi::D3DKMT_HANDLE;

/// Type of a user-mode handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "one variant per object")]
pub enum HandleType {
    Adapter = 1,
    Device,
    Context,
    HwContext,
    HwQueue,
    PagingQueue,
    Allocation,
    Resource,
    SyncObject,
    NativeFence,
    Doorbell,
}

/// Bits of a handle below its index: 0 for one of this process alone.
const INSTANCE_BITS: u32 = 6;
const INDEX_BITS: u32 = 24;
/// The largest of the numbers that tell uses of an index apart; the least is 1.
const UNIQUE_MAX: u32 = 3;
/// Indices that the table grows by.
const GROWS_BY: usize = 1024;
/// Free indices below which it grows.
const LEAST_FREE: usize = 128;

#[derive(Debug)]
struct Slot<T> {
    unique: u32,
    kind: HandleType,
    content: Content<T>,
}

#[derive(Debug)]
enum Content<T> {
    /// No handle leads here.
    Free,
    /// The handle is given; its object is not there yet.
    Reserved,
    Object(T),
}

impl<T> Content<T> {
    fn object(&self) -> Option<&T> {
        match self {
            Self::Object(object) => Some(object),
            Self::Free | Self::Reserved => None,
        }
    }
}

/// Objects by user-mode handle.
#[derive(Debug)]
pub(crate) struct HandleTable<T> {
    slots: Vec<Slot<T>>,
    /// Free indices, in the order in which they are used.
    free: VecDeque<u32>,
}

impl<T> Default for HandleTable<T> {
    fn default() -> Self {
        // No handle has index 0.
        Self { slots: vec![Slot::new()], free: VecDeque::new() }
    }
}

impl<T> Slot<T> {
    fn new() -> Self {
        Self { unique: 1, kind: HandleType::Adapter, content: Content::Free }
    }
}

impl<T: Clone> HandleTable<T> {
    /// A handle whose object comes later, by [`Self::fill`]. `None`: the table is full.
    pub(crate) fn reserve(&mut self, kind: HandleType) -> Option<D3DKMT_HANDLE> {
        if self.free.len() <= LEAST_FREE {
            let most = self.slots.len().saturating_add(GROWS_BY).min(1 << INDEX_BITS);
            // CAST: an index has 24 bits.
            self.free.extend((self.slots.len()..most).map(|index| index as u32));
            self.slots.resize_with(most, Slot::new);
        }
        let index = self.free.pop_front()?;
        let slot = self.slots.get_mut(index as usize)?;
        (slot.kind, slot.content) = (kind, Content::Reserved);
        Some(compose(index, slot.unique))
    }

    /// Lets a reserved handle lead to `object`.
    pub(crate) fn fill(&mut self, handle: D3DKMT_HANDLE, object: T) {
        let (index, unique) = decompose(handle);
        let slot = self.slots.get_mut(index as usize);
        if let Some(slot) = slot.filter(|slot| slot.unique == unique && matches!(slot.content, Content::Reserved)) {
            slot.content = Content::Object(object);
        }
    }

    /// Adds an object. `None`: the table is full.
    pub(crate) fn insert(&mut self, kind: HandleType, object: T) -> Option<D3DKMT_HANDLE> {
        let handle = self.reserve(kind)?;
        self.fill(handle, object);
        Some(handle)
    }

    /// The object of this type behind `handle`.
    pub(crate) fn get(&self, handle: D3DKMT_HANDLE, kind: HandleType) -> Option<T> {
        let (index, unique) = decompose(handle);
        let slot = self.slots.get(index as usize)?;
        slot.content.object().filter(|_| slot.unique == unique && slot.kind == kind).cloned()
    }

    /// Takes an object out, or gives a reserved handle back, of which there is none.
    pub(crate) fn remove(&mut self, handle: D3DKMT_HANDLE, kind: HandleType) -> Option<T> {
        let (index, unique) = decompose(handle);
        let slot = self.slots.get_mut(index as usize)?;
        if slot.unique != unique || slot.kind != kind || matches!(slot.content, Content::Free) {
            return None;
        }
        slot.unique = slot.unique % UNIQUE_MAX + 1;
        self.free.push_back(index);
        match core::mem::replace(&mut slot.content, Content::Free) {
            Content::Object(object) => Some(object),
            Content::Free | Content::Reserved => None,
        }
    }

    /// Every object, whatever its type.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.content.object())
    }

    /// Returns whether `is_it` holds for an object.
    pub(crate) fn any(&self, is_it: impl FnMut(&T) -> bool) -> bool {
        self.objects().any(is_it)
    }

    /// Every object with its handle.
    pub(crate) fn entries(&self) -> Vec<(D3DKMT_HANDLE, T)> {
        let mut entries = Vec::new();
        for (index, slot) in (0..).zip(&self.slots) {
            if let Some(object) = slot.content.object() {
                entries.push((compose(index, slot.unique), object.clone()));
            }
        }
        entries
    }

    /// How many objects there are.
    pub(crate) fn len(&self) -> usize {
        self.objects().count()
    }
}

fn compose(index: u32, unique: u32) -> D3DKMT_HANDLE {
    unique << (INDEX_BITS + INSTANCE_BITS) | index << INSTANCE_BITS
}

/// Index and number of use. A handle whose low bits are set is global, and none of these: it has index 0, which leads
/// nowhere.
fn decompose(handle: D3DKMT_HANDLE) -> (u32, u32) {
    let is_local = handle & ((1 << INSTANCE_BITS) - 1) == 0;
    let index = handle >> INSTANCE_BITS & ((1 << INDEX_BITS) - 1);
    (if is_local { index } else { 0 }, handle >> (INDEX_BITS + INSTANCE_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_has_a_type_and_dies_with_its_object() {
        let mut table = HandleTable::default();
        let one = table.insert(HandleType::Device, "one").unwrap_or_default();
        assert_eq!(table.get(one, HandleType::Device), Some("one"));
        assert_eq!(table.get(one, HandleType::HwQueue), None);
        assert_eq!(table.remove(one, HandleType::HwQueue), None);
        assert_eq!(table.remove(one, HandleType::Device), Some("one"));
        assert_eq!(table.get(one, HandleType::Device), None);
        assert_eq!(table.remove(one, HandleType::Device), None);
        for filler in [0, 0x40, 0x4000_0000, 0x4000_0001, u32::MAX, 0xA5A5_A5A5] {
            assert_eq!(table.get(filler, HandleType::Device), None);
        }
    }

    #[test]
    fn handles_rise_by_64_over_all_types_also_where_some_are_gone() {
        let mut table = HandleTable::default();
        let mut last = table.insert(HandleType::Adapter, 0).unwrap_or_default();
        assert!(last & 0x3F == 0 && last >> 30 == 1, "{last:#x}");
        for turn in 0..3_000 {
            let kind = if turn % 2 == 0 { HandleType::Context } else { HandleType::Allocation };
            let next = table.insert(kind, turn).unwrap_or_default();
            // An index is used again when all others were: then the two highest bits tell it apart.
            assert!(next == last + 0x40 || next >> 30 != last >> 30, "{last:#x}, then {next:#x}");
            table.remove(next, kind);
            assert_eq!(table.get(next, kind), None);
            last = next;
        }
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn a_reserved_handle_is_no_object_and_comes_first() {
        let mut table = HandleTable::default();
        let resource = table.reserve(HandleType::Resource).unwrap_or_default();
        let allocation = table.insert(HandleType::Allocation, "allocation").unwrap_or_default();
        assert_eq!(allocation, resource + 0x40);
        assert_eq!((table.get(resource, HandleType::Resource), table.len()), (None, 1));
        table.fill(resource, "resource");
        assert_eq!(table.get(resource, HandleType::Resource), Some("resource"));
        let given_back = table.reserve(HandleType::Resource).unwrap_or_default();
        assert_eq!(table.remove(given_back, HandleType::Resource), None);
        table.fill(given_back, "late");
        assert_eq!(table.get(given_back, HandleType::Resource), None);
    }
}
