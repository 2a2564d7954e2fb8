//! Records evidence about instances: slow answers, failures, and disagreement with stand-ins.
//!
//! Problem: which instance answers wrongly? Parities give evidence only for complete groups, at a cost. Most
//! queries have a stand-in's answer anyway, but it is approximate, and its own instance may be the wrong one.
//!
//! Choice: every comparison is evidence about both instances, so each instance is observed twice as often. A
//! disagreement counts against the instance that is doubted more, and against both if neither is. So an instance
//! that is always wrong gathers evidence with every answer, and its changing partners do not. The test is that of
//! `doubt`.
//!
//! Rejected: counting against the prediction only (a wrong stand-in then accuses its peers, and half of the
//! evidence is lost); always counting against both (partners of a wrong instance were sometimes suspected before
//! it).
//!
//! Cold start: no instance is suspected before the rate of its peers is known.

use std::time::Duration;

use smallvec::SmallVec;

use crate::api::{Action, EjectionSettings, Failure, JobId, Reason, Role, Time};
use crate::moves::eject::eject;
use crate::moves::pace::{learn_batch, learn_cancelled, learn_concurrency, learn_pace};
use crate::moves::room::refresh;
use crate::rules::blame::doubts;
use crate::state::State;
use crate::state::instance::{Instance, Serves};
use crate::state::job::Job;
use crate::state::keys::{InstanceKey, PoolKey};
use crate::state::pool::Pool;
use crate::turn::Turn;

/// The difference in evidence at which one instance takes the blame alone: less than one disagreement.
const CLEARLY: f64 = 1.0;

/// The share of runs that is assumed to break other instances at least.
const LEAST_BREAKS: f32 = 0.01;

/// Records the time of a job. Returns the reason to eject its instance, if any.
pub(crate) fn record_time(state: &mut State, turn: &mut Turn, job: &Job) -> Option<Reason> {
    let pool = state.pools.at_mut(job.pool);
    let took = turn.now.since(job.began);
    let recent = pool.service.reading();
    // Queries do not run where copies explore.
    if !matches!(job.role, Role::Parity(..)) && !job.explores {
        pool.service.add(took);
        if let Some(stand_ins) = &mut pool.stand_ins {
            let at = state.instances.get(job.instance).and_then(|instance| instance.serves(job.pool));
            stand_ins.queries.add(at.map_or(took, |at| at.at_usual_speed(took)));
        }
    }
    if matches!(job.role, Role::Deployed | Role::Copy) {
        learn_concurrency(state, turn, job, took);
        learn_batch(state, job, took);
    }
    learn_pace(state, turn, job, took);
    let pool = state.pools.at(job.pool);
    let slow = recent.is_some_and(|recent| is_slow_run(pool, job, took, recent.median));
    let said = slow && is_known_silence(state, job);
    let settings = &state.pools.at(job.pool).settings.ejection;
    let instance = state.instances.get_mut(job.instance)?;
    let verdict = if said { None } else { instance.health.answered(slow, settings) };
    update_allowed(state, turn, job, turn.now);
    record_success(state, job.instance, job.pool);
    verdict
}

/// Records a dropped job that ended without an answer. A long time counts as a slow answer; otherwise clients that
/// cancel would feed a hung instance forever.
pub(crate) fn record_dropped(state: &mut State, turn: &Turn, job: &Job) -> Option<Reason> {
    learn_cancelled(state, turn, job, turn.now.since(job.began));
    let pool = state.pools.at(job.pool);
    let (took, median) = (turn.now.since(job.began), pool.service.rough_median());
    let slow = median.is_some_and(|median| is_slow_run(pool, job, took, median));
    if !slow || is_known_silence(state, job) {
        return None;
    }
    let settings = &state.pools.at(job.pool).settings.ejection;
    state.instances.get_mut(job.instance)?.health.gave_nothing(settings)
}

/// Records a failure. A failure of the model may be the query's fault until another instance answers the query;
/// without retries that is never known.
pub(crate) fn record_failure(state: &mut State, job: &Job, failure: Failure) -> Option<Reason> {
    if is_known_evidence(state, job) {
        return None;
    }
    let pool = state.pools.at(job.pool);
    let settings = &pool.settings;
    // Where queries are sent once, answers of other instances tell (`confirm_by_answer`).
    let certain = failure != Failure::Model || settings.max_attempts.get() == 1 && pool.policy.repeats();
    let instance = state.instances.get_mut(job.instance)?;
    let health = &mut instance.serves.iter_mut().find(|serves| serves.pool == job.pool)?.health;
    if certain { health.failed(&settings.ejection) } else { health.suspect(&settings.ejection) }
}

/// Records a success of a pool's model on an instance, which ends its failures in a row.
pub(crate) fn record_success(state: &mut State, key: InstanceKey, pool: PoolKey) {
    let settings = &state.pools.at(pool).settings.ejection;
    let serves = state.instances.get_mut(key).map(|instance| &mut instance.serves);
    if let Some(own) = serves.and_then(|serves| serves.iter_mut().find(|serves| serves.pool == pool)) {
        own.health.answered(false, settings);
    }
}

/// Records that queries which failed on these instances were answered elsewhere: the instances are at fault.
pub(crate) fn confirm_failures(
    state: &mut State,
    turn: &mut Turn,
    pool: PoolKey,
    failed_at: SmallVec<[InstanceKey; 2]>,
) {
    for key in failed_at {
        let settings = &state.pools.at(pool).settings.ejection;
        let serves = state.instances.get_mut(key).map(|instance| &mut instance.serves);
        let own = serves.and_then(|serves| serves.iter_mut().find(|serves| serves.pool == pool));
        if let Some(reason) = own.and_then(|own| own.health.confirm(settings)) {
            eject(state, turn, key, pool, reason);
        }
    }
}

/// Records an answer in a pool whose queries are tried once. Another instance that failed meanwhile is at fault: no second
/// attempt will show it.
pub(crate) fn confirm_by_answer(state: &mut State, turn: &mut Turn, key: PoolKey, by: InstanceKey) {
    if state.pools.at(key).policy.repeats() {
        return;
    }
    // The queries may be at fault where they break the other instances as often.
    let breaks = |other: InstanceKey| {
        let own = state.instances.iter().filter(|(at, _)| *at != other);
        let shares =
            own.filter_map(|(_, of)| Some(of.serves(key)?.health).filter(|health| health.in_service()));
        let shares = shares.map(|health| health.breaks());
        let (sum, count) = shares.fold((0.0, 0.0), |(sum, count), share| (sum + share, count + 1.0));
        if count > 0.0 { sum / count } else { 0.0 }
    };
    let is_suspected = |other: &InstanceKey| {
        let serves = state.instances.at(*other).serves(key);
        let suspected = |serves: &Serves| {
            serves.health.is_suspected() && serves.health.breaks_beyond(breaks(*other).max(LEAST_BREAKS))
        };
        *other != by && serves.is_some_and(suspected)
    };
    let suspected: SmallVec<[InstanceKey; 2]> =
        state.instances.keys().into_iter().filter(is_suspected).collect();
    confirm_failures(state, turn, key, suspected);
}

/// Records the time of a stand-in job. Short times vary by chance and do not count.
pub(crate) fn record_stand_in_time(state: &mut State, turn: &Turn, job: &Job) -> Option<Reason> {
    let pool = state.pools.at(job.pool);
    // Without its wait behind others at the instance.
    let (settings, took) = (&pool.settings.ejection, turn.now.since(job.began));
    let serves = state.instances.get(job.instance)?.serves(job.pool);
    if serves.is_some_and(Serves::is_apart) {
        // A loaded frontend is slow as a whole, and pools seldom have several such instances to compare.
        return None;
    }
    // At equal speeds, because an instance that is known to be slow is not blamed for it again. A fast one may take as long
    // as the others.
    let took = serves.map_or(took, |serves| took.min(serves.at_usual_speed(took)));
    let usual = pool.stand_ins.as_ref()?.costs.usual(job.rows.len())?;
    let slow = took.as_secs_f64() > usual.as_secs_f64() * settings.slow_factor.get();
    let slow = slow && took > pool.settings.hedge.min_delay;
    state.instances.get_mut(job.instance)?.health.answered(slow, settings)
}

pub(crate) fn record_pair(
    state: &mut State,
    turn: &mut Turn,
    pool: PoolKey,
    both: [(InstanceKey, JobId); 2],
    agrees: bool,
) {
    let [by, beside] = both.map(|(key, _)| doubt_of(state, pool, key));
    let blamed = match (by, beside) {
        _ if agrees => [true, true],
        (Some(by), Some(beside)) => [by + CLEARLY >= beside, beside + CLEARLY >= by],
        _ => [true, true],
    };
    for ((instance, job), blamed) in both.into_iter().zip(blamed) {
        if blamed {
            let is_evidence = state.shelf.weigh_once(job);
            record_comparison(state, turn, pool, Compared { instance, agrees, is_evidence });
        }
    }
}

/// The evidence against an instance.
fn doubt_of(state: &State, pool: PoolKey, key: InstanceKey) -> Option<f64> {
    let serves: Option<&Serves> = state.instances.get(key)?.serves(pool);
    serves.map(|serves| serves.doubt.score())
}

/// A compared answer of an instance.
#[derive(Clone, Copy)]
pub(crate) struct Compared {
    pub(crate) instance: InstanceKey,
    pub(crate) agrees: bool,
    /// No other row of its job has counted as evidence.
    pub(crate) is_evidence: bool,
}

/// Records a compared answer of an instance.
pub(crate) fn record_comparison(state: &mut State, turn: &mut Turn, pool_key: PoolKey, compared: Compared) {
    let Compared { instance: key, agrees, is_evidence } = compared;
    let Some(pool) = state.pools.get_mut(pool_key) else { return };
    let (test, ejects) = doubts(pool);
    let Some(instance) = state.instances.get_mut(key) else { return };
    let Some(serves) = instance.serves.iter_mut().find(|serves| serves.pool == pool_key) else { return };
    let suspect = serves.doubt.note(agrees, is_evidence, &pool.answers, &test);
    pool.answers.note(agrees);
    if suspect {
        pool.counters.suspected += 1;
        turn.out.push(Action::Suspect(instance.id, pool.id));
        if ejects {
            eject(state, turn, key, pool_key, Reason::Wrong);
        }
    }
    if state.pools.at(pool_key).answers.is_old() {
        fade_doubts(state, pool_key);
    }
}

fn fade_doubts(state: &mut State, pool: PoolKey) {
    state.pools.at_mut(pool).answers.fade();
    for key in state.instances.keys() {
        let serves = state.instances.at_mut(key).serves.iter_mut().find(|serves| serves.pool == pool);
        serves.into_iter().for_each(|serves| serves.doubt.fade());
    }
}

/// Updates the number of batches that the instance of an ended job may hold.
fn update_allowed(state: &mut State, turn: &mut Turn, job: &Job, now: Time) {
    let pool = state.pools.at_mut(job.pool);
    if job.alone && job.role == Role::Deployed {
        pool.alone.add(now.since(job.started), pool.ahead());
    }
    let allowed = pool.alone.allowed;
    let Some(instance) = state.instances.get_mut(job.instance) else { return };
    if instance.allow(job.pool, allowed) {
        refresh(state, turn, job.instance);
    }
}

/// Whether the evidence of a job was already given by another job that waited at the same instance. One silence
/// counts once. If not, the other jobs there are marked.
fn is_known_evidence(state: &mut State, job: &Job) -> bool {
    state.instances.get(job.instance).is_some_and(|of| of.ahead > 1) && is_said(state, job)
}

/// The same for a long time, also of a job that ran next to others: a pause of the instance, of the network or of this
/// process makes all of them long.
fn is_known_silence(state: &mut State, job: &Job) -> bool {
    let several = |of: &Instance| of.ahead > 1 || of.capacity() > 1;
    state.instances.get(job.instance).is_some_and(several) && is_said(state, job)
}

fn is_said(state: &mut State, job: &Job) -> bool {
    let Some(instance) = state.instances.get(job.instance) else { return false };
    if !job.excused {
        for held in &instance.jobs {
            if let Some(held) = state.jobs.get_mut(*held) {
                held.excused = true;
            }
        }
    }
    job.excused
}

/// Whether a run took long for its size. The median may be that of many small runs, and hung runs may have made its size
/// seem small: then a run that took hardly longer than the median proves nothing.
fn is_slow_run(pool: &Pool, job: &Job, took: Duration, median: Duration) -> bool {
    let settings = &pool.settings.ejection;
    let usual = median.max(pool.pace.usual_run());
    is_slow(pool.pace.as_usual(job.size, took), usual, settings) && is_slow(2 * took, median, settings)
}

fn is_slow(took: Duration, median: Duration, settings: &EjectionSettings) -> bool {
    took.as_secs_f64() > median.as_secs_f64() * settings.slow_factor.get()
}
