//! Synthetic latencies with known quantiles.

use parm_random::Random;

/// Correlated latencies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Series {
    /// Independent samples, exponential of mean 1.
    Independent,
    /// Fast (1 to 2) with slow episodes (10 to 11) of this mean length in samples, which are this share of all.
    Episodes(f64, f64),
    /// Times in a queue with one server at this load: long memory at high loads (M/M/1, service of mean 1).
    Queue(f64),
}

impl Series {
    /// The first samples, in equilibrium.
    pub(super) fn draw(self, count: usize, seed: u64) -> Vec<f64> {
        let mut draw = Random::of(seed, [0x5E81E5]);
        match self {
            Series::Independent => (0..count).map(|_| draw.exponential()).collect(),
            Series::Episodes(length, share) => {
                let leave = 1.0 / length;
                let enter = leave * share / (1.0 - share);
                let mut slow = draw.uniform() < share;
                let next = |_| {
                    slow = if slow { draw.uniform() >= leave } else { draw.uniform() < enter };
                    (if slow { 10.0 } else { 1.0 }) + draw.uniform()
                };
                (0..count).map(next).collect()
            }
            Series::Queue(load) => {
                // Lindley's recursion, begun with the exact law of the waiting time.
                let mut wait = if draw.uniform() < load { draw.exponential() / (1.0 - load) } else { 0.0 };
                let next = |_| {
                    let sojourn = wait + draw.exponential();
                    wait = (sojourn - draw.exponential() / load).max(0.0);
                    sojourn
                };
                (0..count).map(next).collect()
            }
        }
    }

    /// Returns the value that `share` of all samples do not exceed.
    pub(super) fn quantile(self, share: f64) -> f64 {
        match self {
            Series::Independent => -(1.0 - share).ln(),
            Series::Episodes(_, slow) => {
                if share < 1.0 - slow {
                    1.0 + share / (1.0 - slow)
                } else {
                    11.0 - (1.0 - share) / slow
                }
            }
            Series::Queue(load) => -(1.0 - share).ln() / (1.0 - load),
        }
    }
}
