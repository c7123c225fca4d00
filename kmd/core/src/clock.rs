//! The GPU clock. Source: `DxgkDdiCalibrateGpuClock`.

use crate::platform::Platform;
use wddm_abi::DXGK_GPUCLOCKDATA;

/// Bits of a GPU time stamp.
pub const PRECISION: u32 = 64;

/// GPU and CPU clocks at one moment. The GPU clock is the performance counter, so the two readings are one, and the engines
/// and the context management processor have the same.
pub fn calibrate<P: Platform>(platform: &P) -> DXGK_GPUCLOCKDATA {
    let now = platform.clock();
    let mut data = DXGK_GPUCLOCKDATA::zeroed();
    data.GpuFrequency = platform.clock_frequency();
    data.GpuClockCounter = now;
    data.CpuClockCounter = now;
    data
}
