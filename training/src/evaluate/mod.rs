//! Evaluates codes: how good reconstructions are.
//!
//! Three easily confused numbers are always reported together: A_a, the accuracy of available predictions; A_d, the
//! accuracy of reconstructions alone; A_o, the accuracy of all answers if a fraction of the predictions is
//! unavailable. A code is also compared with simpler alternatives: a constant answer, and a backup model with 1/k of
//! the cost. Groups depend only on a seed, so evaluations with one seed are comparable.

mod bench;
mod metric;
pub(crate) mod reconstruct;
mod report;

pub use bench::{Bench, Contender, Model, Order, Rules};
pub(crate) use metric::score;
pub use metric::{Metric, Truth, constant_answer};
pub use report::{Degraded, Overall, Report, Table};
