//! Takes a job off its instance.

use crate::moves::room::refresh;
use crate::moves::watch::{begin, watch_silence};
use crate::state::State;
use crate::state::job::Job;
use crate::state::keys::{InstanceKey, JobKey, PoolKey};
use crate::turn::Turn;

/// Removes a job from its instance and from the state. Its pool counts it as running until it is done, so that the
/// pool stays.
pub(crate) fn end_job(state: &mut State, turn: &mut Turn, key: JobKey) -> Option<Job> {
    state.jobs.get(key)?;
    leave_instance(state, turn, key);
    state.jobs.remove(key)
}

pub(crate) fn leave_instance(state: &mut State, turn: &mut Turn, key: JobKey) -> (PoolKey, InstanceKey) {
    let job = state.jobs.at(key);
    let (pool, instance_key) = (job.pool, job.instance);
    state.book.end(&job.payer, &state.pools.at(pool).id, job.charge, turn.now.since(job.started));
    if let Some(instance) = state.instances.get_mut(instance_key) {
        let next = instance.remove_job(key);
        let own = instance.serves.iter_mut().find(|serves| serves.pool == pool);
        own.into_iter().for_each(|serves| serves.held = serves.held.saturating_sub(1));
        let was_silent = std::mem::take(&mut instance.silent);
        instance.heard = turn.now;
        next.into_iter().for_each(|next| begin(state, turn, next));
        if was_silent {
            // The batches that wait there were moved to other instances, which may hang as well.
            watch_silence(state, instance_key);
        }
        refresh(state, turn, instance_key);
    }
    (pool, instance_key)
}
