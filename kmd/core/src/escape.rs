//! Private escapes: what our own tools ask. Source: `DxgkDdiEscape`.
//!
//! The buffer is Dxgkrnl's copy of user mode's; it is read whole, checked, and written whole.

use crate::adapter::Started;
use crate::asked::Questions;
use crate::irql::Passive;
use crate::platform::Platform;
use crate::status::{Error, Result};
use core::sync::atomic::{AtomicU64, Ordering};
use gpu_wire::INTERFACE_VERSION;
use gpu_wire::private::{EscapeCounters, EscapeHeader, EscapeStart, MAGIC, escape_command};

/// Answers an escape in place.
///
/// # Errors
/// [`Error::InvalidParameter`] for a block that is not ours, too small, or of an unknown command;
/// [`Error::DriverMismatch`] for another version.
pub fn answer<P: Platform>(
    _irql: &Passive,
    started: &Started<P>,
    questions: Questions,
    block: &mut [u8],
) -> Result<()> {
    let header = EscapeHeader::read(block).ok_or(Error::InvalidParameter)?;
    if header.magic != MAGIC {
        return Err(Error::InvalidParameter);
    }
    if header.interface_version != INTERFACE_VERSION {
        return Err(Error::DriverMismatch);
    }
    match header.command {
        escape_command::COUNTERS => {
            let t = started.gpu.totals();
            // CAST: 144 bytes.
            let header = EscapeHeader { size: size_of::<EscapeCounters>() as u32, ..header };
            let reply = EscapeCounters {
                header,
                packets: t.packets,
                rings: t.rings,
                signals: t.signals,
                interrupts_wanted: t.interrupts_wanted,
                interrupts_suppressed: t.interrupts_suppressed,
                interrupts_raised: t.interrupts_raised,
                interrupts_failed: t.interrupts_failed,
                waits_met: t.waits_met,
                waits_parked: t.waits_parked,
                wakes: t.wakes,
                backwards: t.backwards,
                log_entries: t.log_entries,
                faults: t.faults,
                bytes: t.bytes,
                completions: t.completions,
                resets: t.resets,
            };
            let to = block.get_mut(..reply.bytes().len()).ok_or(Error::InvalidParameter)?;
            to.copy_from_slice(reply.bytes());
            Ok(())
        }
        escape_command::START => {
            // CAST: 128 bytes.
            let header = EscapeHeader { size: size_of::<EscapeStart>() as u32, ..header };
            let reply = start(started, questions, header);
            let to = block.get_mut(..reply.bytes().len()).ok_or(Error::InvalidParameter)?;
            to.copy_from_slice(reply.bytes());
            Ok(())
        }
        _ => Err(Error::InvalidParameter),
    }
}

/// The reply to [`escape_command::START`], under `header`.
fn start<P: Platform>(started: &Started<P>, questions: Questions, header: EscapeHeader) -> EscapeStart {
    let plan = &started.plan;
    let granted = plan.granted.iter().enumerate().map(|(bit, granted)| u32::from(granted.enabled) << bit);
    let (paging_kinds, paging_others) = started.strays.operations();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    EscapeStart {
        header,
        rung: plan.rung.raw(),
        max_rung: started.settings.max_rung.raw(),
        asked: questions.features,
        answered: questions.supported,
        granted: granted.sum(),
        interface_size: started.dxgkrnl.size(),
        queries: questions.queries,
        refused: questions.refused,
        stray_entries: count(&started.strays.entries),
        stray_ranges: count(&started.strays.ranges),
        stray_flushes: count(&started.strays.flushes),
        refused_packets: count(&started.strays.packets),
        other_features: questions.strangers.into(),
        odd_contexts: count(&started.strays.odd_contexts),
        plain_progress: count(&started.strays.plain_progress),
        paging_kinds,
        paging_others,
        uncached: count(&started.strays.uncached),
    }
}
