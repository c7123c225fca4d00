use std::sync::Arc; use crate::adapter::{Adapter, caps::Caps};
pub(crate) mod dpc { pub(crate) fn work_off(_a: &std::sync::Arc<crate::adapter::Adapter>, _n: usize, _l: crate::interrupt::NodeList) {} }
#[derive(Debug)] pub(crate) struct VidSch;
impl VidSch { pub(crate) fn new() -> Self { Self } pub(crate) fn start(&self, _: &Arc<Adapter>, _: &Arc<Caps>) {} pub(crate) fn set_priority_bands(&self, _: &Arc<Adapter>) {} pub(crate) fn stop(&self, _: &Arc<Adapter>) {} pub(crate) fn stop_watch(&self, _: &Arc<Adapter>) {} }
