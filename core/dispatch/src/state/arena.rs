//! Arena with generational keys: constant time, no hashing, and names that are never reused.
//!
//! A key carries the generation of its place, so a key that outlives its value (in a timer or a queue) finds
//! nothing instead of another value. So every queue and heap here can delete lazily.

use std::marker::PhantomData;
use std::num::NonZeroU64;

const INDEX_BITS: u32 = 28;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

/// The name of a value in the [`Arena`] of this tag. It is never zero, so an optional key needs no extra room.
pub(crate) struct Key<T> {
    raw: NonZeroU64,
    of: PhantomData<fn() -> T>,
}

/// Values by key. The tag keeps keys of different arenas apart without naming what they hold.
pub(crate) struct Arena<Tag, T> {
    places: Vec<Cell<T>>,
    free: Vec<u32>,
    of: PhantomData<fn() -> Tag>,
}

struct Cell<T> {
    generation: u64,
    value: Option<T>,
}

impl<Tag, T> Arena<Tag, T> {
    pub(crate) fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new(), of: PhantomData }
    }

    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> Key<Tag> {
        if let Some(index) = self.free.pop() {
            let place = &mut self.places[index as usize];
            place.value = Some(value);
            return Key::new(index, place.generation);
        }
        let index = u32::try_from(self.places.len()).ok().filter(|i| u64::from(*i) <= INDEX_MASK);
        let index = index.expect("fewer than 2^28 live values");
        self.places.push(Cell { generation: 1, value: Some(value) });
        Key::new(index, 1)
    }

    #[inline]
    pub(crate) fn remove(&mut self, key: Key<Tag>) -> Option<T> {
        let place = self.places.get_mut(key.index()).filter(|place| place.generation == key.generation())?;
        let value = place.value.take()?;
        place.generation += 1;
        self.free.push(key.index() as u32);
        Some(value)
    }

    #[inline]
    pub(crate) fn get(&self, key: Key<Tag>) -> Option<&T> {
        self.places.get(key.index()).filter(|place| place.generation == key.generation())?.value.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key<Tag>) -> Option<&mut T> {
        self.places.get_mut(key.index()).filter(|place| place.generation == key.generation())?.value.as_mut()
    }

    #[inline]
    pub(crate) fn contains(&self, key: Key<Tag>) -> bool {
        self.get(key).is_some()
    }

    /// The number of values.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// The key of the value at an index, if there is one.
    pub(crate) fn key_at(&self, index: usize) -> Option<Key<Tag>> {
        let place = self.places.get(index).filter(|place| place.value.is_some())?;
        Some(Key::new(index as u32, place.generation))
    }

    /// The keys of all values, by index.
    pub(crate) fn keys(&self) -> Vec<Key<Tag>> {
        self.iter().map(|(key, _)| key).collect()
    }

    /// Every value, by index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key<Tag>, &T)> {
        let entry = |(index, place): (usize, _)| {
            let place: &Cell<T> = place;
            place.value.as_ref().map(|value| (Key::new(index as u32, place.generation), value))
        };
        self.places.iter().enumerate().filter_map(entry)
    }

    /// The value of a key that a live value holds: [`State`](super::State) lists these keys.
    ///
    /// # Panics
    ///
    /// If the value is gone. Use [`get`](Self::get) for a key from a timer, a queue or the driver, which may
    /// outlive its value.
    #[inline]
    #[track_caller]
    pub(crate) fn at(&self, key: Key<Tag>) -> &T {
        self.get(key).expect("a key from the live state finds its value")
    }

    /// The same value, to change it. Panics as [`at`](Self::at).
    #[inline]
    #[track_caller]
    pub(crate) fn at_mut(&mut self, key: Key<Tag>) -> &mut T {
        self.get_mut(key).expect("a key from the live state finds its value")
    }
}

impl<T> Key<T> {
    fn new(index: u32, generation: u64) -> Self {
        Self::from_raw(generation << INDEX_BITS | u64::from(index))
    }

    /// The key as a number, unique over the arena's life.
    pub(crate) fn raw(self) -> u64 {
        self.raw.get()
    }

    /// The key of this number. Zero is never a key and finds nothing.
    pub(crate) fn from_raw(raw: u64) -> Self {
        Self { raw: NonZeroU64::new(raw).unwrap_or(NonZeroU64::MAX), of: PhantomData }
    }

    /// A small number that no other live value has.
    pub(crate) fn index(self) -> usize {
        (self.raw() & INDEX_MASK) as usize
    }

    fn generation(self) -> u64 {
        self.raw() >> INDEX_BITS
    }
}

// Derives would require the same traits of `T`.
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

impl<T> std::fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.index(), self.generation())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_outlives_its_value_finds_nothing() {
        let mut arena = Arena::<(), _>::new();
        let first = arena.insert("first");
        assert_eq!(arena.remove(first), Some("first"));
        let second = arena.insert("second");
        assert_eq!(first.index(), second.index());
        assert_eq!((arena.get(first), arena.get(second)), (None, Some(&"second")));
        assert_eq!((arena.remove(first), arena.iter().count()), (None, 1));
    }
}
