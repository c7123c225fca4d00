//! `DXGKRNL_INTERFACE`: what the driver may call.
//!
//! Every slot has a function. One that the model does not implement refuses, is counted under its name, and so shows in
//! the report. Each begins with [`callback`]: handle, IRQL, the fault plan, and whether an interrupt routine may call
//! it.
//!
//! Bytes behind `Size` hold a pattern: a driver that copies more than `Size` gets pointers that trap.

mod device;
mod feature;
pub(crate) mod memory;
mod object;
mod physical;
mod power;
mod refused;

use nt_model::ShimEntry;
use wddm_abi::slots::DXGKRNL_INTERFACE_SLOTS;
use wddm_abi::{DXGKRNL_INTERFACE, HANDLE, Plain};

use crate::port::miniport::Miniport;

/// What stands behind `DXGKRNL_INTERFACE.Size`.
const POISON: u8 = 0xD5;

/// The tables whose functions fill the interface.
fn tables() -> [&'static [ShimEntry]; 11] {
    let [refused, others] = refused::tables();
    [
        device::CALLBACKS,
        feature::CALLBACKS,
        memory::CALLBACKS,
        object::CALLBACKS,
        physical::CALLBACKS,
        power::CALLBACKS,
        refused,
        others,
        crate::sched::interrupt::callbacks::CALLBACKS,
        crate::objects::doorbell::callbacks::CALLBACKS,
        crate::recovery::callbacks::CALLBACKS,
    ]
}

/// An interface as a driver sees it: the table, and the pattern behind `Size`.
#[repr(C, align(16))]
#[derive(Debug)]
pub(crate) struct InterfaceTable {
    bytes: [u8; size_of::<DXGKRNL_INTERFACE>() + 64],
}

impl InterfaceTable {
    /// The table for `adapter`.
    pub(crate) fn new(adapter: &Miniport, device_handle: HANDLE) -> Box<Self> {
        let personality = adapter.personality();
        let mut table = DXGKRNL_INTERFACE::zeroed();
        table.Size = personality.interface_size.min(size_of::<DXGKRNL_INTERFACE>() as u32);
        table.Version = personality.build.interface_version();
        table.DeviceHandle = device_handle;
        for entry in tables().into_iter().flatten() {
            if let Some(slot) = DXGKRNL_INTERFACE_SLOTS.iter().find(|slot| slot.member == entry.name) {
                let address = (entry.address.get() as u64).to_le_bytes();
                table.as_bytes_mut()[slot.offset..slot.offset + 8].copy_from_slice(&address);
            }
        }
        let mut this = Box::new(Self { bytes: [POISON; size_of::<DXGKRNL_INTERFACE>() + 64] });
        let size = table.Size as usize;
        this.bytes[..size].copy_from_slice(&table.as_bytes()[..size]);
        this
    }

    /// For `DxgkDdiStartDevice`.
    pub(crate) fn pointer(&mut self) -> *mut DXGKRNL_INTERFACE {
        self.bytes.as_mut_ptr().cast()
    }
}
