use std::sync::Arc; use crate::adapter::{Adapter, caps::Caps};
pub(crate) mod allocation { use std::sync::Arc; #[derive(Debug)] pub(crate) struct OpenAllocation; #[derive(Debug)] pub(crate) struct Allocation;
impl OpenAllocation { pub(crate) fn device_specific(&self) -> usize {0} pub(crate) fn allocation(&self) -> &Arc<Allocation> {todo!()} pub(crate) fn resource_handle(&self) -> u32 {0} }
impl Allocation { pub(crate) fn driver_handle(&self) -> usize {0} } }
#[derive(Debug)] pub(crate) struct VidMm;
impl VidMm { pub(crate) fn new() -> Self { Self } pub(crate) fn start(&self, _: &Arc<Adapter>, _: &Arc<Caps>) -> Result<(), wddm_abi::NTSTATUS> {Ok(())} pub(crate) fn stop(&self, _: &Arc<Adapter>) {} }
