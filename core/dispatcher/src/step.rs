//! What a query needs next: the one rule of all policies.
//!
//! [`step`] is asked after each event that concerns the query, and when the moment that it named has come. It decides from
//! what is, not from what just happened, so it does not matter which event led to it, and asking twice does no harm.

use std::time::Duration;

use crate::Time;
use crate::counters::Limits;
use crate::model::ModelKey;
use crate::policy::Policy;
use crate::query::{Accept, Attempt, AttemptState, By, Failure, Query, Reject, Why};

/// What a query needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Give the approximate answer that is ready.
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
    /// Whether the model has no second instance, which could show whether the query or the instance is at fault.
    pub(crate) is_sole: bool,
    /// In the future while a copy does not pay, which is when to ask again; see `Books::copy_at`.
    pub(crate) copy_at: Time,
    /// Whether a copy may be wanted now: the budget has a token, and few queries wait.
    pub(crate) may_copy: bool,
    /// Whether the budget of retries has a token.
    pub(crate) may_retry: bool,
    /// From when on a query that waits cannot be in time, or has waited long enough while no instance of its model is usable.
    pub(crate) gives_up: (Time, Reject),
    /// From when on an approximate answer may be given.
    pub(crate) give_at: Time,
    /// Whether the bounds on approximate answers have room: the model's and the client's.
    pub(crate) has_room: bool,
    /// The stand-in, if the model has one that runs anywhere, and from when on the query is late enough for it.
    pub(crate) stand_in: Option<(ModelKey, Time)>,
}

/// A limit that does not name the moment at which it ends (a budget, the bound, a backlog) is looked at again after this
/// part of the query's age, and at the latest after this time: a query that hangs has waited long enough when the limit ends.
const AGAIN: u32 = 8;
const LEAST: Duration = Duration::from_micros(100);
const MOST: Duration = Duration::from_millis(100);

/// Says what a query needs next, and notes the limits that keep it back.
pub(crate) fn step<P, O>(query: &Query<P, O>, facts: &Facts, now: Time, limits: &mut Limits) -> Step {
    let again = again(query, now);
    let mut until = query.deadline;

    let other = query.attempts.iter().find(|attempt| attempt.model != query.model);
    let stand_in_lives = other.is_some_and(|attempt| attempt.is_live());
    let failures = || query.exact().filter_map(|attempt| attempt.failure());
    // A wanted run of a query that can no longer be sent would only fail.
    let is_withheld = failures().any(|failure| failure == Failure::Withheld);
    let is_live = |attempt: &&Attempt| attempt.is_live() && !(is_withheld && attempt.is_wanted());
    let live = query.exact().filter(is_live).count();
    let is_exact = query.accept.is_exact(&facts.policy);
    let stand_in = facts.stand_in.filter(|_| !is_exact);
    // The bounds count stand-ins. A reconstruction is not counted, so clients with a bound of their own get none.
    let has_room = |by| match by {
        By::Reconstruction => query.accept == Accept::Any,
        _ => !is_exact && facts.has_room,
    };
    let offer = query.offer.as_ref().map(|offer| has_room(offer.by));
    if let Some(has_room) = offer {
        let nothing_comes = live == 0 && !stand_in_lives;
        let give_at = facts.give_at.min(last_moment(query));
        if has_room && (nothing_comes || give_at <= now) {
            return Step::GiveOffer;
        }
        limits.bound |= !has_room && give_at <= now;
        until = until.min(if has_room { give_at } else { again });
    }
    if query.deadline <= now {
        return Step::GiveUp(Reject::Deadline);
    }

    // Until twice the late age a stand-in is expected to answer, so nothing else starts. Later its instance may hang.
    let stand_in_fails_at = query.arrived + 2 * facts.give_at.since(query.arrived);
    let may_stand_in = stand_in.is_some() && facts.has_room && now < stand_in_fails_at;
    let will_be_answered = offer == Some(true) || (stand_in_lives && may_stand_in);
    // It may still answer, however late, so the query is not given up.
    let may_be_answered = stand_in_lives && stand_in.is_some() && facts.has_room;
    let stand_in_runs = other.is_some_and(|attempt| attempt.running().is_some());
    let tried = query.exact().filter(|attempt| is_attempt(attempt, &facts.policy)).count();
    let is_wanted = !is_withheld && query.wanted(query.model).is_some();
    let may_repeat = tried < usize::from(facts.max_attempts)
        && !is_withheld
        && (facts.policy.repeats || (live == 0 && failures().all(|failure| failure == Failure::Unsent)));

    if live == 0 && !will_be_answered {
        let Some(failure) = failures().last() else {
            return Step::Want { model: query.model, why: Why::First };
        };
        return match failure {
            Failure::Query => Step::GiveUp(Reject::BadQuery),
            Failure::Model if is_at_fault(query, !may_repeat || facts.is_sole) => {
                Step::GiveUp(Reject::BadQuery)
            }
            _ if may_repeat && facts.may_retry => Step::Want { model: query.model, why: Why::Retry },
            failure => {
                limits.retries |= may_repeat;
                match (stand_in, other) {
                    // An approximate answer is better than none.
                    (Some((model, _)), None) if facts.has_room => Step::Want { model, why: Why::StandIn },
                    _ if may_be_answered => Step::Wait { until },
                    _ => Step::GiveUp(Reject::Failed(failure)),
                }
            }
        };
    }
    if live > 0 && tried < usize::from(facts.policy.runs) && !is_wanted {
        return Step::Want { model: query.model, why: Why::Copy };
    }
    let hedge_waits = may_stand_in && (other.is_none() || will_be_answered);
    if facts.policy.hedge && may_repeat && live > 0 && !is_wanted && !hedge_waits {
        match facts.copy_at {
            at if at > now => until = until.min(at),
            _ if facts.may_copy => return Step::Want { model: query.model, why: Why::Hedge },
            _ => {
                limits.hedges = true;
                until = until.min(again);
            }
        }
    }
    if hedge_waits {
        until = until.min(stand_in_fails_at);
    }
    if let (Some((model, late_at)), None) = (stand_in, other) {
        match late_at {
            at if at > now => until = until.min(at),
            _ if facts.has_room => return Step::Want { model, why: Why::StandIn },
            _ => {
                limits.bound = true;
                until = until.min(again);
            }
        }
    }
    if is_wanted && live == 1 && !will_be_answered && !(may_be_answered && stand_in_runs) {
        match facts.gives_up {
            (at, why) if at <= now => return Step::GiveUp(why),
            (at, _) => until = until.min(at),
        }
    }
    Step::Wait { until }
}

/// Whether the model failed on a query at two instances, or twice if the query can go nowhere else.
fn is_at_fault<P, O>(query: &Query<P, O>, goes_nowhere_else: bool) -> bool {
    let at = query.model_failures();
    at.len() > 1 && (goes_nowhere_else || at.iter().any(|own| *own != at[0]))
}

/// When a limit that keeps a query back is looked at again.
pub(crate) fn again<P, O>(query: &Query<P, O>, now: Time) -> Time {
    now + (now.since(query.arrived) / AGAIN).clamp(LEAST, MOST)
}

/// Whether an attempt counts for the most that a query may have. Where it is sent once, an instance that did not get it did not.
fn is_attempt(attempt: &Attempt, policy: &Policy) -> bool {
    match attempt.state {
        AttemptState::Over => false,
        AttemptState::Failed { failure: Failure::Unsent, .. } => policy.repeats,
        _ => true,
    }
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
    use crate::query::{Answer, JobKey, Submission};
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
        let attempts = attempts.iter().map(attempt).collect();
        Query { attempts, ..Query::new(Submission::new(model(1), (), at(320)), Time::ZERO) }
    }

    fn next(query: &Query<(), ()>, facts: &Facts, now: Time) -> Step {
        step(query, facts, now, &mut Limits::default())
    }

    fn facts(policy: Policy) -> Facts {
        Facts {
            policy,
            max_attempts: 3,
            is_sole: false,
            copy_at: at(40),
            may_copy: true,
            may_retry: true,
            gives_up: (at(300), Reject::Overload),
            give_at: at(25),
            has_room: true,
            stand_in: policy.stand_in.map(|_| (model(2), at(23))),
        }
    }

    #[test]
    fn each_situation_has_its_step() {
        let (job, instance) = (JobKey::default(), InstanceKey::default());
        let runs = AttemptState::Running { job, instance, began: Time::ZERO };
        let fails = |failure| AttemptState::Failed { instance, at: at(1), failure };
        let failed = fails(Failure::Instance);
        let (bad, unsent) = (fails(Failure::Model), fails(Failure::Unsent));
        let other = KeyData::from_ffi(1 << 32 | 7).into();
        let elsewhere = AttemptState::Failed { instance: other, at: at(1), failure: Failure::Model };
        let (wanted, over) = (AttemptState::Wanted, AttemptState::Over);
        let want = |of, why| Step::Want { model: model(of), why };
        let wait = |millis| Step::Wait { until: at(millis) };
        let gave_up = Step::GiveUp(Reject::Failed(Failure::Instance));
        let withheld = Step::GiveUp(Reject::Failed(Failure::Withheld));
        let (none, hedge, stand_in) = (Policy::NONE, Policy::HEDGE, Policy::STAND_IN);
        type Row<'a> = (Policy, &'a [(u64, AttemptState)], u64, Step);
        let steps: &[Row<'_>] = &[
            (none, &[], 0, want(1, Why::First)),
            (none, &[(1, wanted)], 0, wait(300)),
            (none, &[(1, wanted)], 300, Step::GiveUp(Reject::Overload)),
            (none, &[(1, runs)], 100, wait(320)),
            (none, &[(1, runs)], 320, Step::GiveUp(Reject::Deadline)),
            (none, &[(1, failed)], 1, want(1, Why::Retry)),
            (none, &[(1, failed), (1, failed), (1, failed)], 1, gave_up),
            (none, &[(1, bad)], 1, want(1, Why::Retry)),
            (none, &[(1, bad), (1, bad)], 1, want(1, Why::Retry)),
            (none, &[(1, bad), (1, bad), (1, bad)], 1, Step::GiveUp(Reject::BadQuery)),
            (none, &[(1, bad), (1, elsewhere)], 1, Step::GiveUp(Reject::BadQuery)),
            (none, &[(1, fails(Failure::Query))], 1, Step::GiveUp(Reject::BadQuery)),
            (none, &[(1, fails(Failure::Withheld))], 1, withheld),
            (Policy::ONCE, &[(1, failed)], 1, gave_up),
            (Policy::ONCE, &[(1, unsent)], 1, want(1, Why::Retry)),
            (Policy::ONCE, &[(1, unsent), (1, unsent), (1, unsent)], 1, want(1, Why::Retry)),
            (Policy::ONCE, &[(1, unsent), (1, failed)], 1, gave_up),
            (Policy::REPLICATE, &[(1, runs)], 0, want(1, Why::Copy)),
            (Policy::REPLICATE, &[(1, runs), (1, runs)], 0, wait(320)),
            (Policy::REPLICATE, &[(1, failed), (1, runs)], 0, wait(320)),
            (hedge, &[(1, runs)], 0, wait(40)),
            (hedge, &[(1, runs)], 40, want(1, Why::Hedge)),
            (hedge, &[(1, runs), (1, wanted)], 40, wait(320)),
            (hedge, &[(1, runs), (1, runs), (1, runs)], 40, wait(320)),
            (stand_in, &[(1, runs)], 0, wait(23)),
            (stand_in, &[(1, wanted)], 23, want(2, Why::StandIn)),
            (stand_in, &[(1, over), (2, runs)], 24, wait(50)),
            (stand_in, &[(1, over), (2, runs)], 50, want(1, Why::First)),
            (stand_in, &[(1, over), (2, failed)], 24, want(1, Why::First)),
            (stand_in, &[(1, runs), (2, runs)], 24, wait(50)),
            (stand_in, &[(1, runs), (2, runs)], 50, want(1, Why::Hedge)),
            (stand_in, &[(1, wanted), (2, runs)], 310, wait(320)),
            (stand_in, &[(1, bad), (1, failed), (1, failed)], 2, want(2, Why::StandIn)),
            (stand_in, &[(1, failed), (1, failed), (1, failed), (2, runs)], 24, wait(50)),
            (stand_in, &[(1, failed), (1, failed), (1, failed), (2, runs)], 100, wait(320)),
            (stand_in, &[(1, failed), (1, failed), (1, failed), (2, failed)], 100, gave_up),
            (hedge, &[(1, fails(Failure::Withheld)), (1, wanted)], 50, withheld),
            (hedge, &[(1, runs), (1, fails(Failure::Withheld)), (1, wanted)], 50, wait(320)),
        ];
        for (policy, attempts, now, expected) in steps {
            let next = next(&query(attempts), &facts(*policy), at(*now));
            assert_eq!(next, *expected, "{attempts:?} at {now} under {policy:?}");
        }
        // Nobody else can show who is at fault.
        let sole = Facts { is_sole: true, ..facts(none) };
        let twice = query(&[(1, bad), (1, bad)]);
        assert_eq!(next(&twice, &sole, at(1)), Step::GiveUp(Reject::BadQuery));
    }

    #[test]
    fn limits_delay_a_step_and_are_looked_at_again() {
        let (job, instance) = (JobKey::default(), InstanceKey::default());
        let runs = query(&[(1, AttemptState::Running { job, instance, began: Time::ZERO })]);
        let full = Facts { may_copy: false, ..facts(Policy::HEDGE) };
        assert_eq!(next(&runs, &full, at(80)), Step::Wait { until: at(90) });
        let mut patient = runs;
        patient.asked.deadline = at(100_000);
        assert_eq!(next(&patient, &full, at(60_000)), Step::Wait { until: at(60_100) });

        let runs = AttemptState::Running { job, instance, began: Time::ZERO };
        let mut facts = facts(Policy::STAND_IN);
        let mut offered = query(&[(1, runs), (2, AttemptState::Over)]);
        offered.offer = Some(Answer { output: (), by: By::StandIn });
        assert_eq!(next(&offered, &facts, at(24)), Step::Wait { until: at(25) });
        assert_eq!(next(&offered, &facts, at(25)), Step::GiveOffer);
        offered.attempts[0].state = AttemptState::Over;
        assert_eq!(next(&offered, &facts, at(1)), Step::GiveOffer, "nothing else comes");
        facts.has_room = false;
        let first = Step::Want { model: model(1), why: Why::First };
        assert_eq!(next(&offered, &facts, at(25)), first, "without room the model itself answers");
        offered.offer = Some(Answer { output: (), by: By::Reconstruction });
        assert_eq!(next(&offered, &facts, at(25)), Step::GiveOffer, "the bound does not count it");
        for accept in [Accept::Exact, Accept::AtMost(100)] {
            offered.asked.accept = accept;
            let facts = Facts { policy: Policy::PARM_PLUS, stand_in: None, ..facts };
            assert_eq!(next(&offered, &facts, at(25)), first, "{accept:?}");
        }
    }
}
