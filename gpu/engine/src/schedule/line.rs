//! The line of a band's processes: which of them is next, without a search.
//!
//! Any process can have ready queues, and there may be thousands of them. The engine asks who is next in front of each
//! turn, and who has a claim at each look; so the line is a heap that knows where each entry is in it.

use crate::NoMemory;
use alloc::vec::Vec;

/// No place in line.
const NONE: u32 = u32::MAX;

/// An entry of the band.
#[derive(Clone, Copy)]
struct Member {
    level: u32,
    served: u64,
    /// Where it is in the heap, or [`NONE`].
    at: u32,
}

/// The entries of a band that have ready queues, the next one first. An entry is known by its index.
#[derive(Default)]
pub(super) struct Line {
    members: Vec<Member>,
    heap: Vec<u32>,
    /// Comparisons of members, for tests.
    #[cfg(test)]
    compared: core::cell::Cell<u64>,
}

impl Line {
    /// One entry more, which is not in line.
    ///
    /// # Errors
    /// [`NoMemory`]: there is none.
    pub fn grow(&mut self) -> Result<(), NoMemory> {
        self.members.try_reserve(1)?;
        self.heap.try_reserve(self.members.len() + 1 - self.heap.len())?;
        self.members.push(Member { level: 0, served: 0, at: NONE });
        Ok(())
    }

    /// The entry `index` is in line, with that level, and was served then: a number of the band.
    pub fn put(&mut self, index: usize, level: u32, served: u64) {
        let Some(member) = self.members.get_mut(index) else { return };
        (member.level, member.served) = (level, served);
        let mut at = member.at as usize;
        if member.at == NONE {
            // There is room for all. CAST: as many as there are entries.
            (at, member.at) = (self.heap.len(), self.heap.len() as u32);
            self.heap.push(index as u32);
        }
        let at = self.rise(at);
        self.sink(at);
    }

    /// The entry `index` is not in line.
    pub fn leave(&mut self, index: usize) {
        let Some(member) = self.members.get_mut(index).filter(|member| member.at != NONE) else { return };
        let at = core::mem::replace(&mut member.at, NONE) as usize;
        self.heap.swap_remove(at);
        if let Some(moved) = self.heap.get(at).and_then(|index| self.members.get_mut(*index as usize)) {
            // CAST: as above.
            moved.at = at as u32;
            let at = self.rise(at);
            self.sink(at);
        }
    }

    /// The next entry, and its level.
    pub fn first(&self) -> Option<(usize, u32)> {
        let (index, member) = self.member(0)?;
        Some((index, member.level))
    }

    /// The highest level of an entry in line besides the entry `index`.
    pub fn level_besides(&self, index: Option<usize>) -> Option<u32> {
        match self.first()? {
            (first, _) if Some(first) == index => {
                [1, 2].into_iter().filter_map(|at| self.member(at)).map(|(_, member)| member.level).max()
            }
            (_, level) => Some(level),
        }
    }

    /// The level of the entry `index`, if it is in line.
    pub fn level_of(&self, index: usize) -> Option<u32> {
        self.members.get(index).filter(|member| member.at != NONE).map(|member| member.level)
    }

    /// What stands at `at` in the heap.
    fn member(&self, at: usize) -> Option<(usize, &Member)> {
        let index = *self.heap.get(at)? as usize;
        Some((index, self.members.get(index)?))
    }

    /// Returns whether what stands at `at` goes before what stands at `than`: the higher level, and of one level what
    /// was served earlier, and of what was never served the lower index.
    fn is_before(&self, at: usize, than: usize) -> bool {
        #[cfg(test)]
        self.compared.set(self.compared.get() + 1);
        match (self.member(at), self.member(than)) {
            (Some((index, here)), Some((other, there))) => {
                (there.level, here.served, index) < (here.level, there.served, other)
            }
            _ => false,
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        for at in [a, b] {
            if let Some(member) = self.heap.get(at).and_then(|index| self.members.get_mut(*index as usize)) {
                // CAST: as in `put`.
                member.at = at as u32;
            }
        }
    }

    /// What stands at `at` goes to the front as far as it belongs. Where it stands then.
    fn rise(&mut self, mut at: usize) -> usize {
        while at != 0 && self.is_before(at, (at - 1) / 2) {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        at
    }

    /// What stands at `at` goes back as far as it belongs.
    fn sink(&mut self, mut at: usize) {
        loop {
            let [left, right] = [2 * at + 1, 2 * at + 2];
            if left >= self.heap.len() {
                return;
            }
            let child = if right < self.heap.len() && self.is_before(right, left) { right } else { left };
            if !self.is_before(child, at) {
                return;
            }
            self.swap(child, at);
            at = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers as if drawn.
    struct Draw(u64);

    impl Draw {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % bound
        }
    }

    /// Against a search of a plain list, over what may happen to entries.
    #[test]
    fn the_line_is_what_a_search_finds() {
        for seed in 0..50 {
            let (mut line, mut plain, mut draw) = (Line::default(), Vec::new(), Draw(seed));
            for served in 0..400 {
                if plain.is_empty() || draw.below(8) == 0 {
                    line.grow().unwrap();
                    plain.push(None);
                }
                let index = draw.below(plain.len() as u64) as usize;
                plain[index] = if draw.below(3) == 0 { None } else { Some((draw.below(4) as u32, served)) };
                match plain[index] {
                    Some((level, served)) => line.put(index, level, served),
                    None => line.leave(index),
                }
                let waiting =
                    || plain.iter().enumerate().filter_map(|(at, of)| of.map(|(level, when)| (at, level, when)));
                let first = waiting().max_by_key(|(at, level, when)| (*level, core::cmp::Reverse((*when, *at))));
                assert_eq!(line.first(), first.map(|(at, level, _)| (at, level)));
                for besides in [None, first.map(|(at, ..)| at), Some(index)] {
                    let level = waiting().filter(|(at, ..)| Some(*at) != besides).map(|(_, level, _)| level).max();
                    assert_eq!(line.level_besides(besides), level);
                }
                assert_eq!(line.level_of(index), plain[index].map(|(level, _)| level));
            }
        }
    }

    /// Ten thousand processes: what a turn costs is a few comparisons.
    #[test]
    fn no_search_grows_with_the_processes() {
        let mut line = Line::default();
        for index in 0..10_000 {
            line.grow().unwrap();
            line.put(index, 0, index as u64);
        }
        for served in 10_000..20_000 {
            let before = line.compared.get();
            let (next, _) = line.first().unwrap();
            assert_eq!((next as u64, line.level_besides(Some(next))), (served - 10_000, Some(0)));
            line.leave(next);
            line.put(next, 0, served);
            assert!(line.compared.get() - before < 100, "{}", line.compared.get() - before);
        }
    }
}
