//! Metrics of one model: the series of its requests and of its dispatcher.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use prometheus::{GaugeVec, HistogramVec, IntCounterVec, IntGaugeVec};

use super::coding::Coding;
use super::counts::Counted;
use super::series::Series;
use super::stand_ins::StandIns;
use crate::console::Tail;
use crate::serve::Outcome;
use crate::serve::reading::ModelReading;

/// Handles of one model.
pub(crate) struct PoolMetrics {
    pub(super) labels: [String; 2],
    pub(crate) success: Series<IntCounterVec>,
    /// Rows answered.
    pub(crate) inferences: Series<IntCounterVec>,
    /// Batches executed.
    pub(crate) executions: Series<IntCounterVec>,
    pub(crate) request_time: Series<IntCounterVec>,
    pub(crate) queue_time: Series<IntCounterVec>,
    pub(crate) compute_time: Series<IntCounterVec>,
    pub(super) durations: RwLock<Durations>,
    pub(crate) coding: Coding,
    pub(super) stand_ins: StandIns,
    pub(super) dispatched: Counted,
    pub(super) status: Status,
    /// Reasons of failed requests; `None` once the series are removed.
    pub(super) reasons: Mutex<Option<BTreeSet<&'static str>>>,
}

/// Durations by outcome, for the policy in effect.
pub(super) type Durations = [Series<HistogramVec>; Outcome::ALL.len()];

pub(super) struct Status {
    pub(super) pending: Series<IntGaugeVec>,
    pub(super) queue_depth: Series<IntGaugeVec>,
    pub(super) jobs_running: Series<IntGaugeVec>,
    pub(super) usable: Series<IntGaugeVec>,
    pub(super) utilisation: Series<GaugeVec>,
    pub(super) objective_used: Series<GaugeVec>,
}

impl PoolMetrics {
    /// Counts an answered request.
    pub(crate) fn answered(&self, outcome: Outcome, rows: usize, took: Duration) {
        self.success.inc();
        self.inferences.inc_by(rows as u64);
        self.request_time.inc_by(took.as_micros() as u64);
        self.durations.read()[outcome as usize].observe(took.as_secs_f64());
    }

    /// Copies the dispatcher's counters. From a model's first query on all of them exist, as zeros if need be, so that
    /// the first hedge is an increase and not the start of a series. Usable instances and stand-ins are shown before
    /// that, and counters of codes once there are codes.
    pub(crate) fn refresh(&self, reading: &ModelReading, tail: Option<Tail>) {
        let reasons = self.reasons.lock();
        if reasons.is_none() {
            return; // the model was removed meanwhile
        }
        let counters = &reading.counters;
        self.status.usable.set(reading.usable_instances.into());
        let stand_in = self.stand_ins.are_used(reading);
        if stand_in {
            self.stand_ins.refresh(reading);
        }
        if counters.arrived == 0 {
            return;
        }
        self.status.pending.set(reading.unanswered.into());
        self.status.queue_depth.set(reading.queued.into());
        self.status.jobs_running.set(reading.running.into());
        self.status.utilisation.set(reading.utilisation());
        if let Some(tail) = tail {
            self.status.objective_used.set(tail.used());
        }
        let is_coded = self.coding.codes.is_used();
        if is_coded {
            self.coding.begin();
        }
        self.dispatched.copy(counters, true);
        self.coding.counted.copy(counters, is_coded);
        if stand_in {
            self.stand_ins.counted.copy(counters, true);
        }
    }

    /// Labels of requests that failed for this reason.
    pub(super) fn failing<'a>(&'a self, reason: &'a str) -> [&'a str; 3] {
        [&self.labels[0], &self.labels[1], reason]
    }

    pub(super) fn forget(&self) {
        let counters = [&self.success, &self.inferences, &self.executions];
        let times = [&self.request_time, &self.queue_time, &self.compute_time];
        counters.into_iter().chain(times).for_each(Series::forget);
        let Status { pending, queue_depth, jobs_running, usable, utilisation, objective_used } = &self.status;
        [pending, queue_depth, jobs_running, usable].into_iter().for_each(Series::forget);
        [utilisation, objective_used].into_iter().for_each(Series::forget);
        self.coding.forget();
        self.stand_ins.forget();
        self.dispatched.forget();
    }
}
