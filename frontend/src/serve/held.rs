//! Counts of the state that a frontend keeps in memory; requests keep none once all are answered.

/// State kept for requests and instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// State kept by the driver.
    pub ledger: Kept,
    /// State kept by the dispatcher.
    pub dispatched: parm_dispatch::Held,
}

/// State kept by the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Requests without a verdict.
    pub requests: usize,
    /// Queries whose inputs are still in use.
    pub queries: usize,
    /// Jobs whose outputs are still in use.
    pub jobs: usize,
    /// Coding groups.
    pub groups: usize,
    /// Instances that joined.
    pub instances: usize,
    /// Models.
    pub pools: usize,
}
