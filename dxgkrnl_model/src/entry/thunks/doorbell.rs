//! The two thunks of a doorbell whose records have another form on the 28000 line, under the same names: there a queue
//! owns its doorbell, and is what they name.
//!
//! Source: d3dkmthk.h of the SDKs 10.0.26100 and 10.0.28000. Chosen: on the 28000 line `D3DKMTCreateDoorbell`, which is
//! still declared, makes the doorbell of a queue; reserved bytes that are not 0 are refused; private data of a
//! notification go nowhere, since no record of a DDI has them.

use std::sync::Arc;

use wddm_abi::{D3DKMT_CONNECT_DOORBELL, D3DKMT_NOTIFY_WORK_SUBMISSION, NTSTATUS, kit_28000};

use super::{Call, DONE, INVALID, run};
use crate::objects::doorbell::Doorbell;

/// The doorbell of a queue.
fn of_queue(call: &Call, queue: u32) -> Result<Arc<Doorbell>, NTSTATUS> {
    call.process.hw_queue(queue).and_then(|queue| queue.doorbell()).ok_or(INVALID)
}

/// Whether this Windows has the records of the 28000 line.
fn is_newer(machine: &nt_model::Machine) -> bool {
    crate::port::shared::shared_of(machine).is_some_and(|shared| shared.personality().build.has_queue_doorbells())
}

nt_model::shims! {
    /// Doorbells.
    pub(super) table THUNKS;

    fn D3DKMTConnectDoorbell(machine, arguments: usize) -> NTSTATUS {
        const NAME: &str = "D3DKMTConnectDoorbell";
        if is_newer(machine) {
            return run(machine, NAME, arguments, |call, record: &mut kit_28000::D3DKMT_CONNECT_DOORBELL| {
                let doorbell = of_queue(call, record.hHwQueue)?;
                if record.Flags.Value != 0 || record.Reserved != [0; 64] {
                    return Err(INVALID);
                }
                doorbell.connect()?;
                let addresses = doorbell.addresses();
                let pointer = core::ptr::with_exposed_provenance_mut;
                record.DoorbellMapping.CpuVa = pointer(addresses.doorbell);
                record.DoorbellMapping.SecondaryCpuVa = pointer(addresses.secondary);
                DONE
            });
        }
        run(machine, NAME, arguments, |call, record: &mut D3DKMT_CONNECT_DOORBELL| {
            let doorbell = call.process.doorbell(record.hDoorbell).ok_or(INVALID)?;
            if record.Flags.Value != 0 {
                return Err(INVALID);
            }
            doorbell.connect()?;
            DONE
        })
    }

    fn D3DKMTNotifyWorkSubmission(machine, arguments: usize) -> NTSTATUS {
        const NAME: &str = "D3DKMTNotifyWorkSubmission";
        if is_newer(machine) {
            return run(machine, NAME, arguments, |call, record: &mut kit_28000::D3DKMT_NOTIFY_WORK_SUBMISSION| {
                let doorbell = of_queue(call, record.hHwQueue)?;
                if record.Flags.Value != 0 {
                    return Err(INVALID);
                }
                doorbell.notify()?;
                DONE
            });
        }
        run(machine, NAME, arguments, |call, record: &mut D3DKMT_NOTIFY_WORK_SUBMISSION| {
            let doorbell = call.process.doorbell(record.hDoorbell).ok_or(INVALID)?;
            if record.Flags.Value != 0 {
                return Err(INVALID);
            }
            doorbell.notify()?;
            DONE
        })
    }
}
