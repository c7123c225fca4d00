//! What the machine and a client process say to each other: one packet a message, of a Unix socket that keeps packets
//! apart.

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Descriptors that a message carries at most: the host's limit is 253.
pub const MOST_FILES: usize = 200;
/// Numbers in a message.
pub const WORDS: usize = 8;
/// Bytes of a message at most.
const MOST_BYTES: usize = 1 + 8 * WORDS + 16 * MOST_FILES;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The client's first on the connection of its agent.
    HelloAgent,
    /// The client's first on the connection of one of its threads.
    HelloThread,
    /// The machine's greeting to the agent: start and bytes of the window, the time at which the machine was booted,
    /// whether the user-mode driver is a file, which then comes along.
    Greeting,
    /// Map: address, rights; in the text, first page and pages of each file that comes along.
    Show,
    /// Take away: address, bytes.
    Clear,
    /// Change rights: address, bytes, rights.
    Protect,
    /// A thunk: its arguments; in the text, its name.
    Thunk,
    /// Whether gdi32 has the export that the text names.
    HasExport,
    /// `CreateEvent`: whether by hand, whether set.
    CreateEvent,
    /// `SetEvent`: the handle.
    SetEvent,
    /// `ResetEvent`: the handle.
    ResetEvent,
    /// `WaitForSingleObject`: the handle, milliseconds.
    WaitEvent,
    /// `CloseHandle`: the handle.
    CloseHandle,
    /// The process is about to end by itself.
    Goodbye,
    /// The answer to any of these: what it came to.
    Done,
}

impl Kind {
    const ALL: [Self; 15] = [
        Self::HelloAgent,
        Self::HelloThread,
        Self::Greeting,
        Self::Show,
        Self::Clear,
        Self::Protect,
        Self::Thunk,
        Self::HasExport,
        Self::CreateEvent,
        Self::SetEvent,
        Self::ResetEvent,
        Self::WaitEvent,
        Self::CloseHandle,
        Self::Goodbye,
        Self::Done,
    ];
}

/// A message.
#[derive(Debug)]
pub struct Message {
    /// What it is.
    pub kind: Kind,
    /// Its numbers.
    pub words: [u64; WORDS],
    /// What else it says.
    pub text: Vec<u8>,
    /// Files that came along.
    pub files: Vec<OwnedFd>,
}

impl Message {
    /// A message with numbers alone; those that are not given are 0.
    pub fn new(kind: Kind, numbers: &[u64]) -> Self {
        let mut words = [0; WORDS];
        words.iter_mut().zip(numbers).for_each(|(word, number)| *word = *number);
        Self { kind, words, text: Vec::new(), files: Vec::new() }
    }

    /// With a text.
    #[must_use]
    pub fn with_text(mut self, text: &[u8]) -> Self {
        self.text = text.to_vec();
        self
    }

    /// With files.
    #[must_use]
    pub fn with_files(mut self, files: Vec<OwnedFd>) -> Self {
        self.files = files;
        self
    }

    /// Sends it.
    ///
    /// # Errors
    /// `InvalidInput` for too much; what the host reports.
    pub fn send(&self, to: impl AsFd) -> io::Result<()> {
        // CAST: the kind's number.
        let mut bytes = vec![self.kind as u8];
        self.words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.extend(&self.text);
        if bytes.len() > MOST_BYTES || self.files.len() > MOST_FILES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let files: Vec<BorrowedFd<'_>> = self.files.iter().map(AsFd::as_fd).collect();
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
        let mut beside = SendAncillaryBuffer::new(&mut room);
        if !files.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(&files)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let to = to.as_fd();
        retry_on_intr(|| rustix::net::sendmsg(to, &[IoSlice::new(&bytes)], &mut beside, SendFlags::NOSIGNAL))?;
        Ok(())
    }

    /// Waits for the next one.
    ///
    /// # Errors
    /// `UnexpectedEof` when the other side is gone; `InvalidData` for what is no message; what the host reports.
    pub fn receive(from: impl AsFd) -> io::Result<Self> {
        let mut bytes = vec![0; MOST_BYTES];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
        let mut beside = RecvAncillaryBuffer::new(&mut room);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let from = from.as_fd();
        // A socket that waits for a time is interrupted when its process has stood still.
        let mut receive = || rustix::net::recvmsg(from, &mut [IoSliceMut::new(&mut bytes)], &mut beside, flags);
        let got = retry_on_intr(&mut receive)?.bytes;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut files = Vec::new();
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                files.extend(received);
            }
        }
        let (head, text) = bytes[..got].split_at_checked(1 + 8 * WORDS).ok_or(io::ErrorKind::InvalidData)?;
        let kind = Kind::ALL.get(usize::from(head[0])).copied().ok_or(io::ErrorKind::InvalidData)?;
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(head[1..].as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Ok(Self { kind, words, text: text.to_vec(), files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn a_message_arrives_as_it_was_sent() {
        for (number, kind) in Kind::ALL.into_iter().enumerate() {
            // CAST: the kind's number.
            assert_eq!(kind as usize, number);
        }
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (one, other) = pair.expect("sockets");
        let file = tempfile::tempfile().expect("a file");
        let message = Message::new(Kind::Show, &[1, 2]).with_text(b"text").with_files(vec![file.into()]);
        message.send(&one).expect("sent");
        let got = Message::receive(&other).expect("received");
        assert_eq!(
            (got.kind, got.words, got.text.as_slice(), got.files.len()),
            (Kind::Show, message.words, &b"text"[..], 1)
        );
        drop(one);
        assert_eq!(Message::receive(&other).map_err(|error| error.kind()).err(), Some(io::ErrorKind::UnexpectedEof));
    }
}
