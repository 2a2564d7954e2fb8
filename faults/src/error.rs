//! What can be wrong with a description of faults.

/// An error in a description of faults or service times.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
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
