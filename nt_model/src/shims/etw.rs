//! Event tracing.

use crate::records::{status, status::NtStatus};
use crate::routines;
use crate::shim::{self, In, Out};
use crate::shims;

/// `EVENT_DATA_DESCRIPTOR`: address, size, flags.
pub(crate) fn data(count: u32, items: usize) -> Vec<Vec<u8>> {
    (0..count as usize)
        .map(|at| {
            let item: In<[u64; 2]> = shims::pointer(items + 16 * at);
            let [address, size] = *item.get();
            // CAST: an address; the size is the low half of its word.
            shim::read_bytes(address as usize, size as u32 as usize)
        })
        .collect()
}

shims! {
    pub(crate) table ETW;

    fn EtwRegister(m, id: In<[u8; 16]>, callback: usize, context: usize, handle: Out<u64>) -> NtStatus {
        handle.set(m.register_etw(*id.get(), callback, context));
        status::SUCCESS
    }

    fn EtwUnregister(m, handle: u64) -> NtStatus {
        m.unregister_etw(handle)
    }

    fn EtwSetInformation(m, handle: u64, class: u32, data: usize, bytes: u32) -> NtStatus {
        m.set_etw_information(handle, class, &shim::read_bytes(data, bytes as usize))
    }

    fn EtwWrite(m, handle: u64, descriptor: In<[u8; 16]>, _activity: usize, count: u32, items: usize) -> NtStatus {
        m.write_etw(&routines::ETW_WRITE, handle, *descriptor.get(), data(count, items))
    }

    fn EtwWriteTransfer(
        m, handle: u64, descriptor: In<[u8; 16]>, _activity: usize, _related: usize, count: u32, items: usize,
    ) -> NtStatus {
        m.write_etw(&routines::ETW_WRITE_TRANSFER, handle, *descriptor.get(), data(count, items))
    }

    fn EtwEventEnabled(_m, _handle: u64, _descriptor: usize) -> u8 {
        1
    }

    fn EtwProviderEnabled(_m, _handle: u64, _level: u8, _keyword: u64) -> u8 {
        1
    }

    fn EtwActivityIdControl(_m, _code: u32, _id: usize) -> NtStatus {
        status::SUCCESS
    }
}
