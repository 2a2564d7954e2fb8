//! What a query needs next: the one rule of all policies.
//!
//! [`step`] is asked after each event that concerns the query, and when the moment that it named has come. It decides from
//! what is, not from what just happened, so it does not matter which event led to it, and asking twice does no harm.

use std::time::Duration;

use crate::model::ModelKey;
use crate::policy::Policy;
use crate::query::{Accept, AttemptState, Query, Reject, Why};
use crate::time::Time;

/// What a query needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Give its offer, the stand-in's answer.
    GiveOffer,
    /// A run of a model.
    Want { model: ModelKey, why: Why },
    /// It ends without an answer.
    GiveUp(Reject),
    /// Nothing until this moment, unless an event concerns it.
    Wait { until: Time },
}

/// What a query's surroundings say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) policy: Policy,
    pub(crate) max_attempts: u8,
    /// From when on a copy saves more time than it costs.
    pub(crate) copy_at: Time,
    /// Whether a copy may be wanted now: the budget has a token, and few queries wait.
    pub(crate) may_copy: bool,
    /// Whether the budget of retries has a token.
    pub(crate) may_retry: bool,
    /// The stand-in, if the model has one that runs anywhere.
    pub(crate) stand_in: Option<StandIn>,
}

/// What is known about a query's stand-in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandIn {
    pub(crate) model: ModelKey,
    /// From when on the query is late.
    pub(crate) late_at: Time,
    /// From when on the stand-in's answer may be given.
    pub(crate) give_at: Time,
    /// Whether the bound on approximate answers has room.
    pub(crate) has_room: bool,
}

/// A limit that does not name the moment at which it ends (a budget, the bound, a backlog) is looked at again after this
/// part of the query's age.
const AGAIN: u32 = 8;
const LEAST: Duration = Duration::from_micros(100);

/// Says what a query needs next.
pub(crate) fn step<P, O>(query: &Query<P, O>, facts: &Facts, now: Time) -> Step {
    let again = now + (query.age(now) / AGAIN).max(LEAST);
    let mut until = query.deadline;

    let stand_in = facts.stand_in.filter(|_| query.accept == Accept::Any);
    if let (Some(_), Some(of)) = (&query.offer, stand_in) {
        if of.has_room && (of.give_at <= now || last_moment(query) <= now) {
            return Step::GiveOffer;
        }
        until = until.min(if of.has_room { of.give_at.min(last_moment(query)) } else { again });
    }
    if query.deadline <= now {
        return Step::GiveUp(Reject::Deadline);
    }

    let other = query.attempts.iter().find(|attempt| attempt.model != query.model);
    let offers = stand_in.is_some_and(|of| of.has_room)
        && (query.offer.is_some() || other.is_some_and(|attempt| attempt.is_live()));
    let live = query.exact().filter(|attempt| attempt.is_live()).count();
    let tried = query.exact().filter(|attempt| !matches!(attempt.state, AttemptState::Over)).count();
    let is_wanted = query.wanted(query.model).is_some();
    let may_repeat = facts.policy.repeats && tried < usize::from(facts.max_attempts);

    if live == 0 && !offers {
        match query.exact().filter_map(|attempt| attempt.failure()).last() {
            None => return Step::Want { model: query.model, why: Why::First },
            Some(_) if may_repeat && facts.may_retry => {
                return Step::Want { model: query.model, why: Why::Retry };
            }
            Some(failure) => return Step::GiveUp(Reject::Failed(failure)),
        }
    }
    if live > 0 && tried < usize::from(facts.policy.runs) && !is_wanted {
        return Step::Want { model: query.model, why: Why::Copy };
    }
    if facts.policy.hedge && may_repeat && live > 0 && !is_wanted {
        match facts.copy_at {
            at if at > now => until = until.min(at),
            _ if facts.may_copy => return Step::Want { model: query.model, why: Why::Hedge },
            _ => until = until.min(again),
        }
    }
    if let (Some(of), None) = (stand_in, other) {
        match of.late_at {
            at if at > now => until = until.min(at),
            _ if of.has_room => return Step::Want { model: of.model, why: Why::StandIn },
            _ => until = until.min(again),
        }
    }
    Step::Wait { until }
}

/// The last moment at which a held-back answer is given: an answer after the deadline is none.
fn last_moment<P, O>(query: &Query<P, O>) -> Time {
    let span = query.deadline.since(query.arrived);
    query.arrived + (span - span / 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::InstanceKey;
    use crate::query::{Attempt, Failure, JobKey};
    use slotmap::KeyData;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn model(number: u64) -> ModelKey {
        KeyData::from_ffi(1 << 32 | number).into()
    }

    fn query(attempts: &[(u64, AttemptState)]) -> Query<(), ()> {
        let attempt =
            |(of, state): &(u64, AttemptState)| Attempt { model: model(*of), why: Why::First, state: *state };
        Query {
            model: model(1),
            payload: (),
            arrived: Time::ZERO,
            deadline: at(320),
            accept: Accept::Any,
            attempts: attempts.iter().map(attempt).collect(),
            offer: None,
            look: Time::MAX,
            marked: false,
        }
    }

    fn facts(policy: Policy) -> Facts {
        let stand_in = StandIn { model: model(2), late_at: at(23), give_at: at(25), has_room: true };
        let stand_in = policy.stand_in.map(|_| stand_in);
        Facts { policy, max_attempts: 3, copy_at: at(40), may_copy: true, may_retry: true, stand_in }
    }

    #[test]
    fn each_situation_has_its_step() {
        let (job, instance) = (JobKey::default(), InstanceKey::default());
        let runs = AttemptState::Running { job, instance, began: Time::ZERO };
        let failed = AttemptState::Failed { instance, at: at(1), failure: Failure::Instance };
        let (wanted, over) = (AttemptState::Wanted, AttemptState::Over);
        let want = |of, why| Step::Want { model: model(of), why };
        let wait = |millis| Step::Wait { until: at(millis) };
        let gave_up = Step::GiveUp(Reject::Failed(Failure::Instance));
        let (none, hedge, stand_in) = (Policy::NONE, Policy::HEDGE, Policy::STAND_IN);
        type Row<'a> = (Policy, &'a [(u64, AttemptState)], u64, Step);
        let steps: &[Row<'_>] = &[
            (none, &[], 0, want(1, Why::First)),
            (none, &[(1, wanted)], 0, wait(320)),
            (none, &[(1, runs)], 100, wait(320)),
            (none, &[(1, runs)], 320, Step::GiveUp(Reject::Deadline)),
            (none, &[(1, failed)], 1, want(1, Why::Retry)),
            (none, &[(1, failed), (1, failed), (1, failed)], 1, gave_up),
            (Policy::ONCE, &[(1, failed)], 1, gave_up),
            (Policy::REPLICATE, &[(1, runs)], 0, want(1, Why::Copy)),
            (Policy::REPLICATE, &[(1, runs), (1, runs)], 0, wait(320)),
            (Policy::REPLICATE, &[(1, failed), (1, runs)], 0, wait(320)),
            (hedge, &[(1, runs)], 0, wait(40)),
            (hedge, &[(1, runs)], 40, want(1, Why::Hedge)),
            (hedge, &[(1, runs), (1, wanted)], 40, wait(320)),
            (hedge, &[(1, runs), (1, runs), (1, runs)], 40, wait(320)),
            (stand_in, &[(1, runs)], 0, wait(23)),
            (stand_in, &[(1, wanted)], 23, want(2, Why::StandIn)),
            (stand_in, &[(1, over), (2, runs)], 24, wait(320)),
            (stand_in, &[(1, over), (2, failed)], 24, want(1, Why::First)),
            (stand_in, &[(1, runs), (2, runs)], 24, wait(40)),
        ];
        for (policy, attempts, now, expected) in steps {
            let next = step(&query(attempts), &facts(*policy), at(*now));
            assert_eq!(next, *expected, "{attempts:?} at {now} under {policy:?}");
        }
    }

    #[test]
    fn limits_delay_a_step_and_are_looked_at_again() {
        let (job, instance) = (JobKey::default(), InstanceKey::default());
        let runs = query(&[(1, AttemptState::Running { job, instance, began: Time::ZERO })]);
        let full = Facts { may_copy: false, ..facts(Policy::HEDGE) };
        assert_eq!(step(&runs, &full, at(80)), Step::Wait { until: at(90) });

        let mut offered = query(&[(1, AttemptState::Over), (2, AttemptState::Over)]);
        offered.offer = Some(());
        let mut facts = facts(Policy::STAND_IN);
        assert_eq!(step(&offered, &facts, at(24)), Step::Wait { until: at(25) });
        assert_eq!(step(&offered, &facts, at(25)), Step::GiveOffer);
        facts.stand_in.as_mut().expect("it has one").has_room = false;
        let again = step(&offered, &facts, at(25));
        assert_eq!(
            again,
            Step::Want { model: model(1), why: Why::First },
            "without room the model itself answers"
        );
        offered.accept = Accept::Exact;
        assert_eq!(step(&offered, &facts, at(25)), Step::Want { model: model(1), why: Why::First });
    }
}
