//! Measures a candidate: its cost, agreement, accuracy and confidence.

mod agreement;
mod cost;
mod meanings;
mod sureness;

pub use agreement::{Comparison, Difference, Share};
pub(crate) use agreement::{constant, finite, judge, mean_distance};
pub(crate) use cost::{Costs, Shares, costs};
pub(crate) use meanings::Labelled;
pub use meanings::{Given, Meanings, Meant, Source};
pub use sureness::Sureness;
pub(crate) use sureness::{calibration_error, sureness};
