//! The memory files of a page object, and how its pages are mapped and handed to other processes.
//!
//! A file holds all pages of an object, or each page has a file of its own: a process that holds a file's descriptor
//! can reach everything in it, so a file that leaves this process holds nothing that is not meant for its receiver.
//!
//! No file that is handed over can be cut short: this process would fault behind its end. One that is handed over for
//! reading is sealed against new writable mappings first, and its descriptor opened anew for reading: either alone can
//! be got round. Such a seal, which the receiver of any file could set as well, holds for this process too: so a
//! writable mapping is made before it, the master, from which later ones are derived.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::host::{self, PAGE_SIZE, Rights};

/// A memory file.
struct PageFile {
    fd: OwnedFd,
    pages: usize,
    /// Address of a writable mapping of all of it, once it was handed over.
    master: OnceLock<usize>,
    /// It was handed over for reading.
    read_only: AtomicBool,
}

impl Drop for PageFile {
    fn drop(&mut self) {
        if let Some(master) = self.master.get() {
            host::unmap(*master, self.pages * PAGE_SIZE);
        }
    }
}

impl PageFile {
    fn map_at(&self, at: usize, first: usize, count: usize, rights: Rights) -> io::Result<()> {
        let plain = host::map_pages_at(at, &self.fd, first, count, rights);
        match (plain, self.master.get()) {
            // Sealed before this call, or beside it.
            (Err(_), Some(master)) if rights == Rights::ReadWrite => {
                host::duplicate_at(master + first * PAGE_SIZE, at, count * PAGE_SIZE)
            }
            (plain, _) => plain,
        }
    }

    /// Makes it fit for another process, whatever that does with it.
    fn seal(&self, read_only: bool) -> io::Result<()> {
        if self.master.get().is_none() {
            let master = host::map_pages(&self.fd, 0, self.pages, Rights::ReadWrite)?;
            if self.master.set(master).is_err() {
                host::unmap(master, self.pages * PAGE_SIZE);
            }
        }
        if read_only {
            self.read_only.store(true, Ordering::Release);
        }
        // Always: another thread may have made the master, and not have sealed yet.
        host::seal(&self.fd, read_only)
    }
}

/// Pages that another process may map: consecutive ones of one file.
#[derive(Debug)]
pub struct Handed {
    /// The file, opened for no more than the process may do.
    pub file: OwnedFd,
    /// First page in the file.
    pub first: usize,
    /// How many.
    pub pages: usize,
}

/// The files of one object.
pub(super) struct PageFiles {
    files: Box<[PageFile]>,
    /// Pages of a file.
    each: usize,
}

impl PageFiles {
    /// Files for `pages` zeroed pages: one, or one a page.
    pub(super) fn new(pages: usize, one_a_page: bool) -> io::Result<Self> {
        let each = if one_a_page { 1 } else { pages };
        let file = |_| {
            Ok(PageFile {
                fd: host::memfd(each)?,
                pages: each,
                master: OnceLock::new(),
                read_only: AtomicBool::new(false),
            })
        };
        let files = (0..pages / each.max(1)).map(file).collect::<io::Result<_>>()?;
        Ok(Self { files, each })
    }

    /// The part of each file that holds pages `first` to `first + count`: file, first page in it, how many.
    fn parts(&self, first: usize, count: usize) -> impl Iterator<Item = (&PageFile, usize, usize)> {
        let (mut page, end) = (first, first + count);
        std::iter::from_fn(move || {
            let file = self.files.get(page / self.each).filter(|_| page < end)?;
            let inside = page % self.each;
            let part = (self.each - inside).min(end - page);
            page += part;
            Some((file, inside, part))
        })
    }

    /// Maps pages at an address of the system's choice.
    pub(super) fn map(&self, first: usize, count: usize, rights: Rights) -> io::Result<usize> {
        if let [file] = &*self.files
            && file.master.get().is_none()
            && let Ok(at) = host::map_pages(&file.fd, first, count, rights)
        {
            return Ok(at);
        }
        let at = host::reserve(count * PAGE_SIZE)?;
        self.map_at(at, first, count, rights).inspect_err(|_| host::unmap(at, count * PAGE_SIZE))?;
        Ok(at)
    }

    /// Maps pages over part of a range that `host` handed out, each file's in one step.
    pub(super) fn map_at(&self, at: usize, first: usize, count: usize, rights: Rights) -> io::Result<()> {
        let mut at = at;
        for (file, first, count) in self.parts(first, count) {
            file.map_at(at, first, count, rights)?;
            at += count * PAGE_SIZE;
        }
        Ok(())
    }

    /// What another process needs to map these pages with `rights`, and no page beside them.
    ///
    /// # Errors
    /// `PermissionDenied` for a part of a file, and for stores to one that was handed over for reading; what the host
    /// reports.
    pub(super) fn hand_over(&self, first: usize, count: usize, rights: Rights) -> io::Result<Vec<Handed>> {
        let hand = |(file, first, pages): (&PageFile, usize, usize)| {
            if pages != file.pages {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            let handed = match rights {
                Rights::ReadWrite if file.read_only.load(Ordering::Acquire) => {
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
                Rights::ReadWrite => {
                    file.seal(false)?;
                    file.fd.try_clone()?
                }
                _ => {
                    file.seal(true)?;
                    host::reopen_to_read(&file.fd)?
                }
            };
            Ok(Handed { file: handed, first, pages })
        };
        self.parts(first, count).map(hand).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(pages: usize, one_a_page: bool) -> PageFiles {
        PageFiles::new(pages, one_a_page).expect("memory files")
    }

    #[test]
    fn pages_with_files_of_their_own_are_handed_over_one_by_one() {
        let (own, common) = (files(4, true), files(4, false));
        assert_eq!(own.hand_over(1, 2, Rights::ReadWrite).map(|handed| handed.len()).ok(), Some(2));
        assert_eq!(common.hand_over(0, 4, Rights::ReadWrite).map(|handed| handed.len()).ok(), Some(1));
        let mut handed = common.hand_over(0, 4, Rights::ReadWrite).expect("handed over");
        let file = handed.pop().map(|handed| std::fs::File::from(handed.file)).expect("a file");
        assert!(file.set_len(0).is_err(), "cut short");
        let denied = common.hand_over(1, 1, Rights::ReadWrite).map_err(|error| error.kind());
        assert!(matches!(denied, Err(io::ErrorKind::PermissionDenied)), "a part would bring the rest along");
    }

    #[test]
    fn what_is_handed_over_for_reading_has_no_new_writable_mapping_but_here() {
        for one_a_page in [false, true] {
            let files = files(2, one_a_page);
            let before = files.map(0, 2, Rights::ReadWrite).expect("a mapping");
            let handed = files.hand_over(0, 2, Rights::Read).expect("handed over");
            for part in &handed {
                assert!(host::map_pages(&part.file, 0, part.pages, Rights::ReadWrite).is_err());
                let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&part.file));
                if let Ok(again) = std::fs::OpenOptions::new().read(true).write(true).open(path) {
                    let again = OwnedFd::from(again);
                    assert!(host::map_pages(&again, 0, part.pages, Rights::ReadWrite).is_err());
                    assert!(io::Write::write(&mut std::fs::File::from(again), &[1]).is_err());
                }
            }
            let after = files.map(1, 1, Rights::ReadWrite).expect("the kernel's side goes on to store");
            host::write(after, &[5]);
            let mut seen = [0];
            host::read(before + PAGE_SIZE, &mut seen);
            assert_eq!(seen, [5]);
            let theirs = host::map_pages(&handed[0].file, 0, handed[0].pages, Rights::Read).expect("to read");
            host::write(before, &[7]);
            host::read(theirs, &mut seen);
            assert_eq!(seen, [7]);
            assert!(files.hand_over(0, 2, Rights::ReadWrite).is_err());
            host::unmap(theirs, handed[0].pages * PAGE_SIZE);
            host::unmap(after, PAGE_SIZE);
            host::unmap(before, 2 * PAGE_SIZE);
        }
    }
}
