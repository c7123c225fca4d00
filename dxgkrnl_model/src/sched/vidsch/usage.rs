//! How long packets ran.

use super::packet::Packet;
use crate::port::usage::{NodeUse, Use};

/// Running time of a node of packets, in units of 100 ns.
#[derive(Debug, Default)]
pub(crate) struct PacketUse {
    node: NodeUse,
    /// When the last packet ended.
    free: u64,
    /// The process whose packet ran last.
    last: Option<u64>,
}

impl PacketUse {
    /// `packets` are over at `now`, in the order in which they ran. Of several that one interrupt tells of, each ran
    /// for an equal part of the time.
    pub(crate) fn ended(&mut self, now: u64, packets: &[Packet]) {
        let Some(first) = packets.first() else { return };
        let time = now.saturating_sub(self.free.max(first.since));
        let (share, rest) = (time / packets.len() as u64, time % packets.len() as u64);
        for (index, packet) in packets.iter().enumerate() {
            let process = packet.context.device().process().number();
            let switches = u32::from(self.last != Some(process));
            self.last = Some(process);
            self.node.add(process, share + if index == 0 { rest } else { 0 }, switches);
        }
        self.free = now;
    }

    /// What `process` had; all processes together for `None`.
    pub(crate) fn of(&self, process: Option<u64>) -> Use {
        self.node.of(process)
    }
}
