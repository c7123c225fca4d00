//! `DxgkDdiGetNodeMetadata`: every node, and one beyond the last.

use wddm_abi::{DXGK_ENGINE_TYPE, DXGK_NODEMETADATA, NTSTATUS, ntstatus};

use crate::port::caps::NodeInfo;
use crate::port::ddi::{self, call_ddi};
use crate::port::miniport::Miniport;
use crate::port::place::Place;
use crate::port::poison;
use crate::port::rules::start::{NODE_3D, NODE_METADATA, NODE_NAME};

/// More nodes than this are not asked for.
const MAX_NODES: u32 = 64;

impl Miniport {
    /// Asks for the metadata of `count` nodes of each engine, and of one that is not there.
    pub(crate) fn query_nodes(&self, count: u32) -> Vec<NodeInfo> {
        (0..self.engines()).flat_map(|engine| self.query_nodes_of(engine, count)).collect()
    }

    fn query_nodes_of(&self, engine: u32, count: u32) -> Vec<NodeInfo> {
        let mut nodes = Vec::new();
        for node in 0..count.min(MAX_NODES) {
            let place = Place { node, engine };
            // The physical adapter's index is in the upper half.
            let ordinal = engine << 16 | node;
            let (status, metadata) = self.query_node(ordinal);
            self.note(format!("GetNodeMetadata {node}{}", of_engine(engine)), describe(status, &metadata));
            let flags = metadata.Flags;
            let is_whole = flags.Value != poison::WORD
                && [metadata.GpuMmuSupported, metadata.IoMmuSupported].iter().all(|said| *said <= 1);
            let held = self.rules().check(&NODE_METADATA, status.is_success() && is_whole, || {
                format!("node {node} of {count}{}: {}", of_engine(engine), describe(status, &metadata))
            });
            if held {
                self.judge_name(ordinal, &metadata);
                nodes.push(NodeInfo { place, metadata });
            }
        }
        let is_3d = |node: &&NodeInfo| node.engine_type() == DXGK_ENGINE_TYPE::DXGK_ENGINE_TYPE_3D;
        let engines: Vec<_> = nodes.iter().filter(is_3d).map(|node| node.place.node).collect();
        self.rules().check(&NODE_3D, engines.len() <= 1, || format!("nodes {engines:?} are of type 3D"));
        if count > 0 {
            let (status, _) = self.query_node(engine << 16 | count);
            let refused = matches!(status, ntstatus::STATUS_INVALID_PARAMETER | ntstatus::STATUS_SYSTEM_SHUTDOWN);
            self.rules().check(&NODE_METADATA, refused, || format!("node {count} of {count}: {status:?}"));
        }
        nodes
    }

    fn query_node(&self, ordinal: u32) -> (NTSTATUS, DXGK_NODEMETADATA) {
        let mut metadata: DXGK_NODEMETADATA = poison::record();
        let context = self.context();
        let pointer = &raw mut metadata;
        let status = ddi::status(call_ddi!(self, DxgkDdiGetNodeMetadata(context, ordinal, pointer)));
        (status, metadata)
    }

    fn judge_name(&self, ordinal: u32, metadata: &DXGK_NODEMETADATA) {
        let name = metadata.FriendlyName;
        let kind = metadata.EngineType;
        let other = kind == DXGK_ENGINE_TYPE::DXGK_ENGINE_TYPE_OTHER;
        let terminated = name.contains(&0);
        self.rules().check(&NODE_NAME, terminated && (!other || name[0] != 0), || {
            format!("node {ordinal}: {:?}", String::from_utf16_lossy(&name))
        });
    }
}

/// The engine in words, where it is not the first.
fn of_engine(engine: u32) -> String {
    if engine == 0 { String::new() } else { format!(" of engine {engine}") }
}

fn describe(status: NTSTATUS, metadata: &DXGK_NODEMETADATA) -> String {
    let (kind, flags) = (metadata.EngineType, metadata.Flags);
    format!("{status:?}, {kind:?}, {flags:?}, GpuMmu {}", metadata.GpuMmuSupported)
}
