//! Starts a job on an instance.

use crate::api::{Action, Class, JobSpec, Role, Rows};
use crate::moves::group::note_place;
use crate::moves::room::{look_for_silence, refresh};
use crate::moves::watch::{begin, watch_silence, watch_stand_in};
use crate::rules::turn::{payer_of, work};
use crate::state::State;
use crate::state::arena::Key;
use crate::state::extra::Purpose;
use crate::state::job::Job;
use crate::state::keys::{InstanceKey, JobKey, Keys, PoolKey};
use crate::state::query::StandInState;
use crate::turn::Turn;

/// A job to start.
pub(crate) struct Start {
    pub(crate) pool: PoolKey,
    pub(crate) instance: InstanceKey,
    pub(crate) role: Role,
    pub(crate) rows: Keys,
    pub(crate) class: Class,
    /// The purpose of an extra job; `None` for a first job and for a stand-in.
    pub(crate) purpose: Option<Purpose>,
}

/// Batches that the mean number of rows remembers.
const ROWS_WINDOW: f32 = 32.0;

/// The size of the inputs of a job: of these queries, or of the members that a parity encodes.
fn size_of(state: &State, role: Role, rows: &Keys) -> u32 {
    if let Role::Parity(group, _) = role {
        return state.groups.get(Key::from(group)).map_or(1, |group| group.size);
    }
    let sizes = rows.iter().filter_map(|query| state.queries.get(*query)).map(|query| query.size.max(1));
    if is_padded(state, rows) {
        return sizes.max().unwrap_or(1).saturating_mul(rows.len() as u32);
    }
    sizes.fold(0u32, u32::saturating_add).max(1)
}

/// Whether all queries of a job count with the size of the largest.
fn is_padded(state: &State, rows: &Keys) -> bool {
    rows.iter().find_map(|query| state.queries.get(*query)).is_some_and(|query| query.padded)
}

/// Starts a job.
pub(crate) fn start(state: &mut State, turn: &mut Turn, start: Start) -> JobKey {
    let Start { pool: pool_key, instance: instance_key, role, rows, class, purpose } = start;
    let fresh = role == Role::Deployed && purpose.is_none();
    let taken = rows.len() as f32;
    let payer = payer_of(state, pool_key, role, &rows);
    let charge = state.book.begin(&payer, &state.pools.at(pool_key).id, work(role));
    let held = state.instances.at(instance_key).jobs.len();
    let alone = held == 0;
    let explores = purpose == Some(Purpose::Explore);
    let key = state.jobs.insert(Job {
        alone,
        beside: u16::try_from(held + 1).unwrap_or(u16::MAX),
        pool: pool_key,
        instance: instance_key,
        role,
        started: turn.now,
        payer,
        charge,
        // No query waits for an exploring copy.
        waiting: if explores { 0 } else { rows.len() as u16 },
        size: size_of(state, role, &rows),
        padded: is_padded(state, &rows),
        rows,
        group: None,
        ended: false,
        dropped: false,
        began: turn.now,
        excused: false,
        explores,
        hedge: purpose == Some(Purpose::Hedge),
        late: false,
        look_at: None,
        twins: Vec::new(),
    });
    let rows = &state.jobs.at(key).rows;
    let mut ids = Rows::new();
    for query in rows {
        let query = state.queries.at_mut(*query);
        match role {
            Role::Backup => query.backup = Some(key),
            Role::StandIn(_) => {
                (query.stand_in, query.stand_ins_started) =
                    (StandInState::Runs(key), query.stand_ins_started + 1)
            }
            _ if explores => {}
            _ => {
                query.queued = false;
                query.jobs.push(key);
            }
        }
        ids.push(query.id);
    }
    let place = rows.first().and_then(|query| state.queries.at(*query).place);
    let group = match role {
        Role::Parity(group, _) => Some(Key::from(group)),
        Role::Backup | Role::StandIn(_) => None,
        Role::Deployed | Role::Copy => place.map(|place| place.group),
    };
    if let Some(group) = group {
        note_place(state, group, key);
    }
    let count = ids.len();
    let instance = state.instances.at_mut(instance_key);
    let token = instance.tokens.as_mut().and_then(|tokens| tokens.spend(role));
    instance.add_job(key, token.is_some());
    // The first job behind those that run starts the clock again.
    if alone || instance.behind.as_slice() == [key] {
        instance.heard = turn.now;
    }
    if let Some(serves) = instance.serves.iter_mut().find(|serves| serves.pool == pool_key) {
        serves.held = serves.held.saturating_add(1);
        if matches!(role, Role::Deployed | Role::Copy) {
            serves.ran_at = turn.now;
        }
    }
    if instance.allow(pool_key, state.pools.at(pool_key).allowed_ahead()) {
        // With its first job of a fast model an instance may hold more of them.
        state.unplaced.extend(instance.serves.iter().map(|serves| serves.pool));
    }
    if !alone {
        watch_silence(state, instance_key);
    }
    let instance = state.instances.at_mut(instance_key);
    let (id, pool) = (key.id(), state.pools.at(pool_key).id);
    let job = JobSpec { id, instance: instance.id, pool, role, payer, class, token };
    turn.out.push(Action::Run(job, ids));
    refresh(state, turn, instance_key);

    let pool = state.pools.at_mut(pool_key);
    pool.running += 1;
    pool.counters.jobs += 1;
    if fresh {
        pool.counters.batches += 1;
        pool.counters.batch_rows += count as u64;
        pool.load.note(turn.now);
        pool.usual_rows += (taken - pool.usual_rows) / ROWS_WINDOW;
        pool.hedges.earn();
        pool.retries.earn();
        if let Some(stand_ins) = &mut pool.stand_ins {
            (0..count).for_each(|_| stand_ins.work.earn());
        }
    }
    pool.counters.parities += u64::from(matches!(role, Role::Parity(..)));
    if matches!(role, Role::Deployed | Role::Copy) {
        look_for_silence(state, turn, pool_key);
    }
    // A job behind others is timed from its turn on.
    match role {
        Role::StandIn(_) => watch_stand_in(state, turn, key),
        _ if state.instances.at(instance_key).runs(key) => begin(state, turn, key),
        _ => {}
    }
    key
}
