//! Records stories of queries, in the ledger while they are in progress and then in the archive.

use parm_dispatch::{Answer, GroupId, Judgement, Pair, QueryId, Reject, Role, Rows, Step as Told, Time};

use super::driver::Driver;
use super::ledger::Running;
use super::outcome::Outcome;
use super::state::State;
use crate::console::{At, KeptQuery, Step, kept_id};

/// Maximum length of an error's text, which may contain a client's data.
const LONGEST_ERROR: usize = 200;

impl State {
    /// Adds a step of a query.
    pub(super) fn step(&mut self, at: Time, query: QueryId, step: Step) {
        if let Some(waiting) = self.ledger.query(query) {
            waiting.story.push(at, step);
        } else if let Some(kept) = self.archive.get_mut(query) {
            kept.push(at, step);
        }
    }

    /// Adds a step reported by the dispatcher.
    pub(super) fn stepped(&mut self, at: Time, query: QueryId, told: Told) {
        let step = match told {
            Told::Queued(waiting) => Step::Queued(waiting),
            Told::Grouped { group, k, slot } => Step::Grouped { group: group.0, k, slot },
            Told::Late(after) => Step::Late(after),
            Told::HeldBack(until) => Step::HeldBack(until),
        };
        self.step(at, query, step);
    }

    /// Adds the start of a job.
    pub(super) fn job_given(&mut self, now: Time, role: Role, job: At, rows: &Rows) {
        if let Role::Parity(group, _) = role {
            for query in self.members(group) {
                self.step(now, query, Step::ParityGiven(job, group.0));
            }
            return;
        }
        for query in rows {
            let again = self.ledger.query(*query).is_some_and(|waiting| waiting.story.was_given());
            let step = match role {
                Role::Deployed if again => Step::Retried(job, rows.len()),
                Role::Deployed => Step::Given(job, rows.len()),
                Role::Copy => Step::Hedged(job, rows.len()),
                Role::Backup => Step::BackupGiven(job),
                Role::StandIn(urgency) => Step::StandInGiven(job, urgency),
                Role::Parity(..) => return,
            };
            self.step(now, *query, step);
        }
    }

    /// Adds the end of a job. The job of a query's own prediction is part of the answer, unless it was answered before.
    pub(super) fn job_in(&mut self, now: Time, role: Role, job: At, rows: &Rows) {
        if let Role::Parity(group, _) = role {
            for query in self.members(group) {
                self.step(now, query, Step::ParityIn(job, group.0));
            }
            return;
        }
        for query in rows {
            let waits = self.ledger.query(*query).is_some();
            let step = match role {
                Role::Deployed | Role::Copy if waits => continue,
                Role::Deployed | Role::Copy => Step::PredictionIn(job, None),
                Role::Backup => Step::BackupIn(job),
                Role::StandIn(_) => Step::StandInIn(job, None),
                Role::Parity(..) => return,
            };
            self.step(now, *query, step);
        }
    }

    /// Adds the failure of a job.
    pub(super) fn job_failed(&mut self, now: Time, job: At, rows: &Rows, error: &parm_protocol::Error) {
        let text: String = error.to_string().chars().take(LONGEST_ERROR).collect();
        rows.iter().for_each(|query| self.step(now, *query, Step::Failed(job, text.as_str().into())));
    }

    /// Sets the confidence of a judged stand-in's answer.
    pub(super) fn sure(&mut self, query: QueryId, judgement: Judgement) {
        if let (Judgement::Fit(sure), Some(waiting)) = (judgement, self.ledger.query(query)) {
            waiting.story.set_confidence(sure);
        }
    }

    /// Sets whether a prediction agrees with the earlier answer to its query.
    pub(super) fn agrees(&mut self, pair: Pair, agrees: Option<bool>) {
        let (Some(agrees), job) = (agrees, pair.prediction.job) else { return };
        let query = self.ledger.jobs.get(&job).and_then(|job| job.rows.get(pair.prediction.row as usize));
        if let Some(kept) = query.copied().and_then(|query| self.archive.get_mut(query)) {
            kept.story.set_agrees(job.0, agrees);
        }
    }

    /// Sets the time until a query's own prediction.
    pub(super) fn came(&mut self, query: QueryId, alone: std::time::Duration) {
        if let Some(kept) = self.archive.get_mut(query) {
            kept.alone = Some(alone);
        }
    }

    /// Archives the story of a query about to be answered, if it is kept.
    pub(super) fn archive(&mut self, driver: &Driver, id: QueryId, answer: &Answer) {
        let now = driver.clock.now();
        let instance = self.answering(answer);
        let Some(waiting) = self.ledger.query(id) else { return };
        let mut story = std::mem::take(&mut waiting.story);
        let (arrived, deadline, came) = (waiting.arrived, waiting.deadline, waiting.came);
        let (inputs, of) = (waiting.row.inputs.clone(), waiting.pool);
        let took = now.since(arrived);
        let (outcome, error) = named(answer);
        let usual = || self.dispatcher.service(of).is_some_and(|[_, high]| took <= high);
        let exact = outcome == Outcome::Exact.name();
        let Some(pool) = self.ledger.pools.get(&of).cloned() else { return };
        if exact && usual() && !self.archive.samples() {
            self.archive.discard(story);
            return;
        }
        story.push(now, Step::Answered(outcome, error.map(Into::into)));
        self.archive.keep(KeptQuery {
            id,
            request: kept_id(&inputs.id),
            pool,
            arrived,
            took,
            deadline: deadline.since(arrived),
            outcome,
            confidence: match *answer {
                Answer::Reconstructed { confidence, .. } | Answer::StandIn { confidence, .. } => confidence,
                _ => None,
            },
            alone: (came && exact).then_some(took),
            instance,
            story,
        });
    }

    /// The instance of an answer's outputs.
    fn answering(&self, answer: &Answer) -> Option<u32> {
        match answer {
            Answer::Exact { job, .. }
            | Answer::Hedged { job, .. }
            | Answer::Backup { job, .. }
            | Answer::StandIn { job, .. } => Some(self.ledger.jobs.get(job)?.instance.number),
            Answer::Reconstructed { .. } | Answer::Default | Answer::Rejected(_) => None,
        }
    }

    fn members(&self, group: GroupId) -> Vec<QueryId> {
        self.ledger.groups.get(&group).map(|group| group.ids.to_vec()).unwrap_or_default()
    }
}

impl Running {
    /// Its number and job id.
    pub(super) fn at(&self, job: parm_dispatch::JobId) -> At {
        At { instance: self.instance.number, job: job.0 }
    }
}

/// The outcome of an answer, and the error.
fn named(answer: &Answer) -> (&'static str, Option<&'static str>) {
    if let Some(outcome) = Outcome::of(answer) {
        return (outcome.name(), None);
    }
    match answer {
        Answer::Rejected(Reject::QueueFull) => ("rejected", Some("the queue is full")),
        Answer::Rejected(Reject::Overload) => {
            ("rejected", Some("overload: the query would miss its deadline"))
        }
        Answer::Rejected(Reject::NoInstance) => ("rejected", Some("no instance serves the model")),
        Answer::Rejected(Reject::BadQuery) => ("rejected", Some("the request is invalid")),
        Answer::Rejected(Reject::Failed) => ("failed", Some("every attempt failed")),
        _ => ("failed", Some("the deadline expired")),
    }
}
