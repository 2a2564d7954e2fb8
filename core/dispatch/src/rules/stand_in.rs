//! Eligibility for stand-ins: which queries may have one, and which instances may run it.

use std::time::Duration;

use crate::api::{Accept, Payer, PolicyKind, Time};
use crate::rules::lateness::{last_moment, stand_in_grace, stand_in_within};
use crate::rules::outage::bridges;
use crate::rules::suits::has_unnamed;
use crate::rules::turn::leaves_reserved;
use crate::state::State;
use crate::state::instance::{Instance, Serves};
use crate::state::keys::{InstanceKey, PoolKey, QueryKey};
use crate::state::pool::Pool;
use crate::state::query::{Query, StandInState};
use crate::state::stand_ins::{StandInLine, StandIns};
use crate::state::tokens::Tokens;
use crate::turn::Turn;

const LEAST: Duration = Duration::from_millis(1);

/// Whether a query may receive a stand-in's answer now: in an outage if it accepts any outcome, otherwise within the
/// bound.
pub(crate) fn gives_stand_ins(pool: &Pool, payer: Payer, accept: Accept) -> bool {
    pool.stand_ins
        .as_ref()
        .is_some_and(|own| !own.withheld && (bridges(pool, accept) || own.bound.has_room(payer, accept)))
}

/// The time until which a stand-in's answer waits for a run of the deployed model to be compared with, because none of the
/// latest answers was compared. In a backlog all stand-ins may be those of waiting queries, which no job runs.
pub(crate) fn waits_for_comparison(pool: &Pool, query: &Query, now: Time) -> Option<Time> {
    let has_run = query.queued || query.extras > 0 || !query.jobs.is_empty();
    let until = now + pool.usual_service()?.max(LEAST);
    let may = !has_run && !pool.removed && pool.outage_since.is_none() && until <= last_moment(query);
    (may && pool.stand_ins.as_ref()?.needs_comparison()).then_some(until)
}

/// Whether a query may have a stand-in and has none.
pub(crate) fn wants_stand_in(query: &Query, pool: &Pool) -> bool {
    let settings = &pool.settings;
    pool.in_force.policy == PolicyKind::StandIn
        && query.stand_in == StandInState::None
        && query.stand_ins_started < settings.max_attempts.get()
        && query.accept != Accept::Exact
        // A waiting query leaves the queue for it, so its answer must be allowed.
        && (!query.queued || gives_stand_ins(pool, query.payer, query.accept))
        // Members of a group are excluded, because the group decides when their outputs are released.
        && query.place.is_none()
}

/// The time at which a query will receive its stand-in's answer; `None` if a hedge would end sooner.
pub(crate) fn stand_in_expected(state: &State, turn: &Turn, key: QueryKey) -> Option<Time> {
    let query = state.queries.get(key)?;
    let pool = state.pools.at(query.pool);
    let (from, usual) = (query.arrived + stand_in_grace(pool, query.accept), pool.usual_service()?);
    let ready = match query.stand_in {
        StandInState::Runs(job) => {
            let job = state.jobs.get(job)?;
            job.started + stand_in_within(state, job)?
        }
        StandInState::In(_) | StandInState::Judged(_) => turn.now + LEAST,
        StandInState::None | StandInState::Useless => return None,
    };
    let at = ready.max(from.min(last_moment(query)));
    (at > turn.now && at <= turn.now + usual && gives_stand_ins(pool, query.payer, query.accept))
        .then_some(at)
}

/// Whether a line has queries for which instances without the deployed model run stand-ins. Those that are not
/// likely to be late have none: these instances have few cores, and most of those answers are never given.
pub(crate) fn may_stand_in_apart(state: &State, key: PoolKey, line: StandInLine) -> bool {
    let waits = |stand_ins: &StandIns| !stand_ins.line(line).is_empty();
    line != StandInLine::Early && state.pools.at(key).stand_ins.as_deref().is_some_and(waits)
}

/// Whether a line has queries and the pool has room for its stand-ins at instances with the deployed model.
pub(crate) fn may_stand_in(state: &State, turn: &Turn, key: PoolKey, line: StandInLine) -> bool {
    let pool = state.pools.at(key);
    let Some(stand_ins) = &pool.stand_ins else { return false };
    // In an outage these instances do not answer.
    let out = pool.outage_since.is_some();
    if out || stand_ins.line(line).is_empty() || !leaves_reserved(state, turn, key) {
        return false;
    }
    if line == StandInLine::Late {
        return true;
    }
    let busy = pool.busy(turn.now);
    let kept = pool.policy.kept_idle(busy, pool.slots, pool.stand_in_cost_at(false).of(1));
    // A query that is likely to be late may use the last idle instance.
    kept.is_some_and(|kept| pool.idle.more_than(if line == StandInLine::Doubtful { 0 } else { kept }))
}

/// Whether an instance may run a query's stand-in. It must not hold the query itself.
pub(crate) fn may_stand_in_for(
    state: &State,
    pool: PoolKey,
    instance: InstanceKey,
    query: QueryKey,
    line: StandInLine,
) -> bool {
    takes_stand_ins(state, pool, instance, line) && !holds(state, instance, query)
}

/// Whether an instance may run stand-ins of a line, room aside.
pub(crate) fn takes_stand_ins(state: &State, pool: PoolKey, key: InstanceKey, line: StandInLine) -> bool {
    let instance = state.instances.at(key);
    // A spare stand-in must not wait behind other jobs.
    let idle = instance.jobs.is_empty() && instance.is_ours();
    let free = line == StandInLine::Late || idle;
    let serves = instance.serves(pool).is_some_and(Serves::takes_stand_ins);
    // Reserved for queries, where there are any.
    let reserved = instance.tokens.as_ref().is_some_and(Tokens::are_reserved)
        && instance.serves.iter().any(Serves::takes_queries);
    free && serves && !reserved && runs_soon(state, pool, key)
}

/// Whether an instance is fast enough for a stand-in: it must end there before a fast instance would answer the
/// query.
fn runs_soon(state: &State, key: PoolKey, instance: InstanceKey) -> bool {
    let pool = state.pools.at(key);
    let by_speed = |serves: &&Serves| pool.places_by_speed() && !serves.is_apart();
    let Some(serves) = state.instances.at(instance).serves(key).filter(by_speed) else { return true };
    let cost = pool.stand_in_cost_at(false).of(1);
    pool.pace.is_fast(&serves.speed)
        || f64::from(pool.pace.slower_than_fastest(&serves.speed)) * cost < 1.0 / 2.0
}

/// Whether an instance is slow now, as far as its last answer or its speed shows.
pub(crate) fn is_slow(pool: &Pool, key: PoolKey, instance: &Instance) -> bool {
    let slow = |serves: &Serves| pool.places_by_speed() && !pool.pace.is_fast(&serves.speed);
    instance.health.was_slow() || instance.serves(key).is_some_and(slow)
}

pub(crate) fn holds(state: &State, instance: InstanceKey, query: QueryKey) -> bool {
    state.queries.at(query).jobs.iter().any(|job| state.jobs.at(*job).instance == instance)
        || has_unnamed(state, instance, query)
}
