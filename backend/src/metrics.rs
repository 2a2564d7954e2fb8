//! The metrics of the backend.
//!
//! A worker uses Triton's names, so that dashboards and autoscalers for Triton work. Instances embedded in a frontend
//! use `parm_embedded` instead: there the `nv_inference` names belong to the frontend's own requests.

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::proto::LabelPair;
use prometheus::{
    HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

use crate::Error;
use crate::payer::Payer;

const MODEL: &[&str] = &["model", "version"];

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
    request_us: IntCounterVec,
    queue_us: IntCounterVec,
    input_us: IntCounterVec,
    infer_us: IntCounterVec,
    output_us: IntCounterVec,
    service_time: HistogramVec,
    dropped: IntCounterVec,
    panics: IntCounterVec,
    batch_limit: IntGaugeVec,
    batch_speedup: prometheus::GaugeVec,
    memory: IntGaugeVec,
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

/// The metrics of one model, looked up once.
#[derive(Clone, Debug)]
pub(crate) struct ModelMetrics {
    pub(crate) success: IntCounter,
    pub(crate) rows: IntCounter,
    pub(crate) executions: IntCounter,
    pub(crate) pending: IntGauge,
    pub(crate) request_us: IntCounter,
    pub(crate) queue_us: IntCounter,
    pub(crate) input_us: IntCounter,
    pub(crate) infer_us: IntCounter,
    pub(crate) output_us: IntCounter,
    pub(crate) service_time: prometheus::Histogram,
    pub(crate) dropped: IntCounter,
    pub(crate) panics: IntCounter,
    batch_limit: IntGauge,
    batch_speedup: prometheus::Gauge,
}

impl Metrics {
    /// The metrics of a worker.
    pub fn worker(registry: &Registry) -> Result<Self, Error> {
        let metrics = Self::register(registry, "nv_inference").map_err(refused)?;
        metrics.register_shares(registry).map_err(refused)?;
        Ok(metrics)
    }

    /// The metrics of instances inside a frontend. The frontend's dispatcher counts the shares.
    pub fn embedded(registry: &Registry) -> Result<Self, Error> {
        Self::register(registry, "parm_embedded").map_err(refused)
    }

    fn register_shares(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.share_used.clone()))?;
        registry.register(Box::new(self.share_entitled.clone()))?;
        registry.register(Box::new(self.share_waiting.clone()))
    }

    fn register(registry: &Registry, triton: &str) -> prometheus::Result<Self> {
        let counter = |name: String, help: &str, labels: &[&str]| {
            let metric = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let gauge = |name: String, help: &str| {
            let metric = IntGaugeVec::new(Opts::new(name, help), MODEL)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let sum = |what: &str| {
            let part = match what {
                "request" => "from arrival to answer",
                "queue" => "of waiting to run",
                "compute_input" => "of preparing inputs",
                "compute_infer" => "in the model",
                _ => "of preparing outputs",
            };
            let help = format!("Microseconds {part}, summed over requests");
            counter(format!("{triton}_{what}_duration_us"), &help, MODEL)
        };
        let name = |name: &str| format!("{triton}_{name}");
        let buckets = prometheus::exponential_buckets(50e-6, 1.5, 34)?;
        let help = "Seconds that a batch took in the model, injected delays included";
        let service_time = HistogramOpts::new("parm_instance_service_time_seconds", help).buckets(buckets);
        let service_time = HistogramVec::new(service_time, MODEL)?;
        registry.register(Box::new(service_time.clone()))?;
        let help = "Time of one row alone over time of a row in a full batch, measured at load";
        let speedup = prometheus::GaugeVec::new(Opts::new("parm_instance_batch_speedup", help), MODEL)?;
        registry.register(Box::new(speedup.clone()))?;
        let share = |name: &str, help: &str| prometheus::CounterVec::new(Opts::new(name, help), PAYER);
        let waiting = Opts::new("parm_share_waiting", "Requests that wait for an instance, by share");
        let share_waiting = IntGaugeVec::new(waiting, PAYER)?;
        let used = "Seconds of instances' time that each share used";
        let entitled = "Seconds of instances' time that its weight gave each share while it wanted some";
        let per_reason = &["model", "version", "reason"];
        let dropped = "Requests dropped before they ran, because their clients had given up";
        Ok(Self {
            success: counter(name("request_success"), "Requests answered", MODEL)?,
            failure: counter(name("request_failure"), "Requests refused or failed, by reason", per_reason)?,
            rows: counter(name("count"), "Rows inferred", MODEL)?,
            executions: counter(name("exec_count"), "Batches executed", MODEL)?,
            pending: gauge(name("pending_request_count"), "Requests waiting to run")?,
            request_us: sum("request")?,
            queue_us: sum("queue")?,
            input_us: sum("compute_input")?,
            infer_us: sum("compute_infer")?,
            output_us: sum("compute_output")?,
            service_time,
            dropped: counter("parm_instance_dropped_total".into(), dropped, MODEL)?,
            panics: counter("parm_instance_panics_total".into(), "Panics of the engine, survived", MODEL)?,
            batch_limit: gauge("parm_instance_batch_limit".into(), "Rows that batching puts together")?,
            batch_speedup: speedup,
            memory: gauge(
                "parm_instance_model_memory_bytes".into(),
                "Memory that a loaded model counts with",
            )?,
            share_used: share("parm_share_used_seconds_total", used)?,
            share_entitled: share("parm_share_entitled_seconds_total", entitled)?,
            share_waiting,
            sharing: SharingMetrics::register(registry)?,
            loads: counter("parm_instance_loads_total".into(), "Loads by outcome", &["model", "outcome"])?,
        })
    }

    pub(crate) fn model(&self, model: &str, version: &str) -> ModelMetrics {
        let labels = &[model, version];
        ModelMetrics {
            success: self.success.with_label_values(labels),
            rows: self.rows.with_label_values(labels),
            executions: self.executions.with_label_values(labels),
            pending: self.pending.with_label_values(labels),
            request_us: self.request_us.with_label_values(labels),
            queue_us: self.queue_us.with_label_values(labels),
            input_us: self.input_us.with_label_values(labels),
            infer_us: self.infer_us.with_label_values(labels),
            output_us: self.output_us.with_label_values(labels),
            service_time: self.service_time.with_label_values(labels),
            dropped: self.dropped.with_label_values(labels),
            panics: self.panics.with_label_values(labels),
            batch_limit: self.batch_limit.with_label_values(labels),
            batch_speedup: self.batch_speedup.with_label_values(labels),
        }
    }

    /// Ends the series of a version that is gone: versions come and go.
    pub(crate) fn forget(&self, model: &str, version: u64) {
        let version = &*version.to_string();
        let labels = &[model, version];
        let counters = [
            &self.success,
            &self.rows,
            &self.executions,
            &self.request_us,
            &self.queue_us,
            &self.input_us,
            &self.infer_us,
            &self.output_us,
            &self.dropped,
            &self.panics,
        ];
        // A version may not have had all of them.
        for counter in counters {
            let _ = counter.remove_label_values(labels);
        }
        for gauge in [&self.pending, &self.batch_limit, &self.memory] {
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

    /// The memory that a version of a model counts with.
    pub(crate) fn memory(&self, model: &str, version: u64) -> IntGauge {
        self.memory.with_label_values(&[model, &version.to_string()])
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
        let gauge = |name: &str, help: &str| {
            let metric = IntGauge::new(name, help)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        Ok(Self {
            frontends: gauge("parm_sharing_frontends", "Frontends that take part in grants")?,
            grants: gauge("parm_sharing_grants", "Grants that frontends hold and have not used")?,
            asking: gauge("parm_sharing_asking", "Frontends that ask for an instance")?,
        })
    }
}

impl ModelMetrics {
    pub(crate) fn batching(&self, limit: usize, speedup: Option<f64>) {
        self.batch_limit.set(i64::try_from(limit).unwrap_or(i64::MAX));
        self.batch_speedup.set(speedup.unwrap_or(f64::NAN));
    }
}

/// Whole microseconds, for a counter.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn refused(error: prometheus::Error) -> Error {
    Error::Metrics { message: error.to_string() }
}
