//! Doorbells: created with the queue's ring, connected when they are needed, and looked at after every ring.
//!
//! The addresses that `D3DKMTCreateDoorbell` returns never change; what changes is the page behind the doorbell's
//! address (physical doorbell or dummy) and the word behind the status address.
//!
//! | status | meaning | what this driver does |
//! |---|---|---|
//! | CONNECTED | the ring reached the GPU | nothing |
//! | CONNECTED_NOTIFY_KMD | it did, and the KMD wants to hear of it | `D3DKMTNotifyWorkSubmission` |
//! | DISCONNECTED_RETRY | it may have reached the dummy page | connect and ring again |
//! | DISCONNECTED_ABORT | device lost | the queue is lost |
//!
//! Assumes:
//! - A doorbell is created disconnected, and the ring allocations are resident and mapped by then. Source:
//!   `D3DKMTCreateDoorbell`, Remarks; *User-mode work submission*, residency model.
//! - Private data (16 bytes) goes to the KMD and comes back: in [`DoorbellData`], out [`DoorbellReply`]. Source:
//!   `D3DKMT_CREATE_DOORBELL`, PrivateDriverData \[in/out\].
//! - The status is a 64-bit word holding a `D3DDDI_DOORBELLSTATUS`; only the OS writes it. Source: the same page.
//! - A connect that fails is final: GPU lost or stopped. Source: `D3DKMTConnectDoorbell`, Return value; pseudo code:
//!   `cleanup_fallback`.
//! - After a connect the KMD compares the write pointer with what it has consumed. This driver does not rely on it: it
//!   rings again.
#![forbid(unsafe_code)]

use crate::allocation::Allocation;
use crate::error::UmdError;
use crate::hw_queue::HwQueue;
use crate::memory::MappedWord;
use crate::thunks::{Os, Padded, Thunk, Thunks};
use crate::word::{Ordering, Word};
use alloc::sync::Arc;
use gpu_wire::doorbell::{Model, Token, value};
use gpu_wire::private::{DoorbellData, DoorbellReply};
use wddm_abi::{
    D3DDDI_DOORBELLSTATUS, D3DKMT_CONNECT_DOORBELL, D3DKMT_CREATE_DOORBELL, D3DKMT_CREATE_DOORBELL_FLAGS,
    D3DKMT_DESTROY_DOORBELL, D3DKMT_HANDLE, D3DKMT_NOTIFY_WORK_SUBMISSION,
};

/// What the status word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// The ring reached the GPU.
    Connected,
    /// It did, and the KMD wants a call.
    ConnectedNotify,
    /// Connect and ring again.
    Retry,
    /// The queue is lost.
    Abort,
    /// A value that this driver does not know.
    Unknown(u64),
}

const CONNECTED: u64 = raw(D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_CONNECTED);
const NOTIFY: u64 = raw(D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_CONNECTED_NOTIFY_KMD);
const RETRY: u64 = raw(D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_DISCONNECTED_RETRY);
const ABORT: u64 = raw(D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_DISCONNECTED_ABORT);

const fn raw(status: D3DDDI_DOORBELLSTATUS) -> u64 {
    // CAST: the enumerators are 0 to 3.
    status.0 as u64
}

impl Status {
    /// The status that a read of the word gave.
    pub const fn from_raw(raw: u64) -> Self {
        match raw {
            CONNECTED => Self::Connected,
            NOTIFY => Self::ConnectedNotify,
            RETRY => Self::Retry,
            ABORT => Self::Abort,
            other => Self::Unknown(other),
        }
    }
}

/// Whether the doorbell was ever connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Created, not connected yet: the first submission connects it.
    Created,
    /// Connected at least once; the status word says what is now.
    Connected,
}

/// A doorbell. Dropping it destroys it; ring and queue go later.
pub struct Doorbell<T: Thunks> {
    queue: Arc<HwQueue<T>>,
    handle: D3DKMT_HANDLE,
    state: State,
    token: Token,
    model: Model,
    /// Written by user mode.
    pub(crate) doorbell: MappedWord,
    /// Written by the OS; read-only here.
    pub(crate) status: MappedWord,
    /// Written by user mode.
    pub(crate) last_queued: MappedWord,
}

impl<T: Thunks> Doorbell<T> {
    /// Creates the doorbell of `queue` for work in `ring`; `resizes`: which replaces the ring that the queue had.
    ///
    /// # Errors
    /// [`UmdError::Thunk`]; [`UmdError::BadReply`] when an address or the KMD's reply block cannot be used.
    pub fn create(
        queue: &Arc<HwQueue<T>>,
        ring: &Allocation<T>,
        control: &Allocation<T>,
        resizes: bool,
    ) -> Result<Self, UmdError> {
        let os = queue.context().device().os();
        let mut data = [0u8; size_of::<DoorbellData>()];
        data.copy_from_slice(DoorbellData { ring: ring.gpu_va().0, control: control.gpu_va().0 }.bytes());
        let mut argument = Padded::new(D3DKMT_CREATE_DOORBELL {
            hHwQueue: queue.handle(),
            hRingBuffer: ring.handle(),
            hRingBufferControl: control.handle(),
            // CAST: 16 bytes.
            PrivateDriverDataSize: data.len() as u32,
            PrivateDriverData: data.as_mut_ptr().cast(),
            Flags: D3DKMT_CREATE_DOORBELL_FLAGS::zeroed().with_ResizeRingBufferOperation(resizes),
            ..D3DKMT_CREATE_DOORBELL::zeroed()
        });
        os.create_doorbell(&mut argument)?;
        let reply = DoorbellReply::read(&data).filter(|reply| reply.ring_size == ring.size());
        let reply = reply.and_then(|reply| Some((Token::new(reply.token)?, Model::from_raw(reply.model)?)));
        let words = [
            argument.DoorbellCPUVirtualAddress,
            argument.DoorbellStatusCPUVirtualAddress,
            argument.HwQueueProgressFenceLastQueuedValueCPUVirtualAddress,
        ]
        .map(MappedWord::new);
        let (Some((token, model)), [Some(doorbell), Some(status), Some(last_queued)]) = (reply, words) else {
            destroy(os, argument.hDoorbell);
            return Err(UmdError::BadReply { thunk: Thunk::CreateDoorbell });
        };
        let handle = argument.hDoorbell;
        Ok(Self { queue: queue.clone(), handle, state: State::Created, token, model, doorbell, status, last_queued })
    }

    /// Destroys it. Nothing of its words may be touched any more, and it cannot be connected.
    pub(crate) fn end(&mut self) {
        self.state = State::Created;
        let handle = core::mem::take(&mut self.handle);
        if handle != 0 {
            destroy(self.os(), handle);
        }
    }

    fn os(&self) -> &Os<T> {
        self.queue.context().device().os()
    }

    /// Its handle.
    pub fn handle(&self) -> D3DKMT_HANDLE {
        self.handle
    }

    /// The KMD's doorbell model.
    pub fn model(&self) -> Model {
        self.model
    }

    /// The queue's name in a global doorbell.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Whether [`Self::connect`] has succeeded before.
    pub fn was_connected(&self) -> bool {
        self.state == State::Connected
    }

    /// What to ring with for a write pointer.
    pub fn ring_value(&self, write_pointer: u64) -> u64 {
        value(self.token, write_pointer)
    }

    /// What the OS says now.
    pub fn current_status(&self) -> Status {
        Status::from_raw(self.status.load(Ordering::Relaxed))
    }

    /// Connects the doorbell to the GPU, again if it was connected before.
    ///
    /// # Errors
    /// [`UmdError::Thunk`].
    pub fn connect(&mut self) -> Result<(), UmdError> {
        let mut argument =
            Padded::new(D3DKMT_CONNECT_DOORBELL { hDoorbell: self.handle, ..D3DKMT_CONNECT_DOORBELL::zeroed() });
        self.os().connect_doorbell(&mut argument)?;
        self.state = State::Connected;
        Ok(())
    }

    /// Tells the KMD that there is work.
    ///
    /// # Errors
    /// [`UmdError::Thunk`].
    pub fn notify(&self) -> Result<(), UmdError> {
        let mut argument = Padded::new(D3DKMT_NOTIFY_WORK_SUBMISSION {
            hDoorbell: self.handle,
            ..D3DKMT_NOTIFY_WORK_SUBMISSION::zeroed()
        });
        self.os().notify_work_submission(&mut argument)?;
        Ok(())
    }
}

fn destroy<T: Thunks>(os: &Os<T>, handle: D3DKMT_HANDLE) {
    let _ = os.destroy_doorbell(&mut Padded::new(D3DKMT_DESTROY_DOORBELL { hDoorbell: handle }));
}

impl<T: Thunks> Drop for Doorbell<T> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_words_are_the_enumeration_and_nothing_else() {
        assert_eq!(Status::from_raw(0), Status::Connected);
        assert_eq!(Status::from_raw(1), Status::ConnectedNotify);
        assert_eq!(Status::from_raw(2), Status::Retry);
        assert_eq!(Status::from_raw(3), Status::Abort);
        assert_eq!(Status::from_raw(4), Status::Unknown(4));
        assert_eq!(Status::from_raw(1 << 32), Status::Unknown(1 << 32));
    }
}
