//! Generation-checked numbers: marks of notices that outlive their object.

use crate::support::TestHost;
use gpu_engine::mutation::Chosen;
use gpu_engine::slots::{PLATE, SlotTable};

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

/// A plate is of one object: what was shown of one that is gone is not on the next one's, nor seen before that.
#[test]
fn a_plate_goes_with_its_object() {
    let table: SlotTable<TestHost> = SlotTable::new().expect("memory");
    let first = table.allocate(1).expect("memory");
    table.show(first, [(0, 7), (PLATE - 1, 8), (PLATE, 9)]);
    let mut words = [0; PLATE];
    (words[0], words[PLATE - 1]) = (7, 8);
    assert_eq!(table.plates().collect::<Vec<_>>(), [(first, words)]);
    table.kill(first);
    assert_eq!(table.plates().count(), 0, "of a destroyed object");
    table.show(first, [(0, 5)]);
    table.free(first);
    let second = table.allocate(2).expect("memory");
    assert_eq!(second.index, first.index, "the slot is used again");
    table.show(first, [(1, 6)]);
    assert_eq!(table.plates().collect::<Vec<_>>(), [(second, [0; PLATE])]);
}
