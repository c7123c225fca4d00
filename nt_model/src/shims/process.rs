//! Threads, processes, objects, handles, and stopping the machine.

use crate::callback;
use crate::kernel::Machine;
use crate::object::Object;
use crate::records::{status, status::NtStatus};
use crate::routines;
use crate::rules::Details;
use crate::rules_nt::{NT_BUGCHECK, NT_HANDLE, NT_REFERENCE};
use crate::shim::{In, Out};
use crate::shims;
use crate::thread::{Thread, ThreadKind};

shims! {
    pub(crate) table PROCESS;

    fn PsCreateSystemThread(
        m, handle: Out<u64>, access: u32, _attributes: usize, _process: usize, _client: usize, start: usize,
        context: usize,
    ) -> NtStatus {
        let arguments = [handle.address() as u64, access.into(), 0, 0, 0, start as u64];
        let _service = m.service(&routines::PS_CREATE_SYSTEM_THREAD, arguments);
        if m.memory.must_fail() {
            return status::INSUFFICIENT_RESOURCES;
        }
        // The handle is there before the thread runs: the driver may use it at once.
        let thread = m.start_thread("system", ThreadKind::System, start, move || {
            callback::invoke(start, [context]);
        });
        handle.set(m.open_handle(Object::Thread(thread)));
        status::SUCCESS
    }

    fn PsTerminateSystemThread(m, status: NtStatus) -> NtStatus {
        m.terminate_system_thread(status);
        status::INVALID_PARAMETER
    }

    fn ObReferenceObjectByHandle(
        m, handle: u64, _access: u32, object_type: usize, _mode: u8, object: Out<usize>, _information: usize,
    ) -> NtStatus {
        reference_by_handle(m, handle, object_type, object)
    }

    // References have no tags here: the machine has no trace of them.
    fn ObReferenceObjectByHandleWithTag(
        m, handle: u64, _access: u32, object_type: usize, _mode: u8, _tag: u32, object: Out<usize>,
        _information: usize,
    ) -> NtStatus {
        reference_by_handle(m, handle, object_type, object)
    }

    fn ObfReferenceObject(m, object: usize) -> u64 {
        m.reference_object(object)
    }

    fn ObfDereferenceObject(m, object: usize) -> u64 {
        m.dereference_object(object)
    }

    fn ObfReferenceObjectWithTag(m, object: usize, _tag: u32) -> u64 {
        m.reference_object(object)
    }

    fn ObfDereferenceObjectWithTag(m, object: usize, _tag: u32) -> u64 {
        m.dereference_object(object)
    }

    fn ObDereferenceObjectDeferDelete(m, object: usize) -> u64 {
        m.dereference_object(object)
    }

    fn ObReferenceObjectByPointer(m, object: usize, _access: u32, _kind: usize, _mode: u8) -> NtStatus {
        if m.reference_object(object) == 0 { status::INVALID_PARAMETER } else { status::SUCCESS }
    }

    fn ZwClose(m, handle: u64) -> NtStatus {
        if m.close_handle(handle) { status::SUCCESS } else { status::INVALID_HANDLE }
    }

    fn ZwWaitForSingleObject(m, handle: u64, _alertable: u8, timeout: In<i64>) -> NtStatus {
        match m.object_of_handle(handle) {
            Some(object) => match object.header() {
                Some(header) => m.wait_by_clock(header, timeout.get_opt().copied()),
                None => status::OBJECT_TYPE_MISMATCH,
            },
            None => status::INVALID_HANDLE,
        }
    }

    fn KeSetPriorityThread(m, thread: usize, priority: i32) -> i32 {
        match m.objects.find(thread) {
            Some(Object::Thread(thread)) => m.set_priority(&thread, priority),
            _ => m.with_current_thread(|thread| m.set_priority(thread, priority)),
        }
    }

    fn KeQueryPriorityThread(m, thread: usize) -> i32 {
        match m.objects.find(thread) {
            Some(Object::Thread(thread)) => thread.priority(),
            _ => m.with_current_thread(Thread::priority),
        }
    }

    fn KeGetCurrentThread(m) -> usize {
        m.with_current_thread(Thread::address)
    }

    fn PsGetCurrentThread(m) -> usize {
        m.with_current_thread(Thread::address)
    }

    fn PsGetCurrentThreadId(m) -> u64 {
        4 * m.current_thread_id()
    }

    fn PsGetThreadId(m, thread: usize) -> u64 {
        match m.objects.find(thread) {
            Some(Object::Thread(thread)) => 4 * thread.id(),
            _ => 4 * m.current_thread_id(),
        }
    }

    fn PsIsSystemThread(_m, _thread: usize) -> u8 {
        1
    }

    fn PsGetCurrentProcessId(m) -> u64 {
        m.current_process_id()
    }

    fn IoGetCurrentProcess(m) -> usize {
        m.current_process_address()
    }

    fn PsGetCurrentProcess(m) -> usize {
        m.current_process_address()
    }

    fn PsGetProcessId(m, process: usize) -> u64 {
        m.process_id_of(process)
    }

    // KernelMode is 0, UserMode 1.
    fn ExGetPreviousMode(m) -> u8 {
        let _service = m.service(&routines::EX_GET_PREVIOUS_MODE, []);
        m.came_from_user_mode().into()
    }

    fn KeAttachProcess(m, process: usize) {
        let _service = m.service(&routines::KE_ATTACH_PROCESS, [process as u64]);
        m.attach_process(process, false);
    }

    fn KeDetachProcess(m) {
        let _service = m.service(&routines::KE_DETACH_PROCESS, []);
        m.detach_process(None);
    }

    // KAPC_STATE is the system's to fill: the first two words say where the thread was.
    fn KeStackAttachProcess(m, process: usize, state: Out<[u64; 6]>) {
        let _service = m.service(&routines::KE_STACK_ATTACH_PROCESS, [process as u64, state.address() as u64]);
        let (id, separate) = m.attach_process(process, true);
        // CAST: kept as it is, and read back by KeUnstackDetachProcess.
        state.set([id, separate as u64, 0, 0, 0, 0]);
    }

    fn KeUnstackDetachProcess(m, state: In<[u64; 6]>) {
        let _service = m.service(&routines::KE_UNSTACK_DETACH_PROCESS, [state.address() as u64]);
        let [id, separate, ..] = *state.get();
        // CAST: as KeStackAttachProcess stored it.
        m.detach_process(Some((id, separate as i32)));
    }

    fn PsReferencePrimaryToken(m, process: usize) -> usize {
        let _service = m.service(&routines::PS_REFERENCE_PRIMARY_TOKEN, [process as u64]);
        let token = m.reference_token(process);
        m.rules.check(&NT_REFERENCE, token.is_some(), || {
            Details::new(format!("{process:#x} is no process")).params([process as u64, 1, 0])
        });
        token.unwrap_or(0)
    }

    fn PsDereferencePrimaryToken(m, token: usize) {
        let _service = m.service(&routines::PS_DEREFERENCE_PRIMARY_TOKEN, [token as u64]);
        m.dereference_object(token);
    }

    // Processes of the model run without elevation.
    fn SeTokenIsAdmin(m, token: usize) -> u8 {
        let _service = m.service(&routines::SE_TOKEN_IS_ADMIN, [token as u64]);
        m.is_system_token(token).into()
    }

    fn KeBugCheck(m, code: u32) {
        let _service = m.service(&routines::KE_BUG_CHECK, [code.into()]);
        bug_check(m, code, [0; 4])
    }

    fn KeBugCheckEx(m, code: u32, p1: u64, p2: u64, p3: u64, p4: u64) {
        let _service = m.service(&routines::KE_BUG_CHECK_EX, [code.into(), p1, p2, p3, p4]);
        bug_check(m, code, [p1, p2, p3, p4])
    }
}

/// The object behind a handle, with a reference, where it is of the wanted type.
///
/// Source: DDI ObReferenceObjectByHandle; DDI ObReferenceObjectByHandleWithTag.
fn reference_by_handle(m: &Machine, handle: u64, object_type: usize, object: Out<usize>) -> NtStatus {
    // The pseudo handles of the current process and thread.
    if handle == u64::MAX - 1 {
        let address = m.with_current_thread(Thread::address);
        m.reference_object(address);
        object.set(address);
        return status::SUCCESS;
    }
    let Some(found) = m.reference_object_by_handle(handle) else {
        object.set(0);
        return status::INVALID_HANDLE;
    };
    let wanted = shims::data::object_type_name(object_type);
    let matches = wanted.is_none_or(|wanted| wanted == found.kind());
    m.rules.check(&NT_HANDLE, matches, || {
        Details::new(format!("handle {handle:#x} is of type {}, not {}", found.kind(), wanted.unwrap_or_default()))
            .params([handle, object_type as u64, 0])
    });
    if !matches {
        m.dereference_object(found.address());
        return status::OBJECT_TYPE_MISMATCH;
    }
    object.set(found.address());
    status::SUCCESS
}

fn bug_check(m: &Machine, code: u32, params: [u64; 4]) {
    m.bug_check(code, params)
}

impl Machine {
    /// Stops the machine on a driver's request, and leaves driver code.
    ///
    /// IRQL: any.
    ///
    /// # Panics
    /// Outside driver code.
    #[doc(alias = "KeBugCheckEx")]
    #[track_caller]
    pub fn bug_check(&self, code: u32, params: [u64; 4]) -> ! {
        let [p1, p2, p3, p4] = params;
        let text = format!("bug check {code:#x} ({p1:#x}, {p2:#x}, {p3:#x}, {p4:#x})");
        self.fatal(&NT_BUGCHECK, Details::new(text).code(code).param1(p1).params([p2, p3, p4]))
    }
}
