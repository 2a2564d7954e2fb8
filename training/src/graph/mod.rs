//! ONNX graphs over Burn tensors, interpreted at run time.
//!
//! Reading order: [`real`] is a tensor whose rank the type does not know; [`value`] what flows between nodes;
//! [`operator`] the table from a node to its kernel; [`role`] which constants are parameters; [`plan`] a whole graph,
//! checked and ready to run. A graph is prepared once, and everything that can be known beforehand is checked then:
//! an operator or setting that is not understood is an error that names the node before anything runs.

mod kernel;
mod native;
mod operator;
mod plan;
mod problem;
mod real;
mod rearrange;
mod role;
mod spec;
mod value;

pub(crate) use kernel::{Mode, Statistic};
pub(crate) use plan::{PassResults, Plan};
pub use problem::Problem;
pub(crate) use real::Real;
pub(crate) use role::{Role, roles};
pub use value::Host;
pub(crate) use value::Value;
