//! What waits beside the dispatcher: requests for their answers, queries' inputs, jobs' outputs. The dispatcher knows
//! their names only.

use std::collections::HashMap;
use std::sync::Arc;

use parm_dispatch::{GroupId, InstanceId, JobId, PoolId, QueryId, Role, Rows, Time};
use parm_protocol::Error;
use slab::Slab;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::coding::Group;
use super::held::Kept;
use super::inputs::{Inputs, Row};
use super::instance::Instance;
use super::outputs::{Answers, Outputs, RowAnswer};
use super::pool::Pool;
use crate::console::Story;
use crate::record::{Done, Note};

/// What a request is told in the end.
pub(crate) type Verdict = Result<Answers, Failed>;

/// Why a request failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) why: parm_dispatch::Reject,
    /// What the last instance said that failed it.
    pub(crate) last: Option<Error>,
}

/// A request in the ledger: its place, and a serial number that tells it from others that had the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallId {
    place: usize,
    serial: u32,
}

/// A request that waits for its answers.
pub(crate) struct Call {
    pub(crate) pool: Arc<Pool>,
    pub(crate) told: oneshot::Sender<Verdict>,
    pub(crate) queries: SmallVec<[QueryId; 1]>,
    answers: SmallVec<[Option<RowAnswer>; 1]>,
    missing: usize,
    serial: u32,
}

/// A query without an answer; or with one, as long as jobs that have it are not released, for a code may want its inputs.
pub(crate) struct Waiting {
    pub(crate) call: CallId,
    pub(crate) pool: PoolId,
    pub(crate) row: Row,
    pub(crate) arrived: Time,
    pub(crate) deadline: Time,
    /// Whether an instance has had it.
    pub(crate) sent: bool,
    /// What the last instance said that failed it.
    pub(crate) failure: Option<Error>,
    /// Its prediction came, or nobody wants to know any more when it will.
    pub(crate) came: bool,
    /// What happened to it so far.
    pub(crate) story: Story,
    /// Jobs that have it and are not released.
    jobs: u16,
    answered: bool,
    serial: u32,
}

/// A query that is being answered.
pub(crate) struct Settled {
    pub(crate) call: CallId,
    pub(crate) failure: Option<Error>,
    index: usize,
    rows: usize,
    /// Its inputs, where nobody wants them any more.
    pub(crate) gone: Option<Arc<Inputs>>,
    /// Its prediction will not come any more.
    pub(crate) never_comes: bool,
}

/// A job that is not released yet.
pub(crate) struct Running {
    pub(crate) instance: Arc<Instance>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) role: Role,
    pub(crate) rows: Rows,
    pub(crate) started: Time,
    /// Tells the job's task that nobody waits any more.
    pub(crate) stop: Option<oneshot::Sender<Stop>>,
    pub(crate) outputs: Option<Arc<Outputs>>,
}

impl Running {
    /// What a recording says of it now that it ended.
    pub(crate) fn note(&self, ended: Time, ok: bool) -> Note {
        let done = Done { started: self.started, ended, role: self.role, rows: self.rows.len() as u32, ok };
        Note::Job { done, pool: self.pool.clone(), instance: self.instance.clone() }
    }
}

/// Why nobody waits for a job any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It was answered otherwise: do not start it; once started let it end, as its instance is busy in any case.
    Unwanted,
    /// Its clients went away: the instance is told.
    Cancelled,
}

/// Everything that waits.
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
    /// A new request, without queries so far.
    pub(crate) fn open(&mut self, pool: Arc<Pool>, told: oneshot::Sender<Verdict>) -> CallId {
        let serial = self.next_serial();
        let (queries, answers) = (SmallVec::new(), SmallVec::new());
        let place = self.calls.insert(Call { pool, told, queries, answers, missing: 0, serial });
        CallId { place, serial }
    }

    /// A new query of a request, from its arrival to its deadline. Its name is a place in the ledger and a serial number, so that a place that is used
    /// again has another name.
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

    /// A job was started with these queries.
    pub(crate) fn hold(&mut self, job: JobId, running: Running) {
        for id in &running.rows {
            if let Some(query) = self.known(*id) {
                query.jobs += 1;
            }
        }
        self.jobs.insert(job, running);
    }

    /// A job is released, and with it the inputs of queries that only it held.
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

    /// A query is answered.
    pub(crate) fn settle(&mut self, id: QueryId) -> Option<Settled> {
        let query = self.query(id)?;
        query.answered = true;
        let (call, failure) = (query.call, query.failure.take());
        let (index, rows) = (query.row.index, query.row.inputs.rows);
        let held = query.jobs > 0;
        let came = query.came;
        let gone = (!held).then(|| self.queries.remove(place(id)).row.inputs);
        let never_comes = gone.is_some() && !came;
        Some(Settled { call, failure, index, rows, gone, never_comes })
    }

    /// A query's client went away: it is as good as answered, and nobody wants to know when it would have been.
    pub(crate) fn cancel(&mut self, id: QueryId) -> Option<Settled> {
        self.query(id)?.came = true;
        self.settle(id)
    }

    /// Notes the answer to a row of a request; returns the request when that was the last.
    pub(crate) fn answer(
        &mut self,
        settled: &Settled,
        answer: RowAnswer,
    ) -> Option<(oneshot::Sender<Verdict>, Answers)> {
        self.call(settled.call)?; // its place may be another's by now
        let call = self.calls.get_mut(settled.call.place)?;
        let slot = call.answers.get_mut(settled.index)?;
        if slot.replace(answer).is_none() {
            call.missing -= 1;
        }
        // A request whose queries are still being entered is not complete, whatever is missing.
        if call.missing > 0 || call.answers.len() < settled.rows {
            return None;
        }
        let call = self.calls.remove(settled.call.place);
        Some((call.told, call.answers.into_iter().flatten().collect()))
    }

    /// Takes a request out, with the queries of it that have no answer yet. They stay until the dispatcher knows that
    /// they are cancelled: what it starts until then it starts with all rows of a batch, or rows would change places.
    pub(crate) fn close(&mut self, call: CallId) -> Option<(Call, SmallVec<[QueryId; 1]>)> {
        self.call(call)?;
        let call = self.calls.remove(call.place);
        let open = call.queries.iter().copied().filter(|query| self.query(*query).is_some()).collect();
        Some((call, open))
    }

    /// How much waits.
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
