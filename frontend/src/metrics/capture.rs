//! Metrics of captured queries.

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

use super::register;

/// Counters of the capture; on the page once there is one.
pub(super) struct CaptureFamily(IntCounterVec);

/// Handles of the counters.
#[derive(Clone)]
pub(crate) struct Captured {
    kept: IntCounter,
    dropped: IntCounter,
    failed: IntCounter,
}

impl CaptureFamily {
    pub(super) fn new(registry: &Registry) -> Self {
        let opts = Opts::new(
            "parm_captured_requests_total",
            "Requests sampled for capture: written (kept), not written because a buffer was full (dropped), or failed to be written, which ends the capture (failed)",
        );
        Self(register(registry, IntCounterVec::new(opts, &["event"])))
    }

    pub(super) fn handles(&self) -> Captured {
        let [kept, dropped, failed] =
            ["kept", "dropped", "failed"].map(|event| self.0.with_label_values(&[event]));
        Captured { kept, dropped, failed }
    }
}

impl Captured {
    pub(crate) fn kept(&self) {
        self.kept.inc();
    }

    pub(crate) fn dropped(&self) {
        self.dropped.inc();
    }

    pub(crate) fn failed(&self) {
        self.failed.inc();
    }
}
