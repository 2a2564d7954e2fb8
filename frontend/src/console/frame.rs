//! One frame per second: the difference between two moments and the state at the later one.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::sums::{REJECTIONS, ROLES, Tail, Totals, between};
use crate::discovery::{MemberReading, MemberState};
use crate::serve::reading::{GroupsReading, ModelReading, Time};
use crate::serve::{Frontend, Pool, conditions};

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
    groups: Option<GroupsReading>,
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

/// States of instances, in the order of [`MemberState`].
pub(super) const STATES: [&str; 5] = ["connecting", "ready", "draining", "ejected", "refused"];

/// What is wrong with instances, by the numbers in rows: a condition, or the order of an operator.
pub(super) fn reasons() -> Vec<Option<&'static str>> {
    conditions::NAMES.into_iter().chain([Some("order")]).collect()
}

const ORDER: usize = conditions::NAMES.len();

impl Frame {
    /// The difference between two moments.
    pub(super) fn between(before: &Moment, now: &Moment, slots: u16) -> Self {
        let of_model = |own: &OfPool| {
            let earlier = before.pools.iter().find(|earlier| earlier.pool.id == own.pool.id);
            model_frame(earlier, own)
        };
        let row = |own: &MemberReading| {
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
            reading.own.counters.unanswered() as u32,
            reading.running,
            reading.usable_instances,
            reading.members,
            reading.slots,
        ],
        queue_limit: now.queue_limit,
        busy: reading.busy.into(),
        service_us: reading.service.map(|times| times.map(micros)),
        late_us: reading.late_after.map(micros),
        objective_us: now.tail.map(|tail| [tail.p99, tail.allowed].map(micros)),
        budgets: [reading.retries, reading.hedges].map(|budget| budget.map(hundredths)),
        approximate: reading.approximate.filter(|_| now.stands_in),
        agreement: reading.agreement.filter(|_| now.stands_in).map(|share| rounded(share, 1e4)),
        withheld: reading.withheld && now.stands_in,
        outage: reading.in_outage,
        groups: now.groups.clone(),
    }
}

fn row(before: [u64; 2], own: &MemberReading, slots: u16) -> InstanceRow {
    let instance = own.view.instance.as_deref();
    let times = instance.and_then(|instance| instance.quantiles());
    let compared = own.reading.and_then(|reading| reading.compared);
    // Counters of an instance that came back restart at zero.
    let since = |at: usize| own.jobs[at].checked_sub(before[at]).unwrap_or(own.jobs[at]);
    let trial_in = own.reading.and_then(|reading| reading.trial_in);
    let slower = own.reading.and_then(|reading| reading.slower);
    (
        own.member.number,
        own.state() as u8,
        reason_number(own) as u8,
        instance.map_or(0, |instance| instance.inflight()),
        slots,
        since(0),
        since(1),
        times.map(|times| micros(times.median)),
        times.map(|times| micros(times.p99)),
        slower.map(hundredths),
        own.reading.and_then(|reading| reading.oldest).map(millis),
        compared.map(|[_, agreed]| agreed.round() as u64),
        compared.map(|[compared, _]| compared.round() as u64),
        trial_in.or_else(|| own.member.retry_in()).map(millis),
        slower.map(hundredths),
    )
}

/// The place of what is wrong with an instance in [`reasons`].
fn reason_number(own: &MemberReading) -> usize {
    match own.view.state {
        MemberState::Ejected => ORDER,
        _ => conditions::number(own.condition()),
    }
}

/// What is wrong with an instance in a word of [`reasons`].
pub(crate) fn reason_of(own: &MemberReading) -> Option<&'static str> {
    reasons()[reason_number(own)]
}

pub(crate) fn hundredths(value: f64) -> f64 {
    rounded(value, 100.0)
}

fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

pub(crate) fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}

fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}

/// Maximum instances in a frame.
pub(super) const INSTANCES: usize = 1024;

/// A reading.
pub(super) struct Moment {
    pub(super) at: Time,
    /// In milliseconds since 1970.
    pub(super) at_ms: u64,
    pub(super) pools: Vec<OfPool>,
    pub(super) instances: Vec<MemberReading>,
}

/// State of a pool.
pub(super) struct OfPool {
    pub(super) pool: Arc<Pool>,
    pub(super) reading: ModelReading,
    /// `None` if nothing is coded.
    pub(super) groups: Option<GroupsReading>,
    pub(super) totals: Totals,
    pub(super) tail: Option<Tail>,
    pub(super) queue_limit: u32,
    /// Whether clients may receive answers of stand-ins.
    pub(super) stands_in: bool,
}

impl Moment {
    pub(super) fn now(frontend: &Frontend) -> Self {
        let core = &frontend.core;
        let pools = core.catalog.all();
        let (at, readings) = (core.driver.now(), core.driver.models(&pools));
        let settings = core.settings();
        let of_pool = |(pool, read): (Arc<Pool>, Option<_>)| {
            let (reading, groups) = read?;
            let wished = settings.of(&pool.model.name);
            Some(OfPool {
                reading,
                groups,
                totals: pool.sums.totals(),
                tail: pool.sums.objective.tail(),
                queue_limit: wished.queue_limit.get(),
                stands_in: pool.codes().stand_in.is_some(),
                pool,
            })
        };
        Self {
            at,
            at_ms: core.driver.wall_ms(at),
            pools: pools.into_iter().zip(readings).filter_map(of_pool).collect(),
            instances: frontend.fleet.readings().into_iter().take(INSTANCES).collect(),
        }
    }
}
