//! Load shedding under overload: the rejected queries, and those that are left.

use std::time::Duration;

use parm_settings::{EjectionSettings, PolicyKind, PoolSettings};

use super::script::Step::{self, *};
use super::script::{one_by_one, play, words};

fn plain() -> PoolSettings {
    let ejection = EjectionSettings { slow_start: Duration::ZERO, ..EjectionSettings::default() };
    PoolSettings { policy: PolicyKind::None, ejection, ..one_by_one() }
}

/// Sends this many queries every 20 ms, with this deadline, to an instance that takes 20 ms. Returns the actions after
/// its times became known.
fn asked(settings: PoolSettings, times: u64, each: u64, within_ms: u64) -> Vec<String> {
    let mut steps = vec![Join(1), Warm(32), Quiet];
    for turn in 0..times {
        steps.extend((0..each).map(|nth| Within(1000 + each * turn + nth, within_ms)));
        steps.extend([Wait(20), Done(1)]);
    }
    words(&play(settings, &steps))
}

fn count(words: &[String], what: &str) -> usize {
    words.iter().filter(|word| word.contains("answer") && word.ends_with(what)).count()
}

#[test]
fn capacity_stays_used_under_three_times_the_load() {
    for policy in [PolicyKind::None, PolicyKind::Hedge, PolicyKind::Equal] {
        let words = asked(PoolSettings { policy, ..plain() }, 200, 3, 100);
        let (exact, given_up) = (count(&words, "exact"), count(&words, "Overload"));
        assert!(exact >= 190, "{policy:?}: {exact} of 200 runs were in time");
        assert!(given_up >= 300, "{policy:?}: {given_up}");
        assert!(
            count(&words, "Deadline") <= 10,
            "{} queries wait until they expire",
            count(&words, "Deadline")
        );
    }
}

#[test]
fn burst_within_capacity_loses_no_query() {
    let mut steps = vec![Join(1), Warm(32), Quiet];
    steps.extend((1..=4).map(|id| Within(id, 100)));
    steps.extend((0..4).flat_map(|_| [Wait(20), Done(1)]));
    let words = words(&play(plain(), &steps));
    assert_eq!(count(&words, "exact"), 4, "{words:?}");
}

#[test]
fn deadlines_shorter_than_a_run_change_nothing() {
    let words = asked(plain(), 20, 2, 15);
    assert_eq!(count(&words, "Overload"), 0, "{words:?}");
    assert_eq!(words.iter().filter(|word| word.contains("run")).count(), 20, "{words:?}");
}

#[test]
fn no_query_is_shed_while_times_are_unknown() {
    let mut steps: Vec<Step> = vec![Join(1)];
    steps.extend((1..=20).map(|id| Within(id, 100)));
    steps.extend([Wait(90), Done(1)]);
    let words = words(&play(plain(), &steps));
    assert_eq!(count(&words, "Overload"), 0, "{words:?}");
}

#[test]
fn shed_query_gets_the_default_answer() {
    let words = asked(PoolSettings { default_answer: true, ..plain() }, 100, 3, 100);
    assert_eq!(count(&words, "Overload"), 0);
    assert!(count(&words, "default") >= 150, "{}", count(&words, "default"));
}

#[test]
fn default_answer_is_given_when_the_deadline_has_passed_already() {
    let settings = PoolSettings { default_answer: true, ..plain() };
    let words = words(&play(settings, &[Join(1), Within(1, 0), Wait(1)]));
    assert_eq!(count(&words, "default"), 1, "{words:?}");
}
