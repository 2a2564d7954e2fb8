//! Placing: waiting work finds an instance, in one order of urgency.
//!
//! [`ORDER`] lists the waiting lines, the most urgent first. Two functions walk it:
//!
//! - [`fill`], when an instance has new room. It takes one job from the first line that has one for it, and begins again
//!   until it has no room. Among its pools, the next query is that of weighted fair queueing (`rules::turn`); in other
//!   lines the first pool with a suitable job goes first.
//! - [`place`], when a pool has new work. Each line in turn gives its jobs to instances with room, until queries are
//!   left without one; spare work then waits. `Reserved` has no step: `place_batches` takes its queries first out of the
//!   queue, after late stand-ins and urgent jobs.
//!
//! At the end of each event no instance has room for work that may start at that time. Work that must wait longer has a
//! timer. So new work looks only at instances, and new room only at work, and the walks choose between lines only where
//! several wait for one instance.
//!
//! The lines from [`SPARE_FROM`] on are spare work, for an instance that no waiting query may use: a query may wait until
//! its batch is full, or for a faster instance.
//!
//! `Reserved` is about instances that shares reserve (docs/shares.md). Reservations at workers that give tokens
//! (`request_reservations`) are another thing: `place` requests them for queries that found no room.
//!
//! Files next to this one place batches, extras (retries, hedges, copies, parities), stand-ins and, outside the lines,
//! exploring copies. The glossary in docs/concepts.md defines the words.
//!
//! A new kind of job adds a variant of [`WorkLine`], its place in [`ORDER`], an arm in `place_lines` and in `take`, and
//! a file next to this one if its way of choosing an instance is new.

pub(crate) mod batches;
pub(crate) mod explore;
pub(crate) mod extras;
pub(crate) mod room;
pub(crate) mod stand_ins;

use crate::moves::eject::{hasten_probes, recall};
use crate::moves::reserve::{request_reservations, request_reservations_at};
use crate::moves::room::{recount_pools_of, refresh};
use crate::placing::batches::{place_batches, start_batch, take_batch, wait_for_company, wait_for_faster};
use crate::placing::extras::{place_extras, take_extra};
use crate::placing::room::next_with_room;
use crate::placing::stand_ins::{place_stand_ins, take_stand_in};
use crate::rules::turn::reserved_waits;
use crate::rules::waiting::has_work_for;
use crate::state::State;
use crate::state::extra::ExtraLine;
use crate::state::idle::Room;
use crate::state::instance::Serves;
use crate::state::keys::{InstanceKey, Keys, PoolKey, QueryKey};
use crate::state::stand_ins::StandInLine;
use crate::turn::Turn;

/// A waiting line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkLine {
    /// Queries of a share of which fewer run than instances are reserved for it.
    Reserved,
    /// Stand-ins of late queries.
    LateStandIn,
    /// Retries and hedges.
    Urgent,
    /// Queries that were never tried.
    Queue,
    /// Replicas, parities and backups.
    Spare,
    /// Stand-ins of running queries whose instance was slow with its last answer.
    DoubtfulStandIn,
    /// Stand-ins of other running queries that are not late.
    EarlyStandIn,
}

use WorkLine::{DoubtfulStandIn, EarlyStandIn, LateStandIn, Queue, Reserved, Spare, Urgent};

/// All lines, the most urgent first.
const ORDER: [WorkLine; 7] = [Reserved, LateStandIn, Urgent, Queue, Spare, DoubtfulStandIn, EarlyStandIn];

/// The place of the first spare line.
const SPARE_FROM: usize = 4;

/// Gives a pool's work to instances with room.
pub(crate) fn place(state: &mut State, turn: &mut Turn, key: PoolKey) {
    place_lines(state, turn, key, &ORDER);
}

/// Gives a pool's queries and its spare work to instances with room.
pub(crate) fn place_queue(state: &mut State, turn: &mut Turn, key: PoolKey) {
    place_lines(state, turn, key, &ORDER[SPARE_FROM - 1..]);
}

/// Gives the work of pools whose instances changed to instances with room.
pub(crate) fn place_unplaced(state: &mut State, turn: &mut Turn) {
    while let Some(key) = state.unplaced.pop() {
        if state.pools.contains(key) {
            place(state, turn, key);
        }
    }
}

fn place_spare(state: &mut State, turn: &mut Turn, key: PoolKey) {
    place_lines(state, turn, key, &ORDER[SPARE_FROM..]);
}

/// Gives the work of these lines to instances with room. Spare lines wait while queries do.
fn place_lines(state: &mut State, turn: &mut Turn, key: PoolKey, lines: &[WorkLine]) {
    if state.pools.at(key).usable == 0 {
        call_back(state, turn, key);
    }
    for line in lines {
        match line {
            // `place_batches` takes them first out of the queue.
            Reserved => {}
            LateStandIn => place_stand_ins(state, turn, key, StandInLine::Late),
            Urgent => place_extras(state, turn, key, ExtraLine::Urgent),
            Queue => {
                if !place_batches(state, turn, key) {
                    request_reservations(state, turn, key);
                    call_back(state, turn, key);
                    return;
                }
            }
            Spare => place_extras(state, turn, key, ExtraLine::Spare),
            DoubtfulStandIn => place_stand_ins(state, turn, key, StandInLine::Doubtful),
            EarlyStandIn => place_stand_ins(state, turn, key, StandInLine::Early),
        }
    }
}

/// Gives an instance one job of a line, if there is one that it may take.
fn take(state: &mut State, turn: &mut Turn, key: InstanceKey, line: WorkLine) -> bool {
    match line {
        Reserved => reserved_waits(state, turn, key) && take_batch(state, turn, key),
        LateStandIn => take_stand_in(state, turn, key, StandInLine::Late),
        Urgent => take_extra(state, turn, key, ExtraLine::Urgent),
        Queue => take_batch(state, turn, key),
        Spare => take_extra(state, turn, key, ExtraLine::Spare),
        DoubtfulStandIn => take_stand_in(state, turn, key, StandInLine::Doubtful),
        EarlyStandIn => take_stand_in(state, turn, key, StandInLine::Early),
    }
}

/// Gives an instance the most urgent job that is not spare.
pub(crate) fn take_urgent(state: &mut State, turn: &mut Turn, key: InstanceKey) -> bool {
    ORDER[..SPARE_FROM].iter().any(|line| take(state, turn, key, *line))
}

/// Gives an instance that takes no queries a parity or a backup: other frontends have nothing else for it.
pub(crate) fn take_redundancy(state: &mut State, turn: &mut Turn, key: InstanceKey) -> bool {
    let serves = &state.instances.at(key).serves;
    !serves.iter().any(Serves::takes_queries) && take(state, turn, key, Spare)
}

/// Gives an instance work until it has no room.
pub(crate) fn fill(state: &mut State, turn: &mut Turn, key: InstanceKey) {
    if !has_work_for(state, key) {
        return;
    }
    while state.instances.get(key).is_some_and(|instance| instance.room() != Room::None)
        && ORDER.iter().any(|line| take(state, turn, key, *line))
    {}
    // Started batches may have added copies, for which other instances have room.
    let pools: usize = state.instances.get(key).map_or(0, |instance| instance.serves.len());
    for index in 0..pools {
        let pool = state.instances.at(key).serves[index].pool;
        wait_for_company(state, pool);
        place_spare(state, turn, pool);
    }
}

/// Starts a query that just arrived without queueing it, if no query waits, batches have one query, and an instance
/// has room. Most queries start in this way.
pub(crate) fn started_at_once(state: &mut State, turn: &mut Turn, key: PoolKey, query: QueryKey) -> bool {
    let pool = state.pools.at(key);
    let alone = pool.readiness.rows == 1 || !state.queries.at(query).codable;
    if !alone || pool.queue.waiting() > 0 {
        return false;
    }
    let Some(instance) = next_with_room(state, turn, key) else { return false };
    if wait_for_faster(state, turn, key, instance) {
        return false;
    }
    start_batch(state, turn, key, instance, Keys::from_slice(&[query]));
    place_spare(state, turn, key);
    true
}

/// Readmits a slow instance if a queue has built up, or if work waits and no other instance is left. Failing ones are
/// probed soon then.
pub(crate) fn call_back(state: &mut State, turn: &mut Turn, key: PoolKey) {
    match recall(state, turn, key) {
        Some(instance) => readmit(state, turn, instance),
        None => hasten_probes(state, turn, key),
    }
}

/// Gives work to an instance that takes work again.
pub(crate) fn readmit(state: &mut State, turn: &mut Turn, key: InstanceKey) {
    refresh(state, turn, key);
    recount_pools_of(state, turn, key);
    fill(state, turn, key);
    request_reservations_at(state, turn, key);
}
