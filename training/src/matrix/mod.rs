//! Matrices of runs: data set x model x recipe x k x seed, next to the paper's numbers.
//!
//! A matrix runs the missing cells: one with a result from the same settings is skipped, and an interrupted
//! cell continues from its checkpoint. So later runs and faster machines complete it; `shared` is for many machines.

mod cell;
mod cost;
mod data;
mod deployed;
mod paper;
mod plan;
mod render;
mod results;
mod run;
mod shared;
mod target;
mod trial;

pub use cell::Cell;
pub use cost::{Clock, Runs};
pub use data::{Data, Measure};
pub use deployed::{Given, OpenTeacher};
pub use plan::{Matrix, Product, Way};
pub use render::render;
pub use results::{Outcome, Results};
pub use run::{MatrixObserver, Place, Runner};
pub use shared::GRID;
