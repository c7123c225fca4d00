//! The functions of event tracing that a user-mode driver imports, by the API set
//! `api-ms-win-eventing-provider-l1-1-0.dll` or by advapi32.dll. What is written is recorded where the kernel's events
//! are ([`crate::etw`]).
//!
//! Source: evntprov.h, `EventRegister`, `EventWriteTransfer`, `EventSetInformation`, `EventUnregister`.

use crate::shim::{self, In, Out};
use crate::shims;
use crate::shims::etw::data;

const ERROR_SUCCESS: u32 = 0;
const ERROR_INVALID_HANDLE: u32 = 6;

const fn error(is_known: bool) -> u32 {
    if is_known { ERROR_SUCCESS } else { ERROR_INVALID_HANDLE }
}

shims! {
    pub(crate) table EVENTING;

    fn EventRegister(m, id: In<[u8; 16]>, callback: usize, context: usize, handle: Out<u64>) -> u32 {
        handle.set(m.register_user_etw(*id.get(), callback, context));
        ERROR_SUCCESS
    }

    fn EventUnregister(m, handle: u64) -> u32 {
        error(m.remove_etw(handle))
    }

    fn EventSetInformation(m, handle: u64, _class: u32, data: usize, bytes: u32) -> u32 {
        error(m.keep_etw_traits(handle, shim::read_bytes(data, bytes as usize)))
    }

    fn EventWriteTransfer(
        m, handle: u64, descriptor: In<[u8; 16]>, _activity: usize, _related: usize, count: u32, items: usize,
    ) -> u32 {
        error(m.record_etw(handle, *descriptor.get(), data(count, items)))
    }

    fn EventActivityIdControl(_m, _code: u32, _id: usize) -> u32 {
        ERROR_SUCCESS
    }
}
