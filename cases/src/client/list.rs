//! Command lists.

use super::{Client, Fence, Result, size};
use std::sync::Arc;
use umd_core::ffi::types::{FpCommandList, FpCopyRect, FpFilterRect};

/// A command list. Recording takes `&mut`: the C ABI allows one thread at a time.
pub struct List {
    pub(super) client: Arc<Client>,
    pub(super) raw: *mut FpCommandList,
}

// SAFETY: the C ABI's objects may be used from any thread, a list by one at a time, which `&mut` sees to.
unsafe impl Send for List {}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: our object, destroyed once.
        let _ = self.client.call("fp_command_list_destroy", |t| unsafe { (t.fp_command_list_destroy)(self.raw) });
    }
}

macro_rules! record {
    ($($(#[$doc:meta])* $method:ident => $function:ident($($argument:ident: $type:ty),*);)*) => {
        impl List {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                #[doc = concat!("Those of `", stringify!($function), "`.")]
                pub fn $method(&mut self $(, $argument: $type)*) -> Result<()> {
                    // SAFETY: our object.
                    self.client.call(stringify!($function), |t| unsafe { (t.$function)(self.raw $(, $argument)*) })
                }
            )*
        }
    };
}

record! {
    /// Forgets what was recorded.
    reset => fp_command_list_reset();
    /// Padding.
    nop => fp_cmd_nop(length: u32);
    /// A store of 8 bytes.
    store => fp_cmd_store(address: u64, value: u64);
    /// A store of 4 bytes.
    store32 => fp_cmd_store32(address: u64, value: u32);
    /// A fill with 4 bytes.
    fill => fp_cmd_fill(address: u64, length: u64, pattern: u32);
    /// A copy.
    copy => fp_cmd_copy(source: u64, destination: u64, length: u64);
    /// A store of the GPU's clock.
    timestamp => fp_cmd_timestamp(address: u64);
    /// A jump to a command buffer.
    indirect => fp_cmd_indirect(address: u64, length: u64);
}

impl List {
    /// Rows to copy. `size` is set here.
    ///
    /// # Errors
    /// Those of `fp_cmd_copy_rect`.
    pub fn copy_rect(&mut self, rect: FpCopyRect) -> Result<()> {
        let rect = FpCopyRect { size: size::<FpCopyRect>(), ..rect };
        // SAFETY: our object, and a structure that states its size.
        self.client.call("fp_cmd_copy_rect", |t| unsafe { (t.fp_cmd_copy_rect)(self.raw, &raw const rect) })
    }

    /// A rectangle to filter. `size` is set here.
    ///
    /// # Errors
    /// Those of `fp_cmd_filter_rect`.
    pub fn filter_rect(&mut self, rect: FpFilterRect) -> Result<()> {
        let rect = FpFilterRect { size: size::<FpFilterRect>(), ..rect };
        // SAFETY: our object, and a structure that states its size.
        self.client.call("fp_cmd_filter_rect", |t| unsafe { (t.fp_cmd_filter_rect)(self.raw, &raw const rect) })
    }

    /// A wait, with its log entry.
    ///
    /// # Errors
    /// Those of `fp_cmd_fence_wait`.
    pub fn wait(&mut self, fence: &Fence, value: u64) -> Result<()> {
        // SAFETY: our objects.
        self.client.call("fp_cmd_fence_wait", |t| unsafe { (t.fp_cmd_fence_wait)(self.raw, fence.raw, value) })
    }

    /// A signal, with its log entry.
    ///
    /// # Errors
    /// Those of `fp_cmd_fence_signal`.
    pub fn signal(&mut self, fence: &Fence, value: u64) -> Result<()> {
        // SAFETY: our objects.
        self.client.call("fp_cmd_fence_signal", |t| unsafe { (t.fp_cmd_fence_signal)(self.raw, fence.raw, value) })
    }

    /// Bytes as they are.
    ///
    /// # Errors
    /// Those of `fp_cmd_raw`.
    pub fn raw(&mut self, packets: &[u8]) -> Result<()> {
        let (from, length) = (packets.as_ptr().cast(), packets.len());
        // SAFETY: our object, and a buffer of that length.
        self.client.call("fp_cmd_raw", |t| unsafe { (t.fp_cmd_raw)(self.raw, from, length) })
    }

    /// The packets recorded.
    ///
    /// # Errors
    /// Those of `fp_command_list_bytes`.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        let mut length = 0;
        self.client.call("fp_command_list_bytes", |t| {
            // SAFETY: our object, no buffer, and a place for the length.
            unsafe { (t.fp_command_list_bytes)(self.raw, std::ptr::null_mut(), 0, &raw mut length) }
        })?;
        let mut bytes = vec![0_u8; length];
        self.client.call("fp_command_list_bytes", |t| {
            // SAFETY: our object, a buffer of that length, and a place for the length.
            unsafe { (t.fp_command_list_bytes)(self.raw, bytes.as_mut_ptr().cast(), bytes.len(), &raw mut length) }
        })?;
        bytes.truncate(length);
        Ok(bytes)
    }
}
