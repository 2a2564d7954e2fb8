//! A graph as families of stand-ins see it: nodes and constants of a [`Draft`](parm_parity_models::onnx::rewrite::Draft),
//! who makes and reads what, and what sizes values have.
//!
//! Exporters write the same network in many ways: shapes that are computed from shapes, expansions before operators that
//! broadcast anyway, slices that take everything. Inferring all that by rules, operator by operator, was the rejected
//! alternative: a table that is never complete. The engine that is to run the model knows every size, so it is asked: the
//! graph runs twice, on two and on three rows, with every value as an output ([`Survey`]). What has one size in both is
//! fixed, what is twice and three times something is rows. This holds for every length only where the rows that the model
//! takes have fixed sizes. Of others it is known what the sizes were in each run, and there is one more run, on rows of half
//! the length: enough to follow channels through a graph, which must be in the same place in every run.

mod axes;
mod bias;
mod cone;
mod formula;
mod links;
mod nodes;
mod order;
mod probe;
mod raise;
mod survey;
mod types;
mod work;

pub(crate) use axes::{axes, with_axes};
pub(crate) use bias::{add_behind, add_bias};
pub(crate) use cone::Cone;
pub(crate) use formula::Formula;
pub(crate) use links::Links;
pub(crate) use nodes::NodeExt;
pub(crate) use order::{sort, sweep};
pub(crate) use probe::probe;
pub(crate) use raise::{PER_CHANNEL, raise};
pub(crate) use survey::{Look, Size, Survey};
pub(crate) use types::types;
pub use work::Work;
#[cfg(test)]
pub(crate) use work::multiplications;
pub(crate) use work::{multiplications_of, work};
