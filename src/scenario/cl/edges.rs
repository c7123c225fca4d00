//! What no client of ours is given on an ordinary Windows: a progress fence at an address that is none.

use super::raw;
use crate::demo::counters;
use crate::scenario::db::{Room, store};
use crate::scenario::{Played, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, Result};
use gpu_wire::GpuVa;
use gpu_wire::packet::Encoded;
use wddm_abi::D3DDDI_CREATECONTEXTFLAGS;

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "CL-14",
        title: "a queue whose progress fence is at no multiple of 8 is made and counted; a store there faults",
        source: "DxgkDdiCreateHwQueue, Return value; DXGKARG_CREATEHWQUEUE",
        play: odd_progress,
    },
];

/// A value with bits in both halves.
const WIDE: u64 = 0x5555_6666_7777_8888;

fn odd_progress(stage: &Stage) -> Played {
    for null in [false, true] {
        let setup = Setup::default().quick_tdr().windows(|windows| windows.faults.odd_progress = true);
        stage.play(setup, |scene| odd_queue(scene, null)).with_context(|| format!("null rendering: {null}"))?;
    }
    Ok(())
}

/// A queue that was told of four bytes behind its fence. `null`: its context renders nothing, so that the driver, and
/// no packet, writes the fence.
fn odd_queue(scene: &Scene, null: bool) -> Played {
    let raw = raw(scene)?;
    let room = Room::new(&raw)?;
    let flags = D3DDDI_CREATECONTEXTFLAGS::zeroed().with_HwQueueSupported(true).with_NullRendering(null);
    let context = room.context_with(0, flags).context("context")?;
    let queue = room.queue_in(context, false).context("a queue whose progress fence is nowhere")?;
    same("such queues, as the driver counts them", counters::start(&raw)?.plain_progress, 1)?;
    let (progress, buffer) = (queue.progress, room.memory(scene, 4096)?);
    // The word behind it, unless that is on the next page: the high half of a value would be there. The fence itself is
    // the OS's to write when the device is lost.
    let behind = Some(progress.cpu + 8).filter(|address| !address.is_multiple_of(4096));
    let word = || -> Result<_> { Ok(behind.map(|address| raw.load(address)).transpose()?) };
    let submit = |packets: &[Encoded], value: u64| -> Played {
        let bytes: Vec<u8> = packets.iter().flat_map(|packet| packet.as_bytes().to_vec()).collect();
        buffer.write(&raw, 0, &bytes)?;
        room.submit(queue.handle, buffer.gpu, u32::try_from(bytes.len())?, value).context("submission")
    };
    let before = word()?;
    if null {
        submit(&[store(buffer.gpu + 1024, 7)], WIDE)?;
        room.lost_by_page_fault(scene)?;
        return same("the word behind the fence", word()?, before);
    }
    // Packets name the fence where it is.
    submit(&[store(buffer.gpu + 1024, 7), Encoded::fence_signal(GpuVa(progress.gpu), 1)], 1)?;
    scene.until("the queue's progress", || Ok(raw.load(progress.cpu)? == 1))?;
    same("what ran", raw.load(buffer.cpu + 1024)?, 7)?;
    submit(&[Encoded::fence_signal(GpuVa(progress.gpu + 4), WIDE)], 2)?;
    scene.until("the device's error", || Ok(!room.is_active()?))?;
    same("the word behind the fence", word()?, before)
}
