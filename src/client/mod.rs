//! A process's use of the user-mode driver: the portable part, and the driver that is linked in.
#![expect(unsafe_code, reason = "entry points of the model are called by name")]

mod native;

pub use native::NativeThunks;
pub use portable_cases::client::{Adapter, Allocation, Device, Fence, Inside, List, Queue, Refused, Result};
