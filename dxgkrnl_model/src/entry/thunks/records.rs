//! Records of thunks that have another form under some build than the one that the thunks here work on, or than under
//! the builds before it.
//!
//! A client that was built with an older kit has a shorter record. Where this Windows goes by the older form, nothing
//! behind its end is read or written. Where it has a longer form under the same name ([`LONGER`]), it knows nothing of
//! the client's kit, and reads and writes all of it: a record that ends before an inaccessible page is an access
//! violation, and reported as a mistake of user mode. Chosen: it writes all of it also where nothing has changed, as
//! for a record that is input and output; one that may only be read is an access violation, and no short record.
//!
//! Source: the kits' headers, as far as they are known (`D3DKMT_OPENNATIVEFENCEFROMNTHANDLE` of the SDK of 2024-10;
//! `D3DKMT_CONNECT_DOORBELL` and `D3DKMT_NOTIFY_WORK_SUBMISSION` of the SDK 10.0.28000).

use wddm_abi::{NTSTATUS, Plain, kit_28000, ntstatus};

use super::{Call, capture};
use crate::port::counters::{UserFault, UserMistake};
use crate::port::personality::Build;

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

/// Thunks whose record grew under its old name: since which build, and its bytes then and before.
const LONGER: &[(&str, Build, usize, usize)] = &[
    ("D3DKMTConnectDoorbell", Build::W28000, size_of::<kit_28000::D3DKMT_CONNECT_DOORBELL>(), 8),
    ("D3DKMTNotifyWorkSubmission", Build::W28000, size_of::<kit_28000::D3DKMT_NOTIFY_WORK_SUBMISSION>(), 8),
];

/// What a thunk's record has grown to with `build`, and its bytes before.
fn grown(thunk: &str, build: Build) -> Option<(usize, usize)> {
    let entry = LONGER.iter().find(|(name, since, ..)| *name == thunk && *since == build);
    entry.map(|(_, _, bytes, older)| (*bytes, *older))
}

/// Returns whether a thunk's record is stored although the thunk has not changed it.
pub(super) fn is_stored(thunk: &str, build: Build) -> bool {
    grown(thunk, build).is_some()
}

/// The record of a thunk at `address` could not be read or written: reports a record that has the older form.
pub(super) fn report(call: &Call, thunk: &'static str, address: usize) {
    let Some((bytes, older)) = grown(thunk, call.shared.personality().build) else { return };
    if capture::bytes(address, older).is_ok() && capture::bytes(address, bytes).is_err() {
        let mistake = UserMistake::ShortRecord { thunk, bytes };
        call.shared.counters.user_fault(UserFault { process: call.process.nt().id(), mistake });
    }
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

#[cfg(test)]
mod tests {
    use super::LONGER;

    #[test]
    fn the_records_that_grew_have_the_bytes_of_their_kits() {
        let older =
            [size_of::<wddm_abi::D3DKMT_CONNECT_DOORBELL>(), size_of::<wddm_abi::D3DKMT_NOTIFY_WORK_SUBMISSION>()];
        assert_eq!(LONGER.iter().map(|(.., older)| *older).collect::<Vec<_>>(), older);
        assert_eq!(LONGER.iter().map(|(_, _, bytes, _)| *bytes).collect::<Vec<_>>(), [88, 72]);
    }
}
