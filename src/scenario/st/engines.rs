//! Engines, which are physical adapters that act as one: this driver links none.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use super::super::client::Client;
use super::super::te::hardware::works;
use crate::scenario::{Played, Scenario, Scene, Setup, Stage, same};
use crate::wrap::{copy, own, table};
use anyhow::{Context, ensure};
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_NO_MEMORY, STATUS_SUCCESS};
use wddm_abi::{
    D3DKMT_ESCAPE, D3DKMT_ESCAPETYPE, DXGK_NODEMETADATA, DXGK_QUERYADAPTERINFOTYPE as Query,
    DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT, DXGK_TDR_TYPE, DXGKARG_CALIBRATEGPUCLOCK, DXGKARG_COLLECTDBGINFO2,
    DXGKARG_CREATECONTEXT, DXGKARG_CREATEHWCONTEXT, DXGKARG_ESCAPE, DXGKARG_PREEMPTCOMMAND, DXGKARG_QUERYCURRENTFENCE,
    DXGKARG_QUERYDEPENDENTENGINEGROUP, DXGKARG_QUERYENGINESTATUS, DXGKARG_RESETENGINE, DXGKARG_RESETHWENGINE,
    DXGKARG_RESUMEHWENGINE, DXGKARG_SETSCHEDULINGLOGBUFFER, DXGKARG_SUBMITCOMMAND, DXGKARG_SUBMITCOMMANDVIRTUAL,
    HANDLE, NTSTATUS,
};

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "ST-89",
        title: "there is engine 0 alone: what names another, or another physical adapter, is refused, and moves nothing",
        source: "TDR changes in Windows 8, engines; DXGKARG_CREATECONTEXT, EngineAffinity",
        play: one_engine,
    },
    Scenario {
        id: "ST-95",
        title: "nodes that are not there: the driver itself refuses them, in each function that names one, and nothing moves",
        source: "TDR changes in Windows 8, engines (NodeOrdinal); DXGKARG_CREATECONTEXT, NodeOrdinal",
        play: no_such_node,
    },
];

/// The functions that are asked, in this order, and how they refuse: by a status that their page lists.
const ASKED: [(&str, NTSTATUS); 13] = [
    ("QueryDependentEngineGroup", STATUS_INVALID_PARAMETER),
    ("QueryEngineStatus", STATUS_INVALID_PARAMETER),
    ("ResetEngine", STATUS_INVALID_PARAMETER),
    ("ResetHwEngine", STATUS_INVALID_PARAMETER),
    ("ResumeHwEngine", STATUS_INVALID_PARAMETER),
    ("SetSchedulingLogBuffer", STATUS_INVALID_PARAMETER),
    ("SubmitCommandVirtual", STATUS_INVALID_PARAMETER),
    ("CalibrateGpuClock", STATUS_INVALID_PARAMETER),
    ("GetNodeMetadata", STATUS_INVALID_PARAMETER),
    ("CreateContext on that engine", STATUS_NO_MEMORY),
    ("CreateContext on that and engine 0", STATUS_NO_MEMORY),
    ("CreateHwContext", STATUS_INVALID_PARAMETER),
    ("QueryCurrentFence", STATUS_INVALID_PARAMETER),
];
/// Functions that may not fail, whatever they are asked: nothing may come of it.
const MUST_SUCCEED: [&str; 3] = ["PreemptCommand", "SubmitCommand", "CollectDbgInfo2"];

/// Words of the answer.
const WORDS: usize = ASKED.len() + MUST_SUCCEED.len() + 1;

/// Where a function is to do something: there is nothing.
#[derive(Clone, Copy)]
struct Named {
    node: u32,
    engine: u32,
}

crate::decorate! {
    /// Asks the driver about a place in place of answering, whose node and engine come with it: the statuses go to the
    /// caller, and behind them the context that CollectDbgInfo2 has named.
    asks: DxgkDdiEscape(adapter: HANDLE, args: *const DXGKARG_ESCAPE) -> NTSTATUS {
        let args = copy!(args);
        let to: *mut i32 = args.pPrivateDriverData.cast();
        if args.PrivateDriverDataSize as usize != WORDS * 4 {
            return own!(DxgkDdiEscape(adapter, &raw const args));
        }
        // SAFETY: Dxgkrnl's copy of the caller's buffer, of that size.
        let place = unsafe { to.cast::<[u32; 2]>().read_unaligned() };
        let place = Named { node: place[0], engine: place[1] };
        let words = [refusals(adapter, args.hDevice, place).as_slice(), nothing(adapter, place).as_slice()].concat();
        // SAFETY: Dxgkrnl's copy of the caller's buffer, of that size.
        unsafe { to.copy_from_nonoverlapping(words.as_ptr(), words.len()) };
        STATUS_SUCCESS
    }
}

/// Calls `ask` with a frame of its own: each copy of the table is gone behind its call, since what a function in front
/// of the driver's has on the stack counts as the driver's.
#[inline(never)]
fn apart(ask: impl FnOnce() -> NTSTATUS) -> NTSTATUS {
    ask()
}

/// What names the place where the driver may refuse.
fn refusals(adapter: HANDLE, device: HANDLE, Named { node, engine }: Named) -> [i32; ASKED.len()] {
    let mut group = DXGKARG_QUERYDEPENDENTENGINEGROUP::zeroed();
    (group.NodeOrdinal, group.EngineOrdinal) = (node, engine);
    let mut status = DXGKARG_QUERYENGINESTATUS::zeroed();
    (status.NodeOrdinal, status.EngineOrdinal) = (node, engine);
    let mut reset = DXGKARG_RESETENGINE::zeroed();
    (reset.NodeOrdinal, reset.EngineOrdinal) = (node, engine);
    let mut reset_hw = DXGKARG_RESETHWENGINE::zeroed();
    (reset_hw.NodeOrdinal, reset_hw.EngineOrdinal) = (node, engine);
    let mut resume = DXGKARG_RESUMEHWENGINE::zeroed();
    (resume.NodeOrdinal, resume.EngineOrdinal) = (node, engine);
    let mut log = DXGKARG_SETSCHEDULINGLOGBUFFER::zeroed();
    (log.NodeOrdinal, log.EngineOrdinal) = (node, engine);
    let mut packet = DXGKARG_SUBMITCOMMANDVIRTUAL::zeroed();
    (packet.NodeOrdinal, packet.EngineOrdinal, packet.SubmissionFenceId) = (node, engine, 0x7000_0000);
    let mut clock = DXGKARG_CALIBRATEGPUCLOCK::zeroed();
    let mut metadata = DXGK_NODEMETADATA::zeroed();
    // The node in the lower half, the physical adapter in the upper one.
    let at = node & 0xFFFF | engine << 16;
    let context = |affinity| {
        let mut context = DXGKARG_CREATECONTEXT::zeroed();
        (context.NodeOrdinal, context.EngineAffinity) = (node, affinity);
        apart(|| own!(DxgkDdiCreateContext(device, &raw mut context)))
    };
    let mut hw_context = DXGKARG_CREATEHWCONTEXT::zeroed();
    (hw_context.NodeOrdinal, hw_context.EngineAffinity) = (node, 1 << engine);
    let mut fence = DXGKARG_QUERYCURRENTFENCE::zeroed();
    (fence.NodeOrdinal, fence.EngineOrdinal) = (node, engine);
    let has_question = table().DxgkDdiQueryCurrentFence.is_some();
    [
        apart(|| own!(DxgkDdiQueryDependentEngineGroup(adapter, &raw mut group))),
        apart(|| own!(DxgkDdiQueryEngineStatus(adapter, &raw mut status))),
        apart(|| own!(DxgkDdiResetEngine(adapter, &raw mut reset))),
        apart(|| own!(DxgkDdiResetHwEngine(adapter, &raw mut reset_hw))),
        apart(|| own!(DxgkDdiResumeHwEngine(adapter, &raw mut resume))),
        apart(|| own!(DxgkDdiSetSchedulingLogBuffer(adapter, &raw const log))),
        apart(|| own!(DxgkDdiSubmitCommandVirtual(adapter, &raw const packet))),
        apart(|| own!(DxgkDdiCalibrateGpuClock(adapter, node, engine, &raw mut clock))),
        apart(|| own!(DxgkDdiGetNodeMetadata(adapter, at, &raw mut metadata))),
        context(1 << engine),
        context(1 | 1 << engine),
        apart(|| own!(DxgkDdiCreateHwContext(device, &raw mut hw_context))),
        // A compute-only driver has no such function.
        if has_question {
            apart(|| own!(DxgkDdiQueryCurrentFence(adapter, &raw mut fence)))
        } else {
            STATUS_INVALID_PARAMETER
        },
    ]
    .map(|status: NTSTATUS| status.0)
}

/// What names the place where the driver may not refuse; last, whether a context of it was named.
fn nothing(adapter: HANDLE, Named { node, engine }: Named) -> [i32; MUST_SUCCEED.len() + 1] {
    let mut preempt = DXGKARG_PREEMPTCOMMAND::zeroed();
    (preempt.NodeOrdinal, preempt.EngineOrdinal, preempt.PreemptionFenceId) = (node, engine, 0x7000_0001);
    let mut packet = DXGKARG_SUBMITCOMMAND::zeroed();
    (packet.NodeOrdinal, packet.EngineOrdinal, packet.SubmissionFenceId) = (node, engine, 0x7000_0002);
    let mut payload = DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT::zeroed();
    (payload.NodeOrdinal, payload.EngineOrdinal) = (node, engine);
    let mut buffer = vec![0_u8; 4096];
    let mut info = DXGKARG_COLLECTDBGINFO2::zeroed();
    (info.Reason, info.pBuffer, info.BufferSize) = (0x141, buffer.as_mut_ptr().cast(), buffer.len());
    info.TdrType = DXGK_TDR_TYPE::DXGK_TDR_TYPE_ENGINE_TIMEOUT;
    info.TdrPayload = (&raw mut payload).cast();
    // CAST: some dozen bytes.
    info.TdrPayloadSize = size_of_val(&payload) as u32;
    let answers = [
        apart(|| own!(DxgkDdiPreemptCommand(adapter, &raw const preempt))),
        apart(|| own!(DxgkDdiSubmitCommand(adapter, &raw const packet))),
        apart(|| own!(DxgkDdiCollectDbgInfo2(adapter, &raw mut info))),
    ];
    [answers[0].0, answers[1].0, answers[2].0, i32::from(!payload.hContext.is_null())]
}

/// Asks by an escape: every function refuses the place, or does nothing.
fn is_refused(scene: &Scene, rig: &Client, place: Named) -> Played {
    let mut words = vec![0_i32; WORDS];
    (words[0], words[1]) = (place.node.cast_signed(), place.engine.cast_signed());
    let mut record = D3DKMT_ESCAPE::zeroed();
    (record.hAdapter, record.hDevice) = (rig.raw.adapter, rig.plain);
    record.Type = D3DKMT_ESCAPETYPE::D3DKMT_ESCAPE_DRIVERPRIVATE;
    record.pPrivateDriverData = words.as_mut_ptr().cast();
    record.PrivateDriverDataSize = u32::try_from(size_of_val(words.as_slice()))?;
    rig.raw.ok(rig.raw.thunks.D3DKMTEscape, &mut record)?;
    ensure!(scene.calls("DxgkDdiEscape") >= 1, "the driver was not asked");
    for ((what, refusal), status) in ASKED.iter().zip(&words) {
        same(what, NTSTATUS(*status), *refusal)?;
    }
    for (what, status) in MUST_SUCCEED.iter().zip(&words[ASKED.len()..]) {
        same(what, NTSTATUS(*status), STATUS_SUCCESS)?;
    }
    same("contexts of the place that CollectDbgInfo2 named", words.last(), Some(&0))
}

/// Asks about each place while an engine works, of which nothing may move.
fn refuses(scene: &Scene, places: &[Named], more: impl FnOnce() -> Played) -> Played {
    let rig = Client::open(scene, "asks")?;
    // An engine works meanwhile, and another has a context that runs.
    let (queue, page) = (rig.queue(0)?, rig.page()?);
    let run = super::super::te::Loop::new(&rig)?;
    queue.run(|list| list.indirect(run.address, run.length))?;
    run.begins(scene)?;
    for place in places {
        let Named { node, engine } = *place;
        is_refused(scene, &rig, *place).with_context(|| format!("node {node:#x}, engine {engine}"))?;
    }
    more()?;
    // Nothing has moved: what ran runs, its engine was not reset, and no answer came unasked.
    run.end()?;
    queue.wait(0, super::super::stage::PATIENCE)?;
    queue.run(|list| list.store(page.at(0), 4))?;
    page.until(scene, "work behind the questions", 0, 4)?;
    works(scene)
}

fn no_such_node(stage: &Stage) -> Played {
    let places = [3, 4, 63, 64, 1000, u32::MAX].map(|node| Named { node, engine: 0 });
    stage.play(Setup::default().with_driver(asks), |scene| refuses(scene, &places, || Ok(())))
}

fn one_engine(stage: &Stage) -> Played {
    stage.play(Setup::default().with_driver(asks), |scene| {
        refuses(scene, &[Named { node: 0, engine: 1 }], || {
            for (kind, input) in [
                (Query::DXGKQAITYPE_PHYSICALADAPTERCAPS, [1, 0, 0, 0]),
                (Query::DXGKQAITYPE_GPUMMUCAPS, [1, 0, 0, 0]),
                (Query::DXGKQAITYPE_HISTORYBUFFERPRECISION, [1, 0, 0, 0]),
                (Query::DXGKQAITYPE_QUERYSEGMENT4, [1, 0, 0, 0]),
                (Query::DXGKQAITYPE_PAGETABLELEVELDESC, [0, 0, 1, 0]),
            ] {
                for (index, want) in [(input, STATUS_INVALID_PARAMETER), ([0; 4], STATUS_SUCCESS)] {
                    let (status, _) = scene.world.os.query_adapter_info(scene.adapter(), kind, &index, 4096);
                    same(&format!("{kind:?}, input {index:?}"), status, want)?;
                }
            }
            Ok(())
        })
    })
}
