//! One frame per second: the difference between two moments and the state at the later one.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::sums::{REJECTIONS, ROLES, Tail, Totals, between};
use crate::discovery::{MemberReading, MemberState};
use crate::serve::reading::{GroupsReading, ModelReading, Time};
use crate::serve::{Frontend, Instance, Pool, Quantiles, conditions};

/// A frame. Its fields are documented in `page/CONTRACT.md`.
#[derive(Serialize)]
pub(super) struct Frame {
    pub(super) at: u64,
    over_ms: u64,
    models: Vec<Value>,
    /// Left out of kept frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) instances: Option<Vec<[Value; COLUMNS.len()]>>,
}

/// An instance, from which a row is made.
pub(super) struct Row<'a> {
    own: &'a MemberReading,
    instance: Option<&'a Instance>,
    times: Option<Quantiles>,
    /// Jobs, and failures, since the frame before.
    since: [u64; 2],
    slots: u16,
}

/// A column of an instance's row: its name and its value.
type Column = (&'static str, fn(&Row<'_>) -> Value);

pub(super) const COLUMNS: [Column; 15] = [
    ("number", |row| row.own.member.number.into()),
    ("state", |row| (row.own.state() as u8).into()),
    ("reason", |row| reason_number(row.own).into()),
    ("inflight", |row| row.instance.map_or(0, |instance| instance.inflight()).into()),
    ("slots", |row| row.slots.into()),
    ("jobs", |row| row.since[0].into()),
    ("failures", |row| row.since[1].into()),
    ("p50_us", |row| row.times.map(|times| times.p50_us).into()),
    ("p99_us", |row| row.times.map(|times| times.p99_us).into()),
    ("slowness", |row| row.slower().into()),
    ("oldest_ms", |row| row.own.reading.and_then(|reading| reading.oldest).map(millis).into()),
    ("agreed", |row| row.compared(1).into()),
    ("compared", |row| row.compared(0).into()),
    ("retry_in_ms", |row| row.retry_in().map(millis).into()),
    ("slower", |row| row.slower().into()),
];

impl<'a> Row<'a> {
    fn of(own: &'a MemberReading, before: [u64; 2], slots: u16) -> Self {
        let instance = own.view.instance.as_deref();
        let times = instance.and_then(Instance::quantiles);
        // Counters of an instance that came back restart at zero.
        let since = [0, 1].map(|at| own.jobs[at].checked_sub(before[at]).unwrap_or(own.jobs[at]));
        Self { own, instance, times, since, slots }
    }

    fn slower(&self) -> Option<f64> {
        self.own.reading.and_then(|reading| reading.slower).map(hundredths)
    }

    fn compared(&self, at: usize) -> Option<u64> {
        self.own.reading.and_then(|reading| reading.compared).map(|compared| compared[at].round() as u64)
    }

    fn retry_in(&self) -> Option<Duration> {
        self.own.reading.and_then(|reading| reading.trial_in).or_else(|| self.own.member.retry_in())
    }
}

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
            let row = Row::of(own, earlier.map_or([0, 0], |earlier| earlier.jobs), slots);
            COLUMNS.map(|(_, value)| value(&row))
        };
        Self {
            at: now.at_ms,
            over_ms: millis(now.at.since(before.at)),
            models: now.pools.iter().map(of_model).collect(),
            instances: Some(now.instances.iter().map(row).collect()),
        }
    }
}

fn model_frame(before: Option<&OfPool>, now: &OfPool) -> Value {
    let none = Totals::default();
    let (old, new) = (before.map_or(&none, |before| &before.totals), &now.totals);
    let counted = before.map(|before| before.reading.counters).unwrap_or_default().values();
    let reading = &now.reading;
    let counts = reading.counters.values();
    let latency: Vec<_> = old.latency.iter().zip(&new.latency).map(|(old, new)| between(old, new)).collect();
    let rejections: [u64; REJECTIONS.len()] =
        std::array::from_fn(|at| new.rejections[at] - old.rejections[at]);
    let work_us: [u64; ROLES.len()] = std::array::from_fn(|at| new.work_us[at] - old.work_us[at]);
    let counts: Vec<u64> = counts.iter().zip(counted).map(|(new, old)| new.saturating_sub(old)).collect();
    let budgets = [reading.retries, reading.hedges].map(|budget| budget.map(hundredths));
    json!({
        "m": now.pool.id.0,
        "latency": latency,
        "alone": between(&old.alone, &new.alone),
        "alone_unknown": new.alone_unknown - old.alone_unknown,
        "rejections": rejections,
        "counts": counts,
        "work_us": work_us,
        "queue": [
            reading.queued,
            reading.own.counters.unanswered as u32,
            reading.running,
            reading.usable_instances,
            reading.members,
            reading.slots,
        ],
        "queue_limit": now.queue_limit,
        "busy": reading.busy,
        "service_us": reading.service.map(|times| times.map(micros)),
        "late_us": reading.late_after.map(micros),
        "objective_us": now.tail.map(|tail| [tail.p99, tail.allowed].map(micros)),
        "budgets": budgets,
        "approximate": reading.approximate.filter(|_| now.stands_in),
        "agreement": reading.agreement.filter(|_| now.stands_in).map(|share| rounded(share, 1e4)),
        "withheld": reading.withheld && now.stands_in,
        "outage": reading.in_outage,
        "groups": now.groups,
    })
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

fn micros(time: Duration) -> u64 {
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
