//! Processes, devices, contexts.

use crate::arguments::{bytes, object, os, record_mut, started};
use crate::thunk::{ddi, nothing};
use gpu_engine::address_space::Root;
use gpu_wire::NodeOrdinal;
use gpu_wire::pte::Place;
use kmd_core::context::{self, Context, DMA_BUFFER_SIZE, NewContext, PRIVATE_DATA_SIZE};
use kmd_core::contexts;
use kmd_core::device::Device;
use kmd_core::handle::Handle;
use kmd_core::hw_context::HwContext;
use kmd_core::paging::place_of;
use kmd_core::platform::Platform;
use kmd_core::process::{EngineSpace, Process};
use kmd_core::segments;
use kmd_core::status::{Error, Result, of};
use wddm_abi::ntstatus::{STATUS_GRAPHICS_DRIVER_MISMATCH, STATUS_NO_MEMORY, STATUS_SUCCESS};
use wddm_abi::{
    DXGK_CONTEXTINFO, DXGKARG_CREATECONTEXT, DXGKARG_CREATEDEVICE, DXGKARG_CREATEPROCESS, DXGKARG_GETROOTPAGETABLESIZE,
    DXGKARG_SETROOTPAGETABLE, HANDLE, NTSTATUS, win_extern,
};

/// `DXGK_CONTEXTINFO.AllocationListSize` of a GDI context, as its page demands.
const GDI_ALLOCATIONS: u32 = 256;

/// The status of CreateDevice and of CreateContext. Their pages list `STATUS_NO_MEMORY` as the only refusal beside a
/// driver mismatch, so it stands for every other error, too, such as a node or an engine that does not exist.
fn listed(result: Result<()>) -> NTSTATUS {
    match result {
        Ok(()) => STATUS_SUCCESS,
        Err(Error::DriverMismatch) => STATUS_GRAPHICS_DRIVER_MISMATCH,
        Err(_) => STATUS_NO_MEMORY,
    }
}

ddi! {
    /// `DxgkDdiCreateProcess`, `PASSIVE_LEVEL`.
    fn create_process[P: Platform](adapter: HANDLE) at irql: Passive,
        with args: write *mut DXGKARG_CREATEPROCESS, answers of {
        let started = started::<P>(adapter)?;
        let handle = Process::create(&irql, &started, os(args.hDxgkProcess), args.Flags.SystemProcess())?;
        args.hKmdProcess = handle.as_ptr();
        Ok(())
    }

    /// `DxgkDdiDestroyProcess`, `PASSIVE_LEVEL`.
    fn destroy_process[P: Platform](_adapter: HANDLE, process: HANDLE) at irql: Passive, answers of {
        Process::<P>::destroy(&irql, Handle::from_ptr(process))
    }

    /// `DxgkDdiCreateDevice`, `PASSIVE_LEVEL`.
    fn create_device[P: Platform](adapter: HANDLE) at irql: Passive,
        with args: write *mut DXGKARG_CREATEDEVICE, answers listed {
        let started = started::<P>(adapter)?;
        let process = object::<Process<P>>(args.hKmdProcess)?;
        args.hDevice = Device::create(&irql, &started, process, os(args.hDevice))?.as_ptr();
        Ok(())
    }

    /// `DxgkDdiDestroyDevice`, `PASSIVE_LEVEL`.
    fn destroy_device[P: Platform](device: HANDLE) at irql: Passive, answers of {
        Device::<P>::destroy(&irql, Handle::from_ptr(device))
    }

    /// `DxgkDdiCreateContext`, `PASSIVE_LEVEL`: a packet context, or one for hardware queues. `hContext` comes in with
    /// Dxgkrnl's handle; `DxgkCbInvalidateHwContext` and the acknowledgements of suspensions name the context by it.
    fn create_context[P: Platform](device: HANDLE) at irql: Passive,
        with args: write *mut DXGKARG_CREATECONTEXT, answers listed {
        let device = object::<Device<P>>(device)?;
        // SAFETY: Dxgkrnl's copy of the private data, of that size.
        let private = unsafe { bytes(args.pPrivateDriverData.cast_const(), args.PrivateDriverDataSize) }?;
        let new = NewContext {
            os: os(args.hContext),
            node: NodeOrdinal(args.NodeOrdinal),
            affinity: args.EngineAffinity,
            system: args.Flags.SystemContext(),
            hw_queues: args.Flags.HwQueueSupported(),
        };
        args.hContext = contexts::create(&irql, &device, &new, private)?.as_ptr();
        let settings = &device.counted.started.settings;
        let aperture = segments::set_of(segments::Order::of(settings).aperture());
        // Every member is an output; those that are not set below are zero.
        let mut info = DXGK_CONTEXTINFO::zeroed();
        info.DmaBufferSize = DMA_BUFFER_SIZE;
        info.DmaBufferSegmentSet = if settings.dma_buffer_segment_set { aperture } else { 0 };
        info.DmaBufferPrivateDataSize = PRIVATE_DATA_SIZE;
        info.AllocationListSize = if args.Flags.GdiContext() { GDI_ALLOCATIONS } else { 0 };
        info.Caps.set_NoPatchingRequired(true);
        info.PagingCompanionNodeId = settings.paging_node;
        args.ContextInfo = info;
        Ok(())
    }

    /// `DxgkDdiDestroyContext`, `PASSIVE_LEVEL`: destroys a packet context, or one for hardware queues.
    fn destroy_context[P: Platform](context: HANDLE) at irql: Passive, answers of {
        contexts::destroy::<P>(&irql, Handle::from_ptr(context))
    }

    /// `DxgkDdiSetRootPageTable`, `PASSIVE_LEVEL`. Cannot fail: a root in a segment that this driver does not know is
    /// counted, and every address of the context faults.
    fn set_root_page_table[P: Platform](adapter: HANDLE) at irql: Passive,
        with args: read *const DXGKARG_SETROOTPAGETABLE, answers nothing as () {
        let started = started::<P>(adapter)?;
        let (segment, offset) = (args.Address.SegmentId, args.Address.SegmentOffset);
        let root = match place_of(segments::Order::of(&started.settings), segment, offset) {
            Some(place) => Root { place, entries: args.NumEntries },
            None => {
                let what = format_args!("a root table in segment {segment} at {offset:#x}");
                let strays = &started.strays;
                strays.note(&strays.ranges, 1, &started.platform, what);
                // No address lies within a root of no entries.
                Root { place: Place::System(0), entries: 0 }
            }
        };
        let set = |space: &EngineSpace<P>| context::set_root(&irql, &started, space, Some(root));
        if let Ok(context) = object::<Context<P>>(args.hContext) {
            set(&context.engine.space);
        } else if let Ok(context) = object::<HwContext<P>>(args.hContext) {
            set(&context.engine.space);
        }
        Ok(())
    }
}

win_extern! {
    /// `DxgkDdiGetRootPageTableSize`, `PASSIVE_LEVEL`: fixed, since there are more than two levels.
    pub(crate) fn get_root_page_table_size(_adapter: HANDLE, args: *mut DXGKARG_GETROOTPAGETABLESIZE) -> usize {
        // SAFETY: Dxgkrnl's record, valid for the call.
        if let Ok(args) = unsafe { record_mut(args) } {
            args.NumberOfPte = gpu_wire::pte::ENTRIES;
        }
        gpu_wire::pte::TABLE_SIZE as usize
    }
}
