//! Metrics of one model: series that requests and codes write, and those that are read from the dispatcher with the page.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use parm_protocol::Error;
use parm_settings::PolicyKind;
use prometheus::{
    CounterVec, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, exponential_buckets,
    linear_buckets,
};
use smallvec::SmallVec;

use super::series::Series;
use super::{latency_buckets, policy_name, register};
use crate::console::Tail;
use crate::serve::Outcome;
use crate::serve::reading::ModelReading;

const MODEL: &[&str] = &["model", "version"];

/// The label of a series, and its value.
type Value = (&'static str, fn(&ModelReading) -> f64);

/// A metric of the page's readings: a value for each of its series.
struct Read {
    name: &'static str,
    help: &'static str,
    is_counter: bool,
    shown: Shown,
    /// Name of the label that distinguishes the series, next to the model's; empty for a single one.
    label: &'static str,
    series: &'static [Value],
}

/// From when on the series of a model are on the page. Counters appear as zeros, so that the first hedge is an increase and not the
/// start of a series; a model without queries, or a policy that is not in effect, does not fill the page.
#[derive(Clone, Copy)]
enum Shown {
    Always,
    /// From the first query on.
    Asked,
    /// While or after it is coded.
    Coded,
    /// While or after it has a stand-in.
    StandIn,
}

const fn counter(
    name: &'static str,
    help: &'static str,
    (shown, label): (Shown, &'static str),
    series: &'static [Value],
) -> Read {
    Read { name, help, is_counter: true, shown, label, series }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    (shown, label): (Shown, &'static str),
    series: &'static [Value],
) -> Read {
    Read { name, help, is_counter: false, shown, label, series }
}

const READ: &[Read] = &[
    gauge(
        "nv_inference_pending_request_count",
        "Queries in progress",
        (Shown::Asked, ""),
        &[("", |r| r.own.counters.unanswered as f64)],
    ),
    gauge(
        "parm_queue_depth",
        "Queries waiting for an instance",
        (Shown::Asked, ""),
        &[("", |r| r.queued.into())],
    ),
    gauge("parm_jobs_running", "Jobs at instances", (Shown::Asked, ""), &[("", |r| r.running.into())]),
    gauge(
        "parm_usable_instances",
        "Instances that accept jobs of the model",
        (Shown::Always, ""),
        &[("", |r| r.usable_instances.into())],
    ),
    gauge(
        "parm_utilisation",
        "Share of the usable slots that are busy with queries",
        (Shown::Asked, ""),
        &[("", |r| r.utilisation())],
    ),
    counter(
        "parm_dispatch_total",
        "Dispatch: queries that arrived, were cancelled or were shed under overload; jobs started and dropped",
        (Shown::Asked, "event"),
        &[
            ("arrived", |r| r.counters.arrived as f64),
            ("cancelled", |r| r.counters.cancelled as f64),
            ("given_up", |r| r.counters.given_up as f64),
            ("job", |r| r.counters.jobs as f64),
            ("job_dropped", |r| r.counters.dropped as f64),
        ],
    ),
    counter(
        "parm_batches_total",
        "Batches of queries started; the rows of a batch are parm_batch_rows_total over this",
        (Shown::Asked, ""),
        &[("", |r| r.counters.batches as f64)],
    ),
    counter(
        "parm_batch_rows_total",
        "Queries in the batches started",
        (Shown::Asked, ""),
        &[("", |r| r.counters.batch_rows as f64)],
    ),
    counter(
        "parm_hedges_total",
        "Late jobs that were duplicated",
        (Shown::Asked, ""),
        &[("", |r| r.counters.hedges as f64)],
    ),
    counter(
        "parm_hedges_won_total",
        "Queries answered by a hedge",
        (Shown::Asked, ""),
        &[("", |r| r.counters.hedges_won as f64)],
    ),
    counter(
        "parm_hedges_refused_total",
        "Late queries not hedged at once because the budget was spent or too many queries waited",
        (Shown::Asked, ""),
        &[("", |r| r.counters.hedges_refused as f64)],
    ),
    counter(
        "parm_explored_total",
        "Copies that no query waits for: they measure slow instances, and try those that are out of service",
        (Shown::Asked, ""),
        &[("", |r| r.counters.explored as f64)],
    ),
    counter(
        "parm_retries_total",
        "Failed jobs whose queries were retried",
        (Shown::Asked, ""),
        &[("", |r| r.counters.retries as f64)],
    ),
    counter(
        "parm_retries_refused_total",
        "Failed jobs whose queries were not retried because the budget was spent",
        (Shown::Asked, ""),
        &[("", |r| r.counters.retries_refused as f64)],
    ),
    counter(
        "parm_ejections_total",
        "Instances ejected (failing, silent), or kept because too few would remain (refused)",
        (Shown::Asked, "reason"),
        &[
            ("failing", |r| r.counters.ejected_failing as f64),
            ("silent", |r| r.counters.ejected_silent as f64),
            ("refused", |r| r.counters.ejections_refused as f64),
        ],
    ),
    gauge("parm_codes", "Number of group sizes with a code", (Shown::Coded, ""), &[("", |r| r.codes as f64)]),
    counter(
        "parm_groups_total",
        "Coding groups: full, partial, or dissolved without parities",
        (Shown::Coded, "kind"),
        &[
            ("full", |r| (r.counters.groups - r.counters.groups_partial) as f64),
            ("partial", |r| r.counters.groups_partial as f64),
            ("dissolved", |r| r.counters.groups_dissolved as f64),
        ],
    ),
    counter(
        "parm_parities_total",
        "Parities: sent to an instance, unsent (not needed before an instance was free), late (arrived when no longer needed)",
        (Shown::Coded, "event"),
        &[
            ("sent", |r| r.counters.parities as f64),
            ("unsent", |r| r.counters.parities_unsent as f64),
            ("late", |r| r.counters.parities_late as f64),
        ],
    ),
    counter(
        "parm_reconstructions_total",
        "Predictions reconstructed (made), and of these served, or withheld for low confidence (unsure)",
        (Shown::Coded, "event"),
        &[
            ("made", |r| r.counters.reconstructions as f64),
            ("served", |r| r.counters.reconstructions_served as f64),
            ("unsure", |r| r.counters.reconstructions_unsure as f64),
        ],
    ),
    counter(
        "parm_coding_failures_total",
        "Groups or predictions that a code failed to encode or decode",
        (Shown::Coded, "stage"),
        &[
            ("encode", |r| r.counters.encode_failures as f64),
            ("decode", |r| r.counters.decode_failures as f64),
        ],
    ),
    counter(
        "parm_backups_served_total",
        "Queries answered by the backup model",
        (Shown::Coded, ""),
        &[("", |r| r.counters.backups_served as f64)],
    ),
    counter(
        "parm_comparisons_total",
        "Predictions compared with their reconstructions (compared), and of these disagreed",
        (Shown::Coded, "event"),
        &[("compared", |r| r.counters.compared as f64), ("disagreed", |r| r.counters.disagreed as f64)],
    ),
    counter(
        "parm_suspects_total",
        "Instances suspected of wrong answers (suspected), and of these ejected",
        (Shown::Coded, "event"),
        &[("suspected", |r| r.counters.suspected as f64), ("ejected", |r| r.counters.ejected_wrong as f64)],
    ),
    counter(
        "parm_stand_ins_total",
        "Queries sent to a stand-in because they were late (late); its answers served, of these while no instance with the model answered (outage), rejected for low confidence or as unusable (unsure), late queries that waited because too many answers were approximate (over_bound), or not needed (wasted)",
        (Shown::StandIn, "event"),
        &[
            ("late", |r| r.counters.stand_ins_late as f64),
            ("served", |r| r.counters.stand_ins_served as f64),
            ("outage", |r| r.counters.stand_ins_outage as f64),
            ("unsure", |r| r.counters.stand_ins_unsure as f64),
            ("over_bound", |r| r.counters.stand_ins_over_bound as f64),
            ("wasted", |r| r.counters.stand_ins_wasted as f64),
        ],
    ),
    gauge(
        "parm_stand_in_cost",
        "Time of a stand-in's job by rows, relative to a query's, each divided by the speed of its instance; NaN until both have run",
        (Shown::StandIn, "rows"),
        &[("1", |r| cost(r, 0)), ("2", |r| cost(r, 1)), ("4", |r| cost(r, 2)), ("8", |r| cost(r, 3))],
    ),
    gauge(
        "parm_stand_in_agreement",
        "Share of recent predictions that their stand-ins agreed with; NaN if too few were compared",
        (Shown::StandIn, ""),
        &[("", |r| r.agreement.unwrap_or(f64::NAN))],
    ),
    gauge(
        "parm_stand_ins_withheld",
        "1 while stand-ins' answers are withheld because they agree too rarely",
        (Shown::StandIn, ""),
        &[("", |r| f64::from(r.withheld))],
    ),
    gauge(
        "parm_stand_ins_in_outage",
        "1 while stand-ins answer all queries because no instance with the model answers",
        (Shown::StandIn, ""),
        &[("", |r| f64::from(r.in_outage))],
    ),
];

fn cost(reading: &ModelReading, rows: usize) -> f64 {
    reading.stand_in_cost.map_or(f64::NAN, |cost| cost[rows])
}

/// What requests and batches add up.
#[derive(Clone, Copy)]
pub(crate) enum Sum {
    /// Requests answered with a prediction.
    Success,
    /// Rows answered.
    Inferences,
    /// Batches executed.
    Executions,
    RequestTime,
    QueueTime,
    ComputeTime,
}

/// In the order of [`Sum`].
const SUMS: [(&str, &str); 6] = [
    ("nv_inference_request_success", "Requests answered with a prediction"),
    ("nv_inference_count", "Rows answered"),
    ("nv_inference_exec_count", "Batches answered by instances"),
    ("nv_inference_request_duration_us", "Total time of answered requests"),
    ("nv_inference_queue_duration_us", "Total time from arrival to the start at an instance"),
    ("nv_inference_compute_infer_duration_us", "Total time at instances"),
];

/// What codes do.
#[derive(Clone, Copy)]
pub(crate) enum CodeMetric {
    EncodeTime,
    DecodeTime,
    Confidence,
}

/// Metrics of all models.
pub(crate) struct ModelFamilies {
    sums: [IntCounterVec; SUMS.len()],
    failure: IntCounterVec,
    duration: HistogramVec,
    /// In the order of [`CodeMetric`].
    coded: [HistogramVec; 3],
    objective_used: GaugeVec,
    /// In the order of [`READ`].
    read: Vec<Family>,
}

enum Family {
    Counter(CounterVec),
    Gauge(GaugeVec),
}

/// Handles of one model.
pub(crate) struct PoolMetrics {
    labels: [String; 2],
    sums: [Series<IntCounterVec>; SUMS.len()],
    durations: RwLock<Durations>,
    coded: [Series<HistogramVec>; 3],
    objective_used: Series<GaugeVec>,
    live: Mutex<Option<Live>>,
}

/// Durations by outcome, for the policy in effect.
type Durations = [Series<HistogramVec>; Outcome::ALL.len()];

/// What is known until the series are removed.
#[derive(Default)]
struct Live {
    /// Reasons of failed requests.
    reasons: BTreeSet<&'static str>,
    is_coded: bool,
    has_stand_in: bool,
    /// The values of the dispatcher's counters at the last copy. A series may stand higher: a model that is replaced continues it,
    /// while the dispatcher counts from zero.
    copied: Vec<f64>,
}

impl ModelFamilies {
    pub(super) fn new(registry: &Registry) -> Self {
        let counter =
            |name, help, labels| register(registry, IntCounterVec::new(Opts::new(name, help), labels));
        let histogram = |name: &str, help: &str, labels: &[&str], buckets: Vec<f64>| {
            register(registry, HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), labels))
        };
        let read = |read: &Read| {
            let labels: SmallVec<[&str; 3]> = MODEL.iter().copied().chain(given(read.label)).collect();
            let opts = Opts::new(read.name, read.help);
            match read.is_counter {
                true => Family::Counter(register(registry, CounterVec::new(opts, &labels))),
                false => Family::Gauge(register(registry, GaugeVec::new(opts, &labels))),
            }
        };
        let objective_used = Opts::new(
            "parm_objective_used",
            "p99 of the latest latencies, as a share of the time that requests usually have until their deadlines",
        );
        // 0.5 us to 130 ms, doubling.
        let micros =
            exponential_buckets(0.5e-6, 2.0, 19).expect("start, factor and count are above their minima");
        Self {
            sums: SUMS.map(|(name, help)| counter(name, help, MODEL)),
            failure: counter(
                "nv_inference_request_failure",
                "Requests rejected or failed, by reason",
                &["model", "version", "reason"],
            ),
            duration: histogram(
                "parm_request_duration_seconds",
                "Time from a request's arrival to its answer, by outcome and policy",
                &["model", "version", "outcome", "policy"],
                latency_buckets(),
            ),
            coded: [
                histogram("parm_encode_seconds", "Time to encode a group", MODEL, micros.clone()),
                histogram("parm_decode_seconds", "Time to decode a prediction", MODEL, micros),
                histogram(
                    "parm_reconstruction_confidence",
                    "Confidence of reconstructions, if the bundle defines it",
                    MODEL,
                    linear_buckets(0.1, 0.1, 9).expect("width and count are above zero"),
                ),
            ],
            objective_used: register(registry, GaugeVec::new(objective_used, MODEL)),
            read: READ.iter().map(read).collect(),
        }
    }

    /// Handles of a model.
    pub(crate) fn of(&self, labels: [&str; 2], policy: PolicyKind) -> PoolMetrics {
        let copied = vec![0.0; READ.iter().map(|read| read.series.len()).sum()];
        PoolMetrics {
            labels: labels.map(str::to_owned),
            sums: self.sums.each_ref().map(|family| Series::new(family, &labels)),
            durations: RwLock::new(self.durations(labels, policy)),
            coded: self.coded.each_ref().map(|family| Series::new(family, &labels)),
            objective_used: Series::new(&self.objective_used, &labels),
            live: Mutex::new(Some(Live { copied, ..Live::default() })),
        }
    }

    fn durations(&self, [model, version]: [&str; 2], policy: PolicyKind) -> Durations {
        let policy = policy_name(policy);
        Outcome::ALL
            .map(|outcome| Series::new(&self.duration, &[model, version, outcome.name(), policy.as_str()]))
    }

    /// Switches a model's durations to another policy.
    pub(crate) fn policy_changed(&self, pool: &PoolMetrics, policy: PolicyKind) {
        *pool.durations.write() = self.durations(pool.model(), policy);
    }

    /// Counts a request that failed before its model was found: a name invented by a client must not become a label.
    pub(crate) fn rejected(&self, error: &Error) {
        self.failure.with_label_values(&["", "", error.reason()]).inc();
    }

    /// Counts a failed request to a model. Labels are resolved here, because failures need not be fast.
    pub(crate) fn failed(&self, pool: &PoolMetrics, error: &Error) {
        let mut live = pool.live.lock();
        let Some(live) = &mut *live else { return self.rejected(error) };
        live.reasons.insert(error.reason());
        let [model, version] = pool.model();
        self.failure.with_label_values(&[model, version, error.reason()]).inc();
    }

    /// Copies what the page reads of a model, for which an instance may serve a stand-in.
    pub(crate) fn refresh(
        &self,
        pool: &PoolMetrics,
        reading: &ModelReading,
        stands_in: bool,
        tail: Option<Tail>,
    ) {
        let mut live = pool.live.lock();
        let Some(Live { is_coded, has_stand_in, copied, .. }) = &mut *live else {
            return; // the model was removed meanwhile
        };
        let is_asked = reading.counters.arrived > 0;
        *is_coded |= reading.codes > 0;
        *has_stand_in |= stands_in;
        let mut copied = copied.iter_mut();
        for (family, read) in self.read.iter().zip(READ) {
            let is_shown = match read.shown {
                Shown::Always => true,
                Shown::Asked => is_asked,
                Shown::Coded => *is_coded,
                Shown::StandIn => *has_stand_in,
            };
            for ((value, now), copied) in read.series.iter().zip(&mut copied) {
                let (labels, now) = (pool.labels_of(value), now(reading));
                match family {
                    Family::Gauge(gauge) if is_shown => gauge.with_label_values(&labels).set(now),
                    Family::Counter(counter) if is_asked && (is_shown || now > 0.0) => {
                        let new = (now - *copied).max(0.0);
                        counter.with_label_values(&labels).inc_by(new);
                        *copied += new;
                    }
                    _ => {}
                }
            }
        }
        if let Some(tail) = tail.filter(|_| is_asked) {
            pool.objective_used.set(tail.used());
        }
    }

    /// Removes the series of a model whose last instance is gone. Each version has up to a hundred, and a model that is
    /// trained daily would add them for as long as this process lives.
    pub(crate) fn forget(&self, pool: &PoolMetrics) {
        let mut live = pool.live.lock();
        let [model, version] = pool.model();
        // An error means that the series was never used.
        for reason in live.take().into_iter().flat_map(|live| live.reasons) {
            let _ = self.failure.remove_label_values(&[model, version, reason]);
        }
        for policy in PolicyKind::ALL {
            self.durations([model, version], policy).iter().for_each(Series::forget);
        }
        pool.sums.iter().for_each(Series::forget);
        pool.coded.iter().for_each(Series::forget);
        pool.objective_used.forget();
        for (family, read) in self.read.iter().zip(READ) {
            for labels in read.series.iter().map(|(value, _)| pool.labels_of(value)) {
                let _ = match family {
                    Family::Counter(counter) => counter.remove_label_values(&labels),
                    Family::Gauge(gauge) => gauge.remove_label_values(&labels),
                };
            }
        }
    }
}

impl PoolMetrics {
    /// Counts an answered request.
    pub(crate) fn answered(&self, outcome: Outcome, rows: usize, took: Duration) {
        self.add(Sum::Success, 1);
        self.add(Sum::Inferences, rows as u64);
        self.add(Sum::RequestTime, took.as_micros() as u64);
        self.durations.read()[outcome as usize].observe(took.as_secs_f64());
    }

    pub(crate) fn add(&self, what: Sum, amount: u64) {
        self.sums[what as usize].inc_by(amount);
    }

    /// What was added up; reading does not create the series.
    pub(crate) fn sum(&self, what: Sum) -> u64 {
        self.sums[what as usize].count()
    }

    pub(crate) fn coded(&self, what: CodeMetric) -> &Series<HistogramVec> {
        &self.coded[what as usize]
    }

    fn model(&self) -> [&str; 2] {
        self.labels.each_ref().map(String::as_str)
    }

    fn labels_of<'a>(&'a self, value: &'a str) -> SmallVec<[&'a str; 3]> {
        self.model().into_iter().chain(given(value)).collect()
    }
}

fn given(label: &str) -> Option<&str> {
    (!label.is_empty()).then_some(label)
}
