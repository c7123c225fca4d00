//! Generation-checked numbers: marks of notices that outlive their object.

use crate::support::TestHost;
use gpu_engine::mutation::Chosen;
use gpu_engine::slots::SlotTable;

/// An engine holds a fence that has been destroyed meanwhile, and marks its slot when another fence has it.
#[test]
fn a_mark_of_a_destroyed_object_hides_no_notice_of_the_next() {
    let table: SlotTable<TestHost> = SlotTable::new().expect("memory");
    let right = Chosen::none();
    let first = table.allocate(1).expect("memory");
    table.kill(first);
    table.free(first);
    let second = table.allocate(2).expect("memory");
    assert_eq!(second.index, first.index, "the slot is used again");
    assert!(table.notice_pending(first, &right), "the late mark");
    assert!(table.notice_pending(second, &right), "the next object's first signal sends a notice");
    assert!(!table.notice_pending(second, &right), "its second one finds that notice");
    table.notice_taken(first, &right);
    assert!(!table.notice_pending(second, &right), "the other's notice was reported, not its own");
    table.notice_taken(second, &right);
    assert!(table.notice_pending(second, &right));
}
