//! What the driver measures, and how large the adapter's memory is.

use wddm_abi::{
    D3DKMT_ADAPTER_PERFDATA, D3DKMT_ADAPTER_PERFDATACAPS, D3DKMT_GPUVERSION, D3DKMT_NODE_PERFDATA,
    D3DKMT_SEGMENTGROUPSIZEINFO, D3DKMT_SEGMENTSIZEINFO, DXGK_ADAPTER_PERFDATA, DXGK_ADAPTER_PERFDATACAPS,
    DXGK_GPUVERSION, DXGK_NODE_PERFDATA, DXGK_QUERYADAPTERINFOTYPE, KMTQUERYADAPTERINFOTYPE, NTSTATUS, Plain,
};

use super::super::{INVALID, Outcome};
use super::{give, taken};
use crate::port::caps::Caps;
use crate::port::miniport::Miniport;
use crate::port::place::Place;

/// What the driver answers to the query of its own that this one becomes: the structure of user mode is the driver's
/// behind the index of the physical adapter, and for an engine that of the node.
///
/// Source: DDI pages DXGK_QUERYADAPTERINFOTYPE (NODEPERFDATA, ADAPTERPERFDATA, ADAPTERPERFDATA_CAPS, GPUVERSION),
/// D3DKMT_NODE_PERFDATA, D3DKMT_ADAPTER_PERFDATA, D3DKMT_ADAPTER_PERFDATACAPS, D3DKMT_GPUVERSION. Chosen, since no page
/// says of an input: the driver gets none, but for an engine its node and the index of the physical adapter, as user
/// mode gave them.
pub(super) fn performance(adapter: &Miniport, kind: KMTQUERYADAPTERINFOTYPE, address: usize, size: usize) -> Outcome {
    use DXGK_QUERYADAPTERINFOTYPE as Query;
    use KMTQUERYADAPTERINFOTYPE as Type;
    fn asked<T: Plain>(adapter: &Miniport, kind: Query, input: &[u8]) -> Result<T, NTSTATUS> {
        let (status, record) = adapter.query_record(kind, input);
        if status.is_success() { record.ok_or(INVALID) } else { Err(status) }
    }
    let caps = adapter.known_caps();
    let exists = |index: u32| if index < caps.engines() { Ok(()) } else { Err(INVALID) };
    match kind {
        Type::KMTQAITYPE_NODEPERFDATA => {
            let mut answer: D3DKMT_NODE_PERFDATA = taken(address, size)?;
            let place = Place { node: answer.NodeOrdinal, engine: answer.PhysicalAdapterIndex };
            caps.node_at(place).ok_or(INVALID)?;
            let input = [answer.NodeOrdinal.to_le_bytes(), answer.PhysicalAdapterIndex.to_le_bytes()].concat();
            let said: DXGK_NODE_PERFDATA = asked(adapter, Query::DXGKQAITYPE_NODEPERFDATA, &input)?;
            (answer.Frequency, answer.MaxFrequency) = (said.Frequency, said.MaxFrequency);
            (answer.MaxFrequencyOC, answer.Voltage) = (said.MaxFrequencyOC, said.Voltage);
            (answer.VoltageMax, answer.VoltageMaxOC) = (said.VoltageMax, said.VoltageMaxOC);
            answer.MaxTransitionLatency = said.MaxTransitionLatency;
            give(address, size, &answer)
        }
        Type::KMTQAITYPE_ADAPTERPERFDATA => {
            let mut answer: D3DKMT_ADAPTER_PERFDATA = taken(address, size)?;
            exists(answer.PhysicalAdapterIndex)?;
            let said: DXGK_ADAPTER_PERFDATA = asked(adapter, Query::DXGKQAITYPE_ADAPTERPERFDATA, &[])?;
            (answer.MemoryFrequency, answer.MaxMemoryFrequency) = (said.MemoryFrequency, said.MaxMemoryFrequency);
            (answer.MaxMemoryFrequencyOC, answer.MemoryBandwidth) = (said.MaxMemoryFrequencyOC, said.MemoryBandwidth);
            (answer.PCIEBandwidth, answer.FanRPM, answer.Power) = (said.PCIEBandwidth, said.FanRPM, said.Power);
            (answer.Temperature, answer.PowerStateOverride) = (said.Temperature, said.PowerStateOverride);
            give(address, size, &answer)
        }
        Type::KMTQAITYPE_ADAPTERPERFDATA_CAPS => {
            let mut answer: D3DKMT_ADAPTER_PERFDATACAPS = taken(address, size)?;
            exists(answer.PhysicalAdapterIndex)?;
            let said: DXGK_ADAPTER_PERFDATACAPS = asked(adapter, Query::DXGKQAITYPE_ADAPTERPERFDATA_CAPS, &[])?;
            (answer.MaxMemoryBandwidth, answer.MaxPCIEBandwidth) = (said.MaxMemoryBandwidth, said.MaxPCIEBandwidth);
            (answer.MaxFanRPM, answer.TemperatureMax) = (said.MaxFanRPM, said.TemperatureMax);
            answer.TemperatureWarning = said.TemperatureWarning;
            give(address, size, &answer)
        }
        _ => {
            let mut answer: D3DKMT_GPUVERSION = taken(address, size)?;
            exists(answer.PhysicalAdapterIndex)?;
            let said: DXGK_GPUVERSION = asked(adapter, Query::DXGKQAITYPE_GPUVERSION, &[])?;
            (answer.BiosVersion, answer.GpuArchitecture) = (said.BiosVersion, said.GpuArchitecture);
            give(address, size, &answer)
        }
    }
}

/// Sizes of all segments, by where their memory is.
pub(super) fn segment_sizes(caps: &Caps) -> D3DKMT_SEGMENTSIZEINFO {
    let mut sizes = D3DKMT_SEGMENTSIZEINFO::zeroed();
    for segment in &caps.segments {
        if segment.is_aperture() {
            sizes.SharedSystemMemorySize += segment.size();
        } else {
            sizes.DedicatedVideoMemorySize += segment.size();
        }
    }
    sizes
}

/// The same by segment group: an aperture's is the non-local one.
///
/// Source: DDI page D3DKMT_SEGMENTGROUPSIZEINFO. Chosen: every physical adapter of a link has the same segments; no
/// segment is without a budget.
pub(super) fn segment_groups(caps: &Caps, address: usize, size: usize) -> Outcome {
    let mut answer: D3DKMT_SEGMENTGROUPSIZEINFO = taken(address, size)?;
    if answer.PhysicalAdapterIndex >= caps.engines() {
        return Err(INVALID);
    }
    answer.LegacyInfo = segment_sizes(caps);
    answer.LocalMemory = answer.LegacyInfo.DedicatedVideoMemorySize;
    answer.NonLocalMemory = answer.LegacyInfo.SharedSystemMemorySize;
    answer.NonBudgetMemory = 0;
    give(address, size, &answer)
}
