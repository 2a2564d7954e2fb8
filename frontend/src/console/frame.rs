//! One frame per second: the difference between two moments and the state at the later one.

use std::time::Duration;

use serde::Serialize;

use super::histogram::between;
use super::moment::{Moment, OfInstance, OfPool};
use super::sums::{REJECTIONS, ROLES, Totals};
use crate::discovery::{MemberState, View};
use crate::serve::reading::{Condition, GroupsReading, InstanceReading};

/// A frame. Its fields are documented in `page/CONTRACT.md`.
#[derive(Serialize)]
pub(super) struct Frame {
    pub(super) at: u64,
    over_ms: u64,
    models: Vec<ModelFrame>,
    /// Left out of kept frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) instances: Option<Vec<InstanceRow>>,
}

#[derive(Serialize)]
struct ModelFrame {
    m: u32,
    latency: Vec<Vec<u32>>,
    alone: Vec<u32>,
    alone_unknown: u64,
    rejections: [u64; REJECTIONS.len()],
    counts: Vec<u64>,
    work_us: [u64; ROLES.len()],
    queue: [u32; 6],
    queue_limit: u32,
    busy: f64,
    service_us: Option<[u64; 2]>,
    late_us: Option<u64>,
    /// The p99 of the latest latencies, and the time until deadlines.
    objective_us: Option<[u64; 2]>,
    budgets: [[f64; 2]; 2],
    approximate: Option<[u32; 3]>,
    agreement: Option<f64>,
    withheld: bool,
    outage: bool,
    groups: Option<Groups>,
}

#[derive(Serialize)]
struct Groups {
    /// Members expected, members joined, microseconds since the first.
    open: Vec<(u8, u8, u64)>,
    made: Vec<(u8, u32)>,
}

/// A row, in the order of [`COLUMNS`].
type InstanceRow = (
    u32,
    u8,
    u8,
    u32,
    u16,
    u64,
    u64,
    Option<u64>,
    Option<u64>,
    Option<f64>,
    Option<u64>,
    Option<u64>,
    Option<u64>,
    Option<u64>,
    Option<f64>,
);

/// Columns of an instance's row.
pub(super) const COLUMNS: [&str; 15] = [
    "number",
    "state",
    "reason",
    "inflight",
    "slots",
    "jobs",
    "failures",
    "p50_us",
    "p99_us",
    "slowness",
    "oldest_ms",
    "agreed",
    "compared",
    "retry_in_ms",
    "slower",
];

/// States of instances, by their numbers in rows.
pub(super) const STATES: [&str; 5] = ["connecting", "ready", "draining", "ejected", "refused"];

/// What is wrong with instances, by the numbers in rows: a condition, or the order of an operator.
pub(super) fn reasons() -> Vec<Option<&'static str>> {
    Condition::NAMES.into_iter().chain([Some("order")]).collect()
}

const ORDER: usize = Condition::NAMES.len();

impl Frame {
    /// The difference between two moments.
    pub(super) fn between(before: &Moment, now: &Moment, slots: u16) -> Self {
        let of_model = |own: &OfPool| {
            let earlier = before.pools.iter().find(|earlier| earlier.pool.id == own.pool.id);
            model_frame(earlier, own)
        };
        let row = |own: &OfInstance| {
            let earlier = before.instances.iter().find(|earlier| earlier.member.number == own.member.number);
            row(earlier.map_or([0, 0], |earlier| earlier.jobs), own, slots)
        };
        Self {
            at: now.at_ms,
            over_ms: millis(now.at.since(before.at)),
            models: now.pools.iter().map(of_model).collect(),
            instances: Some(now.instances.iter().map(row).collect()),
        }
    }
}

fn model_frame(before: Option<&OfPool>, now: &OfPool) -> ModelFrame {
    let none = Totals::default();
    let (old, new) = (before.map_or(&none, |before| &before.totals), &now.totals);
    let counted = before.map(|before| before.reading.counters).unwrap_or_default().values();
    let reading = &now.reading;
    let counts = reading.counters.values();
    ModelFrame {
        m: now.pool.id.0,
        latency: old.latency.iter().zip(&new.latency).map(|(old, new)| between(old, new)).collect(),
        alone: between(&old.alone, &new.alone),
        alone_unknown: new.alone_unknown - old.alone_unknown,
        rejections: std::array::from_fn(|at| new.rejections[at] - old.rejections[at]),
        counts: counts.iter().zip(counted).map(|(new, old)| new.saturating_sub(old)).collect(),
        work_us: std::array::from_fn(|at| new.work_us[at] - old.work_us[at]),
        queue: [
            reading.queued,
            reading.unanswered,
            reading.running,
            reading.usable_instances,
            reading.members,
            reading.slots,
        ],
        queue_limit: now.queue_limit,
        busy: rounded(reading.busy, 100.0),
        service_us: reading.service.map(|times| times.map(micros)),
        late_us: reading.late_after.map(micros),
        objective_us: now.tail.map(|tail| [tail.p99, tail.allowed].map(micros)),
        budgets: [reading.retries, reading.hedges].map(|budget| budget.map(hundredths)),
        approximate: reading.approximate.filter(|_| now.stands_in),
        agreement: reading.agreement.filter(|_| now.stands_in).map(|share| rounded(share, 1e4)),
        withheld: reading.withheld && now.stands_in,
        outage: reading.in_outage,
        groups: now.groups.as_ref().map(groups),
    }
}

fn groups(reading: &GroupsReading) -> Groups {
    let open = reading.open.iter().map(|(k, members, age)| (*k, *members, micros(*age)));
    Groups { open: open.collect(), made: reading.made.clone() }
}

fn row(before: [u64; 2], own: &OfInstance, slots: u16) -> InstanceRow {
    let instance = own.view.instance.as_deref();
    let times = instance.and_then(|instance| instance.quantiles());
    let (state, reason) = standing(own);
    let compared = own.reading.and_then(|reading| reading.compared);
    // Counters of an instance that came back restart at zero.
    let since = |at: usize| own.jobs[at].checked_sub(before[at]).unwrap_or(own.jobs[at]);
    let trial_in = own.reading.and_then(|reading| reading.trial_in);
    let slower = own.reading.and_then(|reading| reading.slower);
    (
        own.member.number,
        state,
        reason,
        instance.map_or(0, |instance| instance.inflight()),
        slots,
        since(0),
        since(1),
        times.map(|times| micros(times.median)),
        times.map(|times| micros(times.p99)),
        slower.map(|slower| rounded(slower, 100.0)),
        own.reading.and_then(|reading| reading.oldest).map(millis),
        compared.map(|[_, agreed]| agreed.round() as u64),
        compared.map(|[compared, _]| compared.round() as u64),
        trial_in.or_else(|| own.member.retry_in()).map(millis),
        slower.map(|slower| rounded(slower, 100.0)),
    )
}

/// Indices of an instance's state and reason in [`STATES`] and [`reasons`]. An instance that the dispatcher ejected counts
/// as ejected; one that is ejected for some of its models counts as ready.
fn standing(own: &OfInstance) -> (u8, u8) {
    let state = match own.view.state {
        MemberState::Connecting => 0,
        MemberState::Ready if own.reading.is_some_and(|reading| !reading.in_service) => 3,
        MemberState::Ready => 1,
        MemberState::Draining => 2,
        MemberState::Ejected => 3,
        MemberState::Refused => 4,
    };
    (state, reason_number(&own.view, own.reading.as_ref()) as u8)
}

/// The place of what is wrong with an instance in [`reasons`].
fn reason_number(view: &View, reading: Option<&InstanceReading>) -> usize {
    match view.state {
        MemberState::Ejected => ORDER,
        _ => view.condition(reading).number(),
    }
}

/// What is wrong with an instance in a word of [`reasons`].
pub(crate) fn reason_of(view: &View, reading: Option<&InstanceReading>) -> Option<&'static str> {
    reasons()[reason_number(view, reading)]
}

fn hundredths(value: f64) -> f64 {
    rounded(value, 100.0)
}

fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}

fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}
