//! All quantiles of a policy, as far out as there is data, for a chart with equal width for each nine.

use serde::Serialize;

use crate::blocks::Blocks;
use crate::verdict::BEYOND;

/// Quantiles of all repeats together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Spectrum(pub Vec<Point>);

/// A quantile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// One in this many queries is slower: 1000 for p99.9.
    pub one_in: f64,
    /// Milliseconds.
    pub ms: f64,
}

/// Points for every factor of ten.
const POINTS: i32 = 12;

impl Spectrum {
    /// Ends where ten queries are slower.
    pub(crate) fn of(blocks: &Blocks, count: u64) -> Self {
        let one_in = (0..).map(|i| 10f64.powf(f64::from(i) / f64::from(POINTS)));
        let one_in: Vec<f64> = one_in.take_while(|one_in| *one_in <= count as f64 / BEYOND).collect();
        let shares: Vec<f64> = one_in.iter().map(|one_in| 1.0 - 1.0 / one_in).collect();
        let points = one_in.into_iter().zip(blocks.quantiles_at(&shares));
        Self(points.map(|(one_in, ms)| Point { one_in, ms }).collect())
    }
}
