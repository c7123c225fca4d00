//! The C ABI: the same functions for an application that links `fencepost_umd.dll`, for the command line that loads the
//! image into a Linux process, and for native mode, where they run over the model's thunks.
//!
//! | file | holds |
//! |---|---|
//! | `table.rs` | the list of functions, and the table made from it |
//! | `types.rs` | structures and constants |
//! | `entry.rs` and below | what the functions do: check, convert, call this crate, convert back |
//! | `object.rs`, `last_error.rs` | handles and error texts |
//!
//! Every function returns 0 or a negative NTSTATUS. None panics: what an application can get wrong is an error, and
//! what remains is a broken invariant, which ends the process (images abort on panic) rather than unwind into C.
#![expect(unsafe_code, reason = "pointers of a C caller")]

mod entry;
mod last_error;
mod object;
mod table;
pub mod types;

pub use table::FpUmdTable;

/// The C ABI over a type that implements [`crate::thunks::Thunks`], as a `&'static` [`FpUmdTable`].
#[macro_export]
macro_rules! c_abi_table {
    ($thunks:ty) => {
        const { &$crate::ffi::FpUmdTable::over::<$thunks>() }
    };
}
