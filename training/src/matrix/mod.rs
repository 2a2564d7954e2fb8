//! Many runs from files: data set x model x recipe x k x seed, results beside the paper's numbers.
//!
//! A matrix fills what is missing: a cell whose result is there, made with the same settings, is not run again, and a
//! cell that was interrupted goes on from its checkpoint. So longer runs and faster machines complete it later.

mod cell;
mod cost;
mod data;
mod deployed;
mod paper;
mod plan;
mod render;
mod results;
mod run;
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
