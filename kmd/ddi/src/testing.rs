//! The interface of the feature kernel-mode testing, and its function.

use crate::arguments::{array_mut, bytes_mut, object, record_mut, started};
use crate::thunk::ddi;
use gpu_engine::shared::Shared;
use kmd_core::adapter::Adapter;
use kmd_core::context::Context;
use kmd_core::features::{Grounds, OURS};
use kmd_core::hw_queue::HwQueue;
use kmd_core::platform::Platform;
use kmd_core::status::{Error, of};
use kmd_core::testing;
use wddm_abi::ntstatus::{STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_PARAMETER, STATUS_SUCCESS, STATUS_UNSUCCESSFUL};
use wddm_abi::{
    DXGK_FEATURE_ID, DXGKARG_BUILDTESTCOMMANDBUFFER, DXGKARG_QUERYFEATUREINTERFACE, DXGKDDI_KERNELMODETESTINGINTERFACE,
    HANDLE, NTSTATUS, Plain, win_extern,
};

win_extern! {
    /// `DxgkDdiQueryFeatureInterface`, `PASSIVE_LEVEL`: kernel-mode testing has an interface, the other features have
    /// none. `InterfaceSize` comes back as the size of what was written, and the rest of a larger buffer is zero.
    ///
    /// Source: *Querying WDDM feature support and enablement*, whose sample says which status is for what.
    pub(crate) fn query_feature_interface[P: Platform](adapter: HANDLE, args: *mut DXGKARG_QUERYFEATUREINTERFACE) -> NTSTATUS {
        let Ok(adapter) = object::<Adapter<P>>(adapter) else { return STATUS_INVALID_PARAMETER };
        // SAFETY: Dxgkrnl's record, valid for the call.
        let Ok(args) = (unsafe { record_mut(args) }) else { return STATUS_INVALID_PARAMETER };
        let room = usize::from(args.InterfaceSize);
        args.InterfaceSize = 0;
        if !OURS.contains(&args.FeatureId) {
            return STATUS_INVALID_PARAMETER;
        }
        let (settings, is_test_signing) = (adapter.settings(), adapter.is_test_signing);
        let support = Grounds { settings: &settings, is_test_signing }.support(args.FeatureId, true);
        if !support.is_some_and(|support| support.has(args.Version)) {
            return STATUS_UNSUCCESSFUL;
        }
        if args.FeatureId != DXGK_FEATURE_ID::DXGK_FEATURE_KERNEL_MODE_TESTING {
            return STATUS_SUCCESS;
        }
        let interface =
            DXGKDDI_KERNELMODETESTINGINTERFACE { pfnBuildTestCommandBuffer: Some(build_test_command_buffer::<P>) };
        let interface = interface.as_bytes();
        if room < interface.len() {
            return STATUS_BUFFER_TOO_SMALL;
        }
        // SAFETY: Dxgkrnl's buffer, of that size, valid for the call.
        let Ok(to) = (unsafe { array_mut(args.Interface.cast::<u8>(), room) }) else { return STATUS_INVALID_PARAMETER };
        to.fill(0);
        to[..interface.len()].copy_from_slice(interface);
        // CAST: 8 bytes.
        args.InterfaceSize = interface.len() as u16;
        STATUS_SUCCESS
    }
}

ddi! {
    /// `DxgkDdiBuildTestCommandBuffer`, `PASSIVE_LEVEL`: one command for the context or the hardware queue, which must
    /// be there. Nothing is written to a buffer that is too small, and the record says what it needs.
    fn build_test_command_buffer[P: Platform](adapter: HANDLE)
        with args: write *mut DXGKARG_BUILDTESTCOMMANDBUFFER, answers of {
        let started = started::<P>(adapter)?;
        if !started.plan.testing {
            return Err(Error::NotSupported);
        }
        let is_ours = match args.Flags.HardwareQueue() {
            true => Shared::ptr_eq(&object::<HwQueue<P>>(args.hContext)?.counted.started, &started),
            false => Shared::ptr_eq(&object::<Context<P>>(args.hContext)?.counted.started, &started),
        };
        if !is_ours {
            return Err(Error::InvalidParameter);
        }
        let packet = testing::packet(&args.Command)?;
        let packet = packet.as_bytes();
        let room = args.DmaBufferSize as usize;
        // CAST: 32 bytes.
        args.DmaBufferSize = packet.len() as u32;
        args.DmaBufferPrivateDataSize = 0;
        if args.pDmaBuffer.is_null() || room < packet.len() {
            return Err(Error::BufferOverflow);
        }
        // SAFETY: Dxgkrnl's buffer, at least that large, valid for the call.
        let to = unsafe { bytes_mut(args.pDmaBuffer, args.DmaBufferSize) }?;
        to.copy_from_slice(packet);
        Ok(())
    }
}
