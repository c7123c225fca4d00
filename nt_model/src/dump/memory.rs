//! What memory a dump holds.
#![expect(unsafe_code, reason = "reads the process's own memory by a system call, which faults nowhere")]

use std::ops::Range;

use crate::kernel::Machine;
use crate::memory::regions::{Backing, Purpose, Region};
use crate::memory::{PAGE_SIZE, Rights};

/// Memory that was read, as ranges that do not overlap.
#[derive(Clone, Debug)]
pub(crate) struct Collected {
    limit: usize,
    bytes: usize,
    /// Address and content, in the order of collecting.
    pub(crate) ranges: Vec<(u64, Vec<u8>)>,
    /// Bytes that were not taken for the limit's sake.
    pub(crate) left_out: usize,
}

impl Collected {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, bytes: 0, ranges: Vec::new(), left_out: 0 }
    }

    /// Reads what is readable of `range` and not there yet, page by page.
    pub(crate) fn add(&mut self, range: Range<usize>) {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at - at % PAGE_SIZE + PAGE_SIZE);
            self.add_part(at, end - at);
            at = end;
        }
    }

    /// Up to a page.
    fn add_part(&mut self, at: usize, bytes: usize) {
        let start = at as u64;
        let known = |(from, content): &(u64, Vec<u8>)| start >= *from && start < from + content.len() as u64;
        if self.ranges.iter().rev().any(known) {
            return;
        }
        if self.bytes + bytes > self.limit {
            self.left_out += bytes;
            return;
        }
        let mut content = vec![0; bytes];
        if !read(at, &mut content) {
            return;
        }
        self.bytes += bytes;
        match self.ranges.last_mut() {
            Some((from, last)) if *from + last.len() as u64 == start => last.extend(content),
            _ => self.ranges.push((start, content)),
        }
    }
}

/// Reads memory of this process. Returns whether all of it was there to be read.
pub(crate) fn read(at: usize, into: &mut [u8]) -> bool {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: core::ptr::with_exposed_provenance_mut(at), iov_len: into.len() };
    // CAST: the host's ids of processes are positive and small.
    let process = std::process::id() as i32;
    // SAFETY: `local` describes a slice that is borrowed for the call; the other range is only read, by the kernel,
    // which answers an error where nothing is mapped.
    let count = unsafe { libc::process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(count) == Ok(into.len())
}

/// The eight bytes at `at`, if it is an address of any.
pub(crate) fn word(at: usize) -> Option<u64> {
    let mut bytes = [0; 8];
    (at != 0 && read(at, &mut bytes)).then(|| u64::from_le_bytes(bytes))
}

/// Pool first, then the smaller first: rings, doorbells, fences and logs are a few pages each, a video memory is not.
fn order(region: &Region) -> (bool, usize) {
    (region.purpose != Purpose::Pool, region.bytes)
}

impl Machine {
    /// The mapped memory of the machine, in the order of what a debugger needs first. `None`: another
    /// thread had the table of it for too long.
    pub(crate) fn ranges_that_matter(&self) -> Option<Vec<Range<usize>>> {
        let readable = |region: &Region| matches!(region.backing, Backing::Pages(_)) && region.rights != Rights::None;
        let mut regions = self.memory.regions.peek(readable)?;
        regions.sort_by_key(|region| order(region));
        Some(regions.iter().map(|region| region.range()).collect())
    }
}
