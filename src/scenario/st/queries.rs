//! `DxgkDdiQueryAdapterInfo`.

use crate::scenario::{Played, Scenario, Setup, Stage, same};
use anyhow::ensure;
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use wddm_abi::{DXGK_DRIVERCAPS, DXGK_QUERYADAPTERINFOTYPE as Query};

pub(super) const CASES: &[Scenario] = &[Scenario {
    id: "ST-41",
    title: "every type from 0 to 100, with no room, some, and plenty",
    source: "DxgkDdiQueryAdapterInfo, Return value; DXGK_QUERYADAPTERINFOTYPE",
    play: every_type,
}];

/// Output sizes: none, odd ones, those of small and large records.
const SIZES: [usize; 9] = [0, 1, 4, 8, 16, 40, 64, 600, 4096];
/// The type that walks an array behind a pointer in its output.
const WITH_POINTER: i32 = Query::DXGKQAITYPE_QUERYSEGMENT4.0;

fn every_type(stage: &Stage) -> Played {
    for rung in [0, 3] {
        stage.play(Setup::default().setting("MaxRung", rung), |scene| {
            let os = &scene.world.os;
            let mut answered = 0;
            for kind in -1..=100 {
                let mut best = false;
                for size in SIZES {
                    // Zeroed, QUERYSEGMENT4's own input asks for the count alone.
                    for input in [&[][..], &[0; 4], &[0xFF; 4]] {
                        let (status, output) = os.query_adapter_info(scene.adapter(), Query(kind), input, size);
                        let listed = matches!(status, STATUS_SUCCESS | STATUS_INVALID_PARAMETER);
                        ensure!(listed, "type {kind}, {size} bytes, {} of input: {status:?}", input.len());
                        ensure!(status == STATUS_SUCCESS || output.iter().all(|byte| *byte == 0), "a refusal wrote");
                        best |= status == STATUS_SUCCESS;
                        if kind == WITH_POINTER && status == STATUS_SUCCESS {
                            ensure!(output.iter().filter(|byte| **byte != 0).count() == 1, "more than the count");
                        }
                    }
                }
                answered += u32::from(best);
                let known = Query::VALUES.iter().any(|(value, _)| value.0 == kind);
                ensure!(known || !best, "type {kind} does not exist and was answered");
            }
            ensure!(answered >= 10, "{answered} types answered");
            // A stopped adapter is asked, too, and answers or refuses as the page lists it.
            os.stop_adapter(scene.adapter());
            for kind in 0..=60 {
                let (status, _) = os.query_adapter_info(scene.adapter(), Query(kind), &[], 4096);
                let listed = matches!(status, STATUS_SUCCESS | STATUS_INVALID_PARAMETER);
                ensure!(listed, "type {kind} of a stopped adapter: {status:?}");
            }
            os.restart_adapter(scene.adapter())?;
            // Shorter structures of older systems are filled as far as they go.
            for size in [540, 584, size_of::<DXGK_DRIVERCAPS>(), 1024] {
                let (status, output) = os.query_adapter_info(scene.adapter(), Query::DXGKQAITYPE_DRIVERCAPS, &[], size);
                same("driver caps", status, STATUS_SUCCESS)?;
                let (_, whole) = os.query_adapter_info(scene.adapter(), Query::DXGKQAITYPE_DRIVERCAPS, &[], 4096);
                ensure!(output == whole[..size], "{size} bytes are not the first of the whole");
            }
            Ok(())
        })?;
    }
    Ok(())
}
