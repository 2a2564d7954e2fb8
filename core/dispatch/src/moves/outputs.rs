//! Releases outputs, and pairs predictions with stand-ins for comparison.

use crate::api::{Action, Answer, JobId, Output, Pair};
use crate::state::State;
use crate::state::job::{Job, Twin};
use crate::state::keys::{JobKey, QueryKey};
use crate::state::query::Aid;
use crate::turn::Turn;

/// Pairs the answer of a query with its other answer, present or future, for a comparison.
pub(crate) fn pair_up(state: &mut State, turn: &mut Turn, key: QueryKey, answer: &Answer) {
    let query = state.queries.at(key);
    if matches!(query.aid, Aid::In(_) | Aid::Judged(_)) && !matches!(answer, Answer::StandIn { .. }) {
        state.pools.at_mut(query.pool).counters.stand_ins_wasted += 1;
    }
    match (query.aid, *answer) {
        (Aid::Runs(stand_in), Answer::Exact { job, row } | Answer::Hedged { job, row }) => {
            let Some(at) = state.jobs.get(stand_in).and_then(|job| job.row_of(key)) else { return };
            if state.shelf.hold(job) {
                state.jobs.at_mut(stand_in).twins.push(Twin {
                    row: at,
                    other: Output { job, row },
                    waited_from: None,
                });
            }
        }
        (
            Aid::In(stand_in) | Aid::Judged(stand_in),
            Answer::Exact { job, row } | Answer::Hedged { job, row },
        ) if state.shelf.hold(job) && state.shelf.hold(stand_in.job) => {
            ask_check(state, turn, Pair { prediction: Output { job, row }, stand_in });
        }
        (Aid::In(stand_in), Answer::StandIn { .. }) => {
            let waited_from = Some(query.arrived);
            for holder in query.jobs.clone() {
                let Some(row) = state.jobs.get(holder).and_then(|job| job.row_of(key)) else { continue };
                if state.shelf.hold(stand_in.job) {
                    state.jobs.at_mut(holder).twins.push(Twin { row, other: stand_in, waited_from });
                }
            }
        }
        _ => {}
    }
}

/// Compares a prediction with the stand-ins that answered its queries before.
pub(crate) fn came_after_all(state: &mut State, turn: &mut Turn, key: JobKey, job: &Job) {
    for twin in &job.twins {
        if let Some(arrived) = twin.waited_from {
            state.pools.at_mut(job.pool).response.add(turn.now.since(arrived));
        }
        if state.shelf.hold(key.id()) {
            let prediction = Output { job: key.id(), row: twin.row };
            ask_check(state, turn, Pair { prediction, stand_in: twin.other });
        } else {
            let_go(state, turn, twin.other.job);
        }
    }
}

/// Requests the comparison of two outputs that were held for it.
pub(crate) fn ask_check(state: &mut State, turn: &mut Turn, pair: Pair) {
    state.shelf.lend(pair.prediction.job);
    state.shelf.lend(pair.stand_in.job);
    turn.out.push(Action::Check(pair));
}

/// Removes a query from its stand-in.
pub(crate) fn leave_stand_in(state: &mut State, turn: &mut Turn, aid: Aid) {
    match aid {
        Aid::None | Aid::Useless => {}
        Aid::In(output) | Aid::Judged(output) => let_go(state, turn, output.job),
        Aid::Runs(key) => {
            let Some(job) = state.jobs.get_mut(key) else { return };
            job.waiting -= 1;
            if job.waiting == 0 && !job.dropped {
                job.dropped = true;
                state.pools.at_mut(job.pool).counters.dropped += 1;
                turn.out.push(Action::Drop(key.id()));
            }
        }
    }
}

/// Removes a reader of a job's outputs, and releases them after the last.
pub(crate) fn let_go(state: &mut State, turn: &mut Turn, job: JobId) {
    if state.shelf.let_go(job) {
        turn.out.push(Action::Release(job));
    }
}
