//! A coding group from its first member to its end.
//!
//! A batch joins after it started, because coding must not delay queries. Parities are made when the group is full
//! or old. They wait for an instance that holds none of the group, and are dropped when they are no longer useful.

use smallvec::SmallVec;

use crate::api::{Accept, Action, Rows, Step};
use crate::moves::tell::trace;
use crate::policy::Along;
use crate::state::State;
use crate::state::group::{Code, Decoding, Group, Member, Place, Slot, Stage, Watch};
use crate::state::job::Job;
use crate::state::keys::{GroupKey, JobKey, PoolKey};
use crate::state::pool::Pool;
use crate::state::timers::Timer;
use crate::turn::Turn;

/// Most open groups of a pool, which has one for each shape. Clients that vary shapes must not keep more.
const OPEN_AT_ONCE: usize = 64;

/// Adds a batch that was just started to its pool's open group.
pub(crate) fn join_group(state: &mut State, turn: &mut Turn, pool_key: PoolKey, job: JobKey, along: Along) {
    let Some(k) = along.group else { return };
    let first = state.jobs.at(job).rows.first();
    let Some(first) = first.map(|query| state.queries.at(*query)) else { return };
    let (shape, payer) = (first.shape, first.payer);
    if !first.codable {
        return; // served alone, so it is the whole batch
    }
    if first.padded {
        return; // batches of one shape have several sizes, and codes need equal ones
    }
    let open = state.pools.at(pool_key).open.iter().find(|(of, _)| *of == shape).map(|(_, group)| *group);
    let key = match open {
        Some(key) => key,
        None if state.pools.at(pool_key).open.len() >= OPEN_AT_ONCE => return,
        None => {
            let pool = state.pools.at_mut(pool_key);
            let Some(code) = code(pool, k, along) else { return };
            let key = state.groups.insert(Group::new(pool_key, payer, code, turn.now));
            pool.open.push((shape, key));
            state.timers.set(turn.now + pool.settings.coding.max_age, Timer::Age(key));
            key
        }
    };
    let instance = state.jobs.at(job).instance;
    let shares = |held: &JobKey| state.jobs.get(*held).is_some_and(|held| held.instance == instance);
    if state.groups.at(key).jobs.iter().any(shares) {
        return; // an instance that dies must not take two members with it
    }
    add_member(state, turn, key, job);
    if state.groups.at(key).full() {
        close(state, turn, key);
    }
}

fn add_member(state: &mut State, turn: &mut Turn, key: GroupKey, job: JobKey) {
    let group = state.groups.at_mut(key);
    group.size = group.size.max(state.jobs.at(job).size);
    let slot = group.slots.len() as u8;
    group.slots.push(Slot { members: SmallVec::new() });
    let Some(Slot { members }) = group.slots.last_mut() else { return };
    for (row, query_key) in state.jobs.at(job).rows.iter().enumerate() {
        let query = state.queries.at_mut(*query_key);
        query.place = Some(Place { group: key, slot, row: row as u16 });
        members.push(Member {
            id: query.id,
            query: *query_key,
            accepts_approximate: query.accept == Accept::Any,
            prediction: None,
            by: None,
            decoding: Decoding::No,
        });
    }
    if state.traced {
        let k = group.code.recovery.k as u8;
        for query in state.jobs.at(job).rows.clone() {
            trace(state, turn, query, Step::Grouped { group: key.id(), k, slot });
        }
    }
    note_place(state, key, job);
}

/// Notes the instance of a group's job.
pub(crate) fn note_place(state: &mut State, key: GroupKey, job_key: JobKey) {
    let Some(group) = state.groups.get_mut(key) else { return };
    let job = state.jobs.at_mut(job_key);
    job.group = Some(key);
    let site = state.instances.get(job.instance).map(|instance| instance.site).unwrap_or_default();
    group.jobs.push(job_key);
    group.places.push((job.instance, site));
}

/// Closes a group to new members and has its parities made, if they could be used.
pub(crate) fn close(state: &mut State, turn: &mut Turn, key: GroupKey) {
    watch(state, turn, key);
    let group = state.groups.at_mut(key);
    if group.watch == Watch::Off && !group.needed(|query| state.queries.contains(query)) {
        finish(state, turn, key);
        return;
    }
    group.stage = Stage::Coded;
    group.encoded = true;
    group.pending += 1;
    let pool = state.pools.at_mut(group.pool);
    pool.open.retain(|(_, open)| *open != key);
    pool.counters.groups += 1;
    pool.counters.groups_partial += u64::from(!group.full());
    let k = group.code.recovery.k as u8;
    match pool.made.iter_mut().find(|(of, _)| *of == k) {
        Some((_, count)) => *count = count.saturating_add(1),
        None => pool.made.push((k, 1)),
    }
    let batch = |slot: &Slot| slot.members.iter().map(|member| member.id).collect::<Rows>();
    let mut slots: Vec<Rows> = group.slots.iter().map(batch).collect();
    slots.resize(group.code.recovery.k, Rows::new());
    turn.out.push(Action::Encode(key.id(), slots));
}

/// Ends a closed group that cannot help any query.
pub(crate) fn finish_if_useless(state: &mut State, turn: &mut Turn, key: GroupKey) {
    let Some(group) = state.groups.get(key) else { return };
    // An open group may still get members that need it, and a watched one is needed for its comparison.
    let free = group.stage == Stage::Coded && group.watch == Watch::Off;
    if free && !group.needed(|query| state.queries.contains(query)) {
        finish(state, turn, key);
    }
}

/// Ends a group and drops jobs that run only for it.
pub(crate) fn finish(state: &mut State, turn: &mut Turn, key: GroupKey) {
    unwatch(state, turn, key);
    let Some(group) = state.groups.get_mut(key).filter(|group| group.stage != Stage::Over) else { return };
    let was = std::mem::replace(&mut group.stage, Stage::Over);
    let pool = state.pools.at_mut(group.pool);
    if was == Stage::Open {
        pool.open.retain(|(_, open)| *open != key);
        pool.counters.groups_dissolved += 1;
    }
    for job_key in &group.jobs {
        let Some(job) = state.jobs.get_mut(*job_key) else { continue };
        if job.waiting == 0 && !job.dropped && !job.explores {
            job.dropped = true;
            pool.counters.dropped += 1;
            turn.out.push(Action::Drop(job_key.id()));
        }
    }
    wrap_up(state, turn, key);
}

/// Removes an ended group once the driver reads none of its outputs.
pub(crate) fn wrap_up(state: &mut State, turn: &mut Turn, key: GroupKey) {
    let done = |group: &Group| group.stage == Stage::Over && group.pending == 0;
    if !state.groups.get(key).is_some_and(done) {
        return;
    }
    let Some(group) = state.groups.remove(key) else { return };
    if group.encoded {
        turn.out.push(Action::Forget(key.id()));
    }
    for job in &group.outputs {
        turn.out.push(Action::Release(job.id()));
    }
}

/// Keeps a group that is being closed for a comparison, if its pool compares and not too many are kept.
pub(crate) fn watch(state: &mut State, turn: &Turn, key: GroupKey) {
    let group = state.groups.at_mut(key);
    let pool = state.pools.at_mut(group.pool);
    if group.code.detect && pool.watched < pool.settings.spare_limit.get() {
        pool.watched += 1;
        group.watch = Watch::On;
        state.timers.set(turn.now + pool.settings.coding.detection.max_wait, Timer::Watch(key));
    }
}

/// Stops keeping a group for a comparison, because it is old or incomplete.
pub(crate) fn unwatch(state: &mut State, turn: &mut Turn, key: GroupKey) {
    let Some(group) = state.groups.get_mut(key).filter(|group| group.watch == Watch::On) else { return };
    group.watch = Watch::Off;
    state.pools.at_mut(group.pool).watched -= 1;
    finish_if_useless(state, turn, key);
}

/// Notes the predictions of a job in the group of its queries. Returns whether the group keeps the job's outputs.
pub(crate) fn note_predictions(state: &mut State, key: JobKey, job: &Job) -> bool {
    let Some(group) = job.group.and_then(|group| state.groups.get_mut(group)) else { return false };
    let mut new = false;
    for member in group.slots.iter_mut().flat_map(|slot| &mut slot.members) {
        let row = job.rows.iter().position(|query| *query == member.query);
        if let (Some(row), None) = (row, member.prediction) {
            (member.prediction, member.by) = (Some((key, row as u32)), Some(job.instance));
            new = true;
        }
    }
    // An open group is not encoded yet, and the driver keeps its inputs with the job.
    let keeps = new && (group.stage == Stage::Open || group.reads_predictions());
    if keeps {
        group.outputs.push(key);
    }
    keeps
}

/// The code for groups of `k`; `None` if there is none.
fn code(pool: &Pool, k: u8, along: Along) -> Option<Code> {
    let (settings, in_force) = (&pool.settings.coding, &pool.in_force.coding);
    let recovery = in_force.code(k)?;
    Some(Code {
        recovery,
        min_confidence: in_force.min_confidence,
        unsure: settings.unsure,
        at_once: along.at_once,
        detect: settings.detection.enabled && recovery.parities_to_compare().is_some(),
    })
}
