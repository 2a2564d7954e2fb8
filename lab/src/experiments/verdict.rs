//! The conclusions about a policy under a load and a scenario: quantiles with intervals, if there is enough data.
//!
//! A quantile of each block and their scatter would be simpler, but a block has few samples beyond p99.9, so its own
//! p99.9 is biased. Pooling the drawn blocks first gives every resampled quantile as many samples as the run has. The
//! bootstrap of `parm_loadgen` needs the raw series and chooses its own blocks. Here the blocks are histograms, and they
//! must be the same for every policy, so that ratios are resampled in pairs.

use std::fmt;

use parm_loadgen::statistics::Estimate;
use parm_workload::Random;
use serde::Serialize;

use crate::experiments::Case;
use crate::simulator::{Outcome, Tally};
use crate::table;

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
    pub shares: ByOutcome<f64>,
    /// Share of the queries with a wrong answer because of the scenario; failed ones have none.
    pub wrong: f64,
    /// Share of the answers that agree with the deployed model's, by outcome; `None` if there were none, or nothing was compared.
    pub accuracy: ByOutcome<Option<f64>>,
    /// Redundant work as a share of the necessary work; with real processes, in jobs.
    pub extra: f64,
    /// Share of the instances' time that they worked.
    pub utilisation: f64,
}

/// A value for each outcome of queries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[allow(missing_docs)] // as in `Outcome`
pub struct ByOutcome<T> {
    pub exact: T,
    pub hedged: T,
    pub reconstructed: T,
    pub backup: T,
    pub stand_in: T,
    pub default: T,
    pub rejected: T,
}

impl<T: Copy> ByOutcome<T> {
    fn of(value: impl Fn(Outcome) -> T) -> Self {
        Self {
            exact: value(Outcome::Exact),
            hedged: value(Outcome::Hedged),
            reconstructed: value(Outcome::Reconstructed),
            backup: value(Outcome::Backup),
            stand_in: value(Outcome::StandIn),
            default: value(Outcome::Default),
            rejected: value(Outcome::Failed),
        }
    }
}

/// A quantile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// One in this many queries is slower: 1000 for p99.9.
    pub one_in: f64,
    /// Milliseconds.
    pub ms: f64,
}

/// The quantiles of a policy's runs and of their resamples, from which ratios are computed, in milliseconds for [`SHARES`].
#[derive(Clone, Debug)]
pub(crate) struct Tails {
    /// All quantiles as far out as ten queries are slower.
    pub(crate) spectrum: Vec<Point>,
    all: Vec<f64>,
    drawn: Vec<Vec<f64>>,
    count: u64,
}

const SHARES: [f64; 3] = [0.5, 0.99, 0.999];
/// Fewest samples beyond a quantile for an interval.
const BEYOND: f64 = 10.0;
/// Points of a spectrum for every factor of ten.
const POINTS: i32 = 12;
/// Number of draws. They are the same for every policy, so that policies are compared on the same blocks.
const ROUNDS: u64 = 400;

impl Tails {
    pub(crate) fn of(runs: &[Tally], seed: u64) -> Self {
        let blocks = Blocks::of(runs);
        let own = blocks.blocks.len();
        let count: u64 = runs.iter().map(Tally::count).sum();
        let drawn = |round| {
            let mut draw = Random::of(seed, [round]);
            blocks.quantiles((0..own).map(|_| draw.below(own)), &SHARES)
        };
        let one_in = (0..).map(|i| 10f64.powf(f64::from(i) / f64::from(POINTS)));
        let one_in: Vec<f64> = one_in.take_while(|one_in| *one_in <= count as f64 / BEYOND).collect();
        let shares: Vec<f64> = one_in.iter().map(|one_in| 1.0 - 1.0 / one_in).collect();
        let points = one_in.into_iter().zip(blocks.quantiles(0..own, &shares));
        Self {
            spectrum: points.map(|(one_in, ms)| Point { one_in, ms }).collect(),
            all: blocks.quantiles(0..own, &SHARES),
            drawn: (0..ROUNDS).map(drawn).collect(),
            count,
        }
    }

    fn estimate(&self, share: f64, of: impl Fn(&[f64]) -> f64) -> Option<Estimate> {
        self.enough(share).then(|| Estimate::of(of(&self.all), self.drawn.iter().map(|drawn| of(drawn))))
    }

    fn enough(&self, share: f64) -> bool {
        self.count as f64 * (1.0 - share) >= BEYOND
    }

    /// Returns the gap of the baseline divided by this one.
    pub(crate) fn ratio(&self, baseline: &Tails) -> Option<Estimate> {
        let ratio = |own: &[f64], base: &[f64]| gap(base) / gap(own);
        let both = self.enough(0.999) && baseline.enough(0.999);
        let pairs = self.drawn.iter().zip(&baseline.drawn).map(|(own, base)| ratio(own, base));
        let estimate = both.then(|| Estimate::of(ratio(&self.all, &baseline.all), pairs));
        // Constant service times without queueing have a gap of zero, and the ratio is undefined.
        estimate.filter(|ratio| ratio.low.is_finite() && ratio.high.is_finite())
    }
}

/// Returns p99.9 less p50, the paper's measure of a tail.
fn gap(of: &[f64]) -> f64 {
    of[2] - of[0]
}

impl Verdict {
    pub(crate) fn of(runs: &[Tally], tails: &Tails) -> Self {
        let mean = |of: &dyn Fn(&Tally) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
        let right = |outcome| {
            let graded = runs.iter().filter_map(|run| run.right(outcome));
            let (ended, right) = graded.fold((0u64, 0u64), |sum, of| (sum.0 + of.0, sum.1 + of.1));
            (ended > 0).then(|| right as f64 / ended as f64)
        };
        Self {
            count: tails.count,
            mean_ms: mean(&|run| run.mean().0 * 1e3),
            p50_ms: tails.estimate(SHARES[0], |of| of[0]),
            p99_ms: tails.estimate(SHARES[1], |of| of[1]),
            p999_ms: tails.estimate(SHARES[2], |of| of[2]),
            gap_ms: tails.estimate(SHARES[2], gap),
            gap_ratio: None,
            shares: ByOutcome::of(|outcome| mean(&|run| run.share(outcome))),
            wrong: mean(&Tally::wrong),
            accuracy: ByOutcome::of(right),
            extra: mean(&Tally::extra),
            utilisation: mean(&Tally::utilisation),
        }
    }
}

/// The blocks of one or several runs.
struct Blocks {
    /// The distinct latencies in nanoseconds, in order.
    latencies: Vec<u64>,
    /// For each block, the latencies that occurred (by index) and how often.
    blocks: Vec<Vec<(u32, u32)>>,
}

impl Blocks {
    fn of(runs: &[Tally]) -> Self {
        let blocks = || runs.iter().flat_map(Tally::blocks);
        let mut latencies: Vec<u64> = blocks().flat_map(|block| block.keys().copied()).collect();
        latencies.sort_unstable();
        latencies.dedup();
        let index = |latency| latencies.partition_point(|other| *other < latency) as u32;
        let blocks = blocks()
            .map(|block| block.iter().map(|(latency, count)| (index(*latency), *count)).collect())
            .collect();
        Self { latencies, blocks }
    }

    /// Returns quantiles of these blocks together in milliseconds, for shares in ascending order.
    fn quantiles(&self, drawn: impl Iterator<Item = usize>, shares: &[f64]) -> Vec<f64> {
        let mut counts = vec![0u64; self.latencies.len()];
        for (index, count) in drawn.flat_map(|block| &self.blocks[block]) {
            counts[*index as usize] += u64::from(*count);
        }
        let total = counts.iter().sum::<u64>() as f64;
        let (mut below, mut next) = (0, 0);
        let value = |share: &f64| {
            while next < counts.len() && (below as f64) < (share * total).max(1.0) {
                below += counts[next];
                next += 1;
            }
            self.latencies.get(next.saturating_sub(1)).map_or(f64::NAN, |nanos| *nanos as f64 / 1e6)
        };
        shares.iter().map(value).collect()
    }
}

/// The result of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Seed of the first repeat; each further one adds one.
    pub seed: u64,
    /// Runs of each cell.
    pub repeats: u32,
    /// Queries in a run, the warm-up included.
    pub queries: u64,
    /// One for each scenario, load and policy.
    pub rows: Vec<Row>,
}

/// The result of a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What ran.
    #[serde(flatten)]
    pub case: Case,
    /// The quantiles and shares with their intervals.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// All its quantiles.
    pub spectrum: Vec<Point>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = "scenario|load|policy|p50 ms|p99 ms|p99.9 ms|gap ms|95 %|ratio|95 %|exact|hedged|approx|other|extra|busy|N";
        f.write_str(&table(head, 3, self.rows.iter().map(Row::cells).collect()))?;
        write!(
            f,
            "gap = p99.9 - p50; ratio = gap of equal / gap; shares in %; approx = reconstructed, backup, stand-in; seeds {} to {}; {} queries per run",
            self.seed,
            self.seed.wrapping_add(u64::from(self.repeats) - 1),
            self.queries,
        )
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let case = &self.case;
        let Verdict { p50_ms, p99_ms, p999_ms, gap_ms, gap_ratio, shares, extra, utilisation, count, .. } =
            &self.verdict;
        let value = |of: &Option<Estimate>| of.map_or("n/a".into(), |of| number(of.value));
        let within = |of: Estimate| format!("{}..{}", number(of.low), number(of.high));
        let mut cells = vec![case.scenario.clone(), case.intensity(), case.name()];
        cells.extend([p50_ms, p99_ms, p999_ms, gap_ms].map(value));
        cells.push(gap_ms.map_or("not enough data".into(), within));
        cells.extend(gap_ratio.map_or_else(Default::default, |ratio| [number(ratio.value), within(ratio)]));
        let approximate = shares.reconstructed + shares.backup + shares.stand_in;
        let other = shares.default + shares.rejected;
        let shares = [shares.exact, shares.hedged, approximate, other, *extra, *utilisation];
        cells.extend(shares.map(|share| format!("{:.2}", 100.0 * share)));
        cells.push(count.to_string());
        cells
    }
}

/// Formats three digits, the precision of a latency.
fn number(value: f64) -> String {
    match value.abs() {
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
