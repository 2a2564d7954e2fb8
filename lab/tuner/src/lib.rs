//! Chooses a policy and its settings, by a search that simulates the dispatcher.
//!
//! A [`Problem`] describes the cluster: arrivals, service times, faults, the value of answers and the limits. Some of it
//! can come from a frontend's [`Recording`] ([`fit()`]) or from measuring a worker ([`measure`]). `space` has all settings
//! that can be chosen, a [`Search`] finds the best of them in few and short runs, and the [`Report`] states the result and
//! its reasons.
//!
//! Reading order: `problem`, `quality` (the value of answers), `space` (the choices), `score` (the value of a
//! candidate), `search`, and `report` with `reason`. `recording`, `fit` and `measure` produce the inputs.

mod error;
mod fit;
pub mod measure;
mod problem;
mod quality;
mod reason;
mod recording;
mod report;
mod restarts;
mod score;
mod search;
mod settings;
mod space;
mod why;

pub use error::Error;
pub use fit::{Episodes, Lasting, Lengths, Profile, Spell, Stragglers, fit};
pub use problem::{Limits, Objective, Problem};
pub use quality::{Coded, Quality, StandInFacts, StandInWorth};
pub use recording::{Job, Recording};
pub use report::{Line, Report};
pub use score::Score;
pub use search::{Effort, Plan, Search};
pub use settings::{MARK, to_toml};
pub use space::Candidate;
pub use why::{COUNTS, Cause, Findings, Setup, Suspect, Tail, replayed_queries, why};
