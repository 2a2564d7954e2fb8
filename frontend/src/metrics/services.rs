//! Metrics of Services of Kubernetes that are followed.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use super::register;

const SERVICE: &[&str] = &["service"];

/// What is known of all of them; the page has them once there is one.
pub(super) struct ServiceFamilies {
    current: IntGaugeVec,
    endpoints: IntGaugeVec,
    lists: IntCounterVec,
    failures: IntCounterVec,
}

/// Handles of one.
#[derive(Clone)]
pub(crate) struct ServiceMetrics {
    /// 1 while what is known is what the API server says.
    pub(crate) current: IntGauge,
    pub(crate) endpoints: IntGauge,
    pub(crate) lists: IntCounter,
    pub(crate) failures: IntCounter,
}

impl ServiceFamilies {
    pub(super) fn new(registry: &Registry) -> Self {
        let gauge = |name, help| register(registry, IntGaugeVec::new(Opts::new(name, help), SERVICE));
        let counter = |name, help| register(registry, IntCounterVec::new(Opts::new(name, help), SERVICE));
        Self {
            current: gauge(
                "parm_kubernetes_current",
                "1 while the API server is heard about the Service, 0 while what it said last is relied on",
            ),
            endpoints: gauge(
                "parm_kubernetes_endpoints",
                "Endpoints of the Service, as the API server said last",
            ),
            lists: counter("parm_kubernetes_lists_total", "Lists of the Service's endpoints that were read"),
            failures: counter(
                "parm_kubernetes_failures_total",
                "Lists and watches of the Service's endpoints that failed",
            ),
        }
    }

    pub(super) fn of(&self, service: &str) -> ServiceMetrics {
        ServiceMetrics {
            current: self.current.with_label_values(&[service]),
            endpoints: self.endpoints.with_label_values(&[service]),
            lists: self.lists.with_label_values(&[service]),
            failures: self.failures.with_label_values(&[service]),
        }
    }
}
