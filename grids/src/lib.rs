//! Cells of a grid: independent runs of minutes to hours that any number of processes share.
//!
//! A matrix of trainings and an experiment are grids. Each cell has a stable key and a result file of its own, so that
//! Kubernetes, Slurm or Ray can run the cells; this crate is not a scheduler. Reading order: `cell`, `share` and
//! `selection` (the cells of a process), `record` and `draft` (a result file), `stamp`, `lease` and `kept` (the
//! process that runs a cell), `folder` (both), `queue` (the
//! loop of a process), `standing` (progress) and `join` (the results of several folders).

mod cell;
mod clock;
mod draft;
mod error;
mod folder;
mod join;
mod kept;
mod lease;
mod listing;
mod queue;
mod record;
mod selection;
mod share;
mod stamp;
mod standing;

pub use cell::{Cell, digest, key};
pub use clock::{Clock, ServerClock};
pub use draft::{draft, write};
pub use error::Error;
pub use folder::{Folder, Found};
pub use join::{Joined, Problem, join, records};
pub use kept::Kept;
pub use lease::{Lease, Leases};
pub use listing::Listing;
pub use queue::{Held, Queue};
pub use record::{Product, Record};
pub use selection::Selection;
pub use share::Share;
pub use standing::{Standing, State, Summary};
