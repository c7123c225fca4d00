//! `D3DKMT*` functions with damaged records and private data, which another thread changes during the calls.
//!
//! The records lie in the process's own memory, and so does what they point to. Damage never makes an address that is
//! neither 0 nor in that memory, and no size between what it holds and what the OS refuses to read: in the model all
//! processes share one address space with the model itself.

mod records;

use super::Round;
use super::dice::Dice;
use super::machine::{beside, play as on_a_machine, setup};
use crate::scenario::{Memory, Played, Raw, Room, Scene};
use records::{Kind, Parts, RECORDS};
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use wddm_abi::ntstatus::STATUS_SUCCESS;
use wddm_abi::{D3DDDI_MAPGPUVIRTUALADDRESS, D3DKMT_HANDLE};

/// Bytes of the memory that records lie in.
const MEMORY: u64 = 256 << 10;

/// Where what a record points to begins.
const BEHIND: u64 = 0x1000;

/// Calls of one device.
const CALLS: u64 = 80;

/// Handles that are remembered, at most.
const HANDLES: usize = 64;

/// Functions that only one half of the processes calls, since a queue that is told to reach a value that nothing will
/// ever store is waited for when it is destroyed, and that half submits nothing.
const DESTROY: [&str; 3] = ["D3DKMTDestroyHwQueue", "D3DKMTDestroyContext", "D3DKMTDestroyDevice"];
/// The function whose record says how many pages it is about. Without an allocation there is no limit to them, and the
/// model's paging worker, which serves all processes, makes page tables for each. So there is one here.
const MAP: &str = "D3DKMTMapGpuVirtualAddress";
/// The functions of the other half.
const SUBMIT: [&str; 2] = ["D3DKMTSubmitCommandToHwQueue", "D3DKMTSubmitCommand"];

/// Three hostile processes and a good one.
pub fn play(round: &Round) -> Played {
    on_a_machine(round, setup(), |scene| {
        let hostile = |scene: &Scene, raw: &Raw, dice: &mut Dice, stop: &AtomicBool| -> Played {
            let avoided: &[&str] = if dice.one_in(2) { &DESTROY } else { &SUBMIT };
            for _ in 0..4 {
                device(round, scene, raw, dice, avoided, stop)?;
            }
            Ok(())
        };
        beside(round, scene, &[1], 3, &hostile, std::thread::yield_now)
    })
}

/// Makes a device and calls functions on it, until it has no memory for records any more.
fn device(round: &Round, scene: &Scene, raw: &Raw, dice: &mut Dice, avoided: &[&str], stop: &AtomicBool) -> Played {
    let room = Room::new(raw)?;
    let memory = room.memory(scene, MEMORY)?;
    let (ring, control) = (room.memory(scene, 4096)?, room.memory(scene, 4096)?);
    // CAST: 0 or 1.
    let context = room.context(dice.below(2) as u32)?;
    let mut handles = vec![
        (Kind::Adapter, raw.adapter),
        (Kind::Device, room.device),
        (Kind::Paging, room.paging()),
        (Kind::Allocation, memory.handle),
        (Kind::Allocation, ring.handle),
        (Kind::Allocation, control.handle),
        (Kind::Context, context),
    ];
    let (changing, still) = (AtomicBool::new(true), Mutex::new(()));
    let (mut other, first) = (Dice::new(dice.draw()), handles.clone());
    std::thread::scope(|scope| {
        scope.spawn(|| change(raw, &memory, &first, &mut other, (&changing, &still)));
        let called = (0..CALLS).try_for_each(|_| {
            if stop.load(Ordering::Acquire) {
                return Ok(());
            }
            let record = dice.of(RECORDS);
            if avoided.contains(&record.function) {
                return Ok(());
            }
            let parts = Parts { handles: &handles, ring: &ring, control: &control, memory: &memory };
            let mut bytes = (record.sound)(&parts, dice);
            let rate = *dice.of(&[0, 20, 60, 85]);
            while dice.below(100) < rate {
                damage(&mut bytes, &memory, &handles, dice);
            }
            // Held while the record must stay as it is.
            let still = (record.function == MAP).then(|| still.lock().unwrap_or_else(PoisonError::into_inner));
            if still.is_some() {
                limit_size(&mut bytes);
            }
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            memory.write(raw, 0, &bytes)?;
            let status = raw.call_by_name(record.function, memory.cpu);
            round.coverage.count(&format!("{}: {status:?}", record.function), 1);
            if status == STATUS_SUCCESS && handles.len() < HANDLES {
                for (at, kind) in record.made {
                    // CAST: half a word.
                    handles.push((*kind, (raw.load(memory.cpu + at / 8 * 8)? >> (at % 8 * 8)) as D3DKMT_HANDLE));
                }
            }
            Ok(())
        });
        changing.store(false, Ordering::Release);
        called
    })
}

/// Limits the pages of a [`MAP`] record.
fn limit_size(bytes: &mut [u8]) {
    let at = offset_of!(D3DDDI_MAPGPUVIRTUALADDRESS, SizeInPages);
    // All but the lower 14 bits.
    if let Some([_, second, rest @ ..]) = bytes.get_mut(at..at + 8) {
        *second &= 0x3F;
        rest.fill(0);
    }
}

/// Another value for a word that stands alone.
fn word(old: u32, handles: &[(Kind, D3DKMT_HANDLE)], dice: &mut Dice) -> u32 {
    match dice.below(6) {
        0 => 0,
        1 | 2 => dice.of(handles).1,
        3 => old.wrapping_sub(1),
        // Sizes stay below what the memory holds, or are beyond what the OS reads.
        4 => 1 << *dice.of(&[0, 1, 2, 3, 4, 6, 8, 10, 28, 29, 30, 31]),
        // CAST: 10 bits.
        _ => dice.below(1024) as u32,
    }
}

/// Another value for an address: none, or one in the memory that leaves room behind it.
fn pointer(memory: &Memory, dice: &mut Dice) -> u64 {
    let within = memory.cpu as u64 + dice.below(MEMORY / 2);
    if dice.one_in(4) { 0 } else { within }
}

fn is_pointer(value: u64, memory: &Memory) -> bool {
    value.wrapping_sub(memory.cpu as u64) < MEMORY
}

/// Changes one word of a record, or one address.
fn damage(bytes: &mut [u8], memory: &Memory, handles: &[(Kind, D3DKMT_HANDLE)], dice: &mut Dice) {
    // CAST: below the length.
    let at = dice.below((bytes.len() / 4) as u64) as usize * 4;
    let pair = at / 8 * 8;
    if let Some(whole) = bytes.get_mut(pair..pair + 8) {
        let value = whole.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        if is_pointer(value, memory) {
            whole.copy_from_slice(&pointer(memory, dice).to_le_bytes());
            return;
        }
    }
    let Some(half) = bytes.get_mut(at..at + 4) else { return };
    let old = half.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte));
    half.copy_from_slice(&word(old, handles, dice).to_le_bytes());
}

/// Changes the record and what it points to while calls are made.
fn change(
    raw: &Raw,
    memory: &Memory,
    handles: &[(Kind, D3DKMT_HANDLE)],
    dice: &mut Dice,
    (changing, still): (&AtomicBool, &Mutex<()>),
) {
    while changing.load(Ordering::Acquire) {
        // CAST: below the memory's size.
        let at = memory.cpu + if dice.one_in(2) { dice.below(16) * 8 } else { BEHIND + dice.below(512) * 8 } as usize;
        let held = still.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(old) = raw.load(at) else { return };
        let value = match is_pointer(old, memory) {
            true => pointer(memory, dice),
            // CAST: the lower half.
            false => u64::from(word(old as u32, handles, dice)) | u64::from(word(0, handles, dice)) << 32,
        };
        // One in some calls meets it; more would leave no record whole.
        if raw.store(at, value).is_err() {
            return;
        }
        drop(held);
        std::thread::park_timeout(std::time::Duration::from_micros(dice.below(400)));
    }
}
