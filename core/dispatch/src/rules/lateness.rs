//! Lateness: usual times, graces and patience, all in one place.
//!
//! A hedge asks when a job is late, a stand-in when a query is late, and an approximate answer when it may replace
//! the prediction. All answers are multiples of recent quantiles of the pool, or settings while these are unknown.

use std::time::Duration;

use crate::api::{Accept, PolicyKind, Time, Usual, times};
use crate::rules::finish::expected_run;
use crate::rules::outage::bridges;
use crate::state::State;
use crate::state::instance::Serves;
use crate::state::job::Job;
use crate::state::keys::{InstanceKey, JobKey};
use crate::state::pool::Pool;
use crate::state::query::Query;
use crate::turn::Turn;

/// A stand-in job is late after this many times its expected time.
const TARDY: f64 = 2.0;

/// A job counts as hung after this many times the high quantile of service times. Its copies may then use an
/// instance that is reserved for another share, as retries may.
pub(crate) const HANGS: u32 = 4;

/// Times of a stand-in for which a query that cannot be in time still waits for an instance, when the whole bound
/// on approximate answers is used.
const PATIENCE: f64 = 5.0;

/// The time that is left before a deadline for an answer that was held back: this part of all time, and at least this.
const PARTS: u32 = 32;
const LEFT: Duration = Duration::from_millis(2);

/// The first age at which a job may be late: its expected rest exceeds a run elsewhere. `None` for never, and while
/// times are unknown.
pub(crate) fn late_after(state: &State, job: &Job) -> Option<Duration> {
    let pool = state.pools.at(job.pool);
    let cold = pool.policy.late_after(pool.service.reading());
    let own = state.instances.get(job.instance).and_then(|instance| instance.serves(job.pool));
    let (Some(_), Some(own)) = (cold, own.filter(|_| pool.pace.rest.is_known())) else { return cold };
    let Some(expected) = expected_run(state, job) else { return cold };
    let rest = &pool.pace.rest;
    let age = if pool.pace.is_fast(&own.speed) {
        rest.exceeds(rest.mean(), 0.0)
    } else {
        // It was placed there knowing how long it takes. Until then a copy must save the run that it costs.
        let run = rest.mean() / f64::from(pool.pace.slower_than_fastest(&own.speed));
        rest.exceeds(2.0 * run, 0.0).min(rest.exceeds(run, 1.0))
    };
    let after = Duration::from_nanos((age * expected) as u64);
    Some(after.max(pool.settings.hedge.min_delay))
}

/// The age at which a query may receive a reconstruction or a backup's answer.
pub(crate) fn grace(pool: &Pool) -> Duration {
    pool.policy.grace(pool.response.reading())
}

/// The last moment at which an approximate answer that is in may be held back: with a little time left to judge or decode
/// it, because an answer after the deadline is none.
pub(crate) fn last_moment(query: &Query) -> Time {
    let span = query.deadline.since(query.arrived);
    let left = (span / PARTS).max(LEFT).min(span / 4);
    query.arrived + (span - left)
}

/// The time for which a retry waits for another instance than the one that failed it. Most working instances
/// become free by then.
pub(crate) fn patience(pool: &Pool) -> Duration {
    pool.service.reading().map_or(pool.settings.retry_elsewhere, |recent| recent.high)
}

/// The age at which a query is late and gets a stand-in.
pub(crate) fn late_for_stand_in(pool: &Pool) -> Option<Duration> {
    late_stretched(pool, stretch(pool))
}

/// The same while few approximate answers were given: the age at which a query will be late in any case.
pub(crate) fn late_without_stretch(pool: &Pool) -> Option<Duration> {
    late_stretched(pool, 1.0)
}

fn late_stretched(pool: &Pool, stretch: f64) -> Option<Duration> {
    if pool.in_force.policy != PolicyKind::StandIn {
        return None;
    }
    if pool.outage_since.is_some() {
        return Some(Duration::ZERO);
    }
    Some(times(usual_response(pool)?, pool.settings.stand_in.late_factor.get() * stretch))
}

/// The age at which a waiting query is late, which may be earlier than for a running one. A stand-in then answers
/// it sooner than its own run would.
pub(crate) fn late_while_waiting(pool: &Pool) -> Option<Duration> {
    let late = late_for_stand_in(pool)?;
    let Some(usual) = pool.usual_service() else { return Some(late) };
    let used = pool.stand_ins.as_ref().map_or(0.0, |stand_ins| stand_ins.bound.used());
    let patience = times(usual, pool.stand_in_cost().of(1) * used * PATIENCE);
    Some(late.min(late.saturating_add(patience).saturating_sub(usual)))
}

/// The usual time of a query from arrival to answer without a queue.
fn usual_response(pool: &Pool) -> Option<Duration> {
    let alone = pool.usual_service()? + pool.readiness.wait;
    Some(alone.min(pool.response.reading()?.median))
}

/// The time limit of a stand-in job, after which its queries run on the deployed model; `None` while times are
/// unknown.
pub(crate) fn stand_in_within(state: &State, job: &Job) -> Option<Duration> {
    let pool = state.pools.at(job.pool);
    let serves = state.instances.get(job.instance).and_then(|instance| instance.serves(job.pool));
    let cost = pool.stand_in_cost_at(serves.is_some_and(Serves::is_apart));
    let slower = serves.map_or(1.0, |serves| f64::from(serves.speed.factor()));
    Some(times(pool.usual_service()?, TARDY * slower * cost.of(job.rows.len())))
}

/// The age at which a query may receive its stand-in's answer.
pub(crate) fn stand_in_grace(pool: &Pool, accept: Accept) -> Duration {
    if bridges(pool, accept) {
        return Duration::ZERO;
    }
    let settings = &pool.settings.stand_in.grace;
    let usual = usual_response(pool).filter(|_| settings.of == Usual::Median);
    let least = usual.map_or_else(|| grace(pool), |usual| times(usual, settings.factor.get()));
    let least = times(least, stretch(pool));
    match accept {
        Accept::AtMost(thousandths) if pool.response.reading().is_some() => {
            least.max(pool.response.quantile(1.0 - f64::from(thousandths) / 1000.0))
        }
        _ => least,
    }
}

/// The factor by which stand-ins are delayed as approximate answers near their bound.
fn stretch(pool: &Pool) -> f64 {
    pool.stand_ins.as_ref().map_or(1.0, |stand_ins| stand_ins.bound.stretch())
}

/// Whether a job hangs: it has run for very long, or waits at a silent instance.
pub(crate) fn hangs(state: &State, turn: &Turn, key: JobKey) -> bool {
    let Some(job) = state.jobs.get(key) else { return true };
    if state.instances.get(job.instance).is_some_and(|instance| instance.silent && !instance.runs(key)) {
        return true;
    }
    let usual = patience(state.pools.at(job.pool));
    job.late && turn.now.since(job.began) > usual.saturating_mul(HANGS)
}

/// The longest expected time of the jobs at an instance.
pub(crate) fn longest_ahead(state: &State, key: InstanceKey) -> Duration {
    let Some(instance) = state.instances.get(key) else { return Duration::ZERO };
    let held = instance.jobs.iter().filter_map(|job| state.jobs.get(*job));
    held.map(|job| state.pools.at(job.pool).settings.ahead).max().unwrap_or_default()
}
