//! Pool of buffers for parity queries, which return when their last reader drops them.
//!
//! A parity query is as long as a query and lives as long as a job, so a busy pool would otherwise allocate and free
//! megabytes for every group.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

/// Maximum buffers kept, and the floats that they may hold together (256 MiB).
const MOST: usize = 128;
const MOST_FLOATS: usize = 64 << 20;

/// Unused buffers.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    spare: Mutex<Spare>,
}

#[derive(Debug, Default)]
struct Spare {
    buffers: Vec<Vec<f32>>,
    floats: usize,
}

/// A buffer in use.
pub(super) struct Buffer {
    floats: Vec<f32>,
    bytes: usize,
    home: Weak<Stock>,
}

impl Stock {
    /// Takes a buffer of this many bytes with arbitrary content.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Buffer {
        let len = bytes.div_ceil(4);
        let found = {
            let mut spare = self.spare.lock();
            // Groups of one model have one size: the buffer that returned last usually fits.
            let fitting = spare.buffers.iter().rposition(|buffer| buffer.capacity() >= len);
            fitting.map(|at| {
                let buffer = spare.buffers.swap_remove(at);
                spare.floats -= buffer.capacity();
                buffer
            })
        };
        let mut floats = found.unwrap_or_default();
        floats.resize(len, 0.0);
        Buffer { floats, bytes, home: Arc::downgrade(self) }
    }
}

impl Buffer {
    /// Its floats.
    pub(super) fn floats(&mut self) -> &mut [f32] {
        &mut self.floats
    }

    /// Its bytes.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.floats)[..self.bytes]
    }

    /// Makes it readable by others; it returns to the stock after the last of them.
    pub(super) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.floats)[..self.bytes]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(home) = self.home.upgrade() else { return };
        let mut spare = home.spare.lock();
        let capacity = self.floats.capacity();
        if spare.buffers.len() < MOST && spare.floats + capacity <= MOST_FLOATS {
            spare.floats += capacity;
            spare.buffers.push(std::mem::take(&mut self.floats));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_is_reused_after_its_last_reader() {
        let stock = Arc::new(Stock::default());
        let mut buffer = stock.take(10);
        buffer.bytes().copy_from_slice(&[7; 10]);
        let address = buffer.floats().as_ptr() as usize;
        let bytes = buffer.freeze();
        let reader = bytes.slice(2..4);
        assert_eq!(reader, [7u8, 7].as_slice());
        drop(bytes);
        assert_ne!(stock.take(8).floats().as_ptr() as usize, address, "the buffer still has a reader");
        drop(reader);
        let again: Vec<usize> =
            [8, 9].map(|bytes| stock.take(bytes)).iter_mut().map(|b| b.floats().as_ptr() as usize).collect();
        assert!(again.contains(&address), "{again:?} {address}");
    }

    #[test]
    fn kept_buffers_are_bounded() {
        let stock = Arc::new(Stock::default());
        drop((0..2 * MOST).map(|_| stock.take(64)).collect::<Vec<_>>());
        assert_eq!(stock.spare.lock().buffers.len(), MOST);
    }
}
