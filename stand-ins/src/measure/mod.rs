//! Measures a candidate: its cost, agreement, accuracy and confidence.

mod agreement;
mod cost;
mod gap;
mod meanings;
mod sureness;

pub use agreement::{Difference, Share};
pub(crate) use agreement::{
    constant, difference, finite, judge, mean_cosine, mean_distance, neighbours_kept,
};
pub(crate) use cost::{Costs, Shares, costs};
pub use gap::Gap;
pub use meanings::{Given, Meanings, Meant, Source};
pub(crate) use meanings::{Labelled, is_float};
pub use sureness::Sureness;
pub(crate) use sureness::{ScoredRows, Truth, calibration_error, sureness};
