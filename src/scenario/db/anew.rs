//! Queues of the user-mode driver that are made anew.
#![expect(unsafe_code, reason = "functions of the driver's table are called")]

use crate::client::{Queue, Refused};
use crate::scenario::client::Client;
use crate::scenario::te::hardware::ACTIVE;
use crate::scenario::{Played, Scenario, Scene, Setup, Stage, portable, refused, same};
use crate::wrap::copy;
use anyhow::Context;
use std::time::Duration;
use umd_core::ffi::types::{FP_MODE_KERNEL, FP_MODE_USER, FP_QUEUE_KERNEL_MODE};
use wddm_abi::ntstatus::{STATUS_CONNECTION_ABORTED, STATUS_UNSUCCESSFUL};
use wddm_abi::{D3DDDI_DOORBELLSTATUS, DXGKARG_CONNECTDOORBELL, DXGKARGCB_DISCONNECTDOORBELL, NTSTATUS};

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "DB-72",
        title: "fp_queue_recreate: the same way of submission, and through the kernel; progress begins again; of a \
                lost device it is refused, and another device works",
        source: "User-mode work submission, Residency model (destroyed and made again by user mode), cleanup_fallback",
        play: recreated,
    },
    Scenario {
        id: "DB-73",
        title: "a doorbell that says ABORT, and a connection that fails, while the device lives: the queue is lost, and \
                is made anew, by a doorbell or through the kernel",
        source: "User-mode work submission, Work submission pseudocode in UMD, cleanup_fallback; D3DDDI_DOORBELLSTATUS",
        play: lost,
    },
];

fn recreated(stage: &Stage) -> Played {
    portable::case(stage, "DB-72", |_| Ok(()))
}

crate::reaches! {
    /// Doorbells that the driver takes away are taken for good.
    takes_for_good: DxgkCbDisconnectDoorbell = for_good;
}

wddm_abi::win_extern! {
    fn for_good(args: *mut DXGKARGCB_DISCONNECTDOORBELL) -> NTSTATUS {
        let mut mine = copy!(args);
        mine.DisconnectReason = D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_DISCONNECTED_ABORT;
        crate::theirs!(DxgkCbDisconnectDoorbell(&raw mut mine))
    }
}

crate::decorate! {
    connects_nothing: DxgkDdiConnectDoorbell(_args: *mut DXGKARG_CONNECTDOORBELL) -> NTSTATUS {
        STATUS_UNSUCCESSFUL
    }
}

const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

/// The queue stores a value, as the submission of this number since it was made.
fn stores(queue: &Queue, page: &super::super::client::Page, value: u64, number: u64) -> Played {
    same("the progress value", queue.run(|list| list.store(page.at(0), value))?, number)?;
    queue.wait(number, PATIENCE)?;
    same("progress", queue.progress()?, (number, number))?;
    same("memory", page.word(0)?, value)
}

/// The queue is lost, and its device lives.
fn is_lost(rig: &Client, what: &str, result: Result<u64, Refused>) -> Played {
    refused(what, result, STATUS_CONNECTION_ABORTED)?;
    same("the device", rig.device.state()?.execution, ACTIVE)
}

fn made_anew(queue: &Queue, flags: u32, mode: u32) -> Played {
    queue.recreate(flags)?;
    same("progress of a queue that is made anew", queue.progress()?, (0, 0))?;
    same("its way of submission", queue.info()?.mode, mode)
}

/// Two queues on one physical doorbell, whose driver takes it for good.
fn taken(scene: &Scene) -> Played {
    let rig = Client::open(scene, "client")?;
    let (one, other, page) = (rig.queue(0)?, rig.queue(0)?, rig.page()?);
    let nothing = |queue: &Queue| queue.run(|list| list.nop(8));
    stores(&one, &page, 1, 1)?;
    stores(&one, &page, 2, 2)?;
    stores(&other, &page, 3, 1)?;
    is_lost(&rig, "the first queue", nothing(&one))?;
    is_lost(&rig, "the same, again", nothing(&one))?;
    made_anew(&one, 0, FP_MODE_USER)?;
    stores(&one, &page, 4, 1)?;
    is_lost(&rig, "the second queue", nothing(&other))?;
    made_anew(&other, FP_QUEUE_KERNEL_MODE, FP_MODE_KERNEL)?;
    // A queue without a doorbell takes none from the other.
    for round in 1..=3 {
        stores(&other, &page, 10 * round, round)?;
        stores(&one, &page, 10 * round + 1, round + 1)?;
    }
    made_anew(&other, 0, FP_MODE_USER)?;
    stores(&other, &page, 50, 1)
}

/// No doorbell is connected.
fn unconnected(scene: &Scene) -> Played {
    let rig = Client::open(scene, "client")?;
    let (queue, page) = (rig.queue(0)?, rig.page()?);
    for round in 0..2 {
        let result = queue.run(|list| list.store(page.at(0), 1));
        is_lost(&rig, "a queue that cannot be connected", result).with_context(|| format!("round {round}"))?;
        made_anew(&queue, 0, FP_MODE_USER)?;
    }
    made_anew(&queue, FP_QUEUE_KERNEL_MODE, FP_MODE_KERNEL)?;
    stores(&queue, &page, 7, 1)?;
    stores(&queue, &page, 8, 2)
}

fn lost(stage: &Stage) -> Played {
    let setup = Setup::default().setting("PhysicalDoorbells", 1).setting("IdleMilliseconds", 0);
    stage.play(setup.with_driver(takes_for_good), taken).context("a doorbell that is taken for good")?;
    let setup = Setup::default().with_driver(connects_nothing).breaks(&["DXG-DB-CONNECT"]);
    stage.play(setup, unconnected).context("no connection")
}
