//! Doorbells.

use std::sync::atomic::Ordering;

use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_SUCCESS, STATUS_UNSUCCESSFUL};
use wddm_abi::{
    D3DDDI_DOORBELLSTATUS, DRIVER_INITIALIZATION_DATA, DXGKARG_CONNECTDOORBELL, DXGKARG_CREATEDOORBELL,
    DXGKARG_DESTROYDOORBELL, DXGKARG_DISCONNECTDOORBELL, DXGKARG_NOTIFYWORKSUBMISSION, DXGKARGCB_DISCONNECTDOORBELL,
    NTSTATUS, win_extern,
};

use super::start::contiguous;
use super::{Doorbell, Toy, UNKNOWN, argument, array, callback, number, owner, raw};

pub fn fill(table: &mut DRIVER_INITIALIZATION_DATA) {
    table.DxgkDdiCreateDoorbell = Some(create_doorbell);
    table.DxgkDdiConnectDoorbell = Some(connect_doorbell);
    table.DxgkDdiDisconnectDoorbell = Some(disconnect_doorbell);
    table.DxgkDdiDestroyDoorbell = Some(destroy_doorbell);
    table.DxgkDdiNotifyWorkSubmission = Some(notify_work);
}

win_extern! {
    fn create_doorbell(arguments: *mut DXGKARG_CREATEDOORBELL) -> NTSTATUS {
        let arguments = argument(arguments);
        let Some(toy) = owner(arguments.hHwQueue) else { return UNKNOWN };
        let ring = number(arguments.hRingBuffer);
        let ring_known = {
            let state = toy.state();
            state.allocations.contains_key(state.opened.get(&ring).unwrap_or(&ring))
        };
        if arguments.PrivateDriverDataSize != 16 || !ring_known {
            return STATUS_INVALID_PARAMETER;
        }
        let private = array(arguments.PrivateDriverData.cast::<u64>().cast_const(), 2);
        let handle = toy.own_for(arguments.hDoorbell, "object-handle-doorbell");
        let mut state = toy.state();
        let key = number(arguments.hHwQueue);
        if let Some(queue) = state.queues.get_mut(&key) {
            (queue.ring, queue.control) = (private[0], private[1]);
        }
        state.doorbells.insert(handle, Doorbell { queue: key, os: number(arguments.hDoorbell) as u64, ..Doorbell::default() });
        arguments.hDoorbell = raw(handle);
        STATUS_SUCCESS
    }

    fn connect_doorbell(arguments: *mut DXGKARG_CONNECTDOORBELL) -> NTSTATUS {
        let arguments = argument(arguments);
        let Some(toy) = owner(arguments.hDoorbell) else { return UNKNOWN };
        toy.count("connect");
        if toy.is("db-connect") {
            return STATUS_UNSUCCESSFUL;
        }
        let Some(address) = connect(&toy, number(arguments.hDoorbell)) else { return STATUS_UNSUCCESSFUL };
        arguments.KernelCpuVirtualAddress = core::ptr::with_exposed_provenance_mut(address);
        if arguments.Flags.RequireSecondaryAddress() {
            let secondary = address + toy.options.pages_in_front() * 4096;
            arguments.SecondaryKernelCpuVirtualAddress = core::ptr::with_exposed_provenance_mut(secondary);
        }
        arguments.Status = match (toy.options.mutant, toy.options.notify) {
            ("db-status-left", _) => arguments.Status,
            ("db-status", _) => D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_DISCONNECTED_RETRY,
            (_, true) => D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_CONNECTED_NOTIFY_KMD,
            _ => D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_CONNECTED,
        };
        toy.poke();
        STATUS_SUCCESS
    }

    fn disconnect_doorbell(arguments: *mut DXGKARG_DISCONNECTDOORBELL) -> NTSTATUS {
        let doorbell = argument(arguments).hDoorbell;
        let Some(toy) = owner(doorbell) else { return UNKNOWN };
        toy.count("disconnect");
        if let Some(doorbell) = toy.state().doorbells.get_mut(&number(doorbell)) {
            doorbell.physical = None;
        }
        if toy.is("db-must-succeed") { STATUS_UNSUCCESSFUL } else { STATUS_SUCCESS }
    }

    fn destroy_doorbell(arguments: *mut DXGKARG_DESTROYDOORBELL) -> NTSTATUS {
        let doorbell = argument(arguments).hDoorbell;
        let Some(toy) = owner(doorbell) else { return UNKNOWN };
        let gone = toy.state().doorbells.remove(&number(doorbell));
        if let Some(gone) = gone {
            // It is taken away by the way while it goes, as a driver may that disconnects and destroys at once.
            let queue = toy.state().queues.get(&gone.queue).map_or(0, |queue| queue.os);
            let reason = if toy.is("cb-disconnect-going") {
                D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_CONNECTED
            } else {
                D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_DISCONNECTED_RETRY
            };
            take_away(&toy, queue, gone.os, reason);
        }
        toy.disown(number(doorbell));
        STATUS_SUCCESS
    }

    fn notify_work(arguments: *mut DXGKARG_NOTIFYWORKSUBMISSION) -> NTSTATUS {
        let Some(toy) = owner(argument(arguments).hHwQueue) else { return UNKNOWN };
        toy.count("notify work");
        toy.poke();
        STATUS_SUCCESS
    }
}

/// Gives a doorbell a physical one, taking it away from the one that was connected longest ago if need be.
fn connect(toy: &std::sync::Arc<Toy>, key: usize) -> Option<usize> {
    match toy.options.mutant {
        "db-address" => return Some(0x1000),
        "db-page" => return Machine::pool_page(),
        _ => (),
    }
    let victim = {
        let state = toy.state();
        let connected: Vec<_> = state.doorbells.iter().filter(|(_, bell)| bell.physical.is_some()).collect();
        if connected.len() < toy.options.doorbells {
            None
        } else {
            connected.into_iter().min_by_key(|(_, bell)| bell.stamp).map(|(key, bell)| (*key, bell.os, bell.queue))
        }
    };
    if let Some((victim, os, queue)) = victim {
        let queue_os = toy.state().queues.get(&queue).map_or(0, |queue| queue.os);
        toy.count("victim");
        let reason = match toy.options.mutant {
            "cb-disconnect" => D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_CONNECTED,
            _ => D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_DISCONNECTED_RETRY,
        };
        take_away(toy, queue_os, os, reason);
        if let Some(bell) = toy.state().doorbells.get_mut(&victim) {
            bell.physical = None;
        }
    }
    let taken: Vec<_> = toy.state().doorbells.values().filter_map(|bell| bell.physical).collect();
    let free = (0..toy.options.doorbells).find(|slot| !taken.contains(slot))?;
    let mut pages = toy.doorbell_pages.lock().unwrap_or_else(|error| error.into_inner());
    let bytes = toy.options.pages_of_a_doorbell() * 4096;
    while pages.len() <= free {
        let new = match toy.bar.1.load(Ordering::Acquire) {
            0 => contiguous(toy, bytes)?,
            bar => (0, bar + pages.len() * bytes),
        };
        pages.push(new);
    }
    let address = pages[free].1;
    drop(pages);
    // Nothing is left of what the last owner has written anywhere.
    let all: *mut u8 = core::ptr::with_exposed_provenance_mut(address);
    // SAFETY: the doorbell's own memory, which the adapter has while it is started.
    unsafe { all.write_bytes(0, bytes) };
    let mut state = toy.state();
    state.stamp += 1;
    let stamp = state.stamp;
    let bell = state.doorbells.get_mut(&key)?;
    bell.physical = Some(free);
    bell.stamp = stamp;
    // What was published while it was disconnected is looked for.
    (bell.seen, bell.rang) = (0, true);
    drop(state);
    // The last pages of the mutant's doorbell would lie behind its memory.
    Some(if toy.is("db-address-end") { pages_end(toy, address, bytes) - 4096 } else { address })
}

/// The end of the memory that a doorbell lies in, at `address` with `bytes`: its own, or all that the device has.
fn pages_end(toy: &Toy, address: usize, bytes: usize) -> usize {
    match toy.bar.1.load(Ordering::Acquire) {
        0 => address + bytes,
        bar => bar + super::start::bar_bytes(&toy.options),
    }
}

/// Calls DxgkCbDisconnectDoorbell, by Dxgkrnl's handles.
fn take_away(toy: &Toy, queue: u64, doorbell: u64, reason: D3DDDI_DOORBELLSTATUS) {
    let mut arguments = DXGKARGCB_DISCONNECTDOORBELL::zeroed();
    arguments.hHwQueue = raw(queue as usize);
    arguments.hDoorbell = raw(doorbell as usize);
    arguments.DisconnectReason = reason;
    let _ = callback!(toy, DxgkCbDisconnectDoorbell(&raw mut arguments));
}

/// Memory for the mutant that exposes a page of pool.
struct Machine;

impl Machine {
    fn pool_page() -> Option<usize> {
        nt_model::Machine::with_current(|machine| {
            let machine = machine?;
            let object = machine.allocate_pages(1, nt_model::PageKind::NonPagedPool, 0)?;
            machine.map_for_model(&object)
        })
    }
}
