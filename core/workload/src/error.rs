//! What can be wrong with a description of a workload.

use std::time::Duration;

/// An error in a description of arrivals, service times or faults.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error(
        "'{text}' is no pattern of arrivals: write constant, poisson, gamma:CV or bursts:ON/OFF (as in bursts:200ms/800ms)"
    )]
    BadPattern { text: String },
    #[error("a rate of {rate} requests per second: give a number above 0")]
    BadRate { rate: f64 },
    #[error("a coefficient of variation of {cv}: give a number above 0 (1 is Poisson)")]
    BadVariation { cv: f64 },
    #[error("bursts of 0 ms and pauses of {off:?}: the bursts must last longer than 0 ms")]
    BadBurst { off: Duration },
    #[error("line {line} of the trace: '{text}' is not a time in seconds that is at least the one before")]
    BadTrace { line: usize, text: String },
    #[error("the trace holds no arrival: give one time in seconds a line")]
    EmptyTrace,
    #[error("{given} is no distribution: its numbers must be finite, at least 0 and in order")]
    BadDistribution { given: String },
    #[error(
        "a mean service time of {mean_ms} ms and {row_share} of it per further row: give a finite mean above 0 and a share from 0 to 1000"
    )]
    BadService { mean_ms: f64, row_share: f64 },
    #[error("{name} of fault {fault} is {value}: give a number {range}")]
    BadFault { fault: usize, name: &'static str, value: f64, range: &'static str },
    #[error("fault {fault} is meant for instance {instance}, but there are {instances}, counted from 0")]
    NoSuchInstance { fault: usize, instance: u32, instances: u32 },
}
