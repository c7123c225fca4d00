//! Kernel-mode testing: the interface of the feature, and command buffers for tests.

use std::sync::atomic::Ordering;

use wddm_abi::ntstatus::{
    STATUS_BUFFER_OVERFLOW, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_PARAMETER, STATUS_NOT_SUPPORTED, STATUS_SUCCESS,
    STATUS_UNSUCCESSFUL,
};
use wddm_abi::{
    D3DDDI_TESTCOMMANDBUFFER, D3DDDI_TESTCOMMANDBUFFEROP, DXGK_FEATURE_ID, DXGKARG_BUILDTESTCOMMANDBUFFER,
    DXGKARG_QUERYFEATUREINTERFACE, DXGKDDI_KERNELMODETESTINGINTERFACE, HANDLE, NTSTATUS, Plain, win_extern,
};

use super::gpu::opcode;
use super::{argument, number, owner};

/// Bytes of private data that a buffer comes with. They are not looked at.
const PRIVATE: u32 = 8;

/// Stores bytes where Dxgkrnl said.
fn store(address: *mut core::ffi::c_void, bytes: &[u8]) {
    // SAFETY: the caller has compared the size with what Dxgkrnl said that there is.
    unsafe { bytes.as_ptr().copy_to_nonoverlapping(address.cast(), bytes.len()) }
}

/// A command as this GPU has it: copies and fills, of whole words.
fn words(command: &D3DDDI_TESTCOMMANDBUFFER) -> Option<[u64; 4]> {
    match command.Operation {
        D3DDDI_TESTCOMMANDBUFFEROP::D3DDDI_TESTCOMMANDBUFFEROP_COPY => {
            let copy = command.Copy();
            Some([opcode::COPY, copy.SrcAddress, copy.DstAddress, copy.NumBytes.into()])
        }
        D3DDDI_TESTCOMMANDBUFFEROP::D3DDDI_TESTCOMMANDBUFFEROP_FILL => {
            let fill = command.Fill();
            Some([opcode::FILL, fill.DstAddress, fill.NumBytes.into(), fill.Pattern.into()])
        }
        _ => None,
    }
}

win_extern! {
    pub fn query_feature_interface(adapter: HANDLE, arguments: *mut DXGKARG_QUERYFEATUREINTERFACE) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return STATUS_INVALID_PARAMETER };
        let arguments = argument(arguments);
        let room = usize::from(std::mem::take(&mut arguments.InterfaceSize));
        if arguments.FeatureId != DXGK_FEATURE_ID::DXGK_FEATURE_KERNEL_MODE_TESTING {
            return STATUS_INVALID_PARAMETER;
        }
        if arguments.Version != 1 && !toy.is("feature-refusal") {
            return STATUS_UNSUCCESSFUL;
        }
        let interface = DXGKDDI_KERNELMODETESTINGINTERFACE { pfnBuildTestCommandBuffer: Some(build) };
        let bytes = interface.as_bytes();
        if room < bytes.len() {
            return STATUS_BUFFER_TOO_SMALL;
        }
        let mut whole = vec![0; room];
        whole[..bytes.len()].copy_from_slice(bytes);
        if toy.is("testing-interface-rest") {
            store(arguments.Interface, bytes);
        } else {
            store(arguments.Interface, &whole);
        }
        if !toy.is("testing-interface") {
            arguments.InterfaceSize = bytes.len() as u16;
        }
        STATUS_SUCCESS
    }

    fn build(adapter: HANDLE, arguments: *mut DXGKARG_BUILDTESTCOMMANDBUFFER) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return STATUS_INVALID_PARAMETER };
        let arguments = argument(arguments);
        let target = number(arguments.hContext);
        let state = toy.state();
        let is_known = match arguments.Flags.HardwareQueue() {
            true => state.queues.contains_key(&target),
            false => state.contexts.contains_key(&target),
        };
        drop(state);
        let Some(words) = words(&arguments.Command).filter(|_| is_known) else { return STATUS_INVALID_PARAMETER };
        toy.count("test command");
        let room = (arguments.DmaBufferSize, arguments.DmaBufferPrivateDataSize);
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        arguments.DmaBufferSize = bytes.len() as u32;
        arguments.DmaBufferPrivateDataSize = if toy.is("testing-size") { 2000 } else { PRIVATE };
        let is_small = room.0 < arguments.DmaBufferSize || room.1 < PRIVATE;
        let is_overlooked = toy.is("testing-size-later") && !arguments.pDmaBuffer.is_null();
        if is_small && !is_overlooked {
            return STATUS_BUFFER_OVERFLOW;
        }
        if is_small {
            // Half of the command, and said to be all.
            arguments.DmaBufferSize = 0;
            arguments.DmaBufferPrivateDataSize = 0;
            return STATUS_SUCCESS;
        }
        if toy.is("testing-build") {
            return STATUS_NOT_SUPPORTED;
        }
        store(arguments.pDmaBuffer, &bytes);
        store(arguments.pDmaBufferPrivateData, &[0; PRIVATE as usize]);
        if toy.is("testing-overrun") {
            store(arguments.pDmaBuffer.wrapping_byte_add(room.0 as usize), &[0]);
        }
        if toy.is("testing-members") {
            arguments.Command.Operation.0 += 1;
        }
        STATUS_SUCCESS
    }
}

impl super::Toy {
    /// Returns whether the OS has enabled kernel-mode testing.
    pub fn builds_tests(&self) -> bool {
        self.testing.load(Ordering::SeqCst)
    }
}
