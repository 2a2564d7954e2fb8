//! Chooses a policy and its settings, by a search that simulates the dispatcher.
//!
//! A [`Problem`] describes the cluster: arrivals, service times, faults, the value of answers and the limits. Some of it
//! can come from a frontend's [`Recording`] ([`fit()`]). `space` has all settings that can be chosen, a [`Search`] finds the
//! best of them in few and short runs, and the [`Report`] states the result and its reasons.
//!
//! Reading order: `problem` (with the value of answers), `space` (the choices), `search` (with the score of a candidate) and
//! `report`. `recording` and `fit` produce the inputs; `why` explains the tail of a recording.

mod fit;
mod problem;
mod recording;
mod report;
mod search;
mod space;
mod why;

pub use fit::{Episodes, Lasting, Lengths, Profile, Spell, Stragglers, fit};
pub use problem::{Coded, Limits, Objective, Problem, Quality, StandInFacts, StandInWorth};
pub use recording::{Job, Recording};
pub use report::{Line, MARK, Report, to_toml};
pub use search::{Plan, Score, Search};
pub use space::Candidate;
pub use why::{COUNTS, Cause, Findings, Setup, Suspect, Tail, replayed_queries, why};
