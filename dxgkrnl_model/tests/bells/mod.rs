//! Doorbells of several pages, in system memory and in a BAR: what user mode's addresses lead to.
//!
//! The size is that of the capabilities, rounded up to pages. Before the connection, and behind the disconnection, all
//! of it is dummy pages; in between all of it is the driver's.

use std::sync::Arc;

use dxgkrnl_model::os::Os;
use dxgkrnl_model::process::End;
use nt_model::{CacheType, PageKind, PageObject};
use wddm_abi::NTSTATUS;
use wddm_abi::ntstatus::STATUS_NOT_SUPPORTED;

use crate::assert_clean;
use crate::client::Client;
use crate::tour::{play, windows};
use crate::toy::gpu::opcode;
use crate::toy::{Options, Toy};

/// A page that user mode sees.
type Seen = (Arc<PageObject>, usize);

/// The pages from `address` on: so many consecutive pages of one object, and not one more.
fn seen(os: &Os, address: usize, pages: usize) -> Result<Vec<Seen>, String> {
    let at = |page: usize| os.kernel().page_at(address + page * 4096);
    let found: Vec<_> = (0..pages).map_while(at).map(|(object, index, _)| (object, index)).collect();
    let first = found.first().ok_or("nothing is mapped")?.clone();
    let is_run =
        found.iter().enumerate().all(|(n, (object, index))| object.id() == first.0.id() && *index == first.1 + n);
    let goes_on = at(pages).is_some_and(|(object, index, _)| object.id() == first.0.id() && index == first.1 + pages);
    match found.len() == pages && is_run && !goes_on {
        true => Ok(found),
        false => Err(format!("instead of {pages} pages {:?}, and more: {goes_on}", ids(&found))),
    }
}

fn ids(seen: &[Seen]) -> Vec<(u64, usize)> {
    seen.iter().map(|(object, index)| (object.id(), *index)).collect()
}

fn ensure(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

/// Stores to the last word of each page, and says which of the pages that lie behind have it.
fn stored(address: usize, pages: &[Seen], value: u64) -> Result<(), String> {
    for (number, (object, index)) in pages.iter().enumerate() {
        let at: *mut u64 = core::ptr::with_exposed_provenance_mut(address + number * 4096 + 4088);
        // SAFETY: the process's own pages, as many as `seen` has found.
        unsafe { at.write_volatile(value) };
        let mut word = [0; 8];
        object.read(index * 4096 + 4088, &mut word).map_err(|error| error.to_string())?;
        ensure(u64::from_le_bytes(word) == value, &format!("page {number} does not have what was stored"))?;
    }
    Ok(())
}

/// A doorbell of `pages` pages, `secondary` of them in its secondary part.
fn go(os: &Os, toy: &Toy, pages: usize, secondary: usize) -> Result<(), String> {
    let text = |what: &'static str| move |status: NTSTATUS| format!("{what}: {status:?}");
    let process = os.create_process("bells.exe");
    let result = (|| {
        let client = Client::new(os, &process).map_err(text("client"))?;
        let device = client.device().map_err(text("device"))?;
        let queues = [device.queue(true), device.queue(true)];
        let [Ok(first), Ok(second)] = queues else { return Err(format!("{queues:?}")) };
        let mut ring = device.ring_apart(first, secondary != 0).map_err(text("doorbell"))?;
        let other = device.ring_apart(second, false).map_err(text("doorbell"))?;
        ensure((ring.secondary != 0) == (secondary != 0), "a secondary address")?;
        let parts = [(ring.bell, pages), (ring.secondary, secondary)];
        let look = || -> Result<Vec<Vec<Seen>>, String> {
            parts.into_iter().filter(|(address, _)| *address != 0).map(|(at, pages)| seen(os, at, pages)).collect()
        };
        // Dummy pages, all of them.
        let dummies = look()?;
        for (part, address) in dummies.iter().zip([ring.bell, ring.secondary]) {
            stored(address, part, 0xD0)?;
        }
        device.connect(&ring).map_err(text("connect"))?;
        let connected = look()?;
        let kind = if toy.options.doorbells_in_bar { PageKind::DeviceRam } else { PageKind::Contiguous };
        let cache = if toy.options.doorbells_in_bar { CacheType::WriteCombined } else { CacheType::Cached };
        for (part, address) in connected.iter().zip([ring.bell, ring.secondary]) {
            let is_right = |(object, index): &Seen| object.kind() == kind && object.cache_of(*index) == cache;
            ensure(part.iter().all(is_right), &format!("memory of another kind: {part:?}"))?;
            stored(address, part, 0xC0)?;
        }
        // It rings, in its first page.
        let memory = device.memory(4096, 0).map_err(text("memory"))?;
        let words = [opcode::WRITE, memory.gpu + 256, 77];
        let value = device.ring_up(&mut ring, memory, 0, &words).map_err(text("ring"))?;
        device.wait(first.progress, value).map_err(text("wait"))?;
        ensure(memory.read(256) == 77, "the work")?;
        // The only physical doorbell goes to the other: nothing of it stays, in any page.
        device.connect(&other).map_err(text("connect"))?;
        let back: Vec<_> = look()?.iter().map(|part| ids(part)).collect();
        ensure(back == dummies.iter().map(|part| ids(part)).collect::<Vec<_>>(), "other dummy pages than before")?;
        ensure(ids(&seen(os, other.bell, pages)?) == ids(&connected[0]), "another physical doorbell")?;
        for page in 0..pages {
            let at: *const u64 = core::ptr::with_exposed_provenance(other.bell + page * 4096 + 4088);
            // SAFETY: the process's own pages.
            let left = unsafe { at.read_volatile() };
            ensure(left == 0, &format!("page {page} still holds {left:#x}"))?;
        }
        let missing = device.ring_apart(device.queue(true).map_err(text("queue"))?, true).err();
        ensure(secondary != 0 || missing == Some(STATUS_NOT_SUPPORTED), &format!("a secondary part: {missing:?}"))?;
        device.destroy().map_err(text("destroy"))
    })();
    process.end(End::Normal);
    result
}

#[test]
fn all_of_a_doorbell_is_dummy_pages_or_the_drivers() {
    for doorbells_in_bar in [false, true] {
        for (doorbell_bytes, secondary_bytes) in [(8, 0), (4096, 0), (4097, 0), (3 * 4096, 0), (16384, 8192), (8, 5000)]
        {
            let options =
                Options { doorbells: 1, doorbell_bytes, secondary_bytes, doorbells_in_bar, ..Options::default() };
            let pages = |bytes: u32| (bytes as usize).div_ceil(4096);
            let ended =
                play(options, windows(), 1, |os, toy| go(os, toy, pages(doorbell_bytes), pages(secondary_bytes)));
            assert_clean(
                &ended,
                &format!("{doorbell_bytes} and {secondary_bytes} bytes, in a BAR: {doorbells_in_bar}"),
            );
        }
    }
}
