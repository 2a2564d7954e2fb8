//! Instances with room, as bits: a few words for a thousand instances.
//!
//! Instances with nothing to do come before those with a free slot. The search continues after the last result, so
//! work goes round and every instance is observed.

/// Instances with room, by index.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    words: Vec<Word>,
    /// Instances with nothing to do.
    empty: u32,
    /// Instances with jobs and a free slot.
    partial: u32,
    /// The places where the searches continue.
    next_empty: usize,
    next_partial: usize,
    /// One more than the highest index so far.
    end: usize,
}

/// The room of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    None,
    Partial,
    Empty,
}

/// An instance that a search found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) index: usize,
    room: Room,
}

/// The bits of 64 instances.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    empty: u64,
    partial: u64,
}

impl Idle {
    #[inline]
    pub(crate) fn set(&mut self, index: usize, room: Room) {
        let (word, bit) = (index / 64, 1 << (index % 64));
        self.end = self.end.max(index + 1);
        if word >= self.words.len() {
            self.words.resize(word + 1, Word::default());
        }
        let word = &mut self.words[word];
        flip(&mut word.empty, bit, &mut self.empty, room == Room::Empty);
        flip(&mut word.partial, bit, &mut self.partial, room == Room::Partial);
    }

    /// The next suitable instance with room. The next search continues after it.
    #[inline]
    pub(crate) fn next(&mut self, suits: impl FnMut(usize) -> bool) -> Option<usize> {
        let found = self.find(suits)?;
        self.go_on_after(found);
        Some(found.index)
    }

    /// The next suitable instance with room. The next search finds it again.
    pub(crate) fn find(&self, mut suits: impl FnMut(usize) -> bool) -> Option<Found> {
        if self.empty > 0
            && let Some(index) = find(&self.words, self.next_empty, |word| word.empty, &mut suits)
        {
            return Some(Found { index, room: Room::Empty });
        }
        if self.partial == 0 {
            return None;
        }
        let index = find(&self.words, self.next_partial, |word| word.partial, &mut suits)?;
        Some(Found { index, room: Room::Partial })
    }

    /// The next suitable instance with nothing to do. The next search finds it again.
    pub(crate) fn find_empty(&self, mut suits: impl FnMut(usize) -> bool) -> Option<Found> {
        let found = || find(&self.words, self.next_empty, |word| word.empty, &mut suits);
        let index = (self.empty > 0).then(found)??;
        Some(Found { index, room: Room::Empty })
    }

    /// The instance with room that ranks lowest. Equal ones take turns, those with nothing to do first.
    pub(crate) fn lowest<R: PartialOrd + Copy>(
        &self,
        mut rank: impl FnMut(usize) -> Option<R>,
    ) -> Option<Found> {
        let mut best: Option<(R, Found)> = None;
        let mut look = |from, bits: fn(&Word) -> u64, room| {
            find(&self.words, from, bits, &mut |index| {
                let own = rank(index).filter(|own| best.is_none_or(|(least, _)| *own < least));
                best = own.map_or(best, |own| Some((own, Found { index, room })));
                false
            });
        };
        if self.empty > 0 {
            look(self.next_empty, |word| word.empty, Room::Empty);
        }
        if self.partial > 0 {
            look(self.next_partial, |word| word.partial, Room::Partial);
        }
        best.map(|(_, found)| found)
    }

    /// Continues the next search after this instance.
    #[inline]
    pub(crate) fn go_on_after(&mut self, found: Found) {
        let next = self.after(found.index);
        match found.room {
            Room::Empty => self.next_empty = next,
            Room::Partial | Room::None => self.next_partial = next,
        }
    }

    /// A suitable instance with room, searched from a random place (`chance` in 0..1), so that no instance always
    /// follows the same other one. The places of `next` do not change.
    pub(crate) fn any(&self, chance: f64, mut suits: impl FnMut(usize) -> bool) -> Option<usize> {
        let from = ((chance * self.end as f64) as usize).min(self.end.saturating_sub(1));
        let empty = || find(&self.words, from, |word| word.empty, &mut suits);
        (self.empty > 0).then(empty).flatten().or_else(|| {
            (self.partial > 0).then(|| find(&self.words, from, |word| word.partial, &mut suits)).flatten()
        })
    }

    /// The place after this one, cyclically.
    fn after(&self, index: usize) -> usize {
        if index + 1 < self.words.len() * 64 { index + 1 } else { 0 }
    }

    /// Instances with nothing to do.
    pub(crate) fn empty(&self) -> impl Iterator<Item = usize> {
        let words = self.words.iter().enumerate().filter(|(_, word)| word.empty != 0);
        words.flat_map(|(at, word)| {
            let empty = word.empty;
            (0..64).filter(move |bit| empty >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        })
    }

    /// Instances with jobs and a free slot.
    pub(crate) fn partial(&self) -> impl Iterator<Item = usize> {
        let bits = |(at, word): (usize, &Word)| {
            let partial = word.partial;
            (0..64).filter(move |bit| partial >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        };
        self.words.iter().enumerate().flat_map(bits)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.empty == 0 && self.partial == 0
    }

    /// Whether more than this many have nothing to do.
    pub(crate) fn more_than(&self, count: u32) -> bool {
        self.empty > count
    }
}

/// Sets a bit and updates its count.
#[inline]
fn flip(bits: &mut u64, bit: u64, count: &mut u32, on: bool) {
    if (*bits & bit != 0) != on {
        *bits ^= bit;
        *count = if on { *count + 1 } else { *count - 1 };
    }
}

/// The first suitable bit from a place on, cyclically.
fn find(
    words: &[Word],
    from: usize,
    bits: impl Fn(&Word) -> u64,
    suits: &mut impl FnMut(usize) -> bool,
) -> Option<usize> {
    let (start, offset) = (from / 64, from % 64);
    // The word of the place is searched twice: first its end, at last its beginning.
    for step in 0..=words.len() {
        let word = if start + step < words.len() { start + step } else { start + step - words.len() };
        let mut bits = bits(&words[word]);
        if step == 0 {
            bits &= u64::MAX << offset;
        } else if step == words.len() {
            bits &= !(u64::MAX << offset);
        }
        while bits != 0 {
            let index = word * 64 + bits.trailing_zeros() as usize;
            if suits(index) {
                return Some(index);
            }
            bits &= bits - 1;
        }
    }
    None
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
        assert_eq!(
            [0.0, 0.1, 0.4, 0.99].map(|chance| idle.any(chance, |_| true)),
            [3, 70, 200, 200].map(Some)
        );
        assert_eq!(idle.any(0.9, |index| index < 6), Some(3), "round to the beginning, and empty ones first");
        assert_eq!(idle.next(|_| true), Some(200), "turns stay");
        assert!(idle.more_than(2) && !idle.more_than(3), "three are empty");
        [3, 70, 200, 5].into_iter().for_each(|index| idle.set(index, Room::None));
        assert!(idle.is_empty());
        assert_eq!(idle.next(|_| true), None);
    }
}
