//! XA: cross-adapter fences.
//!
//! | file | holds |
//! |---|---|
//! | `xa.rs` | the cases by id |
//! | `native.rs` | both adapters have native fences |
//! | `mixed.rs` | one of them has not |

mod mixed;
mod native;
mod once;

use super::{Played, Scenario, Stage};

const ARTICLE: &str = "Native GPU fence object, Cross-adapter native fences";
const ONE: &str = "Native GPU fence object, Scenario 1";
const WIDTHS: &str = "DXGK_VIDSCHCAPS, No64BitAtomics; D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2";
const TWO_A: &str = "Native GPU fence object, Scenario 2a";
const TWO_B: &str = "Native GPU fence object, Scenario 2b";

pub(super) const CASES: &[Scenario] = &[
    case("XA-01", "a cross-adapter fence is of the default type", ARTICLE, native::types),
    case("XA-02", "one CurrentValue, a MonitoredValue for each adapter", ARTICLE, native::values),
    case("XA-03", "MonitoredValue stays 0 whoever waits", ARTICLE, native::monitored_value),
    case("XA-04", "signals on one adapter, waits on the other", ONE, native::signal_and_wait),
    case("XA-06", "a native fence, opened where there are none", TWO_A, mixed::native_as_monitored),
    case("XA-07", "a monitored fence, opened where native ones are", TWO_B, mixed::monitored_as_native),
    case("XA-09", "a notification that nobody waits for", ONE, native::nobody_waits),
    case(
        "XA-10",
        "the other adapter is removed",
        "DXGK_UPDATECURRENTVALUESFROMCPU_FLAGS, AlwaysSignaled",
        native::removed,
    ),
    case("XA-11", "queues of both adapters take turns, 10000 rounds", ONE, native::turns),
    case("XA-12", "every signal interrupts, 10000 signals", ARTICLE, native::interrupts),
    case("XA-13", "a wait and a signal on one adapter: nobody tells its driver", ARTICLE, native::same_adapter),
    case(
        "XA-14",
        "packet contexts of the adapter without native fences wait and signal",
        TWO_A,
        mixed::packet_contexts,
    ),
    case("XA-17", "many fences signaled in one call: one call of each driver", ONE, native::many),
    case(
        "XA-16",
        "an adapter is removed, where one has native fences and the other has not",
        "DXGK_UPDATECURRENTVALUESFROMCPU_FLAGS, AlwaysSignaled; Context monitoring",
        mixed::removed,
    ),
    case("XA-18", "looks while the CPU signals: each driver is told once", ONE, once::told_once),
    case("XA-15", "fences of 32 bits and of 64 are not opened for each other", WIDTHS, mixed::widths),
];

const fn case(id: &'static str, title: &'static str, source: &'static str, play: fn(&Stage) -> Played) -> Scenario {
    Scenario { id, title, source, play }
}
