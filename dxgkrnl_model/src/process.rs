use std::sync::Arc; use crate::os::Shared; use crate::adapter::Adapter;
#[derive(Debug)] pub struct Process; #[derive(Debug)] pub(crate) struct ProcessInner; #[derive(Debug)] pub(crate) struct ProcessAdapter; #[derive(Debug, Clone, Copy)] pub enum End { Normal, Abnormal }
#[derive(Debug)] pub(crate) struct Space; impl Space { pub(crate) fn reserve_for_driver(&self, _: u64, _: u64, _: u64) -> Option<u64> { None } }
#[derive(Debug)] pub(crate) struct Res; impl Res { pub(crate) fn driver_handle(&self) -> usize {0} }
impl Process { pub(crate) fn new(_: &Arc<Shared>, _: &str) -> Self { Self } }
impl ProcessInner { pub(crate) fn end(&self, _: End) {} pub(crate) fn leave_adapter(&self, _: &Arc<Adapter>) {} pub(crate) fn allocation(&self, _: u32) -> Option<Arc<crate::memory::allocation::OpenAllocation>> {None}
 pub(crate) fn resource(&self, _: u32) -> Option<Res> {None} pub(crate) fn resource_child(&self, _: u32, _: usize) -> u32 {0} }
impl ProcessAdapter { pub(crate) fn address_space(&self) -> Space { Space } }
pub(crate) fn current(_: &nt_model::Machine) -> Option<Arc<ProcessInner>> { None }
