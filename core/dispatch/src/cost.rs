//! What a stand-in costs: the time of its jobs by their rows, as a share of a query's.
//!
//! Problem: everything about a stand-in depends on its cost: whether it may run in time that queries leave over, how many
//! rows a job should take, what a late one is charged. It differs between engines and machines, and with the rows: on some
//! eight rows take little longer than one, on others eight times as long.
//!
//! Choice: what a worker measured when it loaded the model counts at first; then the median of the service times that are
//! seen here, for 1, 2, 4 and 8 rows each, over the median of the deployed model's. Between them costs are interpolated,
//! beyond them they grow as from 4 to 8 rows.
//!
//! Rejected: means (a straggler moves them); a line through all points (overheads and caches bend it).
//!
//! Cold start: until a worker's figures are in, the configured cost of a row, and as much again for every other.

use std::time::Duration;

use super::Cost;
use super::quantile::Quantiles;

/// Rows for which the cost is known.
const ROWS: [usize; 4] = [1, 2, 4, 8];

/// The cost of one pool's stand-in.
#[derive(Default)]
pub(super) struct Costs {
    told: Option<Cost>,
    seen: [Option<Quantiles>; 4],
}

impl Costs {
    /// A worker has measured it.
    pub(super) fn tell(&mut self, cost: Cost) {
        let sane = cost.rows.iter().all(|share| share.is_finite() && *share > 0.0);
        self.told = if sane { Some(cost) } else { self.told };
    }

    /// A job of so many rows took so long.
    pub(super) fn note(&mut self, rows: usize, took: Duration) {
        if let Some(at) = ROWS.iter().position(|known| *known == rows) {
            self.seen[at].get_or_insert_with(|| Quantiles::new(0.9)).add(took);
        }
    }

    /// What jobs of so many rows usually take, where enough were seen.
    pub(super) fn usual(&self, rows: usize) -> Option<Duration> {
        let at = ROWS.iter().position(|known| *known == rows)?;
        Some(self.seen[at].as_ref()?.reading()?.median)
    }

    /// The cost for 1, 2, 4 and 8 rows, where a query takes this long; `assumed` is that of a row of which nothing is known.
    pub(super) fn known(&self, query: Option<Duration>, assumed: f64) -> Cost {
        let seen = |at: usize| {
            let (own, query) = (self.usual(ROWS[at])?, query.filter(|query| !query.is_zero())?);
            Some(own.as_secs_f64() / query.as_secs_f64())
        };
        let told = |at: usize| self.told.map_or(assumed * ROWS[at] as f64, |cost| cost.rows[at]);
        // What is not seen yet is off by as much as what is.
        let mut off = 1.0;
        let mut rows = [0.0; 4];
        for (at, share) in rows.iter_mut().enumerate() {
            *share = match seen(at) {
                Some(seen) => {
                    off = seen / told(at).max(1e-9);
                    seen
                }
                None => told(at) * off,
            };
        }
        Cost { rows }
    }
}

impl Cost {
    /// A row costs this much, however many there are.
    pub const fn linear(row: f64) -> Self {
        Self { rows: [row, 2.0 * row, 4.0 * row, 8.0 * row] }
    }

    /// The cost of a job of so many rows.
    pub fn of(&self, rows: usize) -> f64 {
        let at = ROWS.iter().rposition(|known| *known <= rows.max(1)).unwrap_or(0).min(2);
        let (low, high) = (ROWS[at] as f64, ROWS[at + 1] as f64);
        let slope = (self.rows[at + 1] - self.rows[at]) / (high - low);
        (self.rows[at] + slope * (rows.max(1) as f64 - low)).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_between_and_beyond_known_rows_are_interpolated() {
        let cost = Cost { rows: [0.2, 0.3, 0.4, 0.8] };
        let is = [1, 2, 3, 4, 6, 8, 12].map(|rows| (cost.of(rows) * 1e6).round() / 1e6);
        assert_eq!(is, [0.2, 0.3, 0.35, 0.4, 0.6, 0.8, 1.2]);
    }

    #[test]
    fn what_is_seen_takes_the_place_of_what_was_told() {
        let (mut costs, query) = (Costs::default(), Some(Duration::from_millis(20)));
        assert_eq!(costs.known(query, 0.5), Cost::linear(0.5));
        costs.tell(Cost { rows: [0.2, 0.3, 0.4, 0.8] });
        assert_eq!(costs.known(query, 0.5).of(2), 0.3);
        (0..16).for_each(|_| costs.note(1, Duration::from_millis(8)));
        let known = costs.known(query, 0.5).rows;
        assert!((known[0] - 0.4).abs() < 0.01 && (known[1] - 0.6).abs() < 0.02, "{known:?}");
        costs.tell(Cost { rows: [f64::NAN; 4] });
        assert!(costs.known(query, 0.5).rows[3] > 1.5);
    }
}
