//! Bug check callbacks: what a driver has to add to a dump.
//!
//! A dump of a broken rule has what the registered `KbCallbackSecondaryDumpData` routines give, as a stream of its own:
//! Windows would stop there and ask them. The other kinds are registered, and not called.
//!
//! Source: `KeRegisterBugCheckReasonCallback`; *Writing a Bug Check Callback Routine* (windows-driver-docs
//! kernel/writing-a-bug-check-callback-routine), "Implementing a KbCallbackSecondaryDumpData Callback Routine".

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::callback;
use crate::cpu::Site;
use crate::dump::read;
use crate::kernel::Machine;

/// `KbCallbackSecondaryDumpData`.
const SECONDARY_DUMP_DATA: u32 = 2;
/// `BufferInserted`: the state of a record that is registered.
pub(crate) const INSERTED: u8 = 1;
/// `HIGH_LEVEL` of x64.
const HIGH_LEVEL: u8 = 15;
/// Bytes of the small buffer that the system lends a routine.
const LENT: usize = 4096;
/// Bytes that a routine may give.
const MOST: u32 = 1 << 20;

/// A registration.
#[derive(Clone, Copy, Debug)]
struct Registered {
    record: usize,
    routine: usize,
    reason: u32,
    site: Site,
}

/// The registrations of one machine.
#[derive(Debug, Default)]
pub(crate) struct BugCheckCallbacks {
    list: Mutex<Vec<Registered>>,
}

impl BugCheckCallbacks {
    /// Those that there are, by the address of their record.
    pub(crate) fn registered(&self) -> Vec<(u64, Site)> {
        // CAST: an address.
        self.list.lock().iter().map(|one| (one.record as u64, one.site)).collect()
    }
}

/// Data that a driver's routine gave for a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecondaryData {
    /// The GUID that the routine tagged it with, in the order of its bytes.
    pub tag: [u8; 16],
    /// What it gave.
    pub bytes: Vec<u8>,
}

impl Machine {
    /// Registers a callback of a kind. Returns `false`, and does nothing, where the record is registered already.
    ///
    /// IRQL: any.
    #[doc(alias = "KeRegisterBugCheckReasonCallback")]
    #[track_caller]
    pub(crate) fn register_bug_check_callback(&self, record: usize, routine: usize, reason: u32) -> bool {
        let mut list = self.bug_check_callbacks.list.lock();
        let is_new = list.iter().all(|one| one.record != record);
        if is_new {
            list.push(Registered { record, routine, reason, site: Site::here() });
        }
        is_new
    }

    /// Removes a callback. Returns `false` where there is none of this record.
    ///
    /// IRQL: any.
    #[doc(alias = "KeDeregisterBugCheckReasonCallback")]
    pub(crate) fn deregister_bug_check_callback(&self, record: usize) -> bool {
        let mut list = self.bug_check_callbacks.list.lock();
        let before = list.len();
        list.retain(|one| one.record != record);
        list.len() != before
    }

    /// What the routines give for a dump: each is asked for the size, and then for the data, at `HIGH_LEVEL`.
    pub(crate) fn secondary_data(&self) -> Vec<SecondaryData> {
        let list = self.bug_check_callbacks.list.lock().clone();
        let asked = list.iter().filter(|one| one.reason == SECONDARY_DUMP_DATA);
        let level = self.irql();
        self.set_irql(HIGH_LEVEL);
        let given = asked.filter_map(ask).collect();
        self.set_irql(level);
        given
    }
}

/// Asks one routine. `None` where it gives nothing, or what cannot be read.
fn ask(one: &Registered) -> Option<SecondaryData> {
    let lent = vec![0_u8; LENT];
    let lent_at = lent.as_ptr().expose_provenance();
    // KBUGCHECK_SECONDARY_DUMP_DATA: InBuffer, its length and MaximumAllowed, Guid (two words), OutBuffer, its length.
    let data: Box<[AtomicU64; 6]> = Box::new([const { AtomicU64::new(0) }; 6]);
    // CAST: an address; small numbers.
    data[0].store(lent_at as u64, Ordering::Relaxed);
    data[1].store(LENT as u64 | u64::from(MOST) << 32, Ordering::Relaxed);
    for out in [0, lent_at] {
        data[4].store(out as u64, Ordering::Relaxed);
        data[5].store(0, Ordering::Relaxed);
        let at = data.as_ptr().expose_provenance();
        // CAST: an enumerator; 48 bytes.
        callback::invoke(one.routine, [SECONDARY_DUMP_DATA as usize, one.record, at, 48]);
    }
    let [.., low, high, out, length] = std::array::from_fn::<u64, 6, _>(|word| data[word].load(Ordering::Relaxed));
    // CAST: the member has 32 bits; an address.
    let mut bytes = vec![0; (length as u32).min(MOST) as usize];
    if bytes.is_empty() || !read(out as usize, &mut bytes) {
        return None;
    }
    drop(lent);
    let mut tag = [0; 16];
    tag[..8].copy_from_slice(&low.to_le_bytes());
    tag[8..].copy_from_slice(&high.to_le_bytes());
    Some(SecondaryData { tag, bytes })
}
