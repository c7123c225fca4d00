//! What is done with the started adapter: from its caps to the memory that one paging buffer has changed.
//!
//! The stand-in knows nothing of the driver's formats. Page tables, and what is in a paging buffer, are the driver's
//! (`DxgkDdiBuildPagingBuffer`); only what memory must hold afterwards is known here.
//!
//! Source: DDI pages of the functions that are called; articles *System paging process*, *GPU virtual memory in WDDM
//! 2.0*.

use crate::callbacks;
use crate::driver;
use crate::imports;
use crate::log::report;
use crate::memory::Memory;
use crate::nt::{self, PAGE};
use core::sync::atomic::Ordering;
use wddm_abi::{
    D3DGPU_PHYSICAL_ADDRESS, DXGK_BUILDPAGINGBUFFER_OPERATION, DXGK_DRIVERCAPS, DXGK_GPUMMUCAPS, DXGK_NODEMETADATA,
    DXGK_PAGE_TABLE_LEVEL_DESC, DXGK_PAGETABLEUPDATEMODE, DXGK_PTE, DXGK_QUERYADAPTERINFOTYPE, DXGK_QUERYSEGMENTIN4,
    DXGK_QUERYSEGMENTOUT4, DXGK_SEGMENTDESCRIPTOR4, DXGKARG_BUILDPAGINGBUFFER, DXGKARG_CREATECONTEXT,
    DXGKARG_CREATEDEVICE, DXGKARG_CREATEPROCESS, DXGKARG_GETROOTPAGETABLESIZE, DXGKARG_SETROOTPAGETABLE,
    DXGKARG_SUBMITCOMMANDVIRTUAL, HANDLE, Plain,
};

/// A step did not hold; the report has it.
struct Failed;

/// A step: whether it held, and what was seen, into the report. Ends the run where it did not hold.
macro_rules! step {
    ($name:literal, $held:expr, $($seen:tt)*) => {{
        let held: bool = $held;
        report!("step\t{}\t{}\t{}", $name, crate::dxgkrnl::verdict(held), format_args!($($seen)*));
        if !held {
            return Err(Failed);
        }
    }};
}

/// Most levels of page tables that there is room for.
const LEVELS: usize = 6;
/// Pages of the paging buffer.
const BUFFER_PAGES: usize = 16;
/// Pages that the paging process sees: the paging buffer, one that is filled, one that is copied to, one that a fence
/// is in.
const SEEN: usize = BUFFER_PAGES + 3;
/// Pages of the block, by index: the tables of two processes, a table for each level; then what the GPU sees.
const SYSTEM_TABLES: usize = 0;
const OTHER_TABLES: usize = LEVELS;
const FIRST_SEEN: usize = 2 * LEVELS;
const FILLED: usize = FIRST_SEEN + BUFFER_PAGES;
const COPIED: usize = FILLED + 1;
const FENCE: usize = FILLED + 2;
const PAGES: usize = FIRST_SEEN + SEEN;

/// Where the paging process sees its pages: high enough that every level has an index of its own.
const BASE: u64 = 0x1234_5678_0000;
/// What a page is filled with, and what a fence is signaled to.
const PATTERN: u32 = 0x5EC0_7D01;
const VALUE: u64 = 0x2022_0411_DEAD_0001;
/// What pages hold before.
const BEFORE: u64 = 0xBEBE_BEBE_BEBE_BEBE;
/// `SubmissionFenceId` of the one packet: not a small number.
const FENCE_ID: u32 = 0x101;
/// Time for the driver to complete it; by condition, so that a loaded machine is no failure.
const PATIENCE: u32 = 120_000;

/// What the driver said of itself.
struct Caps {
    nodes: u32,
    paging_node: u32,
    mode: DXGK_PAGETABLEUPDATEMODE,
    levels: usize,
    /// Bits of the index, per level from the leaves on.
    bits: [u32; LEVELS],
    private: u32,
}

/// The thread: the whole run, and a line that says that it is over.
pub fn run() {
    let held = play().is_ok();
    report!("run\t{}", crate::dxgkrnl::verdict(held));
}

fn play() -> Result<(), Failed> {
    let caps = caps()?;
    let memory = Memory::new(PAGES).ok_or(Failed)?;
    for page in FIRST_SEEN..PAGES {
        memory.fill(page, BEFORE);
    }
    let system = process("DxgkDdiCreateProcess", true)?;
    let device = device(system)?;
    tables_by_processor(&caps, &memory, system)?;
    let context = context(&caps, device)?;
    root(&caps, &memory, context)?;
    let other = process("second process", false)?;
    let (used, private) = build(&caps, &memory, context, other)?;
    submit(&caps, context, used, private)?;
    changed(&caps, &memory)?;
    take_down(context, device, [other, system])
}

fn caps() -> Result<Caps, Failed> {
    use DXGK_QUERYADAPTERINFOTYPE as Type;
    let (status, found) = driver::query_record(Type::DXGKQAITYPE_DRIVERCAPS, &mut [], DXGK_DRIVERCAPS::zeroed());
    let nodes = found.GpuEngineTopology.NbAsymetricProcessingNodes;
    let paging_node = found.MemoryManagementCaps.PagingNode;
    let gpu_mmu = found.MemoryManagementCaps.GpuMmuSupported();
    let version = found.WDDMVersion.0;
    step!(
        "DRIVERCAPS",
        status.is_success() && gpu_mmu && paging_node < nodes,
        "{status:?}, WDDM {version:#x}, {nodes} nodes, paging on node {paging_node}"
    );
    for node in 0..nodes {
        let mut metadata = DXGK_NODEMETADATA::zeroed();
        let status = driver::node_metadata(node, &mut metadata);
        let kind = metadata.EngineType;
        step!("node metadata", status.is_success(), "node {node}: {status:?}, {kind:?}");
    }
    let private = segments()?;
    let (status, mmu) = driver::query_record(Type::DXGKQAITYPE_GPUMMUCAPS, &mut [], DXGK_GPUMMUCAPS::zeroed());
    // CAST: a small number.
    let levels = mmu.PageTableLevelCount as usize;
    let mode = mmu.PageTableUpdateMode;
    step!(
        "GPUMMUCAPS",
        status.is_success() && (2..=LEVELS).contains(&levels),
        "{status:?}, {levels} levels, {} bits, {mode:?}",
        mmu.VirtualAddressBitCount
    );
    let mut bits = [0; LEVELS];
    for (level, bits) in (0u32..).zip(bits.iter_mut().take(levels)) {
        let description = DXGK_PAGE_TABLE_LEVEL_DESC::zeroed();
        let kind = Type::DXGKQAITYPE_PAGETABLELEVELDESC;
        let (status, found) = driver::query_record(kind, &mut level.to_le_bytes(), description);
        *bits = found.PageTableIndexBitCount;
        // CAST: a page is 4096 bytes. Tables of this run are a page each, in system memory.
        let held = status.is_success()
            && found.PageTableSizeInBytes == PAGE as u32
            && found.PagingProcessPageTableSegmentId == 0
            && 1 << *bits <= PAGE / size_of::<u64>();
        let size = found.PageTableSizeInBytes;
        step!("page-table levels", held, "level {level}: {status:?}, {bits} bits, {size} bytes");
    }
    Ok(Caps { nodes, paging_node, mode, levels, bits, private })
}

/// `DXGKQAITYPE_QUERYSEGMENT4`, asked twice. Returns the bytes of private data of a paging buffer.
fn segments() -> Result<u32, Failed> {
    const MOST: usize = 8;
    let kind = DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_QUERYSEGMENT4;
    let mut input = DXGK_QUERYSEGMENTIN4::zeroed();
    let (first, mut out) = driver::query_record(kind, input.as_bytes_mut(), DXGK_QUERYSEGMENTOUT4::zeroed());
    let mut descriptors = [DXGK_SEGMENTDESCRIPTOR4::zeroed(); MOST];
    out.pSegmentDescriptor = descriptors.as_mut_ptr().cast();
    out.SegmentDescriptorStride = size_of::<DXGK_SEGMENTDESCRIPTOR4>();
    // CAST: 8.
    let fits = (1..=MOST as u32).contains(&out.NbSegment);
    let (status, out) = if fits { driver::query_record(kind, input.as_bytes_mut(), out) } else { (first, out) };
    // CAST: a page is 4096 bytes.
    let enough = out.PagingBufferSize != 0 && out.PagingBufferPrivateDataSize <= PAGE as u32;
    step!(
        "QUERYSEGMENT4",
        fits && status.is_success() && enough,
        "{status:?}, {} segments, paging buffers of {} bytes in segment {}",
        out.NbSegment,
        out.PagingBufferSize,
        out.PagingBufferSegmentId
    );
    Ok(out.PagingBufferPrivateDataSize)
}

/// A handle of the stand-in's, which a driver keeps and hands back: any number that is no address.
fn handle(number: usize) -> HANDLE {
    core::ptr::without_provenance_mut(number)
}

fn process(name: &'static str, is_system: bool) -> Result<HANDLE, Failed> {
    let mut args = DXGKARG_CREATEPROCESS::zeroed();
    args.hDxgkProcess = handle(if is_system { 0x1001 } else { 0x1002 });
    args.Flags.set_SystemProcess(is_system);
    let status = driver::create_process(&mut args);
    let held = status.is_success() && !args.hKmdProcess.is_null();
    report!("step\t{name}\t{}\t{status:?}", crate::dxgkrnl::verdict(held));
    if held { Ok(args.hKmdProcess) } else { Err(Failed) }
}

fn device(process: HANDLE) -> Result<HANDLE, Failed> {
    let mut args = DXGKARG_CREATEDEVICE::zeroed();
    args.hDevice = handle(0x2001);
    args.Flags_mut().set_SystemDevice(true);
    args.hKmdProcess = process;
    let status = driver::create_device(&mut args);
    step!("DxgkDdiCreateDevice", status.is_success() && args.hDevice != handle(0x2001), "system device, {status:?}");
    Ok(args.hDevice)
}

/// An entry for a page of system memory; `is_leaf`: of what the GPU sees, otherwise of a table.
fn entry(frame: u64, is_leaf: bool) -> DXGK_PTE {
    let mut entry = DXGK_PTE::zeroed();
    entry.set_Valid(true);
    if is_leaf {
        entry.set_PageAddress(frame)
    } else {
        entry.set_PageTableAddress(frame)
    }
    entry
}

/// A range of entries of one table.
struct Update<'a> {
    level: usize,
    /// The table's page in the block.
    table: usize,
    first: u64,
    /// The entries, or one that is repeated.
    entries: &'a mut [DXGK_PTE],
    count: u32,
    initial: bool,
}

impl Caps {
    /// The index in the table of a level that leads to [`BASE`].
    fn index(&self, level: usize) -> u64 {
        let below: u32 = self.bits[..level].iter().sum();
        (BASE / PAGE as u64) >> below & ((1 << self.bits[level]) - 1)
    }

    /// Calls `f` for the updates that make the tables of a process, which begin at page `tables` of the block: every
    /// table is made invalid, then the pages are entered, and each table in the one above it.
    fn updates(
        &self,
        memory: &Memory,
        tables: usize,
        mut f: impl FnMut(Update<'_>) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        for level in 0..self.levels {
            let (mut invalid, count) = ([DXGK_PTE::zeroed()], 1 << self.bits[level]);
            f(Update { level, table: tables + level, first: 0, entries: &mut invalid, count, initial: true })?;
        }
        let mut leaves: [DXGK_PTE; SEEN] = core::array::from_fn(|page| entry(memory.frame(FIRST_SEEN + page), true));
        let first = self.index(0);
        // CAST: a few pages.
        f(Update { level: 0, table: tables, first, entries: &mut leaves, count: SEEN as u32, initial: false })?;
        for level in 1..self.levels {
            let mut parent = [entry(memory.frame(tables + level - 1), false)];
            let first = self.index(level);
            f(Update { level, table: tables + level, first, entries: &mut parent, count: 1, initial: false })?;
        }
        Ok(())
    }
}

/// The operation that makes an update, in the way that `mode` says.
fn operation(
    memory: &Memory,
    update: &mut Update<'_>,
    process: HANDLE,
    mode: DXGK_PAGETABLEUPDATEMODE,
) -> DXGKARG_BUILDPAGINGBUFFER {
    let mut args = DXGKARG_BUILDPAGINGBUFFER::zeroed();
    args.Operation = DXGK_BUILDPAGINGBUFFER_OPERATION::DXGK_OPERATION_UPDATE_PAGE_TABLE;
    let op = args.UpdatePageTable_mut();
    // CAST: levels and indices are small.
    (op.PageTableLevel, op.StartIndex) = (update.level as u32, update.first as u32);
    op.NumPageTableEntries = update.count;
    op.pPageTableEntries = update.entries.as_mut_ptr();
    op.Flags.set_Repeat(update.entries.len() == 1 && update.count != 1);
    op.Flags.set_InitialUpdate(update.initial);
    op.hProcess = process;
    op.UpdateMode = mode;
    op.FirstPteVirtualAddress = if update.initial { 0 } else { BASE };
    match mode {
        DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_CPU_VIRTUAL => {
            op.PageTableAddress.set_CpuVirtual(memory.address(update.table));
        }
        _ => op.PageTableAddress.set_GpuPhysical(physical(memory, update.table)),
    }
    args
}

/// The GPU's physical address of a page of the block: segment 0 is system memory.
fn physical(memory: &Memory, page: usize) -> D3DGPU_PHYSICAL_ADDRESS {
    let mut address = D3DGPU_PHYSICAL_ADDRESS::zeroed();
    address.SegmentOffset = memory.frame(page) * PAGE as u64;
    address
}

/// The paging process's own tables: the driver writes them by the processor, without a paging buffer.
fn tables_by_processor(caps: &Caps, memory: &Memory, process: HANDLE) -> Result<(), Failed> {
    let mut calls = 0;
    let mode = DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_CPU_VIRTUAL;
    let done = caps.updates(memory, SYSTEM_TABLES, |mut update| {
        calls += 1;
        let mut args = operation(memory, &mut update, process, mode);
        if driver::build_paging_buffer(&mut args).is_success() { Ok(()) } else { Err(Failed) }
    });
    // What the entries look like is the driver's; that there are as many as were asked for is not.
    let entered = |level: usize| (0..PAGE / 8).filter(|at| word(memory, SYSTEM_TABLES + level, *at) != 0).count();
    let held = done.is_ok()
        && entered(0) == SEEN
        && (1..caps.levels).all(|level| entered(level) == 1)
        // CAST: an index of a table.
        && (0..caps.levels).all(|level| word(memory, SYSTEM_TABLES + level, caps.index(level) as usize) != 0);
    step!("page tables", held, "DxgkDdiBuildPagingBuffer, CPU_VIRTUAL: {calls} calls, {} levels", caps.levels);
    Ok(())
}

fn word(memory: &Memory, page: usize, index: usize) -> u64 {
    memory.word(page, index).load(Ordering::Acquire)
}

fn context(caps: &Caps, device: HANDLE) -> Result<HANDLE, Failed> {
    let mut args = DXGKARG_CREATECONTEXT::zeroed();
    args.hContext = handle(0x3001);
    args.NodeOrdinal = caps.paging_node;
    args.EngineAffinity = 1;
    args.Flags.set_SystemContext(true);
    let status = driver::create_context(device, &mut args);
    let held = status.is_success() && args.hContext != handle(0x3001);
    step!("DxgkDdiCreateContext", held, "system context on node {} of {}, {status:?}", caps.paging_node, caps.nodes);
    Ok(args.hContext)
}

fn root(caps: &Caps, memory: &Memory, context: HANDLE) -> Result<(), Failed> {
    let mut size = DXGKARG_GETROOTPAGETABLESIZE::zeroed();
    size.NumberOfPte = 1 << caps.bits[caps.levels - 1];
    let bytes = driver::root_page_table_size(&mut size);
    let mut args = DXGKARG_SETROOTPAGETABLE::zeroed();
    args.hContext = context;
    args.Address = physical(memory, SYSTEM_TABLES + caps.levels - 1);
    args.NumEntries = size.NumberOfPte;
    let held = bytes == PAGE && driver::set_root_page_table(&args);
    step!("DxgkDdiSetRootPageTable", held, "{} entries, {bytes} bytes", size.NumberOfPte);
    Ok(())
}

/// Where the paging process sees a page of the block.
fn va(page: usize) -> u64 {
    BASE + ((page - FIRST_SEEN) * PAGE) as u64
}

/// One paging buffer of the driver's making: the page tables of another process, a fill, a transfer, the signal of a
/// monitored fence, a flush. Returns the bytes of it and of its private data.
fn build(caps: &Caps, memory: &Memory, context: HANDLE, other: HANDLE) -> Result<(usize, usize), Failed> {
    use DXGK_BUILDPAGINGBUFFER_OPERATION as O;
    let size = BUFFER_PAGES * PAGE;
    let mut private = [0u8; PAGE];
    let (mut used, mut used_private, mut count) = (0, 0, 0);
    let mut add = |args: &mut DXGKARG_BUILDPAGINGBUFFER| {
        // CAST: within a small buffer.
        let start = memory.address(FIRST_SEEN).wrapping_byte_add(used);
        let private_start = private.as_mut_ptr().wrapping_add(used_private).cast();
        (args.pDmaBuffer, args.DmaSize) = (start, (size - used) as u32);
        (args.pDmaBufferPrivateData, args.DmaBufferPrivateDataSize) =
            (private_start, caps.private - used_private as u32);
        args.hSystemContext = context;
        args.DmaBufferGpuVirtualAddress = va(FIRST_SEEN) + used as u64;
        args.DmaBufferWriteOffset = used as u32;
        let status = driver::build_paging_buffer(args);
        let written = args.pDmaBuffer.addr().wrapping_sub(start.addr());
        let written_private = args.pDmaBufferPrivateData.addr().wrapping_sub(private_start.addr());
        if !status.is_success() || written > size - used || written_private > caps.private as usize - used_private {
            return Err(Failed);
        }
        (used, used_private, count) = (used + written, used_private + written_private, count + 1);
        Ok(())
    };
    let mut done =
        caps.updates(memory, OTHER_TABLES, |mut update| add(&mut operation(memory, &mut update, other, caps.mode)));
    let mut next = |kind, set: &dyn Fn(&mut DXGKARG_BUILDPAGINGBUFFER)| {
        let mut args = DXGKARG_BUILDPAGINGBUFFER::zeroed();
        args.Operation = kind;
        set(&mut args);
        if done.is_ok() {
            done = add(&mut args);
        }
    };
    next(O::DXGK_OPERATION_VIRTUAL_FILL, &|args| {
        let op = args.FillVirtual_mut();
        (op.FillSizeInBytes, op.FillPattern, op.DestinationVirtualAddress) = (PAGE as u64, PATTERN, va(FILLED));
    });
    next(O::DXGK_OPERATION_VIRTUAL_TRANSFER, &|args| {
        let op = args.TransferVirtual_mut();
        op.TransferSizeInBytes = PAGE as u64;
        (op.SourceVirtualAddress, op.DestinationVirtualAddress) = (va(FILLED), va(COPIED));
    });
    next(O::DXGK_OPERATION_SIGNAL_MONITORED_FENCE, &|args| {
        let op = args.SignalMonitoredFence_mut();
        (op.MonitoredFenceGpuVa, op.MonitoredFenceValue) = (va(FENCE), VALUE);
    });
    next(O::DXGK_OPERATION_FLUSH_TLB, &|args| {
        let op = args.FlushTlb_mut();
        op.RootPageTableAddress = physical(memory, OTHER_TABLES + caps.levels - 1);
        op.hProcess = other;
        (op.StartVirtualAddress, op.EndVirtualAddress) = (BASE, BASE + (SEEN * PAGE) as u64);
    });
    let early = is_changed(memory);
    step!(
        "paging buffer",
        done.is_ok() && used != 0 && !early,
        "{count} operations, {used} bytes: page tables of a second process ({:?}), fill, transfer, fence, flush",
        caps.mode
    );
    Ok((used, used_private))
}

/// Returns whether anything of what the paging buffer is about holds other than before.
fn is_changed(memory: &Memory) -> bool {
    [FILLED, COPIED, FENCE].into_iter().any(|page| !memory.all(page, |_, word| word == BEFORE))
        || (0..LEVELS).any(|level| !memory.all(OTHER_TABLES + level, |_, word| word == 0))
}

fn submit(caps: &Caps, context: HANDLE, used: usize, private: usize) -> Result<(), Failed> {
    let mut private_data = [0u8; PAGE];
    let mut args = DXGKARG_SUBMITCOMMANDVIRTUAL::zeroed();
    args.hContext = context;
    args.DmaBufferVirtualAddress = va(FIRST_SEEN);
    // CAST: within a small buffer.
    args.DmaBufferSize = used as u32;
    args.pDmaBufferPrivateData = private_data.as_mut_ptr().cast();
    args.DmaBufferPrivateDataSize = private as u32;
    args.SubmissionFenceId = FENCE_ID;
    args.NodeOrdinal = caps.paging_node;
    args.Flags.set_Paging(true);
    let before = callbacks::completed();
    let status = driver::submit(&args);
    step!(
        "DxgkDdiSubmitCommandVirtual",
        status.is_success() && before.is_none(),
        "node {}, fence {FENCE_ID:#x}: {status:?}",
        caps.paging_node
    );
    let came = nt::until(PATIENCE, || callbacks::completed().is_some() || callbacks::other_interrupt().is_some());
    let (found, other) = (callbacks::completed(), callbacks::other_interrupt());
    step!(
        "DMA_COMPLETED",
        came && found == Some((caps.paging_node, FENCE_ID)) && !callbacks::was_stray(),
        "(node, fence) {found:x?}, other interrupt {other:?}, at the device's level: {}",
        !callbacks::was_stray()
    );
    // The signal of a fence is told of no later than the packet behind which it is.
    step!("MONITORED_FENCE_SIGNALED", callbacks::told_of_fences(), "an interrupt of its own");
    let came = nt::until(PATIENCE, || callbacks::COUNTS.notified.load(Ordering::Acquire) != 0);
    step!("DPC", came, "DxgkCbQueueDpc, DxgkDdiDpcRoutine, DxgkCbNotifyDpc");
    Ok(())
}

/// What the buffer was to do is done, when it was reported done: nothing is waited for.
fn changed(caps: &Caps, memory: &Memory) -> Result<(), Failed> {
    let pattern = u64::from(PATTERN) << 32 | u64::from(PATTERN);
    let filled = memory.all(FILLED, |_, word| word == pattern);
    let copied = memory.all(COPIED, |_, word| word == pattern);
    let signaled = memory.all(FENCE, |at, word| word == if at == 0 { VALUE } else { BEFORE });
    step!("memory", filled && copied && signaled, "filled: {filled}, copied: {copied}, fence: {signaled}");
    // Both leaf tables name the same pages: one was written by the driver, one by its engine.
    let leaves = memory.all(OTHER_TABLES, |at, found| found == word(memory, SYSTEM_TABLES, at));
    let parent = |level: usize| {
        // CAST: an index of a table.
        let at = caps.index(level) as usize;
        memory.all(OTHER_TABLES + level, |index, word| (word != 0) == (index == at))
    };
    let parents = (1..caps.levels).all(parent);
    step!("tables by the engine", leaves && parents, "leaves as by the processor: {leaves}, parents: {parents}");
    Ok(())
}

fn take_down(context: HANDLE, device: HANDLE, processes: [HANDLE; 2]) -> Result<(), Failed> {
    let (c, d) = (driver::destroy_context(context), driver::destroy_device(device));
    let p = processes.map(driver::destroy_process);
    let held = [c, d].into_iter().chain(p).all(|status| status.is_success());
    step!("take down", held, "context {c:?}, device {d:?}, processes {p:?}");
    Ok(())
}

/// Pairs of services of which one gives back what the other gave: behind DxgkDdiUnload each was called as often as the
/// other.
const PAIRS: &[(&[&str], &[&str])] = &[
    (&["EtwRegister"], &["EtwUnregister"]),
    (&["ExAllocatePool2", "MmAllocatePagesForMdlEx"], &["ExFreePool"]),
    (&["ExAllocateTimer"], &["ExDeleteTimer"]),
    (&["IoAllocateMdl"], &["IoFreeMdl"]),
    (&["IoGetDeviceObjectPointer", "ObReferenceObjectByHandle"], &["ObfDereferenceObject"]),
    (&["KeAcquireSpinLockRaiseToDpc"], &["KeReleaseSpinLock"]),
    (&["KeRegisterBugCheckReasonCallback"], &["KeDeregisterBugCheckReasonCallback"]),
    (&["MmAllocateMappingAddress"], &["MmFreeMappingAddress"]),
    (&["MmAllocatePagesForMdlEx"], &["MmFreePagesFromMdl"]),
    (&["MmMapLockedPagesSpecifyCache"], &["MmUnmapLockedPages"]),
    (&["MmMapLockedPagesWithReservedMapping"], &["MmUnmapReservedMapping"]),
    (&["PsCreateSystemThread"], &["PsTerminateSystemThread"]),
];

/// The last step: everything was given back. A service that failed would show here as well; none has reason to.
pub fn balance() {
    let sum = |names: &[&str]| names.iter().map(|name| imports::calls_of(name)).sum::<u64>();
    let mut held = true;
    for (taken, given) in PAIRS {
        let (took, gave) = (sum(taken), sum(given));
        held &= took == gave;
        if took != gave {
            report!("failed\t{taken:?} {took} times, {given:?} {gave} times");
        }
    }
    report!("step\tbalance\t{}\t{} pairs of services", crate::dxgkrnl::verdict(held), PAIRS.len());
}
