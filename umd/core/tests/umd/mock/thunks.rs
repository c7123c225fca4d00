//! The trait: events, time and sharing here, the functions of one record in `calls`.
#![expect(unsafe_code, reason = "an unsafe trait")]

use super::os::World;
use super::{Mock, calls, current};
use std::sync::atomic::Ordering;
use umd_core::thunks::{EventWait, NtHandle, Padded, Thunk, Thunks};
use wddm_abi::ntstatus::{STATUS_ACCESS_DENIED, STATUS_NOT_SUPPORTED, STATUS_SUCCESS};
use wddm_abi::{D3DKMT_HANDLE, NTSTATUS, OBJECT_ATTRIBUTES};

impl Mock {
    /// Counts the call; the status with which it is refused.
    fn enter(&self, thunk: Thunk) -> (std::sync::MutexGuard<'_, World>, Option<NTSTATUS>) {
        let mut world = self.world();
        world.calls.push(thunk);
        let refused = world.refuse.iter().position(|(which, _)| *which == thunk).map(|i| world.refuse.remove(i).1);
        (world, refused)
    }
}

macro_rules! define {
    ($($method:ident, $id:ident, $export:ident, $record:ident, $presence:ident, $bytes:literal;)*) => {
        // SAFETY: blocks are leaked, so what is returned stays mapped for ever; arguments are written inside their
        // bounds.
        unsafe impl Thunks for Mock {
            $(
                fn $method(
                    &self,
                    argument: &mut Padded<wddm_abi::$record, { $bytes - size_of::<wddm_abi::$record>() }>,
                ) -> NTSTATUS {
                    match self.enter(Thunk::$id) {
                        (_, Some(refused)) => refused,
                        (mut world, None) => calls::$method(&mut world, argument),
                    }
                }
            )*

            fn attach() -> Self {
                current()
            }

            fn has_export(&self, name: &str) -> bool {
                let world = self.world();
                let known = Thunk::ALL.iter().any(|thunk| thunk.name() == name) || world.more.iter().any(|more| more == name);
                known && !world.missing.iter().any(|missing| missing == name)
            }

            fn create_event(&self) -> Option<NtHandle> {
                let mut world = self.world();
                world.next_handle += 4;
                let event = u64::from(world.next_handle) << 32;
                world.events.insert(event, false);
                Some(NtHandle(event))
            }

            fn set_event(&self, event: NtHandle) {
                self.world().set(event.0);
                self.world.1.notify_all();
            }

            /// Runs the GPU first. A bounded wait that is not met then passes its time at once; an endless one waits
            /// for another thread.
            fn wait_event(&self, event: NtHandle, milliseconds: u32) -> EventWait {
                self.run();
                let mut world = self.world();
                loop {
                    match world.events.get_mut(&event.0) {
                        None => return EventWait::Failed,
                        Some(set @ true) => {
                            *set = false;
                            return EventWait::Set;
                        }
                        Some(false) if milliseconds == u32::MAX => world = self.world.1.wait(world).unwrap(),
                        Some(false) => {
                            world.time += u64::from(milliseconds) * 1_000_000;
                            return EventWait::Timeout;
                        }
                    }
                }
            }

            fn close_handle(&self, handle: NtHandle) {
                let mut world = self.world();
                if world.events.remove(&handle.0).is_none() && world.shared.remove(&handle.0).is_none() {
                    world.complain(format!("{:#x} is not open", handle.0));
                }
            }

            fn timestamp(&self) -> u64 {
                let mut world = self.world();
                world.time += 1;
                let mut doorbells = world.queues.values().filter_map(|queue| queue.doorbell.as_ref());
                let queued = doorbells.next().map_or(0, |doorbell| doorbell.last_queued.load(Ordering::SeqCst));
                let time = world.time;
                world.queued_at.insert(time, queued);
                time
            }

            fn timestamp_frequency(&self) -> u64 {
                1_000_000_000
            }

            fn thread_id() -> u32 {
                use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
                BuildHasherDefault::<DefaultHasher>::default().hash_one(std::thread::current().id()) as u32
            }

            fn share_objects(
                &self,
                objects: &[D3DKMT_HANDLE],
                attributes: &mut OBJECT_ATTRIBUTES,
                access: u32,
            ) -> (NTSTATUS, Option<NtHandle>) {
                let (mut world, refused) = self.enter(Thunk::ShareObjects);
                if let Some(status) = refused {
                    return (status, None);
                }
                assert_eq!((objects.len(), attributes.Length), (1, 48));
                let object = objects[0];
                let by_handle = world.fences.get(&object).is_some_and(|fence| fence.shared_by_handle)
                    || world.memory.values().any(|memory| memory.resource == object && memory.shared_by_handle);
                if !by_handle {
                    return (STATUS_NOT_SUPPORTED, None);
                }
                if access & 0x0002_0000 == 0 {
                    return (STATUS_ACCESS_DENIED, None);
                }
                world.next_handle += 4;
                let handle = u64::from(world.next_handle);
                world.shared.insert(handle, object);
                (STATUS_SUCCESS, Some(NtHandle(handle)))
            }
        }
    };
}

umd_core::for_each_thunk!(define);
