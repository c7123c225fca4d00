//! WS: waits and signals. Source of all: *Native GPU fence objects*; *Monitored fences*.
//!
//! | file | holds |
//! |---|---|
//! | `cpu.rs` | waits and signals from the CPU |
//! | `gpu.rs` | between queues, and between queues and the CPU |
//! | `order.rs` | values, order, many rounds |
//! | `kernel.rs` | kernel-mode queues, progress fences, the paging engine |
//! | `local.rs` | fences in local memory |
//! | `lost.rs` | waits for what does not come |

mod cpu;
mod gpu;
mod kernel;
mod local;
mod lost;
mod order;
mod waits;

use super::Scenario;

const DESIGN: &str = "Native GPU fence objects, GPU native fence sync object design";
const INTRA_GPU: &str = "D3DKMTCreateNativeFence, Remarks (D3DDDI_NATIVEFENCE_TYPE_INTRA_GPU)";
const CPU_WAIT: &str = "Context monitoring, CPU wait";
const CPU_SIGNAL: &str = "Context monitoring, CPU signal";

const fn case(
    id: &'static str,
    title: &'static str,
    source: &'static str,
    play: fn(&super::Stage) -> super::Played,
) -> Scenario {
    Scenario { id, title, source, play }
}

pub(super) const CASES: &[Scenario] = &[
    case("WS-01", "a CPU wait for a value that has passed ends without MonitoredValue", CPU_WAIT, cpu::passed),
    case("WS-02", "a CPU wait, then the GPU's signal: MonitoredValue 9, one interrupt, one wake", DESIGN, cpu::woken),
    case("WS-03", "a queue waits, the CPU signals", "DxgkDdiUpdateCurrentValuesFromCpu", gpu::cpu_signals),
    case("WS-04", "a queue waits, another signals: no interrupt", DESIGN, gpu::queue_signals),
    case("WS-05", "a signal that skips values wakes every waiter below it", DESIGN, cpu::skips),
    case("WS-06", "wait for any and for all of three fences, every subset signaled", CPU_WAIT, cpu::any_and_all),
    case("WS-08", "no fence at all is refused", "D3DKMTWaitForSynchronizationObjectFromCpu", cpu::nothing),
    case("WS-09", "a wait with an event returns, the event is set later", CPU_WAIT, cpu::event_later),
    case("WS-10", "a wait with an event for a value that has passed", CPU_WAIT, cpu::event_now),
    case("WS-11", "waits that are given up leave MonitoredValue to the others", DESIGN, cpu::given_up),
    case("WS-13", "the CPU signals 32 fences in one call", CPU_SIGNAL, cpu::batch),
    case("WS-14", "values are unsigned and have 64 bits", DESIGN, order::wide_values),
    case("WS-15", "a wait for 0 on a new fence ends at once", CPU_WAIT, cpu::zero),
    case("WS-17", "the GPU signals the largest value: a value, and the device is well", DESIGN, order::largest_value),
    case(
        "WS-18",
        "what a queue wrote before a signal is there when the signal is",
        "Native GPU fence objects, Order of operations on GPU when signaling or unblocking a fence",
        order::memory_first,
    ),
    case("WS-19", "two queues alternate 10000 times", DESIGN, order::ping_pong),
    case(
        "WS-21",
        "queues that wait for each other stand still, nothing is reset, others run",
        "Timeout detection and recovery; DxgkDdiSuspendContext",
        lost::deadlock,
    ),
    case(
        "WS-22",
        "waiters for a producer that hangs are released by its reset",
        "Timeout detection and recovery; DXGK_UPDATECURRENTVALUESFROMCPU_FLAGS, AlwaysSignaled",
        lost::producer_hangs,
    ),
    case(
        "WS-23",
        "a kernel-mode and a user-mode queue on one fence, both ways",
        "User-mode work submission; Context monitoring, GPU wait",
        kernel::both_kinds,
    ),
    case(
        "WS-24",
        "the progress fence of a queue is a native fence",
        "Native GPU fence objects, Indicating a native progress fence for hardware queues",
        kernel::progress_fence,
    ),
    case(
        "WS-25",
        "the paging engine signals behind the paging operations",
        "DXGK_BUILDPAGINGBUFFER_SIGNALMONITOREDFENCE",
        kernel::paging_signal,
    ),
    case(
        "WS-26",
        "queues take turns by two fences in local memory, 1000 rounds: no interrupt",
        INTRA_GPU,
        local::turns,
    ),
    case(
        "WS-27",
        "waiters for an intra-GPU fence are released when its maker is lost",
        "DXGK_UPDATECURRENTVALUESFROMCPU_FLAGS, AlwaysSignaled; D3DKMTCreateNativeFence, Remarks",
        local::maker_lost,
    ),
];
