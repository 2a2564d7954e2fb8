//! Invariants of the whole state: every query is attended to, none waits next to a free slot, and every kept output has
//! a reader.
//!
//! Problem: a query that no timer and no running job will touch waits until its deadline, and no action shows it. An
//! instance that begins to take queries stays idle while they wait, if nothing looks at the queue then. An output whose
//! reader is gone stays in memory forever.
//!
//! Choice: invariants over the whole state. The tests check them after every event. Debug builds check them
//! after as many events as there are queries and jobs, so that the check costs a constant time for each event.
//!
//! Rejected: a check in release builds (it could repair nothing there).

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::api::JobId;
use crate::rules::other_work::{is_decoded, redundancy_runs};
use crate::rules::outage::bridges;
use crate::rules::stand_in::{may_stand_in_for, wants_stand_in};
use crate::rules::suits::may_run;
use crate::rules::turn::{leaves_reserved, next_lane};
use crate::state::State;
use crate::state::arena::Key;
use crate::state::extra::{Extra, Purpose};
use crate::state::idle::Room;
use crate::state::instance::{Instance, Serves};
use crate::state::keys::{InstanceKey, JobKey, Keys, QueryKey};
use crate::state::query::{Query, StandInState};
use crate::state::stand_ins::StandInLine;
use crate::turn::Turn;

/// Extra jobs and late queries of a pool that are examined: placing looks at least so far.
const EXTRAS: usize = 16;

/// Finds a query without a job, timer or line, a query next to a free slot, or an output without a reader.
pub(crate) fn check(state: &State, turn: &Turn) -> Result<(), String> {
    check_queries(state, turn)?;
    check_room(state, turn)?;
    check_outputs(state)
}

/// Finds a waiting query, retry or late stand-in next to an instance with a free slot that may run it.
fn check_room(state: &State, turn: &Turn) -> Result<(), String> {
    // Whether a batch may be queued ahead depends on the time, so only free slots count.
    let is_free = |of: &Instance| of.room() != Room::None && of.can_begin();
    for (key, pool) in state.pools.iter().filter(|(_, pool)| !pool.removed) {
        let apart = |of: &Instance| {
            let takes =
                |serves: &Serves| serves.is_apart() && serves.takes_stand_ins() && of.has_place_for(serves);
            is_free(of) && of.serves(key).is_some_and(takes)
        };
        let late = || pool.stand_ins.iter().flat_map(|own| &own.late);
        let wants = |query: &&QueryKey| state.queries.get(**query).is_some_and(|of| wants_stand_in(of, pool));
        for (instance, _) in state.instances.iter().filter(|(_, of)| apart(of)) {
            let suits = |query: &QueryKey| may_stand_in_for(state, key, instance, *query, StandInLine::Late);
            if late().filter(wants).take(EXTRAS).any(suits) {
                return Err(format!("a late query of {:?} waits next to a free instance apart", pool.id));
            }
        }
        let takes = |of: &Instance| {
            let takes = |serves: &Serves| serves.takes_queries() && of.has_place_for(serves);
            is_free(of) && of.serves(key).is_some_and(takes)
        };
        let free: SmallVec<[InstanceKey; 4]> =
            state.instances.iter().filter(|(_, of)| takes(of)).map(|(instance, _)| instance).collect();
        if free.is_empty() {
            continue;
        }
        // It may wait for a faster instance until this time.
        let held = pool.faster_timer.is_some_and(|at| at >= turn.now);
        if next_lane(state, turn, key).is_some() && !held {
            return Err(format!("a query of {:?} waits next to a free slot at {:?}", pool.id, turn.now));
        }
        let leaves = leaves_reserved(state, turn, key);
        let first = pool.urgent.iter().take(EXTRAS);
        for Extra { role, rows, avoid, purpose } in first.filter(|extra| extra.purpose == Purpose::Retry) {
            let waits = |query: &QueryKey| state.queries.get(*query).is_some_and(|of| of.jobs.is_empty());
            let rows: Keys = rows.iter().copied().filter(waits).collect();
            let retry = Extra { role: *role, rows, avoid: *avoid, purpose: *purpose };
            let suits = |instance: &InstanceKey| may_run(state, turn, key, &retry, *instance, leaves);
            if !retry.rows.is_empty() && free.iter().any(suits) {
                return Err(format!("{retry:?} waits next to a free slot at {:?}", turn.now));
            }
        }
    }
    Ok(())
}

fn check_queries(state: &State, turn: &Turn) -> Result<(), String> {
    let mut queued: BTreeSet<u64> = BTreeSet::new();
    let mut extras: BTreeMap<u64, u8> = BTreeMap::new();
    for (_, pool) in state.pools.iter() {
        queued.extend(pool.queue.iter().map(Key::raw));
        for query in pool.urgent.iter().flat_map(|extra| &extra.rows) {
            *extras.entry(query.raw()).or_default() += 1;
        }
    }
    for (key, query) in state.queries.iter() {
        let lost = |what: &str| Err(format!("{:?} {what} at {:?}: {query:?}", query.id, turn.now));
        if query.queued && !queued.contains(&key.raw()) {
            return lost("is queued but missing from the lanes");
        }
        if query.extras != extras.get(&key.raw()).copied().unwrap_or_default() {
            return lost("has a wrong count of extra jobs");
        }
        if query.jobs.iter().any(|job| !state.jobs.contains(*job)) {
            return lost("names a job that is gone");
        }
        let waits = query.queued || query.extras > 0;
        let pool = state.pools.at(query.pool);
        let is_out = pool.usable == 0 || pool.outage_since.is_some();
        let deserted = is_out && pool.no_instance_timer.is_none() && !pool.removed;
        if waits && query.jobs.is_empty() && deserted {
            return lost("waits in a pool without instances, and no timer is set");
        }
        let bridged = bridges(pool, query.accept) && wants_stand_in(query, pool);
        if bridged && !pool.stand_ins.as_ref().is_some_and(|own| own.late.contains(&key)) {
            return lost("is in no line for a stand-in in an outage");
        }
        if waits && pool.removed {
            return lost("waits for a model that was unloaded");
        }
        if !waits && !is_attended(state, turn, query) {
            return lost("has no job, timer or line");
        }
    }
    Ok(())
}

/// Whether an event or a timer other than its deadline will change something for a query outside of all queues.
fn is_attended(state: &State, turn: &Turn, query: &Query) -> bool {
    let pool = state.pools.at(query.pool);
    if query.held_back
        || matches!(query.stand_in, StandInState::Judged(_))
        || is_decoded(state, query)
        || query.left && redundancy_runs(state, query)
    {
        return true;
    }
    if let StandInState::Runs(job) = query.stand_in
        && state.jobs.get(job).is_some_and(|job| job.look_at.is_some())
    {
        return true;
    }
    // A policy that never hedges asks for no more than a job, and no instance can replace a job of a model that was
    // unloaded.
    let is_enough = pool.removed || !pool.policy.hedges();
    query.jobs.iter().any(|job| is_enough || is_watched(state, turn, *job))
}

/// Whether a timer watches a job, or the instance where it waits behind others.
fn is_watched(state: &State, turn: &Turn, key: JobKey) -> bool {
    let Some(job) = state.jobs.get(key) else { return false };
    let behind = || {
        let instance = state.instances.get(job.instance);
        instance.is_some_and(|instance| !instance.runs(key) && instance.watched)
    };
    job.look_at.is_some_and(|at| at >= turn.now) || behind()
}

fn check_outputs(state: &State) -> Result<(), String> {
    let mut readers: BTreeMap<JobId, u32> = BTreeMap::new();
    for (_, query) in state.queries.iter() {
        if let StandInState::In(output) | StandInState::Judged(output) = query.stand_in {
            *readers.entry(output.job).or_default() += 1;
        }
    }
    for twin in state.jobs.iter().flat_map(|(_, job)| &job.twins) {
        *readers.entry(twin.other.job).or_default() += 1;
    }
    for (job, kept) in state.shelf.iter() {
        let readers = readers.get(&job).copied().unwrap_or_default();
        if kept.readers != readers + kept.lent {
            return Err(format!(
                "{job:?} has {} readers: {readers} here, and the driver reads it {} times",
                kept.readers, kept.lent
            ));
        }
    }
    Ok(())
}
