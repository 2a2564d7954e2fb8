//! What happened so far, for metrics.

use crate::query::{Answer, By, Reject};

/// What happened to a model's queries, and to its runs, whose queries may be those of another model. Background queries count as runs
/// only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Queries that were submitted.
    pub submitted: u64,
    /// Queries whose client left.
    pub cancelled: u64,
    /// Queries without a reply.
    pub unanswered: u64,
    /// Answers of the stand-in.
    pub by_stand_in: u64,
    /// Those of the stand-in while no instance of the model answered: the bound does not count them.
    pub in_outage: u64,
    /// Answers of copies of late queries.
    pub hedges_won: u64,
    /// Queries that waited until they could not meet their deadline.
    pub overloaded: u64,
    /// Runs of this model: a batch is one.
    pub jobs: u64,
    /// Runs of this model that nobody needed any more before they ended.
    pub stopped: u64,
    /// Runs that started because their queries had not run yet.
    pub batches: u64,
    /// Their rows.
    pub first: u64,
    /// Attempts after failures.
    pub retried: u64,
    /// Queries that were not tried again, because the budget of retries was spent.
    pub retries_refused: u64,
    /// Copies of late queries.
    pub hedged: u64,
    /// Late queries that waited for a copy, because the budget of copies was spent or too many queries waited.
    pub hedges_refused: u64,
    /// Copies that a query had from the start.
    pub replicated: u64,
    /// Runs of the stand-in.
    pub stood_in: u64,
    /// Late queries that waited for an approximate answer, because the bound had no room.
    pub over_bound: u64,
    /// Copies that no query waits for.
    pub explored: u64,
    /// Instances that were taken out of service because runs of this model failed.
    pub out_failing: u64,
    /// Instances that were taken out of service because a run of this model did not end.
    pub out_silent: u64,
    /// Instances that stayed in service because too few others did.
    pub kept: u64,
}

impl Counters {
    /// Counts a reply, given while no instance of the model answered or not.
    pub(crate) fn reply<O>(&mut self, result: &Result<Answer<O>, Reject>, is_out: bool) {
        self.unanswered -= 1;
        self.overloaded += u64::from(matches!(result, Err(Reject::Overload)));
        let stood_in = result.as_ref().is_ok_and(|answer| answer.by == By::StandIn);
        self.by_stand_in += u64::from(stood_in);
        self.in_outage += u64::from(stood_in && is_out);
    }

    /// Counts what keeps a query back now and did not `before`.
    pub(crate) fn limit(&mut self, before: Limits, now: Limits) {
        self.hedges_refused += u64::from(now.hedges && !before.hedges);
        self.retries_refused += u64::from(now.retries && !before.retries);
        self.over_bound += u64::from(now.bound && !before.bound);
    }
}

/// What kept a query from its next step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) hedges: bool,
    pub(crate) retries: bool,
    pub(crate) bound: bool,
}
