//! Who is told how far runs are.

/// Told how far the runs are, by several threads.
pub trait Progress: Sync {
    /// So many more queries have arrived.
    fn advanced(&self, queries: u64);
}

/// Progress that nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn advanced(&self, _queries: u64) {}
}
