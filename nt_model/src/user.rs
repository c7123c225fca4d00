//! User mode: simulated processes, their memory and handles, guarded accesses, and user-mode DLLs.
//!
//! A [`Process`] is a book-keeping identity: its user addresses are ordinary host addresses that the machine knows to
//! belong to it. A thread is "in" a process while it holds the guard of [`Machine::enter_process`]; services that act on
//! the current process (mapping in user mode, locking user buffers, handles) take it from there.

pub mod guard;
pub mod process;
pub(crate) mod runtime;
#[cfg(test)]
mod tests;
