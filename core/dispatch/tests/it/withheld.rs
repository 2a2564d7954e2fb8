//! Queries that can no longer run twice, because their clients have sent too much to hold.

use parm_dispatch::{Action, Answer, Event, Failure, JobId, QueryId, Reject, Role};
use parm_settings::{PolicyKind, PoolSettings};

use super::script::one_by_one;
use super::servers::{Servers, ms};
use super::world::{Fate, POOL};

/// Servers with known times, the next query of which takes two seconds.
fn slow_next() -> (Servers, QueryId, JobId) {
    let mut servers = Servers::new(PoolSettings { policy: PolicyKind::Hedge, ..one_by_one() }, &[20; 3]);
    servers.load(3, ms(60), ms(6000));
    servers.pass(ms(1000));
    (1..=3).for_each(|number| servers.takes(number, 2000));
    let query = servers.query();
    let first = servers.first_job_of(query);
    (servers, query, first)
}

fn copies(servers: &Servers) -> Vec<JobId> {
    servers.world.running().filter(|(_, held)| held.job.role == Role::Copy).map(|(job, _)| *job).collect()
}

/// Instances that were ejected.
fn ejected(servers: &Servers) -> usize {
    servers.world.log.iter().filter(|(_, action)| matches!(action, Action::Ejected(..))).count()
}

#[test]
fn withheld_copy_leaves_its_query_to_the_first_job() {
    let (mut servers, query, first) = slow_next();
    let began = servers.world.now;
    servers.pass(ms(200));
    let late = copies(&servers);
    assert!(!late.is_empty(), "the query is late");
    let before = ejected(&servers);
    late.into_iter().for_each(|copy| servers.send(Event::JobFailed(copy, Failure::Withheld)));
    assert_eq!(ejected(&servers), before, "no instance is at fault");
    servers.pass(ms(1500));
    assert_eq!(copies(&servers), [], "there is no further copy");
    servers.send(Event::JobCompleted(first));
    assert!(servers.answered(query).is_some_and(|at| at.since(began) >= ms(1700)));
}

#[test]
fn withheld_retry_ends_its_query() {
    let (mut servers, query, first) = slow_next();
    servers.send(Event::JobFailed(first, Failure::Instance));
    let retry = servers.first_job_of(query);
    servers.send(Event::JobFailed(retry, Failure::Withheld));
    let fate = servers.world.queries[&query].fate;
    assert!(matches!(fate, Fate::Answered(Answer::Rejected(Reject::Failed))), "{fate:?}");
}

#[test]
fn waiting_copy_is_dropped_when_its_query_is_withheld() {
    // At some of these times a copy waits, because short runs keep the other servers busy.
    for wait in 0..80 {
        let (mut servers, query, first) = slow_next();
        (1..=3).for_each(|number| servers.takes(number, 20));
        for _ in 0..wait {
            servers.queries(u32::from(servers.world.running().count() < 3));
            servers.pass(ms(1));
        }
        servers.queries(2);
        copies(&servers).into_iter().for_each(|copy| servers.send(Event::JobCompleted(copy)));
        if servers.answered(query).is_some() {
            break;
        }
        servers.send(Event::JobFailed(first, Failure::Withheld));
        let fate = servers.world.queries[&query].fate;
        assert!(
            matches!(fate, Fate::Answered(Answer::Rejected(Reject::Failed))),
            "after {wait} ms: {fate:?}"
        );
    }
}

#[test]
fn withheld_query_ends_when_its_first_job_fails() {
    let (mut servers, query, first) = slow_next();
    let max_attempts = std::num::NonZeroU8::new(9).expect("positive");
    let settings = PoolSettings { max_attempts, policy: PolicyKind::Hedge, ..one_by_one() };
    servers.send(Event::settings(POOL, settings));
    servers.pass(ms(200));
    let late = copies(&servers);
    assert!(!late.is_empty(), "the query is late");
    late.into_iter().for_each(|copy| servers.send(Event::JobFailed(copy, Failure::Withheld)));
    servers.send(Event::JobFailed(first, Failure::Instance));
    let fate = servers.world.queries[&query].fate;
    assert!(matches!(fate, Fate::Answered(Answer::Rejected(Reject::Failed))), "{fate:?}");
}
