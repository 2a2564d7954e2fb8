//! Which instances have room for a job, as bits: a few words for a thousand instances, and no order to keep up.
//!
//! An instance with nothing to do comes before one that has a slot left, and the search starts where the last one
//! ended, so that work goes round and every instance is seen working.

/// Instances with room, by index.
#[derive(Debug, Default)]
pub(super) struct Idle {
    empty: Bits,
    partial: Bits,
}

/// How much room an instance has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    None,
    Partial,
    Empty,
}

#[derive(Debug, Default)]
struct Bits {
    words: Vec<u64>,
    count: u32,
    cursor: usize,
}

impl Idle {
    pub(super) fn set(&mut self, index: usize, room: Room) {
        self.empty.set(index, room == Room::Empty);
        self.partial.set(index, room == Room::Partial);
    }

    /// The next instance with room that suits.
    pub(super) fn next(&mut self, mut suits: impl FnMut(usize) -> bool) -> Option<usize> {
        self.empty.next(&mut suits).or_else(|| self.partial.next(&mut suits))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.empty.count == 0 && self.partial.count == 0
    }

    /// Whether more than so many have nothing to do.
    pub(super) fn more_than(&self, count: u32) -> bool {
        self.empty.count > count
    }
}

impl Bits {
    fn set(&mut self, index: usize, on: bool) {
        let (word, place) = (index / 64, index % 64);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let bits = &mut self.words[word];
        let was = *bits >> place & 1;
        *bits = *bits & !(1 << place) | u64::from(on) << place;
        self.count = self.count + u32::from(on) - was as u32;
    }

    fn next(&mut self, suits: &mut impl FnMut(usize) -> bool) -> Option<usize> {
        if self.count == 0 {
            return None;
        }
        let count = self.words.len();
        let (start, offset) = (self.cursor / 64, self.cursor % 64);
        // The word of the cursor comes twice: first its end, at last its beginning.
        for step in 0..=count {
            let word = (start + step) % count;
            let mut bits = self.words[word];
            if step == 0 {
                bits &= u64::MAX << offset;
            } else if step == count {
                bits &= !(u64::MAX << offset);
            }
            while bits != 0 {
                let index = word * 64 + bits.trailing_zeros() as usize;
                if suits(index) {
                    self.cursor = (index + 1) % (count * 64);
                    return Some(index);
                }
                bits &= bits - 1;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_goes_round_and_prefers_empty_instances() {
        let mut idle = Idle::default();
        for (index, room) in [(3, Room::Empty), (70, Room::Empty), (5, Room::Partial), (200, Room::Empty)] {
            idle.set(index, room);
        }
        let picks: Vec<_> = (0..5).map(|_| idle.next(|_| true)).collect();
        assert_eq!(picks, [Some(3), Some(70), Some(200), Some(3), Some(70)]);
        assert_eq!(idle.next(|index| index == 5), Some(5), "partial when nothing empty suits");
        assert_eq!(idle.next(|index| index == 4), None);
        assert!(idle.more_than(2) && !idle.more_than(3), "three are empty");
        [3, 70, 200, 5].into_iter().for_each(|index| idle.set(index, Room::None));
        assert!(idle.is_empty());
        assert_eq!(idle.next(|_| true), None);
    }
}
