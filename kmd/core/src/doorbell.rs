//! Stage 3 of 8: doorbells.
//!
//! A doorbell object belongs to one queue for life. Connecting gives it a physical doorbell; in the dedicated model
//! those are few, and [`crate::doorbell_pool`] says which doorbell has which. After `DxgkCbDisconnectDoorbell`
//! returned, user mode no longer has the page, and the physical doorbell is free. After `DxgkDdiDisconnectDoorbell`
//! returned, Dxgkrnl has *yet to* rotate the page and write RETRY: a ring in between still reads CONNECTED. So such a
//! physical doorbell is not reused until a later call about the same doorbell proves that the rotation is over, and
//! until then the engine goes on watching the queue's write pointer.
//!
//! An engine that has been idle for a while has the OS disconnect its doorbells ([`crate::let_go`]), so that it sleeps
//! until it is woken. The next ring reads RETRY and connects again. A queue that submits seldom is connected as
//! CONNECTED_NOTIFY then: user mode calls `D3DKMTNotifyWorkSubmission` behind each ring, which wakes the engine, and
//! nothing has to be disconnected ([`crate::habit`]).
//!
//! Whatever connects, resumes or notifies compares the published write pointer with what was consumed, so no ring is
//! lost and a repeated ring runs nothing twice.
//!
//! Source: *User-mode work submission*; `DxgkDdiConnectDoorbell`, `DxgkDdiDisconnectDoorbell`,
//! `DxgkCbDisconnectDoorbell`.

use crate::adapter::{Counted, EngineHost, Started};
use crate::allocation::RingMemory;
use crate::doorbell_pool::{Attempt, Claimant, Hands, Turn};
use crate::gone;
use crate::handle::{Handle, Tag, object};
use crate::hw_queue::{HwQueue, Left};
use crate::irql::Passive;
use crate::platform::{self, Platform};
use crate::process::Process;
use crate::status::{Error, Result};
use crate::tracing::{DoorbellChange, Event};
use core::sync::atomic::{AtomicBool, Ordering};
use gpu_engine::gpu::Gpu;
use gpu_engine::host::{Host, Lock};
use gpu_engine::mutation::Mutation;
use gpu_engine::queue::{Binding, Queue};
#[cfg(doc)]
use gpu_engine::rings::RINGS;
use gpu_engine::shared::Shared;
use gpu_wire::GpuVa;
use gpu_wire::doorbell::Model;
use gpu_wire::private::{DoorbellData, DoorbellReply};
use gpu_wire::ring::{self, Geometry};
use wddm_abi::ntstatus::{self, STATUS_SUCCESS};
use wddm_abi::{D3DDDI_DOORBELLSTATUS, NTSTATUS};

/// How long a connection asks for doorbells that the OS keeps, in units of 100 ns. TIMEOUT: half a second.
const PATIENCE: u64 = 5_000_000;

/// A connection that waits looks once in a millisecond. One that has not for this part of a second is being kept from
/// running, and keeps no other waiting. TIMEOUT: 20 milliseconds.
const AWAY: u64 = 50;

/// How long a destruction waits for a thread that is taking the doorbell away, in units of 100 ns. TIMEOUT: 3 seconds,
/// below the time for which a thread may be in the driver behind a time-out of the GPU (TdrDdiDelay, 5 seconds).
const GONE_PATIENCE: u64 = 30_000_000;

/// The same where a destruction has waited in vain before. TIMEOUT: 20 milliseconds: longer than the callback takes by
/// itself, and short enough for a process that ends with hundreds of doorbells.
const VAIN_PATIENCE: u64 = 200_000;

/// A doorbell.
pub struct Doorbell<P: Platform> {
    /// Its queue.
    pub queue: Shared<HwQueue<P>>,
    /// What the pool of physical doorbells knows of it.
    claimant: Claimant<EngineHost<P>>,
    /// Counted in the census, and a reference to the adapter.
    pub counted: Counted<P>,
}

object!(Doorbell: Doorbell<P>);

/// What a connect gives back.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    /// Kernel address of the physical doorbell's page.
    pub address: *mut u8,
    /// CONNECTED or CONNECTED_NOTIFY_KMD.
    pub status: D3DDDI_DOORBELLSTATUS,
}

impl<P: Platform> Doorbell<P> {
    /// Creates a doorbell for `queue`, without a physical one. `private` holds [`DoorbellData`] and receives
    /// [`DoorbellReply`].
    ///
    /// With `resizes` the ring replaces the one that the queue has, or had when its doorbell was destroyed: what is
    /// published in that one runs first, a fence wait that is not met included, and positions in the new one start at
    /// 0. User mode keeps the old ring for as long. Without the flag what the queue was in is forgotten.
    ///
    /// For a doorbell that there is, by Dxgkrnl's handle `os`, nothing is made: the article has this function called
    /// behind D3 to establish its connection, which [`Self::connect`] makes. That one's handle is returned.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`]: no user-mode queue, a second doorbell (with `resizes` a third, or a ring more than
    /// [`RINGS`]), no control allocation (this GPU needs one), a ring that is no power of two or out of range, private
    /// data of another size than 16 bytes; [`Error::NoMemory`].
    pub fn create(
        _irql: &Passive,
        queue: &Shared<HwQueue<P>>,
        os: u64,
        ring_memory: RingMemory,
        control_memory: Option<RingMemory>,
        resizes: bool,
        private: &mut [u8],
    ) -> Result<Handle> {
        let started = &queue.counted.started;
        let data = DoorbellData::read(private).ok_or(Error::InvalidParameter)?;
        let control = control_memory.ok_or(Error::InvalidParameter)?;
        let geometry = Geometry::new(ring_memory.size).map_err(|_| Error::InvalidParameter)?;
        let binding = Binding { ring: GpuVa(data.ring), control: GpuVa(data.control), geometry };
        let placed = |va: GpuVa, size: u64| {
            va.is_aligned(gpu_wire::PAGE_SIZE) && va.checked_add(size).is_some_and(GpuVa::is_canonical)
        };
        let sane = queue.engine.user_mode
            && private.len() == size_of::<DoorbellData>()
            && control.size >= ring::CONTROL_SIZE
            && !ring_memory.local
            && !control.local
            && placed(binding.ring, geometry.size())
            && placed(binding.control, ring::CONTROL_SIZE);
        if !sane {
            return Err(Error::InvalidParameter);
        }
        let reply = DoorbellReply {
            token: gpu_engine::gpu::token(queue.engine.slot).get(),
            model: started.settings.doorbell_model.raw(),
            ring_size: geometry.size(),
        };
        let mut answer = || {
            if let Some(to) = private.get_mut(..reply.bytes().len()) {
                to.copy_from_slice(reply.bytes());
            }
        };
        if let Some(handle) = queue.doorbells.with(|doorbells| doorbells.of(os)) {
            answer();
            return Ok(handle);
        }
        let key = started.doorbells.new_key();
        if !queue.doorbells.with(|doorbells| doorbells.add(resizes)) {
            return Err(Error::InvalidParameter);
        }
        let made = (|| {
            let counted = Counted::new(started.clone(), |c| &c.doorbells);
            // A doorbell is connected by one thread at a time; the census counts this one already.
            started.doorbells.expect(started.census.doorbells.load(Ordering::Relaxed) as usize)?;
            if started.settings.doorbell_model == Model::Global {
                // Memory is reserved here, since connecting may not fail for want of it. The census counts this
                // doorbell already.
                // A place that the OS is just taking from a doorbell, and the place that it gets instead.
                let places = started.census.doorbells.load(Ordering::Relaxed) as usize * 2;
                started.gpu.global.reserve(places)?;
                started.doorbells.have(places)?;
            }
            let claimant = Claimant {
                key,
                // The device keeps its process alive, and the doorbell its device.
                process: core::ptr::from_ref::<Process<P>>(&queue.context.device.process).addr() as u64,
                os_queue: queue.os,
                os,
                queue: queue.engine.clone(),
                habit: queue.habit.clone(),
                closed: Shared::try_new(AtomicBool::new(false))?,
            };
            let doorbell = Shared::try_new(Self { queue: queue.clone(), claimant, counted })?;
            let handle = Handle::create(doorbell)?;
            let device = &queue.context.device;
            device.adopt(Tag::Doorbell, handle, Self::destroy).inspect_err(|_| drop(handle.take::<Self>()))?;
            // In one section: a destruction beside this sets aside its own ring, or none.
            let is_bound = queue.doorbells.with(|doorbells| {
                if !resizes {
                    started.gpu.bind(&queue.engine, Some(binding));
                } else if !queue.engine.resize(binding) {
                    return false;
                }
                doorbells.know(key, os, handle);
                true
            });
            if !is_bound {
                device.disown(handle);
                drop(handle.take::<Self>());
                return Err(Error::InvalidParameter);
            }
            Ok::<_, Error>(handle)
        })();
        let handle = made.inspect_err(|_| {
            queue.doorbells.with(|doorbells| doorbells.remove(key));
        })?;
        if resizes {
            // What is left in the old ring goes on, whether or not the new doorbell is connected.
            started.gpu.make_ready(&queue.engine);
        }
        answer();
        let (change, hw_queue) = (DoorbellChange::Create, queue.os);
        started.platform.trace(|| Event::Doorbell { change, hw_queue, doorbell: os, status: STATUS_SUCCESS });
        Ok(handle)
    }

    /// Connects.
    ///
    /// # Errors
    /// [`Error::DoorbellsExhausted`] when the OS keeps every physical doorbell, which its page does not provide for;
    /// [`Error::DeviceNotReady`] when the device is stopped or gone; [`Error::InvalidParameter`] when the doorbell is
    /// being destroyed. A pool whose doorbells are all changing hands is no error.
    pub fn connect(&self, irql: &Passive) -> Result<Connection> {
        let connected = self.try_connect(irql);
        self.tell(DoorbellChange::Connect, connected.as_ref().map_or_else(|error| error.status(), |_| STATUS_SUCCESS));
        connected
    }

    /// Tells a trace of it.
    fn tell(&self, change: DoorbellChange, status: NTSTATUS) {
        let (hw_queue, doorbell) = (self.claimant.os_queue, self.claimant.os);
        self.counted.started.platform.trace(|| Event::Doorbell { change, hw_queue, doorbell, status });
    }

    fn try_connect(&self, irql: &Passive) -> Result<Connection> {
        let started = &self.counted.started;
        let queue = &self.queue.engine;
        // Decided before the engine is told, which looks for rings or does not: status and engine agree.
        let (now, rings) = (started.platform.clock(), queue.rung.load(Ordering::Relaxed));
        let announces = self.queue.habit.connect(now, rings, started.settings.connect_notify);
        let status = if announces {
            D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_CONNECTED_NOTIFY_KMD
        } else {
            D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_CONNECTED
        };
        // The decision stays with this attempt: another doorbell of the queue may connect beside it.
        let index = self.connect_physical(&OfDriver { irql, started, looks: !announces })?;
        // Rings that landed on the dummy page meanwhile: their work is found here.
        end_watch(&started.gpu, queue, self.claimant.key, Mutation::WatchesConnected);
        let pages = started.gpu.doorbell_pages(index).ok_or(Error::InvalidParameter)?;
        Ok(Connection { address: pages.as_ptr(), status })
    }

    /// Gets a physical doorbell: its own, a free one, or another doorbell's. While other threads are changing all of
    /// them it waits for one that has changed hands, without a lock, for as long as the device is there: the page of
    /// `DxgkDdiConnectDoorbell` has failures for a GPU that is lost or stopped alone, and user mode gives the queue up
    /// for one.
    ///
    /// # Errors
    /// As [`Self::connect`]; [`Error::DoorbellsExhausted`] when the OS has refused to disconnect for [`PATIENCE`],
    /// while no physical doorbell changed hands.
    fn connect_physical(&self, hands: &OfDriver<'_, P>) -> Result<usize> {
        let started = hands.started;
        let mut turn = Turn::new(started.platform.clock_frequency() / AWAY);
        let connected = self.connect_in_turn(hands, &mut turn);
        // One that gives up lets the others on; one that is connected has left already.
        started.doorbells.leave(turn);
        started.gpu.host.changes().announce();
        connected
    }

    fn connect_in_turn(&self, hands: &OfDriver<'_, P>, turn: &mut Turn) -> Result<usize> {
        let OfDriver { irql, started, .. } = *hands;
        let pool = &started.doorbells;
        // CAST: at most 256.
        let quota = started.settings.doorbells_per_process as usize;
        loop {
            let before = pool.changes();
            let (mut ended, mut refused) = (None, false);
            let mut look = || {
                if started.is_ending.load(Ordering::Acquire) {
                    ended = Some(Err(Error::DeviceNotReady));
                    return true;
                }
                match pool.connect_in_turn(hands, &self.claimant, started.platform.clock(), quota, turn) {
                    Attempt::Connected(index) => ended = Some(Ok(index)),
                    Attempt::Closed => ended = Some(Err(Error::InvalidParameter)),
                    Attempt::Refused => refused = true,
                    Attempt::Changing => {}
                }
                ended.is_some()
            };
            // At once as a rule; then when a thread has changed one: by the clock's ticks, the others would have
            // hundreds of turns in front of this one.
            let changes = started.gpu.host.changes();
            changes.wait(irql, &started.platform, Some(PATIENCE), &mut look);
            if let Some(ended) = ended {
                return ended;
            }
            if refused && pool.changes() == before {
                return Err(Error::DoorbellsExhausted);
            }
        }
    }

    /// The OS disconnects; it rotates the page after this returned. Must succeed.
    pub fn disconnect(&self, irql: &Passive) {
        let started = &self.counted.started;
        started.doorbells.disconnect(&OfDriver::new(irql, started), &self.claimant);
        started.gpu.host.changes().announce();
        started.gpu.watch_pointer(&self.queue.engine, self.claimant.key);
        self.tell(DoorbellChange::Disconnect, STATUS_SUCCESS);
    }

    /// Destroys it. Dxgkrnl disconnected it before, and by calling this shows that the rotation is over.
    ///
    /// Where another thread is taking it, that thread is in `DxgkCbDisconnectDoorbell` with this doorbell's handle,
    /// which may mean nothing any more once this function has returned: it is waited for. But no page says what the OS
    /// holds while it calls this. Where the callback waits for this function, it does so in front of its search for the
    /// doorbell, and finds none; so the wait has an end, and is short from then on. The thread that takes the doorbell
    /// cleans up then.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`].
    pub fn destroy(irql: &Passive, handle: Handle) -> Result<()> {
        let doorbell = handle.take::<Self>()?;
        doorbell.queue.context.device.disown(handle);
        let started = &doorbell.counted.started;
        let engine = &doorbell.queue.engine;
        // A connection that is under way ends without a physical doorbell, or has it before this looks.
        doorbell.claimant.closed.store(true, Ordering::Release);
        let hands = OfDriver::new(irql, started);
        let mut give_back = || started.doorbells.release(&hands, &doorbell.claimant);
        let in_vain = started.waits_in_vain.load(Ordering::Relaxed);
        let patience = if in_vain { VAIN_PATIENCE } else { GONE_PATIENCE };
        if !platform::until(irql, &started.platform, Some(patience), &mut give_back) {
            started.waits_in_vain.store(true, Ordering::Relaxed);
        }
        started.gpu.host.changes().announce();
        end_watch(&started.gpu, engine, doorbell.claimant.key, Mutation::WatchesOld);
        let is_aside = doorbell.queue.doorbells.with(|doorbells| {
            let left = doorbells.remove(doorbell.claimant.key);
            // An older ring goes on, where the engine is in it still: what the newer one has published is not executed.
            let goes_on = left == Left::Older && engine.take_back_ring();
            let is_over = left != Left::Newer && !goes_on;
            if is_over && !started.gpu.mutation.is(Mutation::KeepsRing) {
                engine.set_aside();
            }
            left != Left::Newer
        });
        if is_aside {
            // User mode may free the ring, or write to it as a new one.
            gone::rings(irql, started, engine);
        }
        doorbell.tell(DoorbellChange::Destroy, STATUS_SUCCESS);
        Ok(())
    }
}

/// What the GPU and the OS do for the pool.
pub(crate) struct OfDriver<'a, P: Platform> {
    /// The level.
    pub irql: &'a Passive,
    /// What the pool belongs to.
    pub started: &'a Started<P>,
    /// Of a connection: whether the engine is to look for rings, as the status of this connection says.
    looks: bool,
}

impl<'a, P: Platform> OfDriver<'a, P> {
    /// For what is no connection.
    pub fn new(irql: &'a Passive, started: &'a Started<P>) -> Self {
        Self { irql, started, looks: true }
    }
}

impl<P: Platform> Hands<Claimant<EngineHost<P>>> for OfDriver<'_, P> {
    fn attach(&self, index: usize, owner: &Claimant<EngineHost<P>>) {
        // There is memory for every place of the pool: `Doorbell::create`.
        let connected = self.started.gpu.connect(index, &owner.queue, self.looks);
        debug_assert!(connected.is_ok());
    }

    fn detach(&self, index: usize) {
        self.started.gpu.disconnect(index);
    }

    fn take_away(&self, owner: &Claimant<EngineHost<P>>) -> bool {
        let retry = D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_DISCONNECTED_RETRY;
        // CAST: handles have the size of pointers.
        let queue = core::ptr::without_provenance_mut(owner.os_queue as usize);
        let doorbell = core::ptr::without_provenance_mut(owner.os as usize);
        let answer = self.started.dxgkrnl.disconnect_doorbell(self.irql, queue, doorbell, retry);
        // A doorbell that is being destroyed is not known to the OS any more, and user mode does not ring it. Of any
        // other, the same status is a refusal: its owner has the page.
        match answer {
            Ok(()) => true,
            Err(Error::Callback(ntstatus::STATUS_INVALID_PARAMETER)) => owner.closed.load(Ordering::Acquire),
            Err(_) => false,
        }
    }

    fn count_use(&self) -> u64 {
        self.started.gpu.count_use()
    }

    fn look(&self, owner: &Claimant<EngineHost<P>>) {
        end_watch(&self.started.gpu, &owner.queue, owner.key, Mutation::WatchesOn);
    }
}

/// The page of the doorbell with the number `key` is rotated, or connected: the queue is looked at once more, and its
/// write pointer is watched no longer, unless `left_out` is the mistake that is played.
fn end_watch<H: Host>(gpu: &Gpu<H>, queue: &Shared<Queue<H>>, key: u64, left_out: Mutation) {
    if gpu.mutation.is(left_out) {
        gpu.make_ready(queue);
    } else {
        gpu.stop_watching(queue, key);
    }
}

/// User mode says that there is work on `queue`. Must succeed.
///
/// In F1 nothing runs of a queue without a doorbell before the next connection, which looks at the queue; what was rung
/// while the doorbell led to the engine is found by its last look ([`crate::power`]). A doorbell may be connected while
/// the OS is on its way to F1, all the same: its queue is looked at.
pub fn notify_work<P: Platform>(_irql: &Passive, queue: &HwQueue<P>) {
    let started = &queue.counted.started;
    let is_in_f1 = started.gpu.host.power().is_in_f1(queue.engine.context.node);
    let is_connected = queue.engine.connected.load(Ordering::Acquire) != 0;
    let drops = is_in_f1 && (!is_connected || started.gpu.mutation.is(Mutation::DropsInF1));
    if drops && !started.gpu.mutation.is(Mutation::RunsInF1) {
        return;
    }
    started.gpu.make_ready(&queue.engine);
    let second = started.platform.clock_frequency();
    let announced = queue.habit.announced(started.platform.clock(), second);
    if announced && !started.settings.connect_notify {
        started.gpu.host.idle().ask(queue.engine.context.node, 0);
    }
}
