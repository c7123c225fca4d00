//! What the driver answers about a node: the last packet that is over, whether its engine responds, where it preempts;
//! and what it takes the flag `Resubmission` for.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use super::super::client::Client;
use super::super::db::{Memory, Room, store};
use super::super::{Played, Scene, Setup, Stage, same};
use super::hardware::{controller, force, recovered};
use super::{Hog, client, is_lost, packet_nodes, stubborn, victim};
use crate::wrap::{copy, own, record};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::adapter::PacketEvent;
use dxgkrnl_model::personality::SECOND;
use gpu_wire::packet::{Encoded, Indirect};
use wddm_abi::ntstatus::STATUS_SUCCESS;
use wddm_abi::{
    D3DKMDT_COMPUTE_PREEMPTION_GRANULARITY as Compute, D3DKMDT_GRAPHICS_PREEMPTION_GRANULARITY as Graphics,
    D3DKMT_ESCAPE, D3DKMT_ESCAPETYPE, D3DKMT_HANDLE, DXGKARG_ESCAPE, DXGKARG_QUERYENGINESTATUS,
    DXGKARG_SUBMITCOMMANDVIRTUAL, HANDLE, NTSTATUS,
};

/// A packet that never ends, twice: the first one's engine is reset, and the question about the second may not be
/// answered with a fence before the one that the reset has ended. Then the same behind a packet that faults.
pub(super) fn last_over(stage: &Stage) -> Played {
    let node = victim(stage);
    stage.play(stubborn().resets(2), |scene| {
        let raws = [client(scene, "first")?, client(scene, "second")?];
        // All of it is there before: no packet comes between the reset and the question.
        let hogs = [Hog::new(scene, &raws[0], &[node])?, Hog::new(scene, &raws[1], &[node])?];
        for (round, hog) in (1..).zip(&hogs) {
            hog.spin(node, 0)?;
            is_lost(scene, hog)?;
            recovered(scene, round)?;
            ensure!(questions(scene) >= round as u64, "the driver was not asked for the fence");
        }
        Ok(())
    })?;
    stage.play(stubborn().resets(1), |scene| {
        let raws = [client(scene, "faults")?, client(scene, "hangs")?];
        let (bad, hog) = (Hog::new(scene, &raws[0], &[node])?, Hog::new(scene, &raws[1], &[node])?);
        bad.faults(node, 0)?;
        is_lost(scene, &bad)?;
        hog.spin(node, 0)?;
        is_lost(scene, &hog)?;
        recovered(scene, 1)?;
        ensure!(questions(scene) >= 1, "the driver was not asked for the fence");
        Ok(())
    })?;
    stage.play(stubborn().resets(2), |scene| behind_the_adapters(scene, node)).context("the adapter's reset")
}

/// A packet that never ends is lost with the adapter, and the next one of its node is the first behind that: on the
/// lowest rung no paging comes between.
fn behind_the_adapters(scene: &Scene, node: u32) -> Played {
    let control = controller(scene)?;
    let raws = [client(scene, "before")?, client(scene, "behind")?];
    let lost = Hog::new(scene, &raws[0], &[node])?;
    lost.spin(node, 0)?;
    lost.begins(scene, 0)?;
    same("the escape", force(&control, None), STATUS_SUCCESS)?;
    recovered(scene, 1)?;
    let before = questions(scene);
    let hog = Hog::new(scene, &raws[1], &[node])?;
    hog.spin(node, 0)?;
    is_lost(scene, &hog)?;
    recovered(scene, 2)?;
    ensure!(questions(scene) > before, "the driver was not asked for the fence behind the adapter's reset");
    Ok(())
}

fn questions(scene: &Scene) -> u64 {
    scene.calls("DxgkDdiQueryCurrentFence")
}

crate::decorate! {
    /// Answers an escape of a word per node with what the driver says of its engine: 0 or 1.
    tells_status: DxgkDdiEscape(adapter: HANDLE, args: *const DXGKARG_ESCAPE) -> NTSTATUS {
        let args = copy!(args);
        if args.PrivateDriverDataSize as usize != size_of::<Words>() {
            return own!(DxgkDdiEscape(adapter, &raw const args));
        }
        for (node, word) in (0..).zip(record!(args.pPrivateDriverData.cast::<Words>())) {
            let mut question = DXGKARG_QUERYENGINESTATUS::zeroed();
            question.NodeOrdinal = node;
            let status = own!(DxgkDdiQueryEngineStatus(adapter, &raw mut question));
            *word = if status == STATUS_SUCCESS { question.EngineStatus.Value } else { u32::MAX };
        }
        STATUS_SUCCESS
    }

    /// The driver is not told that a packet comes back.
    as_new: DxgkDdiSubmitCommandVirtual(adapter: HANDLE, args: *const DXGKARG_SUBMITCOMMANDVIRTUAL) -> NTSTATUS {
        let mut args = copy!(args);
        args.Flags.set_Resubmission(false);
        own!(DxgkDdiSubmitCommandVirtual(adapter, &raw const args))
    }
}

/// The packet at which an engine stops answering: far behind what starts and first clients need.
const WEDGE: u32 = 4000;

/// A word per node.
type Words = [u32; gpu_wire::NODE_COUNT];

/// Which engines respond, by an escape to [`tells_status`].
fn responds(rig: &Client) -> Result<[bool; gpu_wire::NODE_COUNT]> {
    let mut words: Words = Default::default();
    let mut record = D3DKMT_ESCAPE::zeroed();
    record.hAdapter = rig.raw.adapter;
    record.Type = D3DKMT_ESCAPETYPE::D3DKMT_ESCAPE_DRIVERPRIVATE;
    record.pPrivateDriverData = (&raw mut words).cast();
    // CAST: some words.
    record.PrivateDriverDataSize = size_of::<Words>() as u32;
    rig.raw.ok(rig.raw.thunks.D3DKMTEscape, &mut record)?;
    ensure!(words.iter().all(|word| *word <= 1), "statuses {words:x?}");
    Ok(words.map(|word| word != 0))
}

/// An engine that is idle responds, and so does one that is busy and was asked nothing; one that was asked to come off
/// its packet, and cannot, does not, and the engines beside it do.
pub(super) fn responsive(stage: &Stage) -> Played {
    let node = victim(stage);
    // Nothing preempts the node but the timeout.
    let setup = stubborn().windows(|w| (w.tdr.delay, w.preemption.in_ordinary_use) = (SECOND, false));
    let setup = setup.with_driver(tells_status);
    stage.play(setup, |scene| {
        let (rig, raw) = (Client::open(scene, "asks")?, client(scene, "long")?);
        let hog = Hog::new(scene, &raw, &[node])?;
        same("idle engines that respond", responds(&rig)?, [true; gpu_wire::NODE_COUNT])?;
        hog.spin(node, 0)?;
        hog.begins(scene, 0)?;
        same("engines that respond, one of them busy", responds(&rig)?, [true; gpu_wire::NODE_COUNT])?;
        let mut said = [true; gpu_wire::NODE_COUNT];
        scene.until("an engine that was asked to come off, and does not respond", || {
            said = responds(&rig)?;
            Ok(said.contains(&false))
        })?;
        let asked = scene.adapter().packet_journal(node);
        ensure!(asked.iter().any(|event| matches!(event, PacketEvent::Preempting { .. })), "it was not asked");
        for (of, responds) in (0..).zip(said) {
            same(&format!("whether the engine of node {of} responds"), responds, of != node)?;
        }
        hog.end(0)?;
        scene.until("the packet's end", || hog.has_ended(0))?;
        scene.until("the answer to the preemption", || Ok(responds(&rig)? == [true; gpu_wire::NODE_COUNT]))?;
        same("recoveries", scene.adapter().recoveries().len(), 0)
    })?;
    let setup = Setup::default().setting("FaultWedgeAt", WEDGE).with_driver(tells_status).resets(2);
    let setup = setup.windows(|w| (w.tdr.delay, w.preemption.in_ordinary_use) = (2 * SECOND, false));
    stage.play(setup, is_stopped).context("an engine that stops answering")
}

/// It does not respond, though it was not asked to come off anything; the engines beside it do.
fn is_stopped(scene: &Scene) -> Played {
    let (rig, fed) = (Client::open(scene, "asks")?, Client::open(scene, "feeds")?);
    let queue = fed.queue(0)?;
    let mut said = [true; gpu_wire::NODE_COUNT];
    scene.until("an engine that does not respond", || {
        queue.run(|list| (0..200).try_for_each(|_| list.nop(8)))?;
        said = responds(&rig)?;
        Ok(said.contains(&false))
    })?;
    for (of, responds) in (0..).zip(said) {
        same(&format!("whether the engine of node {of} responds"), responds, of != 0)?;
    }
    let asked = scene.adapter().packet_journal(0);
    ensure!(!asked.iter().any(|event| matches!(event, PacketEvent::Preempting { .. })), "it was asked to come off");
    same("recoveries by then", scene.adapter().recoveries().len(), 0)?;
    recovered(scene, 2)?;
    let again = Client::open(scene, "asks again")?;
    same("engines that respond behind the adapter's reset", responds(&again)?, [true; gpu_wire::NODE_COUNT])
}

/// A packet of a word, which is stored first and once, and a loop elsewhere, which says that it runs.
struct Staged<'a> {
    room: Room<'a>,
    memory: Memory,
    context: D3DKMT_HANDLE,
}

/// Where the loop is, and the words: stored first, by the loop, and at the end.
const LOOP: u64 = 256;
const FIRST: u64 = 1024;
const RUNS: u64 = 1032;
const ENDED: u64 = 1040;

impl<'a> Staged<'a> {
    fn new(scene: &Scene, raw: &'a crate::scenario::Raw, node: u32) -> Result<Self> {
        let room = Room::new(raw)?;
        let memory = room.memory(scene, 4096)?;
        let context = room.packet_context(node)?;
        Ok(Self { room, memory, context })
    }

    fn submit(&self) -> Played {
        let at = |offset| self.memory.gpu + offset;
        let jump = |length| Indirect { address: at(LOOP), length }.to_packet();
        let bytes = |packets: &[Encoded]| packets.iter().flat_map(|one| one.as_bytes().to_vec()).collect::<Vec<_>>();
        let around = |length| bytes(&[store(at(RUNS), 1), jump(length), store(at(ENDED), 1)]);
        let length = around(0).len() as u64;
        self.memory.write(self.room.raw, LOOP, &around(length))?;
        let packet = bytes(&[store(at(FIRST), 1), jump(length)]);
        self.memory.write(self.room.raw, 0, &packet)?;
        Ok(self.room.raw.submit_command(self.context, self.memory.gpu, u32::try_from(packet.len())?)?)
    }

    fn word(&self, offset: u64) -> Result<u64> {
        Ok(self.room.raw.load(self.memory.cpu + usize::try_from(offset)?)?)
    }

    fn forget(&self, offset: u64) -> Played {
        Ok(self.room.raw.store(self.memory.cpu + usize::try_from(offset)?, 0)?)
    }

    /// The loop's jump becomes nothing.
    fn end(&self) -> Played {
        let (before, jump) = (store(0, 0), Indirect { address: 0, length: 0 }.to_packet());
        let length = u32::try_from(jump.as_bytes().len())?;
        let at = LOOP + before.as_bytes().len() as u64;
        self.memory.write(self.room.raw, at, &Encoded::nop(length).as_bytes()[..8])
    }
}

/// A packet that was taken off in its middle goes on there where it comes back with the flag; without it, it is another
/// one that lies at the same place, and begins at its beginning.
pub(super) fn resubmitted(stage: &Stage) -> Played {
    let node = victim(stage);
    for comes_back in [true, false] {
        // No timeout is wanted, however busy the machine is.
        let setup = Setup::default().setting("PreemptInBuffers", 1);
        let setup = if comes_back { setup } else { setup.with_driver(as_new) };
        stage
            .play(setup, |scene| {
                let (raw, other) = (client(scene, "long")?, client(scene, "short")?);
                let (long, short) = (Staged::new(scene, &raw, node)?, Hog::new(scene, &other, &[node])?);
                long.submit()?;
                scene.until("the run of the long packet", || Ok(long.word(RUNS)? == 1))?;
                same("its first word", long.word(FIRST)?, 1)?;
                long.forget(FIRST)?;
                short.short(node, 0)?;
                scene.until("a packet beside it", || short.has_ended(0))?;
                long.forget(RUNS)?;
                scene.until("its run, once more", || Ok(long.word(RUNS)? == 1))?;
                long.end()?;
                scene.until("its end", || Ok(long.word(ENDED)? == 1))?;
                same("whether it began anew", long.word(FIRST)? == 1, !comes_back)?;
                ensure!(long.room.is_active()? && short.is_active()?, "a device is lost");
                Ok(())
            })
            .with_context(|| format!("with the flag: {comes_back}"))?;
    }
    Ok(())
}

/// The capabilities name the granularity at which packets come off: with the engines' own, another process's packet
/// runs while a long one does; at the boundary of DMA buffers it waits for the long one's end.
pub(super) fn granularity(stage: &Stage) -> Played {
    let finer = (
        Graphics::D3DKMDT_GRAPHICS_PREEMPTION_PRIMITIVE_BOUNDARY,
        Compute::D3DKMDT_COMPUTE_PREEMPTION_DISPATCH_BOUNDARY,
    );
    let buffers = (
        Graphics::D3DKMDT_GRAPHICS_PREEMPTION_DMA_BUFFER_BOUNDARY,
        Compute::D3DKMDT_COMPUTE_PREEMPTION_DMA_BUFFER_BOUNDARY,
    );
    for (in_buffers, want) in [(1, finer), (0, buffers)] {
        let setup = Setup::default().setting("PreemptInBuffers", in_buffers);
        // Long enough for a busy machine: what waits is no timeout.
        stage
            .play(setup.windows(|windows| windows.tdr.delay = 10 * SECOND), |scene| {
                let caps = scene.adapter().caps().context("capabilities")?.driver.PreemptionCaps;
                let said = (caps.GraphicsPreemptionGranularity, caps.ComputePreemptionGranularity);
                same("the granularity", said, want)?;
                for node in packet_nodes(stage) {
                    let (raw, other) = (client(scene, "long")?, client(scene, "short")?);
                    let (hog, beside) = (Hog::new(scene, &raw, &[*node])?, Hog::new(scene, &other, &[*node])?);
                    hog.spin(*node, 0)?;
                    hog.begins(scene, 0)?;
                    beside.short(*node, 0)?;
                    if said == finer {
                        scene.until("a packet beside a long one", || beside.has_ended(0))?;
                        ensure!(!hog.has_ended(0)?, "the long packet has ended by itself");
                    } else {
                        let is_asked = |event: &PacketEvent| matches!(event, PacketEvent::Preempting { .. });
                        scene.until("the preemption", || {
                            Ok(scene.adapter().packet_journal(*node).iter().any(is_asked))
                        })?;
                        // The time is what it is about: many times what a preemption takes.
                        std::thread::park_timeout(std::time::Duration::from_millis(100));
                        ensure!(!beside.has_ended(0)?, "node {node}: a packet has come off in its middle");
                    }
                    hog.end(0)?;
                    scene.until("the long packet's end", || hog.has_ended(0))?;
                    scene.until("the other's end", || beside.has_ended(0))?;
                }
                same("recoveries", scene.adapter().recoveries().len(), 0)
            })
            .with_context(|| format!("PreemptInBuffers {in_buffers}"))?;
    }
    Ok(())
}
