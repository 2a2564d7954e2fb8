//! Metrics of followed Services of Kubernetes.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use super::register;

const SERVICE: &[&str] = &["service"];

/// Metrics of all Services; on the page once there is one.
pub(super) struct ServiceFamilies {
    current: IntGaugeVec,
    endpoints: IntGaugeVec,
    lists: IntCounterVec,
    failures: IntCounterVec,
}

/// Handles of one Service.
#[derive(Clone)]
pub(crate) struct ServiceMetrics {
    /// 1 while the known endpoints are current.
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
                "1 while the API server reports about the Service, 0 while its last report is used",
            ),
            endpoints: gauge(
                "parm_kubernetes_endpoints",
                "Endpoints of the Service in the last report of the API server",
            ),
            lists: counter("parm_kubernetes_lists_total", "Successful lists of the Service's endpoints"),
            failures: counter(
                "parm_kubernetes_failures_total",
                "Failed lists and watches of the Service's endpoints",
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
