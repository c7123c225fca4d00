//! Paging buffers.

use wddm_abi::ntstatus::{
    STATUS_GRAPHICS_ALLOCATION_BUSY, STATUS_GRAPHICS_INSUFFICIENT_DMA_BUFFER, STATUS_SUCCESS, STATUS_UNSUCCESSFUL,
};
use wddm_abi::{
    DXGK_BUILDPAGINGBUFFER_OPERATION, DXGK_PAGETABLEUPDATEMODE, DXGK_PTE, DXGKARG_BUILDPAGINGBUFFER, HANDLE, NTSTATUS,
};

use nt_model::Mdl;

use super::gpu::{self, opcode};
use super::{Toy, array};

/// Room in a paging buffer, in words.
struct Writer {
    at: *mut u64,
    room: usize,
}

impl Writer {
    fn of(arguments: &DXGKARG_BUILDPAGINGBUFFER) -> Self {
        Self { at: arguments.pDmaBuffer.cast(), room: arguments.DmaSize as usize / 8 }
    }

    /// Writes everything, or nothing.
    fn put(&mut self, words: &[u64]) -> bool {
        if words.len() > self.room {
            return false;
        }
        for word in words {
            // SAFETY: there is room, by Dxgkrnl's word.
            unsafe { self.at.write_unaligned(*word) };
            self.at = self.at.wrapping_add(1);
        }
        self.room -= words.len();
        true
    }
}

/// DxgkDdiBuildPagingBuffer.
pub fn build(toy: &Toy, arguments: &mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
    use DXGK_BUILDPAGINGBUFFER_OPERATION as Operation;
    let immediate = arguments.pDmaBuffer.is_null();
    if !immediate {
        match toy.options.mutant {
            "paging-status" => return STATUS_UNSUCCESSFUL,
            "paging-busy" => return STATUS_GRAPHICS_ALLOCATION_BUSY,
            "paging-progress" => return STATUS_GRAPHICS_INSUFFICIENT_DMA_BUFFER,
            "paging-overrun" => {
                let end: *mut u8 = arguments.pDmaBuffer.cast();
                // SAFETY: none: this mutant writes behind the buffer, where the model watches.
                unsafe { end.wrapping_add(arguments.DmaSize as usize).write(0) };
            }
            "paging-private" => {
                let end: *mut u8 = arguments.pDmaBufferPrivateData.cast();
                // SAFETY: as above.
                unsafe { end.wrapping_add(arguments.DmaBufferPrivateDataSize as usize).write(0) };
            }
            _ => (),
        }
    }
    let mut writer = Writer::of(arguments);
    let fits = match arguments.Operation {
        Operation::DXGK_OPERATION_UPDATE_PAGE_TABLE => return update(toy, arguments),
        Operation::DXGK_OPERATION_FLUSH_TLB => writer.put(&[opcode::FLUSH]),
        Operation::DXGK_OPERATION_VIRTUAL_FILL => {
            let op = *arguments.FillVirtual();
            toy.count("fill");
            writer.put(&[opcode::FILL, op.DestinationVirtualAddress, op.FillSizeInBytes, op.FillPattern.into()])
        }
        // Memory that lost its content.
        Operation::DXGK_OPERATION_TRANSFER if arguments.Transfer().TransferSize == 0 => {
            toy.count("lost");
            !toy.is("paging-lost") || writer.put(&[opcode::FLUSH])
        }
        Operation::DXGK_OPERATION_VIRTUAL_TRANSFER if arguments.TransferVirtual().TransferSizeInBytes == 0 => {
            toy.count("lost");
            !toy.is("paging-lost") || writer.put(&[opcode::FLUSH])
        }
        Operation::DXGK_OPERATION_VIRTUAL_TRANSFER => {
            let op = *arguments.TransferVirtual();
            toy.count("transfer");
            writer.put(&[opcode::COPY, op.SourceVirtualAddress, op.DestinationVirtualAddress, op.TransferSizeInBytes])
        }
        Operation::DXGK_OPERATION_COPY_PAGE_TABLE_ENTRIES if toy.is("paging-copy") => true,
        Operation::DXGK_OPERATION_COPY_PAGE_TABLE_ENTRIES => {
            let op = *arguments.CopyPageTableEntries();
            toy.count("copy entries");
            let mut words = Vec::new();
            for range in array(op.pRanges.cast_const(), op.NumRanges as usize) {
                let entry = |table: u64, index: u32| table + u64::from(index) * 8;
                let source = entry(range.SrcPageTableAddress, range.SrcStartPteIndex);
                let destination = entry(range.DstPageTableAddress, range.DstStartPteIndex);
                words.extend([opcode::COPY, source, destination, u64::from(range.NumPageTableEntries) * 8]);
            }
            words.push(opcode::FLUSH);
            writer.put(&words)
        }
        Operation::DXGK_OPERATION_SIGNAL_MONITORED_FENCE => {
            let op = *arguments.SignalMonitoredFence();
            writer.put(&[opcode::WRITE, op.MonitoredFenceGpuVa, op.MonitoredFenceValue])
        }
        Operation::DXGK_OPERATION_MAP_APERTURE_SEGMENT => {
            let map = *arguments.MapApertureSegment();
            if !aperture(toy, ("map aperture", "map buffer"), map.hAllocation, map.NumberOfPages) {
                return STATUS_UNSUCCESSFUL;
            }
            true
        }
        Operation::DXGK_OPERATION_UNMAP_APERTURE_SEGMENT => {
            let unmap = *arguments.UnmapApertureSegment();
            if !aperture(toy, ("unmap aperture", "unmap buffer"), unmap.hAllocation, unmap.NumberOfPages) {
                return STATUS_UNSUCCESSFUL;
            }
            true
        }
        Operation::DXGK_OPERATION_NOTIFY_RESIDENCY => {
            toy.count("notify residency");
            true
        }
        _ => true,
    };
    if !fits {
        return STATUS_GRAPHICS_INSUFFICIENT_DMA_BUFFER;
    }
    arguments.pDmaBuffer = writer.at.cast();
    STATUS_SUCCESS
}

/// Counts a mapping of an aperture, or its end: by one name for an allocation, by another for a DMA buffer, whose
/// handle is NULL. False: the handle names neither, or this is the mutant that takes it for an allocation's.
fn aperture(toy: &Toy, (of_allocation, of_buffer): (&'static str, &'static str), handle: HANDLE, pages: usize) -> bool {
    if handle.is_null() && !toy.is("paging-status-aperture") {
        toy.count(of_buffer);
        return pages == 1;
    }
    toy.count(of_allocation);
    toy.state().allocations.get(&super::number(handle)).is_some_and(|size| size.div_ceil(4096) == pages as u64)
}

/// An entry as the GPU has it: valid, writable, segment, address; or the zero page. `shift`: bits below what the entry
/// counts addresses in.
fn entry(pte: &DXGK_PTE, shift: u32) -> u64 {
    if pte.Zero() {
        return gpu::ZERO;
    }
    if !pte.Valid() {
        return 0;
    }
    let write = if pte.ReadOnly() { 0 } else { gpu::WRITE };
    let coherent = if pte.CacheCoherent() { gpu::COHERENT } else { 0 };
    gpu::VALID | write | coherent | pte.Segment() << gpu::SEGMENT_SHIFT | pte.PageAddress() << shift
}

/// What some mutants do with the pages that entries name: they map them by an MDL of their own, and not as they are.
fn map_wrongly(toy: &Toy, entries: &[DXGK_PTE], of_allocation: bool) {
    let system = |entry: &&DXGK_PTE| entry.Valid() && entry.Segment() == 0;
    if toy.is("paging-evicted") {
        let entry = entries.iter().find(|entry| of_allocation && system(entry) && !entry.ReadOnly());
        let Some(entry) = entry else { return };
        let old = toy.state().kept.take();
        old.into_iter().for_each(let_go);
        let kept = keep(if toy.options.pte_bytes { entry.PageAddress() >> 12 } else { entry.PageAddress() });
        toy.state().kept = kept;
        return;
    }
    let wanted = |entry: &&DXGK_PTE| match toy.options.mutant {
        "map-cache" => of_allocation,
        "map-write" => entry.ReadOnly() && !of_allocation,
        "map-unlocked" => of_allocation,
        _ => false,
    };
    let Some(entry) = entries.iter().filter(system).find(wanted) else { return };
    let frame = if toy.options.pte_bytes { entry.PageAddress() >> 12 } else { entry.PageAddress() };
    if toy.is("map-unlocked") {
        toy.state().last_frame = frame;
    } else {
        map(frame);
    }
}

/// Maps a page frame as cached memory, for writing, and lets go again.
pub fn map(frame: u64) {
    nt_model::Machine::with_current(|machine| {
        let Some(machine) = machine else { return };
        let Some(mdl) = machine.allocate_mdl(0, 4096) else { return };
        mdl.set_frames(&[frame]);
        let flags = &mdl.header().flags;
        flags.fetch_or(nt_model::records::MDL_PAGES_LOCKED, std::sync::atomic::Ordering::Relaxed);
        if let Some(address) = machine.map_locked_pages(mdl, &nt_model::memory::MapRequest::default()) {
            machine.unmap_locked_pages(address, mdl);
        }
        flags.fetch_and(!nt_model::records::MDL_PAGES_LOCKED, std::sync::atomic::Ordering::Relaxed);
        machine.free_mdl(mdl);
    });
}

/// Maps a page frame as its pages are mapped, and keeps it: the mapping, by address and MDL.
fn keep(frame: u64) -> Option<(usize, Mdl)> {
    nt_model::Machine::with_current(|machine| {
        let machine = machine?;
        let (object, index) = machine.page_of_frame(frame)?;
        let mdl = machine.allocate_mdl(0, 4096)?;
        mdl.set_frames(&[frame]);
        mdl.header().flags.fetch_or(nt_model::records::MDL_PAGES_LOCKED, std::sync::atomic::Ordering::Relaxed);
        let request = nt_model::memory::MapRequest { cache: object.cache_of(index), ..Default::default() };
        machine.map_locked_pages(mdl, &request).map(|address| (address, mdl))
    })
}

/// Lets go of what [`keep`] has mapped.
pub fn let_go((address, mdl): (usize, Mdl)) {
    nt_model::Machine::with_current(|machine| {
        let Some(machine) = machine else { return };
        machine.unmap_locked_pages(address, mdl);
        mdl.header().flags.fetch_and(!nt_model::records::MDL_PAGES_LOCKED, std::sync::atomic::Ordering::Relaxed);
        machine.free_mdl(mdl);
    });
}

/// What some mutants do with a paging buffer that comes with an update by the CPU.
fn use_buffer(toy: &Toy, arguments: &mut DXGKARG_BUILDPAGINGBUFFER) {
    match toy.options.mutant {
        "paging-immediate-written" => {
            // The engine stores a word, and tells of nothing.
            Writer::of(arguments).put(&[opcode::FLUSH]);
        }
        "paging-immediate-private" => {
            let private: *mut u8 = arguments.pDmaBufferPrivateData.cast();
            // SAFETY: private data, of a size other than 0 by Dxgkrnl's word.
            unsafe { private.write(1) };
        }
        "paging-immediate-advanced" => arguments.pDmaBuffer = arguments.pDmaBuffer.wrapping_byte_add(8),
        "paging-immediate-size" => arguments.DmaSize -= 8,
        _ => (),
    }
}

fn update(toy: &Toy, arguments: &mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
    let op = *arguments.UpdatePageTable();
    let count = op.NumPageTableEntries as usize;
    let repeat = op.Flags.Repeat();
    let source = array(op.pPageTableEntries.cast_const(), if repeat { 1 } else { count });
    let shift = if toy.options.pte_bytes { 0 } else { 12 };
    map_wrongly(toy, source, !op.hAllocation.is_null());
    let value = |index: usize| entry(&source[if repeat { 0 } else { index }], shift);
    if op.UpdateMode == DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_CPU_VIRTUAL {
        if toy.is("paging-immediate") && arguments.pDmaBuffer.is_null() {
            return STATUS_GRAPHICS_INSUFFICIENT_DMA_BUFFER;
        }
        if toy.is("paging-anew") && toy.counted("reset adapter") + toy.counted("sleep") != 0 {
            return STATUS_SUCCESS;
        }
        let context = super::number(arguments.hSystemContext);
        toy.count(if context == 0 { "update without context" } else { "update with context" });
        if context != 0 && !toy.state().contexts.contains_key(&context) {
            toy.error(format!("update on unknown context {context:#x}"));
        }
        let table: *mut u64 = op.PageTableAddress.CpuVirtual().cast();
        // The mutant knows tables that begin empty alone.
        let is_empty = toy.is("int-system-fault-initial") && op.Flags.InitialUpdate();
        for index in 0..count {
            let value = if is_empty { 0 } else { value(index) };
            // SAFETY: the table is mapped there, and the indices are its.
            unsafe { table.wrapping_add(op.StartIndex as usize + index).write_volatile(value) };
        }
        if !arguments.pDmaBuffer.is_null() {
            use_buffer(toy, arguments);
        }
        return STATUS_SUCCESS;
    }
    let (segment, address) = if op.UpdateMode == DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_GPU_VIRTUAL {
        (gpu::BY_ADDRESS, op.PageTableAddress.GpuVirtual())
    } else {
        let place = op.PageTableAddress.GpuPhysical();
        (u64::from(place.SegmentId), place.SegmentOffset)
    };
    let mut writer = Writer::of(arguments);
    // Entries that earlier buffers took.
    let mut done = arguments.MultipassOffset as usize;
    let mut status = STATUS_SUCCESS;
    while done < count {
        let head = 5;
        if writer.room <= head {
            status = STATUS_GRAPHICS_INSUFFICIENT_DMA_BUFFER;
            break;
        }
        let part = if repeat { count - done } else { (writer.room - head).min(count - done) };
        let values: Vec<_> = if repeat { vec![value(0)] } else { (done..done + part).map(value).collect() };
        let first = u64::from(op.StartIndex) + done as u64;
        let code = if repeat { opcode::REPEAT } else { opcode::ENTRIES };
        if !writer.put(&[code, segment, address, first, part as u64]) || !writer.put(&values) {
            status = STATUS_GRAPHICS_INSUFFICIENT_DMA_BUFFER;
            break;
        }
        done += part;
    }
    arguments.MultipassOffset = done as u32;
    arguments.pDmaBuffer = writer.at.cast();
    status
}
