//! Attributes the tail of a recording to its causes, by replays without each of them.
//!
//! [`why()`] replays the recorded arrivals on the fitted instances, with the faults when they happened. Then it removes one
//! cause at a time and replays again: the difference is the cost of the cause. If no cause alone makes a difference, one hides
//! behind the other, and all of them are removed together. If the replay's tail differs from the recorded one by more than
//! ten times, no cause is named: a replay that misses the tail says nothing about it.
//!
//! Rejected: shares of the tail by cause, from a regression. They explain latencies and do not say what a remedy gains.

mod cause;
mod findings;
mod replay;

pub use cause::Cause;
pub use findings::{Findings, Suspect};
pub use replay::{Setup, Tail};

use parm_simulator::Progress;

use crate::{Error, Profile, Recording};
use replay::Replay;

/// A cause is named if the tail would be shorter by this share without it.
pub const COUNTS: f64 = 0.2;

/// Finds the causes of a recording's tail.
pub fn why(
    recording: &Recording,
    profile: &Profile,
    setup: &Setup,
    progress: &dyn Progress,
) -> Result<Findings, Error> {
    let replay = Replay { recording, setup, progress };
    let whole = replay.tail(profile, 0)?;
    if !findings::is_reproduced(recording, whole) {
        return Ok(Findings::new(recording, profile, setup, whole, Vec::new(), None));
    }
    let causes = Cause::all(profile);
    let mut suspects = Vec::new();
    for cause in causes {
        let without = replay.tail(&cause.removed(profile), cause.further())?;
        suspects.push(Suspect { cause, without });
    }
    let alone = suspects.iter().any(|suspect| counts(suspect.without, whole, recording));
    let hidden: Vec<Cause> =
        Cause::all(profile).into_iter().filter(|cause| *cause != Cause::Queueing).collect();
    let together = if !alone && hidden.len() > 1 {
        let left = hidden.iter().fold(profile.clone(), |left, cause| cause.removed(&left));
        let without = replay.tail(&left, 0)?;
        counts(without, whole, recording).then_some(without)
    } else {
        None
    };
    Ok(Findings::new(recording, profile, setup, whole, suspects, together))
}

/// Whether the difference between two tails counts.
fn counts(without: Tail, whole: Tail, recording: &Recording) -> bool {
    let quantile = findings::quantile(recording);
    without.at(quantile) <= (1.0 - COUNTS) * whole.at(quantile)
}

/// Returns the number of queries that [`why()`] simulates.
pub fn replayed_queries(recording: &Recording, profile: &Profile, setup: &Setup) -> u64 {
    let runs = 1 + Cause::all(profile).len() as u64;
    runs * u64::from(setup.repeats) * recording.arrivals.len() as u64
}
