//! The beginning of a body, which grows to all of it. A body in one piece is not copied.

use bytes::Bytes;

/// Most bytes reserved before any arrived: the announced length may be wrong.
const RESERVE: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct Begun {
    first: Bytes,
    whole: Vec<u8>,
}

impl Begun {
    /// Adds a piece of a body of which so many bytes are `expected`; 0 if nothing is known.
    pub(crate) fn add(&mut self, bytes: Bytes, expected: usize) {
        if self.first.is_empty() && self.whole.is_empty() {
            self.first = bytes;
            return;
        }
        if self.whole.is_empty() {
            let least = self.first.len() + bytes.len();
            self.whole.reserve_exact(expected.clamp(least, RESERVE.max(least)));
            self.whole.extend_from_slice(&std::mem::take(&mut self.first));
        }
        let needed = self.whole.len() + bytes.len();
        if needed > self.whole.capacity() {
            // Doubled, but not beyond the size that is expected.
            let most = if expected == 0 { usize::MAX } else { expected };
            let room = (2 * self.whole.capacity()).min(most).max(needed);
            self.whole.reserve_exact(room - self.whole.len());
        }
        self.whole.extend_from_slice(&bytes);
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if self.whole.is_empty() { &self.first } else { &self.whole }
    }

    pub(crate) fn freeze(self) -> Bytes {
        if self.whole.is_empty() { self.first } else { self.whole.into() }
    }
}
