//! Stories of queries: with the query while it is in progress, and then in the archive.

use parm_dispatcher::{Failure, ModelKey, QueryKey, Reject, Row, Time, Why};
use slotmap::Key;

use super::attempt::{Job, Payload, Role};
use super::call::{Output, QueryRow};
use super::outputs::Outcome;
use super::state::{State, note_failure};
use crate::console::{At, KeptQuery, Step, kept_id};

/// Maximum length of an error's text, which may contain a client's data.
const LONGEST_ERROR: usize = 200;

impl State {
    /// Adds a step of a query.
    pub(super) fn step(&mut self, at: Time, row: &QueryRow, step: Step) {
        let kept = row.with(|record| {
            if record.replied {
                return record.query.map(|query| (query, step));
            }
            record.story.push(at, step);
            None
        });
        if let Some((query, step)) = kept
            && let Some(kept) = self.archive.get_mut(query)
        {
            kept.push(at, step);
        }
    }

    /// Adds that a query waits for an instance.
    pub(super) fn queued(&mut self, at: Time, model: ModelKey, row: &QueryRow) {
        let before = self.dispatcher.waiting(model).saturating_sub(1);
        self.step(at, row, Step::Queued { waiting: before });
    }

    /// Adds the start of a run.
    pub(super) fn job_given(&mut self, now: Time, run: &Job) {
        let (At { instance, job }, rows) = (run.place(), run.rows.len());
        for payload in run.payloads() {
            let row = match payload {
                Payload::Row(row) => row,
                Payload::Check(_) => continue,
                Payload::Parity(parity) => {
                    let group = parity.group.data().as_ffi();
                    let step = Step::ParityGiven { instance, job, group };
                    parity.members().for_each(|row| self.step(now, &row, step.clone()));
                    continue;
                }
            };
            if matches!(run.why, Why::Hedge | Why::StandIn) {
                let after_us = now.since(row.call.arrived).as_micros() as u64;
                let is_new = row.with(|record| !record.replied && !record.story.is_late());
                if is_new {
                    self.step(now, row, Step::Late { after_us });
                }
            }
            let step = match (run.role, run.why) {
                (_, Why::Explore) | (Role::Parity, _) => continue,
                (Role::Deployed, Why::Retry) => Step::Retried { instance, job, rows },
                (Role::Deployed, _) => Step::Given { instance, job, rows },
                (Role::Copy, _) => Step::Hedged { instance, job, rows },
                (Role::Backup, _) => Step::BackupGiven { instance, job },
                (Role::StandIn, _) => Step::StandInGiven { instance, job },
            };
            self.step(now, row, step);
        }
    }

    /// Adds the end of a run. The run of a query's own prediction is part of the answer, unless it was answered before.
    pub(super) fn job_in(&mut self, now: Time, run: &Job, outputs: &[Option<Output>]) {
        let At { instance, job } = run.place();
        for (payload, output) in run.payloads().zip(outputs) {
            let row = match payload {
                Payload::Row(row) => row,
                Payload::Check(_) => continue,
                Payload::Parity(parity) => {
                    let group = parity.group.data().as_ffi();
                    let step = Step::ParityIn { instance, job, group };
                    parity.members().for_each(|row| self.step(now, &row, step.clone()));
                    continue;
                }
            };
            let is_over = row.with(|record| record.replied);
            let step = match run.role {
                _ if run.why == Why::Explore => continue,
                Role::Deployed | Role::Copy if !is_over => continue,
                Role::Deployed | Role::Copy => Step::PredictionIn { instance, job, agrees: None },
                Role::Backup => Step::BackupIn { instance, job },
                Role::StandIn => Step::StandInIn {
                    instance,
                    job,
                    confidence: output.as_ref().and_then(|own| own.confidence),
                },
                Role::Parity => continue,
            };
            self.step(now, row, step);
        }
    }

    /// Adds the failure of a run.
    pub(super) fn job_failed(
        &mut self,
        now: Time,
        run: &Job,
        failure: Failure,
        error: &parm_protocol::Error,
    ) {
        if run.why == Why::Explore {
            return;
        }
        let At { instance, job } = run.place();
        let text: String = error.to_string().chars().take(LONGEST_ERROR).collect();
        for payload in run.payloads() {
            let Payload::Row(row) = payload else { continue };
            self.step(now, row, Step::Failed { instance, job, error: text.as_str().into() });
            if run.role != Role::StandIn {
                note_failure(row, failure, error);
            }
        }
    }

    /// Adds that approximate answers that are in were not given yet.
    pub(super) fn held_back(&mut self, now: Time, run: &Job) {
        for Row { query, payload } in &run.rows {
            if let Payload::Row(row) = payload {
                self.held_back_row(now, *query, row);
            }
        }
    }

    /// The same of one query.
    pub(super) fn held_back_row(&mut self, now: Time, query: QueryKey, row: &QueryRow) {
        if let Some(until) = self.dispatcher.late_at(query).filter(|until| *until > now) {
            let until_us = until.since(row.call.arrived).as_micros() as u64;
            self.step(now, row, Step::HeldBack { until_us });
        }
    }

    /// Sets whether a prediction agrees with the earlier answer to its query.
    pub(super) fn agrees(&mut self, query: QueryKey, job: u64, agrees: bool) {
        if let Some(kept) = self.archive.get_mut(query) {
            kept.story.set_agrees(job, agrees);
        }
    }

    /// Sets the time until a query's own prediction.
    pub(super) fn came(&mut self, query: QueryKey, alone: std::time::Duration) {
        if let Some(kept) = self.archive.get_mut(query) {
            kept.alone = Some(alone);
        }
    }

    /// Archives the story of a query that is being answered, if it is kept.
    pub(super) fn archive(
        &mut self,
        now: Time,
        query: QueryKey,
        row: &QueryRow,
        answer: &Result<(Outcome, Output), Reject>,
    ) {
        let call = &row.call;
        let took = now.since(call.arrived);
        let (mut story, came) = row.with(|record| (std::mem::take(&mut record.story), record.came));
        let (outcome, error) = named(answer);
        let is_exact = matches!(answer, Ok((Outcome::Exact, _)));
        let own = self.pools.get(&call.pool.id).map(|lines| lines.own);
        let usual = || own.and_then(|own| self.dispatcher.service(own)).is_some_and(|[_, high]| took <= high);
        if is_exact && usual() && !self.archive.samples() {
            return;
        }
        story.push(now, Step::Answered { outcome, error: error.map(Into::into) });
        let output = answer.as_ref().ok().map(|(_, output)| output);
        self.archive.keep(KeptQuery {
            id: query,
            request: kept_id(&call.inputs.id),
            pool: call.pool.clone(),
            arrived: call.arrived,
            took,
            deadline: call.deadline().since(call.arrived),
            outcome,
            confidence: output.and_then(|output| output.confidence),
            alone: (came && is_exact).then_some(took),
            instance: output.and_then(|output| output.by).map(|(number, _)| number),
            story,
        });
    }
}

/// The outcome of an answer, and the error.
fn named(answer: &Result<(Outcome, Output), Reject>) -> (&'static str, Option<&'static str>) {
    match answer {
        Ok((outcome, _)) => (outcome.name(), None),
        Err(Reject::QueueFull) => ("rejected", Some("the queue is full")),
        Err(Reject::Overload) => ("rejected", Some("overload: the query would miss its deadline")),
        Err(Reject::NoInstance) => ("rejected", Some("no instance serves the model")),
        Err(Reject::BadQuery) => ("rejected", Some("the request is invalid")),
        Err(Reject::Failed(_)) => ("failed", Some("every attempt failed")),
        Err(Reject::Deadline) => ("failed", Some("the deadline expired")),
    }
}
