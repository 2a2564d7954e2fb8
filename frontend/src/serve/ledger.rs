//! Ledger of requests without answers, inputs of queries and outputs of jobs.
//!
//! The dispatcher knows only their ids.

use std::collections::HashMap;
use std::sync::Arc;

use parm_dispatch::{GroupId, InstanceId, JobId, PoolId, QueryId, Role, Rows, Time};
use parm_protocol::Error;
use slab::Slab;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::coding::{Group, StandIn};
use super::held::Kept;
use super::inputs::{Inputs, Row};
use super::instance::Instance;
use super::outputs::{Answers, Outputs, RowAnswer};
use super::pool::Pool;
use crate::console::Story;
use crate::record::{Done, Note};

/// Result of a request.
pub(crate) type Verdict = Result<Answers, Failed>;

/// Reason for a failed request.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) why: parm_dispatch::Reject,
    /// The last instance's error.
    pub(crate) last: Option<Error>,
    /// Attempts that failed.
    pub(crate) attempts: u8,
}

/// Id of a request: its slot, and a serial number that tells it from earlier ones in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallId {
    place: usize,
    serial: u32,
}

/// A request in progress.
pub(crate) struct Call {
    pub(crate) pool: Arc<Pool>,
    pub(crate) told: oneshot::Sender<Verdict>,
    pub(crate) queries: SmallVec<[QueryId; 1]>,
    answers: SmallVec<[Option<RowAnswer>; 1]>,
    missing: usize,
    serial: u32,
}

/// A query in progress. It stays after its answer while jobs hold it, because a code may need its inputs.
pub(crate) struct Waiting {
    pub(crate) call: CallId,
    pub(crate) pool: PoolId,
    pub(crate) row: Row,
    pub(crate) arrived: Time,
    pub(crate) deadline: Time,
    /// Whether an instance has received it.
    pub(crate) sent: bool,
    /// The last instance's error.
    pub(crate) failure: Option<Error>,
    /// Attempts that failed.
    pub(crate) attempts: u8,
    /// Whether its prediction arrived, or its time no longer matters.
    pub(crate) came: bool,
    /// Its story so far.
    pub(crate) story: Story,
    /// Jobs that hold it.
    jobs: u16,
    answered: bool,
    serial: u32,
}

/// A query that is being answered.
pub(crate) struct Settled {
    pub(crate) call: CallId,
    pub(crate) failure: Option<Error>,
    pub(crate) attempts: u8,
    index: usize,
    rows: usize,
    /// Its inputs, if no job holds them.
    pub(crate) gone: Option<Arc<Inputs>>,
    /// Whether its prediction will never arrive.
    pub(crate) never_comes: bool,
}

/// A job that is not released.
pub(crate) struct Running {
    pub(crate) instance: Arc<Instance>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) role: Role,
    /// The stand-in that it runs: another one, or none, may be configured when its answer is judged.
    pub(crate) stand_in: Option<Arc<StandIn>>,
    pub(crate) rows: Rows,
    /// When its first query arrived; `None` for a parity.
    pub(crate) arrived: Option<Time>,
    pub(crate) started: Time,
    /// Signals the job's task that it is not needed.
    pub(crate) stop: Option<oneshot::Sender<Stop>>,
    pub(crate) outputs: Option<Arc<Outputs>>,
}

impl Running {
    /// Builds the record of a finished job.
    pub(crate) fn note(&self, ended: Time, ok: bool) -> Note {
        let (role, rows, arrived) = (self.role, self.rows.len() as u32, self.arrived);
        let done = Done { started: self.started, ended, role, rows, ok, arrived };
        Note::Job { done, pool: self.pool.clone(), instance: self.instance.clone() }
    }
}

/// Reason why a job is not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Its queries were answered: do not start it; once started let it end, as its instance is busy anyway.
    Unwanted,
    /// Its clients went away: cancel it at the instance.
    Cancelled,
}

/// The ledger.
#[derive(Default)]
pub(crate) struct Ledger {
    calls: Slab<Call>,
    queries: Slab<Waiting>,
    pub(crate) jobs: HashMap<JobId, Running>,
    pub(crate) instances: HashMap<InstanceId, Arc<Instance>>,
    pub(crate) pools: HashMap<PoolId, Arc<Pool>>,
    pub(crate) groups: HashMap<GroupId, Group>,
    serial: u32,
}

impl Ledger {
    /// Adds a request without queries.
    pub(crate) fn open(&mut self, pool: Arc<Pool>, told: oneshot::Sender<Verdict>) -> CallId {
        let serial = self.next_serial();
        let (queries, answers) = (SmallVec::new(), SmallVec::new());
        let place = self.calls.insert(Call { pool, told, queries, answers, missing: 0, serial });
        CallId { place, serial }
    }

    /// Adds a query of a request, from its arrival to its deadline. Its id has a serial number next to its slot, so
    /// that a reused slot gives a new id.
    pub(crate) fn enter(&mut self, call: CallId, row: Row, span: [Time; 2], story: Story) -> QueryId {
        let [arrived, deadline] = span;
        let serial = self.next_serial();
        let call_id = call;
        let call = &mut self.calls[call.place];
        let key = self.queries.insert(Waiting {
            call: call_id,
            pool: call.pool.id,
            row,
            arrived,
            deadline,
            sent: false,
            failure: None,
            attempts: 0,
            came: false,
            story,
            jobs: 0,
            answered: false,
            serial,
        });
        let id = QueryId((u64::from(serial) << 32) | key as u64);
        call.queries.push(id);
        call.answers.push(None);
        call.missing += 1;
        id
    }

    /// A query without an answer.
    pub(crate) fn query(&mut self, id: QueryId) -> Option<&mut Waiting> {
        self.known(id).filter(|query| !query.answered)
    }

    /// A query with or without an answer.
    pub(crate) fn known(&mut self, id: QueryId) -> Option<&mut Waiting> {
        let serial = (id.0 >> 32) as u32;
        self.queries.get_mut(place(id)).filter(|query| query.serial == serial)
    }

    /// Adds a job with its queries.
    pub(crate) fn hold(&mut self, job: JobId, running: Running) {
        for id in &running.rows {
            if let Some(query) = self.known(*id) {
                query.jobs += 1;
            }
        }
        self.jobs.insert(job, running);
    }

    /// Releases a job, and the inputs of queries that only it held.
    pub(crate) fn release(&mut self, job: JobId) -> Option<(Running, SmallVec<[Arc<Inputs>; 1]>)> {
        let running = self.jobs.remove(&job)?;
        let mut gone = SmallVec::new();
        for id in &running.rows {
            let Some(query) = self.known(*id) else { continue };
            query.jobs -= 1;
            if query.answered && query.jobs == 0 {
                let query = self.queries.remove(place(*id));
                if !query.came {
                    running.pool.sums.never_alone();
                }
                gone.push(query.row.inputs);
            }
        }
        Some((running, gone))
    }

    pub(crate) fn call(&self, call: CallId) -> Option<&Call> {
        self.calls.get(call.place).filter(|known| known.serial == call.serial)
    }

    /// Marks a query as answered.
    pub(crate) fn settle(&mut self, id: QueryId) -> Option<Settled> {
        let query = self.query(id)?;
        query.answered = true;
        let (call, failure, attempts) = (query.call, query.failure.take(), query.attempts);
        let (index, rows) = (query.row.index, query.row.inputs.rows);
        let held = query.jobs > 0;
        let came = query.came;
        let gone = (!held).then(|| self.queries.remove(place(id)).row.inputs);
        let never_comes = gone.is_some() && !came;
        Some(Settled { call, failure, attempts, index, rows, gone, never_comes })
    }

    /// Cancels a query whose client went away: it counts as answered, and the time of its prediction no longer matters.
    pub(crate) fn cancel(&mut self, id: QueryId) -> Option<Settled> {
        self.query(id)?.came = true;
        self.settle(id)
    }

    /// Stores the answer to a row; returns the request once it is complete.
    pub(crate) fn answer(
        &mut self,
        settled: &Settled,
        answer: RowAnswer,
    ) -> Option<(oneshot::Sender<Verdict>, Answers)> {
        self.call(settled.call)?; // its slot may have been reused
        let call = self.calls.get_mut(settled.call.place)?;
        let slot = call.answers.get_mut(settled.index)?;
        if slot.replace(answer).is_none() {
            call.missing -= 1;
        }
        // A request whose queries are still being added is incomplete.
        if call.missing > 0 || call.answers.len() < settled.rows {
            return None;
        }
        let call = self.calls.remove(settled.call.place);
        Some((call.told, call.answers.into_iter().flatten().collect()))
    }

    /// Removes a request, and returns its unanswered queries. They stay until the dispatcher has cancelled them: jobs
    /// that it starts until then need all rows of a batch, or rows would change places.
    pub(crate) fn close(&mut self, call: CallId) -> Option<(Call, SmallVec<[QueryId; 1]>)> {
        self.call(call)?;
        let call = self.calls.remove(call.place);
        let open = call.queries.iter().copied().filter(|query| self.query(*query).is_some()).collect();
        Some((call, open))
    }

    /// Counts of everything in the ledger.
    pub(crate) fn held(&self) -> Kept {
        Kept {
            requests: self.calls.len(),
            queries: self.queries.len(),
            jobs: self.jobs.len(),
            groups: self.groups.len(),
            instances: self.instances.len(),
            pools: self.pools.len(),
        }
    }

    fn next_serial(&mut self) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        self.serial
    }
}

fn place(id: QueryId) -> usize {
    (id.0 & u64::from(u32::MAX)) as usize
}
