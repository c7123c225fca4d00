//! Singly linked lists, and the lookaside lists on them.
//!
//! `ExAllocateFromNPagedLookasideList` and its counterpart are inline: they count, pop and push by the routines here,
//! and call the list's `Allocate` and `Free`. A list keeps nothing that is freed to it (its depth is 0, which Windows
//! reckons anew by itself): an entry is pool again at once, and its use behind that is seen.
//!
//! Source: wdm.h `GENERAL_LOOKASIDE`, `SLIST_HEADER` of x64; DDI pages ExInitializeNPagedLookasideList,
//! ExInterlockedPopEntrySList.

use parking_lot::Mutex;

use crate::callback;
use crate::kernel::Machine;
use crate::routines;
use crate::rules::Details;
use crate::rules_nt::{NT_LOOKASIDE, NT_POINTER};
use crate::shim::{self, In};
use crate::shims;

/// `GENERAL_LOOKASIDE` by words of eight bytes: the header of the list is the first two.
type Lookaside = [u64; 16];

/// The word with Depth, MaximumDepth and TotalAllocates.
const DEPTHS: usize = 2;
/// The word with FreeMisses and, in its upper half, Type.
const TYPE: usize = 4;
/// The word with Tag and Size.
const TAG: usize = 5;
/// The word with Allocate.
const ALLOCATE: usize = 6;
/// The word with Free.
const FREE: usize = 7;
/// Most entries that a list keeps when the system makes use of it.
const MAXIMUM_DEPTH: u64 = 256;
/// `POOL_NX_ALLOCATION`, which is added to `NonPagedPool`.
const POOL_NX_ALLOCATION: u32 = 512;
/// `POOL_RAISE_IF_ALLOCATION_FAILURE`.
const POOL_RAISE: u32 = 16;

/// Keeps two threads from changing a header at once. The memory of entries is not touched under it.
static HEADERS: Mutex<()> = Mutex::new(());

/// The header at an address: depth, sequence, and the first entry's address; NULL where there is none.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Header {
    depth: u16,
    sequence: u64,
    first: usize,
}

impl Header {
    fn read(address: usize) -> Self {
        let bytes = shim::read_bytes(address, 16);
        let (depth, first) = (shim::number(&bytes[..8]), shim::number(&bytes[8..]));
        // CAST: the low 16 bits; the address has its low four bits clear.
        Self { depth: depth as u16, sequence: depth >> 16, first: (first & !0xF) as usize }
    }

    fn write(self, address: usize) {
        let words = [self.sequence << 16 | u64::from(self.depth), self.first as u64];
        shim::write_bytes(address, &words.map(u64::to_le_bytes).concat());
    }

    fn next(self, depth: u16, first: usize) -> Self {
        Self { depth, sequence: (self.sequence + 1) & 0xFFFF_FFFF_FFFF, first }
    }
}

/// Changes a header at once with what was seen of it. Returns `false` where it is another meanwhile.
fn exchange(address: usize, seen: Header, new: Header) -> bool {
    let _headers = HEADERS.lock();
    let same = Header::read(address) == seen;
    if same {
        new.write(address);
    }
    same
}

fn is_aligned(m: &Machine, address: usize) -> bool {
    m.rules.check(&NT_POINTER, address.is_multiple_of(16), || {
        Details::new(format!("{address:#x} is not aligned to 16 bytes, as an SLIST_HEADER and its entries are"))
            .params([address as u64, 0, 0])
    })
}

/// Takes the first entry. NULL: there is none.
fn pop(address: usize) -> usize {
    loop {
        let seen = Header::read(address);
        if seen.first == 0 {
            return 0;
        }
        // CAST: a pointer of the driver's.
        let next = shim::number(&shim::read_bytes(seen.first, 8)) as usize;
        if exchange(address, seen, seen.next(seen.depth.wrapping_sub(1), next)) {
            return seen.first;
        }
    }
}

/// Makes a lookaside list: words of its record.
fn lookaside(kind: u32, size: usize, tag: u32, allocate: usize, free: usize) -> Lookaside {
    let mut words = [0; 16];
    words[DEPTHS] = MAXIMUM_DEPTH << 16;
    words[TYPE] = u64::from(kind) << 32;
    // CAST: the member has 32 bits.
    words[TAG] = u64::from(tag) | (size as u64 & 0xFFFF_FFFF) << 32;
    (words[ALLOCATE], words[FREE]) = (allocate as u64, free as u64);
    words
}

/// A routine's address where the driver has named none of its own.
fn or_pool(m: &Machine, own: usize, name: &str) -> usize {
    if own == 0 { m.system_routine(name).unwrap_or(0) } else { own }
}

shims! {
    pub(crate) table LOOKASIDE;

    fn InitializeSListHead(m, header: usize) {
        if is_aligned(m, header) {
            shim::write_bytes(header, &[0; 16]);
        }
    }

    fn ExQueryDepthSList(m, header: usize) -> u16 {
        let _service = m.service(&routines::EX_QUERY_DEPTH_S_LIST, [header as u64]);
        Header::read(header).depth
    }

    fn ExpInterlockedPushEntrySList(m, header: usize, entry: usize) -> usize {
        if !is_aligned(m, header) || !is_aligned(m, entry) {
            return 0;
        }
        loop {
            let seen = Header::read(header);
            shim::write_bytes(entry, &seen.first.to_le_bytes());
            if exchange(header, seen, seen.next(seen.depth.wrapping_add(1), entry)) {
                return seen.first;
            }
        }
    }

    fn ExpInterlockedPopEntrySList(m, header: usize) -> usize {
        if is_aligned(m, header) { pop(header) } else { 0 }
    }

    fn ExpInterlockedFlushSList(m, header: usize) -> usize {
        if !is_aligned(m, header) {
            return 0;
        }
        loop {
            let seen = Header::read(header);
            if exchange(header, seen, seen.next(0, 0)) {
                return seen.first;
            }
        }
    }

    // The depth that the driver names is reserved.
    fn ExInitializeNPagedLookasideList(
        m, list: In<Lookaside>, allocate: usize, free: usize, flags: u32, size: usize, tag: u32, _depth: u16,
    ) {
        let address = list.address();
        let arguments = [address as u64, allocate as u64, free as u64, flags.into(), size as u64, tag.into()];
        let _service = m.service(&routines::EX_INITIALIZE_N_PAGED_LOOKASIDE_LIST, arguments);
        let is_new = m.paired.begin_lookaside(address);
        m.rules.check(&NT_LOOKASIDE, is_new, || format!("{address:#x} is a lookaside list already"));
        let kind = flags & (POOL_NX_ALLOCATION | POOL_RAISE);
        let allocate = or_pool(m, allocate, "ExAllocatePoolWithTag");
        let words = lookaside(kind, size, tag, allocate, or_pool(m, free, "ExFreePool"));
        if is_aligned(m, address) {
            shim::write_bytes(address, &words.map(u64::to_le_bytes).concat()[..0x60]);
        }
    }

    fn ExDeleteNPagedLookasideList(m, list: In<Lookaside>) {
        let address = list.address();
        let _service = m.service(&routines::EX_DELETE_N_PAGED_LOOKASIDE_LIST, [address as u64]);
        let known = m.paired.end_lookaside(address);
        let known = m.rules.check(&NT_LOOKASIDE, known, || format!("{address:#x} is no lookaside list"));
        // CAST: an address.
        let free = list.get()[FREE] as usize;
        if known {
            let entries = std::iter::repeat_with(|| pop(address)).take_while(|entry| *entry != 0);
            entries.for_each(|entry| _ = callback::invoke(free, [entry]));
        }
    }
}
