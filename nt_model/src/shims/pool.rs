//! Pool.

use crate::pool::{POOL_FLAG_NON_PAGED, POOL_FLAG_PAGED};
use crate::shims;

/// Tag that Windows shows for `ExAllocatePool`.
const NO_TAG: u32 = u32::from_le_bytes(*b"None");

shims! {
    pub(crate) table POOL;

    fn ExAllocatePool2(m, flags: u64, bytes: usize, tag: u32) -> usize {
        m.allocate_pool(flags, bytes, tag).unwrap_or(0)
    }

    // Extended parameters (secure pool, NUMA node) are not looked at.
    fn ExAllocatePool3(m, flags: u64, bytes: usize, tag: u32, _parameters: usize, _count: u32) -> usize {
        m.allocate_pool(flags, bytes, tag).unwrap_or(0)
    }

    fn ExAllocatePoolWithTag(m, pool_type: u32, bytes: usize, tag: u32) -> usize {
        m.allocate_pool_with_tag(pool_type, bytes, tag).unwrap_or(0)
    }

    fn ExAllocatePoolWithTagPriority(m, pool_type: u32, bytes: usize, tag: u32, _priority: u32) -> usize {
        m.allocate_pool_with_tag(pool_type, bytes, tag).unwrap_or(0)
    }

    fn ExAllocatePool(m, pool_type: u32, bytes: usize) -> usize {
        m.allocate_pool_with_tag(pool_type, bytes, NO_TAG).unwrap_or(0)
    }

    fn ExAllocatePoolZero(m, pool_type: u32, bytes: usize, tag: u32) -> usize {
        let flags = if pool_type & 1 != 0 { POOL_FLAG_PAGED } else { POOL_FLAG_NON_PAGED };
        m.allocate_pool(flags, bytes, tag).unwrap_or(0)
    }

    fn ExFreePool(m, address: usize) {
        m.free_pool(address, None);
    }

    fn ExFreePoolWithTag(m, address: usize, tag: u32) {
        m.free_pool(address, Some(tag));
    }

    fn ExFreePool2(m, address: usize, tag: u32, _parameters: usize, _count: u32) {
        m.free_pool(address, Some(tag));
    }
}
