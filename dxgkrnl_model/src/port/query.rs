//! Asking the driver by `DxgkDdiQueryAdapterInfo`, with the buffer's surroundings watched.

use nt_model::PAGE_SIZE;
use wddm_abi::{DXGK_QUERYADAPTERINFOTYPE, DXGKARG_QUERYADAPTERINFO, HANDLE, NTSTATUS, Plain, ntstatus};

use crate::port::ddi::{self, call_ddi};
use crate::port::miniport::Miniport;
use crate::port::poison;
use crate::port::rules::start::{QAI_OVERRUN, QAI_STATUS};

/// Bytes watched behind an output buffer.
const GUARD: usize = 64;

/// An output buffer, 16-byte aligned, with watched bytes behind it.
#[derive(Debug)]
pub(crate) struct Buffer {
    words: Vec<u128>,
    /// Where the buffer begins in them, in bytes.
    start: usize,
    size: usize,
}

impl Buffer {
    /// `size` bytes of `fill`.
    pub(crate) fn new(size: usize, fill: u8) -> Self {
        let words = vec![u128::from_le_bytes([poison::BYTE; 16]); (size + GUARD).div_ceil(16)];
        let mut this = Self { words, start: 0, size };
        this.bytes_mut().fill(fill);
        this
    }

    /// `size` bytes of 0 that begin at a page, as DMA buffers do.
    pub(crate) fn of_pages(size: usize) -> Self {
        let mut this = Self::new(size + PAGE_SIZE, poison::BYTE);
        let at = this.words.as_ptr().addr();
        (this.start, this.size) = (at.next_multiple_of(PAGE_SIZE) - at, size);
        this.bytes_mut().fill(0);
        this
    }

    /// Returns whether `pointer` is an address in the buffer, or the one behind it.
    pub(crate) fn holds<T>(&self, pointer: *const T) -> bool {
        let start = self.words.as_ptr().addr() + self.start;
        (start..=start + self.size).contains(&pointer.addr())
    }

    fn all(&self) -> &[u8] {
        self.words.as_slice().as_flattened_bytes()
    }

    /// The buffer proper.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.all()[self.start..self.start + self.size]
    }

    /// The buffer proper.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let (start, end) = (self.start, self.start + self.size);
        &mut self.words.as_mut_slice().as_flattened_bytes_mut()[start..end]
    }

    /// Its address.
    pub(crate) fn pointer(&mut self) -> *mut u8 {
        self.bytes_mut().as_mut_ptr()
    }

    /// Offset of the first byte behind the buffer that was written.
    pub(crate) fn overrun(&self) -> Option<usize> {
        self.all()[self.start + self.size..].iter().position(|byte| *byte != poison::BYTE)
    }

    /// The record at the start.
    pub(crate) fn record<T: Plain>(&self) -> Option<T> {
        T::from_bytes(self.bytes())
    }
}

/// Words as the bytes that they are.
trait Flatten {
    fn as_flattened_bytes(&self) -> &[u8];
    fn as_flattened_bytes_mut(&mut self) -> &mut [u8];
}

#[expect(unsafe_code, reason = "integers are looked at as bytes")]
impl Flatten for [u128] {
    fn as_flattened_bytes(&self) -> &[u8] {
        // SAFETY: integers have no padding, and any alignment is enough for bytes.
        unsafe { core::slice::from_raw_parts(self.as_ptr().cast(), size_of_val(self)) }
    }

    fn as_flattened_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, borrowed exclusively; any bytes are integers.
        unsafe { core::slice::from_raw_parts_mut(self.as_mut_ptr().cast(), size_of_val(self)) }
    }
}

/// One query.
#[derive(Debug)]
pub(crate) struct Query<'a> {
    pub(crate) kind: DXGK_QUERYADAPTERINFOTYPE,
    pub(crate) input: &'a [u8],
    /// Whether the output buffer is the input as well; `input` is empty then.
    pub(crate) in_place: bool,
    /// The driver's handle of the process on whose behalf it is.
    pub(crate) process: HANDLE,
}

impl Query<'_> {
    /// One without input, on nobody's behalf.
    pub(crate) fn of(kind: DXGK_QUERYADAPTERINFOTYPE) -> Self {
        Self { kind, input: &[], in_place: false, process: core::ptr::null_mut() }
    }
}

/// The type with this name, less its prefix.
pub(crate) fn type_by_name(name: &str) -> Option<DXGK_QUERYADAPTERINFOTYPE> {
    let matches = |known: &str| known.strip_prefix("DXGKQAITYPE_") == Some(name);
    DXGK_QUERYADAPTERINFOTYPE::VALUES.iter().find(|(_, known)| matches(known)).map(|(value, _)| *value)
}

impl Miniport {
    /// Asks the driver. What it writes beyond the buffer breaks DXG-QAI-OVERRUN, a status that the page does not list
    /// DXG-QAI-STATUS.
    pub(crate) fn query(&self, query: &Query<'_>, output: &mut Buffer) -> NTSTATUS {
        let status = self.query_unjudged(query, output);
        let listed = status.is_success()
            || matches!(
                status,
                ntstatus::STATUS_INVALID_PARAMETER
                    | ntstatus::STATUS_NO_MEMORY
                    | ntstatus::STATUS_GRAPHICS_DRIVER_MISMATCH
                    | ntstatus::STATUS_SYSTEM_SHUTDOWN
            );
        self.rules().check(&QAI_STATUS, listed, || format!("{:?}: {status:?}", query.kind));
        status
    }

    /// [`query`](Self::query) without a word on the status.
    pub(crate) fn query_unjudged(&self, query: &Query<'_>, output: &mut Buffer) -> NTSTATUS {
        let mut input = Buffer::new(query.input.len(), 0);
        input.bytes_mut().copy_from_slice(query.input);
        let mut arguments = DXGKARG_QUERYADAPTERINFO::zeroed();
        arguments.Type = query.kind;
        if !query.input.is_empty() {
            arguments.pInputData = input.pointer().cast();
            // CAST: inputs are a few bytes.
            arguments.InputDataSize = query.input.len() as u32;
        }
        arguments.pOutputData = output.pointer().cast();
        // CAST: user mode's private data is limited to 32 bits of size before it comes here.
        arguments.OutputDataSize = output.size as u32;
        if query.in_place {
            (arguments.pInputData, arguments.InputDataSize) = (arguments.pOutputData, arguments.OutputDataSize);
        }
        arguments.hKmdProcessHandle = query.process;
        let context = self.context();
        let pointer = &raw const arguments;
        let status = ddi::status(call_ddi!(self, DxgkDdiQueryAdapterInfo(context, pointer)));
        self.rules().check(&QAI_OVERRUN, output.overrun().is_none(), || {
            let at = output.overrun().unwrap_or_default();
            format!("{:?}: byte {} of {} was written", query.kind, output.size + at, output.size)
        });
        status
    }

    /// Asks for a record; the status says whether it is one.
    pub(crate) fn query_record<T: Plain>(
        &self,
        kind: DXGK_QUERYADAPTERINFOTYPE,
        input: &[u8],
    ) -> (NTSTATUS, Option<T>) {
        let mut output = Buffer::new(size_of::<T>(), 0);
        let query = Query { input, ..Query::of(kind) };
        let status = self.query(&query, &mut output);
        let record = if status.is_success() { output.record() } else { None };
        (status, record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_behind_the_buffer_is_seen() {
        let mut buffer = Buffer::new(13, 0);
        assert_eq!(buffer.overrun(), None);
        let pointer = buffer.pointer();
        crate::port::raw::copy_to(pointer.expose_provenance() + 15, &[1]);
        assert_eq!(buffer.overrun(), Some(2));
    }

    #[test]
    fn types_are_found_by_name() {
        assert_eq!(type_by_name("DRIVERCAPS"), Some(DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_DRIVERCAPS));
        assert_eq!(type_by_name("NOTHING"), None);
    }
}
