//! Paging operations that the driver does at once: updates of page tables of the paging process, by the CPU.

use wddm_abi::{DXGKARG_BUILDPAGINGBUFFER, ntstatus};

use super::{Guarded, Op, Pager, PagingError, build};
use crate::memory::VidMm;
use crate::port::miniport::Miniport;
use crate::port::poison;
use crate::port::rules::paging::PAGING_IMMEDIATE;

/// Bytes of the paging buffer that may come with such an operation, and of its private data: as many were seen.
const BYTES: usize = 4096;

/// A paging buffer into which nothing may be written, and its private data.
struct Untouched {
    buffer: Guarded,
    private: Guarded,
}

impl Untouched {
    fn new() -> Self {
        let mut this = Self { buffer: Guarded::of_pages(BYTES), private: Guarded::of_pages(BYTES) };
        this.buffer.bytes_mut().fill(poison::BYTE);
        this.private.bytes_mut().fill(poison::BYTE);
        this
    }

    /// Names both in the arguments. The GPU does not see the buffer: its address there stays 0.
    fn offer(&mut self, arguments: &mut DXGKARG_BUILDPAGINGBUFFER) {
        arguments.pDmaBuffer = self.buffer.pointer().cast();
        arguments.pDmaBufferPrivateData = self.private.pointer().cast();
        // CAST: a page.
        (arguments.DmaSize, arguments.DmaBufferPrivateDataSize) = (BYTES as u32, BYTES as u32);
    }

    /// Returns whether nothing was written into either, or behind it.
    fn is_left(&self) -> bool {
        let left = |one: &Guarded| one.overrun().is_none() && one.bytes().iter().all(|byte| *byte == poison::BYTE);
        left(&self.buffer) && left(&self.private)
    }
}

/// Where the arguments say that the buffer and its private data go on, how many bytes are left of each, and how far the
/// operation is.
fn progress(arguments: &DXGKARG_BUILDPAGINGBUFFER) -> (usize, u32, usize, u32, u32) {
    (
        arguments.pDmaBuffer.addr(),
        arguments.DmaSize,
        arguments.pDmaBufferPrivateData.addr(),
        arguments.DmaBufferPrivateDataSize,
        arguments.MultipassOffset,
    )
}

/// The same, by the names of the members.
fn said((buffer, size, private, private_size, offset): (usize, u32, usize, u32, u32)) -> String {
    format!(
        "pDmaBuffer {buffer:#x}, DmaSize {size}, pDmaBufferPrivateData {private:#x}, DmaBufferPrivateDataSize \
         {private_size}, MultipassOffset {offset}"
    )
}

impl Pager {
    /// Operations that the driver does at once: the tables of the paging process. They come without a paging buffer, or
    /// with one that has to stay as it is; what it is, [`PagingProcess`](crate::port::personality::PagingProcess) says.
    ///
    /// # Errors
    /// The driver broke DXG-PAGING-IMMEDIATE, or the machine has stopped.
    pub(crate) fn run_immediate(adapter: &Miniport, ops: &[Op]) -> Result<(), PagingError> {
        let mut untouched = adapter.personality().paging_process.updates_with_buffer.then(Untouched::new);
        for op in ops {
            let mut arguments = DXGKARG_BUILDPAGINGBUFFER::zeroed();
            op.fill(&mut arguments);
            arguments.hSystemContext = core::ptr::with_exposed_provenance_mut(VidMm::of(adapter).system_context());
            if let Some(untouched) = &mut untouched {
                untouched.offer(&mut arguments);
            }
            let before = progress(&arguments);
            let status = build(adapter, &mut arguments);
            if status == ntstatus::STATUS_SYSTEM_SHUTDOWN {
                return Err(PagingError::Lost);
            }
            let after = progress(&arguments);
            let left = untouched.as_ref().is_none_or(Untouched::is_left);
            let held = status.is_success() && after == before && left;
            let held = adapter.rules().check(&PAGING_IMMEDIATE, held, || {
                let written = if left { "not written" } else { "written" };
                let (before, after) = (said(before), said(after));
                format!("{op}: {status:?}; before the call {before}; behind it {after}; the buffer is {written}")
            });
            if !held {
                return Err(PagingError::Driver(status));
            }
        }
        Ok(())
    }
}
