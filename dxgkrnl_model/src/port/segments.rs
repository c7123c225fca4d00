//! `QUERYSEGMENT4`: how many segments there are, then what they are, once with descriptors further apart than their
//! size and once as a real system asks.

use wddm_abi::{
    DXGK_QUERYADAPTERINFOTYPE, DXGK_QUERYSEGMENTIN4, DXGK_QUERYSEGMENTOUT4, DXGK_SEGMENTDESCRIPTOR4, NTSTATUS, Plain,
};

use crate::port::caps::{Caps, Segment};
use crate::port::miniport::Miniport;
use crate::port::query::{Buffer, Query};
use crate::port::rules::start::{QAI_OVERRUN, QAI_REQUIRED, SEGMENT_PROBE, SEGMENT_STRIDE};

/// Size of a descriptor, and their distance on a system whose headers are the driver's.
const SIZE: usize = size_of::<DXGK_SEGMENTDESCRIPTOR4>();
/// A distance that is larger than the structure, so that a driver that walks by sizeof is seen.
const STRIDE: usize = SIZE + 40;
/// What descriptors are filled with before the driver writes them.
const FILL: u8 = 0x5C;
/// More segments than this are not asked for: a segment set has 32 bits.
const MAX_SEGMENTS: u32 = 32;

impl Miniport {
    /// Asks for the segments. False when the driver cannot say.
    pub(crate) fn query_segments(&self, caps: &mut Caps) -> bool {
        let Some(count) = self.probe_segments() else { return false };
        // What is read of such an answer is how the driver walks, not what its segments are.
        let (apart, _, status) = self.describe_segments(count, STRIDE);
        if status.is_success() {
            self.judge_stride(&apart, count);
        }
        let (descriptors, answer, status) = self.describe_segments(count, SIZE);
        self.note(format!("query QUERYSEGMENT4 ({count} segments)"), format!("{status:?}"));
        let held = self.rules().check(&QAI_REQUIRED, status.is_success(), || format!("QUERYSEGMENT4: {status:?}"));
        if !held {
            return false;
        }
        caps.paging_buffer_segment = answer.PagingBufferSegmentId;
        caps.paging_buffer_size = answer.PagingBufferSize;
        caps.paging_private_size = answer.PagingBufferPrivateDataSize;
        let at = |index: u32| DXGK_SEGMENTDESCRIPTOR4::from_bytes(&descriptors.bytes()[index as usize * SIZE..]);
        let segments = (0..count).filter_map(|index| Some(Segment { id: index + 1, descriptor: at(index)? }));
        caps.segments = segments.collect();
        true
    }

    /// The second call: `count` descriptors, so many bytes apart.
    fn describe_segments(&self, count: u32, stride: usize) -> (Buffer, DXGK_QUERYSEGMENTOUT4, NTSTATUS) {
        let mut descriptors = Buffer::new(stride * count as usize, FILL);
        let mut out = DXGK_QUERYSEGMENTOUT4::zeroed();
        out.NbSegment = count;
        out.pSegmentDescriptor = descriptors.pointer();
        out.SegmentDescriptorStride = stride;
        let (status, answer) = self.query_segment(out);
        (descriptors, answer, status)
    }

    /// The first call: only the count.
    ///
    /// Source: DDI page DXGK_QUERYSEGMENTOUT4 (no other member is accessed); article
    /// initializing-use-of-memory-segments (pSegmentDescriptor is NULL in the first call, said of the structures before
    /// this one): drivers tell the two calls by either.
    fn probe_segments(&self) -> Option<u32> {
        let mut out = DXGK_QUERYSEGMENTOUT4::zeroed();
        out.as_bytes_mut().fill(FILL);
        (out.NbSegment, out.pSegmentDescriptor) = (0, core::ptr::null_mut());
        let asked = out;
        let (status, answer) = self.query_segment(out);
        self.note("query QUERYSEGMENT4 (count)", format!("{status:?}, {} segments", answer.NbSegment));
        // The count and the four bytes of padding behind it are the driver's; nothing else is.
        let rest = answer.as_bytes()[8..] == asked.as_bytes()[8..];
        let held = self.rules().check(&SEGMENT_PROBE, status.is_success() && rest, || {
            format!("{status:?}, {}", if rest { "only the count written" } else { "more than the count written" })
        });
        (held || status.is_success()).then_some(answer.NbSegment.min(MAX_SEGMENTS)).filter(|count| *count != 0)
    }

    fn query_segment(&self, out: DXGK_QUERYSEGMENTOUT4) -> (NTSTATUS, DXGK_QUERYSEGMENTOUT4) {
        let input = DXGK_QUERYSEGMENTIN4::zeroed();
        let mut output = Buffer::new(size_of::<DXGK_QUERYSEGMENTOUT4>(), 0);
        output.bytes_mut().copy_from_slice(out.as_bytes());
        let kind = DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_QUERYSEGMENT4;
        let query = Query { input: input.as_bytes(), ..Query::of(kind) };
        let status = self.query(&query, &mut output);
        (status, output.record().unwrap_or(out))
    }

    fn judge_stride(&self, descriptors: &Buffer, count: u32) {
        let untouched = |range: core::ops::Range<usize>| descriptors.bytes()[range].iter().all(|byte| *byte == FILL);
        let wrong = (0..count as usize).find(|index| {
            let start = index * STRIDE;
            !untouched(start + SIZE..start + STRIDE) || untouched(start..start + SIZE)
        });
        self.rules().check(&SEGMENT_STRIDE, wrong.is_none(), || {
            format!("descriptor {} is not {STRIDE} bytes behind the one before it", wrong.unwrap_or_default())
        });
        let overrun = descriptors.overrun();
        self.rules().check(&QAI_OVERRUN, overrun.is_none(), || {
            format!("bytes behind the last segment descriptor were written, at {overrun:?}")
        });
    }
}
