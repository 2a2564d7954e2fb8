//! From the driver's names to ours. Looked up, never walked, so no order leaks out of the hashing; and hashed without
//! a key, as the driver and not a client chooses the names.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use super::arena::Key;

/// Keys by the driver's id.
pub(super) struct Names<I, T> {
    keys: HashMap<I, Key<T>, BuildHasherDefault<Mix>>,
}

impl<I: Eq + Hash, T> Names<I, T> {
    pub(super) fn new() -> Self {
        Self { keys: HashMap::default() }
    }

    pub(super) fn get(&self, id: I) -> Option<Key<T>> {
        self.keys.get(&id).copied()
    }

    pub(super) fn insert(&mut self, id: I, key: Key<T>) {
        self.keys.insert(id, key);
    }

    pub(super) fn remove(&mut self, id: I) -> Option<Key<T>> {
        self.keys.remove(&id)
    }
}

/// Multiply and fold: enough for small integers that are mostly consecutive.
#[derive(Default)]
pub(super) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        let wide =
            u128::from(self.0 ^ number ^ 0x9E37_79B9_7F4A_7C15) * u128::from(0xD6E8_FEB8_6659_FD93_u64);
        self.0 = (wide >> 64) as u64 ^ wide as u64;
    }
}
