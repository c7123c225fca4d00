//! Settings under the device's registry key. Their meaning is in `docs/settings.md`.

use crate::irql::Passive;
use crate::platform::Platform;
use gpu_engine::fence_log::Barriers;
use gpu_wire::NODE_COUNT;
use gpu_wire::doorbell::Model;
use gpu_wire::private::Rung;

/// What the registry says, within bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// `LocalSegmentSize`, bytes: 16 MiB to 16 GiB, whole megabytes.
    pub local_segment_size: u64,
    /// `DoorbellModel`: 0 dedicated, 1 global.
    pub doorbell_model: Model,
    /// `PhysicalDoorbells`: 1 to 256.
    pub physical_doorbells: u64,
    /// `MaxRung`: how far up the driver goes even if the OS allows more.
    pub max_rung: Rung,
    /// `OptimizedInterrupt`: fence interrupts name the queue.
    pub optimized_interrupt: bool,
    /// `MapToGpuSystemProcess`.
    pub map_to_system_process: bool,
    /// `MonitoredValueStride`, bytes beyond which the OS packs fence storage: 0 or a multiple of 8 up to 4096.
    pub monitored_value_stride: u32,
    /// `LogBarriers`: 2 = both with the engine, 1 = one in `DxgkDdiUpdateNativeFenceLogs`.
    pub log_barriers: Barriers,
    /// `ShadowMonitoredValue`: engines compare with a shadow of MonitoredValue, as GPUs with fence state in local memory do.
    pub shadow_monitored_value: bool,
    /// `NullFenceArray`: report every fence interrupt with a NULL array.
    pub null_fence_array: bool,
    /// `SingleFenceInterrupt`: monitored fences are reported like native ones, and the OS is asked to look at both kinds.
    pub single_fence_interrupt: bool,
    /// `BasicMonitoredFences`: signals of monitored fences raise no interrupt; the OS looks when a buffer is done.
    pub basic_monitored_fences: bool,
    /// `SoftwareSignalNodes`: one bit per node whose engine cannot write monitored fences.
    pub software_signal_nodes: u32,
    /// `No64BitAtomics`: monitored fences have 32 bits; nothing with native fences.
    pub no_64_bit_atomics: bool,
    /// `ConnectNotify`: doorbells connect with the status CONNECTED_NOTIFY.
    pub connect_notify: bool,
    /// `FaultCorruptPacket`: number of the packet that is corrupted; 0 none.
    pub fault_corrupt_packet: u64,
    /// `FaultInterrupts`: how many interrupt requests fail.
    pub fault_interrupts: u64,
    /// `FaultWedgeAt`: number of the packet at which an engine stops answering; 0 none.
    pub fault_wedge_at: u64,
    /// `Mutant`: which mutation is on; nothing without the feature.
    pub mutant: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            local_segment_size: 256 << 20,
            doorbell_model: Model::Dedicated,
            physical_doorbells: 64,
            max_rung: Rung::UserModeSubmission,
            optimized_interrupt: false,
            map_to_system_process: false,
            monitored_value_stride: 0,
            log_barriers: Barriers::Two,
            shadow_monitored_value: false,
            null_fence_array: false,
            single_fence_interrupt: false,
            basic_monitored_fences: false,
            software_signal_nodes: 0,
            no_64_bit_atomics: false,
            connect_notify: false,
            fault_corrupt_packet: 0,
            fault_interrupts: 0,
            fault_wedge_at: 0,
            mutant: 0,
        }
    }
}

impl Settings {
    /// Reads the values under `path`. One that is absent or out of range keeps its default, and is named in the debugger.
    pub fn read<P: Platform>(irql: &Passive, platform: &P, path: &[u16]) -> Self {
        let default = Self::default();
        let value = |name: &str, ok: &dyn Fn(u64) -> bool| {
            let v = platform.setting(irql, path, name)?;
            if !ok(v) {
                platform.print(format_args!("fencepost: setting {name} = {v} is out of range; ignored\n"));
                return None;
            }
            Some(v)
        };
        let number = |name: &str, default: u64, ok: &dyn Fn(u64) -> bool| value(name, ok).unwrap_or(default);
        let flag = |name: &str, default: bool| value(name, &|v| v <= 1).map_or(default, |v| v == 1);
        let any = |_: u64| true;
        let megabytes = |v: u64| v.is_multiple_of(1 << 20) && (16 << 20..=16 << 30).contains(&v);
        // CAST: bounds are checked by the closures.
        Self {
            local_segment_size: number("LocalSegmentSize", default.local_segment_size, &megabytes),
            doorbell_model: value("DoorbellModel", &|v| v <= 1)
                .and_then(|v| Model::from_raw(v as u32))
                .unwrap_or(default.doorbell_model),
            physical_doorbells: number("PhysicalDoorbells", default.physical_doorbells, &|v| (1..=256).contains(&v)),
            max_rung: value("MaxRung", &|v| v <= 3).and_then(|v| Rung::from_raw(v as u32)).unwrap_or(default.max_rung),
            optimized_interrupt: flag("OptimizedInterrupt", default.optimized_interrupt),
            map_to_system_process: flag("MapToGpuSystemProcess", default.map_to_system_process),
            monitored_value_stride: number("MonitoredValueStride", 0, &|v| v <= 4096 && v.is_multiple_of(8)) as u32,
            log_barriers: match value("LogBarriers", &|v| v == 1 || v == 2) {
                Some(1) => Barriers::OneInUpdate,
                _ => Barriers::Two,
            },
            shadow_monitored_value: flag("ShadowMonitoredValue", default.shadow_monitored_value),
            null_fence_array: flag("NullFenceArray", default.null_fence_array),
            single_fence_interrupt: flag("SingleFenceInterrupt", default.single_fence_interrupt),
            basic_monitored_fences: flag("BasicMonitoredFences", default.basic_monitored_fences),
            software_signal_nodes: number("SoftwareSignalNodes", 0, &|v| v < 1 << NODE_COUNT) as u32,
            no_64_bit_atomics: flag("No64BitAtomics", default.no_64_bit_atomics),
            connect_notify: flag("ConnectNotify", default.connect_notify),
            fault_corrupt_packet: number("FaultCorruptPacket", 0, &any),
            fault_interrupts: number("FaultInterrupts", 0, &any),
            fault_wedge_at: number("FaultWedgeAt", 0, &any),
            mutant: number("Mutant", 0, &|v| v < 1000) as u32,
        }
    }
}
