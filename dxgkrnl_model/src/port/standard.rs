//! What a driver says of a standard allocation that the OS makes: its private data of allocation and resource.
//!
//! Source: DDI pages DxgkDdiGetStandardAllocationDriverData, DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA (asked for sizes,
//! then for data; the surface's record stays untouched the first time; not both sizes zero).

use wddm_abi::{
    D3DKMDT_GDISURFACEDATA, D3DKMDT_GDISURFACETYPE, D3DKMDT_STANDARDALLOCATION_TYPE,
    DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA, NTSTATUS, Plain, ntstatus,
};

use crate::port::ddi::{self, call_ddi};
use crate::port::miniport::Miniport;
use crate::port::query::Buffer;

/// Most private data, in bytes, that is taken for an allocation or a resource.
const MOST: u32 = 1 << 16;

/// Private data of an allocation, and of its resource.
pub(crate) type Data = (Buffer, Buffer);

/// Why there are no data.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// What the driver returned; STATUS_INVALID_PARAMETER where it succeeded with what makes no sense.
    pub(crate) status: NTSTATUS,
    /// In words.
    pub(crate) why: String,
}

impl Refusal {
    fn new(status: NTSTATUS, why: String) -> Self {
        let status = if status.is_success() { ntstatus::STATUS_INVALID_PARAMETER } else { status };
        Self { status, why }
    }

    /// Returns whether the driver has no memory for it, the only refusal that its page lists.
    pub(crate) fn is_listed(&self) -> bool {
        self.status == ntstatus::STATUS_NO_MEMORY
    }
}

/// A heap of so many bytes, as the OS has a driver describe it: a surface without a format, one line high, whose width
/// is its length.
///
/// Source: DDI page D3DKMT_CREATEALLOCATIONFLAGS, ExistingSysMem; Microsoft's compute-only sample,
/// GetStandardAllocationDriverData.
pub(crate) fn heap(bytes: u32) -> D3DKMDT_GDISURFACEDATA {
    let mut surface = D3DKMDT_GDISURFACEDATA::zeroed();
    surface.Type = D3DKMDT_GDISURFACETYPE::D3DKMDT_GDISURFACE_TEXTURE_CROSSADAPTER;
    (surface.Width, surface.Height) = (bytes, 1);
    surface
}

/// The driver's private data for `surface`.
///
/// IRQL: PASSIVE_LEVEL.
///
/// # Errors
/// [`Refusal`].
pub(crate) fn data(adapter: &Miniport, mut surface: D3DKMDT_GDISURFACEDATA) -> Result<Data, Refusal> {
    let before = surface;
    let (status, sizes) = ask(adapter, &mut surface, &mut Buffer::new(0, 0), &mut Buffer::new(0, 0));
    let (allocation, resource) = sizes;
    if !status.is_success() || (allocation, resource) == (0, 0) || allocation.max(resource) > MOST {
        let why = format!("asked for sizes: {status:?}, {allocation} and {resource} bytes");
        return Err(Refusal::new(status, why));
    }
    if surface.as_bytes() != before.as_bytes() {
        let why = "asked for sizes, the driver changed the surface's record".to_owned();
        return Err(Refusal::new(status, why));
    }
    let (mut private, mut shared) = (Buffer::new(allocation as usize, 0), Buffer::new(resource as usize, 0));
    let (status, _) = ask(adapter, &mut surface, &mut private, &mut shared);
    if !status.is_success() {
        return Err(Refusal::new(status, format!("asked for data: {status:?}")));
    }
    within("DxgkDdiGetStandardAllocationDriverData", &[&private, &shared])
        .map_err(|why| Refusal::new(ntstatus::STATUS_SUCCESS, why))?;
    Ok((private, shared))
}

/// Says which function wrote behind private data.
///
/// # Errors
/// The text.
pub(crate) fn within(function: &str, buffers: &[&Buffer]) -> Result<(), String> {
    let whole = buffers.iter().all(|buffer| buffer.overrun().is_none());
    if whole { Ok(()) } else { Err(format!("{function} wrote behind the private data")) }
}

/// Address of private data; NULL where there is none.
pub(crate) fn or_null(buffer: &mut Buffer) -> *mut core::ffi::c_void {
    if buffer.bytes().is_empty() { core::ptr::null_mut() } else { buffer.pointer().cast() }
}

fn ask(
    adapter: &Miniport,
    surface: &mut D3DKMDT_GDISURFACEDATA,
    private: &mut Buffer,
    resource: &mut Buffer,
) -> (NTSTATUS, (u32, u32)) {
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
