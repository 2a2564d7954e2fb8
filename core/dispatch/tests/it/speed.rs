//! Placement by speed: slow instances stay idle only while faster ones serve the queries.

use std::time::Duration;

use parm_dispatch::{
    Action, Class, Event, Failure, Grant, InstanceId, Note, Order, PoolId, QuerySpec, Role, Token,
};
use parm_settings::{BudgetSettings, Fraction, HedgeSettings, PolicyKind, PoolSettings};

use super::schedule::complete_all;
use super::script::Step::{Join, Quiet, Wait, Warm};
use super::script::{act, one_by_one, play, query};
use super::servers::{Servers, ms};
use super::world::POOL;

/// The factor of a slow instance, in twenties of a millisecond.
const SLOW: u64 = 48;

fn policy(policy: PolicyKind) -> PoolSettings {
    PoolSettings { policy, ..one_by_one() }
}

fn without_hedges() -> PoolSettings {
    let budget = BudgetSettings { ratio: Fraction::percent(0), burst: 0 };
    PoolSettings { hedge: HedgeSettings { budget, ..HedgeSettings::default() }, ..one_by_one() }
}

/// Servers whose speeds are known. The last of these times is that of a slow one, which has been idle for two seconds.
fn known(settings: PoolSettings, takes: &[u64]) -> Servers {
    let mut servers = Servers::new(settings, takes);
    servers.load(takes.len() as u32, ms(60), ms(6000));
    servers.pass(ms(2000));
    servers
}

#[test]
fn healed_instance_takes_its_share_again_within_three_seconds() {
    let mut servers = Servers::new(policy(PolicyKind::Hedge), &[SLOW, 20, 20, 20, 20, 20]);
    servers.load(1, ms(10), ms(10_000));
    let slow = servers.world.now;
    servers.load(1, ms(10), ms(2000));
    let deployed = |servers: &Servers, from| {
        let own = servers.started(from).filter(|job| job.role == Role::Deployed);
        own.fold([0; 2], |[own, all], job| [own + u32::from(job.instance == 1), all + 1])
    };
    assert_eq!(deployed(&servers, slow)[0], 0, "it was left idle");
    servers.takes(1, 20);
    servers.load(1, ms(10), ms(3000));
    let healed = servers.world.now;
    servers.load(1, ms(10), ms(3000));
    let [own, all] = deployed(&servers, healed);
    assert!(own * 6 * 10 >= all * 9, "{own} of {all} queries ran on one of six instances");
}

#[test]
fn slow_instance_is_avoided_within_ten_answers() {
    let mut servers = Servers::new(policy(PolicyKind::Hedge), &[20; 6]);
    servers.load(1, ms(10), ms(6000));
    let slow = servers.world.now;
    servers.takes(1, SLOW);
    servers.load(1, ms(10), ms(10_000));
    let runs = servers.started(slow).filter(|job| job.instance == 1);
    let last = runs.enumerate().filter(|(_, job)| job.role == Role::Deployed).last();
    assert!(last.is_some_and(|(before, _)| before < 10), "{last:?}");
}

#[test]
fn no_client_waits_for_an_exploring_copy() {
    for kind in [PolicyKind::None, PolicyKind::Hedge, PolicyKind::ParmPlus, PolicyKind::StandIn] {
        let mut servers = known(policy(kind), &[20, 20, 20, SLOW]);
        servers.hangs(4);
        let from = servers.world.now;
        let queries: Vec<_> = (0..40)
            .map(|_| {
                let (query, arrived) = (servers.query(), servers.world.now);
                servers.pass(ms(50));
                (query, arrived)
            })
            .collect();
        let at_slow: Vec<_> = servers.started(from).filter(|job| job.instance == 4).collect();
        assert!(
            at_slow.iter().all(|job| job.role == Role::Copy) && !at_slow.is_empty(),
            "{kind:?}: {at_slow:?}"
        );
        for (query, arrived) in queries {
            let took = servers.answered(query).map(|at| at.since(arrived));
            assert!(took.is_some_and(|took| took <= ms(21)), "{kind:?}: {query:?} {took:?}");
        }
    }
}

#[test]
fn failed_query_is_tried_again_at_once_while_a_copy_explores() {
    let mut servers = known(without_hedges(), &[20, 20, 20, SLOW]);
    servers.hangs(4);
    let query = servers.query();
    assert!(servers.job_at(4).is_some(), "a copy explores the slow instance");
    let job = servers.first_job_of(query);
    servers.send(Event::JobFailed(job, Failure::Instance));
    let now = servers.world.now;
    servers.pass(ms(30));
    let took = servers.answered(query).map(|at| at.since(now));
    assert!(took.is_some_and(|took| took <= ms(21)), "{took:?}");
}

#[test]
fn late_query_is_hedged_while_a_copy_explores() {
    let took = |explored: bool| {
        let mut servers = known(policy(PolicyKind::Hedge), &[20, 20, 20, SLOW]);
        if !explored {
            servers.send(Event::InstanceLeft(InstanceId(4)));
        }
        (1..=4).for_each(|number| servers.hangs(number));
        let query = servers.query();
        assert_eq!(servers.world.running().count(), 1 + usize::from(explored));
        let now = servers.world.now;
        (1..=3).for_each(|number| servers.takes(number, 20));
        servers.pass(ms(500));
        servers.answered(query).map(|at| at.since(now))
    };
    assert_eq!(took(true), took(false), "the copy on a hung instance delays the hedge");
}

#[test]
fn failure_of_an_exploring_copy_is_no_attempt() {
    let settings = PoolSettings { max_attempts: 2.try_into().unwrap(), ..one_by_one() };
    let mut servers = known(settings, &[20, 20, 20, SLOW]);
    let query = servers.query();
    let copy = servers.job_at(4).expect("a copy explores the slow instance");
    servers.send(Event::JobFailed(copy, Failure::Instance));
    let job = servers.first_job_of(query);
    servers.send(Event::JobFailed(job, Failure::Instance));
    servers.pass(ms(100));
    assert!(servers.answered(query).is_some());
}

#[test]
fn query_takes_slow_instance_while_another_model_has_the_fast() {
    let other = PoolId(1);
    let mut servers = Servers::without(policy(PolicyKind::Hedge));
    servers.join(1, 1, &[POOL, other], 20);
    servers.join(2, 1, &[POOL], SLOW);
    for _ in 0..100 {
        servers.query();
        servers.query();
        servers.pass(ms(80));
        servers.query_of(other, ms(1000), 1);
        servers.pass(ms(30));
    }
    // The other model is urgent and keeps the fast instance busy.
    let before: Vec<_> = (0..100).map(|_| servers.query_of(other, ms(10_000), 1)).collect();
    let query = servers.query_of(POOL, ms(1000), 0);
    servers.pass(ms(1000));
    assert!(servers.answered(before[99]).is_none());
    assert!(servers.answered(query).is_some());
}

#[test]
fn query_takes_a_free_slot_of_a_fast_instance() {
    let mut servers = Servers::without(policy(PolicyKind::None));
    servers.join(1, 3, &[POOL], 20);
    servers.join(2, 2, &[POOL], SLOW);
    servers.load(5, ms(80), ms(8000));
    servers.load(1, ms(500), ms(2000));
    // Three runs on the fast instance, and one on the slow one.
    [1, 2].into_iter().for_each(|number| servers.hangs(number));
    servers.queries(4);
    servers.pass(ms(200));
    assert_eq!(servers.world.running().count(), 4);
    servers.send(Event::JobCompleted(servers.job_at(1).unwrap()));
    servers.takes(1, 20);
    let (query, now) = (servers.query(), servers.world.now);
    servers.pass(ms(5000));
    let took = servers.answered(query).map(|at| at.since(now));
    assert!(took.is_some_and(|took| took <= ms(21)), "{took:?}");
}

#[test]
fn query_takes_a_free_slot_of_the_faster_of_two_slow_instances() {
    let mut servers = Servers::without(policy(PolicyKind::None));
    servers.join(1, 1, &[POOL], 20);
    servers.join(2, 2, &[POOL], 30);
    servers.join(3, 2, &[POOL], 55);
    servers.load(5, ms(80), ms(8000));
    servers.load(1, ms(500), ms(2000));
    [1, 2].into_iter().for_each(|number| servers.hangs(number));
    servers.queries(2);
    servers.pass(ms(200));
    assert_eq!([1, 2, 3].map(|number| servers.job_at(number).is_some()), [true, true, false]);
    assert_eq!(servers.world.running().count(), 2);
    servers.takes(2, 30);
    let (query, now) = (servers.query(), servers.world.now);
    servers.pass(ms(5000));
    let took = servers.answered(query).map(|at| at.since(now));
    assert!(took.is_some_and(|took| took <= ms(31)), "{took:?}");
}

#[test]
fn oldest_query_goes_first_when_the_fast_instance_hangs() {
    let mut servers = known(policy(PolicyKind::None), &[20, SLOW]);
    servers.hangs(1);
    servers.query();
    servers.pass(ms(1000));
    let first = servers.query();
    let (second, now) = (servers.query(), servers.world.now);
    for _ in 0..100 {
        servers.pass(Duration::from_micros(46_500));
        servers.query();
    }
    let took = [first, second].map(|query| servers.answered(query).map(|at| at.since(now)));
    assert!(took.iter().all(|took| took.is_some_and(|took| took <= ms(200))), "{took:?}");
}

#[test]
fn waiting_for_runs_of_a_nanosecond_ends() {
    let settings = PoolSettings { ahead: Duration::ZERO, ..policy(PolicyKind::None) };
    let mut servers = Servers::new(settings, &[1, 1]);
    let ns = Duration::from_nanos;
    [(1, 1), (2, 20)].into_iter().for_each(|(number, takes)| servers.takes_so_long(number, ns(takes)));
    servers.load(2, ms(1), ms(300));
    servers.hangs(1);
    servers.queries(2);
    servers.pass(ms(100));
    assert_eq!(servers.world.running().count(), 1, "the slow instance ran the other query");
}

#[test]
fn query_waits_only_while_a_slow_instance_is_in_time() {
    let mut servers = known(policy(PolicyKind::None), &[20, SLOW]);
    // It explores the slow instance, which is idle again then.
    servers.query();
    servers.pass(ms(100));
    servers.hangs(1);
    servers.query();
    servers.pass(ms(5));
    // The fast instance is expected to answer it sooner, and hangs.
    let query = servers.query_of(POOL, ms(60), 0);
    servers.pass(ms(100));
    assert!(servers.answered(query).is_some());
}

#[test]
fn exploring_copies_do_not_count_as_times_of_the_model() {
    let mut servers = known(policy(PolicyKind::Hedge), &[20, 20, 20, SLOW]);
    servers.load(1, ms(1000), ms(60_000));
    let [median, high] = servers.world.dispatcher.service(POOL).expect("known");
    assert!(median < ms(22) && high < ms(22), "{median:?} {high:?}");
}

#[test]
fn runs_after_one_without_a_time_eject_no_instance() {
    let mut settings = policy(PolicyKind::None);
    settings.ejection.slow_start = Duration::ZERO;
    let fleet = [Join(1), Warm(80), Join(2), Join(3), Quiet];
    let mut world = play(settings, &fleet);
    // The first run of this size takes no time, such as one that a cache answers.
    for (id, takes) in (101..).zip([0].into_iter().chain([20; 30])) {
        let deadline = world.now + Duration::from_secs(1);
        world.send(Event::QueryArrived(QuerySpec { size: 2, ..query(id, deadline) }));
        act(&mut world, &Wait(takes));
        complete_all(&mut world);
    }
    let ejected = world.log.iter().find(|(_, action)| matches!(action, Action::Ejected(..)));
    assert_eq!(ejected, None);
}

#[test]
fn small_runs_between_large_ones_make_no_instance_slow() {
    let mut settings = policy(PolicyKind::None);
    settings.ejection.slow_start = Duration::ZERO;
    let mut world = play(settings, &[Join(1), Join(2), Join(3), Quiet]);
    // Three of five runs are fifty times shorter than the others, so that the median is theirs.
    for id in 0..300 {
        let (size, takes) = if id % 5 < 3 { (1, 2) } else { (50, 100) };
        let deadline = world.now + Duration::from_secs(1);
        world.send(Event::QueryArrived(QuerySpec { size, ..query(id, deadline) }));
        act(&mut world, &Wait(takes));
        complete_all(&mut world);
    }
    let blamed = |action: &Action| matches!(action, Action::Ejected(..) | Action::Kept(..));
    assert_eq!(world.log.iter().find(|(_, action)| blamed(action)), None);
}

#[test]
fn retry_reserves_at_a_slow_instance_when_a_fast_one_failed_it() {
    let mut servers = known(policy(PolicyKind::Hedge), &[20, SLOW]);
    // A copy explores the slow instance, so that none is due for a while.
    servers.query();
    servers.pass(ms(60));
    [1, 2].into_iter().for_each(|id| servers.send(Event::TokensOffered(InstanceId(id))));
    let grant = |servers: &mut Servers, id, met| {
        let grant =
            Grant { token: Token(id), lease: None, contended: false, reserved: false, sharers: 2, met };
        servers.send(Event::TokenGranted(InstanceId(id), grant));
    };
    grant(&mut servers, 1, Note(0));
    let query = servers.query();
    let job = servers.first_job_of(query);
    let now = servers.world.now;
    servers.send(Event::JobFailed(job, Failure::Instance));
    let reserves =
        servers.world.log.iter().filter(|(at, _)| *at >= now).find_map(|(_, action)| match action {
            Action::Tell(InstanceId(2), Order::Reserve(_, Class::Late, note, _)) => Some(*note),
            _ => None,
        });
    let note = reserves.expect("the slow instance is the only one that has not failed the query");
    grant(&mut servers, 2, note);
    assert_eq!(servers.job_at(2), Some(servers.first_job_of(query)));
}
