//! Cost of a stand-in: the time of its jobs by their rows, relative to the time of a query.
//!
//! Problem: all decisions about a stand-in depend on its cost: whether idle time suffices for it, how many rows a
//! job takes, and the charge for a late one. The cost differs between engines, machines and numbers of rows: on
//! some machines eight rows take little longer than one, on others eight times as long.
//!
//! Choice: the worker's measurement at load time counts first. Later the median of observed times for 1, 2, 4 and
//! 8 rows counts, divided by the median of the deployed model. Both are times at an instance of usual speed: queries go
//! to fast instances and stand-ins to idle ones, which are often slow. Costs in between are interpolated. Costs beyond 8
//! rows grow as from 4 to 8.
//!
//! Rejected: means (a straggler moves them); a line through all points (overheads and caches bend it); the same for
//! instances without the deployed model (nothing tells their speed from the stand-in's cost, so these have costs of
//! their own).
//!
//! Cold start: until the worker's figures arrive, the configured cost for one row, in proportion for more.

use std::time::Duration;

use super::quantile::Quantiles;
use crate::api::Cost;

/// The cost of one pool's stand-in.
#[derive(Default)]
pub(crate) struct Costs {
    told: Option<Cost>,
    seen: [Option<Quantiles>; 4],
}

impl Costs {
    /// Takes a worker's measurement.
    pub(crate) fn tell(&mut self, cost: Cost) {
        let sane = cost.rows.iter().all(|share| share.is_finite() && *share > 0.0);
        self.told = if sane { Some(cost) } else { self.told };
    }

    /// Adds the time of a job.
    pub(crate) fn note(&mut self, rows: usize, took: Duration) {
        if let Some(at) = Cost::ROWS.iter().position(|known| *known == rows) {
            self.seen[at].get_or_insert_with(|| Quantiles::new(0.9)).add(took);
        }
    }

    /// The median time of jobs with this number of rows, if enough were observed.
    pub(crate) fn usual(&self, rows: usize) -> Option<Duration> {
        let at = Cost::ROWS.iter().position(|known| *known == rows)?;
        Some(self.seen[at].as_ref()?.reading()?.median)
    }

    /// The cost for 1, 2, 4 and 8 rows if a query takes this long; `assumed` is the cost of a row without any
    /// measurement.
    pub(crate) fn known(&self, query: Option<Duration>, assumed: f64) -> Cost {
        let seen = |at: usize| {
            let (own, query) = (self.usual(Cost::ROWS[at])?, query.filter(|query| !query.is_zero())?);
            Some(own.as_secs_f64() / query.as_secs_f64())
        };
        let told = |at: usize| self.told.map_or(assumed * Cost::ROWS[at] as f64, |cost| cost.rows[at]);
        // Rows without observations are corrected by the same factor as observed ones.
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
    fn observed_cost_replaces_reported_cost() {
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
