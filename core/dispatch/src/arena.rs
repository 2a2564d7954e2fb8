//! Storage for what comes and goes all the time: constant time, no hashing, and names that are never reused.
//!
//! A key carries the generation of its place, so one that outlives its value (in a timer, in a queue) finds nothing
//! instead of finding a stranger. That is what lets every queue and heap here delete lazily.

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::ops::{Index, IndexMut};

const INDEX_BITS: u32 = 28;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

/// The name of a value in an [`Arena`]. Never zero, so that one that may be missing takes no more room.
pub(super) struct Key<T> {
    raw: NonZeroU64,
    of: PhantomData<fn() -> T>,
}

/// Values by key.
pub(super) struct Arena<T> {
    places: Vec<Cell<T>>,
    free: Vec<u32>,
}

struct Cell<T> {
    generation: u64,
    value: Option<T>,
}

impl<T> Arena<T> {
    pub(super) fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    #[inline]
    pub(super) fn insert(&mut self, value: T) -> Key<T> {
        if let Some(index) = self.free.pop() {
            let place = &mut self.places[index as usize];
            place.value = Some(value);
            return Key::new(index, place.generation);
        }
        let index = u32::try_from(self.places.len()).ok().filter(|i| u64::from(*i) <= INDEX_MASK);
        let index = index.expect("fewer than 2^28 values live at a time");
        self.places.push(Cell { generation: 1, value: Some(value) });
        Key::new(index, 1)
    }

    #[inline]
    pub(super) fn remove(&mut self, key: Key<T>) -> Option<T> {
        let place = self.places.get_mut(key.index()).filter(|place| place.generation == key.generation())?;
        let value = place.value.take()?;
        place.generation += 1;
        self.free.push(key.index() as u32);
        Some(value)
    }

    #[inline]
    pub(super) fn get(&self, key: Key<T>) -> Option<&T> {
        self.places.get(key.index()).filter(|place| place.generation == key.generation())?.value.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: Key<T>) -> Option<&mut T> {
        self.places.get_mut(key.index()).filter(|place| place.generation == key.generation())?.value.as_mut()
    }

    #[inline]
    pub(super) fn contains(&self, key: Key<T>) -> bool {
        self.get(key).is_some()
    }

    /// How many values there are.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// The key of the value at an index, if there is one.
    pub(super) fn key_at(&self, index: usize) -> Option<Key<T>> {
        let place = self.places.get(index).filter(|place| place.value.is_some())?;
        Some(Key::new(index as u32, place.generation))
    }

    /// The keys of all values, by index.
    pub(super) fn keys(&self) -> Vec<Key<T>> {
        self.iter().map(|(key, _)| key).collect()
    }

    /// Every value, by index.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key<T>, &T)> {
        let entry = |(index, place): (usize, _)| {
            let place: &Cell<T> = place;
            place.value.as_ref().map(|value| (Key::new(index as u32, place.generation), value))
        };
        self.places.iter().enumerate().filter_map(entry)
    }
}

impl<T> Index<Key<T>> for Arena<T> {
    type Output = T;

    #[inline]
    fn index(&self, key: Key<T>) -> &T {
        self.get(key).expect("the value outlives this key")
    }
}

impl<T> IndexMut<Key<T>> for Arena<T> {
    #[inline]
    fn index_mut(&mut self, key: Key<T>) -> &mut T {
        self.get_mut(key).expect("the value outlives this key")
    }
}

impl<T> Key<T> {
    fn new(index: u32, generation: u64) -> Self {
        Self::from_raw(generation << INDEX_BITS | u64::from(index))
    }

    /// The key as a number, unique over the arena's life.
    pub(super) fn raw(self) -> u64 {
        self.raw.get()
    }

    /// The key of this number; of zero, which is nobody's, one that finds nothing either.
    pub(super) fn from_raw(raw: u64) -> Self {
        Self { raw: NonZeroU64::new(raw).unwrap_or(NonZeroU64::MAX), of: PhantomData }
    }

    /// A small number, shared only with values that are gone.
    pub(super) fn index(self) -> usize {
        (self.raw() & INDEX_MASK) as usize
    }

    fn generation(self) -> u64 {
        self.raw() >> INDEX_BITS
    }
}

// Derives would ask the same of `T`.
impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Key<T> {}

impl<T> PartialEq for Key<T> {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl<T> Eq for Key<T> {}

impl<T> PartialOrd for Key<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Key<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.raw.cmp(&other.raw)
    }
}

impl<T> fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index(), self.generation())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_outlives_its_value_finds_nothing() {
        let mut arena = Arena::new();
        let first = arena.insert("first");
        assert_eq!(arena.remove(first), Some("first"));
        let second = arena.insert("second");
        assert_eq!(first.index(), second.index());
        assert_eq!((arena.get(first), arena.get(second)), (None, Some(&"second")));
        assert_eq!((arena.remove(first), arena.iter().count()), (None, 1));
    }
}
