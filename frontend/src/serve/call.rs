//! A request in progress: its inputs, what is known about each of its rows, and who waits for its verdict.
//!
//! The payload of a query in the dispatcher is a row of a call, so nothing has to be looked up by the name of a query, and a call
//! lives as long as a query or a job needs its inputs.

use std::sync::Arc;

use parking_lot::Mutex;
use parm_dispatcher::{InstanceKey, QueryKey, Reject, Shape, Time};
use parm_protocol::Error;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::coded::Parity;
use super::driver::Submission;
use super::inputs::{Inputs, Row};
use super::outputs::{Answers, Outputs, RowAnswer};
use super::pool::Pool;
use super::terms::Terms;
use crate::console::Story;

/// Result of a request.
pub(super) type Verdict = Result<Answers, Failed>;

/// Reason for a failed request.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) why: Reject,
    /// The last instance's error.
    pub(crate) last: Option<Error>,
    /// Attempts that failed.
    pub(crate) attempts: u8,
}

/// A request in progress.
pub(crate) struct Call {
    pub(crate) pool: Arc<Pool>,
    pub(crate) inputs: Arc<Inputs>,
    pub(crate) terms: Terms,
    /// Whether a code may mix its rows with others.
    pub(crate) codable: bool,
    pub(crate) arrived: Time,
    pub(crate) shape: Shape,
    progress: Mutex<Progress>,
}

struct Progress {
    /// `None` once it has its verdict.
    told: Option<oneshot::Sender<Verdict>>,
    missing: usize,
    records: SmallVec<[Record; 1]>,
}

/// What is known about a row.
#[derive(Default)]
pub(super) struct Record {
    /// Its name in the dispatcher.
    pub(super) query: Option<QueryKey>,
    /// Whether an instance has received it.
    pub(super) sent: bool,
    /// Its runs that have not ended.
    pub(super) runs: u16,
    /// Whether it has a reply.
    pub(super) replied: bool,
    /// Until all rows have theirs.
    answer: Option<RowAnswer>,
    /// Whether its own prediction arrived, or its time does not matter.
    pub(super) came: bool,
    /// The last instance's error, and how many attempts failed.
    pub(super) failure: Option<Error>,
    pub(super) attempts: u8,
    /// What its model and its stand-in said first, if the two are compared.
    pub(super) exact: Option<Output>,
    pub(super) approximate: Option<Output>,
    pub(super) story: Story,
}

/// What the dispatcher holds for a query.
#[derive(Clone)]
pub(super) struct QueryRow {
    pub(super) call: Arc<Call>,
    pub(super) index: usize,
}

/// The output of one row of a run.
#[derive(Clone)]
pub(super) struct Output {
    pub(super) outputs: Arc<Outputs>,
    pub(super) row: usize,
    /// The instance that gave it; `None` for a reconstruction.
    pub(super) by: Option<Giver>,
    pub(super) confidence: Option<f32>,
    /// The coding group of a reconstruction.
    pub(super) group: Option<u64>,
    /// The parity of a parity's output.
    pub(super) parity: Option<Arc<Parity>>,
}

/// The instance of an output: its number in the fleet, and its name in the dispatcher.
pub(super) type Giver = (u32, InstanceKey);

impl Output {
    /// A row of outputs of which nothing else is known.
    pub(super) fn of(outputs: Arc<Outputs>, row: usize) -> Self {
        Self { outputs, row, by: None, confidence: None, group: None, parity: None }
    }
}

impl Call {
    pub(super) fn new(submission: Submission, arrived: Time, told: oneshot::Sender<Verdict>) -> Self {
        let Submission { pool, inputs, shape, terms, codable } = submission;
        let rows = inputs.rows;
        let records = std::iter::repeat_with(Record::default).take(rows).collect();
        let progress = Progress { told: Some(told), missing: rows, records };
        Self { pool, inputs, terms, codable, arrived, shape, progress: Mutex::new(progress) }
    }

    /// When nobody waits for it any more.
    pub(super) fn deadline(&self) -> Time {
        self.terms.deadline.max(self.arrived)
    }

    /// Stores the answer to a row. Returns what completes the request.
    pub(super) fn answer(
        &self,
        index: usize,
        answer: RowAnswer,
    ) -> Option<(oneshot::Sender<Verdict>, Answers)> {
        let mut progress = self.progress.lock();
        progress.missing -= usize::from(progress.records[index].answer.replace(answer).is_none());
        if progress.missing > 0 {
            return None;
        }
        let told = progress.told.take()?;
        Some((told, progress.records.iter_mut().filter_map(|record| record.answer.take()).collect()))
    }

    /// Ends the request without an answer. Returns who waits for its verdict, if it has none yet.
    pub(super) fn close(&self) -> Option<oneshot::Sender<Verdict>> {
        self.progress.lock().told.take()
    }

    /// Whether it has no verdict yet.
    pub(super) fn is_open(&self) -> bool {
        self.progress.lock().told.is_some()
    }

    /// Its queries without a reply.
    pub(super) fn open_queries(&self) -> SmallVec<[QueryKey; 1]> {
        let progress = self.progress.lock();
        progress.records.iter().filter(|record| !record.replied).filter_map(|record| record.query).collect()
    }
}

impl QueryRow {
    pub(super) fn row(&self) -> Row {
        Row { inputs: self.call.inputs.clone(), index: self.index }
    }

    /// Reads or changes what is known about it.
    pub(super) fn with<T>(&self, read: impl FnOnce(&mut Record) -> T) -> T {
        read(&mut self.call.progress.lock().records[self.index])
    }
}
