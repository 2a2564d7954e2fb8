//! Predicts the tail latency of a policy without a cluster: a [`Run`] in the virtual [`world`](crate::world) becomes a [`Tally`].
//!
//! Choosing runs and interpreting tallies is left to `experiments` and `tuner`.

mod rivals;
mod run;
mod simulation;
mod tally;

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

pub use parm_workload::Outcome;
pub use run::Run;
pub use simulation::Answered;
pub use tally::Tally;

pub use crate::world::Lengths;

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

/// Returns what `work` gives for each number below `count`, in order, from this many threads: the result does not depend on
/// their number. After an error no further work begins, and the error of the least number is returned.
pub(crate) fn parallel<T: Send, E: Send>(
    count: usize,
    threads: usize,
    work: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let next = AtomicUsize::new(0);
    let one = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return done;
            }
            let result = work(index);
            if result.is_err() {
                next.store(count, Ordering::Relaxed);
            }
            done.push((index, result));
        }
    };
    let mut all: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.clamp(1, count.max(1))).map(|_| scope.spawn(one)).collect();
        let done =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        done.flatten().collect()
    });
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, result)| result).collect()
}
