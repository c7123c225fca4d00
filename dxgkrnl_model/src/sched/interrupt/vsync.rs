//! Interrupts of displays, which are judged and lead to nothing.

use wddm_abi::{DXGK_INTERRUPT_TYPE as Type, DXGKARGCB_NOTIFY_INTERRUPT_DATA};

use crate::port::miniport::Miniport;
use crate::port::rules::interrupt::{INT_ADAPTER_MASK, INT_VSYNC};

/// Judges a vertical sync.
///
/// IRQL: the device's.
pub(super) fn judge(adapter: &Miniport, data: &DXGKARGCB_NOTIFY_INTERRUPT_DATA) {
    let render_only = adapter.known_caps().is_render_only();
    adapter.rules().check(&INT_VSYNC, !render_only, || format!("{:?}", data.InterruptType));
    if let Some(mask) = mask(data).filter(|_| adapter.engines() > 1) {
        let named = mask != 0 && data.Flags.ValidPhysicalAdapterMask();
        adapter.rules().check(&INT_ADAPTER_MASK, named, || format!("PhysicalAdapterMask {mask:#x}, {:?}", data.Flags));
    }
}

/// The physical adapters that a vertical sync names; `None`: its type names none.
fn mask(data: &DXGKARGCB_NOTIFY_INTERRUPT_DATA) -> Option<u32> {
    Some(match data.InterruptType {
        Type::DXGK_INTERRUPT_CRTC_VSYNC => data.CrtcVsync().PhysicalAdapterMask,
        Type::DXGK_INTERRUPT_CRTC_VSYNC_WITH_MULTIPLANE_OVERLAY => {
            data.CrtcVsyncWithMultiPlaneOverlay().PhysicalAdapterMask
        }
        Type::DXGK_INTERRUPT_CRTC_VSYNC_WITH_MULTIPLANE_OVERLAY2 => {
            data.CrtcVsyncWithMultiPlaneOverlay2().PhysicalAdapterMask
        }
        Type::DXGK_INTERRUPT_CRTC_VSYNC_WITH_MULTIPLANE_OVERLAY3 => {
            data.CrtcVsyncWithMultiPlaneOverlay3().PhysicalAdapterMask
        }
        _ => return None,
    })
}
