//! Debug blobs in a dump of Windows.

use super::{HEADER, has_room};
use gpu_wire::debug_blob::{SIGNATURE, kind, sections};
use std::collections::BTreeSet;
use std::io::{self, Read};

/// Returns whether a file begins as a dump of Windows does: `MDMP` (minidumps), `PAGE` (kernel dumps and live dumps).
pub fn is_dump(beginning: &[u8]) -> bool {
    [&b"MDMP"[..], b"PAGE"].iter().any(|magic| beginning.starts_with(magic))
}

/// The debug blobs in a dump: Windows keeps what `DxgkDdiCollectDbgInfo` wrote in the dump of a timeout, at no place
/// that is documented, so each is looked for by its first bytes; one that is there twice is given once. What follows
/// these bytes and is no head of a blob is left out, as the driver's own constant is.
///
/// # Errors
/// Those of reading.
pub fn in_dump(dump: impl Read) -> io::Result<Vec<Vec<u8>>> {
    /// Bytes of a blob, at most.
    const BLOB: usize = 1 << 20;
    /// Bytes that are read at a time.
    const PIECE: u64 = 16 << 20;
    let mut dump = dump;
    let (mut bytes, mut found) = (Vec::new(), Vec::new());
    let mut known = BTreeSet::new();
    loop {
        let read = dump.by_ref().take(PIECE).read_to_end(&mut bytes)?;
        // What begins in the last bytes is looked at with what follows them.
        let end = if read == 0 { bytes.len() } else { bytes.len().saturating_sub(BLOB) };
        let mut at = 0;
        while at < end {
            let rest = &bytes[at..];
            if rest.starts_with(&SIGNATURE)
                && let Some(length) = length(&rest[..rest.len().min(BLOB)])
            {
                // A dump may have the driver's own buffer as well as what the system made of it.
                if known.insert(rest[..length].to_vec()) {
                    found.push(rest[..length].to_vec());
                }
                at += length;
            } else {
                at += 1 + rest[1..].iter().position(|byte| *byte == SIGNATURE[0]).unwrap_or(rest.len() - 1);
            }
        }
        bytes.drain(..at.min(bytes.len()));
        if read == 0 {
            return Ok(found);
        }
    }
}

/// The length of the blob that `bytes` begin with, by its sections; `None` where they do not begin with a whole head.
fn length(bytes: &[u8]) -> Option<usize> {
    let mut length = SIGNATURE.len();
    for (number, section) in sections(bytes.get(length..)?).enumerate() {
        let words = section.words().count();
        let is_known = (kind::HEAD..=kind::FENCE).contains(&section.kind) && has_room(section.kind, words);
        if section.missing != 0 || !is_known || (number == 0) != (section.kind == kind::HEAD) {
            break;
        }
        length += 8 + words * 8;
    }
    (length >= HEADER).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::super::decode;
    use super::super::tests::{blob_of, head};
    use super::*;

    /// Blobs in a dump are found wherever they lie, also across pieces that are read; a lone signature is none.
    #[test]
    fn blobs_are_found_in_a_dump() {
        // Without the section that a later version adds.
        let whole = blob_of(head(0));
        let blob = &whole[..length(&whole).unwrap()];
        assert_eq!(whole.len() - blob.len(), 8 + 2 * 8);
        let mut dump = b"PAGEDU64".to_vec();
        assert!(is_dump(&dump) && is_dump(b"MDMP") && !is_dump(blob));
        dump.extend_from_slice(&SIGNATURE);
        dump.extend([0xFF; 100]);
        dump.extend_from_slice(blob);
        dump.resize((16 << 20) - 40, 0x46);
        let other = blob_of(head(1));
        dump.extend_from_slice(&other[..blob.len()]);
        dump.extend_from_slice(blob);
        dump.extend([0; 9]);
        assert_eq!(in_dump(&dump[..]).unwrap(), [blob, &other[..blob.len()]]);
        assert_eq!(in_dump(&dump[..dump.len() - 20 - blob.len()]).unwrap().len(), 2);
        assert_eq!(in_dump(&b"PAGEDU64"[..]).unwrap(), [[0_u8; 0]; 0]);
        assert!(decode(blob).is_ok());
    }
}
