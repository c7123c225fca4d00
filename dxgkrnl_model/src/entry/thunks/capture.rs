//! User memory: copied once, guarded, wherever the calling thread's process is.

use nt_model::{read_user, write_user};
use wddm_abi::{NTSTATUS, Plain, ntstatus};

/// Most bytes that one argument may have.
const LIMIT: usize = 64 << 20;

/// Copies bytes from user memory.
///
/// # Errors
/// STATUS_INVALID_PARAMETER for NULL or too many bytes, STATUS_ACCESS_VIOLATION.
pub(crate) fn bytes(address: usize, length: usize) -> Result<Vec<u8>, NTSTATUS> {
    if length == 0 {
        return Ok(Vec::new());
    }
    if address == 0 || length > LIMIT {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    let mut copy = vec![0_u8; length];
    read_user(address, &mut copy).map_err(|_| ntstatus::STATUS_ACCESS_VIOLATION)?;
    Ok(copy)
}

/// Stores bytes in user memory.
///
/// # Errors
/// As [`bytes`].
pub(crate) fn store(address: usize, from: &[u8]) -> Result<(), NTSTATUS> {
    if from.is_empty() {
        return Ok(());
    }
    if address == 0 {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    write_user(address, from).map_err(|_| ntstatus::STATUS_ACCESS_VIOLATION)
}

/// Copies a record.
///
/// # Errors
/// As [`bytes`].
pub(crate) fn read<T: Plain>(address: usize) -> Result<T, NTSTATUS> {
    let copy = bytes(address, size_of::<T>())?;
    T::from_bytes(&copy).ok_or(ntstatus::STATUS_INVALID_PARAMETER)
}

/// Stores a record.
///
/// # Errors
/// As [`bytes`].
pub(crate) fn write<T: Plain>(address: usize, value: &T) -> Result<(), NTSTATUS> {
    store(address, value.as_bytes())
}

/// Copies an array.
///
/// # Errors
/// As [`bytes`].
pub(crate) fn array<T: Plain>(pointer: *const T, count: u32) -> Result<Vec<T>, NTSTATUS> {
    let length = (count as usize).checked_mul(size_of::<T>()).ok_or(ntstatus::STATUS_INVALID_PARAMETER)?;
    let copy = bytes(pointer.expose_provenance(), length)?;
    Ok(copy.chunks_exact(size_of::<T>().max(1)).filter_map(T::from_bytes).collect())
}
