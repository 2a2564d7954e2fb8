//! A simulated frontend: a dispatcher and the state of its driver.

use std::collections::BTreeMap;

use parm_dispatch::{Dispatcher, GroupId, JobId, Settings};
use parm_workload::clock::Moment;

use crate::Run;
use crate::comparisons::Comparisons;
use crate::in_flight::InFlight;
use crate::neighbours::Neighbours;
use crate::witness::Execution;

/// A frontend.
pub(crate) struct Front {
    pub(crate) dispatcher: Dispatcher,
    /// When it requested to be woken.
    pub(crate) wake: Moment,
    pub(crate) queries: InFlight,
    /// Rows of each group, recorded at its encoding: parity jobs have no queries to count.
    pub(crate) groups: BTreeMap<GroupId, Coded>,
    pub(crate) comparisons: Comparisons,
    /// The job that ended at this event, if its answer is wrong.
    pub(crate) wrong: Option<JobId>,
    /// Jobs that instances hold and when each was given, if the run has a witness.
    pub(crate) held: BTreeMap<JobId, Execution>,
    pub(crate) neighbours: Neighbours,
}

/// A group as it was encoded.
#[derive(Clone, Debug)]
pub(crate) struct Coded {
    /// Rows of its longest batch.
    pub(crate) rows: usize,
    pub(crate) members: u8,
    /// The numbers of its queries, if run times follow queries; otherwise empty.
    pub(crate) queries: Vec<u64>,
}

impl Front {
    /// Creates the frontend of this number.
    pub(crate) fn new(run: &Run, number: u32) -> Self {
        let seed = run.seed.wrapping_add(u64::from(number) << 32);
        Self {
            dispatcher: Dispatcher::new(Settings::uniform(run.settings.clone()), seed),
            wake: Moment::NEVER,
            queries: InFlight::default(),
            groups: BTreeMap::new(),
            comparisons: Comparisons::default(),
            wrong: None,
            held: BTreeMap::new(),
            neighbours: Neighbours::default(),
        }
    }
}
