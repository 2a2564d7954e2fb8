//! Metrics of queries that are kept.

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

use super::register;

/// Counters of a frontend's capture; the page has them once there is one.
pub(super) struct CaptureFamily(IntCounterVec);

/// Its handles.
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
            "Requests drawn to be captured: written (kept), left out for want of room or time (dropped), and the one that could not be written, which ended the capture (failed)",
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
