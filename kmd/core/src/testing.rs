//! Kernel-mode testing: command buffers that the driver builds for Microsoft's tests. Such a buffer goes to user mode
//! and comes back by a submission, so that the engine trusts it no more than any other.
//!
//! A buffer holds one command, which needs 32 bytes and no private data. Copies and fills are built. The two loops of
//! the newer header, endless ones, are refused: a buffer that does not know its own address cannot jump to itself.
//!
//! Source: *Kernel mode testing of WDDM features*; `DXGKDDI_BUILDTESTCOMMANDBUFFER`; `D3DDDI_TESTCOMMANDBUFFER`.

use crate::status::{Error, Result};
use gpu_wire::packet::{self, Encoded};
use wddm_abi::{D3DDDI_TESTCOMMANDBUFFER, D3DDDI_TESTCOMMANDBUFFEROP};

/// Granularity of `NumBytes`.
const UNIT: u32 = 4;

/// What a buffer for `command` holds. A command of no bytes is a packet that does nothing.
///
/// # Errors
/// [`Error::InvalidParameter`] for an operation that does not exist, for a length or the destination of a fill that is
/// no multiple of 4, and for a copy onto itself; [`Error::NotSupported`] for a loop.
pub fn packet(command: &D3DDDI_TESTCOMMANDBUFFER) -> Result<Encoded> {
    match command.Operation {
        D3DDDI_TESTCOMMANDBUFFEROP::D3DDDI_TESTCOMMANDBUFFEROP_COPY => {
            let copy = command.Copy();
            let (source, destination, length) = (copy.SrcAddress, copy.DstAddress, u64::from(copy.NumBytes));
            if !copy.NumBytes.is_multiple_of(UNIT) || source.abs_diff(destination) < length {
                return Err(Error::InvalidParameter);
            }
            Ok(match length {
                0 => Encoded::nop(packet::HEADER_SIZE as u32),
                _ => packet::Copy { source, destination, length }.to_packet(),
            })
        }
        D3DDDI_TESTCOMMANDBUFFEROP::D3DDDI_TESTCOMMANDBUFFEROP_FILL => {
            let fill = command.Fill();
            if !fill.NumBytes.is_multiple_of(UNIT) || !fill.DstAddress.is_multiple_of(UNIT.into()) {
                return Err(Error::InvalidParameter);
            }
            let (address, pattern) = (fill.DstAddress, fill.Pattern);
            Ok(match fill.NumBytes {
                0 => Encoded::nop(packet::HEADER_SIZE as u32),
                length => packet::Fill { address, length: length.into(), pattern, reserved: 0 }.to_packet(),
            })
        }
        D3DDDI_TESTCOMMANDBUFFEROP::D3DDDI_TESTCOMMANDBUFFEROP_INFINITE_LOOP
        | D3DDDI_TESTCOMMANDBUFFEROP::D3DDDI_TESTCOMMANDBUFFEROP_INFINITE_PREEMPTABLE_LOOP => Err(Error::NotSupported),
        _ => Err(Error::InvalidParameter),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_wire::packet::{Packet, Privilege};
    use wddm_abi::D3DDDI_TESTCOMMANDBUFFEROP as Operation;

    fn copy(source: u64, destination: u64, bytes: u32) -> D3DDDI_TESTCOMMANDBUFFER {
        let mut command = D3DDDI_TESTCOMMANDBUFFER::zeroed();
        command.Operation = Operation::D3DDDI_TESTCOMMANDBUFFEROP_COPY;
        let copy = command.Copy_mut();
        (copy.SrcAddress, copy.DstAddress, copy.NumBytes) = (source, destination, bytes);
        command
    }

    #[test]
    fn a_buffer_is_one_packet_of_user_mode() {
        let packet = packet(&copy(0x1000, 0x2000, 0x1000)).expect("a copy");
        let bytes = packet.as_bytes();
        let body = packet::Copy { source: 0x1000, destination: 0x2000, length: 0x1000 };
        assert_eq!((bytes.len(), Packet::decode(bytes, Privilege::User)), (32, Ok(Packet::Copy(body))));
    }

    #[test]
    fn what_an_engine_would_fault_at_is_refused() {
        let refused = |command| packet(&command).map(|_| ());
        assert_eq!(refused(copy(0x1000, 0x1ffc, 0x1000)), Err(Error::InvalidParameter));
        assert_eq!(refused(copy(0x1ffc, 0x1000, 0x1000)), Err(Error::InvalidParameter));
        assert_eq!(refused(copy(0, u64::MAX, u32::MAX)), Err(Error::InvalidParameter));
        assert_eq!(refused(copy(0x1000, 0x1000, 0)), Ok(()));
        for (operation, error) in [(0, Error::InvalidParameter), (3, Error::NotSupported), (5, Error::InvalidParameter)]
        {
            let command = D3DDDI_TESTCOMMANDBUFFER { Operation: Operation(operation), ..copy(0, 0x1000, 4) };
            assert_eq!(refused(command), Err(error), "operation {operation}");
        }
    }
}
