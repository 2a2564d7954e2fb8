//! Synthetic latencies with known quantiles, on which the intervals are tested.

use parm_random::Random;

/// Correlated latencies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Series {
    /// Independent samples, exponential of mean 1.
    Independent,
    /// Fast (1 to 2) with slow episodes (10 to 11) of this mean length in samples, which are this share of all.
    Episodes(f64, f64),
    /// The exponential of a Gaussian whose samples have this correlation with the previous one.
    Lognormal(f64),
    /// Times in a queue with one server at this load: long memory at high loads (M/M/1, service of mean 1).
    Queue(f64),
}

impl Series {
    /// The first samples, in equilibrium.
    pub fn draw(self, count: usize, seed: u64) -> Vec<f64> {
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
            Series::Lognormal(memory) => {
                let mut state = draw.normal();
                let next = |_| {
                    state = memory * state + (1.0 - memory * memory).sqrt() * draw.normal();
                    state.exp()
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
    pub fn quantile(self, share: f64) -> f64 {
        match self {
            Series::Independent => -(1.0 - share).ln(),
            Series::Episodes(_, slow) => {
                if share < 1.0 - slow {
                    1.0 + share / (1.0 - slow)
                } else {
                    11.0 - (1.0 - share) / slow
                }
            }
            Series::Lognormal(_) => normal_quantile(share).exp(),
            Series::Queue(load) => -(1.0 - share).ln() / (1.0 - load),
        }
    }
}

/// The standard normal quantile above the median, by Newton's method on the tail's continued fraction.
fn normal_quantile(share: f64) -> f64 {
    let mut x = (-2.0 * (1.0 - share).ln()).sqrt();
    for _ in 0..50 {
        let density = (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt();
        x += (tail(x) - (1.0 - share)) / density;
    }
    x
}

/// Probability that a standard normal exceeds `x`, for x above 1 or so (Laplace's continued fraction).
fn tail(x: f64) -> f64 {
    let fraction = (1..=200).rev().fold(x, |below, k| x + f64::from(k) / below);
    (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt() / fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_number_of_samples_exceeds_each_quantile() {
        for series in
            [Series::Independent, Series::Episodes(8.0, 0.02), Series::Lognormal(0.9), Series::Queue(0.7)]
        {
            for share in [0.99, 0.999] {
                let bound = series.quantile(share);
                let count = 2_000_000;
                let over = series.draw(count, 5).iter().filter(|sample| **sample > bound).count();
                let seen = over as f64 / count as f64 / (1.0 - share);
                assert!((0.8..1.25).contains(&seen), "{series:?} {share}: {seen} of the expected number");
            }
        }
    }

    #[test]
    fn normal_quantiles_are_those_of_the_tables() {
        for (share, quantile) in [(0.975, 1.959_964), (0.99, 2.326_348), (0.999, 3.090_232)] {
            assert!((normal_quantile(share) - quantile).abs() < 1e-5, "{share}: {}", normal_quantile(share));
        }
    }
}
