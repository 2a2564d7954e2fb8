//! Which policy, and how to set it: a search by simulation with the dispatcher that serves.
//!
//! What to expect of the cluster is said by a [`Problem`]: how queries arrive, how long instances take, what goes wrong,
//! what answers are worth and what is not allowed. Some of it can be read from a [`Recording`] of a frontend ([`fit()`])
//! or measured at a worker ([`measure`]). The [`Space`] is everything that could be set, a [`Search`] finds the best of
//! it with few and short runs, and the [`Report`] says what was found and why.
//!
//! Reading order: `problem`, `quality` (what answers are worth), `knob` and `space` (what can be set), `score` (what a
//! candidate is worth), `search`, `report` with `reason` and `chart`; beside them `recording`, `fit` and `measure`.

mod chart;
mod error;
mod fit;
pub mod measure;
mod problem;
mod quality;
mod reason;
mod recording;
mod report;
mod score;
mod search;
mod settings;
mod space;

pub use error::Error;
pub use fit::{Episodes, Profile, Stragglers, fit};
pub use problem::{Limits, Objective, Problem};
pub use quality::{Coded, Quality, StandInFacts, StandInWorth};
pub use recording::{Job, Recording};
pub use report::{Line, Report};
pub use score::Score;
pub use search::{Effort, Plan, Search};
pub use settings::{MARK, to_toml};
pub use space::{Candidate, Space};
