//! Settings of a model's dispatch, what of them is in force, and the format of recordings.
//!
//! Operators write [`PoolSettings`] in files and change them at run time. [`InForce`] is what remains of them once the model and
//! its files are known, and [`PoolSettings::model_settings`] says what both mean to the dispatcher. [`recording`] is the format that a frontend writes and that replays and fits read.
//!
//! They are apart from the dispatcher because most of their readers (the configuration, the admin API, the tuner, experiments)
//! dispatch nothing.

mod batch;
mod coding;
mod cost;
mod ejection;
mod in_force;
mod model;
mod number;
mod pool;
pub mod recording;
mod redundancy;
mod removed;
mod stand_in;

pub use batch::{BatchSettings, BatchSize};
pub use coding::{CodingSettings, GraceSettings, ParmPlusSettings};
pub use cost::Cost;
pub use ejection::EjectionSettings;
pub use in_force::{Coding, InForce};
pub use model::ModelRole;
pub use number::{Bounded, Factor, Fraction, OutOfBounds};
pub use pool::PoolSettings;
pub use redundancy::{BudgetSettings, HedgeSettings, Placement, PolicyKind};
pub use removed::{removed, was_removed};
pub use stand_in::{AgreementSettings, InOutage, StandInSettings};
