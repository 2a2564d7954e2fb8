//! Releases outputs, and pairs predictions with stand-ins for comparison.

use crate::api::{Action, Answer, JobId, Output, Pair};
use crate::state::State;
use crate::state::job::{Job, Twin};
use crate::state::keys::{JobKey, QueryKey};
use crate::state::query::StandInState;
use crate::turn::Turn;

/// Pairs the answer of a query with its other answer, present or future, for a comparison.
pub(crate) fn pair_answers(state: &mut State, turn: &mut Turn, key: QueryKey, answer: &Answer) {
    let query = state.queries.at(key);
    match (query.stand_in, *answer) {
        (StandInState::Runs(stand_in), Answer::Exact { job, row } | Answer::Hedged { job, row }) => {
            let Some(at) = state.jobs.get(stand_in).and_then(|job| job.row_of(key)) else { return };
            if state.shelf.add_reader(job) {
                state.jobs.at_mut(stand_in).twins.push(Twin {
                    row: at,
                    other: Output { job, row },
                    waited_from: None,
                });
            }
        }
        (
            StandInState::In(stand_in) | StandInState::Judged(stand_in),
            Answer::Exact { job, row } | Answer::Hedged { job, row },
        ) if state.shelf.add_reader(job) && state.shelf.add_reader(stand_in.job) => {
            request_check(state, turn, Pair { prediction: Output { job, row }, stand_in });
        }
        (StandInState::In(stand_in), Answer::StandIn { .. }) => {
            let waited_from = Some(query.arrived);
            for holder in query.jobs.clone() {
                let Some(row) = state.jobs.get(holder).and_then(|job| job.row_of(key)) else { continue };
                if state.shelf.add_reader(stand_in.job) {
                    state.jobs.at_mut(holder).twins.push(Twin { row, other: stand_in, waited_from });
                }
            }
        }
        _ => {}
    }
}

/// Compares a prediction with the stand-ins that answered its queries before.
pub(crate) fn compare_late_prediction(state: &mut State, turn: &mut Turn, key: JobKey, job: &Job) {
    for twin in &job.twins {
        if let Some(arrived) = twin.waited_from {
            state.pools.at_mut(job.pool).response.add(turn.now.since(arrived));
        }
        if state.shelf.add_reader(key.id()) {
            let prediction = Output { job: key.id(), row: twin.row };
            request_check(state, turn, Pair { prediction, stand_in: twin.other });
        } else {
            release_reader(state, turn, twin.other.job);
        }
    }
}

/// Requests the comparison of two outputs that were held for it.
pub(crate) fn request_check(state: &mut State, turn: &mut Turn, pair: Pair) {
    state.shelf.lend(pair.prediction.job);
    state.shelf.lend(pair.stand_in.job);
    turn.out.push(Action::Check(pair));
}

/// Removes a query from its stand-in.
pub(crate) fn leave_stand_in(state: &mut State, turn: &mut Turn, stand_in: StandInState) {
    match stand_in {
        StandInState::None | StandInState::Useless => {}
        StandInState::In(output) | StandInState::Judged(output) => release_reader(state, turn, output.job),
        StandInState::Runs(key) => {
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
pub(crate) fn release_reader(state: &mut State, turn: &mut Turn, job: JobId) {
    if state.shelf.remove_reader(job) {
        turn.out.push(Action::Release(job));
    }
}
