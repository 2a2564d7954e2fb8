//! The conclusions about a policy under a load and a scenario: quantiles with intervals, if there is enough data.

use parm_loadgen::statistics::Estimate;
use parm_simulator::{Outcome, Tally};
use serde::Serialize;

use crate::Spectrum;
use crate::blocks::{Blocks, Quantiles};

/// The conclusions about a policy. Times are in milliseconds; `None` means that there is not enough data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Queries counted, over all repeats.
    pub count: u64,
    /// Mean latency.
    pub mean_ms: f64,
    /// Median latency.
    pub p50_ms: Option<Estimate>,
    /// The latency that 99 % of the queries do not exceed.
    pub p99_ms: Option<Estimate>,
    /// The latency that 99.9 % of the queries do not exceed.
    pub p999_ms: Option<Estimate>,
    /// p99.9 less p50.
    pub gap_ms: Option<Estimate>,
    /// The gap of `equal` under the same load and scenario, divided by this one: above 1 this policy's tail is shorter.
    pub gap_ratio: Option<Estimate>,
    /// Shares of the queries by outcome.
    pub shares: Shares,
    /// Share of the queries with a wrong answer because of the scenario; failed ones have none.
    pub wrong: f64,
    /// Share of the answers that agree with the deployed model's, by outcome.
    pub accuracy: Accuracy,
    /// Redundant work as a share of the necessary work; with real processes, in jobs.
    pub extra: f64,
    /// Share of the instances' time that they worked.
    pub utilisation: f64,
    /// The largest number of unanswered queries at a time.
    pub most_in_flight: usize,
}

/// Shares of the queries by outcome.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[allow(missing_docs)] // as in `Outcome`
pub struct Shares {
    pub exact: f64,
    pub hedged: f64,
    pub reconstructed: f64,
    pub backup: f64,
    pub stand_in: f64,
    pub default: f64,
    pub rejected: f64,
}

/// Shares of right answers by outcome; `None` if there were none, or nothing was compared.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[allow(missing_docs)] // as in `Outcome`
pub struct Accuracy {
    pub exact: Option<f64>,
    pub hedged: Option<f64>,
    pub reconstructed: Option<f64>,
    pub backup: Option<f64>,
    pub stand_in: Option<f64>,
    pub default: Option<f64>,
}

/// The quantiles of a policy's runs and of their resamples, from which ratios are computed.
#[derive(Clone, Debug)]
pub(crate) struct Tails {
    pub(crate) spectrum: Spectrum,
    all: Quantiles,
    drawn: Vec<Quantiles>,
    count: u64,
}

/// Fewest samples beyond a quantile for an interval.
pub(crate) const BEYOND: f64 = 10.0;

impl Tails {
    pub(crate) fn of(runs: &[Tally], seed: u64) -> Self {
        let blocks = Blocks::of(runs);
        let count = runs.iter().map(Tally::count).sum();
        Self {
            all: blocks.quantiles(),
            drawn: blocks.resampled(seed),
            spectrum: Spectrum::of(&blocks, count),
            count,
        }
    }

    fn estimate(&self, share: f64, of: impl Fn(Quantiles) -> f64) -> Option<Estimate> {
        self.enough(share).then(|| Estimate::of(of(self.all), self.drawn.iter().map(|drawn| of(*drawn))))
    }

    fn enough(&self, share: f64) -> bool {
        self.count as f64 * (1.0 - share) >= BEYOND
    }

    /// Returns the gap of the baseline divided by this one.
    pub(crate) fn ratio(&self, baseline: &Tails) -> Option<Estimate> {
        let ratio = |own: Quantiles, base: Quantiles| base.gap() / own.gap();
        let both = self.enough(0.999) && baseline.enough(0.999);
        let pairs = self.drawn.iter().zip(&baseline.drawn).map(|(own, base)| ratio(*own, *base));
        let estimate = both.then(|| Estimate::of(ratio(self.all, baseline.all), pairs));
        // Constant service times without queueing have a gap of zero, and the ratio is undefined.
        estimate.filter(|ratio| ratio.low.is_finite() && ratio.high.is_finite())
    }
}

impl Verdict {
    pub(crate) fn of(runs: &[Tally], tails: &Tails) -> Self {
        let mean = |of: &dyn Fn(&Tally) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
        let share = |outcome| mean(&|run| run.share(outcome));
        Self {
            count: tails.count,
            mean_ms: mean(&|run| run.mean().0 * 1e3),
            p50_ms: tails.estimate(0.5, |of| of.p50),
            p99_ms: tails.estimate(0.99, |of| of.p99),
            p999_ms: tails.estimate(0.999, |of| of.p999),
            gap_ms: tails.estimate(0.999, Quantiles::gap),
            gap_ratio: None,
            shares: Shares {
                exact: share(Outcome::Exact),
                hedged: share(Outcome::Hedged),
                reconstructed: share(Outcome::Reconstructed),
                backup: share(Outcome::Backup),
                stand_in: share(Outcome::StandIn),
                default: share(Outcome::Default),
                rejected: share(Outcome::Failed),
            },
            wrong: mean(&Tally::wrong),
            accuracy: Accuracy::of(runs),
            extra: mean(&Tally::extra),
            utilisation: mean(&Tally::utilisation),
            most_in_flight: runs.iter().map(Tally::most_in_flight).max().unwrap_or(0),
        }
    }
}

impl Accuracy {
    fn of(runs: &[Tally]) -> Self {
        let share = |outcome| {
            let graded = runs.iter().filter_map(|run| run.right(outcome));
            let (ended, right) = graded.fold((0u64, 0u64), |sum, of| (sum.0 + of.0, sum.1 + of.1));
            (ended > 0).then(|| right as f64 / ended as f64)
        };
        Self {
            exact: share(Outcome::Exact),
            hedged: share(Outcome::Hedged),
            reconstructed: share(Outcome::Reconstructed),
            backup: share(Outcome::Backup),
            stand_in: share(Outcome::StandIn),
            default: share(Outcome::Default),
        }
    }
}
