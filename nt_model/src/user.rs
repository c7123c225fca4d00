//! User mode: simulated processes, their memory and handles, guarded accesses, and user-mode DLLs.
//!
//! A [`Process`](process::Process) is a book-keeping identity: its user addresses are ordinary host addresses that the
//! machine knows to belong to it. A thread is "in" a process while it holds the guard of
//! [`Machine::enter_process`](crate::Machine::enter_process); services that act on the current process (mapping in user
//! mode, locking user buffers, handles, the heap) take it from there.
//!
//! A process can be another Linux process ([`space`]): then it is told what to map, and its memory is read from here.
//!
//! A user-mode DLL is loaded once per process ([`Machine::load_dll`](crate::Machine::load_dll)), so that its statics
//! are the process's own. kernel32's few functions that such a DLL needs are here; those of other DLLs (gdi32's
//! `D3DKMT*`) are registered with [`Machine::register_imports`](crate::Machine::register_imports).

mod behind;
pub mod dll;
pub(crate) mod eventing;
pub mod guard;
pub mod heap;
pub(crate) mod kernel32;
mod left;
pub mod process;
pub mod secure;
pub mod space;
#[cfg(test)]
mod tests;
