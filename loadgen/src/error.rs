//! What can be wrong with a load.

/// An error of the load generator.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("a rate of {rate} requests per second: give a number above 0")]
    BadRate { rate: f64 },
    #[error("a coefficient of variation of {cv}: give a number above 0 (1 is Poisson)")]
    BadVariation { cv: f64 },
    #[error("bursts of {on_ms} ms and pauses of {off_ms} ms: the bursts must last longer than 0 ms")]
    BadBurst { on_ms: u64, off_ms: u64 },
    #[error("line {line} of the trace: '{text}' is not a time in seconds that is at least the one before")]
    BadTrace { line: usize, text: String },
    #[error("'{text}' is no requirement: write QUANTILE<=TIME, such as p99.9<=20ms, or failed<=0.1%")]
    BadRequirement { text: String },
    #[error("input '{name}' has datatype {datatype}, for which no values can be generated")]
    CannotGenerate { name: String, datatype: String },
    #[error(transparent)]
    Protocol(#[from] parm_protocol::Error),
    #[error("the trace holds no arrival: give one time in seconds a line")]
    EmptyTrace,
}
