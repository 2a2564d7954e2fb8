//! A graph as the families of stand-ins see it: nodes, constants, links and sizes.
//!
//! Nodes and constants are a [`Draft`](parm_parity_models::onnx::rewrite::Draft). Exporters write the same network in
//! many ways: shapes computed from shapes, expansions before operators that broadcast anyway, slices that take
//! everything. Shape inference by rules, operator by operator, was rejected: such a table is never complete. Instead
//! the engine that will run the model provides the sizes: the graph runs on two and on three rows with every value as
//! an output ([`Survey`]). A size that is equal in both runs is fixed; a size that is twice and three times a number
//! counts rows.
//!
//! This holds for every input only if the model's rows have fixed sizes. For others the sizes are known per run, and
//! one more run takes rows of half the length. That is enough to follow channels through a graph, which must be at
//! the same place in every run.

mod edit;
mod links;
mod raise;
mod survey;
mod types;
mod work;

pub(crate) use edit::{add_behind, add_bias, probe, with_axes};
pub(crate) use links::{Links, sort, sweep, tidy};
pub(crate) use raise::{PER_CHANNEL, raise};
pub(crate) use survey::{Look, Size, Survey};
pub(crate) use types::types;
pub use work::Work;
pub(crate) use work::{multiplications, name, work};
