//! kernel32's functions that a user-mode driver imports.

use std::sync::Arc;

use crate::cpu;
use crate::dispatcher::Event;
use crate::kernel::Machine;
use crate::memory::{PAGE_SIZE, PageKind, Rights};
use crate::records::{DispatcherHeader, status};
use crate::rules_user::{UM_HANDLE, UM_HEAP};
use crate::sched::{TICKS_PER_MS, TICKS_PER_SECOND};
use crate::shim::{self, In, Out};
use crate::shims;
use crate::thread::Thread;
use crate::user::process::{Process, UserMapping};
use crate::user::secure::PRIVATE_MEMORY;

/// What `GetProcessHeap` returns: there is one heap.
const HEAP: usize = 0x0010_0000;
const HEAP_ZERO_MEMORY: u32 = 8;
const HEAP_REALLOC_IN_PLACE_ONLY: u32 = 0x10;

const ERROR_FILE_NOT_FOUND: u32 = 2;
const ERROR_INVALID_HANDLE: u32 = 6;
const ERROR_NOT_ENOUGH_MEMORY: u32 = 8;
const ERROR_INVALID_PARAMETER: u32 = 87;
const ERROR_PROC_NOT_FOUND: u32 = 127;

const WAIT_TIMEOUT: u32 = 0x102;
const WAIT_FAILED: u32 = u32::MAX;
const INFINITE: u32 = u32::MAX;

fn set_error(error: u32) {
    cpu::with(|cpu| cpu.last_error.set(error));
}

fn fail<T: Default>(error: u32) -> T {
    set_error(error);
    T::default()
}

/// What a handle leads to that can be waited for.
enum Waitable {
    Event(Arc<Event>),
    Thread(Arc<Thread>),
}

impl Waitable {
    fn of(process: &Process, handle: u64) -> Option<Self> {
        let object = process.handle_any(handle)?;
        match object.downcast::<Event>() {
            Ok(event) => Some(Self::Event(event)),
            Err(object) => object.downcast::<Thread>().ok().map(Self::Thread),
        }
    }

    fn header(&self) -> &DispatcherHeader {
        match self {
            Self::Event(event) => &event.as_kevent().header,
            Self::Thread(thread) => thread.header(),
        }
    }
}

fn event(m: &Machine, handle: u64) -> Option<Arc<Event>> {
    let found = m.current_process().handle::<Event>(handle);
    m.rules.check(&UM_HANDLE, found.is_some(), || format!("{handle:#x} is no event of the calling process"));
    found
}

fn timeout(milliseconds: u32) -> Option<i64> {
    // CAST: a small constant.
    (milliseconds != INFINITE).then(|| -i64::from(milliseconds) * TICKS_PER_MS as i64)
}

/// The result of a wait as kernel32 gives it.
fn waited(result: i32) -> u32 {
    match result {
        status::TIMEOUT => WAIT_TIMEOUT,
        // CAST: WAIT_OBJECT_0 and WAIT_ABANDONED_0 are the statuses.
        0..=0xBF => result as u32,
        _ => {
            set_error(ERROR_INVALID_HANDLE);
            WAIT_FAILED
        }
    }
}

fn create_event(m: &Machine, manual: u32, set: u32) -> u64 {
    let event = if manual != 0 { Event::notification(set != 0) } else { Event::synchronization(set != 0) };
    set_error(0);
    m.current_process().insert_handle(Arc::new(event))
}

shims! {
    pub(crate) table KERNEL32;

    fn GetProcessHeap(_m) -> usize {
        HEAP
    }

    fn HeapAlloc(m, _heap: usize, flags: u32, bytes: usize) -> usize {
        let allocated = m.current_process().heap.allocate(m, bytes, flags & HEAP_ZERO_MEMORY != 0);
        allocated.unwrap_or_else(|| fail(ERROR_NOT_ENOUGH_MEMORY))
    }

    fn HeapReAlloc(m, _heap: usize, flags: u32, old: usize, bytes: usize) -> usize {
        let process = m.current_process();
        let size = process.heap.size(old);
        if !m.rules.check(&UM_HEAP, size.is_some(), || format!("{old:#x} is no live block of the heap")) {
            return fail(ERROR_INVALID_PARAMETER);
        }
        if flags & HEAP_REALLOC_IN_PLACE_ONLY != 0 {
            return fail(ERROR_NOT_ENOUGH_MEMORY);
        }
        let Some(new) = process.heap.allocate(m, bytes, flags & HEAP_ZERO_MEMORY != 0) else {
            return fail(ERROR_NOT_ENOUGH_MEMORY);
        };
        let kept = shim::read_bytes(old, size.unwrap_or(0).min(bytes));
        shim::write_bytes(new, &kept);
        process.heap.free(m, old);
        new
    }

    fn HeapFree(m, _heap: usize, _flags: u32, address: usize) -> u32 {
        (address == 0 || m.current_process().heap.free(m, address)).into()
    }

    fn HeapSize(m, _heap: usize, _flags: u32, address: usize) -> usize {
        m.current_process().heap.size(address).unwrap_or(usize::MAX)
    }

    fn GetLastError(_m) -> u32 {
        cpu::with(|cpu| cpu.last_error.get())
    }

    fn SetLastError(_m, error: u32) {
        set_error(error);
    }

    fn GetModuleHandleA(m, name: In<u8>) -> usize {
        let name = (!name.is_null()).then(|| String::from_utf8_lossy(&shim::read_c_string(name.address())).into_owned());
        m.module_handle(name.as_deref()).unwrap_or_else(|| fail(ERROR_FILE_NOT_FOUND))
    }

    fn GetModuleHandleW(m, name: In<u16>) -> usize {
        let name = (!name.is_null()).then(|| String::from_utf16_lossy(&shim::read_wide_string(name.address())));
        m.module_handle(name.as_deref()).unwrap_or_else(|| fail(ERROR_FILE_NOT_FOUND))
    }

    fn LoadLibraryA(m, name: In<u8>) -> usize {
        let name = String::from_utf8_lossy(&shim::read_c_string(name.address())).into_owned();
        m.module_handle(Some(&name)).unwrap_or_else(|| fail(ERROR_FILE_NOT_FOUND))
    }

    fn LoadLibraryW(m, name: In<u16>) -> usize {
        let name = String::from_utf16_lossy(&shim::read_wide_string(name.address()));
        m.module_handle(Some(&name)).unwrap_or_else(|| fail(ERROR_FILE_NOT_FOUND))
    }

    fn FreeLibrary(_m, _module: usize) -> u32 {
        1
    }

    // A name below 64 KiB is an ordinal, which no table here has.
    fn GetProcAddress(m, module: usize, name: In<u8>) -> usize {
        if name.address() < 0x1_0000 {
            return fail(ERROR_PROC_NOT_FOUND);
        }
        let name = String::from_utf8_lossy(&shim::read_c_string(name.address())).into_owned();
        m.procedure(module, &name).unwrap_or_else(|| fail(ERROR_PROC_NOT_FOUND))
    }

    fn QueryPerformanceCounter(m, counter: Out<u64>) -> u32 {
        counter.set(m.query_performance_counter());
        1
    }

    fn QueryPerformanceFrequency(_m, frequency: Out<u64>) -> u32 {
        frequency.set(TICKS_PER_SECOND);
        1
    }

    fn GetTickCount64(m) -> u64 {
        m.now() / TICKS_PER_MS
    }

    // FILETIME.
    fn GetSystemTimePreciseAsFileTime(m, time: Out<u64>) {
        time.set(m.query_system_time(true));
    }

    fn Sleep(m, milliseconds: u32) {
        match timeout(milliseconds) {
            Some(0) => m.yield_point(crate::sched::YieldPoint::Service),
            Some(interval) => _ = m.delay_execution(interval),
            None => _ = m.delay_execution(i64::MIN),
        }
    }

    fn SwitchToThread(m) -> u32 {
        m.yield_point(crate::sched::YieldPoint::Service);
        1
    }

    fn GetCurrentProcessId(m) -> u32 {
        // CAST: process ids count from 1,004.
        m.current_process_id() as u32
    }

    fn GetCurrentThreadId(m) -> u32 {
        // CAST: thread numbers count from 1.
        (4 * m.current_thread_id()) as u32
    }

    // The pseudo handles.
    fn GetCurrentProcess(_m) -> u64 {
        u64::MAX
    }

    fn GetCurrentThread(_m) -> u64 {
        u64::MAX - 1
    }

    fn OutputDebugStringA(m, text: In<u8>) {
        m.debug_print(&String::from_utf8_lossy(&shim::read_c_string(text.address())));
    }

    fn OutputDebugStringW(m, text: In<u16>) {
        m.debug_print(&String::from_utf16_lossy(&shim::read_wide_string(text.address())));
    }

    fn IsDebuggerPresent(_m) -> u32 {
        0
    }

    // Reserving and committing are one step; PAGE_READWRITE whatever was asked for but PAGE_READONLY.
    fn VirtualAlloc(m, address: usize, bytes: usize, _kind: u32, protect: u32) -> usize {
        let process = m.current_process();
        let Some(object) = m.allocate_pages(bytes.div_ceil(PAGE_SIZE), PageKind::User, PRIVATE_MEMORY) else {
            return fail(ERROR_NOT_ENOUGH_MEMORY);
        };
        let rights = if protect == 2 { Rights::Read } else { Rights::ReadWrite };
        let at = (address != 0).then_some(address);
        let mapped = m.map_user(&process, &UserMapping::whole(&object, rights), at);
        mapped.unwrap_or_else(|_| {
            m.memory.physical.free(&object);
            fail(ERROR_INVALID_PARAMETER)
        })
    }

    fn VirtualFree(m, address: usize, _bytes: usize, _kind: u32) -> u32 {
        let process = m.current_process();
        if m.free_user(&process, address).is_ok() { 1 } else { fail(ERROR_INVALID_PARAMETER) }
    }

    // Names are not looked at: events are shared between processes by duplicating handles.
    fn CreateEventA(m, _security: usize, manual: u32, set: u32, _name: usize) -> u64 {
        create_event(m, manual, set)
    }

    fn CreateEventW(m, _security: usize, manual: u32, set: u32, _name: usize) -> u64 {
        create_event(m, manual, set)
    }

    fn SetEvent(m, handle: u64) -> u32 {
        match event(m, handle) {
            Some(event) => {
                m.set_event(event.as_kevent(), false);
                1
            }
            None => fail(ERROR_INVALID_HANDLE),
        }
    }

    fn ResetEvent(m, handle: u64) -> u32 {
        match event(m, handle) {
            Some(event) => {
                m.reset_event(event.as_kevent());
                1
            }
            None => fail(ERROR_INVALID_HANDLE),
        }
    }

    fn WaitForSingleObject(m, handle: u64, milliseconds: u32) -> u32 {
        let found = Waitable::of(&m.current_process(), handle);
        m.rules.check(&UM_HANDLE, found.is_some(), || format!("{handle:#x} cannot be waited for"));
        match found {
            Some(object) => waited(m.wait_for_object(object.header(), timeout(milliseconds))),
            None => waited(status::INVALID_HANDLE),
        }
    }

    fn WaitForMultipleObjects(m, count: u32, handles: In<u64>, all: u32, milliseconds: u32) -> u32 {
        let process = m.current_process();
        let list = shim::read_bytes(handles.address(), 8 * (count as usize).min(64));
        let handles = list.chunks_exact(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap_or_default()));
        let objects: Option<Vec<_>> = handles.map(|handle| Waitable::of(&process, handle)).collect();
        m.rules.check(&UM_HANDLE, objects.is_some(), || "one of the handles cannot be waited for");
        let Some(objects) = objects else { return waited(status::INVALID_HANDLE) };
        let headers: Vec<_> = objects.iter().map(Waitable::header).collect();
        waited(m.wait_for_objects(&headers, all != 0, timeout(milliseconds)))
    }

    fn CloseHandle(m, handle: u64) -> u32 {
        let closed = m.current_process().close_handle(handle);
        let open = m.rules.check(&UM_HANDLE, closed.is_some(), || format!("{handle:#x} is not open"));
        if open { 1 } else { fail(ERROR_INVALID_HANDLE) }
    }

    // Within a process, or to another one by the address that GetCurrentProcess of it would mean: only pseudo handles
    // and handles to processes that another crate has inserted are known.
    fn DuplicateHandle(
        m, source: u64, handle: u64, target: u64, duplicate: Out<u64>, _access: u32, _inherit: u32, options: u32,
    ) -> u32 {
        let process = |of: u64| match of {
            u64::MAX => Some(m.current_process()),
            of => m.current_process().handle::<Process>(of),
        };
        let (Some(from), Some(to)) = (process(source), process(target)) else { return fail(ERROR_INVALID_HANDLE) };
        let object = from.handle_any(handle);
        m.rules.check(&UM_HANDLE, object.is_some(), || format!("{handle:#x} is not open in the source process"));
        let Some(object) = object else { return fail(ERROR_INVALID_HANDLE) };
        duplicate.set_opt(to.insert_handle(object));
        // DUPLICATE_CLOSE_SOURCE.
        if options & 1 != 0 {
            from.close_handle(handle);
        }
        1
    }
}
