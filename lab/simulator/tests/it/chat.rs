//! Replays of traces over chat replicas, compared with times computed by hand and with each other.

use std::time::Duration;

use parm_dispatch::{PolicyKind, PoolSettings};
use parm_simulator::chat::{Balancing, FirstTokens, Replay};
use parm_workload::arrivals::Arrivals;
use parm_workload::chat::{Costs, Timed, Tokens};
use parm_workload::{Fault, Faults, Targets, When};

fn replay(requests: Vec<Timed>, faults: Vec<Fault>) -> Replay {
    Replay { requests, warm_up: 0, replicas: 2, costs: Costs::default(), faults: Faults(faults), seed: 1 }
}

fn at(seconds: f64, prompt: u32) -> Timed {
    Timed { seconds, tokens: Tokens { prompt, output: 2 } }
}

fn dispatched(policy: PolicyKind) -> Balancing {
    Balancing::Dispatched(Box::new(PoolSettings { policy, ..PoolSettings::default() }), 64)
}

/// Prompts of three sizes at this rate.
fn crowd(rate: f64, count: usize) -> Vec<Timed> {
    let times = Arrivals::Poisson { rate }.schedule(3).unwrap();
    let sizes = [100, 300, 1200].into_iter().cycle();
    times.take(count).zip(sizes).map(|(time, prompt)| at(time.as_secs_f64(), prompt)).collect()
}

fn run(replay: &Replay, balancing: &Balancing) -> FirstTokens {
    let result = replay.run(balancing).unwrap();
    assert_eq!(result.failed, 0, "{balancing:?}");
    assert_eq!(result.seconds.len(), replay.requests.len());
    result
}

#[test]
fn first_token_comes_when_the_prompt_is_read() {
    // 18 ms and 0.1 ms for each token; the second request goes to the other replica.
    let replay = replay(vec![at(0.0, 100), at(0.001, 200)], Vec::new());
    for balancing in [Balancing::RoundRobin, Balancing::LeastRequests, dispatched(PolicyKind::Hedge)] {
        let seconds = run(&replay, &balancing).seconds;
        assert!((seconds[0] - 0.028).abs() < 1e-6 && (seconds[1] - 0.038).abs() < 1e-6, "{seconds:?}");
    }
}

#[test]
fn copy_after_a_fixed_time_answers_for_a_still_replica() {
    let still = Fault::Hang {
        when: When::Every {
            at: Duration::ZERO,
            every: Duration::from_secs(1000),
            length: Duration::from_secs(20),
        },
        on: Targets::Only(vec![0]),
    };
    let replay = replay(vec![at(0.0, 100), at(0.5, 100)], vec![still]);
    let slow = run(&replay, &Balancing::LeastRequests).seconds[1];
    let result = run(&replay, &Balancing::FixedHedge(Duration::from_secs(1), 1.0));
    assert!(slow > 19.0 && (result.seconds[1] - 1.028).abs() < 1e-6, "{slow} {:?}", result.seconds);
    assert!((result.extra - 0.5).abs() < 1e-9, "one of two was copied");
}

#[test]
fn dispatcher_avoids_a_slow_replica_and_knows_prompts() {
    let slow = || vec![Fault::Slow { factor: 2.4, when: When::Always, on: Targets::Only(vec![0]) }];
    for faults in [Vec::new(), slow()] {
        let replay = Replay { replicas: 4, ..replay(crowd(28.0, 8000), faults) };
        let fewest = run(&replay, &Balancing::LeastRequests).quantile(0.99);
        let ours = run(&replay, &dispatched(PolicyKind::None)).quantile(0.99);
        assert!(ours < fewest, "{ours} s, least requests {fewest} s");
    }
}

#[test]
fn late_requests_are_copied_while_a_replica_stands_still() {
    let when = || When::Every {
        at: Duration::from_secs(60),
        every: Duration::from_secs(120),
        length: Duration::from_secs(30),
    };
    let still = Fault::Hang { when: when(), on: Targets::Only(vec![0]) };
    let replay = Replay { replicas: 4, ..replay(crowd(12.0, 4000), vec![still]) };
    let [fewest, ours] =
        [Balancing::LeastRequests, dispatched(PolicyKind::Hedge)].map(|by| run(&replay, &by).quantile(0.999));
    assert!(ours < fewest / 5.0, "{ours} s, least requests {fewest} s");
}
