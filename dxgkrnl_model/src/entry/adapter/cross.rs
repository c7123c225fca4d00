//! Whether a driver that advertises cross-adapter resources serves the standard allocation that the OS makes for them.
//!
//! Source: DDI pages DXGK_VIDMMCAPS (CrossAdapterResource), DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA (asked for sizes,
//! then for data; the surface's record stays untouched the first time; not both sizes zero), DxgkDdiCreateAllocation.

use std::sync::Arc;

use wddm_abi::{
    D3DKMDT_GDISURFACEDATA, D3DKMDT_GDISURFACETYPE, D3DKMDT_STANDARDALLOCATION_TYPE, DXGK_ALLOCATIONINFO,
    DXGKARG_CREATEALLOCATION, DXGKARG_DESTROYALLOCATION, DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA, HANDLE, NTSTATUS,
    Plain,
};

use crate::port::caps::Caps;
use crate::port::ddi::{self, call_ddi};
use crate::port::miniport::Miniport;
use crate::port::query::Buffer;
use crate::port::rules::caps::CAPS_CROSS_ADAPTER_SERVED;

/// Side of the surface that is asked for, in pixels.
const SIDE: u32 = 64;
/// Bytes of the heap that is asked for.
const HEAP_BYTES: u32 = 1 << 16;
/// `D3DDDIFMT_A8R8G8B8`.
const FORMAT: i32 = 21;
/// Most private data, in bytes, that the probe takes for an allocation or a resource. A driver that wants more breaks
/// the rule.
const MOST: u32 = 1 << 16;

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
/// Source: DDI page D3DKMDT_GDISURFACEDATA. A compute-only adapter has heaps and no surfaces: Direct3D 12 asks for one
/// without a format, whose width is its length in bytes (Microsoft's compute-only sample,
/// GetStandardAllocationDriverData).
fn surface(adapter: &Miniport) -> D3DKMDT_GDISURFACEDATA {
    let mut surface = D3DKMDT_GDISURFACEDATA::zeroed();
    surface.Type = D3DKMDT_GDISURFACETYPE::D3DKMDT_GDISURFACE_TEXTURE_CROSSADAPTER;
    if adapter.known_caps().is_compute_only() {
        (surface.Width, surface.Height) = (HEAP_BYTES, 1);
    } else {
        (surface.Width, surface.Height) = (SIDE, SIDE);
        surface.Format.0 = FORMAT;
    }
    surface
}

/// The driver's private data of allocation and resource. An error is the text of the violation.
fn data(adapter: &Arc<Miniport>) -> Result<(Buffer, Buffer), String> {
    let mut surface = surface(adapter);
    let before = surface;
    let (status, sizes) = ask(adapter, &mut surface, &mut Buffer::new(0, 0), &mut Buffer::new(0, 0));
    let (allocation, resource) = sizes;
    if !status.is_success() || (allocation, resource) == (0, 0) || allocation.max(resource) > MOST {
        return Err(format!("asked for sizes: {status:?}, {allocation} and {resource} bytes"));
    }
    if surface.as_bytes() != before.as_bytes() {
        return Err("asked for sizes, the driver changed the surface's record".to_owned());
    }
    let (mut private, mut shared) = (Buffer::new(allocation as usize, 0), Buffer::new(resource as usize, 0));
    let (status, _) = ask(adapter, &mut surface, &mut private, &mut shared);
    if !status.is_success() {
        return Err(format!("asked for data: {status:?}"));
    }
    within("DxgkDdiGetStandardAllocationDriverData", &[&private, &shared])?;
    Ok((private, shared))
}

/// Says which function wrote behind private data.
fn within(function: &str, buffers: &[&Buffer]) -> Result<(), String> {
    let whole = buffers.iter().all(|buffer| buffer.overrun().is_none());
    if whole { Ok(()) } else { Err(format!("{function} wrote behind the private data")) }
}

/// Address of private data; NULL where there is none.
fn or_null(buffer: &mut Buffer) -> *mut core::ffi::c_void {
    if buffer.bytes().is_empty() { core::ptr::null_mut() } else { buffer.pointer().cast() }
}

/// Bytes of private data: of the allocation, of the resource.
type Sizes = (u32, u32);

fn ask(
    adapter: &Arc<Miniport>,
    surface: &mut D3DKMDT_GDISURFACEDATA,
    private: &mut Buffer,
    resource: &mut Buffer,
) -> (NTSTATUS, Sizes) {
    let mut arguments = DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA::zeroed();
    arguments.StandardAllocationType = D3DKMDT_STANDARDALLOCATION_TYPE::D3DKMDT_STANDARDALLOCATION_GDISURFACE;
    arguments.set_pCreateGdiSurfaceData(surface);
    arguments.pAllocationPrivateDriverData = or_null(private);
    arguments.pResourcePrivateDriverData = or_null(resource);
    // CAST: at most `MOST`.
    (arguments.AllocationPrivateDriverDataSize, arguments.ResourcePrivateDriverDataSize) =
        (private.bytes().len() as u32, resource.bytes().len() as u32);
    let (context, pointer) = (adapter.context(), &raw mut arguments);
    let status = ddi::status(call_ddi!(adapter, DxgkDdiGetStandardAllocationDriverData(context, pointer)));
    (status, (arguments.AllocationPrivateDriverDataSize, arguments.ResourcePrivateDriverDataSize))
}

fn create(adapter: &Arc<Miniport>, private: &mut Buffer, resource: &mut Buffer) -> Result<(), String> {
    let mut info = DXGK_ALLOCATIONINFO::zeroed();
    info.pPrivateDriverData = or_null(private);
    // CAST: at most `MOST`, and so below.
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
