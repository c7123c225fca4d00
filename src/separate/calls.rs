//! What a message of a client's thread comes to, on a thread of the machine that has entered the client's process.
#![expect(unsafe_code, reason = "entry points of the model are called by name")]

use super::wire::{Kind, Message, WORDS};
use dxgkrnl_model::thunks::{address, is_exported};
use nt_model::{Event, Machine};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wddm_abi::ntstatus::STATUS_PROCEDURE_NOT_FOUND;
use wddm_abi::winfn;

/// What a wait for an event comes to: kernel32's numbers.
const WAIT_OBJECT_0: u64 = 0;
const WAIT_TIMEOUT: u64 = 0x102;
const WAIT_FAILED: u64 = 0xFFFF_FFFF;

/// A wait looks so often whether its process is still there, in milliseconds.
const SLICE: u64 = 20;

/// Any entry point of gdi32: none has more arguments, and one that has fewer does not look at the others.
type Entry = winfn!(fn(u64, u64, u64, u64, u64, u64, u64, u64) -> u64);

/// Calls gdi32's function of this name.
fn thunk(name: &str, words: &[u64; WORDS]) -> u64 {
    // CAST: a status, as the 32 bits that it is.
    let missing = u64::from(STATUS_PROCEDURE_NOT_FOUND.0.cast_unsigned());
    let at = address(name);
    if at == 0 {
        return missing;
    }
    let at = ptr::with_exposed_provenance::<()>(at);
    // SAFETY: the address of the entry point with this name, which follows the Windows convention: the caller removes
    // the arguments, so more than it takes harm nothing.
    let entry = unsafe { std::mem::transmute::<*const (), Entry>(at) };
    let [a, b, c, d, e, f, g, h] = *words;
    // SAFETY: the model follows no pointer among the arguments but by guarded copies from the client's memory.
    unsafe { entry(a, b, c, d, e, f, g, h) }
}

fn event(machine: &Machine, handle: u64) -> Option<Arc<Event>> {
    machine.current_process().handle::<Event>(handle)
}

/// Waits as `WaitForSingleObject` does, until `is_gone`.
fn wait(machine: &Machine, handle: u64, milliseconds: u64, is_gone: &AtomicBool) -> u64 {
    let Some(event) = event(machine, handle) else { return WAIT_FAILED };
    let mut left = milliseconds;
    loop {
        let slice = left.min(SLICE);
        // CAST: at most 20 ms.
        match machine.wait_for_event(&event, Some(-(slice as i64 * 10_000))) {
            0 => return WAIT_OBJECT_0,
            0x102 if is_gone.load(Ordering::Acquire) => return WAIT_FAILED,
            0x102 if left == slice => return WAIT_TIMEOUT,
            0x102 => {}
            _ => return WAIT_FAILED,
        }
        if left != u64::from(u32::MAX) {
            left -= slice;
        }
    }
}

/// Does what a message asks for. `None`: it is none that a thread may send.
pub fn answer(machine: &Machine, message: &Message, is_gone: &AtomicBool) -> Option<u64> {
    let text = std::str::from_utf8(&message.text).ok()?;
    let [first, second, ..] = message.words;
    Some(match message.kind {
        Kind::Thunk => thunk(text, &message.words),
        Kind::HasExport => is_exported(machine, text).into(),
        Kind::CreateEvent => {
            let event = if first != 0 { Event::notification(second != 0) } else { Event::synchronization(second != 0) };
            machine.current_process().insert_handle(Arc::new(event))
        }
        Kind::SetEvent => {
            let event = event(machine, first);
            event.as_ref().map(|event| machine.set_event(event.as_kevent(), false));
            event.is_some().into()
        }
        Kind::ResetEvent => {
            let event = event(machine, first);
            event.as_ref().map(|event| machine.reset_event(event.as_kevent()));
            event.is_some().into()
        }
        Kind::WaitEvent => wait(machine, first, second, is_gone),
        Kind::CloseHandle => machine.current_process().close_handle(first).is_some().into(),
        _ => return None,
    })
}
