//! Lookup from the driver's ids to keys.
//!
//! The maps are looked up and never iterated, so no order depends on hashing. The hash has no secret, because the
//! driver chooses the ids, not a client.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crate::state::arena::Key;

/// Keys by the driver's id.
pub(crate) struct Names<I, T> {
    keys: HashMap<I, Key<T>, BuildHasherDefault<Mix>>,
}

impl<I: Eq + Hash, T> Names<I, T> {
    pub(crate) fn new() -> Self {
        Self { keys: HashMap::default() }
    }

    pub(crate) fn get(&self, id: I) -> Option<Key<T>> {
        self.keys.get(&id).copied()
    }

    pub(crate) fn insert(&mut self, id: I, key: Key<T>) {
        self.keys.insert(id, key);
    }

    pub(crate) fn remove(&mut self, id: I) -> Option<Key<T>> {
        self.keys.remove(&id)
    }
}

/// Multiply and fold: sufficient for small integers, most of them consecutive.
#[derive(Default)]
pub(crate) struct Mix(u64);

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
