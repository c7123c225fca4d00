//! Stages 2 and 3 of 8: user-mode submission, the article's five steps in the article's order (`UserLane::submit`).
//!
//! 1. A new progress value, one more than the last.
//! 2. The packets are written into ring space that no engine reads; the last of them signal the progress fence with
//!    that value.
//! 3. The value is stored to `HwQueueProgressFenceLastQueuedValue`: the OS knows that there is work.
//! 4. The write pointer is published: the GPU may see the work.
//! 5. The doorbell is rung; a full fence; the status is read.
//!
//! Then, and only if the status says so: RETRY — connect and ring again (the write pointer is a count, so nothing is
//! appended twice); NOTIFY — tell the KMD; ABORT — the queue is lost. The pseudo code of the article connects before
//! every submission and appends again after RETRY; this driver connects before the first submission and after RETRY
//! only, so that a submission of a busy queue costs no call into the kernel, and appends once.
//!
//! Source: *User-mode work submission*, "HW queue progress fence changes" and "UMD work submission pseudo code".
#![forbid(unsafe_code)]

use crate::command_list::{CommandList, LogCounts, MAX_TAIL, Tail};
use crate::device::Device;
use crate::doorbell::{Doorbell, Status};
use crate::error::UmdError;
use crate::hw_queue::{self, HwQueue};
use crate::mutation::Mutation;
use crate::publish::{Publication, Words, publish, ring_doorbell};
use crate::resize::OldRings;
use crate::ring::Ring;
use crate::thunks::{EventWait, Thunk, Thunks};
use crate::wait::{self, Timeout};
use alloc::sync::Arc;
use core::hint::spin_loop;
use core::ops::DerefMut;

/// Connects in a row after which a submission gives up. TIMEOUT: each needs another queue to take the doorbell away
/// between our connect and our ring.
const MAX_CONNECTS: u32 = 1000;
/// How often the read pointer is looked at before the OS is asked to wait.
const SPACE_SPINS: u32 = 4000;
/// Looks at a read pointer that lags behind a queue whose every submission is done. TIMEOUT: at a millisecond each, an
/// engine that does not report within ten seconds is gone.
const LAG_LOOKS: u32 = 10_000;

/// What happened in a submission besides the ring, for counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Effort {
    /// Doorbell stores.
    pub rings: u64,
    /// Connects because of RETRY.
    pub reconnects: u64,
    /// Calls of `D3DKMTNotifyWorkSubmission`.
    pub notifies: u64,
    /// Times that the ring was full.
    pub stalls: u64,
}

/// What a lane says of a submission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Submitted {
    /// Its progress value.
    pub progress: u64,
    /// LOG packets in it, the progress fence's included.
    pub logs: LogCounts,
    /// Performance counter right before the GPU or the OS could see it; 0 where nothing is traced.
    pub queued: u64,
}

/// What of a queue's state a submission needs and changes.
pub(crate) struct Turn<'a> {
    /// Progress value of the last submission.
    pub last: u64,
    /// LOG packets of all submissions so far.
    pub executed: LogCounts,
    /// Whether to wait when there is no room.
    pub may_wait: bool,
    /// The caller has asked for the progress since the submission before: it makes one at a time.
    pub alone: bool,
    /// Whether fence-queued events are kept.
    pub traced: bool,
    /// Counts up.
    pub effort: &'a mut Effort,
}

impl Turn<'_> {
    /// The performance counter for [`Submitted::queued`]. It is read before the submission is published: a thread that
    /// loses its processor right after that may find the work done when it runs again.
    pub fn stamp<T: Thunks>(&self, device: &Device<T>) -> u64 {
        if self.traced { device.os().thunks().timestamp() } else { 0 }
    }
}

/// A user-mode queue: hardware queue, doorbell, ring.
pub(crate) struct UserLane<T: Thunks> {
    // Drop order: doorbell, queue, rings.
    pub doorbell: Doorbell<T>,
    pub queue: Arc<HwQueue<T>>,
    pub ring: Ring<T>,
    /// Those that a resize has replaced.
    pub old: OldRings<T>,
    /// As it was stamped last.
    tail: Tail,
}

impl<T: Thunks> UserLane<T> {
    /// Creates context, queue, ring and doorbell.
    ///
    /// # Errors
    /// Those of the parts.
    pub fn create(device: &Arc<Device<T>>, create: hw_queue::Create, ring_size: u64) -> Result<Self, UmdError> {
        let late = device.os().mutation.is(Mutation::DoorbellBeforeResidency);
        let queue = Arc::new(HwQueue::create(device, create)?);
        let ring = Ring::create(device, ring_size, late)?;
        let doorbell = Doorbell::create(&queue, ring.allocation(), ring.control(), false)?;
        if late {
            ring.make_resident()?;
        }
        let tail = Tail::new(&queue.progress(), &device.os().mutation);
        Ok(Self { doorbell, queue, ring, old: OldRings::new(), tail })
    }

    /// Bytes that a command list may have.
    pub fn list_limit(&self) -> u64 {
        self.ring.producer.geometry().size() - MAX_TAIL
    }

    /// The five steps, once for all lists together. Nothing has happened when an error says that there was no room.
    ///
    /// # Errors
    /// [`UmdError::ListTooLarge`]; [`UmdError::Timeout`] when the ring is full and `may_wait` is off;
    /// [`UmdError::QueueLost`]; [`UmdError::RetryLimit`].
    pub fn submit<L: DerefMut<Target = CommandList>>(
        &mut self,
        device: &Device<T>,
        lists: &mut [L],
        turn: &mut Turn<'_>,
        published: impl FnOnce(Submitted),
    ) -> Result<(), UmdError> {
        let mutation = &device.os().mutation;
        self.old.let_go();
        // The pseudo code's "first connect the doorbell and read status", once in the doorbell's life.
        if !self.doorbell.was_connected() || mutation.is(Mutation::ConnectsAlways) {
            self.connect(device)?;
        }
        // Step 1.
        let reuses = mutation.is(Mutation::ReusesProgressValue);
        let next = if reuses { Some(turn.last.max(1)) } else { turn.last.checked_add(1) };
        // A fence that is at its largest value was put there by a reset.
        let progress = next.ok_or_else(|| self.lost(device))?;
        // Step 2.
        let begin = self.ring.producer.position();
        let (write_pointer, logs) = self.fill(device, lists, progress, turn)?;
        // Steps 3, 4 and 5.
        let publication = Publication { progress, write_pointer, doorbell: self.doorbell.ring_value(write_pointer) };
        let queued = turn.stamp(device);
        let status = publish(self.words(), publication, mutation);
        if !turn.alone {
            self.ring.claim_ahead(begin, write_pointer - begin);
        }
        turn.effort.rings += 1;
        published(Submitted { progress, logs, queued });
        if status == raw_retry() && mutation.is(Mutation::AppendTwiceOnRetry) {
            self.connect(device)?;
            let (write_pointer, _) = self.fill(device, lists, progress, turn)?;
            let publication =
                Publication { progress, write_pointer, doorbell: self.doorbell.ring_value(write_pointer) };
            publish(self.words(), publication, mutation);
            return Ok(());
        }
        self.settle(device, status, publication.doorbell, turn.effort)
    }

    /// Step 2: writes the lists and the progress fence's signal behind the write pointer. The write pointer to publish.
    fn fill<L: DerefMut<Target = CommandList>>(
        &mut self,
        device: &Device<T>,
        lists: &mut [L],
        progress: u64,
        turn: &mut Turn<'_>,
    ) -> Result<(u64, LogCounts), UmdError> {
        let mutation = &device.os().mutation;
        let restarts = mutation.is(Mutation::RestartsIndexHints);
        let mut executed = if restarts { LogCounts::default() } else { turn.executed };
        let (mut logs, mut recorded) = (LogCounts::default(), 0_u64);
        for list in &mut *lists {
            list.set_index_hints(executed);
            executed += list.log_counts();
            logs += list.log_counts();
            recorded = recorded.saturating_add(list.len());
        }
        if cfg!(feature = "mutants") {
            self.tail = Tail::new(&self.queue.progress(), mutation);
        }
        self.tail.stamp(progress, executed);
        // CAST: usize is 64 bits wide.
        let bytes = recorded.saturating_add(self.tail.bytes().len() as u64);
        let limit = self.ring.producer.geometry().size();
        if bytes > limit {
            return Err(UmdError::ListTooLarge { bytes: recorded, limit: self.list_limit() });
        }
        self.make_room(device, bytes, turn)?;
        let mut at = self.ring.producer.reserve(bytes, mutation).ok_or(UmdError::InvalidArgument("packet length"))?;
        for list in lists {
            self.ring.write(at, list.bytes());
            at += list.len();
        }
        self.ring.write(at, self.tail.bytes());
        logs.signals += self.tail.logs;
        // CAST: as above.
        Ok((at + self.tail.bytes().len() as u64, logs))
    }

    fn words(&self) -> Words<'_, crate::memory::MappedWord> {
        Words {
            last_queued: &self.doorbell.last_queued,
            write_pointer: self.ring.write_pointer(),
            doorbell: &self.doorbell.doorbell,
            status: &self.doorbell.status,
        }
    }

    /// Does what the status that was read after a ring asks for.
    fn settle(
        &mut self,
        device: &Device<T>,
        mut status: u64,
        ring_value: u64,
        effort: &mut Effort,
    ) -> Result<(), UmdError> {
        let mutation = &device.os().mutation;
        for _ in 0..MAX_CONNECTS {
            match Status::from_raw(status) {
                Status::Connected => return Ok(()),
                Status::ConnectedNotify if mutation.is(Mutation::IgnoresNotify) => return Ok(()),
                Status::ConnectedNotify => {
                    effort.notifies += 1;
                    return self.doorbell.notify().map_err(|error| self.lost_or(device, error));
                }
                Status::Retry if mutation.is(Mutation::IgnoresRetry) => return Ok(()),
                Status::Retry => {
                    effort.reconnects += 1;
                    self.connect(device)?;
                    effort.rings += 1;
                    status = ring_doorbell(self.words(), ring_value, mutation);
                }
                Status::Abort if mutation.is(Mutation::IgnoresAbort) => return Ok(()),
                Status::Abort => return Err(self.lost(device)),
                Status::Unknown(_) => return Err(UmdError::BadReply { thunk: Thunk::ConnectDoorbell }),
            }
        }
        Err(UmdError::RetryLimit { attempts: MAX_CONNECTS })
    }

    /// What a call that failed with `error` means: the queue is lost, where that is why.
    fn lost_or(&self, device: &Device<T>, error: UmdError) -> UmdError {
        let is_lost = self.doorbell.current_status() == Status::Abort || !device.is_alive();
        if is_lost { self.lost(device) } else { error }
    }

    /// Connects the doorbell; a connect that fails means that the queue is lost.
    fn connect(&mut self, device: &Device<T>) -> Result<(), UmdError> {
        self.doorbell.connect().map_err(|_| self.lost(device))
    }

    /// The error that says that the queue is gone, and what is known about why.
    pub(crate) fn lost(&self, device: &Device<T>) -> UmdError {
        UmdError::QueueLost { state: device.state(), fault: self.ring.fault() }
    }

    /// Waits until `needed` bytes of the ring are free: looks at the read pointer for a while, then waits for the
    /// progress fence, and looks again.
    fn make_room(&mut self, device: &Device<T>, needed: u64, turn: &mut Turn<'_>) -> Result<(), UmdError> {
        if device.os().mutation.is(Mutation::OverrunsRing) || self.ring.producer.free() >= needed {
            return Ok(());
        }
        if self.ring.look() >= needed {
            return Ok(());
        }
        if !turn.may_wait {
            return Err(UmdError::Timeout);
        }
        turn.effort.stalls += 1;
        let mut lag = 0;
        loop {
            for _ in 0..SPACE_SPINS {
                if self.ring.look() >= needed {
                    return Ok(());
                }
                spin_loop();
            }
            if self.doorbell.current_status() == Status::Abort {
                return Err(self.lost(device));
            }
            let progress = self.queue.progress();
            let completed = progress.completed(turn.last);
            if completed < turn.last {
                // The next submission that is done frees something.
                let object = progress.object(device.handle());
                wait::sliced(device.os(), object, completed + 1, Timeout::INFINITE, || {
                    if device.is_alive() { Ok(()) } else { Err(UmdError::DeviceLost { state: device.state() }) }
                })?;
            } else {
                // Everything is done, and the engine has yet to say so; or a reset signaled the fence.
                lag += 1;
                if lag > LAG_LOOKS || !device.is_alive() {
                    return Err(self.lost(device));
                }
                pause(device)?;
            }
        }
    }
}

/// RETRY, as the status word has it.
fn raw_retry() -> u64 {
    // CAST: 2.
    wddm_abi::D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_DISCONNECTED_RETRY.0 as u64
}

/// Gives up the processor for about a millisecond.
fn pause<T: Thunks>(device: &Device<T>) -> Result<(), UmdError> {
    let event = device.os().create_event()?;
    let waited = device.os().wait_event(event, 1);
    device.os().thunks().close_handle(event);
    // Nobody sets this event.
    if waited == EventWait::Failed { Err(UmdError::NoMemory) } else { Ok(()) }
}
