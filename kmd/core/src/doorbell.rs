//! Stage 3 of 8: doorbells, and the pool of physical ones.
//!
//! A doorbell object belongs to one queue for life. Connecting gives it a physical doorbell; in the dedicated model
//! those are few, and the least recently used one is taken from its queue when none is free. After
//! `DxgkCbDisconnectDoorbell` returned, user mode no longer has the page, and the physical doorbell is free. After
//! `DxgkDdiDisconnectDoorbell` returned, Dxgkrnl has *yet to* rotate the page and write RETRY: a ring in between still
//! reads CONNECTED. So such a physical doorbell is not reused until a later call about the same doorbell proves that
//! the rotation is over, and until then the engine goes on watching the queue's write pointer.
//!
//! Whatever connects, resumes or notifies compares the published write pointer with what was consumed, so no ring is
//! lost and a repeated ring runs nothing twice.
//!
//! Source: *User-mode work submission*; `DxgkDdiConnectDoorbell`, `DxgkDdiDisconnectDoorbell`,
//! `DxgkCbDisconnectDoorbell`.

use crate::adapter::{Counted, Started};
use crate::allocation::RingMemory;
use crate::handle::{Handle, Tag};
use crate::hw_queue::HwQueue;
use crate::irql::Passive;
use crate::platform::{self, Platform};
use crate::status::{Error, Result};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use gpu_engine::NoMemory;
use gpu_engine::host::Lock;
use gpu_engine::memory::Span;
use gpu_engine::mutation::Mutation;
use gpu_engine::queue::Binding;
use gpu_engine::shared::Shared;
use gpu_wire::GpuVa;
use gpu_wire::doorbell::{DOORBELL_SIZE, Model};
use gpu_wire::private::{DoorbellData, DoorbellReply};
use gpu_wire::ring::{self, Geometry};
use wddm_abi::{D3DDDI_DOORBELLSTATUS, ntstatus};

/// How long a connection asks for doorbells that the OS keeps, in units of 100 ns. TIMEOUT: half a second.
const PATIENCE: u64 = 5_000_000;
/// A pause between two looks for a physical doorbell, in units of 100 ns.
const PAUSE: u64 = 500;

/// A doorbell.
pub struct Doorbell<P: Platform> {
    /// Its queue.
    pub queue: Shared<HwQueue<P>>,
    /// The runtime's handle, which callbacks name.
    pub os: u64,
    /// Which physical doorbell it has, in the dedicated model.
    place: P::Lock<Option<usize>>,
    /// Counted in the census, and a reference to the adapter.
    pub counted: Counted<P>,
}

/// What a connect gives back.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    /// Kernel address of the physical doorbell's page.
    pub address: *mut u8,
    /// CONNECTED or CONNECTED_NOTIFY_KMD.
    pub status: D3DDDI_DOORBELLSTATUS,
}

/// A physical doorbell's use.
enum Use<P: Platform> {
    Free,
    /// Being taken or given; nobody else may.
    Changing,
    Connected {
        doorbell: Shared<Doorbell<P>>,
        /// Packets the queue had executed when it was last seen, and when that changed.
        packets: u64,
        stamp: u64,
    },
    /// The OS disconnected it, and nothing proves yet that user mode lost the page.
    Draining(Shared<Doorbell<P>>),
}

/// The physical doorbells of an adapter.
pub struct Pool<P: Platform> {
    pages: Span<'static>,
    uses: P::Lock<Vec<Use<P>>>,
    /// How often a physical doorbell got a new use. Wraps; only compared.
    changes: AtomicU64,
}

/// What [`Pool::pick`] decided.
enum Pick<P: Platform> {
    Free(usize),
    Take(usize, Shared<Doorbell<P>>),
}

impl<P: Platform> Pool<P> {
    /// A pool over `pages`, one physical doorbell each.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new(pages: Span<'static>) -> core::result::Result<Self, NoMemory> {
        let n = (pages.len() / u64::from(DOORBELL_SIZE)) as usize;
        let mut uses = Vec::new();
        uses.try_reserve_exact(n)?;
        uses.resize_with(n, || Use::Free);
        Ok(Self { pages, uses: P::Lock::new(uses), changes: AtomicU64::new(0) })
    }

    /// How many physical doorbells there are.
    pub fn len(&self) -> usize {
        self.uses.with(|uses| uses.len())
    }

    /// Returns whether there is no physical doorbell.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The page of physical doorbell `index`.
    pub fn page(&self, index: usize) -> Span<'static> {
        self.pages.part(index as u64 * u64::from(DOORBELL_SIZE), u64::from(DOORBELL_SIZE))
    }

    /// A free one, or the least recently used, now marked as changing.
    fn pick(&self, now: u64) -> Option<Pick<P>> {
        self.uses.with(|uses| {
            if let Some(index) = uses.iter().position(|u| matches!(u, Use::Free)) {
                uses[index] = Use::Changing;
                return Some(Pick::Free(index));
            }
            for u in uses.iter_mut() {
                if let Use::Connected { doorbell, packets, stamp } = u {
                    let seen = doorbell.queue.engine.packets.load(Ordering::Relaxed);
                    if seen != *packets {
                        (*packets, *stamp) = (seen, now);
                    }
                }
            }
            let oldest = uses
                .iter()
                .enumerate()
                .filter_map(|(i, u)| match u {
                    Use::Connected { stamp, .. } => Some((*stamp, i)),
                    // Nobody rings it; its rotation only has to be proved, which the callback does.
                    Use::Draining(_) => Some((0, i)),
                    Use::Free | Use::Changing => None,
                })
                .min()?
                .1;
            match core::mem::replace(&mut uses[oldest], Use::Changing) {
                Use::Connected { doorbell, .. } | Use::Draining(doorbell) => Some(Pick::Take(oldest, doorbell)),
                Use::Free | Use::Changing => None,
            }
        })
    }

    /// Stores the new use of physical doorbell `index`. Called by the thread that marked it as changing.
    fn set(&self, index: usize, new: Use<P>) {
        let old = self.uses.with(|uses| uses.get_mut(index).map(|u| core::mem::replace(u, new)));
        self.changes.fetch_add(1, Ordering::Relaxed);
        drop(old);
    }

    /// Gives physical doorbell `index` back to `doorbell`, which the OS keeps. Nothing has changed hands.
    fn put_back(&self, index: usize, doorbell: &Shared<Doorbell<P>>, stamp: u64) {
        let kept = Use::Connected { doorbell: doorbell.clone(), packets: 0, stamp };
        let old = self.uses.with(|uses| uses.get_mut(index).map(|u| core::mem::replace(u, kept)));
        drop(old);
    }

    /// Stores the new use of physical doorbell `index` if it is connected to `doorbell`, or draining from it. Returns
    /// `false`, and stores nothing, when another thread is taking it or has taken it.
    fn set_own(&self, index: usize, doorbell: &Shared<Doorbell<P>>, new: Use<P>) -> bool {
        let (owned, old) = self.uses.with(|uses| match uses.get_mut(index) {
            Some(u) => match u {
                Use::Connected { doorbell: owner, .. } | Use::Draining(owner) if Shared::ptr_eq(owner, doorbell) => {
                    (true, Some(core::mem::replace(u, new)))
                }
                _ => (false, Some(new)),
            },
            None => (false, Some(new)),
        });
        drop(old);
        owned
    }
}

impl<P: Platform> Doorbell<P> {
    /// Creates a doorbell for `queue`, without a physical one. `private` holds [`DoorbellData`] and receives
    /// [`DoorbellReply`].
    ///
    /// # Errors
    /// [`Error::InvalidParameter`]: no user-mode queue, a second doorbell, no control allocation (this GPU needs one),
    /// a ring that is no power of two or out of range, private data of another size than 16 bytes; [`Error::NoMemory`].
    pub fn create(
        irql: &Passive,
        queue: &Shared<HwQueue<P>>,
        os: u64,
        ring_memory: RingMemory,
        control_memory: Option<RingMemory>,
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
        if queue.has_doorbell.with(|has| core::mem::replace(has, true)) {
            return Err(Error::InvalidParameter);
        }
        let made = (|| {
            let counted = Counted::new(started.clone(), |c| &c.doorbells);
            if started.settings.doorbell_model == Model::Global {
                // Memory is reserved here, since connecting may not fail for want of it. The census counts this
                // doorbell already.
                started.gpu.reserve_global(started.census.doorbells.load(Ordering::Relaxed) as usize)?;
            }
            let doorbell = Self { queue: queue.clone(), os, place: P::Lock::new(None), counted };
            let doorbell = Shared::try_new(doorbell)?;
            let handle = Handle::create(doorbell.clone())?;
            let device = &queue.context.device;
            device.adopt(Tag::Doorbell, handle).inspect_err(|_| drop(handle.take::<Self>()))?;
            Ok::<_, Error>((handle, doorbell))
        })();
        let (handle, doorbell) = made.inspect_err(|_| {
            queue.has_doorbell.with(|has| *has = false);
        })?;
        queue.engine.bind(Some(binding));
        let reply = DoorbellReply {
            token: gpu_engine::gpu::token_of(queue.engine.slot),
            model: started.settings.doorbell_model.raw(),
            ring_size: geometry.size(),
        };
        if let Some(to) = private.get_mut(..reply.bytes().len()) {
            to.copy_from_slice(reply.bytes());
        }
        if started.gpu.mutation.is(Mutation::BindsAtCreate) {
            let _connection = doorbell.connect(irql, &doorbell);
        }
        Ok(handle)
    }

    /// Connects. `this` is the doorbell itself, counted.
    ///
    /// # Errors
    /// [`Error::DoorbellsExhausted`] when the OS keeps every physical doorbell, which its page does not provide for;
    /// [`Error::DeviceNotReady`] when the device is stopped or gone. A pool whose doorbells are all changing hands is
    /// no error.
    pub fn connect(&self, irql: &Passive, this: &Shared<Self>) -> Result<Connection> {
        let started = &self.counted.started;
        let queue = &self.queue.engine;
        let status = if started.settings.connect_notify {
            D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_CONNECTED_NOTIFY_KMD
        } else {
            D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_CONNECTED
        };
        let index = match started.settings.doorbell_model {
            Model::Global => {
                started.gpu.connect_global(queue)?;
                0
            }
            Model::Dedicated => {
                // Still its own: connected already, or drained and this call proves the rotation. It is marked as
                // changing until the engine has the queue, so that no other thread takes it in between.
                let own = self.place.with(|p| *p);
                let own = own.filter(|index| started.doorbells.set_own(*index, this, Use::Changing));
                let index = match own {
                    Some(index) => index,
                    None => {
                        let index = self.take_physical(irql, started)?;
                        self.place.with(|p| *p = Some(index));
                        index
                    }
                };
                started.gpu.doorbells.connect(index, queue);
                let (packets, stamp) = (queue.packets.load(Ordering::Relaxed), started.platform.clock());
                started.doorbells.set(index, Use::Connected { doorbell: this.clone(), packets, stamp });
                index
            }
        };
        if !started.gpu.mutation.is(Mutation::NoScanAtConnect) {
            // Rings that landed on the dummy page meanwhile: their work is found here.
            started.gpu.stop_scanning(queue);
        }
        let page =
            started.doorbells.page(if started.gpu.mutation.is(Mutation::SharesDoorbellPage) { 0 } else { index });
        Ok(Connection { address: page.as_ptr(), status })
    }

    /// Finds a physical doorbell without a queue, or takes one from another doorbell, and marks it as changing. While
    /// other threads are changing all of them it waits for one that has changed hands, without a lock, for as long as
    /// the device is there: the page of `DxgkDdiConnectDoorbell` has failures for a GPU that is lost or stopped alone,
    /// and user mode gives the queue up for one.
    ///
    /// # Errors
    /// [`Error::DeviceNotReady`] when the device is stopped or gone; [`Error::DoorbellsExhausted`] when the OS has
    /// refused to disconnect for [`PATIENCE`], while no physical doorbell changed hands.
    fn take_physical(&self, irql: &Passive, started: &Started<P>) -> Result<usize> {
        let pool = &started.doorbells;
        loop {
            let before = pool.changes.load(Ordering::Relaxed);
            let (mut taken, mut refused) = (None, false);
            let mut look = || {
                if started.is_ending.load(Ordering::Acquire) {
                    taken = Some(Err(Error::DeviceNotReady));
                    return true;
                }
                taken = match pool.pick(started.platform.clock()) {
                    Some(Pick::Free(index)) => Some(Ok(index)),
                    Some(Pick::Take(index, victim)) => {
                        let is_taken = take_from(irql, started, index, &victim);
                        refused |= !is_taken;
                        is_taken.then_some(Ok(index))
                    }
                    None => None,
                };
                taken.is_some()
            };
            platform::until(irql, &started.platform, Some(PATIENCE), PAUSE, &mut look);
            if let Some(taken) = taken {
                return taken;
            }
            if refused && pool.changes.load(Ordering::Relaxed) == before {
                return Err(Error::DoorbellsExhausted);
            }
        }
    }

    /// The OS disconnects; it rotates the page after this returned. Must succeed.
    pub fn disconnect(&self, _irql: &Passive, this: &Shared<Self>) {
        let started = &self.counted.started;
        match started.settings.doorbell_model {
            Model::Global => started.gpu.disconnect_global(&self.queue.engine),
            Model::Dedicated => {
                // A thread that is taking the physical doorbell at this moment disconnects it.
                let place = self.place.with(|p| *p);
                if let Some(index) = place.filter(|i| started.doorbells.set_own(*i, this, Use::Changing)) {
                    // Changing until the engine has let go: the queue that gets it next keeps it.
                    drop(started.gpu.doorbells.disconnect(index));
                    started.doorbells.set(index, Use::Draining(this.clone()));
                }
            }
        }
        started.gpu.scan(&self.queue.engine);
    }

    /// Destroys it. Dxgkrnl disconnected it before, and by calling this shows that the rotation is over.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`].
    pub fn destroy(irql: &Passive, handle: Handle) -> Result<()> {
        let doorbell = handle.take::<Self>()?;
        doorbell.queue.context.device.disown(handle);
        let started = &doorbell.counted.started;
        let engine = &doorbell.queue.engine;
        let mut give_back = || {
            let Some(index) = doorbell.place.with(|place| *place) else { return true };
            // Marked as changing, so that no other thread takes it before the engine has let go of the queue.
            let own = started.doorbells.set_own(index, &doorbell, Use::Changing);
            if own {
                drop(started.gpu.doorbells.disconnect(index));
                started.doorbells.set(index, Use::Free);
            }
            own
        };
        // Where another thread is taking it, that thread is in DxgkCbDisconnectDoorbell with this doorbell's handle,
        // which may mean nothing any more once this function has returned.
        // It is waited for however long it takes.
        platform::until(irql, &started.platform, None, PAUSE, &mut give_back);
        started.gpu.disconnect_global(engine);
        engine.bind(None);
        started.gpu.stop_scanning(engine);
        doorbell.queue.has_doorbell.with(|has| *has = false);
        Ok(())
    }
}

/// Takes the physical doorbell `index`, which is marked as changing, from `victim`. Returns `false` when the OS
/// refuses; then `victim` keeps it.
fn take_from<P: Platform>(irql: &Passive, started: &Started<P>, index: usize, victim: &Shared<Doorbell<P>>) -> bool {
    if !started.gpu.mutation.is(Mutation::ReusesDoorbellEarly) {
        let retry = D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_DISCONNECTED_RETRY;
        let queue = core::ptr::without_provenance_mut(victim.queue.os as usize);
        let doorbell = core::ptr::without_provenance_mut(victim.os as usize);
        match started.dxgkrnl.disconnect_doorbell(irql, queue, doorbell, retry) {
            // The OS does not know the doorbell any more: it is being destroyed, and user mode does not ring it.
            Ok(()) | Err(Error::Callback(ntstatus::STATUS_INVALID_PARAMETER)) => {}
            Err(_) => {
                started.doorbells.put_back(index, victim, started.platform.clock());
                return false;
            }
        }
    }
    // User mode lost the page: from here on its rings land elsewhere. What it published before is looked at.
    victim.place.with(|p| *p = p.filter(|its| *its != index));
    drop(started.gpu.doorbells.disconnect(index));
    if !started.gpu.mutation.is(Mutation::ReusesDoorbellEarly) {
        started.gpu.stop_scanning(&victim.queue.engine);
    }
    true
}

/// User mode says that there is work on `queue`. Must succeed.
pub fn notify_work<P: Platform>(_irql: &Passive, queue: &HwQueue<P>) {
    queue.counted.started.gpu.make_ready(&queue.engine);
}
