//! Judges whether a run is valid: if its own sender was late, the result does not describe the policy.

use parm_loadgen::recorder::Sample;
use parm_loadgen::validity::{self, Fault};
use parm_simulator::Run;
use serde::Serialize;

use crate::drive::Driven;

/// The verdict on a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Validity {
    /// Queries that should have been sent and counted.
    pub offered: u64,
    /// Queries that were sent.
    pub sent: u64,
    /// Queries without an answer.
    pub failed: u64,
    /// 99th percentile of how late queries were sent, in milliseconds.
    pub lag_p99_ms: f64,
    /// Why the run is invalid; empty if it is valid.
    pub problems: Vec<String>,
    /// The first failure's message.
    pub failure: Option<String>,
}

impl Validity {
    pub(crate) fn of(run: &Run, driven: &Driven) -> Self {
        let counted = driven.samples.iter().filter(|graded| graded.number >= run.warm_up);
        let samples: Vec<Sample> = counted.map(|graded| graded.sample).collect();
        let (offered, sent) = (run.queries - run.warm_up, samples.len() as u64);
        // Scenarios with faults are meant to fail queries: no share of failures makes a run invalid.
        let verdict = validity::judge(1.0, &samples, offered as usize);
        let problem = |fault: &Fault| match fault {
            Fault::Lag => {
                let (lag, limit) = (verdict.lag_p99, verdict.lag_limit);
                format!("queries were sent late: lag p99 {lag:.1?}, limit {limit:.1?}")
            }
            Fault::Achieved | Fault::Empty => format!("only {sent} of {offered} queries were sent"),
            Fault::Failed => format!("{} of {sent} queries failed", verdict.failed),
        };
        let problems = verdict.faults.iter().map(problem).collect();
        let (failed, lag_p99_ms) = (verdict.failed as u64, verdict.lag_p99.as_secs_f64() * 1e3);
        Self { offered, sent, failed, lag_p99_ms, problems, failure: driven.failure.clone() }
    }

    /// Whether the run is valid.
    pub fn is_valid(&self) -> bool {
        self.problems.is_empty()
    }
}
