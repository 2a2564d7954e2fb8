//! Counts of the state that a frontend keeps in memory; requests keep none once all are answered.

/// State kept for requests and instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Requests without a verdict.
    pub requests: usize,
    /// Queries without a reply, parities and comparisons among them.
    pub queries: usize,
    /// Runs without an end.
    pub jobs: usize,
    /// Coding groups.
    pub groups: usize,
    /// Their members and parities without a reply.
    pub members: usize,
    /// Instances that joined.
    pub instances: usize,
    /// Models.
    pub pools: usize,
}
