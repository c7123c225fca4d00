//! Monitored fences on GPUs that are built in several ways.

use crate::support::Rig;
use gpu_engine::engine::Step;
use gpu_engine::monitored::MonitoredFences;
use gpu_engine::node::Control;
use gpu_engine::notice::Notice;
use gpu_wire::GpuVa;
use gpu_wire::packet::{Encoded, FaultKind, Fill, Indirect, MonitoredSignal};

fn signal(address: GpuVa, value: u64) -> Encoded {
    MonitoredSignal { address: address.0, value }.to_packet()
}

#[test]
fn an_advanced_signal_interrupts_and_a_basic_one_does_not() {
    for basic in [false, true] {
        let mut rig = Rig::with_monitored_fences(MonitoredFences { basic, ..MonitoredFences::default() });
        let mut q = rig.queue(0, 0);
        let word = rig.map(1, false);
        q.submit(&[signal(word.va, 7), Encoded::nop(8)]);
        rig.settle();
        assert_eq!((word.read(0), rig.interrupts()), (7, u64::from(!basic)));
        let notices = if basic { vec![] } else { vec![(0, Notice::MonitoredFenceSignaled)] };
        assert_eq!(rig.drain(), notices);
    }
}

#[test]
pub(crate) fn a_basic_engine_interrupts_for_the_progress_fence_alone() {
    let mut rig = Rig::with_monitored_fences(MonitoredFences { basic: true, ..MonitoredFences::default() });
    let mut q = rig.queue(0, 0);
    let word = rig.map(1, false);
    let progress = q.queue.progress;
    q.submit(&[signal(word.va, 7), signal(progress, 1)]);
    rig.settle();
    assert_eq!((word.read(0), rig.interrupts()), (7, 1));
    assert_eq!(rig.drain(), [(0, Notice::MonitoredFenceSignaled)]);
}

/// A progress fence that was never opened is a plain word, whose waiters may be of either kind.
#[test]
pub(crate) fn an_unopened_progress_fence_asks_for_a_look_at_both_kinds() {
    let mut rig = Rig::with_monitored_fences(MonitoredFences::default());
    let mut q = rig.queue(0, 0);
    let elsewhere = rig.map(1, false);
    q.submit(&[Encoded::fence_signal(q.queue.progress, 3)]);
    rig.settle();
    assert_eq!((q.progress.read(0), rig.interrupts()), (3, 1));
    assert_eq!(rig.drain(), [(0, Notice::FencesSignaled), (0, Notice::MonitoredFenceSignaled)]);
    // Any other address where no fence is open is none.
    q.submit(&[Encoded::fence_signal(elsewhere.va, 1)]);
    rig.settle();
    assert_eq!((q.fault(), elsewhere.read(0)), (Some(FaultKind::UnknownFence), 0));
}

#[test]
pub(crate) fn a_narrow_signal_stores_32_bits() {
    let mut rig = Rig::with_monitored_fences(MonitoredFences { narrow: true, ..MonitoredFences::default() });
    let mut q = rig.queue(0, 0);
    let word = rig.map(1, false);
    word.bytes.write(&0x5A5A_5A5A_0000_0001_u64.to_le_bytes());
    q.submit(&[signal(word.va, 0x7_8000_0002)]);
    rig.settle();
    assert_eq!((word.read(0), rig.interrupts()), (0x5A5A_5A5A_8000_0002, 1));
}

#[test]
pub(crate) fn an_unable_engine_writes_its_progress_fence_only() {
    let mut rig = Rig::with_monitored_fences(MonitoredFences { unable: 1, ..MonitoredFences::default() });
    let (mut unable, mut able) = (rig.queue(0, 0), rig.queue(1, 1));
    let word = rig.map(1, false);
    let progress = unable.queue.progress;
    unable.submit(&[signal(progress, 1)]);
    able.submit(&[signal(word.va, 3)]);
    rig.settle();
    assert_eq!((unable.fault(), able.fault(), word.read(0)), (None, None, 3));
    unable.submit(&[signal(word.va, 4)]);
    rig.settle();
    assert_eq!((unable.fault(), word.read(0)), (Some(FaultKind::NotPermitted), 3));
}

/// Interrupts that are served at once, as on another processor: a stream of signals makes a few in each turn, and one
/// that never ends makes some all the same.
#[test]
fn a_stream_of_signals_makes_few_interrupts() {
    let served = |rig: &mut Rig, done: &(dyn Fn(&Rig) -> bool + Sync)| {
        let gpu = rig.gpu.clone();
        let mut engine = rig.engines.remove(0);
        std::thread::scope(|scope| {
            scope.spawn(move || while !matches!(engine.step(), Step::Held | Step::Stopped) {});
            while !done(rig) {
                gpu.drain(0, |_| ());
            }
            gpu.command(0, Control::Stop);
        });
    };
    let mut rig = Rig::new();
    let (mut q, word, last) = (rig.queue(0, 0), rig.map(1, false), 150);
    q.submit(&(1..=last).map(|value| signal(word.va, value)).collect::<Vec<_>>());
    served(&mut rig, &|_| word.read(0) == last);
    assert!((1..=3).contains(&rig.interrupts()), "{} interrupts", rig.interrupts());
    // Of a queue's progress fence that was never opened.
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let gpu = rig.gpu.clone();
    *rig.gpu.host.on_interrupt.lock().unwrap() = Some(Box::new(move || {
        gpu.drain(0, |_| ());
    }));
    q.submit(&(1..=last).map(|value| Encoded::fence_signal(q.queue.progress, value)).collect::<Vec<_>>());
    rig.settle();
    assert_eq!((q.progress.read(0), q.fault()), (last, None));
    assert!((1..=3).contains(&rig.interrupts()), "{} interrupts", rig.interrupts());
    // With a small operation behind each.
    let mut rig = Rig::new();
    let (mut q, word, code, last) = (rig.queue(0, 0), rig.map(1, false), rig.map(40, false), 2500);
    let fill = |length| Fill { address: word.at(8).0, length, pattern: 0, reserved: 0 }.to_packet();
    let body = (1..=last).flat_map(|value| [signal(word.va, value), fill(value % 2 * 4)]);
    let body: Vec<u8> = body.flat_map(|packet| packet.as_bytes().to_vec()).collect();
    code.bytes.write(&body);
    let gpu = rig.gpu.clone();
    *rig.gpu.host.on_interrupt.lock().unwrap() = Some(Box::new(move || {
        gpu.drain(0, |_| ());
    }));
    q.submit(&[Indirect { address: code.va.0, length: body.len() as u64 }.to_packet()]);
    rig.settle();
    assert_eq!(word.read(0), last);
    assert!((1..=10).contains(&rig.interrupts()), "{} interrupts", rig.interrupts());
    // A buffer that jumps to itself.
    let mut rig = Rig::new();
    let (mut q, word, code) = (rig.queue(0, 0), rig.map(1, false), rig.map(1, false));
    let body = signal(word.va, 1);
    let length = (body.as_bytes().len() + 24) as u64;
    let jump = Indirect { address: code.va.0, length }.to_packet();
    code.bytes.write(&[body.as_bytes(), jump.as_bytes()].concat());
    q.submit(&[jump]);
    served(&mut rig, &|rig| rig.interrupts() >= 3);
}
