//! Records that are right, to be damaged: a function each, and how one is made from what the process has.

use super::{BEHIND, Dice};
use crate::scenario::{Memory, Raw, Room};
use gpu_wire::INTERFACE_VERSION;
use gpu_wire::private::{AllocationData, ContextData, MAGIC};
use std::mem::offset_of;
use std::ptr;
use wddm_abi::{
    D3DDDI_ALLOCATIONINFO2, D3DDDI_MAKERESIDENT, D3DDDI_MAPGPUVIRTUALADDRESS, D3DDDI_SYNCHRONIZATIONOBJECT_TYPE,
    D3DKMT_CONNECT_DOORBELL, D3DKMT_CREATE_DOORBELL, D3DKMT_CREATEALLOCATION, D3DKMT_CREATECONTEXTVIRTUAL,
    D3DKMT_CREATEDEVICE, D3DKMT_CREATEHWQUEUE, D3DKMT_CREATENATIVEFENCE, D3DKMT_CREATEPAGINGQUEUE,
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2, D3DKMT_DESTROY_DOORBELL, D3DKMT_DESTROYALLOCATION2, D3DKMT_DESTROYCONTEXT,
    D3DKMT_DESTROYDEVICE, D3DKMT_DESTROYHWQUEUE, D3DKMT_DESTROYSYNCHRONIZATIONOBJECT, D3DKMT_ESCAPE, D3DKMT_EVICT,
    D3DKMT_GETNATIVEFENCELOGDETAIL, D3DKMT_HANDLE, D3DKMT_LOCK2, D3DKMT_NOTIFY_WORK_SUBMISSION,
    D3DKMT_OPENNATIVEFENCEFROMNTHANDLE, D3DKMT_SETCONTEXTINPROCESSSCHEDULINGPRIORITY,
    D3DKMT_SETCONTEXTSCHEDULINGPRIORITY, D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU, D3DKMT_SUBMITCOMMAND,
    D3DKMT_SUBMITCOMMANDTOHWQUEUE, Plain,
};

/// What a handle is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The adapter, which is not made here.
    Adapter,
    /// A device.
    Device,
    /// A paging queue.
    Paging,
    /// An allocation.
    Allocation,
    /// A context.
    Context,
    /// A hardware queue.
    Queue,
    /// A fence of either kind, or a queue's progress fence.
    Fence,
    /// A doorbell.
    Doorbell,
}

/// What a process has to name in records.
pub struct Parts<'a> {
    /// Handles of all kinds: the adapter's, the device's and the paging queue's stand first, in this order.
    pub handles: &'a [(Kind, D3DKMT_HANDLE)],
    /// A ring.
    pub ring: &'a Memory,
    /// A control page.
    pub control: &'a Memory,
    /// Where the record will lie, at its start, and what it points to, from [`BEHIND`] on.
    pub memory: &'a Memory,
}

impl Parts<'_> {
    /// An address behind the record.
    fn at<T>(&self, offset: u64) -> *mut T {
        // CAST: below the memory's size.
        ptr::with_exposed_provenance_mut(self.memory.cpu + (BEHIND + offset) as usize)
    }

    fn adapter(&self) -> D3DKMT_HANDLE {
        self.handles[0].1
    }

    fn device(&self) -> D3DKMT_HANDLE {
        self.handles[1].1
    }

    fn paging(&self) -> D3DKMT_HANDLE {
        self.handles[2].1
    }

    fn any(&self, dice: &mut Dice) -> D3DKMT_HANDLE {
        dice.of(self.handles).1
    }

    /// Mostly one of `kind`, if there is any.
    fn a(&self, kind: Kind, dice: &mut Dice) -> D3DKMT_HANDLE {
        let right: Vec<_> = self.handles.iter().filter(|(known, _)| *known == kind).collect();
        if right.is_empty() || dice.one_in(6) { self.any(dice) } else { dice.of(&right).1 }
    }
}

/// A function of one record.
pub struct Record {
    /// Its name.
    pub function: &'static str,
    /// A record that it may take, with what comes behind it.
    pub sound: fn(&Parts, &mut Dice) -> Vec<u8>,
    /// Where it answers with handles: offsets from the record's start, and what they are of.
    pub made: &'static [(usize, Kind)],
}

/// The record's bytes, and from [`BEHIND`] on those of `behind`.
fn bytes<T: Plain>(record: &T, behind: &[&[u8]]) -> Vec<u8> {
    let mut bytes = record.as_bytes().to_vec();
    if !behind.is_empty() {
        // CAST: 4096.
        bytes.resize(BEHIND as usize, 0);
        behind.iter().for_each(|part| bytes.extend_from_slice(part));
    }
    bytes
}

/// A function whose record is one handle of what was made.
macro_rules! of_a_handle {
    ($function:literal, $record:ty, $field:ident, $kind:ident) => {
        Record {
            function: $function,
            sound: |parts, dice| {
                let mut record = <$record>::zeroed();
                record.$field = parts.a(Kind::$kind, dice);
                bytes(&record, &[])
            },
            made: &[],
        }
    };
}

/// What an allocation's record and its private data take together.
const INFO: u64 = size_of::<D3DDDI_ALLOCATIONINFO2>() as u64;

/// The functions.
pub const RECORDS: &[Record] = &[
    of_a_handle!("D3DKMTConnectDoorbell", D3DKMT_CONNECT_DOORBELL, hDoorbell, Doorbell),
    of_a_handle!("D3DKMTNotifyWorkSubmission", D3DKMT_NOTIFY_WORK_SUBMISSION, hDoorbell, Doorbell),
    of_a_handle!("D3DKMTDestroyDoorbell", D3DKMT_DESTROY_DOORBELL, hDoorbell, Doorbell),
    of_a_handle!("D3DKMTDestroyHwQueue", D3DKMT_DESTROYHWQUEUE, hHwQueue, Queue),
    of_a_handle!("D3DKMTDestroyContext", D3DKMT_DESTROYCONTEXT, hContext, Context),
    of_a_handle!("D3DKMTDestroyDevice", D3DKMT_DESTROYDEVICE, hDevice, Device),
    of_a_handle!("D3DKMTDestroySynchronizationObject", D3DKMT_DESTROYSYNCHRONIZATIONOBJECT, hSyncObject, Fence),
    of_a_handle!("D3DKMTGetNativeFenceLogDetail", D3DKMT_GETNATIVEFENCELOGDETAIL, hHwQueue, Queue),
    Record {
        function: "D3DKMTCreateDevice",
        sound: device,
        made: &[(offset_of!(D3DKMT_CREATEDEVICE, hDevice), Kind::Device)],
    },
    Record {
        function: "D3DKMTCreateContextVirtual",
        sound: context,
        made: &[(offset_of!(D3DKMT_CREATECONTEXTVIRTUAL, hContext), Kind::Context)],
    },
    Record {
        function: "D3DKMTCreateHwQueue",
        sound: queue,
        made: &[
            (offset_of!(D3DKMT_CREATEHWQUEUE, hHwQueue), Kind::Queue),
            (offset_of!(D3DKMT_CREATEHWQUEUE, hHwQueueProgressFence), Kind::Fence),
        ],
    },
    Record {
        function: "D3DKMTCreateDoorbell",
        sound: doorbell,
        made: &[(offset_of!(D3DKMT_CREATE_DOORBELL, hDoorbell), Kind::Doorbell)],
    },
    Record {
        function: "D3DKMTCreateNativeFence",
        sound: |parts, dice| bytes(&Raw::native_fence_record(parts.device(), dice.below(5)), &[]),
        made: &[(offset_of!(D3DKMT_CREATENATIVEFENCE, hSyncObject), Kind::Fence)],
    },
    Record {
        function: "D3DKMTCreateSynchronizationObject2",
        sound: fence,
        made: &[(offset_of!(D3DKMT_CREATESYNCHRONIZATIONOBJECT2, hSyncObject), Kind::Fence)],
    },
    Record {
        function: "D3DKMTCreatePagingQueue",
        sound: paging,
        made: &[(offset_of!(D3DKMT_CREATEPAGINGQUEUE, hPagingQueue), Kind::Paging)],
    },
    // The handle lies behind the record, first of all.
    Record { function: "D3DKMTCreateAllocation2", sound: allocation, made: &[(BEHIND as usize, Kind::Allocation)] },
    Record { function: "D3DKMTDestroyAllocation2", sound: gone, made: &[] },
    Record { function: "D3DKMTMakeResident", sound: resident, made: &[] },
    Record { function: "D3DKMTEvict", sound: evict, made: &[] },
    Record { function: "D3DKMTLock2", sound: lock, made: &[] },
    Record { function: "D3DKMTMapGpuVirtualAddress", sound: map, made: &[] },
    Record { function: "D3DKMTSignalSynchronizationObjectFromCpu", sound: signal, made: &[] },
    Record { function: "D3DKMTOpenNativeFenceFromNtHandle", sound: open, made: &[] },
    Record { function: "D3DKMTSubmitCommandToHwQueue", sound: submit, made: &[] },
    Record { function: "D3DKMTSubmitCommand", sound: packets, made: &[] },
    Record { function: "D3DKMTEscape", sound: escape, made: &[] },
    Record { function: "D3DKMTSetContextSchedulingPriority", sound: priority, made: &[] },
    Record { function: "D3DKMTSetContextInProcessSchedulingPriority", sound: within, made: &[] },
];

fn device(parts: &Parts, _: &mut Dice) -> Vec<u8> {
    let mut record = D3DKMT_CREATEDEVICE::zeroed();
    record.set_hAdapter(parts.adapter());
    bytes(&record, &[])
}

fn context(parts: &Parts, dice: &mut Dice) -> Vec<u8> {
    let data = ContextData { magic: MAGIC, interface_version: INTERFACE_VERSION };
    let mut record = D3DKMT_CREATECONTEXTVIRTUAL::zeroed();
    record.hDevice = parts.device();
    // CAST: 0 to 3, of which 3 is no node.
    record.NodeOrdinal = dice.below(4) as u32;
    record.Flags.set_HwQueueSupported(!dice.one_in(4));
    record.pPrivateDriverData = parts.at(0);
    // CAST: 8.
    record.PrivateDriverDataSize = data.bytes().len() as u32;
    bytes(&record, &[data.bytes()])
}

fn queue(parts: &Parts, dice: &mut Dice) -> Vec<u8> {
    let mut record = D3DKMT_CREATEHWQUEUE::zeroed();
    record.hHwContext = parts.a(Kind::Context, dice);
    record.Flags.set_UserModeSubmission(dice.one_in(2));
    bytes(&record, &[])
}

fn doorbell(parts: &Parts, dice: &mut Dice) -> Vec<u8> {
    let mut data = Room::bell_data(parts.ring.gpu, parts.control.gpu);
    let mut record = Room::bell_record(parts.a(Kind::Queue, dice), parts.ring.handle, parts.control.handle, &mut data);
    record.PrivateDriverData = parts.at(0);
    bytes(&record, &[&data])
}

fn fence(parts: &Parts, dice: &mut Dice) -> Vec<u8> {
    let mut record = D3DKMT_CREATESYNCHRONIZATIONOBJECT2::zeroed();
    record.hDevice = parts.device();
    record.Info.Type = D3DDDI_SYNCHRONIZATIONOBJECT_TYPE::D3DDDI_MONITORED_FENCE;
    record.Info.MonitoredFence_mut().InitialFenceValue = dice.below(5);
    bytes(&record, &[])
}

fn paging(parts: &Parts, _: &mut Dice) -> Vec<u8> {
    let mut record = D3DKMT_CREATEPAGINGQUEUE::zeroed();
    record.hDevice = parts.device();
    bytes(&record, &[])
}

fn allocation(parts: &Parts, dice: &mut Dice) -> Vec<u8> {
    let size = dice.below(1 << 20) & !0xFFF;
    // CAST: 0 to 3, of which 1 and 2 are kinds.
    let data = AllocationData { magic: MAGIC, kind: dice.below(4) as u32, size, reserved: 0 };
    let mut info = D3DDDI_ALLOCATIONINFO2::zeroed();
    info.pPrivateDriverData = parts.at(INFO);
    // CAST: 24.
    info.PrivateDriverDataSize = data.bytes().len() as u32;
    let mut record = D3DKMT_CREATEALLOCATION::zeroed();
    record.hDevice = parts.device();
    record.NumAllocations = 1;
    record.set_pAllocationInfo2(parts.at(0));
    bytes(&record, &[info.as_bytes(), data.bytes()])
}

/// A handle behind the record.
fn one(handle: D3DKMT_HANDLE) -> [u8; 4] {
    handle.to_le_bytes()
}

fn gone(parts: &Parts, dice: &mut Dice) -> Vec<u8> {
    let mut record = D3DKMT_DESTROYALLOCATION2::zeroed();
    record.hDevice = parts.device();
    (record.AllocationCount, record.phAllocationList) = (1, parts.at(0));
    bytes(&record, &[&one(parts.a(Kind::Allocation, dice))])
}

fn resident(parts: &Parts, dice: &mut Dice) -> Vec<u8> {
    let mut record = D3DDDI_MAKERESIDENT::zeroed();
    record.hPagingQueue = parts.paging();
    (record.NumAllocations, record.AllocationList) = (1, parts.at(0));
    bytes(&record, &[&one(parts.a(Kind::Allocation, dice))])
}

fn evict(parts: &Parts, dice: &mut Dice) -> Vec<u8> {
    let mut record = D3DKMT_EVICT::zeroed();
    record.hDevice = parts.device();
    (record.NumAllocations, record.AllocationList) = (1, parts.at(0));
    bytes(&record, &[&one(parts.a(Kind::Allocation, dice))])
}

fn lock(parts: &Parts, dice: &mut Dice) -> Vec<u8> {
    let mut record = D3DKMT_LOCK2::zeroed();
    (record.hDevice, record.hAllocation) = (parts.device(), parts.a(Kind::Allocation, dice));
    bytes(&record, &[])
}

fn map(parts: &Parts, dice: &mut Dice) -> Vec<u8> {
    let mut record = D3DDDI_MAPGPUVIRTUALADDRESS::zeroed();
    (record.hPagingQueue, record.hAllocation) = (parts.paging(), parts.a(Kind::Allocation, dice));
    record.BaseAddress = if dice.one_in(2) { 0 } else { dice.draw() & 0x0000_FFFF_FFFF_F000 };
    (record.OffsetInPages, record.SizeInPages) = (dice.below(4), u64::from(dice.small()));
    record.Protection.set_Write(true);
    bytes(&record, &[])
}

fn signal(parts: &Parts, dice: &mut Dice) -> Vec<u8> {
    let mut record = D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU::zeroed();
    (record.hDevice, record.ObjectCount) = (parts.device(), 2);
    (record.ObjectHandleArray, record.FenceValueArray) = (parts.at(0), parts.at(8));
    let handles = [one(parts.a(Kind::Fence, dice)), one(parts.a(Kind::Fence, dice))].concat();
    bytes(&record, &[&handles, &dice.below(9).to_le_bytes(), &dice.below(9).to_le_bytes()])
}

fn open(parts: &Parts, dice: &mut Dice) -> Vec<u8> {
    let mut record = D3DKMT_OPENNATIVEFENCEFROMNTHANDLE::zeroed();
    // CAST: a small number, as NT handles are.
    record.hNtHandle = ptr::without_provenance_mut(dice.below(64) as usize * 4);
    record.hDevice = parts.device();
    record.Flags.set_Shared(true);
    record.Flags.set_NtSecuritySharing(true);
    bytes(&record, &[])
}

fn submit(parts: &Parts, dice: &mut Dice) -> Vec<u8> {
    let mut record = D3DKMT_SUBMITCOMMANDTOHWQUEUE::zeroed();
    (record.hHwQueue, record.HwQueueProgressFenceId) = (parts.a(Kind::Queue, dice), dice.below(3));
    record.CommandBuffer = parts.memory.gpu + dice.below(64) * 4;
    // CAST: up to 252.
    record.CommandLength = dice.below(64) as u32 * 4;
    bytes(&record, &[])
}

fn packets(parts: &Parts, dice: &mut Dice) -> Vec<u8> {
    let mut record = D3DKMT_SUBMITCOMMAND::zeroed();
    record.Commands = parts.memory.gpu + dice.below(64) * 8;
    // CAST: up to 504.
    record.CommandLength = dice.below(64) as u32 * 8;
    record.BroadcastContextCount = 1;
    record.BroadcastContext[0] = parts.a(Kind::Context, dice);
    bytes(&record, &[])
}

fn escape(parts: &Parts, dice: &mut Dice) -> Vec<u8> {
    let mut record = D3DKMT_ESCAPE::zeroed();
    (record.hAdapter, record.hDevice) = (parts.adapter(), parts.device());
    record.pPrivateDriverData = parts.at(0);
    // CAST: up to 600.
    record.PrivateDriverDataSize = dice.below(600) as u32;
    // CAST: the magic number is its lower half.
    let head = [MAGIC, INTERFACE_VERSION, 1 + dice.below(3) as u32, dice.below(600) as u32];
    let head: Vec<_> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
    let random: Vec<_> = (0..64).flat_map(|_| dice.draw().to_le_bytes()).collect();
    bytes(&record, &[&head, &random])
}

fn priority(parts: &Parts, dice: &mut Dice) -> Vec<u8> {
    let context = parts.a(Kind::Context, dice);
    // CAST: at most the flag and 31.
    let value = (dice.below(2) << 30 | dice.below(32)) as i32;
    // The half of the relative ones is below 0.
    let value = if value < 16 { value - 8 } else { value };
    bytes(&D3DKMT_SETCONTEXTSCHEDULINGPRIORITY { hContext: context, Priority: value }, &[])
}

fn within(parts: &Parts, dice: &mut Dice) -> Vec<u8> {
    let context = parts.a(Kind::Context, dice);
    // CAST: -1 to 2.
    let value = dice.below(4) as i32 - 1;
    bytes(&D3DKMT_SETCONTEXTINPROCESSSCHEDULINGPRIORITY { hContext: context, Priority: value }, &[])
}
