//! Metrics of coding: groups, parities, reconstructions and comparisons.

use prometheus::{
    HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, exponential_buckets,
    linear_buckets,
};

use super::counts::{Count, Counted, Counts};
use super::series::Series;
use super::{MODEL, register};

/// Metrics of all models.
pub(super) struct CodingFamilies {
    codes: IntGaugeVec,
    counts: Counts,
    failures: IntCounterVec,
    encode_time: HistogramVec,
    decode_time: HistogramVec,
    confidence: HistogramVec,
}

/// Handles of one model.
pub(crate) struct Coding {
    /// Group sizes with a code.
    pub(crate) codes: Series<IntGaugeVec>,
    pub(crate) encode_failures: Series<IntCounterVec>,
    pub(crate) decode_failures: Series<IntCounterVec>,
    pub(crate) encode_time: Series<HistogramVec>,
    pub(crate) decode_time: Series<HistogramVec>,
    pub(crate) confidence: Series<HistogramVec>,
    pub(super) counted: Counted,
}

const COUNTS: &[Count] = &[
    Count {
        name: "parm_groups_total",
        help: "Coding groups: full, partial, or dissolved without parities",
        label: "kind",
        counts: &[
            ("full", |c| c.groups - c.groups_partial),
            ("partial", |c| c.groups_partial),
            ("dissolved", |c| c.groups_dissolved),
        ],
    },
    Count {
        name: "parm_parities_total",
        help: "Parities: sent to an instance, unsent (not needed before an instance was free), late (arrived when no longer needed)",
        label: "event",
        counts: &[("sent", |c| c.parities), ("unsent", |c| c.parities_unsent), ("late", |c| c.parities_late)],
    },
    Count {
        name: "parm_reconstructions_total",
        help: "Predictions reconstructed (made), and of these served, or withheld for low confidence (unsure)",
        label: "event",
        counts: &[
            ("made", |c| c.reconstructions),
            ("served", |c| c.reconstructions_served),
            ("unsure", |c| c.reconstructions_unsure),
        ],
    },
    Count {
        name: "parm_backups_served_total",
        help: "Queries answered by the backup model",
        label: "",
        counts: &[("", |c| c.backups_served)],
    },
    Count {
        name: "parm_comparisons_total",
        help: "Predictions compared with their reconstructions (compared), and of these disagreed",
        label: "event",
        counts: &[("compared", |c| c.compared), ("disagreed", |c| c.disagreed)],
    },
    Count {
        name: "parm_suspects_total",
        help: "Instances suspected of wrong answers (suspected), and of these ejected",
        label: "event",
        counts: &[("suspected", |c| c.suspected), ("ejected", |c| c.ejected_wrong)],
    },
];

impl CodingFamilies {
    pub(super) fn new(registry: &Registry) -> Self {
        let histogram = |name: &str, help: &str, buckets: Vec<f64>| {
            register(registry, HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), MODEL))
        };
        Self {
            codes: register(
                registry,
                IntGaugeVec::new(Opts::new("parm_codes", "Number of group sizes with a code"), MODEL),
            ),
            counts: Counts::new(registry, COUNTS),
            failures: register(
                registry,
                IntCounterVec::new(
                    Opts::new(
                        "parm_coding_failures_total",
                        "Groups or predictions that a code failed to encode or decode",
                    ),
                    &["model", "version", "stage"],
                ),
            ),
            encode_time: histogram("parm_encode_seconds", "Time to encode a group", microseconds()),
            decode_time: histogram("parm_decode_seconds", "Time to decode a prediction", microseconds()),
            confidence: histogram(
                "parm_reconstruction_confidence",
                "Confidence of reconstructions, if the bundle defines it",
                linear_buckets(0.1, 0.1, 9).expect("width and count are above zero"),
            ),
        }
    }

    pub(super) fn of(&self, labels: [&str; 2]) -> Coding {
        let failures = |stage| Series::new(&self.failures, &[labels[0], labels[1], stage]);
        Coding {
            codes: Series::new(&self.codes, &labels),
            encode_failures: failures("encode"),
            decode_failures: failures("decode"),
            encode_time: Series::new(&self.encode_time, &labels),
            decode_time: Series::new(&self.decode_time, &labels),
            confidence: Series::new(&self.confidence, &labels),
            counted: self.counts.of(labels),
        }
    }
}

impl Coding {
    /// Shows the failures of a coded model as zeros before the first.
    pub(super) fn begin(&self) {
        let _ = (self.encode_failures.get(), self.decode_failures.get());
    }

    /// Removes the series from the page.
    pub(super) fn forget(&self) {
        self.codes.forget();
        self.encode_failures.forget();
        self.decode_failures.forget();
        [&self.encode_time, &self.decode_time, &self.confidence].into_iter().for_each(Series::forget);
        self.counted.forget();
    }
}

/// 0.5 us to 130 ms, doubling.
fn microseconds() -> Vec<f64> {
    exponential_buckets(0.5e-6, 2.0, 19).expect("start, factor and count are above their minima")
}
