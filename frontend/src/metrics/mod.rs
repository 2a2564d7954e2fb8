//! Metrics of the frontend, all defined in this folder.
//!
//! Names are Triton's (`nv_*`) if the meaning is the same, otherwise `parm_*`. Handles are resolved on first use, so
//! the request path uses only atomics and the page has no unused series. The dispatcher's counters are copied when the
//! page is read.

mod capture;
mod coding;
mod counts;
mod model;
mod pace;
mod series;
mod services;
mod shares;
mod stand_ins;

use std::collections::BTreeSet;

use parking_lot::{Mutex, RwLock};
use parm_protocol::Error;
use parm_settings::PolicyKind;
use parm_shares::Account;
use prometheus::core::Collector;
use prometheus::{
    GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder, exponential_buckets,
};

use crate::serve::Outcome;
use crate::serve::reading::Payer;

pub(crate) use capture::Captured;
use counts::{Count, Counts};
pub(crate) use model::PoolMetrics;
use model::{Durations, Status};
pub(crate) use pace::Pace;
use series::Series;
pub(crate) use services::ServiceMetrics;

const MODEL: &[&str] = &["model", "version"];

/// Counters of the dispatcher under every policy.
const DISPATCHED: &[Count] = &[
    Count {
        name: "parm_dispatch_total",
        help: "Dispatch: queries that arrived, were cancelled or were shed under overload; jobs started and dropped",
        label: "event",
        counts: &[
            ("arrived", |c| c.arrived),
            ("cancelled", |c| c.cancelled),
            ("given_up", |c| c.given_up),
            ("job", |c| c.jobs),
            ("job_dropped", |c| c.dropped),
        ],
    },
    Count {
        name: "parm_batches_total",
        help: "Batches of queries started; the rows of a batch are parm_batch_rows_total over this",
        label: "",
        counts: &[("", |c| c.batches)],
    },
    Count {
        name: "parm_batch_rows_total",
        help: "Queries in the batches started",
        label: "",
        counts: &[("", |c| c.batch_rows)],
    },
    Count {
        name: "parm_hedges_total",
        help: "Late jobs that were duplicated",
        label: "",
        counts: &[("", |c| c.hedges)],
    },
    Count {
        name: "parm_hedges_won_total",
        help: "Queries answered by a hedge",
        label: "",
        counts: &[("", |c| c.hedges_won)],
    },
    Count {
        name: "parm_hedges_refused_total",
        help: "Late queries not hedged at once because the budget was spent or too many queries waited",
        label: "",
        counts: &[("", |c| c.hedges_refused)],
    },
    Count {
        name: "parm_explored_total",
        help: "Copies that no query waits for: they measure slow instances, and try those that are out of service",
        label: "",
        counts: &[("", |c| c.explored)],
    },
    Count {
        name: "parm_retries_total",
        help: "Failed jobs whose queries were retried",
        label: "",
        counts: &[("", |c| c.retries)],
    },
    Count {
        name: "parm_retries_refused_total",
        help: "Failed jobs whose queries were not retried because the budget was spent",
        label: "",
        counts: &[("", |c| c.retries_refused)],
    },
    Count {
        name: "parm_ejections_total",
        help: "Instances ejected (failing, silent), or kept because too few would remain (refused)",
        label: "reason",
        counts: &[
            ("failing", |c| c.ejected_failing),
            ("silent", |c| c.ejected_silent),
            ("refused", |c| c.ejections_refused),
        ],
    },
];

/// Metrics of one frontend.
pub(crate) struct Metrics {
    registry: Registry,
    success: IntCounterVec,
    failure: IntCounterVec,
    inferences: IntCounterVec,
    executions: IntCounterVec,
    pending: IntGaugeVec,
    request_time: IntCounterVec,
    queue_time: IntCounterVec,
    compute_time: IntCounterVec,
    duration: HistogramVec,
    queue_depth: IntGaugeVec,
    jobs_running: IntGaugeVec,
    usable: IntGaugeVec,
    objective_used: GaugeVec,
    dispatched: Counts,
    inflight: IntGaugeVec,
    service_time: HistogramVec,
    failures: IntCounterVec,
    instances: IntGaugeVec,
    paces: pace::PaceFamilies,
    services: services::ServiceFamilies,
    shares: shares::ShareFamilies,
    coding: coding::CodingFamilies,
    stand_ins: stand_ins::StandInFamilies,
    captured: capture::CaptureFamily,
    /// Instances rejected because their model differs from that of the others.
    pub(crate) disagreements: IntCounter,
    /// Invalid lines of the workers file, now.
    pub(crate) bad_lines: IntGauge,
}

/// Handles of one instance.
pub(crate) struct InstanceMetrics {
    pub(crate) inflight: Series<IntGaugeVec>,
    pub(crate) service_time: Series<HistogramVec>,
    pub(crate) failures: Series<IntCounterVec>,
}

/// Number of instances by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InstanceCounts {
    pub(crate) connecting: i64,
    pub(crate) ready: i64,
    pub(crate) ejected: i64,
    pub(crate) draining: i64,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let registry = Registry::new();
        let counter =
            |name, help, labels| register(&registry, IntCounterVec::new(Opts::new(name, help), labels));
        let gauge = |name, help, labels| register(&registry, IntGaugeVec::new(Opts::new(name, help), labels));
        let histogram = |name: &str, help: &str, labels: &[&str]| {
            let buckets = latency_buckets();
            register(&registry, HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), labels))
        };
        let single = Opts::new(
            "parm_instances_refused_total",
            "Instances rejected because their model differs from that of other instances",
        );
        let objective_used = Opts::new(
            "parm_objective_used",
            "p99 of the latest latencies, as a share of the time that requests usually have until their deadlines",
        );
        let lines = Opts::new("parm_workers_file_bad_lines", "Invalid lines of the workers file");
        Self {
            success: counter("nv_inference_request_success", "Requests answered with a prediction", MODEL),
            failure: counter(
                "nv_inference_request_failure",
                "Requests rejected or failed, by reason",
                &["model", "version", "reason"],
            ),
            inferences: counter("nv_inference_count", "Rows answered", MODEL),
            executions: counter("nv_inference_exec_count", "Batches answered by instances", MODEL),
            pending: gauge("nv_inference_pending_request_count", "Queries in progress", MODEL),
            request_time: counter(
                "nv_inference_request_duration_us",
                "Total time of answered requests",
                MODEL,
            ),
            queue_time: counter(
                "nv_inference_queue_duration_us",
                "Total time from arrival to the start at an instance",
                MODEL,
            ),
            compute_time: counter("nv_inference_compute_infer_duration_us", "Total time at instances", MODEL),
            duration: histogram(
                "parm_request_duration_seconds",
                "Time from a request's arrival to its answer, by outcome and policy",
                &["model", "version", "outcome", "policy"],
            ),
            queue_depth: gauge("parm_queue_depth", "Queries waiting for an instance", MODEL),
            jobs_running: gauge("parm_jobs_running", "Jobs at instances", MODEL),
            usable: gauge("parm_usable_instances", "Instances that accept jobs of the model", MODEL),
            objective_used: register(&registry, GaugeVec::new(objective_used, MODEL)),
            dispatched: Counts::new(&registry, DISPATCHED),
            inflight: gauge("parm_instance_inflight", "Jobs that an instance holds", &["instance"]),
            service_time: histogram(
                "parm_instance_service_seconds",
                "Time of a job at an instance",
                &["instance"],
            ),
            failures: counter("parm_instance_failures_total", "Jobs that an instance failed", &["instance"]),
            coding: coding::CodingFamilies::new(&registry),
            stand_ins: stand_ins::StandInFamilies::new(&registry),
            captured: capture::CaptureFamily::new(&registry),
            paces: pace::PaceFamilies::new(&registry),
            services: services::ServiceFamilies::new(&registry),
            shares: shares::ShareFamilies::new(&registry),
            instances: gauge("parm_instances", "Instances by state", &["state"]),
            disagreements: register(&registry, IntCounter::with_opts(single)),
            bad_lines: register(&registry, IntGauge::with_opts(lines)),
            registry,
        }
    }

    /// Renders the page.
    pub(crate) fn text(&self) -> String {
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_default()
    }

    /// Handles of a followed Service of Kubernetes.
    pub(crate) fn service(&self, name: &str) -> ServiceMetrics {
        self.services.of(name)
    }

    /// Counters of the capture.
    pub(crate) fn captured(&self) -> Captured {
        self.captured.handles()
    }

    /// Counts a request that failed before its model was found: a name invented by a client must not become a label.
    pub(crate) fn rejected(&self, error: &Error) {
        self.failure.with_label_values(&["", "", error.reason()]).inc();
    }

    /// Counts a failed request to a model. Labels are resolved here, because failures need not be fast.
    pub(crate) fn failed(&self, pool: &PoolMetrics, error: &Error) {
        match &mut *pool.reasons.lock() {
            Some(reasons) => {
                reasons.insert(error.reason());
                self.failure.with_label_values(&pool.failing(error.reason())).inc();
            }
            None => self.rejected(error),
        }
    }

    /// Removes the series of a model whose last instance is gone. Each version has up to a hundred, and a model that is
    /// trained daily would add them for as long as this process lives.
    pub(crate) fn forget_pool(&self, pool: &PoolMetrics) {
        let mut reasons = pool.reasons.lock();
        for reason in reasons.take().into_iter().flatten() {
            let _ = self.failure.remove_label_values(&pool.failing(reason));
        }
        let [model, version] = &pool.labels;
        for policy in PolicyKind::ALL {
            self.durations([model, version], policy).iter().for_each(Series::forget);
        }
        pool.forget();
    }

    /// Handles of a model.
    pub(crate) fn pool(&self, model: &str, version: &str, policy: PolicyKind) -> PoolMetrics {
        let labels = [model, version];
        PoolMetrics {
            labels: labels.map(str::to_owned),
            success: Series::new(&self.success, &labels),
            inferences: Series::new(&self.inferences, &labels),
            executions: Series::new(&self.executions, &labels),
            request_time: Series::new(&self.request_time, &labels),
            queue_time: Series::new(&self.queue_time, &labels),
            compute_time: Series::new(&self.compute_time, &labels),
            durations: RwLock::new(self.durations(labels, policy)),
            coding: self.coding.of(labels),
            stand_ins: self.stand_ins.of(labels),
            dispatched: self.dispatched.of(labels),
            status: Status {
                pending: Series::new(&self.pending, &labels),
                queue_depth: Series::new(&self.queue_depth, &labels),
                jobs_running: Series::new(&self.jobs_running, &labels),
                usable: Series::new(&self.usable, &labels),
                utilisation: Series::new(&self.paces.utilisation, &labels),
                objective_used: Series::new(&self.objective_used, &labels),
            },
            reasons: Mutex::new(Some(BTreeSet::new())),
        }
    }

    /// Switches a model's durations to another policy.
    pub(crate) fn policy_changed(&self, pool: &PoolMetrics, policy: PolicyKind) {
        let [model, version] = &pool.labels;
        *pool.durations.write() = self.durations([model, version], policy);
    }

    pub(crate) fn instance(&self, name: &str) -> InstanceMetrics {
        let instance = InstanceMetrics {
            inflight: Series::new(&self.inflight, &[name]),
            service_time: Series::new(&self.service_time, &[name]),
            failures: Series::new(&self.failures, &[name]),
        };
        // Each instance has a line, even before its first job.
        let _ = instance.inflight.get();
        instance
    }

    /// Removes the series of an instance that is gone for good.
    pub(crate) fn forget_instance(&self, name: &str) {
        // An error means that the series was never used.
        let _ = self.inflight.remove_label_values(&[name]);
        let _ = self.service_time.remove_label_values(&[name]);
        let _ = self.failures.remove_label_values(&[name]);
    }

    /// Updates the shares' metrics; each account comes with the name of its share or model.
    pub(crate) fn share_out(&self, accounts: &[(Payer, [String; 2], Account)]) {
        self.shares.refresh(accounts);
    }

    /// Updates the relative speed of instances and nodes, and the condition of instances.
    pub(crate) fn pace_instances(&self, paces: &[Pace]) {
        self.paces.refresh(paces);
    }

    pub(crate) fn count_instances(&self, counts: InstanceCounts) {
        let InstanceCounts { connecting, ready, ejected, draining } = counts;
        let states =
            [("connecting", connecting), ("ready", ready), ("ejected", ejected), ("draining", draining)];
        for (state, count) in states {
            self.instances.with_label_values(&[state]).set(count);
        }
    }

    fn durations(&self, [model, version]: [&str; 2], policy: PolicyKind) -> Durations {
        let policy = policy_name(policy);
        Outcome::ALL
            .map(|outcome| Series::new(&self.duration, &[model, version, outcome.name(), policy.as_str()]))
    }
}

/// Name of a policy as in settings.
pub(crate) fn policy_name(policy: PolicyKind) -> String {
    serde_json::to_value(policy).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

/// 250 us to 60 s, each 1.51 times the one before.
fn latency_buckets() -> Vec<f64> {
    exponential_buckets(250e-6, 1.51, 31).expect("start, factor and count are above their minima")
}

fn register<C: Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<C>) -> C {
    let metric = metric.expect("names and labels are valid constants");
    registry.register(Box::new(metric.clone())).expect("names are unique");
    metric
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::serve::reading::ModelReading;

    use super::*;

    #[test]
    fn buckets_cover_a_quarter_millisecond_to_a_minute() {
        let buckets = latency_buckets();
        assert_eq!(buckets[0], 250e-6);
        assert!((50.0..75.0).contains(buckets.last().unwrap()), "{buckets:?}");
    }

    #[test]
    fn dispatcher_counters_are_copied_once() {
        let metrics = Metrics::new();
        let pool = metrics.pool("m", "1", PolicyKind::Hedge);
        let mut reading = ModelReading { queued: 3, ..ModelReading::default() };
        pool.refresh(&reading, None);
        assert!(!metrics.text().contains("parm_queue_depth{"), "a model without queries has no series");
        (reading.counters.arrived, reading.counters.hedges) = (8, 5);
        pool.refresh(&reading, None);
        pool.refresh(&reading, None);
        let page = metrics.text();
        assert!(page.contains("parm_hedges_total{model=\"m\",version=\"1\"} 5"), "{page}");
        assert!(page.contains("parm_queue_depth{model=\"m\",version=\"1\"} 3"), "{page}");
    }

    #[test]
    fn durations_are_labelled_by_outcome_and_policy() {
        let metrics = Metrics::new();
        let pool = metrics.pool("m", "1", PolicyKind::Hedge);
        pool.answered(Outcome::Hedged, 1, Duration::from_millis(1));
        metrics.policy_changed(&pool, PolicyKind::None);
        pool.answered(Outcome::Exact, 1, Duration::from_millis(1));
        let page = metrics.text();
        for (outcome, policy, count) in [
            ("hedged", "hedge", Some(1)),
            ("exact", "hedge", None),
            ("exact", "none", Some(1)),
            ("hedged", "none", None),
        ] {
            let line = format!(
                "parm_request_duration_seconds_count{{model=\"m\",outcome=\"{outcome}\",policy=\"{policy}\",version=\"1\"}}"
            );
            let had = page.lines().find_map(|had| had.strip_prefix(&line)?.trim().parse::<u64>().ok());
            assert_eq!(had, count, "{line}\n{page}");
        }
    }
}
