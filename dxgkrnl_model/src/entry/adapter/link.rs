//! Linked adapters: physical adapters that act as one. Each is an *engine*, and has as many nodes as every other.
//!
//! The model numbers nodes of a link from 0 on, those of engine 0 first; only the driver, and user mode, hear of a node
//! by its ordinal and that of its engine ([`Place`](crate::port::place::Place)).
//!
//! Source: article tdr-changes-in-windows-8, Engines; DDI pages DxgkDdiLinkDevice, LINKED_DEVICE,
//! DXGK_QUERYPHYSICALADAPTERCAPSIN; article linked-display-adapter.
//!
//! Chosen: one device object, that of the leading link, stands for the whole chain; the others' DxgkDdiAddDevice,
//! DxgkDdiLinkDevice and DxgkDdiStartDevice are not played. All engines have the segments and page tables of engine 0,
//! on which everything pages, although a real link may have others on each. `D3DKMT_TDRDBGCTRL_ESCAPE` names a node of
//! engine 0, since it has no member for another.

use wddm_abi::{DXGK_QUERYADAPTERINFOTYPE, LINKED_DEVICE};

use super::problem::{LINK_DEVICE, StartError};
use crate::port::caps::{Caps, Follower};
use crate::port::ddi::{self, call_ddi};
use crate::port::miniport::Miniport;

/// Physical adapters of a link that are asked about, at most: bits of EngineAffinity.
const MOST: u32 = 32;

impl Miniport {
    /// Asks a driver that has `DxgkDdiLinkDevice` how many physical adapters the chain has, right behind AddDevice.
    ///
    /// # Errors
    /// What the driver returned; a chain with more links than the machine has, or fewer: Windows starts in VGA mode.
    pub(super) fn link(&self) -> Result<(), StartError> {
        let there = self.config().links.max(1);
        self.set_engines(1);
        if self.table().DxgkDdiLinkDevice.is_none() {
            return Ok(());
        }
        let mut device = LINKED_DEVICE::zeroed();
        let (object, context, pointer) = (self.driver().physical_device_object(self), self.context(), &raw mut device);
        let status = ddi::status(call_ddi!(self, DxgkDdiLinkDevice(object, context, pointer)));
        let links = device.NumberOfLinksInChain;
        self.note("LinkDevice", format!("{status:?}, {links} links"));
        if !status.is_success() {
            return Err(StartError::Driver { step: LINK_DEVICE.into(), status });
        }
        if links.max(1) != there || links > MOST {
            return Err(StartError::Links { links, there });
        }
        self.set_engines(there);
        Ok(())
    }

    /// Asks about the physical adapters behind the first.
    pub(super) fn query_followers(&self, caps: &mut Caps) {
        for index in 1..self.engines() {
            let input = index.to_le_bytes();
            let kind = DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_PHYSICALADAPTERCAPS;
            let (status, physical) = self.query_record(kind, &input);
            self.note(format!("query PHYSICALADAPTERCAPS of physical adapter {index}"), format!("{status:?}"));
            let kind = DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_GPUMMUCAPS;
            let mmu = caps.is_gpu_mmu().then(|| self.query_record(kind, &input).1).flatten();
            caps.followers.push(Follower { physical, mmu });
        }
    }
}

/// What is wrong with the numbers of nodes; `None`: every engine has as many as engine 0.
pub(super) fn unequal_nodes(caps: &Caps) -> Option<String> {
    let of = |follower: &Follower| follower.physical.map(|physical| u32::from(physical.NumExecutionNodes));
    let counts: Vec<_> = caps.followers.iter().map(of).collect();
    let first = u32::from(caps.physical.NumExecutionNodes);
    let unequal = counts.iter().any(|count| *count != Some(first));
    unequal.then(|| format!("engine 0 has {first} nodes, those behind it {counts:?}"))
}

/// What is wrong with the sizes of addresses; `None`: every engine has as many bits as engine 0.
pub(super) fn unequal_addresses(caps: &Caps) -> Option<String> {
    let first = caps.mmu.as_ref()?.caps.VirtualAddressBitCount;
    let counts: Vec<_> =
        caps.followers.iter().map(|follower| follower.mmu.map(|mmu| mmu.VirtualAddressBitCount)).collect();
    let unequal = counts.iter().any(|count| *count != Some(first));
    unequal.then(|| format!("engine 0 has {first} bits, those behind it {counts:?}"))
}
