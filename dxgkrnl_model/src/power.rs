use std::sync::Arc; use crate::adapter::{Adapter, caps::Caps};
#[derive(Debug)] pub(crate) struct Power;
impl Power { pub(crate) fn new() -> Self { Self } pub(crate) fn start(&self, _: &Arc<Adapter>, _: &Arc<Caps>) {} pub(crate) fn stop(&self, _: &Arc<Adapter>) {}
 pub(crate) fn component_active(&self, _: &Arc<Adapter>, _: u32) {} pub(crate) fn component_idle(&self, _: &Arc<Adapter>, _: u32) {} pub(crate) fn complete_transition(&self, _: &Arc<Adapter>, _: u32) {} }
