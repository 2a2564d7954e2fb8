//! Metrics of the frontend, all defined in this folder.
//!
//! Names are Triton's (`nv_*`) if the meaning is the same, otherwise `parm_*`. Handles are resolved on first use, so
//! the request path uses only atomics and the page has no unused series. What the dispatcher counts is copied when the page is
//! read.

mod instances;
mod model;
mod series;
mod shares;

use parm_settings::PolicyKind;
use prometheus::core::Collector;
use prometheus::{
    IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder, exponential_buckets,
};

pub(crate) use instances::InstanceMetrics;
pub(crate) use model::{CodeMetric, PoolMetrics, Sum};

const SERVICE: &[&str] = &["service"];

/// Metrics of one frontend.
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) models: model::ModelFamilies,
    pub(crate) instances: instances::InstanceFamilies,
    pub(crate) shares: shares::ShareFamilies,
    captured: IntCounterVec,
    service_current: IntGaugeVec,
    service_endpoints: IntGaugeVec,
    service_failures: IntCounterVec,
    /// Instances rejected because their model differs from that of the others.
    pub(crate) disagreements: IntCounter,
    /// Invalid lines of the workers file, now.
    pub(crate) bad_lines: IntGauge,
}

/// Counters of the capture.
#[derive(Clone)]
pub(crate) struct Captured {
    pub(crate) kept: IntCounter,
    pub(crate) dropped: IntCounter,
    pub(crate) failed: IntCounter,
}

/// Handles of one followed Service of Kubernetes.
#[derive(Clone)]
pub(crate) struct ServiceMetrics {
    /// 1 while the known endpoints are current.
    pub(crate) current: IntGauge,
    pub(crate) endpoints: IntGauge,
    pub(crate) failures: IntCounter,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let registry = Registry::new();
        let counter =
            |name, help, labels| register(&registry, IntCounterVec::new(Opts::new(name, help), labels));
        let gauge = |name, help| register(&registry, IntGaugeVec::new(Opts::new(name, help), SERVICE));
        let disagreements = Opts::new(
            "parm_instances_refused_total",
            "Instances rejected because their model differs from that of other instances",
        );
        let lines = Opts::new("parm_workers_file_bad_lines", "Invalid lines of the workers file");
        Self {
            models: model::ModelFamilies::new(&registry),
            instances: instances::InstanceFamilies::new(&registry),
            shares: shares::ShareFamilies::new(&registry),
            captured: counter(
                "parm_captured_requests_total",
                "Requests sampled for capture: written (kept), not written because a buffer was full (dropped), or failed to be written, which ends the capture (failed)",
                &["event"],
            ),
            service_current: gauge(
                "parm_kubernetes_current",
                "1 while the API server lists the Service's endpoints, 0 while its last list is used",
            ),
            service_endpoints: gauge(
                "parm_kubernetes_endpoints",
                "Endpoints of the Service in the last list of the API server",
            ),
            service_failures: counter(
                "parm_kubernetes_failures_total",
                "Failed lists of the Service's endpoints",
                SERVICE,
            ),
            disagreements: register(&registry, IntCounter::with_opts(disagreements)),
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
        ServiceMetrics {
            current: self.service_current.with_label_values(&[name]),
            endpoints: self.service_endpoints.with_label_values(&[name]),
            failures: self.service_failures.with_label_values(&[name]),
        }
    }

    /// Counters of the capture; on the page once there is one.
    pub(crate) fn captured(&self) -> Captured {
        let of = |event| self.captured.with_label_values(&[event]);
        Captured { kept: of("kept"), dropped: of("dropped"), failed: of("failed") }
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
    use parm_dispatcher::{Dispatcher, ModelSettings, Time};

    use super::*;
    use crate::serve::reading::{Counters, ModelReading};

    #[test]
    fn buckets_cover_a_quarter_millisecond_to_a_minute() {
        let buckets = latency_buckets();
        assert_eq!(buckets[0], 250e-6);
        assert!((50.0..75.0).contains(buckets.last().unwrap()), "{buckets:?}");
    }

    #[test]
    fn dispatcher_counters_are_copied_once() {
        let metrics = Metrics::new();
        let pool = metrics.models.of(["m", "1"], PolicyKind::Hedge);
        let mut dispatcher = Dispatcher::<(), ()>::default();
        let key = dispatcher.add_model(ModelSettings::default());
        let own = dispatcher.reading(Time::ZERO, key).unwrap();
        let counters = Counters::default();
        let mut reading = ModelReading { own, counters, codes: 0, agreement: None, withheld: false };
        reading.own.queued = 3;
        metrics.models.refresh(&pool, &reading, false, None);
        assert!(!metrics.text().contains("parm_queue_depth{"), "a model without queries has no series");
        (reading.counters.arrived, reading.counters.hedges) = (8, 5);
        metrics.models.refresh(&pool, &reading, false, None);
        metrics.models.refresh(&pool, &reading, false, None);
        let page = metrics.text();
        assert!(page.contains("parm_hedges_total{model=\"m\",version=\"1\"} 5"), "{page}");
        assert!(page.contains("parm_queue_depth{model=\"m\",version=\"1\"} 3"), "{page}");
    }
}
