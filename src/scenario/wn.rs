//! WN: what Windows was seen to answer. Source of all, unless a case says otherwise: Wine's tests of D3DKMT
//! (`dlls/win32u/tests/d3dkmt.c`), whose authors run them on Windows.
//!
//! | file | holds |
//! |---|---|
//! | `adapters.rs` | enumeration, names, types of queries and escapes |
//! | `bare.rs` | fences that are opened without a device; scheduling priorities of processes |
//! | `heaps.rs` | memory that a process has already, as an allocation |
//! | `idle.rs` | waiting for a device to be idle |
//! | `objects.rs` | handles, allocations, resources, fences |
//! | `offers.rs` | priorities, residency, offers; the first forms of functions that have a second |
//! | `queries.rs` | what loaders ask: registry, description, versions, capabilities, sizes |
//! | `reserved.rs` | reservations of video memory and of GPU virtual addresses |
//! | `statistics.rs` | what monitors ask: engines, segments, processes, memory |
//! | `trim.rs` | callbacks by which a process hears that it is to evict memory |

mod adapters;
mod bare;
mod heaps;
mod idle;
mod objects;
mod offers;
mod queries;
mod refused;
mod reserved;
mod statistics;
mod trim;

use super::{Played, Scenario, Stage};

const fn case(id: &'static str, title: &'static str, source: &'static str, play: fn(&Stage) -> Played) -> Scenario {
    Scenario { id, title, source, play }
}

const TESTS: &str = "Wine's tests of D3DKMT, which run on Windows";
const MONITORS: &str = "d3dkmthk.h, D3DKMT_QUERYSTATISTICS; System Informer; LibreHardwareMonitor";

pub(super) const CASES: &[Scenario] = &[
    case(
        "WN-01",
        "handles of a process rise by 0x40 over all types, and their low six bits are 0",
        TESTS,
        objects::handles,
    ),
    case(
        "WN-02",
        "a resource's handle comes before its allocations'; hGlobalShare comes back as 0",
        TESTS,
        objects::order,
    ),
    case(
        "WN-03",
        "a resource that there is not: STATUS_INVALID_HANDLE; nothing to destroy: success",
        TESTS,
        objects::nothing,
    ),
    case("WN-04", "a resource that was not made to be shared is not", TESTS, objects::not_shared),
    case(
        "WN-05",
        "a shared resource's query tells sizes and writes no data; its opening wants them exact, and leaves nothing \
         behind when it is refused",
        TESTS,
        objects::opened,
    ),
    case(
        "WN-06",
        "a fence goes back by the CPU with AllowFenceRewind alone, and a wait for the old value waits again",
        "Wine's tests of D3DKMT, which run on Windows; D3DDDICB_SIGNALFLAGS, AllowFenceRewind",
        objects::rewound,
    ),
    case(
        "WN-07",
        "synchronization objects of type 0, and of none that there is, are refused",
        TESTS,
        objects::typeless,
    ),
    case("WN-08", "an enumeration without an array asks for room for 34 adapters", TESTS, adapters::room),
    case("WN-09", "no driver update is under way; an escape of no type is refused", TESTS, adapters::types),
    case(
        "WN-10",
        "an adapter is opened by the name of its device interface, in any case of letters, and by no other",
        TESTS,
        adapters::by_name,
    ),
    case(
        "WN-11",
        "statistics: segments, nodes, and who has what of them; what there is not is refused",
        MONITORS,
        statistics::counts,
    ),
    case("WN-12", "statistics: memory that a process has in a segment", MONITORS, statistics::memory),
    case(
        "WN-13",
        "statistics: an engine's running time is that of the processes that it ran for, by packets, hardware queues and \
         doorbells",
        "System Informer; LibreHardwareMonitor; DXGK_SCHEDULING_LOG_ENTRY",
        statistics::running_time,
    ),
    case("WN-14", "video memory of another process, with the right to ask and without", TESTS, statistics::of_others),
    case(
        "WN-15",
        "a loader reads the registry of adapter and service and the driver's paths; what does not fit says how much room \
         it needs; what fails changes nothing but the status",
        "D3DDDI_QUERYREGISTRY_INFO, D3DDDI_QUERYREGISTRY_STATUS; Vulkan-Loader",
        queries::values,
    ),
    case(
        "WN-16",
        "an adapter's description, versions, capabilities by WDDM version, segment groups, and keys",
        "KMTQUERYADAPTERINFOTYPE; D3DKMT_QUERY_PHYSICAL_ADAPTER_PNP_KEY; System Informer",
        queries::described,
    ),
    case(
        "WN-17",
        "shared fences and resources are opened by their names, which end with the last NT handle and can be given again",
        TESTS,
        objects::named,
    ),
    case(
        "WN-18",
        "priorities of allocations, whether they are resident, and what an offer costs where memory is short and where \
         it is not",
        "D3DKMT_SETALLOCATIONPRIORITY; D3DKMT_QUERYALLOCATIONRESIDENCY; D3DKMT_OFFERALLOCATIONS; \
         D3DKMT_RECLAIMALLOCATIONS2",
        offers::offered,
    ),
    case(
        "WN-19",
        "allocations and adapters by the first forms of their functions; the clocks of a node",
        "D3DKMT_CREATEALLOCATION; D3DKMT_ENUMADAPTERS; D3DKMT_QUERYCLOCKCALIBRATION",
        offers::first_forms,
    ),
    case(
        "WN-20",
        "a device is idle when engines have nothing of it: packets, hardware queues, doorbells; what waits for a fence \
         keeps it no less idle, and its loss ends the wait",
        "D3DKMTWaitForIdle; D3DKMT_WAITFORIDLE",
        idle::idle,
    ),
    case(
        "WN-21",
        "a shared monitored fence is opened without a device, for the waits and signals of the OS",
        "D3DKMT_OPENSYNCOBJECTFROMNTHANDLE; Wine's tests of D3DKMT, which run on Windows",
        bare::without_device,
    ),
    case(
        "WN-22",
        "scheduling priorities of processes: one's own and another's, with the right and the privilege and without",
        "D3DKMTSetProcessSchedulingPriorityClass; D3DKMTGetProcessSchedulingPriorityClass; \
         D3DKMT_SCHEDULINGPRIORITYCLASS",
        bare::classes,
    ),
    case(
        "WN-23",
        "callbacks of a device hear what is to be evicted, and may evict; other devices, adapters and processes do not",
        "D3DKMT_REGISTERTRIMNOTIFICATION; D3DKMT_TRIMNOTIFICATION; D3DDDI_TRIMRESIDENCYSET_FLAGS",
        trim::trimmed,
    ),
    case(
        "WN-24",
        "memory that a process has already is an allocation, where the driver describes it; what is no whole pages of \
         its own is refused before the driver is asked",
        "D3DKMTCreateAllocation; D3DKMT_CREATEALLOCATIONFLAGS, ExistingSysMem; D3DKMT_CREATESTANDARDALLOCATION",
        heaps::existing,
    ),
    case(
        "WN-25",
        "video memory that a process reserves is told; no more than is available, and by whoever may",
        "D3DKMT_CHANGEVIDEOMMEMORYRESERVATION; D3DKMT_QUERYVIDEOMEMORYINFO",
        reserved::memory,
    ),
    case(
        "WN-26",
        "GPU virtual addresses are reserved at a base, whatever the limits say, or within limits",
        "D3DDDI_RESERVEGPUVIRTUALADDRESS",
        reserved::ranges,
    ),
    case(
        "WN-27",
        "a query whose buffer is too short for any answer is refused before the buffer is read",
        "D3DKMT_QUERYADAPTERINFO",
        refused::short,
    ),
    case(
        "WN-28",
        "a context that is for synchronization alone takes no command buffer, nor any context one at no address",
        "D3DDDI_CREATECONTEXTFLAGS; a public suite of tests that is written to run on Windows 11",
        refused::synchronization_only,
    ),
    case(
        "WN-29",
        "an allocation of a shared resource is destroyed with its resource alone",
        "Microsoft's dxgkrnl for Linux, whose answers are the host's",
        refused::alone,
    ),
    case(
        "WN-30",
        "functions that are left out refuse as Windows was seen to, or with STATUS_NOT_SUPPORTED, and touch no buffer",
        "a public suite of tests that is written to run on Windows 11",
        refused::left_out,
    ),
];
