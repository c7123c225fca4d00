//! Whether a driver that advertises cross-adapter resources serves the standard allocation that the OS makes for them.
//!
//! Source: DDI pages DXGK_VIDMMCAPS (CrossAdapterResource), DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA (asked for sizes, then for
//! data; the surface's record stays untouched the first time; not both sizes zero), DxgkDdiCreateAllocation.

use std::sync::Arc;

use wddm_abi::{
    D3DKMDT_GDISURFACEDATA, D3DKMDT_GDISURFACETYPE, D3DKMDT_STANDARDALLOCATION_TYPE, DXGK_ALLOCATIONINFO,
    DXGKARG_CREATEALLOCATION, DXGKARG_DESTROYALLOCATION, DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA, HANDLE, NTSTATUS,
    Plain, ntstatus,
};

use super::Adapter;
use super::caps::Caps;
use crate::ddi::{self, call_ddi};
use crate::rules::caps::CAPS_CROSS_ADAPTER_SERVED;

/// Side of the surface that is asked for, in pixels.
const SIDE: u32 = 64;
/// `D3DDDIFMT_A8R8G8B8`.
const FORMAT: i32 = 21;
/// More private data than this is not asked for, in bytes.
const MOST: u32 = 1 << 16;

/// Asks for such an allocation, makes it, and destroys it.
///
/// IRQL: PASSIVE_LEVEL.
pub(super) fn probe(adapter: &Arc<Adapter>, caps: &Caps) {
    if !caps.driver.MemoryManagementCaps.CrossAdapterResource() {
        return;
    }
    let served = serve(adapter);
    adapter.rules().check(&CAPS_CROSS_ADAPTER_SERVED, served.is_ok(), || served.err().unwrap_or_default());
}

fn serve(adapter: &Arc<Adapter>) -> Result<(), String> {
    let mut surface = D3DKMDT_GDISURFACEDATA::zeroed();
    (surface.Width, surface.Height) = (SIDE, SIDE);
    surface.Format.0 = FORMAT;
    surface.Type = D3DKMDT_GDISURFACETYPE::D3DKMDT_GDISURFACE_TEXTURE_CROSSADAPTER;
    let before = surface;
    let (status, sizes) = ask(adapter, &mut surface, &mut [], &mut []);
    let (allocation, resource) = sizes;
    if !status.is_success() || (allocation, resource) == (0, 0) || allocation.max(resource) > MOST {
        return Err(format!("asked for sizes: {status:?}, {allocation} and {resource} bytes"));
    }
    if surface.as_bytes() != before.as_bytes() {
        return Err("asked for sizes, the driver changed the surface's record".to_owned());
    }
    let mut private = vec![0; allocation as usize];
    let mut shared = vec![0; resource as usize];
    let (status, _) = ask(adapter, &mut surface, &mut private, &mut shared);
    if !status.is_success() {
        return Err(format!("asked for data: {status:?}"));
    }
    create(adapter, &mut private, &shared)
}

type Sizes = (u32, u32);

fn ask(
    adapter: &Arc<Adapter>,
    surface: &mut D3DKMDT_GDISURFACEDATA,
    private: &mut [u8],
    resource: &mut [u8],
) -> (NTSTATUS, Sizes) {
    let or_null = |bytes: &mut [u8]| if bytes.is_empty() { core::ptr::null_mut() } else { bytes.as_mut_ptr().cast() };
    let mut arguments = DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA::zeroed();
    arguments.StandardAllocationType = D3DKMDT_STANDARDALLOCATION_TYPE::D3DKMDT_STANDARDALLOCATION_GDISURFACE;
    arguments.set_pCreateGdiSurfaceData(surface);
    arguments.pAllocationPrivateDriverData = or_null(private);
    arguments.pResourcePrivateDriverData = or_null(resource);
    // CAST: at most `MOST`.
    (arguments.AllocationPrivateDriverDataSize, arguments.ResourcePrivateDriverDataSize) =
        (private.len() as u32, resource.len() as u32);
    let (context, pointer) = (adapter.context(), &raw mut arguments);
    let status = ddi::status(call_ddi!(adapter, DxgkDdiGetStandardAllocationDriverData(context, pointer)));
    (status, (arguments.AllocationPrivateDriverDataSize, arguments.ResourcePrivateDriverDataSize))
}

fn create(adapter: &Arc<Adapter>, private: &mut [u8], resource: &[u8]) -> Result<(), String> {
    let mut info = DXGK_ALLOCATIONINFO::zeroed();
    info.pPrivateDriverData = private.as_mut_ptr().cast();
    // CAST: at most `MOST`, and so below.
    info.PrivateDriverDataSize = private.len() as u32;
    let mut arguments = DXGKARG_CREATEALLOCATION::zeroed();
    arguments.pPrivateDriverData = resource.as_ptr().cast();
    arguments.PrivateDriverDataSize = resource.len() as u32;
    arguments.NumAllocations = 1;
    arguments.pAllocationInfo = &raw mut info;
    let (context, pointer) = (adapter.context(), &raw mut arguments);
    let status = ddi::status(call_ddi!(adapter, DxgkDdiCreateAllocation(context, pointer)));
    if !status.is_success() {
        return Err(format!("DxgkDdiCreateAllocation of it: {status:?}"));
    }
    let list: [HANDLE; 1] = [info.hAllocation];
    let mut arguments = DXGKARG_DESTROYALLOCATION::zeroed();
    arguments.NumAllocations = 1;
    arguments.pAllocationList = list.as_ptr();
    let (context, pointer) = (adapter.context(), &raw const arguments);
    let status = ddi::status(call_ddi!(adapter, DxgkDdiDestroyAllocation(context, pointer)));
    let gone = status.is_success() || status == ntstatus::STATUS_SYSTEM_SHUTDOWN;
    if gone { Ok(()) } else { Err(format!("DxgkDdiDestroyAllocation of it: {status:?}")) }
}
