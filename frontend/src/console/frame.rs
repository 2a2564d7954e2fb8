//! One frame per second: the difference between two moments and the state at the later one.

use std::time::Duration;

use parm_dispatch::{PoolReading, Reason};
use serde::Serialize;

use super::histogram::between;
use super::moment::{Moment, OfInstance, OfPool};
use super::sums::{REJECTIONS, ROLES, Totals};
use crate::discovery::MemberState;

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
    /// The p99 from arrival to prediction, and the objective.
    objective_us: Option<[u64; 2]>,
    budgets: [Option<[f64; 2]>; 3],
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
    /// Size, parities, a letter per slot and per parity, microseconds until full, microseconds until over.
    ended: Vec<(u8, u8, String, String, u64, u64)>,
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

/// Reasons for ejection, by their numbers in rows.
pub(super) const REASONS: [Option<&str>; 5] =
    [None, Some("slow"), Some("failing"), Some("wrong"), Some("order")];

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
    let counted = before.map(|before| before.reading.status.counters).unwrap_or_default().values();
    let (reading, status) = (&now.reading, &now.reading.status);
    let counts = status.counters.values();
    ModelFrame {
        m: now.pool.id.0,
        latency: old.latency.iter().zip(&new.latency).map(|(old, new)| between(old, new)).collect(),
        alone: between(&old.alone, &new.alone),
        alone_unknown: new.alone_unknown - old.alone_unknown,
        rejections: std::array::from_fn(|at| new.rejections[at] - old.rejections[at]),
        counts: counts.iter().zip(counted).map(|(new, old)| new.saturating_sub(old)).collect(),
        work_us: std::array::from_fn(|at| new.work_us[at] - old.work_us[at]),
        queue: [
            status.queued,
            status.unanswered,
            status.running,
            status.usable_instances,
            reading.members,
            reading.slots,
        ],
        queue_limit: now.queue_limit,
        busy: rounded(reading.busy, 100.0),
        service_us: reading.service.map(|times| times.map(micros)),
        late_us: reading.late_after.map(micros),
        objective_us: status.latency.map(|latency| [latency.p99, latency.objective].map(micros)),
        budgets: [Some(reading.retries), Some(reading.hedges), reading.stand_ins].map(tokens),
        approximate: reading.approximate.filter(|_| now.stands_in),
        agreement: status.agreement.filter(|_| now.stands_in).map(|share| rounded(share, 1e4)),
        withheld: status.withheld && now.stands_in,
        outage: status.in_outage,
        groups: groups(reading),
    }
}

fn groups(reading: &PoolReading) -> Option<Groups> {
    let open = reading.open.as_ref()?;
    let ended = reading.ended.iter().map(|group| {
        let (filled, useful) = (micros(group.filled), micros(group.useful));
        (group.k, group.parities, group.slots.clone(), group.parity.clone(), filled, useful)
    });
    Some(Groups {
        open: open.iter().map(|group| (group.k, group.members, micros(group.age))).collect(),
        ended: ended.collect(),
        made: reading.made.clone(),
    })
}

fn row(before: [u64; 2], own: &OfInstance, slots: u16) -> InstanceRow {
    let instance = own.view.instance.as_deref();
    let times = instance.and_then(|instance| instance.quantiles());
    let (state, reason) = standing(own);
    let compared = own.reading.and_then(|reading| reading.compared);
    // Counters of an instance that came back restart at zero.
    let since = |at: usize| own.jobs[at].checked_sub(before[at]).unwrap_or(own.jobs[at]);
    let probe_in = own.reading.and_then(|reading| reading.probe_in);
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
        instance.and_then(|instance| instance.slowness()).map(|slowness| rounded(slowness, 100.0)),
        own.oldest.map(millis),
        compared.map(|(_, agreed)| agreed.round() as u64),
        compared.map(|(compared, _)| compared.round() as u64),
        probe_in.or_else(|| own.member.retry_in()).map(millis),
        slower.map(|slower| rounded(slower, 100.0)),
    )
}

/// Indices of an instance's state and reason in [`STATES`] and [`REASONS`]. An instance that the dispatcher ejected
/// counts as ejected; one that is ejected for some of its models counts as ready, with the reason.
fn standing(own: &OfInstance) -> (u8, u8) {
    let out_for = own.reading.and_then(|reading| reading.out_for);
    match own.view.state {
        MemberState::Connecting => (0, 0),
        MemberState::Ready if own.reading.is_some_and(|reading| !reading.in_service) => {
            (3, out_for.map_or(0, reason_index))
        }
        MemberState::Ready => (1, out_for.map_or(0, reason_index)),
        MemberState::Draining => (2, 0),
        MemberState::Ejected => (3, 4),
        MemberState::Refused => (4, 0),
    }
}

fn reason_index(reason: Reason) -> u8 {
    match reason {
        Reason::Slow => 1,
        Reason::Failing => 2,
        Reason::Wrong => 3,
    }
}

/// The reason of an ejection in words of [`REASONS`]: that of the dispatcher, or an order.
pub(crate) fn reason_of(state: MemberState, out_for: Option<Reason>) -> Option<&'static str> {
    let index = match state {
        MemberState::Ejected => 4,
        MemberState::Ready => out_for.map_or(0, reason_index),
        _ => 0,
    };
    REASONS[usize::from(index)]
}

fn tokens(budget: Option<(f64, f64)>) -> Option<[f64; 2]> {
    budget.map(|(left, most)| [rounded(left, 100.0), rounded(most, 100.0)])
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
