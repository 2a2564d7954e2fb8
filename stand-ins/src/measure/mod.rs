//! What a candidate is worth: its cost and its agreement, measured.

mod agreement;
mod cost;

pub use agreement::Share;
pub(crate) use agreement::{judge, mean_distance, meaning, right};
pub(crate) use cost::{Costs, Shares, costs};
