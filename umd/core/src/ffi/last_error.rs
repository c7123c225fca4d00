//! Each thread's last error, without thread-local storage: a table indexed by thread number. Two threads whose numbers
//! fall on one place overwrite each other; the one that lost gets "no error".

use crate::error::UmdError;
use crate::memory::lock::SpinCell;

const PLACES: usize = 64;

/// Thread number and error.
static ERRORS: [SpinCell<Option<(u32, UmdError)>>; PLACES] = [const { SpinCell::new(None) }; PLACES];

fn place(thread: u32) -> &'static SpinCell<Option<(u32, UmdError)>> {
    // Windows gives out multiples of 4.
    &ERRORS[(thread / 4) as usize % PLACES]
}

/// Notes the error of a call that failed.
pub(super) fn set(thread: u32, error: UmdError) {
    place(thread).with(|slot| *slot = Some((thread, error)));
}

/// The thread's last error.
pub(super) fn get(thread: u32) -> Option<UmdError> {
    place(thread).with(|slot| slot.filter(|(owner, _)| *owner == thread).map(|(_, error)| error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_do_not_see_each_others_errors() {
        set(4, UmdError::Timeout);
        set(8, UmdError::Busy);
        assert_eq!((get(4), get(8), get(12)), (Some(UmdError::Timeout), Some(UmdError::Busy), None));
        // The same place, another thread.
        set(4 + 4 * PLACES as u32, UmdError::NoAdapter);
        assert_eq!(get(4), None);
    }
}
