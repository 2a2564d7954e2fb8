//! Suitability of an instance for an extra job.

use crate::api::Role;
use crate::rules::gain::helps;
use crate::rules::lateness::hangs;
use crate::state::State;
use crate::state::arena::Key;
use crate::state::extra::{Extra, Purpose};
use crate::state::keys::{InstanceKey, PoolKey, QueryKey};
use crate::state::query::StandInState;
use crate::state::tokens::Tokens;
use crate::turn::Turn;

/// Whether the queries of an extra job have another job that may answer them. Those of a retry have none, nor have
/// those of a hedge whose other jobs failed or hang.
pub(crate) fn is_redundancy(state: &State, turn: &Turn, extra: &Extra) -> bool {
    let forsaken = |query: &QueryKey| {
        state.queries.get(*query).is_some_and(|of| of.jobs.iter().all(|job| hangs(state, turn, *job)))
    };
    match extra.purpose {
        // Moved queries were bound to an instance only because their model is fast.
        Purpose::Retry | Purpose::Moved => false,
        Purpose::Hedge => !extra.rows.iter().any(forsaken),
        Purpose::Spare | Purpose::Explore => true,
    }
}

/// Whether an instance may run an extra job, room aside. `leaves` is false if all instances are reserved for other
/// shares.
pub(crate) fn may_run(
    state: &State,
    turn: &Turn,
    pool: PoolKey,
    extra: &Extra,
    instance: InstanceKey,
    leaves: bool,
) -> bool {
    let of = state.instances.at(instance);
    of.is_lively(turn.now, state.pools.at(pool).longest_pause())
        && may_begin(state, turn, pool, extra, instance, leaves)
}

/// The same for an instance that begins the job at once, as it does with a token.
pub(crate) fn may_begin(
    state: &State,
    turn: &Turn,
    pool: PoolKey,
    extra: &Extra,
    instance: InstanceKey,
    leaves: bool,
) -> bool {
    let of = state.instances.at(instance);
    let Some(serves) = of.serves(pool) else { return false };
    let tokens = of.tokens.as_ref().filter(|tokens| tokens.are_needed());
    let reserved = tokens.map_or(!leaves, Tokens::are_reserved);
    if reserved && serves.takes_queries() && is_redundancy(state, turn, extra) {
        return false;
    }
    let spare = extra.purpose == Purpose::Spare;
    // A dedicated instance has no home.
    let free = if serves.takes_queries() { of.is_ours() } else { of.elsewhere.jobs == 0 };
    if spare && !free {
        return false;
    }
    match extra.role {
        Role::Parity(group, _) => {
            let group = state.groups.at(Key::from(group));
            serves.takes_redundancy()
                && serves.parity
                && !group.places.iter().any(|(place, _)| *place == instance)
        }
        Role::Backup => serves.takes_redundancy() && serves.backup,
        Role::StandIn(_) => serves.takes_stand_ins(),
        Role::Deployed | Role::Copy => {
            let avoids = |(at, until)| at == instance && turn.now < until;
            let failed_here = extra.avoid.is_some_and(avoids) && state.pools.at(pool).usable > 1;
            let holds = |key: &QueryKey| {
                let query = state.queries.at(*key);
                let stand_in = if let StandInState::Runs(job) = query.stand_in { Some(job) } else { None };
                let mut jobs = query.jobs.iter().copied().chain(stand_in);
                jobs.any(|job| state.jobs.get(job).is_some_and(|job| job.instance == instance))
                    || has_unnamed(state, instance, *key)
            };
            let late = |query: &QueryKey| {
                extra.purpose != Purpose::Hedge || helps(state, turn, pool, *query, instance)
            };
            serves.takes_queries()
                && !failed_here
                && !extra.rows.iter().any(holds)
                && extra.rows.iter().any(late)
        }
    }
}

/// Whether an instance has a job of a query that the query does not name: a copy that explores it, or a stand-in that
/// was given up in an outage.
pub(crate) fn has_unnamed(state: &State, instance: InstanceKey, query: QueryKey) -> bool {
    let mut held = state.instances.at(instance).jobs.iter().filter_map(|job| state.jobs.get(*job));
    held.any(|job| (job.explores || matches!(job.role, Role::StandIn(_))) && job.rows.contains(&query))
}
