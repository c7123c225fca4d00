//! The GPU clock. Source: `DxgkDdiCalibrateGpuClock`.

use crate::platform::Platform;
use wddm_abi::DXGK_GPUCLOCKDATA;

/// GPU and CPU clocks at one moment. The GPU clock is the performance counter, so the two readings are one.
pub fn calibrate<P: Platform>(platform: &P) -> DXGK_GPUCLOCKDATA {
    let now = platform.clock();
    let mut data = DXGK_GPUCLOCKDATA::zeroed();
    data.GpuFrequency = platform.clock_frequency();
    data.GpuClockCounter = now;
    data.CpuClockCounter = now;
    data
}
