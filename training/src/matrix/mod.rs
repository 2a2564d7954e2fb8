//! Matrices of runs: data set x base model x recipe x k x r x seed. `training/tables.py` makes tables of the results.
//!
//! A matrix runs the missing cells: one with a result from the same settings is skipped, and an interrupted cell continues
//! from its checkpoint. So later runs and faster machines complete it, and separate processes can run shares of it.

mod plan;
mod results;
mod run;

pub use plan::{Cell, Data, Given, Matrix, Measure, Product};
pub use results::{Outcome, Results};
pub use run::{Clock, MatrixObserver, OpenTeacher, Place, Runner, Runs};

/// The kind of grid in result files.
pub const GRID: &str = "matrix";
