//! The metrics of the backend, and the statistics of models for the protocol.
//!
//! A worker uses Triton's names, so that dashboards and autoscalers for Triton work. Instances embedded in a frontend
//! do not show these: there the `nv_inference` names belong to the frontend's own requests.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use parm_protocol::{BatchStatistics, DurationStatistics, ModelStatistics};
use prometheus::core::Collector;
use prometheus::proto::LabelPair;
use prometheus::{
    HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

use crate::Error;
use crate::instance::Payer;

const MODEL: &[&str] = &["model", "version"];

/// The parts of a request's time, by Triton's names.
const PARTS: [(&str, &str); 5] = [
    ("request", "from arrival to answer"),
    ("queue", "of waiting to run"),
    ("compute_input", "of preparing inputs"),
    ("compute_infer", "in the model"),
    ("compute_output", "of preparing outputs"),
];

/// A configured share, or the model's own share.
const PAYER: &[&str] = &["share", "model"];

/// Metrics of all models, registered once.
#[derive(Clone, Debug)]
pub struct Metrics {
    success: IntCounterVec,
    failure: IntCounterVec,
    rows: IntCounterVec,
    executions: IntCounterVec,
    pending: IntGaugeVec,
    /// By part of a request.
    durations: Vec<IntCounterVec>,
    service_time: HistogramVec,
    dropped: IntCounterVec,
    panics: IntCounterVec,
    batch_limit: IntGaugeVec,
    batch_speedup: prometheus::GaugeVec,
    loads: IntCounterVec,
    share_used: prometheus::CounterVec,
    share_entitled: prometheus::CounterVec,
    share_waiting: IntGaugeVec,
    pub(crate) sharing: SharingMetrics,
}

/// The metrics of one share of instance time.
#[derive(Clone, Debug)]
pub(crate) struct ShareMetrics {
    pub(crate) used: prometheus::Counter,
    pub(crate) entitled: prometheus::Counter,
    pub(crate) waiting: IntGauge,
}

/// The asks and grants of frontends that share the instances.
#[derive(Clone, Debug)]
pub(crate) struct SharingMetrics {
    pub(crate) frontends: IntGauge,
    pub(crate) grants: IntGauge,
    pub(crate) asking: IntGauge,
}

/// The metrics of one model, looked up once, and its statistics for the protocol's endpoint, updated together.
#[derive(Debug)]
pub(crate) struct Statistics {
    success: IntCounter,
    rows: IntCounter,
    executions: IntCounter,
    pub(crate) pending: IntGauge,
    /// Microseconds of each of [`PARTS`].
    durations: Vec<IntCounter>,
    service_time: prometheus::Histogram,
    pub(crate) dropped: IntCounter,
    pub(crate) panics: IntCounter,
    totals: Mutex<Totals>,
}

#[derive(Debug, Default)]
struct Totals {
    total: ModelStatistics,
    batches: BTreeMap<usize, BatchStatistics>,
}

/// The parts of a batch's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Phases {
    pub(crate) input: Duration,
    pub(crate) infer: Duration,
    pub(crate) output: Duration,
}

impl Metrics {
    /// The metrics of a worker.
    pub fn worker(registry: &Registry) -> Result<Self, Error> {
        Self::register(registry, registry).map_err(refused)
    }

    /// The metrics of instances inside a frontend, which counts requests and shares itself.
    pub fn embedded(registry: &Registry) -> Result<Self, Error> {
        Self::register(registry, &Registry::new()).map_err(refused)
    }

    /// `requests` is the registry of what concerns requests and shares.
    fn register(registry: &Registry, requests: &Registry) -> prometheus::Result<Self> {
        let counter = |registry: &Registry, name: &str, help: &str, labels: &[&str]| {
            registered(registry, IntCounterVec::new(Opts::new(name, help), labels))
        };
        let gauge = |registry: &Registry, name: &str, help: &str| {
            registered(registry, IntGaugeVec::new(Opts::new(name, help), MODEL))
        };
        let sum = |(what, part): &(&str, &str)| {
            let help = format!("Microseconds {part}, summed over requests");
            counter(requests, &format!("nv_inference_{what}_duration_us"), &help, MODEL)
        };
        let of = |name: &str, help: &str, labels: &[&str]| {
            counter(requests, &format!("nv_inference_{name}"), help, labels)
        };
        let buckets = prometheus::exponential_buckets(50e-6, 1.5, 34)?;
        let help = "Seconds that a batch took in the model, injected delays included";
        let service_time = HistogramOpts::new("parm_instance_service_time_seconds", help).buckets(buckets);
        let service_time = registered(registry, HistogramVec::new(service_time, MODEL))?;
        let help = "Time of one row alone over time of a row in a full batch, measured at load";
        let speedup = Opts::new("parm_instance_batch_speedup", help);
        let speedup = registered(registry, prometheus::GaugeVec::new(speedup, MODEL))?;
        let share = |name: &str, help: &str| {
            registered(requests, prometheus::CounterVec::new(Opts::new(name, help), PAYER))
        };
        let waiting = Opts::new("parm_share_waiting", "Requests that wait for an instance, by share");
        let share_waiting = registered(requests, IntGaugeVec::new(waiting, PAYER))?;
        let used = "Seconds of instances' time that each share used";
        let entitled = "Seconds of instances' time that its weight gave each share while it wanted some";
        let per_reason = &["model", "version", "reason"];
        let dropped = "Requests dropped before they ran, because their clients had given up";
        Ok(Self {
            success: of("request_success", "Requests answered", MODEL)?,
            failure: of("request_failure", "Requests refused or failed, by reason", per_reason)?,
            rows: of("count", "Rows inferred", MODEL)?,
            executions: of("exec_count", "Batches executed", MODEL)?,
            pending: gauge(requests, "nv_inference_pending_request_count", "Requests waiting to run")?,
            durations: PARTS.iter().map(sum).collect::<Result<_, _>>()?,
            service_time,
            dropped: counter(registry, "parm_instance_dropped_total", dropped, MODEL)?,
            panics: counter(registry, "parm_instance_panics_total", "Panics of the engine, survived", MODEL)?,
            batch_limit: gauge(registry, "parm_instance_batch_limit", "Rows that batching puts together")?,
            batch_speedup: speedup,
            share_used: share("parm_share_used_seconds_total", used)?,
            share_entitled: share("parm_share_entitled_seconds_total", entitled)?,
            share_waiting,
            sharing: SharingMetrics::register(registry)?,
            loads: counter(registry, "parm_instance_loads_total", "Loads by outcome", &["model", "outcome"])?,
        })
    }

    /// Those of a version of a model, whose batches have at most `limit` rows and were measured to be `speedup` times as fast
    /// per row.
    pub(crate) fn model(
        &self,
        model: &str,
        version: &str,
        (limit, speedup): (usize, Option<f64>),
    ) -> Statistics {
        let labels = &[model, version];
        self.batch_limit.with_label_values(labels).set(i64::try_from(limit).unwrap_or(i64::MAX));
        self.batch_speedup.with_label_values(labels).set(speedup.unwrap_or(f64::NAN));
        Statistics {
            success: self.success.with_label_values(labels),
            rows: self.rows.with_label_values(labels),
            executions: self.executions.with_label_values(labels),
            pending: self.pending.with_label_values(labels),
            durations: self.durations.iter().map(|part| part.with_label_values(labels)).collect(),
            service_time: self.service_time.with_label_values(labels),
            dropped: self.dropped.with_label_values(labels),
            panics: self.panics.with_label_values(labels),
            totals: Mutex::default(),
        }
    }

    /// Ends the series of a version that is gone: versions come and go.
    pub(crate) fn forget(&self, model: &str, version: u64) {
        let version = &*version.to_string();
        let labels = &[model, version];
        let counters = [&self.success, &self.rows, &self.executions, &self.dropped, &self.panics];
        // A version that was never loaded lacks some of them.
        for counter in counters.into_iter().chain(&self.durations) {
            let _ = counter.remove_label_values(labels);
        }
        for gauge in [&self.pending, &self.batch_limit] {
            let _ = gauge.remove_label_values(labels);
        }
        let _ = self.service_time.remove_label_values(labels);
        let _ = self.batch_speedup.remove_label_values(labels);
        for family in self.failure.collect() {
            for failed in family.get_metric() {
                let value =
                    |name| failed.get_label().iter().find(|label| label.name() == name).map(LabelPair::value);
                if let [Some(of), Some(its), Some(reason)] = ["model", "version", "reason"].map(value)
                    && [of, its] == *labels
                {
                    let _ = self.failure.remove_label_values(&[of, its, reason]);
                }
            }
        }
    }

    pub(crate) fn share(&self, payer: &Payer) -> ShareMetrics {
        let labels = payer.labels();
        ShareMetrics {
            used: self.share_used.with_label_values(&labels),
            entitled: self.share_entitled.with_label_values(&labels),
            waiting: self.share_waiting.with_label_values(&labels),
        }
    }

    /// Counts a failed request. Models that are not served count as one, since clients choose the names.
    pub(crate) fn failed(&self, model: Option<(&str, &str)>, reason: &str) {
        let (model, version) = model.unwrap_or(("", ""));
        self.failure.with_label_values(&[model, version, reason]).inc();
    }

    pub(crate) fn loaded(&self, model: &str, outcome: &Result<(), Error>) {
        let outcome = if outcome.is_ok() { "loaded" } else { "failed" };
        self.loads.with_label_values(&[model, outcome]).inc();
    }
}

impl SharingMetrics {
    fn register(registry: &Registry) -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str| registered(registry, IntGauge::new(name, help));
        Ok(Self {
            frontends: gauge("parm_sharing_frontends", "Frontends that take part in grants")?,
            grants: gauge("parm_sharing_grants", "Grants that frontends hold and have not used")?,
            asking: gauge("parm_sharing_asking", "Frontends that ask for an instance")?,
        })
    }
}

impl Statistics {
    /// Counts a batch.
    pub(crate) fn executed(&self, rows: usize, phases: Phases) {
        self.rows.inc_by(rows as u64);
        self.executions.inc();
        self.service_time.observe(phases.infer.as_secs_f64());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut totals = self.totals.lock();
        totals.total.inference_count += rows as u64;
        totals.total.execution_count += 1;
        totals.total.last_inference_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let batch = totals.batches.entry(rows).or_default();
        batch.batch_size = rows as u64;
        add(&mut batch.compute_input, phases.input);
        add(&mut batch.compute_infer, phases.infer);
        add(&mut batch.compute_output, phases.output);
    }

    /// Counts an answered request of that batch: it took `whole`, of which it was queued for `queued`.
    pub(crate) fn answered(&self, whole: Duration, queued: Duration, phases: Phases) {
        self.success.inc();
        let total = &mut self.totals.lock().total.inference_stats;
        let parts = [
            (&mut total.success, whole),
            (&mut total.queue, queued),
            (&mut total.compute_input, phases.input),
            (&mut total.compute_infer, phases.infer),
            (&mut total.compute_output, phases.output),
        ];
        for ((sum, part), counter) in parts.into_iter().zip(&self.durations) {
            add(sum, part);
            counter.inc_by(u64::try_from(part.as_micros()).unwrap_or(u64::MAX));
        }
    }

    /// Counts a request that failed after `whole`.
    pub(crate) fn failed(&self, whole: Duration) {
        add(&mut self.totals.lock().total.inference_stats.fail, whole);
    }

    pub(crate) fn report(&self, name: &str, version: &str) -> ModelStatistics {
        let totals = self.totals.lock();
        ModelStatistics {
            name: name.into(),
            version: version.into(),
            batch_stats: totals.batches.values().copied().collect(),
            ..totals.total.clone()
        }
    }
}

fn add(statistics: &mut DurationStatistics, duration: Duration) {
    statistics.count += 1;
    statistics.ns += u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
}

/// Registers a metric.
pub(crate) fn registered<M: Collector + Clone + 'static>(
    registry: &Registry,
    metric: prometheus::Result<M>,
) -> prometheus::Result<M> {
    let metric = metric?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

pub(crate) fn refused(error: prometheus::Error) -> Error {
    Error::Metrics { message: error.to_string() }
}
