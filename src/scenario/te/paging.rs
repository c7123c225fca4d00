//! Paging packets: resets that take one along, ids that they keep, and that they go first.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use super::super::client::Client;
use super::super::db::Room;
use super::super::{Played, Setup, Stage, same};
use super::packets::submitted;
use super::{Hog, client, is_lost, stubborn};
use crate::wrap::{copy, machine, own, record};
use anyhow::{Context, ensure};
use dxgkrnl_model::adapter::{PacketEvent, Reason, Step, What};
use dxgkrnl_model::personality::{MS, SECOND};
use gpu_wire::private::allocation_kind;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use wddm_abi::{
    D3DKMT_DEVICEEXECUTION_STATE, DRIVER_INITIALIZATION_DATA, DXGKARG_RESETENGINE, DXGKARG_SUBMITCOMMANDVIRTUAL,
    HANDLE, NTSTATUS,
};

/// The paging node.
const PAGING: u32 = 2;

crate::decorate! {
    /// Notes the newest packet of the paging node, for [`aborts_all`].
    notes_newest: DxgkDdiSubmitCommandVirtual(adapter: HANDLE, args: *const DXGKARG_SUBMITCOMMANDVIRTUAL) -> NTSTATUS {
        let given = copy!(args);
        if given.NodeOrdinal == PAGING {
            NEWEST.set(given.SubmissionFenceId);
        }
        own!(DxgkDdiSubmitCommandVirtual(adapter, args))
    }

    /// Says that everything was aborted that it was given, as hardware may that loses its whole queue.
    names_newest: DxgkDdiResetEngine(adapter: HANDLE, args: *mut DXGKARG_RESETENGINE) -> NTSTATUS {
        let status = own!(DxgkDdiResetEngine(adapter, args));
        record!(args).LastAbortedFenceId = NEWEST.get();
        status
    }
}

crate::decorate! {
    /// Notes the flag `Resubmission` of each paging packet that the driver is given, for [`flags`].
    notes_flags: DxgkDdiSubmitCommandVirtual(adapter: HANDLE, args: *const DXGKARG_SUBMITCOMMANDVIRTUAL) -> NTSTATUS {
        let given = copy!(args);
        if given.Flags.Paging() && given.NodeOrdinal == PAGING {
            let id = given.SubmissionFenceId;
            flags(|known| known.entry(id).or_default().push(given.Flags.Resubmission()));
        }
        own!(DxgkDdiSubmitCommandVirtual(adapter, args))
    }
}

/// The flags of paging packets by their ids, each time that they came.
type Flags = BTreeMap<u32, Vec<bool>>;

/// By machine.
static FLAGS: Mutex<BTreeMap<usize, Flags>> = Mutex::new(BTreeMap::new());

fn flags<R>(f: impl FnOnce(&mut Flags) -> R) -> R {
    f(FLAGS.lock().unwrap_or_else(PoisonError::into_inner).entry(machine()).or_default())
}

thread_local! {
    /// The newest packet of the paging node that this thread has submitted: the thread that submits an adapter's
    /// packets resets its engines, too.
    static NEWEST: Cell<u32> = const { Cell::new(0) };
}

/// A driver that loses all that it was given with a reset.
pub(super) fn aborts_all(table: &mut DRIVER_INITIALIZATION_DATA) {
    notes_newest(table);
    names_newest(table);
}

/// A packet on the paging node never ends, and a paging packet is behind it. The driver loses both with the reset: the
/// document allows it, and ours loses the first alone.
pub(super) fn hit(stage: &Stage) -> Played {
    // Paging waits behind the packet: nothing preempts it for that, as on hardware that has no preemption.
    let setup = stubborn().with_driver(aborts_all).windows(|windows| windows.preemption.in_ordinary_use = false);
    let setup = setup.windows(|windows| windows.tdr.process_limit = 0);
    stage.play(setup.resets(2), |scene| {
        let (raw, owner, idle) = (client(scene, "hangs")?, client(scene, "owner")?, client(scene, "beside")?);
        let hog = Hog::new(scene, &raw, &[PAGING])?;
        let room = Room::new(&owner)?;
        let beside = Room::new(&idle)?;
        let allocation = room.create(allocation_kind::SYSTEM, 64 << 10)?;
        room.make_resident(scene, allocation)?;
        hog.spin(PAGING, 0)?;
        hog.begins(scene, 0)?;
        let value = room.begin_map(allocation)?;
        is_lost(scene, &hog)?;
        let over = |want| Ok(scene.adapter().recoveries().iter().filter(|one| one.is_over).count() == want);
        scene.until("the adapter's reset", || over(2))?;
        scene.until("the owner's loss", || Ok(!room.is_active()?))?;
        // The system device goes on: what was asked for is carried out.
        room.paged(scene, value)?;
        let all = scene.adapter().recoveries();
        let (engine, adapter) = (&all[0], &all[1]);
        same("first", engine.what, What::PacketEngine { node: PAGING })?;
        same("then", (adapter.what, adapter.reason), (What::Adapter, Reason::Promoted))?;
        same("TdrReason", adapter.reason.tdr_reason(), 9)?;
        ensure!(engine.has(|step| *step == Step::PagingHit), "{engine}");
        ensure!(engine.has(|step| *step == Step::OwnersLost(1)), "{engine}");
        ensure!(adapter.has(|step| *step == Step::SystemResumed(1)), "{adapter}");
        let hung = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_HUNG;
        same("the owner's device", room.state()?, hung)?;
        let reset = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_RESET;
        same("a device beside", beside.state()?, reset)?;
        // The process whose packet hung is blocked with its first hang here; the owner's has hung nothing.
        same("blocked processes", (raw.process.is_blocked(), owner.process.is_blocked()), (true, false))?;
        let order = ["DxgkDdiResetEngine", "DxgkDdiResetFromTimeout", "DxgkDdiRestartFromTimeout"];
        same("calls", scene.journal(&order).as_slice(), order.as_slice())?;
        // Paging works, and so does a device that is made now.
        let rig = Client::open(scene, "after")?;
        let (queue, page) = (rig.queue(0)?, rig.page()?);
        queue.run(|list| list.store(page.at(0), 5))?;
        page.until(scene, "work behind the reset", 0, 5)
    })
}

/// A packet on the paging node, and paging packets behind it, preempted again and again.
pub(super) fn own_ids(stage: &Stage) -> Played {
    let setup = Setup::default().setting("PreemptInBuffers", 1).windows(|windows| {
        // A small buffer makes many paging packets of one operation.
        windows.faults.paging_buffer_size = Some(64);
        windows.preemption.paging_slice = 0;
        windows.preemption.slice = (0, MS / 10);
        windows.preemption.in_flight = 8;
    });
    stage.play(setup.with_driver(notes_flags), |scene| {
        let (raw, owner) = (client(scene, "long")?, client(scene, "owner")?);
        let hog = Hog::new(scene, &raw, &[PAGING])?;
        let room = Room::new(&owner)?;
        for round in 0..20 {
            let slot = round % 8;
            hog.spin(PAGING, slot)?;
            let allocation = room.create(allocation_kind::SYSTEM, 64 << 10)?;
            room.make_resident(scene, allocation)?;
            room.map(scene, allocation, 0)?;
            hog.end(slot)?;
            scene.until("the end of the packet", || hog.has_ended(slot))?;
        }
        let journal = scene.adapter().packet_journal(PAGING);
        let most = judge(&journal)?;
        ensure!(most >= 2, "no two paging packets were with the driver at once");
        let again = journal.iter().filter_map(submitted).filter(|(_, paging, again)| *paging && *again).count();
        ensure!(again > 0, "no paging packet came back");
        // What the driver was told: that a packet comes back each time but the first.
        let told = scene.world.os.run(|| flags(|known| known.clone()));
        let wrong = |(_, told): &(&u32, &Vec<bool>)| told.iter().enumerate().any(|(time, again)| *again != (time > 0));
        ensure!(!told.iter().any(|entry| wrong(&entry)), "flags by id: {:x?}", told.iter().find(wrong));
        same(
            "paging packets that the driver was told to come back",
            told.values().map(|told| told.len() - 1).sum(),
            again,
        )
    })
}

/// A packet has the paging node for as long as it likes, and paging wants it: the node is preempted for that long
/// before the packet's slice is over, or TdrDelay.
pub(super) fn short_slice(stage: &Stage) -> Played {
    let setup = Setup::default().setting("PreemptInBuffers", 1).windows(|windows| {
        windows.preemption.paging_slice = MS;
        windows.preemption.slice = (600 * SECOND, 600 * SECOND);
        windows.tdr.delay = 600 * SECOND;
    });
    stage.play(setup, |scene| {
        let (raw, owner) = (client(scene, "long")?, client(scene, "owner")?);
        let hog = Hog::new(scene, &raw, &[PAGING])?;
        let room = Room::new(&owner)?;
        let allocation = room.create(allocation_kind::SYSTEM, 64 << 10)?;
        room.make_resident(scene, allocation)?;
        hog.spin(PAGING, 0)?;
        hog.begins(scene, 0)?;
        room.map(scene, allocation, 0).context("paging beside a packet that does not end")?;
        same("the packet has ended", hog.has_ended(0)?, false)?;
        hog.end(0)?;
        scene.until("the end of the packet", || hog.has_ended(0))
    })
}

/// What comes back of paging has the ids that it had, in their order, before anything new; nothing else has an old id.
/// Returns how many paging packets the driver had at once, at most.
fn judge(journal: &[PacketEvent]) -> anyhow::Result<usize> {
    // Ids that were submitted and have not ended, in order, with whether they are paging.
    let mut flights: Vec<(u32, bool)> = Vec::new();
    let mut back: Vec<u32> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    let mut most = 0;
    for event in journal {
        match *event {
            PacketEvent::Submitted { id, paging, again } => {
                match back.first().copied() {
                    Some(first) => {
                        ensure!(paging && again && id == first, "{id:#x} came before {first:#x}");
                        back.remove(0);
                    }
                    None => ensure!(seen.insert(id), "{id:#x} is not new"),
                }
                flights.push((id, paging));
                most = most.max(flights.iter().filter(|(_, paging)| *paging).count());
            }
            PacketEvent::Completed { id } | PacketEvent::Preempted { completed: id, .. } => {
                if let Some(at) = flights.iter().position(|(of, _)| *of == id) {
                    flights.drain(..=at);
                }
                if matches!(event, PacketEvent::Preempted { .. }) {
                    back = flights.drain(..).filter(|(_, paging)| *paging).map(|(id, _)| id).collect();
                }
            }
            PacketEvent::Preempting { .. } => {}
            PacketEvent::Reset { .. } => anyhow::bail!("a reset"),
        }
    }
    Ok(most)
}

/// An endless packet on the paging node: paging of others takes no TdrDelay.
pub(super) fn goes_first(stage: &Stage) -> Played {
    let setup = Setup::default().setting("PreemptInBuffers", 1);
    let setup = setup.windows(|windows| windows.tdr.delay = 20_000 * MS);
    stage.play(setup, |scene| {
        let raw = client(scene, "endless")?;
        let hog = Hog::new(scene, &raw, &[PAGING])?;
        hog.spin(PAGING, 0)?;
        hog.begins(scene, 0)?;
        let begun = std::time::Instant::now();
        for _ in 0..5 {
            let rig = Client::open(scene, "others")?;
            let (queue, page) = (rig.queue(0)?, rig.page()?);
            queue.run(|list| list.store(page.at(0), 7))?;
            page.until(scene, "work beside it", 0, 7)?;
        }
        ensure!(begun.elapsed().as_secs() < 20, "paging waited for a timeout");
        hog.end(0)?;
        scene.until("its end", || hog.has_ended(0)).context("the packet that was taken off again and again")?;
        same("resets", scene.adapter().recoveries().len(), 0)
    })
}
