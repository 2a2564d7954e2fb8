//! What a frontend keeps in memory, counted: of requests nothing once all are answered.

/// What is kept for requests and instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// By the driver.
    pub ledger: Kept,
    /// By the dispatcher, whose books are its own.
    pub dispatched: parm_dispatch::Held,
}

/// What the driver keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Requests without a verdict.
    pub requests: usize,
    /// Queries whose inputs somebody may still want.
    pub queries: usize,
    /// Jobs whose outputs somebody may still want.
    pub jobs: usize,
    /// Coding groups.
    pub groups: usize,
    /// Instances that joined.
    pub instances: usize,
    /// Models.
    pub pools: usize,
}
