//! What a driver may say of a doorbell's size.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use super::{RingQueue, Room, raw};
use crate::scenario::{Played, Scene, Setup, Stage, same};
use crate::wrap::{copy, own, record};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::driver::Decorator;
use wddm_abi::{
    DXGK_MAX_DOORBELL_SIZE_BYTES, DXGK_QUERYADAPTERINFOTYPE, DXGK_USERMODESUBMISSION_CAPS, DXGKARG_QUERYADAPTERINFO,
    HANDLE, NTSTATUS,
};

const RULE: &str = "DXG-USER-MODE-CAPS";
const PAGE: u32 = 4096;

/// Has the driver say that a doorbell has `size` bytes.
fn says(args: *const DXGKARG_QUERYADAPTERINFO, status: NTSTATUS, size: u32) -> NTSTATUS {
    let asked = copy!(args);
    if asked.Type == DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_USERMODESUBMISSION_CAPS && status.is_success() {
        record!(asked.pOutputData.cast::<DXGK_USERMODESUBMISSION_CAPS>()).DoorbellSizeInBytes = size;
    }
    status
}

crate::decorate! {
    /// Nothing.
    says_nothing: DxgkDdiQueryAdapterInfo(adapter: HANDLE, args: *const DXGKARG_QUERYADAPTERINFO) -> NTSTATUS {
        says(args, own!(DxgkDdiQueryAdapterInfo(adapter, args)), 0)
    }

    /// A byte more than there may be.
    says_too_much: DxgkDdiQueryAdapterInfo(adapter: HANDLE, args: *const DXGKARG_QUERYADAPTERINFO) -> NTSTATUS {
        says(args, own!(DxgkDdiQueryAdapterInfo(adapter, args)), DXGK_MAX_DOORBELL_SIZE_BYTES + 1)
    }
}

fn said(scene: &Scene) -> Result<DXGK_USERMODESUBMISSION_CAPS> {
    scene.adapter().caps().context("caps")?.user_mode.context("user-mode submission caps")
}

pub(super) fn sizes(stage: &Stage) -> Played {
    // The macro's number, and a page.
    same("the bound", DXGK_MAX_DOORBELL_SIZE_BYTES, 4 * PAGE)?;
    for pages in [1, 4] {
        let setup = Setup::default().setting("DoorbellPages", pages);
        let play = |scene: &Scene| {
            let caps = said(scene)?;
            same("the doorbell's size", caps.DoorbellSizeInBytes, pages * PAGE)?;
            let second = (caps.Flags.SecondaryDoorbellSupported(), caps.SecondaryDoorbellSizeInBytes);
            same("the secondary doorbell", second, (false, 0))?;
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            let queue = RingQueue::connected(scene, &room, 0, 4096)?;
            let progress = queue.submit_through(&[])?;
            queue.wait(scene, progress)
        };
        // Of a stage that sets the number for all cases, that is the size.
        if stage.setting("DoorbellPages").is_none_or(|set| set == pages) {
            stage.play(setup, play).with_context(|| format!("{pages} pages"))?;
        }
    }
    let refused: [(Decorator, u32); 2] = [(says_nothing, 0), (says_too_much, DXGK_MAX_DOORBELL_SIZE_BYTES + 1)];
    for (decorate, size) in refused {
        let refused = stage.play(Setup::default().with_driver(decorate), |_| Ok(()));
        let why = refused.err().with_context(|| format!("the adapter starts with {size} bytes"))?;
        ensure!(format!("{why:#}").contains(RULE), "{size} bytes: {why:#}");
    }
    Ok(())
}
