//! Ring of queries kept for inspection.
//!
//! It keeps all queries without a timely prediction of their own, and a sample of the others.
//!
//! Every query has a story while it is in progress, because its outcome is unknown. Most stories are then discarded.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use slotmap::{Key, KeyData};

use super::story::{Step, Story};
use crate::serve::Pool;
use crate::serve::reading::{QueryId, Time};

/// Maximum kept queries.
pub(super) const KEPT: usize = 1024;

/// One in this many ordinary queries is kept.
const ONE_IN: u64 = 256;

/// Characters of a client's id of a request that are kept. A client may send a megabyte with every request, and each of
/// its rows is kept as a query.
const LONGEST_ID: usize = 200;

/// Ring of kept queries.
#[derive(Default)]
pub(crate) struct Archive {
    kept: VecDeque<KeptQuery>,
    /// Number of the first kept query, and of each query by id.
    first: u64,
    numbers: HashMap<QueryId, u64>,
    /// Ordinary queries so far.
    usual: u64,
}

/// A query that was answered.
#[derive(Clone)]
pub(crate) struct KeptQuery {
    pub(crate) id: QueryId,
    /// The beginning of the client's id of the request.
    pub(crate) request: String,
    pub(crate) pool: Arc<Pool>,
    pub(crate) arrived: Time,
    pub(crate) took: Duration,
    pub(crate) deadline: Duration,
    pub(crate) outcome: &'static str,
    pub(crate) confidence: Option<f32>,
    /// Time at which its own prediction arrived.
    pub(crate) alone: Option<Duration>,
    /// Number of the instance that answered.
    pub(crate) instance: Option<u32>,
    pub(crate) story: Story,
}

/// Filter of listed queries.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Wanted {
    pub(crate) model: Option<String>,
    pub(crate) outcome: Option<String>,
    pub(crate) request: Option<String>,
    pub(crate) slowest: bool,
    pub(crate) limit: usize,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { model: None, outcome: None, request: None, slowest: false, limit: 50 }
    }
}

impl Archive {
    /// Whether an ordinary query is kept as a sample.
    pub(crate) fn samples(&mut self) -> bool {
        self.usual += 1;
        self.usual % ONE_IN == 1
    }

    pub(crate) fn keep(&mut self, query: KeptQuery) {
        if self.kept.len() >= KEPT
            && let Some(oldest) = self.kept.pop_front()
        {
            self.first += 1;
            self.numbers.remove(&oldest.id);
        }
        self.numbers.insert(query.id, self.first + self.kept.len() as u64);
        self.kept.push_back(query);
    }

    /// Returns a kept query, to add a later step; `None` if it is not kept.
    pub(crate) fn get_mut(&mut self, id: QueryId) -> Option<&mut KeptQuery> {
        let number = *self.numbers.get(&id)?;
        self.kept.get_mut((number - self.first) as usize)
    }

    pub(crate) fn get(&self, id: QueryId) -> Option<KeptQuery> {
        let number = self.numbers.get(&id)?;
        self.kept.get((number - self.first) as usize).cloned()
    }

    /// Returns how many queries are kept, since when, and those that match.
    pub(crate) fn find(&self, wanted: &Wanted) -> (usize, Option<Time>, Vec<KeptQuery>) {
        let request = wanted.request.as_deref().map(kept_id);
        let fits = |query: &&KeptQuery| {
            wanted.model.as_ref().is_none_or(|name| *name == query.pool.model.name)
                && wanted.outcome.as_ref().is_none_or(|outcome| outcome == query.outcome)
                && request.as_ref().is_none_or(|request| *request == query.request)
        };
        let mut found: Vec<&KeptQuery> = self.kept.iter().rev().filter(fits).collect();
        if wanted.slowest {
            found.sort_by_key(|query| std::cmp::Reverse(query.took));
        }
        let found = found.into_iter().take(wanted.limit).cloned().collect();
        (self.kept.len(), self.kept.front().map(|query| query.arrived), found)
    }
}

impl KeptQuery {
    /// As an entry of a list; `at_ms` is the query's arrival.
    pub(crate) fn told(&self, at_ms: u64) -> Value {
        json!({
            "id": name(self.id),
            "request": self.request,
            "model": self.pool.model.name,
            "version": self.pool.version,
            "at": at_ms,
            "took_us": self.took.as_micros() as u64,
            "outcome": self.outcome,
            "confidence": self.confidence,
            "alone_us": self.alone.map(|alone| alone.as_micros() as u64),
            "instance": self.instance,
        })
    }

    /// As an entry with its story.
    pub(crate) fn told_whole(&self, at_ms: u64) -> Value {
        let mut told = self.told(at_ms);
        told["deadline_us"] = json!(self.deadline.as_micros() as u64);
        told["why"] = json!(self.story.why(self.outcome, self.took, self.alone));
        told["timeline"] = json!(self.story.told(self.arrived));
        told
    }

    pub(crate) fn push(&mut self, at: Time, step: Step) {
        self.story.push(at, step);
    }
}

/// The part of a client's id of a request that is kept.
pub(crate) fn kept_id(id: &str) -> String {
    id.chars().take(LONGEST_ID).collect()
}

/// Formats a query's id.
fn name(id: QueryId) -> String {
    format!("{:016x}", id.data().as_ffi())
}

/// Parses a query's id.
pub(crate) fn read_name(name: &str) -> Option<QueryId> {
    (name.len() == 16)
        .then(|| u64::from_str_radix(name, 16).ok())
        .flatten()
        .map(|bits| KeyData::from_ffi(bits).into())
}
