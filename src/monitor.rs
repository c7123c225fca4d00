//! What a monitor shows of an adapter: asked as System Informer and LibreHardwareMonitor ask it, by thunks alone, from
//! a process of its own. Of the machine itself only the names of its processes are taken, as Windows lists them.

use crate::scenario::{Denied, Raw};
use anyhow::{Context, Result};
use dxgkrnl_model::adapter::Adapter;
use dxgkrnl_model::os::Os;
use dxgkrnl_model::process::Process;
use serde::Serialize;
use std::sync::Arc;
use wddm_abi::{
    D3DKMT_ADAPTERREGISTRYINFO, D3DKMT_MEMORY_SEGMENT_GROUP, D3DKMT_NODEMETADATA, D3DKMT_OPENADAPTERFROMDEVICENAME,
    D3DKMT_QUERYADAPTERINFO, D3DKMT_QUERYSTATISTICS, D3DKMT_QUERYSTATISTICS_QUERY_NODE,
    D3DKMT_QUERYSTATISTICS_QUERY_SEGMENT, D3DKMT_QUERYSTATISTICS_TYPE, D3DKMT_QUERYVIDEOMEMORYINFO, HANDLE,
    KMTQUERYADAPTERINFOTYPE, LUID, Plain,
};

/// The adapter, as a monitor shows it.
#[derive(Clone, Debug, Serialize)]
pub struct Look {
    /// `HardwareInformation.AdapterString`, or nothing.
    pub name: String,
    /// The driver model, 3200 for WDDM 3.2.
    pub wddm: u32,
    /// Timeouts from which something was reset.
    pub timeouts: u32,
    /// By node.
    pub engines: Vec<Engine>,
    /// In the driver's order.
    pub segments: Vec<Segment>,
    /// All but the monitor's own.
    pub processes: Vec<ProcessLook>,
}

/// An engine, and how long it ran.
#[derive(Clone, Debug, Serialize)]
pub struct Engine {
    /// `FriendlyName`.
    pub name: String,
    /// Units of 100 ns since the adapter started.
    pub running_time: u64,
    /// How often it turned to a context of another process, or to a context.
    pub context_switches: u32,
}

/// A segment, in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct Segment {
    /// Memory of the system that it leads to, and not the adapter's own.
    pub is_aperture: bool,
    /// Its size.
    pub limit: u64,
    /// What lies there.
    pub resident: u64,
}

/// What a process has.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessLook {
    /// Its number.
    pub id: u64,
    /// The name of its program.
    pub name: String,
    /// Bytes in the adapter's own memory.
    pub dedicated: u64,
    /// Bytes of the system's memory that the GPU reaches.
    pub shared: u64,
    /// By engine, units of 100 ns.
    pub running_time: Vec<u64>,
}

/// A monitor's process.
pub struct Monitor {
    raw: Raw,
    luid: LUID,
}

impl Monitor {
    /// A process on `os` that opens `adapter` by the name of its device interface.
    ///
    /// # Errors
    /// When that is refused.
    pub fn open(os: &Os, adapter: &Adapter) -> Result<Self> {
        let process = Arc::new(os.create_process("monitor"));
        let raw = Raw::open(&process, adapter.luid())?;
        let name: Vec<u16> = adapter.device_name().encode_utf16().chain([0]).collect();
        let mut record = D3DKMT_OPENADAPTERFROMDEVICENAME::zeroed();
        record.pDeviceName = name.as_ptr();
        raw.ok(raw.thunks.D3DKMTOpenAdapterFromDeviceName, &mut record).context("D3DKMTOpenAdapterFromDeviceName")?;
        Ok(Self { luid: record.AdapterLuid, raw: Raw { adapter: record.hAdapter, ..raw } })
    }

    /// Its process.
    pub fn process(&self) -> &Arc<Process> {
        &self.raw.process
    }

    fn info<T: Plain>(&self, kind: KMTQUERYADAPTERINFOTYPE, mut answer: T) -> Result<T, Denied> {
        let mut record = D3DKMT_QUERYADAPTERINFO::zeroed();
        (record.hAdapter, record.Type) = (self.raw.adapter, kind);
        // CAST: a record's size.
        (record.pPrivateDriverData, record.PrivateDriverDataSize) = ((&raw mut answer).cast(), size_of::<T>() as u32);
        self.raw.ok(self.raw.thunks.D3DKMTQueryAdapterInfo, &mut record)?;
        Ok(answer)
    }

    /// Asks for statistics of one type; `ask` says of what, `process` of which process.
    ///
    /// # Errors
    /// The function's status.
    pub fn statistics(
        &self,
        kind: D3DKMT_QUERYSTATISTICS_TYPE,
        process: HANDLE,
        ask: impl FnOnce(&mut D3DKMT_QUERYSTATISTICS),
    ) -> Result<D3DKMT_QUERYSTATISTICS, Denied> {
        let mut record = D3DKMT_QUERYSTATISTICS::zeroed();
        (record.Type, record.AdapterLuid, record.hProcess) = (kind, self.luid, process);
        ask(&mut record);
        self.raw.ok(self.raw.thunks.D3DKMTQueryStatistics, &mut record)?;
        Ok(record)
    }

    /// Memory of the process that `process` leads to (NULL: the monitor's own), in one segment group.
    ///
    /// # Errors
    /// The function's status.
    pub fn memory(
        &self,
        process: HANDLE,
        group: D3DKMT_MEMORY_SEGMENT_GROUP,
    ) -> Result<D3DKMT_QUERYVIDEOMEMORYINFO, Denied> {
        let mut record = D3DKMT_QUERYVIDEOMEMORYINFO::zeroed();
        (record.hAdapter, record.hProcess, record.MemorySegmentGroup) = (self.raw.adapter, process, group);
        self.raw.ok(self.raw.thunks.D3DKMTQueryVideoMemoryInfo, &mut record)?;
        Ok(record)
    }

    /// How long, in units of 100 ns, and how often engine `node` ran, for a process or for all.
    ///
    /// # Errors
    /// The function's status.
    pub fn engine(&self, node: u32, process: Option<HANDLE>) -> Result<(u64, u32), Denied> {
        let node = D3DKMT_QUERYSTATISTICS_QUERY_NODE { NodeId: node };
        let of = match process {
            None => {
                let kind = D3DKMT_QUERYSTATISTICS_TYPE::D3DKMT_QUERYSTATISTICS_NODE;
                let record = self.statistics(kind, std::ptr::null_mut(), |record| record.set_QueryNode(node))?;
                record.QueryResult.NodeInformation().GlobalInformation
            }
            Some(process) => {
                let kind = D3DKMT_QUERYSTATISTICS_TYPE::D3DKMT_QUERYSTATISTICS_PROCESS_NODE;
                let record = self.statistics(kind, process, |record| record.set_QueryProcessNode(node))?;
                *record.QueryResult.ProcessNodeInformation()
            }
        };
        Ok((of.RunningTime.QuadPart.cast_unsigned(), of.ContextSwitch))
    }

    /// Everything, once.
    ///
    /// # Errors
    /// When a function refuses to answer.
    pub fn look(&self) -> Result<Look> {
        use D3DKMT_QUERYSTATISTICS_TYPE as Type;
        let none = std::ptr::null_mut();
        let wddm = self.info(KMTQUERYADAPTERINFOTYPE::KMTQAITYPE_DRIVERVERSION, 0_u32).context("DRIVERVERSION")?;
        let kind = KMTQUERYADAPTERINFOTYPE::KMTQAITYPE_ADAPTERREGISTRYINFO;
        let name = self.info(kind, D3DKMT_ADAPTERREGISTRYINFO::zeroed());
        let name = name.map(|info| text(&info.AdapterString)).unwrap_or_default();
        let adapter = self.statistics(Type::D3DKMT_QUERYSTATISTICS_ADAPTER, none, |_| ()).context("ADAPTER")?;
        let adapter = adapter.QueryResult.AdapterInformation();
        let engine = |node: u32| -> Result<Engine> {
            let mut asked = D3DKMT_NODEMETADATA::zeroed();
            asked.NodeOrdinalAndAdapterIndex = node;
            let told = self.info(KMTQUERYADAPTERINFOTYPE::KMTQAITYPE_NODEMETADATA, asked).context("NODEMETADATA")?;
            let (running_time, context_switches) = self.engine(node, None).context("NODE")?;
            // A copy: the record is packed.
            let name = told.NodeData.FriendlyName;
            Ok(Engine { name: text(&name), running_time, context_switches })
        };
        let segment = |index: u32| -> Result<Segment> {
            let wanted = D3DKMT_QUERYSTATISTICS_QUERY_SEGMENT { SegmentId: index };
            let kind = Type::D3DKMT_QUERYSTATISTICS_SEGMENT;
            let told = self.statistics(kind, none, |record| record.set_QuerySegment(wanted)).context("SEGMENT")?;
            let of = told.QueryResult.SegmentInformation();
            Ok(Segment { is_aperture: of.Aperture != 0, limit: of.CommitLimit, resident: of.BytesResident })
        };
        let engines = (0..adapter.NodeCount).map(engine).collect::<Result<Vec<_>>>()?;
        let segments = (0..adapter.NbSegments).map(segment).collect::<Result<Vec<_>>>()?;
        let processes = self.processes(adapter.NodeCount)?;
        Ok(Look { name, wddm, timeouts: adapter.TdrDetectedCount, engines, segments, processes })
    }

    /// What the other processes have. One that ends meanwhile is left out.
    fn processes(&self, nodes: u32) -> Result<Vec<ProcessLook>> {
        let others = self.raw.process.open_others();
        let look = |(id, name, handle): &(u64, String, u64)| -> Result<ProcessLook, Denied> {
            let process: HANDLE = std::ptr::without_provenance_mut(*handle as usize);
            let group = |group| Ok(self.memory(process, group)?.CurrentUsage);
            let running_time = (0..nodes).map(|node| Ok(self.engine(node, Some(process))?.0));
            Ok(ProcessLook {
                id: *id,
                name: name.clone(),
                dedicated: group(D3DKMT_MEMORY_SEGMENT_GROUP::D3DKMT_MEMORY_SEGMENT_GROUP_LOCAL)?,
                shared: group(D3DKMT_MEMORY_SEGMENT_GROUP::D3DKMT_MEMORY_SEGMENT_GROUP_NON_LOCAL)?,
                running_time: running_time.collect::<Result<_, Denied>>()?,
            })
        };
        let looks = others.iter().map(look).collect::<Vec<_>>();
        for (.., handle) in &others {
            self.raw.process.nt().close_handle(*handle);
        }
        looks.into_iter().map(|look| look.context("a process")).collect()
    }
}

/// A string up to its NUL.
fn text(units: &[u16]) -> String {
    String::from_utf16_lossy(units.split(|unit| *unit == 0).next().unwrap_or_default())
}
