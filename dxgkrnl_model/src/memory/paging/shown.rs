//! A paging operation in words, as a finding names it.

use std::fmt;

use super::{ApertureRange, Op};

impl fmt::Display for ApertureRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages from {:#x} of aperture {}, ", self.pages, self.first, self.segment)?;
        match self.allocation {
            0 => f.write_str("for no allocation"),
            handle => write!(f, "allocation {handle:#x}"),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Update { update, process, mode } => write!(
                f,
                "DXGK_OPERATION_UPDATE_PAGE_TABLE of process {process:#x} ({mode:?}): level {}, entries {} to {}, {}for \
                 address {:#x}",
                update.level,
                update.start,
                update.start + update.count.saturating_sub(1),
                if update.initial { "the first of a new table, " } else { "" },
                update.address,
            ),
            Self::Flush { process, start, end, .. } => {
                write!(f, "DXGK_OPERATION_FLUSH_TLB of process {process:#x}, addresses {start:#x} to {end:#x}")
            }
            Self::Fill { allocation, offset, size, pattern, destination } => write!(
                f,
                "DXGK_OPERATION_VIRTUAL_FILL of allocation {allocation:#x}: {size} bytes from {offset:#x} at \
                 {destination:#x} with {pattern:#x}",
            ),
            Self::Transfer { allocation, offset, size, source, destination, direction } => write!(
                f,
                "DXGK_OPERATION_VIRTUAL_TRANSFER of allocation {allocation:#x}: {size} bytes from {offset:#x}, \
                 {source:#x} to {destination:#x} ({direction:?})",
            ),
            Self::MapAperture { range, .. } => write!(f, "DXGK_OPERATION_MAP_APERTURE_SEGMENT: {range}"),
            Self::UnmapAperture { range, .. } => write!(f, "DXGK_OPERATION_UNMAP_APERTURE_SEGMENT: {range}"),
            Self::NotifyResidency { allocation, segment, address, resident } => write!(
                f,
                "DXGK_OPERATION_NOTIFY_RESIDENCY: allocation {allocation:#x} {} segment {segment} at {address:#x}",
                if *resident { "comes into" } else { "leaves" },
            ),
            Self::Signal { address, value } => {
                write!(f, "DXGK_OPERATION_SIGNAL_MONITORED_FENCE: {value} at {address:#x}")
            }
            Self::Lost { allocation, segment, address, .. } => {
                write!(f, "the loss of allocation {allocation:#x} in segment {segment} at {address:#x}")
            }
            Self::CopyEntries(ranges) => write!(f, "DXGK_OPERATION_COPY_PAGE_TABLE_ENTRIES of {} ranges", ranges.len()),
            Self::Stray(operation) => write!(f, "operation {operation:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_the_operation_and_its_place() {
        let range = ApertureRange { allocation: 0, segment: 1, first: 0x10, pages: 3 };
        let text = Op::MapAperture { range, mdl: 7 }.to_string();
        assert_eq!(text, "DXGK_OPERATION_MAP_APERTURE_SEGMENT: 3 pages from 0x10 of aperture 1, for no allocation");
        let text = Op::Signal { address: 0x1000, value: 9 }.to_string();
        assert_eq!(text, "DXGK_OPERATION_SIGNAL_MONITORED_FENCE: 9 at 0x1000");
    }
}
