//! BI-52: what only paging buffers may hold, in command buffers of user mode.

use crate::scenario::client::Client;
use crate::scenario::db::{Room, raw, store};
use crate::scenario::te::hardware::ACTIVE;
use crate::scenario::{Played, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, ensure};
use gpu_wire::packet::{EVERY_PROCESS, Encoded, TableCopy, TlbFlush};
use gpu_wire::pte::{Place, Pte};
use wddm_abi::D3DKMT_DEVICEEXECUTION_STATE as State;

pub(super) const CASES: &[Scenario] = &[Scenario {
    id: "BI-52",
    title: "operations of paging buffers in command buffers of user mode, on every kind of node: an error of their \
        device, and nothing is written",
    source: "DxgkDdiBuildPagingBuffer; DXGK_SUBMITCOMMANDFLAGS, Paging (which user mode cannot set); SPEC, opcodes",
    play: paging,
}];

/// Each operation that only the kernel may have carried out; `table` is memory of the process's own, `entry` what would
/// be written.
fn operations(table: u64) -> [(&'static str, Encoded); 4] {
    let page = Pte::leaf(Place::System(1), false).unwrap_or(Pte::INVALID);
    let at = Pte::table(Place::System(1)).unwrap_or(Pte::INVALID);
    [
        ("entries of a table", Encoded::table_write(at, 0, [page])),
        ("an entry of a table, repeated", Encoded::table_repeat(at, 0, 4, page)),
        (
            "a copy of entries",
            TableCopy { source: table, destination: table + 2048, count: 4, reserved: 0 }.to_packet(),
        ),
        ("a flush", TlbFlush { process: EVERY_PROCESS, start: 0, end: 0 }.to_packet()),
    ]
}

fn paging(stage: &Stage) -> Played {
    // A reset would be a hang: none is announced.
    stage.play(Setup::default().quick_tdr(), |scene| {
        let works = Client::open(scene, "works")?;
        let (good, page) = (works.queue(0)?, works.page()?);
        let mut round = 0;
        let mut beside = |what: &str| -> Played {
            round += 1;
            good.run(|list| list.store(page.at(0), round))?;
            page.until(scene, "work beside it", 0, round).with_context(|| what.to_owned())
        };
        for number in 0..operations(0).len() {
            for node in [0, 1] {
                let what = format!("{}, from a queue of node {node}", operations(0)[number].0);
                by_queue(scene, node, number).with_context(|| what.clone())?;
                beside(&what)?;
            }
            let what = format!("{}, from a packet", operations(0)[number].0);
            by_packet(scene, number).with_context(|| what.clone())?;
            beside(&what)?;
        }
        same("the device beside them", works.device.state()?.execution, ACTIVE)?;
        same("recoveries", scene.adapter().recoveries().len(), 0)
    })
}

/// From a queue of the user-mode driver's, whatever it is on this rung.
fn by_queue(scene: &Scene, node: u32, number: usize) -> Played {
    let bad = Client::open(scene, "bad")?;
    let (queue, code) = (bad.queue(node)?, bad.page()?);
    let (_, operation) = operations(code.gpu + 1024)[number];
    code.write(0, operation.as_bytes())?;
    code.write(1024, &7_u64.to_le_bytes())?;
    // Below rung 3 the end of the list is a call of its own, which may find the device lost.
    let _refused = queue.run(|list| list.indirect(code.gpu, operation.as_bytes().len() as u64));
    scene.until("the device's error", || Ok(bad.device.state()?.execution != ACTIVE))?;
    // CAST: states are small numbers.
    let state = State(bad.device.state()?.execution as i32);
    ensure!(is_fault(state), "the state is {state:?}");
    same("a word that the copy would have written", code.word((1024 + 2048) / 8)?, 0)
}

/// In a packet, on the node that pages: a packet node on every rung.
fn by_packet(scene: &Scene, number: usize) -> Played {
    let raw = raw(scene)?;
    let room = Room::new(&raw)?;
    let (memory, context) = (room.memory(scene, 4096)?, room.packet_context(2)?);
    let (_, operation) = operations(memory.gpu + 1024)[number];
    memory.write(&raw, 0, operation.as_bytes())?;
    memory.write(&raw, 1024, &7_u64.to_le_bytes())?;
    // Behind it: nothing of a buffer runs on behind what is wrong in it.
    let behind = store(memory.gpu + 3584, 1);
    memory.write(&raw, operation.as_bytes().len() as u64, behind.as_bytes())?;
    let length = u32::try_from(operation.as_bytes().len() + behind.as_bytes().len())?;
    raw.submit_command(context, memory.gpu, length).context("user mode's call succeeds")?;
    scene.until("the device's error", || Ok(!room.is_active()?))?;
    let state = room.state()?;
    ensure!(is_fault(state), "the state is {state:?}");
    same("a word that the copy would have written", raw.load(memory.cpu + 1024 + 2048)?, 0)?;
    same("a word behind it", raw.load(memory.cpu + 3584)?, 0)
}

/// A packet or queue that the engine has stopped: not a hang.
fn is_fault(state: State) -> bool {
    [State::D3DKMT_DEVICEEXECUTION_ERROR_DMAFAULT, State::D3DKMT_DEVICEEXECUTION_ERROR_DMAPAGEFAULT].contains(&state)
}
