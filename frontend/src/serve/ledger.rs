//! What waits beside the dispatcher: requests for their answers, queries' inputs, jobs' outputs. The dispatcher knows
//! their names only.

use std::collections::HashMap;
use std::sync::Arc;

use parm_protocol::Error;
use slab::Slab;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::inputs::Row;
use super::instance::Instance;
use super::outputs::{Answers, Outputs, RowAnswer};
use super::pool::Pool;
use crate::dispatch::{InstanceId, JobId, QueryId, Role, Rows, Time};
use crate::record::{Done, Note};

/// What a request is told in the end.
pub(crate) type Verdict = Result<Answers, Failed>;

/// Why a request failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) why: crate::dispatch::Reject,
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

/// A query without an answer.
pub(crate) struct Waiting {
    pub(crate) call: CallId,
    pub(crate) row: Row,
    pub(crate) arrived: Time,
    pub(crate) deadline: Time,
    /// Whether an instance has had it.
    pub(crate) sent: bool,
    /// What the last instance said that failed it.
    pub(crate) failure: Option<Error>,
    serial: u32,
}

/// A job that is not released yet.
pub(crate) struct Running {
    pub(crate) instance: Arc<Instance>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) rows: Rows,
    pub(crate) started: Time,
    pub(crate) role: Role,
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

    /// A new query of a request. Its name is a place in the ledger and a serial number, so that a place that is used
    /// again has another name.
    pub(crate) fn enter(&mut self, call: CallId, row: Row, times: (Time, Time)) -> QueryId {
        let serial = self.next_serial();
        let (arrived, deadline) = times;
        let waiting = Waiting { call, row, arrived, deadline, sent: false, failure: None, serial };
        let key = self.queries.insert(waiting);
        let id = QueryId((u64::from(serial) << 32) | key as u64);
        let call = &mut self.calls[call.place];
        call.queries.push(id);
        call.answers.push(None);
        call.missing += 1;
        id
    }

    pub(crate) fn query(&mut self, id: QueryId) -> Option<&mut Waiting> {
        let serial = (id.0 >> 32) as u32;
        self.queries.get_mut(place(id)).filter(|query| query.serial == serial)
    }

    pub(crate) fn call(&self, call: CallId) -> Option<&Call> {
        self.calls.get(call.place).filter(|known| known.serial == call.serial)
    }

    /// Takes a query out.
    pub(crate) fn forget(&mut self, id: QueryId) -> Option<Waiting> {
        self.query(id)?;
        Some(self.queries.remove(place(id)))
    }

    /// Notes the answer to a row of a request; returns the request when that was the last.
    pub(crate) fn answer(
        &mut self,
        waiting: &Waiting,
        answer: RowAnswer,
    ) -> Option<(oneshot::Sender<Verdict>, Answers)> {
        let call = self.calls.get_mut(waiting.call.place)?;
        let slot = call.answers.get_mut(waiting.row.index)?;
        if slot.replace(answer).is_none() {
            call.missing -= 1;
        }
        // A request whose queries are still being entered is not complete, whatever is missing.
        if call.missing > 0 || call.answers.len() < waiting.row.inputs.rows {
            return None;
        }
        let call = self.calls.remove(waiting.call.place);
        Some((call.told, call.answers.into_iter().flatten().collect()))
    }

    /// Takes a request out, with the queries of it that have no answer yet.
    pub(crate) fn close(&mut self, call: CallId) -> Option<(Call, SmallVec<[QueryId; 1]>)> {
        self.call(call)?;
        let call = self.calls.remove(call.place);
        let open = call.queries.iter().copied().filter(|query| self.forget(*query).is_some()).collect();
        Some((call, open))
    }

    fn next_serial(&mut self) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        self.serial
    }
}

fn place(id: QueryId) -> usize {
    (id.0 & u64::from(u32::MAX)) as usize
}
