use crate::adapter::Adapter; use std::sync::Arc;
#[derive(Debug)] pub(crate) enum Notice { Completed, Native { legacy: bool }, Monitored }
impl Notice { pub(crate) fn can_be_folded(&self) -> bool { true } }
pub(crate) fn classify(_: &Arc<Adapter>, _: &wddm_abi::DXGKARGCB_NOTIFY_INTERRUPT_DATA) -> Option<(usize, Notice)> { None }
