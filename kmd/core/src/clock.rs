//! The GPU clock. Source: `DxgkDdiCalibrateGpuClock`.

use crate::platform::Platform;
use wddm_abi::DXGK_GPUCLOCKDATA;

/// Valid bits of a GPU time stamp: those of the performance counter.
pub const PRECISION: u32 = 64;

/// GPU and CPU clocks at one moment. The GPU clock is the performance counter, so one reading is both. The engines and
/// the context management processor have no other clock.
pub fn calibrate<P: Platform>(platform: &P) -> DXGK_GPUCLOCKDATA {
    let now = platform.clock();
    let mut data = DXGK_GPUCLOCKDATA::zeroed();
    data.GpuFrequency = platform.clock_frequency();
    data.GpuClockCounter = now;
    data.CpuClockCounter = now;
    data
}
