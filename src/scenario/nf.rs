//! NF: lifetime and sharing of native fences. Source of all: *Native GPU fence objects*.

use super::{Played, Raw, Scenario, Setup, Stage, same};
use anyhow::{Context, ensure};

const ARTICLE: &str = "Native GPU fence objects, Create and destroy native fences";

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "NF-01",
        title: "create with an initial value, read it, destroy",
        source: ARTICLE,
        play: create_default,
    },
    Scenario {
        id: "NF-04",
        title: "user mode's mapping of CurrentValue is read-only",
        source: ARTICLE,
        play: read_only,
    },
];

fn create_default(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let user = scene.process("client")?;
        let raw = Raw::open(&user.process, scene.adapter().luid())?;
        let device = raw.device().context("device")?;
        let fence = raw.native_fence(device, 41).context("fence")?;
        same("CurrentValue", raw.load(fence.cpu)?, 41)?;
        same("one create", scene.calls("DxgkDdiCreateNativeFence"), 1)?;
        raw.destroy_fence(fence.handle).context("destroy")?;
        let names = [
            "DxgkDdiCreateNativeFence",
            "DxgkDdiOpenNativeFence",
            "DxgkDdiCloseNativeFence",
            "DxgkDdiDestroyNativeFence",
        ];
        same("the driver's calls", scene.journal(&names), names.to_vec())
    })
}

fn read_only(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let user = scene.process("client")?;
        let raw = Raw::open(&user.process, scene.adapter().luid())?;
        let device = raw.device().context("device")?;
        let fence = raw.native_fence(device, 7).context("fence")?;
        let violation = raw.store(fence.cpu, 8).err().context("a store through CurrentValueCpuVa succeeded")?;
        ensure!(violation.write && violation.address == fence.cpu, "{violation:?}");
        same("CurrentValue", raw.load(fence.cpu)?, 7)?;
        Ok(())
    })
}
