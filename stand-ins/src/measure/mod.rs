//! Measures a candidate: its cost, agreement, accuracy and confidence.

mod agreement;
mod cost;
mod gap;
mod sureness;

pub use agreement::Share;
pub(crate) use agreement::{judge, mean_cosine, mean_distance, meaning, right};
pub(crate) use cost::{Costs, Shares, costs};
pub use gap::Gap;
pub use sureness::Sureness;
pub(crate) use sureness::{Truth, calibration_error, sureness};
