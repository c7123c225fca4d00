//! NF: lifetime and sharing of native fences.
//!
//! | file | holds |
//! |---|---|
//! | `nf.rs` | the cases by id, and what they share |
//! | `create.rs` | types, storage, mappings, private data |
//! | `share.rs` | several devices and processes |
//! | `calls.rs` | what the functions refuse, the capability |
//! | `local.rs` | values in local memory |
//! | `end.rs` | destruction, with somebody waiting, racing, failing |

mod calls;
mod create;
mod end;
mod local;
mod share;

use super::{Played, Scenario, Scene, Stage};
use wddm_abi::{D3DDDI_NATIVEFENCE_TYPE, D3DKMT_CREATENATIVEFENCE, D3DKMT_HANDLE};

const CREATE: &str = "Native GPU fence object, KMD DDIs to create, open, close, and destroy a native fence object";
const DESIGN: &str = "Native GPU fence object, GPU native fence sync object design";
const STORAGE: &str = "Native GPU fence object, Physical memory storage for current and monitored fence values";
const SHARING: &str = "Native GPU fence object, Global and local handles for shared fences";
const SEGMENTS: &str = "D3DKMDT_FENCESTORAGESURFACEDATA, Remarks";
const TYPES: &str = "D3DKMTCreateNativeFence, Remarks";

pub(super) const CASES: &[Scenario] = &[
    case("NF-01", "create with an initial value, read both values, destroy", CREATE, create::create_default),
    case("NF-02", "an intra-GPU fence without the OS's support is refused", TYPES, create::intra_gpu_off),
    case("NF-03", "an intra-GPU fence has no CPU side", TYPES, create::intra_gpu_on),
    case("NF-04", "user mode's mapping of CurrentValue is read-only", DESIGN, create::read_only),
    case("NF-06", "fences that can be shared have pages of their own, others are packed", STORAGE, create::packing),
    case(
        "NF-07",
        "opened on a second device of the process",
        "D3DKMTOpenNativeFenceFromNTHandle, Remarks",
        share::second_device,
    ),
    case("NF-08", "opened by a second process", SHARING, share::second_process),
    case("NF-09", "the creator leaves first", SHARING, share::creator_leaves),
    case(
        "NF-10",
        "destroying races with opening, 2000 rounds and 16 seeded schedules",
        SHARING,
        share::destroy_races_open,
    ),
    case("NF-11", "destroyed while the CPU waits", CREATE, end::waiters),
    case(
        "NF-13",
        "no interrupt names a destroyed fence",
        "Native GPU fence object, Native fence signaled interrupt",
        end::stale,
    ),
    case(
        "NF-15",
        "private data go to the driver and come back",
        "D3DKMT_CREATENATIVEFENCE, PrivateDriverData",
        create::private_data,
    ),
    case("NF-16", "reserved members say nothing", "DXGKARG_CREATENATIVEFENCE, Reserved", create::reserved),
    case("NF-17", "rights of an NT handle", "D3DKMTShareObjects, dwDesiredAccess", share::rights),
    case(
        "NF-18",
        "each kind of fence is opened as what it is",
        "D3DKMTOpenSyncObjectFromNtHandle2, Description",
        share::wrong_kind,
    ),
    case("NF-19", "creation fails at each allocation in turn", "DxgkDdiCreateNativeFence, Return value", end::failures),
    case("NF-20", "10000 fences by 8 threads", CREATE, end::many),
    case(
        "NF-21",
        "the feature off",
        "Native GPU fence object, Querying native fence feature enablement in OS",
        create::feature_off,
    ),
    case("NF-22", "the GPU cannot write MonitoredValue", DESIGN, create::monitored_value_is_read_only),
    case("NF-23", "an intra-GPU fence is in local memory, which comes back", SEGMENTS, local::place),
    case("NF-24", "MonitoredValue in local memory is read-only to the GPU", TYPES, local::rights),
    case(
        "NF-25",
        "local memory under pressure: a fence stays, a later one is in system memory",
        TYPES,
        local::pressure,
    ),
    case("NF-26", "an intra-GPU fence that is shared is in system memory", SEGMENTS, local::shared),
    case("NF-27", "MonitoredValue stays where the CPU sees it, whatever the OS offers", SEGMENTS, local::optimized),
    case(
        "NF-28",
        "what creating, opening and destroying refuse",
        "D3DKMTCreateNativeFence, D3DKMTOpenNativeFenceFromNtHandle, Return value",
        calls::refused,
    ),
    case(
        "NF-30",
        "a question about the feature that the OS does not answer means no",
        "Native GPU fence object, Querying native fence feature enablement in OS; DXGK_FEATURE_INTERFACE",
        create::unanswered,
    ),
    case(
        "NF-31",
        "the feature on in a version that the driver does not support",
        "Native GPU fence object, Querying native fence feature enablement in OS; DXGKARGCB_QUERYFEATUREINTERFACE, Remarks",
        create::other_version,
    ),
    case("NF-29", "the capability that user mode sees", "D3DKMT_WDDM_3_1_CAPS, NativeGpuFenceSupported", calls::query),
];

const fn case(id: &'static str, title: &'static str, source: &'static str, play: fn(&Stage) -> Played) -> Scenario {
    Scenario { id, title, source, play }
}

/// The DDIs of a fence's life.
const LIFE: [&str; 4] =
    ["DxgkDdiCreateNativeFence", "DxgkDdiOpenNativeFence", "DxgkDdiCloseNativeFence", "DxgkDdiDestroyNativeFence"];
const MADE: &str = LIFE[0];
const OPENED: &str = LIFE[1];
const CLOSED: &str = LIFE[2];
const GONE: &str = LIFE[3];

/// The driver's calls about fences since [`Since::begin`].
struct Since<'a> {
    scene: &'a Scene,
    known: usize,
}

impl<'a> Since<'a> {
    fn begin(scene: &'a Scene) -> Self {
        Self { scene, known: scene.journal(&LIFE).len() }
    }

    fn calls(&self) -> Vec<&'static str> {
        self.scene.journal(&LIFE).split_off(self.known)
    }
}

/// How many creations, opens, closes and destructions the driver has seen.
fn counts(scene: &Scene) -> [u64; 4] {
    LIFE.map(|ddi| scene.calls(ddi))
}

/// A record that asks for an intra-GPU fence.
pub(super) fn intra_gpu_record(device: D3DKMT_HANDLE) -> D3DKMT_CREATENATIVEFENCE {
    let mut record = super::Raw::native_fence_record(device, 0);
    record.Info.Type = D3DDDI_NATIVEFENCE_TYPE::D3DDDI_NATIVEFENCE_TYPE_INTRA_GPU;
    record
}
