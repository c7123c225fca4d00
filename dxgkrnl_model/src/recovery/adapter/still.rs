//! Between the two functions of an adapter's reset the GPU writes nothing. The model looks at values of fences, which
//! only the GPU could change then: the driver's other functions, by which the CPU would, are not called.

use crate::objects::fence::native::FenceOnAdapter;
use crate::port::miniport::Miniport;
use crate::port::rules::tdr::TDR_WRITES;

/// A GPU that was not stopped has so long to show: a millisecond.
const SETTLE: i64 = -10_000;

/// A fence by Dxgkrnl's handle, and its value.
type Value = (u64, u64);

/// Values of native fences that no other adapter knows.
pub(super) fn values(adapter: &Miniport) -> Vec<Value> {
    let fences = FenceOnAdapter::all_of(adapter);
    let known = fences.iter().filter_map(|driver_fence| Some((driver_fence.handle(), driver_fence.fence()?)));
    // Another adapter may signal what it knows as well.
    let own = known.filter(|(_, fence)| !fence.is_always_signaled() && !fence.is_cross_adapter());
    own.map(|(handle, fence)| (handle, fence.value())).collect()
}

/// Judges that no value is another one than `before`.
///
/// IRQL: PASSIVE_LEVEL.
pub(super) fn judge(adapter: &Miniport, before: &[Value]) {
    adapter.kernel().delay_execution(SETTLE);
    let now = values(adapter);
    let other = |(handle, old): &&Value| now.iter().any(|(fence, value)| fence == handle && value != old);
    let changed = before.iter().find(other);
    adapter.rules().check(&TDR_WRITES, changed.is_none(), || {
        changed.map_or_else(String::new, |(handle, old)| format!("fence {handle:#x} was {old:#x}"))
    });
}
