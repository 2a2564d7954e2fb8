//! Errors of a run's description.

/// An error of the simulator.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("invalid warm-up of {warm_up} of {queries} queries: leave some to count")]
    AllWarmUp { warm_up: u64, queries: u64 },
    #[error(transparent)]
    Workload(#[from] parm_workload::Error),
}
