//! Statistics of latency tails: quantiles, their intervals, and whether the data supports a claim.

use serde::Serialize;

pub mod bootstrap;
pub mod evidence;
pub mod student;

/// An estimate and the bounds of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The value of all data.
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl Estimate {
    /// Creates an estimate whose bounds hold 95 % of the drawn values.
    pub fn of(value: f64, drawn: impl Iterator<Item = f64>) -> Self {
        let mut drawn: Vec<f64> = drawn.collect();
        drawn.sort_by(f64::total_cmp);
        let at = |share: f64| drawn[((drawn.len() - 1) as f64 * share).round() as usize];
        Self { value, low: at(0.025), high: at(0.975) }
    }
}
