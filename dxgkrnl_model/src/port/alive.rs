//! Lists of objects that may have gone.

use std::sync::Weak;

/// Makes room for one more. What has gone leaves the list where it would grow, and only there, so that the n-th object
/// costs what the first did, however many there are; a list has at most twice as many places as it had objects.
pub(crate) fn make_room<T>(list: &mut Vec<Weak<T>>) {
    const FIRST: usize = 4;
    if list.len() == list.capacity() {
        list.retain(|other| other.strong_count() != 0);
        list.reserve_exact(list.len().max(FIRST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn what_has_gone_leaves_and_nobody_is_looked_at_often() {
        let mut list = Vec::new();
        let kept: Vec<Arc<u32>> = (0..1000).map(Arc::new).collect();
        let mut growths = 0;
        for object in &kept {
            let before = list.capacity();
            make_room(&mut list);
            growths += usize::from(list.capacity() != before);
            list.push(Arc::downgrade(object));
        }
        assert!(growths < 12, "{growths}");
        drop(kept);
        for number in 0..10_000 {
            make_room(&mut list);
            list.push(Arc::downgrade(&Arc::new(number)));
        }
        assert!(list.capacity() <= 2048, "{}", list.capacity());
    }
}
