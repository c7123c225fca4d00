//! What a node knows of ids.

use super::{FIRST_ID, PacketNode, Submitted};
use crate::port::place::Place;

fn node() -> PacketNode {
    PacketNode::new(0, Place { node: 0, engine: 0 }, Submitted::WithPreemptions)
}

#[test]
fn a_paging_packet_that_comes_back_does_not_run_back_what_the_driver_took() {
    let node = node();
    let mut state = node.state.lock();
    for id in [FIRST_ID + 1, FIRST_ID + 3, FIRST_ID + 1] {
        state.took(id);
    }
    assert_eq!(state.taken, FIRST_ID + 3);
}

#[test]
fn what_the_driver_took_goes_on_where_ids_wrap() {
    let node = node();
    let mut state = node.state.lock();
    state.taken = u32::MAX;
    state.took(0);
    assert_eq!(state.taken, 0);
}

#[test]
fn a_preemption_is_waited_on_once_more_where_its_time_is_over() {
    let node = node();
    let request = FIRST_ID + 1;
    let known = || {
        let state = node.state.lock();
        (state.preempting, state.waited_on)
    };
    node.state.lock().preempting = Some((request, 100));
    // A reset that is none of its own, in the middle of its time.
    assert!(node.wait_on(150, 100));
    assert_eq!(known(), (Some((request, 100)), None));
    assert!(node.wait_on(200, 100));
    assert_eq!(known(), (Some((request, 200)), Some(request)));
    assert!(!node.wait_on(300, 100));
    assert_eq!(known(), (None, Some(request)));
}

#[test]
fn before_the_first_completion_zero_means_none_and_nothing_else_does() {
    let request = FIRST_ID + 2;
    for (last_completed, known) in [(0, true), (FIRST_ID, true), (1, false), (FIRST_ID - 1, false), (request, false)] {
        let node = node();
        node.state.lock().preempting = Some((request, 100));
        assert_eq!(node.preempted(request, last_completed).is_ok(), known, "{last_completed:#x}");
    }
    let node = node();
    let mut state = node.state.lock();
    state.advance(FIRST_ID + 1);
    state.preempting = Some((request, 100));
    drop(state);
    assert!(node.preempted(request, 0).is_err(), "a packet has completed");
}
