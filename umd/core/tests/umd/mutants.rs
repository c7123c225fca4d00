//! Every mutant is caught: a scenario that is clean without it is not clean with it.
//!
//! A scenario returns what it found wrong. The mutants of the order of stores are invisible to a mock that runs one
//! thread at a time; `publish.rs` and `loom.rs` catch those, and the last test here says which, and which ones
//! conformance cases catch.

use crate::mock::{Adapter, Mock, create};
use crate::submission::{memory, word};
use gpu_wire::private::Rung;
use std::sync::Arc;
use umd_core::adapter::{Adapter as UmdAdapter, Mode, Select};
use umd_core::allocation::{Allocation, Create, Kind};
use umd_core::device::Device;
use umd_core::error::UmdError;
use umd_core::fence::Fence;
use umd_core::mutation::Mutation;
use umd_core::queue::Queue;
use umd_core::wait::Timeout;

type Scenario = fn(u32) -> Vec<String>;

const CAUGHT_HERE: &[(Mutation, Scenario)] = &[
    (Mutation::AppendTwiceOnRetry, retry),
    (Mutation::TightThunkBuffers, work),
    (Mutation::NoProgressSignal, work),
    (Mutation::NoLog, work),
    (Mutation::LogBeforeOperation, work),
    (Mutation::IgnoresRetry, retry),
    (Mutation::IgnoresNotify, notify),
    (Mutation::IgnoresAbort, abort),
    (Mutation::OverrunsRing, full_ring),
    (Mutation::ReusesProgressValue, work),
    (Mutation::ConnectsAlways, calls),
    (Mutation::DoorbellBeforeResidency, work),
    (Mutation::SkipsPagingWait, pending_paging),
    (Mutation::IgnoresNewerDoorbells, newer_system),
    (Mutation::SharesWithoutNtSecurity, sharing),
    (Mutation::IgnoresInterfaceVersion, other_version),
    (Mutation::RestartsIndexHints, work),
    (Mutation::ReusesCommandBuffersEarly, full_pool),
    (Mutation::SignalsWhereItCannot, software_signals),
];

const CAUGHT_BY_ORDER: [Mutation; 4] = [
    Mutation::PublishBeforeLastQueued,
    Mutation::NoStatusBarrier,
    Mutation::RingBeforePublish,
    Mutation::PublishRelaxed,
];

/// Noticed by conformance cases, which need what the mock does not have (`tests/mutations/user_mode.rs` of the
/// workspace's root).
const CAUGHT_BY_CASES: [Mutation; 13] = [
    Mutation::FreesOldRing,
    Mutation::NeverExceedsBudget,
    Mutation::TrustsEvents,
    Mutation::LocksWhatItOpens,
    Mutation::ProgressByCapabilities,
    Mutation::UsesFencesUnmapped,
    Mutation::WaitsInBuffers,
    Mutation::ObsoleteContextsOnly,
    Mutation::OpensWithSharingFlags,
    Mutation::DestroysBusyQueues,
    Mutation::MapsLocalByPages,
    Mutation::KnowsOneStatus,
    Mutation::TellsNothing,
];

fn device(mock: &Mock, mutant: u32) -> Arc<Device<Mock>> {
    Device::create(&UmdAdapter::open(mock.clone(), Select::First, Mode::UserMode, mutant).unwrap()).unwrap()
}

fn complaints(mock: &Mock) -> Vec<String> {
    mock.world().complaints.clone()
}

/// Notes what is not as it should be.
fn expect<V: PartialEq + std::fmt::Debug>(wrong: &mut Vec<String>, got: V, wanted: V) {
    if got != wanted {
        wrong.push(format!("{got:?} and not {wanted:?}"));
    }
}

/// Stores `value` and runs the GPU; what went wrong.
fn step(mock: &Mock, queue: &Queue<Mock>, memory: &Allocation<Mock>, value: u64, wrong: &mut Vec<String>) {
    let mut list = queue.new_list();
    list.store(memory.gpu_va(), value).unwrap();
    expect(wrong, queue.submit(&mut list, true), Ok(value));
    mock.run();
    expect(wrong, (word(memory, 0), queue.progress()), (value, (value, value)));
}

fn software_signals(mutant: u32) -> Vec<String> {
    let mut adapter = Adapter::ours(Rung::HardwareQueues);
    if let Some(info) = &mut adapter.info {
        info.software_signal_nodes = 7;
    }
    let mock = Mock::with(adapter);
    let device = device(&mock, mutant);
    let queue = mock.queue(&device);
    let fence = Fence::create(&device, 0, false, true, &[0; 48]).unwrap();
    let mut list = queue.new_list();
    list.fence_signal(&fence, 4).unwrap();
    queue.submit(&mut list, true).unwrap();
    mock.run();
    let mut wrong = complaints(&mock);
    expect(&mut wrong, fence.value(), 4);
    wrong
}

fn work(mutant: u32) -> Vec<String> {
    let mock = Mock::new();
    let device = device(&mock, mutant);
    let (queue, memory) = (mock.queue(&device), memory(&device));
    let fence = Fence::create(&device, 0, false, false, &[0; 48]).unwrap();
    let mut wrong = vec![];
    for n in 1..=3 {
        let mut list = queue.new_list();
        list.fence_signal(&fence, n).unwrap();
        list.fence_wait(&fence, n).unwrap();
        list.store(memory.gpu_va(), n).unwrap();
        expect(&mut wrong, queue.submit(&mut list, true), Ok(n));
        mock.run();
        expect(&mut wrong, (word(&memory, 0), queue.progress()), (n, (n, n)));
    }
    wrong.extend(complaints(&mock));
    wrong
}

fn retry(mutant: u32) -> Vec<String> {
    let mock = Mock::new();
    let device = device(&mock, mutant);
    let (queue, memory) = (mock.queue(&device), memory(&device));
    let mut wrong = vec![];
    step(&mock, &queue, &memory, 1, &mut wrong);
    mock.world().disconnect(2);
    step(&mock, &queue, &memory, 2, &mut wrong);
    step(&mock, &queue, &memory, 3, &mut wrong);
    let executed: usize = mock.world().queues.values().map(|queue| queue.executed.len()).sum();
    expect(&mut wrong, executed, 9);
    wrong.extend(complaints(&mock));
    wrong
}

fn notify(mutant: u32) -> Vec<String> {
    let mock = Mock::new();
    let device = device(&mock, mutant);
    let (queue, memory) = (mock.queue(&device), memory(&device));
    mock.world().connect_statuses = [1].into();
    let mut wrong = vec![];
    step(&mock, &queue, &memory, 1, &mut wrong);
    wrong
}

fn abort(mutant: u32) -> Vec<String> {
    let mock = Mock::new();
    let device = device(&mock, mutant);
    let (queue, memory) = (mock.queue(&device), memory(&device));
    let mut wrong = vec![];
    step(&mock, &queue, &memory, 1, &mut wrong);
    mock.world().disconnect(3);
    let mut list = queue.new_list();
    list.store(memory.gpu_va(), 2).unwrap();
    expect(&mut wrong, matches!(queue.submit(&mut list, true), Err(UmdError::QueueLost { .. })), true);
    wrong
}

fn full_ring(mutant: u32) -> Vec<String> {
    let mock = Mock::new();
    let device = device(&mock, mutant);
    let queue = mock.queue(&device);
    let mut list = queue.new_list();
    list.nop(list.limit() as u32).unwrap();
    let mut wrong = vec![];
    for n in 1..=3 {
        expect(&mut wrong, queue.submit(&mut list, true), Ok(n));
    }
    mock.run();
    wrong.extend(complaints(&mock));
    wrong
}

fn calls(mutant: u32) -> Vec<String> {
    let mock = Mock::new();
    let device = device(&mock, mutant);
    let (queue, memory) = (mock.queue(&device), memory(&device));
    let mut wrong = vec![];
    step(&mock, &queue, &memory, 1, &mut wrong);
    let before = mock.total_calls();
    step(&mock, &queue, &memory, 2, &mut wrong);
    expect(&mut wrong, mock.total_calls(), before);
    wrong
}

fn pending_paging(mutant: u32) -> Vec<String> {
    let mock = Mock::new();
    let device = device(&mock, mutant);
    mock.world().paging_pending = true;
    let (queue, memory) = (mock.queue(&device), memory(&device));
    let mut wrong = vec![];
    step(&mock, &queue, &memory, 1, &mut wrong);
    wrong.extend(complaints(&mock));
    wrong
}

fn newer_system(mutant: u32) -> Vec<String> {
    let mock = Mock::new();
    mock.world().newer_kit = true;
    mock.world().more.push("D3DKMTCreateHwQueueForUserModeSubmission".into());
    let device = device(&mock, mutant);
    let (queue, memory) = (mock.queue(&device), memory(&device));
    let mut wrong = vec![];
    step(&mock, &queue, &memory, 1, &mut wrong);
    wrong.extend(complaints(&mock));
    wrong
}

fn sharing(mutant: u32) -> Vec<String> {
    let mock = Mock::new();
    let device = device(&mock, mutant);
    let create = Create { size: 4096, kind: Kind::System, shared: true, read_only: false };
    let memory = Allocation::create(&device, create).unwrap();
    let fence = Fence::create(&device, 0, true, false, &[0; 48]).unwrap();
    let mut wrong = vec![];
    expect(&mut wrong, memory.share().is_ok(), true);
    expect(&mut wrong, fence.share().is_ok(), true);
    wrong
}

fn other_version(mutant: u32) -> Vec<String> {
    let mut adapter = Adapter::ours(Rung::UserModeSubmission);
    adapter.info.as_mut().unwrap().interface_version = 9;
    let mock = Mock::with(adapter);
    let error = UmdAdapter::open(mock, Select::First, Mode::UserMode, mutant).map(|_| ());
    let mut wrong = vec![];
    expect(&mut wrong, error, Err(UmdError::InterfaceVersion { kernel: 9, user: gpu_wire::INTERFACE_VERSION }));
    wrong
}

fn full_pool(mutant: u32) -> Vec<String> {
    let mock = Mock::with(Adapter::ours(Rung::HardwareQueues));
    let device = device(&mock, mutant);
    let queue = Queue::create(&device, create(0)).unwrap();
    let memory = memory(&device);
    let mut wrong = vec![];
    // Each list adds its number's store; a command buffer that was written over stores another's.
    for n in 0..20u64 {
        let mut list = queue.new_list();
        list.store(gpu_wire::GpuVa(memory.gpu_va().0 + 8 * n), n + 1).unwrap();
        list.nop(800).unwrap();
        expect(&mut wrong, queue.submit(&mut list, true).is_ok(), true);
    }
    let _ = queue.wait(0, Timeout::from_nanoseconds(1_000_000));
    mock.run();
    for n in 0..20 {
        expect(&mut wrong, word(&memory, 8 * n), n + 1);
    }
    wrong.extend(complaints(&mock));
    wrong
}

#[test]
fn every_scenario_is_clean_without_a_mutant() {
    for (mutation, scenario) in CAUGHT_HERE {
        assert_eq!(scenario(0), Vec::<String>::new(), "scenario of {}", mutation.name());
    }
}

#[test]
fn every_mutant_is_caught_by_its_scenario() {
    for (mutation, scenario) in CAUGHT_HERE {
        assert_ne!(scenario(*mutation as u32), Vec::<String>::new(), "{} was not caught", mutation.name());
    }
}

#[test]
fn every_mutant_has_a_test() {
    for mutation in Mutation::ALL {
        let here = CAUGHT_HERE.iter().any(|(caught, _)| caught == mutation);
        let elsewhere = CAUGHT_BY_ORDER.contains(mutation) || CAUGHT_BY_CASES.contains(mutation);
        assert!(here || elsewhere, "{}", mutation.name());
    }
}
