//! The interface that receives the progress of runs.

/// Receives the progress of runs from several threads.
pub trait Progress: Send + Sync {
    /// Reports that this many more queries have arrived.
    fn advanced(&self, queries: u64);
}

/// Ignores progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn advanced(&self, _queries: u64) {}
}
