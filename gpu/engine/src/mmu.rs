//! Stage 5 of 8: memory as the packets of one stream see it, by GPU addresses.
//!
//! Operations, fetches and fences reach memory through [`Mmu`] and through nothing else. It borrows the engine's
//! lookaside buffer for one address space.

use crate::address_space::AddressSpace;
use crate::fault::Fault;
use crate::host::Host;
use crate::memory::{SharedWord, Span};
use crate::tlb::{Bus, Lack, MAP_COST, STEP, Tlb, View};
use crate::word::{Ordering, Word};
use gpu_wire::GpuVa;
use gpu_wire::packet::FaultKind;

/// What became of a store that the stream did not ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stored {
    Done,
    /// User mode took the page away.
    NotMapped,
    /// The host has no memory for a mapping now.
    NoMemory,
    /// The engine must look up before it maps more.
    Later,
}

/// An engine's lookaside buffer, for the addresses of one space.
pub(crate) struct Mmu<'a, H: Host> {
    pub tlb: &'a mut Tlb<H>,
    pub bus: Bus<'a, H>,
    pub space: &'a AddressSpace<H>,
}

impl<H: Host> Mmu<'_, H> {
    /// As [`Tlb::translate`].
    ///
    /// # Errors
    /// The fault of the access.
    #[inline]
    pub fn translate(&mut self, va: GpuVa, want: u64, write: bool) -> Result<View, Fault> {
        self.tlb.translate(&self.bus, self.space, va, want, write)
    }

    /// As [`Tlb::translate`], for a step of an operation: `None` where the step ends in front of the access, for one of
    /// three reasons. It has mapped something, and is long enough; it is too long to map more; the host has no memory
    /// for the mapping, which `lack` says. The next step translates anew, and finds what is mapped.
    ///
    /// # Errors
    /// The fault of the access.
    #[inline]
    pub fn translate_in_step(&mut self, va: GpuVa, want: u64, write: bool) -> Result<Option<View>, Fault> {
        let before = self.tlb.work;
        let view = self.translate(va, want, write);
        let Some(view) = self.in_step(view)? else { return Ok(None) };
        let is_over = self.tlb.work >= STEP && self.tlb.work - before >= MAP_COST;
        Ok(Some(view).filter(|_| !is_over))
    }

    /// What an access comes to in a step of an operation; `None`: the step ends in front of it.
    ///
    /// # Errors
    /// The fault of the access.
    #[inline]
    pub fn in_step<T>(&mut self, access: Result<T, Fault>) -> Result<Option<T>, Fault> {
        match (access, self.tlb.lack) {
            (Ok(found), _) => Ok(Some(found)),
            (Err(fault), None) => Err(fault),
            (Err(_), Some(Lack::Memory)) => Ok(None),
            (Err(_), Some(Lack::Look)) => {
                self.tlb.lack = None;
                Ok(None)
            }
        }
    }

    /// The bytes of a view, or `None` when it is stale: translate again.
    #[inline]
    pub fn span(&self, view: View) -> Option<Span<'_>> {
        self.tlb.span(view)
    }

    /// As [`Tlb::cached`].
    pub fn cached(&self, va: GpuVa, write: bool) -> Option<SharedWord<'_>> {
        self.tlb.cached(self.space.id().number, va, write)
    }

    /// The 64-bit word at `va`, which must be aligned.
    ///
    /// # Errors
    /// The fault of the access.
    #[inline]
    pub fn word(&mut self, va: GpuVa, write: bool) -> Result<SharedWord<'_>, Fault> {
        let view = self.translate(va, 8, write)?;
        self.span(view).and_then(|s| s.word(0)).ok_or(Fault::address(va, write))
    }

    /// Asks for the cache line of the word at `va`, which is read next, and does not wait for it.
    pub fn touch(&self, va: GpuVa) {
        if let Some(word) = self.cached(va, false) {
            core::hint::black_box(word.load(Ordering::Relaxed));
        }
    }

    /// Copies bytes from `va` on, as many as lie in one window, at least one; the count.
    ///
    /// # Errors
    /// The fault of the first byte.
    pub fn read_some(&mut self, va: GpuVa, to: &mut [u8]) -> Result<usize, Fault> {
        let view = self.translate(va, to.len() as u64, false)?;
        match self.span(view).map_or(0, |span| span.read(to)) {
            0 => Err(Fault::address(va, false)),
            n => Ok(n),
        }
    }

    /// Copies bytes out of the address space, across pages.
    ///
    /// # Errors
    /// The fault of the first byte that cannot be read.
    pub fn read(&mut self, mut va: GpuVa, mut to: &mut [u8]) -> Result<(), Fault> {
        while !to.is_empty() {
            let n = self.read_some(va, to)?;
            to = to.get_mut(n..).unwrap_or_default();
            va = GpuVa(va.0 + n as u64);
        }
        Ok(())
    }

    /// Copies bytes into the address space, across pages.
    ///
    /// # Errors
    /// The fault of the first byte that cannot be written.
    pub fn write(&mut self, mut va: GpuVa, mut from: &[u8]) -> Result<(), Fault> {
        while !from.is_empty() {
            let view = self.translate(va, from.len() as u64, true)?;
            let n = self.span(view).map_or(0, |span| span.write(from));
            if n == 0 {
                return Err(Fault::address(va, true));
            }
            from = from.get(n..).unwrap_or_default();
            va = GpuVa(va.0 + n as u64);
        }
        Ok(())
    }

    /// Stores the low half of `value`.
    ///
    /// # Errors
    /// The fault of the access.
    pub fn store_low(&mut self, va: GpuVa, value: u64) -> Result<(), Fault> {
        let view = self.translate(va, 4, true)?;
        // CAST: the low half is what is asked for.
        match self.span(view).map(|span| span.store_u32(0, value as u32)) {
            Some(true) => Ok(()),
            _ => Err(Fault::address(va, true)),
        }
    }

    /// The 64-bit word at `va`, which the stream itself does not ask for: a failure is no failure of the stream's.
    ///
    /// # Errors
    /// Why there is no word.
    pub fn word_aside(&mut self, va: GpuVa, write: bool) -> Result<SharedWord<'_>, Stored> {
        let before = self.tlb.lack.take();
        let view = self.translate(va, 8, write);
        let lack = core::mem::replace(&mut self.tlb.lack, before);
        let view = view.map_err(|_| match lack {
            None => Stored::NotMapped,
            Some(Lack::Memory) => Stored::NoMemory,
            Some(Lack::Look) => Stored::Later,
        })?;
        self.span(view).and_then(|span| span.word(0)).ok_or(Stored::NotMapped)
    }

    /// Has the page of `va` mapped for a read that comes soon, if there is one.
    ///
    /// # Errors
    /// The engine must look up before it maps more; `lack` says so.
    pub fn map_ahead(&mut self, va: GpuVa) -> Result<(), Fault> {
        match self.translate(va, 8, false) {
            Err(fault) if self.tlb.lack == Some(Lack::Look) => Err(fault),
            _ => {
                self.tlb.lack = None;
                Ok(())
            }
        }
    }

    /// Stores a word of the queue's control page.
    pub fn store_aside(&mut self, va: GpuVa, value: u64) -> Stored {
        match self.word_aside(va, true) {
            Err(why) => why,
            Ok(word) => {
                word.store(value, Ordering::Release);
                Stored::Done
            }
        }
    }
}

/// `address` as a GPU address that is a multiple of `align`.
///
/// # Errors
/// [`FaultKind::BadOperand`].
pub(crate) fn aligned(address: u64, align: u64) -> Result<GpuVa, Fault> {
    let va = GpuVa(address);
    if va.is_aligned(align) && va.is_canonical() { Ok(va) } else { Err(FaultKind::BadOperand.into()) }
}
