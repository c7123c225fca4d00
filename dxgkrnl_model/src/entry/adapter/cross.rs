//! Whether a driver that advertises cross-adapter resources serves the standard allocation that the OS makes for them.
//!
//! Source: DDI pages DXGK_VIDMMCAPS (CrossAdapterResource), DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA (asked for sizes,
//! then for data; the surface's record stays untouched the first time; not both sizes zero), DxgkDdiCreateAllocation.

use std::sync::Arc;

use wddm_abi::{
    D3DKMDT_GDISURFACEDATA, DXGK_ALLOCATIONINFO, DXGKARG_CREATEALLOCATION, DXGKARG_DESTROYALLOCATION, HANDLE,
};

use crate::port::caps::Caps;
use crate::port::ddi::{self, call_ddi};
use crate::port::miniport::Miniport;
use crate::port::query::Buffer;
use crate::port::rules::caps::CAPS_CROSS_ADAPTER_SERVED;
use crate::port::standard::{self, Data, or_null, within};

/// Side of the surface that is asked for, in pixels.
const SIDE: u32 = 64;
/// Bytes of the heap that is asked for.
const HEAP_BYTES: u32 = 1 << 16;
/// `D3DDDIFMT_A8R8G8B8`.
const FORMAT: i32 = 21;
/// Judges `DXG-CAPS-CROSS-ADAPTER-SERVED` where the driver advertises CrossAdapterResource: asks the driver for the
/// standard allocation, has it created, and destroys it.
///
/// IRQL: PASSIVE_LEVEL.
pub(super) fn probe(adapter: &Arc<Miniport>, caps: &Caps) {
    if !caps.driver.MemoryManagementCaps.CrossAdapterResource() {
        return;
    }
    let served = serve(adapter);
    adapter.rules().check(&CAPS_CROSS_ADAPTER_SERVED, served.is_ok(), || served.err().unwrap_or_default());
}

/// The probe itself. An error is the text of the violation.
fn serve(adapter: &Arc<Miniport>) -> Result<(), String> {
    let (mut private, mut shared) = data(adapter)?;
    create(adapter, &mut private, &mut shared)
}

/// What user mode would pass for such an allocation of this driver's: the private data of allocation and resource.
/// `None`: the driver advertises none, or has none.
///
/// IRQL: PASSIVE_LEVEL.
pub(super) fn private_data(adapter: &Arc<Miniport>) -> Option<[Vec<u8>; 2]> {
    if !adapter.caps()?.driver.MemoryManagementCaps.CrossAdapterResource() {
        return None;
    }
    let (allocation, resource) = data(adapter).ok()?;
    Some([allocation.bytes().to_vec(), resource.bytes().to_vec()])
}

/// The surface that is asked for.
///
/// Source: DDI page D3DKMDT_GDISURFACEDATA. A compute-only adapter has heaps and no surfaces (Microsoft's compute-only
/// sample).
fn surface(adapter: &Miniport) -> D3DKMDT_GDISURFACEDATA {
    let mut surface = standard::heap(HEAP_BYTES);
    if !adapter.known_caps().is_compute_only() {
        (surface.Width, surface.Height) = (SIDE, SIDE);
        surface.Format.0 = FORMAT;
    }
    surface
}

/// The driver's private data of allocation and resource. An error is the text of the violation.
fn data(adapter: &Arc<Miniport>) -> Result<Data, String> {
    standard::data(adapter, surface(adapter)).map_err(|refusal| refusal.why)
}

fn create(adapter: &Arc<Miniport>, private: &mut Buffer, resource: &mut Buffer) -> Result<(), String> {
    let mut info = DXGK_ALLOCATIONINFO::zeroed();
    info.pPrivateDriverData = or_null(private);
    // CAST: at most 64 KB, and so below.
    info.PrivateDriverDataSize = private.bytes().len() as u32;
    let mut arguments = DXGKARG_CREATEALLOCATION::zeroed();
    arguments.pPrivateDriverData = or_null(resource).cast_const();
    arguments.PrivateDriverDataSize = resource.bytes().len() as u32;
    arguments.NumAllocations = 1;
    arguments.pAllocationInfo = &raw mut info;
    let (context, pointer) = (adapter.context(), &raw mut arguments);
    let status = ddi::status(call_ddi!(adapter, DxgkDdiCreateAllocation(context, pointer)));
    if !status.is_success() {
        return Err(format!("DxgkDdiCreateAllocation of it: {status:?}"));
    }
    let within = within("DxgkDdiCreateAllocation", &[&*private, &*resource]);
    let list: [HANDLE; 1] = [info.hAllocation];
    if list[0].is_null() {
        return Err("DxgkDdiCreateAllocation of it left hAllocation NULL".to_owned());
    }
    let mut arguments = DXGKARG_DESTROYALLOCATION::zeroed();
    arguments.NumAllocations = 1;
    arguments.pAllocationList = list.as_ptr();
    let (context, pointer) = (adapter.context(), &raw const arguments);
    let status = ddi::status(call_ddi!(adapter, DxgkDdiDestroyAllocation(context, pointer)));
    let gone = ddi::succeeded(status);
    if gone { within } else { Err(format!("DxgkDdiDestroyAllocation of it: {status:?}")) }
}
