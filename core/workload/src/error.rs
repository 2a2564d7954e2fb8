//! Errors in a description of a workload.

use std::path::PathBuf;
use std::time::Duration;

/// An error in a description of arrivals, service times or faults.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error(
        "'{text}' is not an arrival pattern: write constant, poisson, gamma:CV or bursts:ON/OFF (as in bursts:200ms/800ms)"
    )]
    BadPattern { text: String },
    #[error("invalid rate of {rate} requests per second: give a number above 0")]
    BadRate { rate: f64 },
    #[error("invalid coefficient of variation {cv}: give a number above 0 (1 is Poisson)")]
    BadVariation { cv: f64 },
    #[error("invalid bursts of 0 ms and pauses of {off:?}: give bursts longer than 0 ms")]
    BadBurst { off: Duration },
    #[error("line {line} of the numbers has '{text}': give numbers above 0, separated by spaces or commas")]
    BadNumber { line: usize, text: String },
    #[error("line {line} has {found} numbers and the first one {wanted}: give one per instance in each line")]
    UnevenLine { line: usize, found: usize, wanted: usize },
    #[error("it has no numbers: give numbers above 0, separated by spaces or commas")]
    NoNumbers,
    #[error(
        "invalid line {line} of the arrivals: '{text}': give a time in seconds, not before the last one, and a size above 0 in each line or in none"
    )]
    BadArrival { line: usize, text: String },
    #[error("cannot read '{}': {reason}: paths are relative to the experiment file", path.display())]
    File { path: PathBuf, reason: String },
    #[error("cannot use '{}': {error}", path.display())]
    Content { path: PathBuf, error: Box<Error> },
    #[error("'{}' was not read: only experiment files can name files: give the numbers themselves", path.display())]
    NotRead { path: PathBuf },
    #[error("the trace has no arrivals: give one per line")]
    EmptyTrace,
    #[error("all arrivals come at {at} s, which gives no rate: give at least two different times")]
    OneTime { at: f64 },
    #[error(
        "'{text}' is not the header of a trace of requests: write \
         timestamp_ms,input_tokens,output_tokens"
    )]
    BadColumns { text: String },
    #[error(
        "invalid line {line} of the trace: '{text}': give a time, at least that of the line before, and two numbers of tokens"
    )]
    BadRequest { line: usize, text: String },
    #[error("invalid speed {speed}: give a number above 0, such as 1.4")]
    BadSpeed { speed: f64 },
    #[error(
        "unknown scenario '{name}': use one of {known}, or define [scenario.{name}] in an experiment file"
    )]
    UnknownScenario { name: String, known: String },
    #[error("invalid distribution {given}: give finite numbers of at least 0, in order")]
    BadDistribution { given: String },
    #[error(
        "invalid service time of {mean_ms} ms and {row_share} of it per further row: give a finite mean above 0 and a share from 0 to 1000"
    )]
    BadService { mean_ms: f64, row_share: f64 },
    /// Times of batches that cannot be.
    #[error(
        "invalid `row_times`: give pairs of rows and time from small to large, the first one [1, 1.0], each time at least that of the pair before"
    )]
    BadRowTimes,
    #[error("{name} of fault {fault} is {value}: give a number {range}")]
    BadFault { fault: usize, name: &'static str, value: f64, range: &'static str },
    #[error(
        "fault {fault} names instance {instance}, but there are only {instances}: count instances from 0"
    )]
    NoSuchInstance { fault: usize, instance: u32, instances: u32 },
}
