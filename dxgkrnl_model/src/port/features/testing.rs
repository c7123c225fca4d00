//! Kernel-mode testing: the driver's interface of the feature, and the command buffers that it builds for tests.
//!
//! Source: article kernel-mode-testing-of-wddm-features; DDI pages `DXGKDDI_BUILDTESTCOMMANDBUFFER`,
//! `DXGKARG_QUERYFEATUREINTERFACE`.
//!
//! Chosen: the interface is asked for when the adapter has started, with questions before that have no answer. A buffer
//! is asked for three times: without buffers, which gives the sizes, with too small a one, and with the caller's.

use wddm_abi::{
    D3DDDI_TESTCOMMANDBUFFER, D3DDDI_TESTCOMMANDBUFFEROP, DXGK_FEATURE_ID, DXGKARG_BUILDTESTCOMMANDBUFFER,
    DXGKARG_QUERYFEATUREINTERFACE, DXGKDDI_BUILDTESTCOMMANDBUFFER, DXGKDDI_KERNELMODETESTINGINTERFACE, NTSTATUS, Plain,
    ntstatus,
};

use super::{DriverInterface, Features};
use crate::port::miniport::Miniport;
use crate::port::query::Buffer;
use crate::port::rules::testing::{FEATURE_REFUSAL, TESTING_BUILD, TESTING_INTERFACE, TESTING_OVERRUN, TESTING_SIZE};
use crate::port::{ddi, poison};

/// Most bytes of a buffer for tests.
pub(crate) const MOST_BYTES: usize = 4096;
/// Most bytes of its private data.
pub(crate) const MOST_PRIVATE: usize = 1024;

/// The feature.
const TESTING: DXGK_FEATURE_ID = DXGK_FEATURE_ID::DXGK_FEATURE_KERNEL_MODE_TESTING;
/// A feature that no kit has.
const UNKNOWN: DXGK_FEATURE_ID = DXGK_FEATURE_ID(0x0FFF_FF00);

/// A command for the driver to build.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    /// The driver's handle of the context or of the hardware queue, as a number.
    pub(crate) target: usize,
    /// It is a hardware queue's.
    pub(crate) is_hardware_queue: bool,
    /// The command.
    pub(crate) command: D3DDDI_TESTCOMMANDBUFFER,
}

/// What the driver made of an order.
#[derive(Debug)]
pub(crate) struct Built {
    /// What it returned.
    pub(crate) status: NTSTATUS,
    /// The buffer, as large as it was given.
    pub(crate) buffer: Vec<u8>,
    /// The private data, as large as they were given.
    pub(crate) private: Vec<u8>,
    /// Bytes that were written, or that are needed: of the buffer, and of the private data.
    pub(crate) sizes: (u32, u32),
}

impl Order {
    /// Returns whether every driver must build it: a copy or a fill of whole 32-bit words that do not overlap.
    fn is_sound(&self) -> bool {
        match self.command.Operation {
            D3DDDI_TESTCOMMANDBUFFEROP::D3DDDI_TESTCOMMANDBUFFEROP_COPY => {
                let copy = self.command.Copy();
                let words = [copy.SrcAddress, copy.DstAddress, copy.NumBytes.into()];
                let apart = copy.SrcAddress.abs_diff(copy.DstAddress) >= copy.NumBytes.into();
                apart && copy.NumBytes != 0 && words.iter().all(|word| word.is_multiple_of(4))
            }
            D3DDDI_TESTCOMMANDBUFFEROP::D3DDDI_TESTCOMMANDBUFFEROP_FILL => {
                let fill = self.command.Fill();
                fill.NumBytes != 0 && fill.NumBytes.is_multiple_of(4) && fill.DstAddress.is_multiple_of(4)
            }
            _ => false,
        }
    }
}

impl Features {
    /// Asks the driver for its interface where the feature is enabled. Called once, when the adapter has started.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn ask_for_testing(&self, adapter: &Miniport) {
        let state = self.query(adapter, TESTING);
        if !state.enabled {
            return;
        }
        for (what, id, version, size) in [
            ("an unknown feature", UNKNOWN, state.version, INTERFACE_BYTES),
            ("another version", TESTING, state.version + 1, INTERFACE_BYTES),
            ("too small a buffer", TESTING, state.version, INTERFACE_BYTES - 1),
        ] {
            let (status, _, buffer) = self.ask(adapter, id, version, size);
            let refused = !status.is_success() && buffer.bytes().iter().all(|byte| *byte == poison::BYTE);
            let held = refused && buffer.overrun().is_none();
            adapter.rules().check(&FEATURE_REFUSAL, held || adapter.rules().is_stopped(), || {
                format!("{what}: {status:?}{}", if refused { "" } else { ", and the buffer was written" })
            });
        }
        // Once more room than the table needs.
        let (status, size, buffer) = self.ask(adapter, TESTING, state.version, 2 * INTERFACE_BYTES);
        let (table, rest) = buffer.bytes().split_at(INTERFACE_BYTES.into());
        let table = DXGKDDI_KERNELMODETESTINGINTERFACE::from_bytes(table);
        let build = table.and_then(|table| table.pfnBuildTestCommandBuffer);
        let sound = status.is_success()
            && size == INTERFACE_BYTES
            && build.is_some()
            && rest.iter().all(|byte| *byte == 0)
            && buffer.overrun().is_none();
        let held = adapter.rules().check(&TESTING_INTERFACE, sound || adapter.rules().is_stopped(), || {
            format!("{status:?}, InterfaceSize {size}, rest {rest:x?}")
        });
        self.state.lock().build_test = build.filter(|_| held);
    }

    /// One question for an interface, with so much room: the status, `InterfaceSize` behind it, and the buffer.
    fn ask(&self, adapter: &Miniport, id: DXGK_FEATURE_ID, version: u16, size: u16) -> (NTSTATUS, u16, Buffer) {
        let mut buffer = Buffer::new(size.into(), poison::BYTE);
        let DriverInterface::Some(interface) = self.state.lock().interface else {
            return (ntstatus::STATUS_NOT_SUPPORTED, 0, buffer);
        };
        let Some(function) = interface.QueryFeatureInterface else {
            return (ntstatus::STATUS_NOT_SUPPORTED, 0, buffer);
        };
        let mut arguments = DXGKARG_QUERYFEATUREINTERFACE::zeroed();
        (arguments.FeatureId, arguments.Version, arguments.InterfaceSize) = (id, version, size);
        arguments.Interface = buffer.pointer().cast();
        let (context, pointer) = (adapter.context(), &raw mut arguments);
        #[expect(unsafe_code, reason = "a function of the driver's interface is called")]
        let call = move || {
            // SAFETY: the driver put the function there for this call; the record and its buffer are valid for it.
            unsafe { function(context, pointer) }
        };
        let status = ddi::status(adapter.call_named("DxgkDdiQueryFeatureInterface", call));
        (status, arguments.InterfaceSize, buffer)
    }

    /// Has the driver build a command, in buffers of so many bytes; `None`: NULL is passed.
    ///
    /// IRQL: PASSIVE_LEVEL.
    ///
    /// # Errors
    /// STATUS_NOT_SUPPORTED where the driver has no interface for it.
    pub(crate) fn build_test(
        &self,
        adapter: &Miniport,
        order: &Order,
        buffer: Option<usize>,
        private: Option<usize>,
    ) -> Result<Built, NTSTATUS> {
        let function = self.state.lock().build_test.ok_or(ntstatus::STATUS_NOT_SUPPORTED)?;
        let first = call(adapter, function, order, None, None);
        let needed = (first.sizes.0 as usize, first.sizes.1 as usize);
        let overflow = first.status == ntstatus::STATUS_BUFFER_OVERFLOW;
        let judged = order.is_sound() && !adapter.rules().is_stopped();
        let sized = overflow && (1..=MOST_BYTES).contains(&needed.0) && needed.1 <= MOST_PRIVATE;
        let sized = adapter.rules().check(&TESTING_SIZE, sized || !judged, || {
            format!("without buffers: {:?}, {} and {} bytes", first.status, needed.0, needed.1)
        });
        if overflow && sized && judged {
            let small = call(adapter, function, order, Some(needed.0 - 1), Some(needed.1));
            let same = small.status == ntstatus::STATUS_BUFFER_OVERFLOW && small.sizes == first.sizes;
            adapter.rules().check(&TESTING_SIZE, same || adapter.rules().is_stopped(), || {
                format!("one byte less than {}: {:?}, {:?}", needed.0, small.status, small.sizes)
            });
        }
        let built = call(adapter, function, order, buffer, private);
        let is_enough = buffer.is_some_and(|size| size >= needed.0) && private.unwrap_or(0) >= needed.1;
        let wanted = if is_enough { ntstatus::STATUS_SUCCESS } else { ntstatus::STATUS_BUFFER_OVERFLOW };
        let held = built.status == wanted || !judged || !sized || adapter.rules().is_stopped();
        adapter.rules().check(&TESTING_BUILD, held, || {
            format!("{:?} in {buffer:?} and {private:?} bytes: {:?}", order.command.Operation, built.status)
        });
        Ok(built)
    }
}

/// Bytes of the interface.
const INTERFACE_BYTES: u16 = size_of::<DXGKDDI_KERNELMODETESTINGINTERFACE>() as u16;

/// One call of the function, with what it writes judged.
fn call(
    adapter: &Miniport,
    function: DXGKDDI_BUILDTESTCOMMANDBUFFER,
    order: &Order,
    size: Option<usize>,
    private_size: Option<usize>,
) -> Built {
    let mut buffer = Buffer::new(size.unwrap_or(0), poison::BYTE);
    let mut private = Buffer::new(private_size.unwrap_or(0), poison::BYTE);
    let mut came = DXGKARG_BUILDTESTCOMMANDBUFFER::zeroed();
    came.hContext = core::ptr::with_exposed_provenance_mut(order.target);
    came.Command = order.command;
    came.Flags.set_HardwareQueue(order.is_hardware_queue);
    if size.is_some() {
        came.pDmaBuffer = buffer.pointer().cast();
    }
    if private_size.is_some() {
        came.pDmaBufferPrivateData = private.pointer().cast();
    }
    // CAST: limited by the caller.
    came.DmaBufferSize = size.unwrap_or(0) as u32;
    came.DmaBufferPrivateDataSize = private_size.unwrap_or(0) as u32;
    let mut arguments = came;
    let (context, pointer) = (adapter.context(), &raw mut arguments);
    #[expect(unsafe_code, reason = "a function of the driver's interface is called")]
    let call = move || {
        // SAFETY: the driver put the function there for this call; the record and its buffers are valid for it.
        unsafe { function(context, pointer) }
    };
    let status = ddi::status(adapter.call_named("DxgkDdiBuildTestCommandBuffer", call));
    let sizes = (arguments.DmaBufferSize, arguments.DmaBufferPrivateDataSize);
    (arguments.DmaBufferSize, arguments.DmaBufferPrivateDataSize) = (came.DmaBufferSize, came.DmaBufferPrivateDataSize);
    let within = buffer.overrun().is_none() && private.overrun().is_none();
    let said = !status.is_success() || (sizes.0 <= came.DmaBufferSize && sizes.1 <= came.DmaBufferPrivateDataSize);
    let untouched = arguments.as_bytes() == came.as_bytes();
    adapter.rules().check(&TESTING_OVERRUN, within && said && untouched, || {
        format!("in {size:?} and {private_size:?} bytes: {status:?}, {sizes:?}, within: {within}, members: {untouched}")
    });
    Built { status, buffer: buffer.bytes().to_vec(), private: private.bytes().to_vec(), sizes }
}
