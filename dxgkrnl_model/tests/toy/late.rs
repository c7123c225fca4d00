//! What mutants do too late, or between the reset of an engine and its end.

use std::sync::atomic::Ordering;

use super::{Late, Notice, State, Toy};

/// A suspension's fence that the OS has not come to.
const NO_FENCE: u64 = 0x7777;

/// What a mutant that is not silent between the reset of its engine and the end of that says there; `None`: another
/// mutant.
fn said_while_stopped(mutant: &str, state: &State) -> Option<Notice> {
    // That of the queue that hung: one of another node is judged by another rule.
    let context = || {
        let queue = state.queues.get(&state.engines[0].running)?;
        state.contexts.get(&queue.context).map(|context| context.os)
    };
    let queue = || state.queues.values().next().map_or(0, |queue| queue.os);
    let fence = || state.fences.values().map(|fence| fence.os).collect();
    let notice = match mutant {
        "int-after-reset" | "int-after-reset-late" => Notice::Monitored,
        "int-after-reset-native" => Notice::Native(fence(), 0),
        "int-after-reset-suspended" => Notice::Suspended(context()?, NO_FENCE),
        "int-after-reset-fault" => Notice::QueueFaulted(queue(), 0, 0x1000),
        "int-after-reset-timeout" => Notice::Timeout,
        "int-after-reset-state" => Notice::ToF1,
        "int-after-reset-log" => Notice::Scheduling,
        _ => return None,
    };
    Some(notice)
}

/// Looks behind a reset after which a mutant speaks: at once, or some milliseconds later.
const LATER: u64 = 3;

/// Does what is due. True: at once again.
pub fn run(toy: &Toy) -> bool {
    let mut again = false;
    let due = {
        let mut state = toy.state();
        if state.engines[0].stopped
            && let Some(notice) = said_while_stopped(toy.options.mutant, &state)
        {
            toy.count("stopped");
            let waits = toy.is("int-after-reset-late") && toy.counted("stopped") < LATER;
            if !waits {
                state.engines[0].notices.push_back(notice);
            }
            // This notice breaks another rule until the reset has returned: one at each look, as long as that takes.
            let goes_on = toy.is("int-after-reset-suspended");
            again = !waits && !goes_on && toy.counted("stopped") < 100;
        }
        if toy.is("int-adapter-mask") && toy.counted("vsync") == 0 && state.system_context != 0 {
            toy.count("vsync");
            state.engines[0].notices.push_back(Notice::Vsync);
        }
        for (left, _) in &mut state.late {
            *left = left.saturating_sub(1);
        }
        let (due, later) = std::mem::take(&mut state.late).into_iter().partition::<Vec<_>, _>(|(left, _)| *left == 0);
        state.late = later;
        due
    };
    for (_, what) in due {
        match what {
            Late::Completed(fence) => {
                toy.state().engines[0].notices.push_back(Notice::Completed(fence, false));
            }
            Late::Preempted(request, completed) => {
                toy.state().engines[0].notices.push_back(Notice::Preempted(request, completed));
            }
            Late::Store(root, address) => {
                let _ = toy.store(root, address, 1);
            }
            Late::StoreAt(place) => super::gpu::word(place).store(1, Ordering::SeqCst),
        }
    }
    again
}
