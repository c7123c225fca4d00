//! `DxgkCbDisconnectDoorbell`: the driver asks the OS to take a doorbell away from its queue. The OS answers when
//! it has changed the mapping; it calls no DDI for what the driver itself asked for.

use std::sync::Arc;

use nt_model::{In, shims};
use wddm_abi::{DXGKARGCB_DISCONNECTDOORBELL, NTSTATUS, ntstatus};

use super::{ABORT, Doorbell, RETRY};
use crate::objects::hw_queue::HwQueue;
use crate::port::callback::{callback_of, record, routines};
use crate::port::handle;
use crate::port::miniport::Miniport;
use crate::port::rules::interface::CB_DISCONNECT;

routines! {
    DISCONNECT = "DxgkCbDisconnectDoorbell"("pArgs") 0..=0;
}

shims! {
    /// What the driver reaches through `DXGKRNL_INTERFACE` about doorbells.
    pub(crate) table CALLBACKS;

    fn DxgkCbDisconnectDoorbell(machine, args: In<[u8; size_of::<DXGKARGCB_DISCONNECTDOORBELL>()]>) -> NTSTATUS {
        let arguments: DXGKARGCB_DISCONNECTDOORBELL = record(args);
        // A doorbell that is being destroyed is not found any more, and the driver cannot know that until
        // DxgkDdiDestroyDoorbell has returned. Asked before and behind the search: the destruction may end before
        // it, or begin during it.
        let is_going = || handle::object::<Doorbell>(arguments.hDoorbell).is_some_and(|doorbell| doorbell.is_going());
        let gone_before = is_going() || waited_for_destruction(machine, &arguments);
        let found = find(machine, &arguments);
        let going = gone_before || is_going();
        let reason = arguments.DisconnectReason;
        let known = matches!(reason, RETRY | ABORT);
        let fine = found.is_some() && known;
        machine.rules.check(&CB_DISCONNECT, fine || (known && going), || {
            let (queue, doorbell) = (handle::describe(arguments.hHwQueue), handle::describe(arguments.hDoorbell));
            format!("queue {queue}, doorbell {doorbell}, reason {reason:?}")
        });
        let Some((adapter, doorbell)) = found.filter(|_| fine) else { return ntstatus::STATUS_INVALID_PARAMETER };
        let status = callback_of(&adapter, &DISCONNECT, [args.address() as u64], |_| {
            Doorbell::wait_for_rotation(&adapter);
            let there = doorbell.disconnected_by_driver(reason);
            machine.rules.check(&CB_DISCONNECT, there, || {
                format!("{} is destroyed, and the driver is still in the callback", handle::describe(arguments.hDoorbell))
            });
            ntstatus::STATUS_SUCCESS
        });
        status.unwrap_or_else(|status| status)
    }
}

/// Where the personality has a lock: waits until the driver does not destroy the doorbell any more. It comes to that
/// late, by the time of two rotations, so that a destruction, with the rotation in front of it, may begin meanwhile,
/// and end. Returns whether there was one: the driver has called with a doorbell that was there, and can do nothing
/// about it, since a destruction that waited for the callback would wait for ever.
fn waited_for_destruction(machine: &nt_model::Machine, arguments: &DXGKARGCB_DISCONNECTDOORBELL) -> bool {
    let Some(doorbell) = handle::object::<Doorbell>(arguments.hDoorbell) else { return false };
    let adapter = doorbell.queue().adapter();
    if !adapter.personality().destroys_locked {
        return false;
    }
    let was_there = doorbell.is_alive();
    (0..2).for_each(|_| Doorbell::wait_for_rotation(adapter));
    let is_going = doorbell.is_going();
    doorbell.ended.wait_for(machine, None, || (!doorbell.is_going()).then_some(()));
    is_going || was_there && !doorbell.is_alive()
}

/// The doorbell, when both handles lead to it.
fn find(
    machine: &nt_model::Machine,
    arguments: &DXGKARGCB_DISCONNECTDOORBELL,
) -> Option<(Arc<Miniport>, Arc<Doorbell>)> {
    let reading = crate::port::shared::shared_of(machine)?.personality().handles.disconnect_doorbell;
    let ours = reading.takes_dxgkrnl().then(|| handle::object::<Doorbell>(arguments.hDoorbell)).flatten();
    let found = ours.filter(|doorbell| doorbell.is_alive()).or_else(|| {
        let shared = reading.takes_driver().then(|| crate::port::shared::shared_of(machine)).flatten()?;
        let queues = shared.adapters().into_iter().flat_map(|adapter| HwQueue::all_of(&adapter));
        let number = arguments.hDoorbell.expose_provenance();
        queues.flat_map(|queue| queue.doorbells()).find(|doorbell| doorbell.driver_handle() == number)
    })?;
    let queue = found.queue();
    let by_ours = reading.takes_dxgkrnl()
        && handle::object::<HwQueue>(arguments.hHwQueue).is_some_and(|named| Arc::ptr_eq(&named, queue));
    let by_theirs = reading.takes_driver() && queue.driver_handle() == arguments.hHwQueue.expose_provenance();
    (by_ours || by_theirs).then(|| (queue.adapter().clone(), found.clone()))
}
