//! Paging operations that tell the driver something while no thread but one may be in it, and no paging buffer runs.

use std::sync::Arc;

use wddm_abi::ntstatus;

use super::{Buffer, Op, Pager};
use crate::port::miniport::Miniport;
use crate::port::rules::paging::{PAGING_LOST, PAGING_STATUS};

impl Pager {
    /// Keeps `buffer` for notices.
    pub(super) fn keep_spare(&self, buffer: Buffer) {
        *self.spare.lock() = Some(buffer);
    }

    /// Has the driver build `ops` in a buffer that is kept for them; nothing waits. What it writes is submitted by
    /// [`submit_notices`](Self::submit_notices).
    ///
    /// IRQL: PASSIVE_LEVEL; the calling thread alone is in the driver.
    pub(crate) fn notice(&self, adapter: &Arc<Miniport>, ops: &[Op]) {
        let Some(mut buffer) = self.spare.lock().take() else { return };
        buffer.reset(self.size);
        for op in ops {
            let (used, mut offset) = (buffer.used, 0);
            buffer.refers.extend(op.allocation());
            let status = self.call(adapter, None, op, &mut buffer, &mut offset);
            if status == ntstatus::STATUS_SYSTEM_SHUTDOWN {
                break;
            }
            adapter.rules().check(&PAGING_STATUS, status.is_success(), || format!("{op}: {status:?}"));
            let is_quiet = buffer.used == used || !op.is_of_lost_content();
            adapter.rules().check(&PAGING_LOST, is_quiet, || format!("{} bytes for {op}", buffer.used - used));
            if !is_quiet {
                // There would be nothing to copy it from.
                buffer.used = used;
            }
        }
        self.keep_spare(buffer);
    }

    /// Submits what the driver has written for notices, and waits for its end. On the paging worker.
    pub(crate) fn submit_notices(&self, adapter: &Arc<Miniport>) {
        let Some(mut buffer) = self.spare.lock().take_if(|buffer| buffer.used != 0) else { return };
        let private = buffer.private.pointer().expose_provenance();
        let completion = super::submit(
            adapter,
            None,
            (buffer.gpu, buffer.used),
            (private, buffer.private.bytes().len()),
            buffer.refers.iter().copied().collect(),
        );
        if let Some(completion) = completion {
            completion.wait(adapter);
        }
        buffer.used = 0;
        self.keep_spare(buffer);
    }
}
