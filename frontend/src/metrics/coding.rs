//! Metrics of coding: what was grouped, sent, decoded and given to clients.

use parm_dispatch::Counters;
use prometheus::{
    HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, exponential_buckets,
    linear_buckets,
};

use super::series::Series;
use super::{MODEL, register};

/// The metrics of all models.
pub(super) struct CodingFamilies {
    codes: IntGaugeVec,
    groups: IntCounterVec,
    parities: IntCounterVec,
    reconstructions: IntCounterVec,
    backups: IntCounterVec,
    failures: IntCounterVec,
    comparisons: IntCounterVec,
    suspects: IntCounterVec,
    encode_time: HistogramVec,
    decode_time: HistogramVec,
    confidence: HistogramVec,
}

/// Handles of one model.
pub(crate) struct Coding {
    /// Group sizes that there is a code for.
    pub(crate) codes: Series<IntGaugeVec>,
    pub(crate) encode_failures: Series<IntCounterVec>,
    pub(crate) decode_failures: Series<IntCounterVec>,
    pub(crate) encode_time: Series<HistogramVec>,
    pub(crate) decode_time: Series<HistogramVec>,
    pub(crate) confidence: Series<HistogramVec>,
    groups_full: Series<IntCounterVec>,
    groups_partial: Series<IntCounterVec>,
    groups_dissolved: Series<IntCounterVec>,
    parities_sent: Series<IntCounterVec>,
    parities_unsent: Series<IntCounterVec>,
    parities_late: Series<IntCounterVec>,
    made: Series<IntCounterVec>,
    served: Series<IntCounterVec>,
    unsure: Series<IntCounterVec>,
    backups: Series<IntCounterVec>,
    compared: Series<IntCounterVec>,
    disagreed: Series<IntCounterVec>,
    suspected: Series<IntCounterVec>,
    ejected_wrong: Series<IntCounterVec>,
}

impl CodingFamilies {
    pub(super) fn new(registry: &Registry) -> Self {
        let counter = |name, help, labels: &[&str]| {
            register(registry, IntCounterVec::new(Opts::new(name, help), labels))
        };
        let histogram = |name: &str, help: &str, buckets: Vec<f64>| {
            register(registry, HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), MODEL))
        };
        let by = |label| ["model", "version", label];
        Self {
            codes: register(
                registry,
                IntGaugeVec::new(Opts::new("parm_codes", "Group sizes that there is a code for"), MODEL),
            ),
            groups: counter(
                "parm_groups_total",
                "Coding groups: full, partial, or dissolved without parities",
                &by("kind"),
            ),
            parities: counter(
                "parm_parities_total",
                "Parities: sent to an instance, unsent (useless before there was room), late (in when nobody needed them)",
                &by("event"),
            ),
            reconstructions: counter(
                "parm_reconstructions_total",
                "Predictions reconstructed: made, and of these served, or unsure (not given for want of confidence)",
                &by("event"),
            ),
            backups: counter("parm_backups_served_total", "Queries answered by the backup model", MODEL),
            failures: counter(
                "parm_coding_failures_total",
                "Groups or predictions that a code failed",
                &by("stage"),
            ),
            comparisons: counter(
                "parm_comparisons_total",
                "Predictions compared with what parities say of them: compared, and of these disagreed",
                &by("event"),
            ),
            suspects: counter(
                "parm_suspects_total",
                "Instances that became suspect of wrong answers: suspected, and of these ejected",
                &by("event"),
            ),
            encode_time: histogram("parm_encode_seconds", "Time to encode a group", microseconds()),
            decode_time: histogram("parm_decode_seconds", "Time to decode a prediction", microseconds()),
            confidence: histogram(
                "parm_reconstruction_confidence",
                "Confidence of reconstructions, where the bundle says how to find it",
                linear_buckets(0.1, 0.1, 9).expect("a width and a count above zero"),
            ),
        }
    }

    pub(super) fn of(&self, labels: [&str; 2]) -> Coding {
        let by = |family: &IntCounterVec, label: &str| Series::new(family, &[labels[0], labels[1], label]);
        Coding {
            codes: Series::new(&self.codes, &labels),
            encode_failures: by(&self.failures, "encode"),
            decode_failures: by(&self.failures, "decode"),
            encode_time: Series::new(&self.encode_time, &labels),
            decode_time: Series::new(&self.decode_time, &labels),
            confidence: Series::new(&self.confidence, &labels),
            groups_full: by(&self.groups, "full"),
            groups_partial: by(&self.groups, "partial"),
            groups_dissolved: by(&self.groups, "dissolved"),
            parities_sent: by(&self.parities, "sent"),
            parities_unsent: by(&self.parities, "unsent"),
            parities_late: by(&self.parities, "late"),
            made: by(&self.reconstructions, "made"),
            served: by(&self.reconstructions, "served"),
            unsure: by(&self.reconstructions, "unsure"),
            backups: Series::new(&self.backups, &labels),
            compared: by(&self.comparisons, "compared"),
            disagreed: by(&self.comparisons, "disagreed"),
            suspected: by(&self.suspects, "suspected"),
            ejected_wrong: by(&self.suspects, "ejected"),
        }
    }
}

impl Coding {
    /// A coded model's failures are zeros before the first.
    pub(super) fn begin(&self) {
        let _ = (self.encode_failures.get(), self.decode_failures.get());
    }

    /// What the dispatcher counted, with where it goes.
    pub(super) fn counted(&self, counters: &Counters) -> [(&Series<IntCounterVec>, u64); 14] {
        [
            (&self.groups_full, counters.groups - counters.groups_partial),
            (&self.groups_partial, counters.groups_partial),
            (&self.groups_dissolved, counters.groups_dissolved),
            (&self.parities_sent, counters.parities),
            (&self.parities_unsent, counters.parities_unsent),
            (&self.parities_late, counters.parities_late),
            (&self.made, counters.reconstructions),
            (&self.served, counters.reconstructions_served),
            (&self.unsure, counters.reconstructions_unsure),
            (&self.backups, counters.backups_served),
            (&self.compared, counters.compared),
            (&self.disagreed, counters.disagreed),
            (&self.suspected, counters.suspected),
            (&self.ejected_wrong, counters.ejected_wrong),
        ]
    }
}

/// 0.5 us to 130 ms, each twice the one before.
fn microseconds() -> Vec<f64> {
    exponential_buckets(0.5e-6, 2.0, 19).expect("a start, a factor and a count above their minima")
}
