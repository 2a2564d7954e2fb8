//! Times of batches by the padded size of their inputs, of models that take inputs of several sizes in one batch.
//!
//! Problem: a row of ten tokens in a batch with one of three hundred costs as much as the long one. Whether that is less
//! than a run of its own depends on the engine: most of a short run may be overhead, or a device may have idle lanes.
//!
//! Choice: the time of a run is a part that each run takes, and a part in proportion to its padded size, which is its rows
//! times the size of the largest. Both are fitted by least squares of relative errors to the latest runs, of batches and of
//! single rows. A query may join a batch if the padding that it adds, its own or that of the others, takes less than the
//! run that it saves.
//!
//! Rejected: classes of sizes between which nothing is shared (a row finds less company, and the cost of a class depends
//! on the engine as well); a curve of times for each size (hundreds of pairs of rows and sizes, each with few runs); a cubic
//! term for attention (on one processor core an encoder of 16 to 512 tokens is within a fifth of the line).
//!
//! Cold start: queries whose padding is below an eighth of the batch share one.

use std::time::Duration;

/// Runs that the fit remembers.
const WINDOW: f64 = 512.0;

/// Runs before the fit is used.
const KNOWN: u32 = 32;

/// The least relative variance of padded sizes from which both parts can be told apart.
const SPREAD: f64 = 0.01;

/// A run counts so many expected times at most, so that a straggler does not decide.
const CLIP: f64 = 2.0;

/// The most weight of a run.
const HEAVIEST: f64 = 100.0;

/// The part of a saved run that padding may take: times are not exact, and the shorter queries wait longer.
const WORTH: f64 = 0.8;

/// The part of a batch that may be padding while times are unknown.
const UNKNOWN: f64 = 0.125;

/// Rows that the usual size remembers.
const ROWS: f64 = 256.0;

/// Times of runs by padded size.
#[derive(Clone, Debug, Default)]
pub(crate) struct Padding {
    /// Sums over runs: weight, size, time, squared size, size by time.
    sums: [f64; 5],
    runs: u32,
    line: Option<Affine>,
    /// The mean padded size of a row.
    usual: f64,
}

/// The nanoseconds of each run, and of each unit of its padded size.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Affine {
    run: f64,
    unit: f64,
}

impl Affine {
    fn at(self, units: f64) -> f64 {
        self.run + self.unit * units
    }
}

/// The queries of one batch, as far as padding depends on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Padded {
    pub(crate) rows: u32,
    pub(crate) largest: u32,
    /// Their own sizes together.
    total: u64,
}

impl Padded {
    pub(crate) fn one(size: u32) -> Self {
        Self { rows: 1, largest: size, total: size.into() }
    }

    pub(crate) fn with(self, size: u32) -> Self {
        let total = self.total + u64::from(size);
        Self { rows: self.rows + 1, largest: self.largest.max(size), total }
    }

    pub(crate) fn units(self) -> u64 {
        u64::from(self.rows) * u64::from(self.largest)
    }

    fn padding(self) -> f64 {
        (self.units() - self.total) as f64
    }
}

impl Padding {
    /// Notes a run of so many rows on an instance of average speed; `units` is its padded size.
    pub(crate) fn note(&mut self, rows: usize, units: u32, took: Duration) {
        let (rows, units) = (rows.max(1) as f64, f64::from(units.max(1)));
        let expected = self.line.map(|line| line.at(units));
        let nanos =
            (took.as_nanos() as f64).min(expected.map_or(f64::INFINITY, |nanos| CLIP * nanos)).max(1.0);
        // Errors of long runs are large, so relative ones count. Measured times would give most weight to the shortest.
        let weight =
            expected.map_or(1.0, |nanos| (self.sums[2] / self.sums[0] / nanos).powi(2).min(HEAVIEST));
        let terms = [1.0, units, nanos, units * units, units * nanos];
        for (sum, term) in self.sums.iter_mut().zip(terms) {
            *sum += weight * term - *sum / WINDOW;
        }
        let part = if self.runs == 0 { 1.0 } else { (rows / ROWS).min(1.0) };
        self.usual += (units / rows - self.usual) * part;
        self.runs = self.runs.saturating_add(1);
        self.line = self.fitted().filter(|_| self.runs >= KNOWN);
    }

    fn fitted(&self) -> Option<Affine> {
        let [weight, units, nanos, squares, products] = self.sums;
        let (units, nanos) = (units / weight, nanos / weight);
        let (variance, covariance) = (squares / weight - units * units, products / weight - units * nanos);
        if variance < SPREAD * units * units {
            return None;
        }
        // Neither part can be negative.
        let unit = (covariance / variance).clamp(0.0, nanos / units);
        Some(Affine { run: nanos - unit * units, unit })
    }

    /// Whether a query should join a batch: the padding that it adds costs less than a run of its own.
    pub(crate) fn pays(&self, batch: Padded, joined: Padded) -> bool {
        let added = joined.padding() - batch.padding();
        match self.line {
            _ if added <= 0.0 => true,
            Some(Affine { run, unit }) => added * unit <= WORTH * run,
            None => joined.padding() <= UNKNOWN * joined.units() as f64,
        }
    }

    /// The expected nanoseconds of a batch.
    pub(crate) fn expected(&self, batch: Padded) -> Option<f64> {
        self.line.map(|line| line.at(batch.units() as f64))
    }

    /// How many times as long as rows of the usual size such rows of another size take.
    pub(crate) fn stretch(&self, rows: u16, size: u32) -> f64 {
        self.of_usual(usize::from(rows), u64::from(rows) * u64::from(size))
    }

    /// The same for a run of this padded size.
    pub(crate) fn of_usual(&self, rows: usize, units: u64) -> f64 {
        let ratio = |line: Affine| line.at(units as f64) / line.at(self.usual * rows as f64);
        self.line.map_or(1.0, ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Learned from runs of 1, 2 and 4 rows of several sizes.
    fn learned(nanos: impl Fn(u64) -> u64) -> Padding {
        let mut padding = Padding::default();
        for round in 0..200u64 {
            let (rows, size) = ([1, 1, 2, 4][round as usize % 4], 1 + round * 7 % 40);
            padding.note(rows as usize, (rows * size) as u32, Duration::from_nanos(nanos(rows * size)));
        }
        padding
    }

    fn joins(padding: &Padding, batch: &[u32], size: u32) -> bool {
        let batch = batch[1..].iter().fold(Padded::one(batch[0]), |batch, size| batch.with(*size));
        padding.pays(batch, batch.with(size))
    }

    #[test]
    fn parts_of_the_time_are_found() {
        let line = learned(|units| 2_000_000 + 100_000 * units).line.unwrap();
        assert!((line.run / 2e6 - 1.0).abs() < 0.02 && (line.unit / 1e5 - 1.0).abs() < 0.02, "{line:?}");
    }

    #[test]
    fn stragglers_count_little() {
        let mut padding = learned(|units| 2_000_000 + 100_000 * units);
        for round in 0..500u32 {
            let units = 1 + round * 7 % 40;
            let nanos = 2_000_000 + 100_000 * u64::from(units);
            padding.note(1, units, Duration::from_nanos(nanos * if round % 20 == 0 { 50 } else { 1 }));
        }
        let expected = padding.expected(Padded::one(20)).unwrap();
        assert!((expected / 4e6 - 1.0).abs() < 0.1, "{expected}");
    }

    #[test]
    fn runs_without_a_time_do_not_decide() {
        let mut padding = Padding::default();
        padding.note(1, 20, Duration::ZERO);
        for round in 0..2000u32 {
            let units = 1 + round * 7 % 40;
            padding.note(1, units, Duration::from_nanos(2_000_000 + 100_000 * u64::from(units)));
        }
        let expected = padding.expected(Padded::one(20)).unwrap();
        assert!((expected / 4e6 - 1.0).abs() < 0.05, "{expected}");
    }

    #[test]
    fn query_joins_if_its_padding_costs_less_than_a_run() {
        // A run costs as much as 20 units.
        let padding = learned(|units| 2_000_000 + 100_000 * units);
        assert!(joins(&padding, &[10], 10) && joins(&padding, &[10], 14) && joins(&padding, &[24], 10));
        assert!(!joins(&padding, &[10], 40) && !joins(&padding, &[40], 10));
        assert!(!joins(&padding, &[10, 10, 10], 18), "each of the three would be padded");
        assert!(joins(&padding, &[10, 40], 40), "no further padding");
    }

    #[test]
    fn everything_joins_if_size_costs_nothing() {
        assert!(joins(&learned(|_| 5_000_000), &[1], 500));
        assert!(!joins(&learned(|units| 100_000 * units), &[10], 11), "and nothing if a run costs nothing");
    }

    #[test]
    fn only_similar_sizes_join_before_times_are_known() {
        let padding = Padding::default();
        assert!(joins(&padding, &[20], 22) && joins(&padding, &[20], 20) && !joins(&padding, &[20], 30));
        let mut equal = Padding::default();
        (0..100).for_each(|_| equal.note(1, 20, Duration::from_millis(4)));
        assert_eq!(equal.line, None, "equal sizes show no cost of the size");
    }

    #[test]
    fn longer_rows_take_in_proportion() {
        let padding = learned(|units| 2_000_000 + 100_000 * units);
        let usual = padding.usual;
        assert!((padding.of_usual(1, usual.round() as u64) - 1.0).abs() < 0.05);
        assert!(padding.stretch(4, 400) > 5.0 && padding.stretch(1, 1) < 0.6);
    }
}
