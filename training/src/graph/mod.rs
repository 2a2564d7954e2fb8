//! ONNX graphs over Burn tensors, interpreted at run time.
//!
//! Reading order: [`real`] is a tensor with a rank known at run time; [`value`] is passed between nodes; [`operator`]
//! is the table from a node to its kernel; [`role`] finds the parameters among the constants; [`plan`] is a whole
//! graph, checked and ready to run. A graph is prepared once, with all checks that do not need inputs: an unsupported
//! operator or attribute is an error that names the node.

mod kernel;
mod native;
mod operator;
mod plan;
mod problem;
mod real;
mod role;
mod spec;
mod value;

pub use kernel::Mode;
pub(crate) use kernel::Statistic;
pub(crate) use plan::{PassResults, Plan};
pub use problem::Problem;
pub(crate) use real::Real;
pub(crate) use role::{Role, roles};
pub use value::Host;
pub(crate) use value::Value;
