//! Late work that waits in a pool, and the instances that may take it.

use crate::rules::stand_in::takes_stand_ins;
use crate::rules::suits::{is_redundancy, may_run};
use crate::state::State;
use crate::state::extra::Extra;
use crate::state::keys::{InstanceKey, Keys, PoolKey, QueryKey};
use crate::state::stand_ins::StandInLine;
use crate::turn::Turn;

/// Extra jobs of a pool that are examined for a reservation: placing looks at least so far.
const LATE: usize = 16;

/// Whether an instance may run late work that waits in a pool and has nothing else to wait for: a retry among the first
/// jobs, or a stand-in. Queries that were never tried, and copies of queries that run, may wait for a faster instance.
pub(crate) fn suits_late_work(state: &State, turn: &Turn, key: PoolKey, instance: InstanceKey) -> bool {
    let pool = state.pools.at(key);
    let suits = |extra: &Extra| {
        let lives = |query: &QueryKey| state.queries.get(*query).is_some_and(|of| !of.withheld);
        let rows: Keys = extra.rows.iter().copied().filter(lives).collect();
        let Extra { role, avoid, purpose, .. } = *extra;
        let extra = Extra { role, rows, avoid, purpose };
        !extra.rows.is_empty()
            && !is_redundancy(state, turn, &extra)
            && may_run(state, turn, key, &extra, instance, true)
    };
    let stands_in = || {
        let late = pool.stand_ins.iter().flat_map(|own| &own.late);
        let mut alive = late.filter(|query| state.queries.contains(**query));
        alive.next().is_some() && takes_stand_ins(state, key, instance, StandInLine::Late)
    };
    pool.urgent.iter().take(LATE).any(suits) || stands_in()
}
