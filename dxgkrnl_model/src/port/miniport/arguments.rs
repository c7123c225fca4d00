//! What an adapter's journal keeps of the arguments of a call: handles, places, fences and flags, under their names in
//! Microsoft's records, as they were when the driver was called.

use std::fmt;

use wddm_abi::{
    DEVICE_POWER_STATE, DXGK_BUILDPAGINGBUFFER_OPERATION, DXGKARG_BUILDPAGINGBUFFER, DXGKARG_CANCELCOMMAND,
    DXGKARG_CONNECTDOORBELL, DXGKARG_CREATECONTEXT, DXGKARG_CREATEDOORBELL, DXGKARG_CREATEHWCONTEXT,
    DXGKARG_CREATEHWQUEUE, DXGKARG_CREATEPROCESS, DXGKARG_DESTROYDOORBELL, DXGKARG_DISCONNECTDOORBELL,
    DXGKARG_NOTIFYWORKSUBMISSION, DXGKARG_PREEMPTCOMMAND, DXGKARG_QUERYDEPENDENTENGINEGROUP, DXGKARG_QUERYENGINESTATUS,
    DXGKARG_RESETENGINE, DXGKARG_RESETHWENGINE, DXGKARG_RESUMECONTEXT, DXGKARG_RESUMEHWENGINE,
    DXGKARG_SETNATIVEFENCELOGBUFFER, DXGKARG_SETROOTPAGETABLE, DXGKARG_SIGNALMONITOREDFENCE, DXGKARG_SUBMITCOMMAND,
    DXGKARG_SUBMITCOMMANDTOHWQUEUE, DXGKARG_SUBMITCOMMANDVIRTUAL, DXGKARG_SUSPENDCONTEXT,
    DXGKARG_UPDATECURRENTVALUESFROMCPU, DXGKARG_UPDATEMONITOREDVALUES, HANDLE, POWER_ACTION, Plain,
};

/// How many members are kept at most: seven of a record, and handles that are passed beside it.
const MOST: usize = 9;
/// How many of a record.
const OF_RECORD: usize = 7;

/// A call of a DDI: its name, and what is kept of its arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DdiCall {
    /// The function's name, `DxgkDdiSubmitCommandVirtual`.
    pub name: &'static str,
    pub(super) arguments: Arguments,
}

/// Members by name.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    members: [(&'static str, u64); MOST],
    count: usize,
}

impl Arguments {
    fn of(members: &[(&'static str, u64)]) -> Self {
        let mut this = Self::default();
        members.iter().for_each(|member| this.push(*member));
        this
    }

    fn push(&mut self, member: (&'static str, u64)) {
        if let Some(place) = self.members.get_mut(self.count) {
            *place = member;
            self.count += 1;
        }
    }

    fn members(&self) -> &[(&'static str, u64)] {
        &self.members[..self.count]
    }

    /// Adds what is kept of another argument.
    pub(crate) fn add(&mut self, other: &Self) {
        other.members().iter().for_each(|member| self.push(*member));
    }

    /// The same but for the driver's own context of the adapter.
    pub(super) fn without(&self, context: u64) -> Self {
        let mut this = Self::default();
        let others = self.members().iter().filter(|(name, value)| *name != HANDLE_NAME || *value != context);
        others.for_each(|member| this.push(*member));
        this
    }
}

impl DdiCall {
    /// The value of a member: a handle's bits, a number, flags as the number that they are. `None`: the call has no
    /// such argument, or it is not kept.
    pub fn get(&self, member: &str) -> Option<u64> {
        self.members().iter().find(|(name, _)| *name == member).map(|(_, value)| *value)
    }

    /// All that is kept, in the order of the record.
    pub fn members(&self) -> &[(&'static str, u64)] {
        self.arguments.members()
    }
}

/// `DxgkDdiPreemptCommand(PreemptionFenceId 0x125, NodeOrdinal 0x0, …)`.
impl fmt::Display for DdiCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        for (at, (name, value)) in self.members().iter().enumerate() {
            write!(f, "{}{name} {value:#x}", if at == 0 { "(" } else { ", " })?;
        }
        if self.members().is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

impl fmt::Debug for DdiCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a handle that is passed by itself is called.
const HANDLE_NAME: &str = "handle";

/// A number of a record.
trait Word {
    fn word(self) -> u64;
}

impl Word for u32 {
    fn word(self) -> u64 {
        self.into()
    }
}

impl Word for u64 {
    fn word(self) -> u64 {
        self
    }
}

impl Word for i32 {
    fn word(self) -> u64 {
        self.cast_unsigned().into()
    }
}

impl<T> Word for *mut T {
    fn word(self) -> u64 {
        self.addr() as u64
    }
}

/// A record of which members are kept.
pub(crate) trait Record: Plain {
    fn kept(&self) -> Arguments;
}

macro_rules! records {
    ($($record:ident { $($member:ident $(.$field:tt)?),* })*) => {
        $(impl Record for $record {
            fn kept(&self) -> Arguments {
                const { assert!([$(stringify!($member)),*].len() <= OF_RECORD, "there is room for the members") };
                Arguments::of(&[$((stringify!($member), Word::word(self.$member$(.$field)?))),*])
            }
        })*
    };
}

records! {
    DXGKARG_SUBMITCOMMANDVIRTUAL { hContext, SubmissionFenceId, NodeOrdinal, EngineOrdinal, DmaBufferSize, Flags.Value }
    DXGKARG_SUBMITCOMMANDTOHWQUEUE { hHwQueue, HwQueueProgressFenceId, DmaBufferSize, Flags.Value }
    DXGKARG_PREEMPTCOMMAND { PreemptionFenceId, NodeOrdinal, EngineOrdinal, Flags.Value }
    DXGKARG_CANCELCOMMAND { hContext, DmaBufferSize }
    DXGKARG_QUERYDEPENDENTENGINEGROUP { NodeOrdinal, EngineOrdinal }
    DXGKARG_QUERYENGINESTATUS { NodeOrdinal, EngineOrdinal }
    DXGKARG_RESETENGINE { NodeOrdinal, EngineOrdinal }
    DXGKARG_RESETHWENGINE { NodeOrdinal, EngineOrdinal }
    DXGKARG_RESUMEHWENGINE { NodeOrdinal, EngineOrdinal }
    DXGKARG_SUSPENDCONTEXT { hContext, contextSuspendFence }
    DXGKARG_RESUMECONTEXT { hContext }
    DXGKARG_SETROOTPAGETABLE { hContext, NumEntries }
    DXGKARG_SETNATIVEFENCELOGBUFFER { hHwQueue, NumberOfEntries, LogBufferGpuVa, Flags.Value }
    DXGKARG_CREATEPROCESS { hDxgkProcess, NumPasid, Flags.Value }
    DXGKARG_CREATECONTEXT { hContext, NodeOrdinal, EngineAffinity, Flags.Value }
    DXGKARG_CREATEHWCONTEXT { hHwContext, NodeOrdinal, EngineAffinity, Flags.Value }
    DXGKARG_NOTIFYWORKSUBMISSION { hHwQueue, Flags.Value }
    DXGKARG_CREATEDOORBELL { hHwQueue, hDoorbell, hRingBuffer, hRingBufferControl, Flags.Value }
    DXGKARG_CONNECTDOORBELL { hDoorbell, Flags.Value }
    DXGKARG_DISCONNECTDOORBELL { hDoorbell, Flags.Value }
    DXGKARG_DESTROYDOORBELL { hDoorbell }
    DXGKARG_SIGNALMONITOREDFENCE { KernelSubmissionType.0, MonitoredFenceGpuVa, MonitoredFenceValue, hHwQueue }
}

impl Record for DXGKARG_SUBMITCOMMAND {
    fn kept(&self) -> Arguments {
        Arguments::of(&[
            ("hContext", self.hContext().word()),
            ("SubmissionFenceId", self.SubmissionFenceId.word()),
            ("NodeOrdinal", self.NodeOrdinal.word()),
            ("EngineOrdinal", self.EngineOrdinal.word()),
            ("DmaBufferSize", self.DmaBufferSize.word()),
            ("Flags", self.Flags.Value.word()),
        ])
    }
}

/// `hHwQueueProgressFence` is all eight bytes of its place: what is named there is a choice of Windows.
impl Record for DXGKARG_CREATEHWQUEUE {
    fn kept(&self) -> Arguments {
        const PLACE: usize = core::mem::offset_of!(DXGKARG_CREATEHWQUEUE, hHwQueueProgressFence) / 8;
        let fence = self.as_bytes().as_chunks::<8>().0.get(PLACE).copied().map(u64::from_le_bytes);
        Arguments::of(&[
            ("hHwQueue", self.hHwQueue.word()),
            ("Flags", self.Flags.Value.word()),
            ("hHwQueueProgressFence", fence.unwrap_or(0)),
            ("HwQueueProgressFenceGPUVirtualAddress", self.HwQueueProgressFenceGPUVirtualAddress),
        ])
    }
}

/// The operation, and where: of a flush, an update of page tables, and of mappings of an aperture.
impl Record for DXGKARG_BUILDPAGINGBUFFER {
    fn kept(&self) -> Arguments {
        let mut kept = Arguments::of(&[("Operation", self.Operation.0.word())]);
        match self.Operation {
            DXGK_BUILDPAGINGBUFFER_OPERATION::DXGK_OPERATION_FLUSH_TLB => {
                let flush = self.FlushTlb();
                kept.push(("hProcess", flush.hProcess.word()));
                kept.push(("StartVirtualAddress", flush.StartVirtualAddress));
                kept.push(("EndVirtualAddress", flush.EndVirtualAddress));
            }
            DXGK_BUILDPAGINGBUFFER_OPERATION::DXGK_OPERATION_UPDATE_PAGE_TABLE => {
                let update = self.UpdatePageTable();
                kept.push(("PageTableLevel", update.PageTableLevel.word()));
                kept.push(("hAllocation", update.hAllocation.word()));
                kept.push(("StartIndex", update.StartIndex.word()));
                kept.push(("NumPageTableEntries", update.NumPageTableEntries.word()));
                kept.push(("Flags", update.Flags.bits0.word()));
                kept.push(("DmaSize", self.DmaSize.word()));
            }
            DXGK_BUILDPAGINGBUFFER_OPERATION::DXGK_OPERATION_MAP_APERTURE_SEGMENT => {
                let map = self.MapApertureSegment();
                kept.push(("hAllocation", map.hAllocation.word()));
                kept.push(("OffsetInPages", map.OffsetInPages as u64));
                kept.push(("NumberOfPages", map.NumberOfPages as u64));
            }
            DXGK_BUILDPAGINGBUFFER_OPERATION::DXGK_OPERATION_UNMAP_APERTURE_SEGMENT => {
                let unmap = self.UnmapApertureSegment();
                kept.push(("hAllocation", unmap.hAllocation.word()));
                kept.push(("OffsetInPages", unmap.OffsetInPages as u64));
                kept.push(("NumberOfPages", unmap.NumberOfPages as u64));
            }
            DXGK_BUILDPAGINGBUFFER_OPERATION::DXGK_OPERATION_VIRTUAL_TRANSFER => {
                let transfer = self.TransferVirtual();
                kept.push(("hAllocation", transfer.hAllocation.word()));
                kept.push(("TransferSizeInBytes", transfer.TransferSizeInBytes));
                kept.push(("TransferDirection", transfer.TransferDirection.0.word()));
            }
            _ => {}
        }
        kept
    }
}

/// Number of fences and flags, and the first fence and its value.
fn first_of(count: u32, flags: u32, fences: *mut HANDLE, values: *mut u64) -> Arguments {
    let mut kept = Arguments::of(&[("NumFences", count.word()), ("Flags", flags.word())]);
    if count != 0 {
        let fence = crate::port::raw::read(fences.cast::<u64>()).map(|fence| ("NativeFenceArray", fence));
        let value = crate::port::raw::read(values).map(|value| ("UpdatedValueArray", value));
        fence.into_iter().chain(value).for_each(|member| kept.push(member));
    }
    kept
}

impl Record for DXGKARG_UPDATEMONITOREDVALUES {
    fn kept(&self) -> Arguments {
        first_of(self.NumFences, self.Flags.Value, self.NativeFenceArray, self.UpdatedValueArray)
    }
}

impl Record for DXGKARG_UPDATECURRENTVALUESFROMCPU {
    fn kept(&self) -> Arguments {
        first_of(self.NumFences, self.Flags.Value, self.NativeFenceArray, self.UpdatedValueArray)
    }
}

/// An argument of a call. `(&Argument(…)).kept()` is what is kept of it: the method is there for some kinds, and for
/// any other one [`NotKept`] has it.
pub(crate) struct Argument<T>(pub(crate) T);

/// An argument of which nothing is kept.
pub(crate) trait NotKept {
    /// Nothing.
    fn kept(&self) -> Arguments {
        Arguments::default()
    }
}

impl<T> NotKept for &Argument<T> {}

impl<T: Record> Argument<*const T> {
    /// What is kept of a record.
    pub(crate) fn kept(&self) -> Arguments {
        crate::port::raw::read(self.0).map(|record| record.kept()).unwrap_or_default()
    }
}

impl<T: Record> Argument<*mut T> {
    /// As above.
    pub(crate) fn kept(&self) -> Arguments {
        Argument(self.0.cast_const()).kept()
    }
}

impl Argument<HANDLE> {
    /// The handle.
    pub(crate) fn kept(&self) -> Arguments {
        Arguments::of(&[(HANDLE_NAME, self.0.word())])
    }
}

impl Argument<DEVICE_POWER_STATE> {
    /// Its number.
    pub(crate) fn kept(&self) -> Arguments {
        Arguments::of(&[("DevicePowerState", self.0.0.word())])
    }
}

impl Argument<POWER_ACTION> {
    /// Its number.
    pub(crate) fn kept(&self) -> Arguments {
        Arguments::of(&[("ActionType", self.0.0.word())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_says_its_handles_places_fences_and_flags() {
        let mut record = DXGKARG_PREEMPTCOMMAND::zeroed();
        (record.PreemptionFenceId, record.NodeOrdinal) = (0x125, 2);
        let context: HANDLE = core::ptr::without_provenance_mut(0x77);
        let mut all = Argument(context).kept();
        all.add(&Argument(&raw const record).kept());
        let call = DdiCall { name: "DxgkDdiPreemptCommand", arguments: all.without(0x77) };
        assert_eq!(
            call.to_string(),
            "DxgkDdiPreemptCommand(PreemptionFenceId 0x125, NodeOrdinal 0x2, EngineOrdinal 0x0, Flags 0x0)"
        );
        assert_eq!((call.get("NodeOrdinal"), call.get("handle"), call.get("hContext")), (Some(2), None, None));
    }

    /// The context of the adapter, which the driver is passed first, costs no member of the record its place.
    #[test]
    fn all_members_have_room_beside_the_drivers_own_context() {
        let mut record = DXGKARG_SUBMITCOMMANDVIRTUAL::zeroed();
        (record.hContext, record.SubmissionFenceId) = (core::ptr::without_provenance_mut(0x55), 3);
        (record.NodeOrdinal, record.DmaBufferSize, record.Flags.Value) = (1, 0x40, 0x8);
        let context: HANDLE = core::ptr::without_provenance_mut(0x77);
        let mut all = Argument(context).kept();
        all.add(&Argument(&raw const record).kept());
        let call = DdiCall { name: "DxgkDdiSubmitCommandVirtual", arguments: all.without(0x77) };
        let members = [
            ("hContext", 0x55),
            ("SubmissionFenceId", 3),
            ("NodeOrdinal", 1),
            ("EngineOrdinal", 0),
            ("DmaBufferSize", 0x40),
            ("Flags", 0x8),
        ];
        assert_eq!(call.members(), members);
        // The handle of another is no context of the adapter's.
        assert_eq!(all.without(0x78).members()[0], ("handle", 0x77));
        assert_eq!(all.without(0x78).members().len(), 7);
    }

    #[test]
    fn records_that_are_not_there_are_not_read() {
        let none: *const DXGKARG_PREEMPTCOMMAND = core::ptr::null();
        assert_eq!(Argument(none).kept().members(), []);
        let mut record = DXGKARG_UPDATECURRENTVALUESFROMCPU::zeroed();
        record.NumFences = 2;
        assert_eq!(record.kept().members(), [("NumFences", 2), ("Flags", 0)]);
    }

    #[test]
    fn of_paging_the_operation_is_kept_and_where_it_is() {
        let mut record = DXGKARG_BUILDPAGINGBUFFER::zeroed();
        record.Operation = DXGK_BUILDPAGINGBUFFER_OPERATION::DXGK_OPERATION_FLUSH_TLB;
        let flush = record.FlushTlb_mut();
        (flush.StartVirtualAddress, flush.EndVirtualAddress) = (0x1000, 0x3000);
        let kept = record.kept();
        let members =
            [("Operation", 12), ("hProcess", 0), ("StartVirtualAddress", 0x1000), ("EndVirtualAddress", 0x3000)];
        assert_eq!(kept.members(), members);
        record.Operation = DXGK_BUILDPAGINGBUFFER_OPERATION::DXGK_OPERATION_VIRTUAL_TRANSFER;
        let transfer = record.TransferVirtual_mut();
        (transfer.hAllocation, transfer.TransferSizeInBytes) = (core::ptr::without_provenance_mut(0x66), 0x2000);
        assert_eq!(record.kept().members()[1..3], [("hAllocation", 0x66), ("TransferSizeInBytes", 0x2000)]);
    }

    #[test]
    fn a_queues_progress_fence_is_all_of_its_place() {
        let mut record = DXGKARG_CREATEHWQUEUE::zeroed();
        record.hHwQueueProgressFence = 0x4000_0040;
        let call = DdiCall { name: "DxgkDdiCreateHwQueue", arguments: record.kept() };
        assert_eq!(call.get("hHwQueueProgressFence"), Some(0x4000_0040));
    }

    #[test]
    fn a_handle_by_itself_is_kept_and_a_plain_number_is_not() {
        let handle: HANDLE = core::ptr::without_provenance_mut(0x88);
        let mut all = Argument(handle).kept();
        all.add(&(&Argument(5_u32)).kept());
        let call = DdiCall { name: "DxgkDdiDestroyHwQueue", arguments: all.without(0x77) };
        assert_eq!(call.to_string(), "DxgkDdiDestroyHwQueue(handle 0x88)");
    }

    #[test]
    fn of_an_update_the_first_fence_is_kept() {
        let (mut fences, mut values) = ([core::ptr::without_provenance_mut(0x99)], [7]);
        let mut record = DXGKARG_UPDATEMONITOREDVALUES::zeroed();
        (record.NativeFenceArray, record.UpdatedValueArray) = (fences.as_mut_ptr(), values.as_mut_ptr());
        assert_eq!(record.kept().members(), [("NumFences", 0), ("Flags", 0)]);
        record.NumFences = 1;
        let kept = record.kept();
        assert_eq!(kept.members()[2..], [("NativeFenceArray", 0x99), ("UpdatedValueArray", 7)]);
    }
}
