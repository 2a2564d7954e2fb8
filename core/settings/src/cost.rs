//! Cost of a stand-in, by the rows of a job.

use serde::{Deserialize, Serialize};

/// Cost of a stand-in: the time of a job by its number of rows, as a share of the time of one query on the
/// deployed model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// For 1, 2, 4 and 8 rows.
    pub rows: [f64; 4],
}

impl Cost {
    /// Rows of the jobs whose cost is known.
    pub const ROWS: [usize; 4] = [1, 2, 4, 8];

    /// A cost in proportion to the rows.
    pub const fn linear(row: f64) -> Self {
        Self { rows: [row, 2.0 * row, 4.0 * row, 8.0 * row] }
    }

    /// The cost of a job with this number of rows: interpolated between measured rows, extrapolated beyond them.
    pub fn of(&self, rows: usize) -> f64 {
        let at = Self::ROWS.iter().rposition(|known| *known <= rows.max(1)).unwrap_or(0).min(2);
        let (low, high) = (Self::ROWS[at] as f64, Self::ROWS[at + 1] as f64);
        let slope = (self.rows[at + 1] - self.rows[at]) / (high - low);
        (self.rows[at] + slope * (rows.max(1) as f64 - low)).max(0.0)
    }
}
