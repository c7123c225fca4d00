//! What a node knows of ids.

use super::{FIRST_ID, PacketNode, Submitted};
use crate::adapter::Place;

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
