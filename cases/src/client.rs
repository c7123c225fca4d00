//! A process's use of the user-mode driver: its C ABI with owners, results and error texts.
//!
//! The table is that of a loaded `fencepost_umd.dll`, on Windows or in the model, or of the same code linked in; the
//! calls are the same.
//!
//! | file | holds |
//! |---|---|
//! | `client.rs` | [`Client`], which makes every call inside its process |
//! | `objects.rs` | owners of adapter, device, allocation, queue, fence |
//! | `list.rs` | command lists |
#![expect(unsafe_code, reason = "the user-mode driver's functions are called by pointer")]

mod list;
mod objects;

pub use list::List;
pub use objects::{Adapter, Allocation, Device, Fence, Queue};

use std::fmt;
use std::sync::Arc;
use umd_core::ffi::FpUmdTable;
use wddm_abi::NTSTATUS;

/// Puts the calling thread into a process for the duration of a call.
pub trait Inside: Send + Sync {
    /// Runs `f` as a thread of the process.
    fn inside(&self, f: &mut dyn FnMut());
}

/// The user-mode driver as one process has it.
pub struct Client {
    table: FpUmdTable,
    process: Box<dyn Inside>,
}

/// A call that the driver or the OS refused.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {status:?}: {text}")]
pub struct Refused {
    /// The function.
    pub call: &'static str,
    /// What it returned.
    pub status: NTSTATUS,
    /// What the driver said about it.
    pub text: String,
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What every call returns.
pub type Result<T> = std::result::Result<T, Refused>;

impl Client {
    /// The driver behind `table`, in `process`.
    pub fn new(table: FpUmdTable, process: Box<dyn Inside>) -> Arc<Self> {
        Arc::new(Self { table, process })
    }

    /// Makes a call inside the process.
    ///
    /// # Errors
    /// [`Refused`] with the driver's own words.
    fn call(&self, call: &'static str, f: impl FnOnce(&FpUmdTable) -> i32) -> Result<()> {
        let mut f = Some(f);
        let mut result = Ok(());
        self.process.inside(&mut || {
            let Some(f) = f.take() else { return };
            let status = NTSTATUS(f(&self.table));
            if status.0 < 0 {
                result = Err(Refused { call, status, text: self.last_error() });
            }
        });
        result
    }

    /// The calling thread's last error text. Inside the process.
    fn last_error(&self) -> String {
        let mut text = [0_u8; 512];
        let mut length = 0;
        let read = self.table.fp_last_error_text;
        // SAFETY: a buffer of that many bytes, and a place for the length.
        let status = unsafe { read(text.as_mut_ptr().cast(), text.len(), &raw mut length) };
        let known = if status < 0 { 0 } else { length.min(text.len() - 1) };
        String::from_utf8_lossy(&text[..known]).into_owned()
    }
}

/// `size_of` as the C structures carry it.
fn size<T>() -> u32 {
    // CAST: no structure of the C ABI has 4 GiB.
    size_of::<T>() as u32
}
