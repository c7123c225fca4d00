//! Records of thunks that have another form under some build than the one that the thunks here work on.
//!
//! A client that was built with an older kit has a shorter record. Nothing behind its end is read or written.
//!
//! Source: the kits' headers, as far as they are known (`D3DKMT_OPENNATIVEFENCEFROMNTHANDLE` of the SDK of 2024-10).

use wddm_abi::{NTSTATUS, Plain, ntstatus};

use super::capture;
use crate::personality::Build;

/// Bytes that a user's record and ours have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Where they begin in the user's.
    theirs: usize,
    /// Where they begin in ours.
    ours: usize,
    length: usize,
}

/// How user mode has a record.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// As ours.
    Ours,
    /// Of so many bytes, of which these pieces are ours; the rest of ours is 0.
    Pieces(usize, &'static [Piece]),
}

/// The form that a thunk's record has under `build`.
pub(super) fn form(thunk: &str, build: Build) -> Form {
    match (thunk, build) {
        // Without `PrivateDriverData`.
        ("D3DKMTOpenNativeFenceFromNtHandle", Build::W26100Ga) => {
            const PIECES: &[Piece] =
                &[Piece { theirs: 0, ours: 0, length: 80 }, Piece { theirs: 80, ours: 144, length: 32 }];
            Form::Pieces(112, PIECES)
        }
        _ => Form::Ours,
    }
}

impl Form {
    /// Copies a record from user memory.
    ///
    /// # Errors
    /// As [`capture::bytes`].
    pub(super) fn read<T: Plain>(self, address: usize) -> Result<T, NTSTATUS> {
        let Self::Pieces(size, pieces) = self else { return capture::read(address) };
        let theirs = capture::bytes(address, size)?;
        let mut ours = vec![0; size_of::<T>()];
        for piece in pieces {
            let from = theirs.get(piece.theirs..piece.theirs + piece.length);
            let to = ours.get_mut(piece.ours..piece.ours + piece.length);
            if let Some((to, from)) = to.zip(from) {
                to.copy_from_slice(from);
            }
        }
        T::from_bytes(&ours).ok_or(ntstatus::STATUS_INVALID_PARAMETER)
    }

    /// Stores a record in user memory.
    ///
    /// # Errors
    /// As [`capture::store`].
    pub(super) fn write<T: Plain>(self, address: usize, record: &T) -> Result<(), NTSTATUS> {
        let Self::Pieces(_, pieces) = self else { return capture::write(address, record) };
        for piece in pieces {
            let from = record.as_bytes().get(piece.ours..piece.ours + piece.length).unwrap_or_default();
            capture::store(address + piece.theirs, from)?;
        }
        Ok(())
    }
}
