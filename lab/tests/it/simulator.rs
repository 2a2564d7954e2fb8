//! Whole runs: mean latencies that have a closed form, faults that the dispatcher masks, run times that follow the query, and
//! servers that run many requests at a time.

use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};
use std::time::Duration;

use parm_lab::simulator::{Lengths, Outcome, Run};
use parm_lab::tuner::Recording;
use parm_lab::world::{Plan, World};
use parm_settings::recording::RecordedRole;
use parm_settings::{BatchSize, Placement, PolicyKind};
use parm_workload::arrivals::Arrivals;
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;
use parm_workload::{By, Fault, Faults, Scenario, Targets, When};

use crate::support::{SERVICE, exponential, recorded, run, simulate, watched};

/// Asserts that the mean is within four standard errors of theory, and that these are small enough.
fn check(run: &Run, expected: f64) {
    let (mean, error) = simulate(run).mean();
    let off = (mean - expected) / error;
    assert!(off.abs() < 4.0, "mean {mean} s, theory {expected} s: {off:.1} standard errors of {error} s");
    assert!(error < 0.04 * expected, "a standard error of {error} s is too large for {expected} s");
}

#[test]
fn constant_service_waits_as_pollaczek_khinchine_says() {
    for load in [0.5, 0.85] {
        check(&run(1, load), SERVICE + load * SERVICE / (2.0 * (1.0 - load)));
    }
}

#[test]
fn exponential_service_waits_as_erlang_says() {
    for (instances, load) in [(1, 0.6), (4, 0.8), (18, 0.9)] {
        let run = Run { service: exponential(), ..run(instances, load) };
        let wait = erlang_c(instances, load) * SERVICE / (f64::from(instances) * (1.0 - load));
        check(&run, SERVICE + wait);
    }
}

#[test]
fn automatic_batches_leave_exponential_service_alone() {
    // Batches save nothing here, and each estimate of their times is a matter of chance.
    let load = 0.7;
    let expected = SERVICE / (1.0 - load) * 1000_f64.ln();
    for seed in 101..107 {
        let mut run = Run { service: exponential(), seed, ..run(1, load) };
        run.settings.batch.max_size = BatchSize::Auto;
        let tally = simulate(&run);
        let longer = |(nanos, _): &(&u64, &u32)| **nanos as f64 > 2e9 * expected;
        let longer: u32 = tally.blocks().iter().flatten().filter(longer).map(|(_, count)| count).sum();
        assert!(longer < 150, "seed {seed}: {longer} of {} take twice the p99.9 of theory", tally.count());
    }
}

#[test]
fn overloaded_instances_serve_most_of_what_their_batches_can() {
    // A further row takes this share of the first one's time. Batches of 64 are too long for the deadline in the second case.
    for (row_share, load) in [(0.0, 1.2 * 64.0), (0.5, 1.2 * 64.0 / 32.5)] {
        let time_ms = Distribution::Lognormal { median: SERVICE * 1e3, sigma: 0.1 };
        let service = Service { time_ms, row_share, ..Service::default() };
        let mut run = Run { service, deadline: Duration::from_millis(300), ..run(2, load) };
        run.settings.batch.max_size = BatchSize::Auto;
        let tally = simulate(&run);
        let failed = tally.share(Outcome::Failed);
        assert!(failed < 0.3, "{row_share}: {failed}");
    }
}

#[test]
fn first_of_n_exponential_copies_takes_an_nth_of_the_time() {
    for copies in [2, 3, 4] {
        let mut run = Run { service: exponential(), ..run(60, 0.02) };
        run.settings.policy = PolicyKind::Replicate;
        // Chance makes some instances look slower, and by speed a copy would wait for the others.
        run.settings.placement = Placement::Turns;
        run.settings.copies = NonZeroU8::new(copies).unwrap();
        check(&run, SERVICE / f64::from(copies));
    }
}

/// Returns the probability that an arrival waits in M/M/c.
fn erlang_c(instances: u32, load: f64) -> f64 {
    let offered = f64::from(instances) * load;
    let blocked =
        (1..=instances).fold(1.0, |blocked, n| offered * blocked / (f64::from(n) + offered * blocked));
    blocked / (1.0 - load * (1.0 - blocked))
}

#[test]
fn crashed_instance_loses_its_work_and_recovers() {
    let when = When::Every {
        at: Duration::from_secs(10),
        every: Duration::from_secs(20),
        length: Duration::from_secs(5),
    };
    let crash =
        Fault::Crash { when, on: Targets::Only(vec![0]), slow_start: 1.0, slow_start_for: Duration::ZERO };
    let one = |faults| simulate(&Run { faults: Faults(faults), ..run(2, 0.3) });
    let (well, ill) = (one(vec![]), one(vec![crash]));
    // Lost jobs are retried, so nothing fails; the other instance does all work for a quarter of the time.
    assert_eq!(ill.share(Outcome::Failed), 0.0);
    assert!(ill.mean().0 > 1.05 * well.mean().0);
    let work = ill.utilisation() / well.utilisation();
    assert!((0.99..1.02).contains(&work), "the work is the same except for the lost jobs: {work}");
}

#[test]
fn hung_instance_holds_at_most_its_slots() {
    // It hangs forever from one minute on: without hedging, only one query waits for its deadline.
    let when = When::Once { at: Duration::from_secs(60), length: Duration::from_secs(1000000) };
    let hang = Fault::Hang { when, on: Targets::Only(vec![3]) };
    let rejected = |policy| {
        let mut run = Run { faults: Faults(vec![hang.clone()]), ..run(18, 0.5) };
        run.settings.policy = policy;
        let tally = simulate(&run);
        (tally.share(Outcome::Failed) * tally.count() as f64).round() as u64
    };
    assert_eq!(rejected(PolicyKind::Equal), 1);
    assert_eq!(rejected(PolicyKind::Hedge), 0);
}

#[test]
fn wrong_answers_are_counted_and_have_no_other_effect() {
    let wrong = Fault::Wrong { share: 0.5, when: When::Always, on: Targets::Only(vec![0, 1, 2]) };
    let with = simulate(&Run { faults: Faults(vec![wrong]), ..run(18, 0.9) });
    let without = simulate(&run(18, 0.9));
    assert_eq!(with.mean(), without.mean());
    assert!((with.wrong() - 3.0 / 18.0 * 0.5).abs() < 0.01, "{}", with.wrong());
    assert_eq!(without.wrong(), 0.0);
}

#[test]
fn reconstructions_answer_for_instances_that_hang() {
    let when = When::Episodes { share: 0.05, length: Duration::from_secs(2) };
    let faults = Faults(vec![Fault::Hang { when, on: Targets::Each }]);
    let mut run = Run { faults, ..run(18, 0.3) };
    run.settings.policy = PolicyKind::Parm;
    let tally = simulate(&run);
    assert!(tally.share(Outcome::Reconstructed) > 0.0005);
    assert!((0.3..0.7).contains(&tally.extra()), "a parity for every two queries: {}", tally.extra());
}

/// A parity for every two queries on separate instances, with nothing late: its work is the only addition.
#[test]
fn parity_jobs_take_their_configured_time() {
    let busy = |parity_share: f64| {
        let mut run = Run { parity_share, queries: 40_000, warm_up: 0, ..run(18, 0.2) };
        run.settings.policy = PolicyKind::Parm;
        run.settings.coding.parity_instances = NonZeroU32::new(6);
        let tally = simulate(&run);
        (tally.utilisation(), tally.extra())
    };
    let ((once, extra), (twice, _)) = (busy(1.0), busy(2.0));
    let added = (twice - once) / (once / (1.0 + extra));
    assert!((added - extra).abs() < 0.02, "{once} and {twice} with {extra} parities a query");
    assert!(extra > 0.4, "{extra} parities a query");
}

#[test]
fn watcher_sees_every_query_and_job_and_changes_nothing() {
    let mut run = Run { queries: 5_000, warm_up: 1_000, ..run(18, 0.5) };
    run.faults = Scenario::named("AB").unwrap().faults;
    run.settings.policy = PolicyKind::Hedge;
    let (tally, answered) = watched(&run);
    assert_eq!(tally, simulate(&run));
    assert_eq!(answered.len() as u64, tally.count());
    let hedged = answered.iter().filter(|answered| answered.outcome == Outcome::Hedged).count();
    assert_eq!(hedged as f64 / 4_000.0, tally.share(Outcome::Hedged));
    // Jobs that were overtaken may still run when the last query is answered.
    let Recording { arrivals, jobs, .. } = recorded(&run);
    let copies = jobs.iter().filter(|job| job.role == RecordedRole::Copy).count();
    assert!(arrivals.len() == 5_000 && jobs.len() - copies > 4_980 && copies > 10, "{copies} copies");
    assert!(jobs.iter().all(|job| job.took > 0.0 && job.rows == 1));
}

/// Queries of these sizes arrive at once.
fn at_once(factors: &[f64], instances: u32) -> Run {
    let sizes = Fault::Sizes { factors: factors.to_vec(), file: None, on: Targets::Each };
    Run {
        queries: factors.len() as u64,
        warm_up: 0,
        arrivals: Arrivals::Trace { seconds: vec![1.0; factors.len()] },
        faults: Faults(vec![sizes]),
        ..run(instances, 0.5)
    }
}

#[test]
fn copy_takes_as_long_as_the_first_run_of_its_query() {
    let mean = |policy, by| {
        let factor = Distribution::Lognormal { median: 1.0, sigma: 0.5 };
        let faults = Faults(vec![Fault::Straggle { share: 1.0, factor, by, on: Targets::Each }]);
        let mut run = Run { queries: 4_000, warm_up: 0, faults, ..run(40, 0.03) };
        run.settings.policy = policy;
        simulate(&run).mean().0
    };
    let gain = |by| mean(PolicyKind::Replicate, by) / mean(PolicyKind::Equal, by);
    let (query, single) = (gain(By::Query), gain(By::Run));
    assert!((query - 1.0).abs() < 1e-9, "a second run of a long query is as long: {query}");
    assert!(single < 0.85, "the faster of two independent runs: {single}");
}

#[test]
fn batch_takes_as_long_as_its_longest_query() {
    let mut run = at_once(&[1.0, 1.0, 5.0, 1.0], 1);
    run.service = Service { row_share: 0.0, ..run.service };
    run.settings.batch.max_size = NonZeroU16::new(4).unwrap().into();
    let latencies_ms: Vec<u64> =
        watched(&run).1.iter().map(|answered| answered.latency / 1_000_000).collect();
    assert_eq!(latencies_ms, [20, 120, 120, 140], "one alone, two together and the last one");
}

#[test]
fn parity_takes_as_long_as_the_longest_query_of_its_group() {
    // A second group, so that the run does not end before the first parity.
    let mut run = at_once(&[1.0, 5.0, 1.0, 1.0], 3);
    run.arrivals = Arrivals::Trace { seconds: vec![1.0, 1.0, 3.0, 3.0] };
    run.settings.policy = PolicyKind::Parm;
    run.settings.coding.parity_instances = NonZeroU32::new(1);
    let jobs = recorded(&run).jobs;
    let parity = jobs.iter().find(|job| job.role == RecordedRole::Parity).map(|job| job.took);
    assert!(parity.is_some_and(|took| (took - 0.1).abs() < 1e-5), "the longer of 20 and 100 ms: {parity:?}");
}

/// The seconds of work and the rows of a batch for texts of unequal lengths at a load that single queries exceed.
fn texts(lengths: Lengths) -> (f64, f64) {
    let factor = Distribution::Lognormal { median: 0.78, sigma: 0.7 };
    let faults = Faults(vec![Fault::Straggle { share: 1.0, factor, by: By::Query, on: Targets::Each }]);
    let mut run = Run { queries: 30_000, warm_up: 5_000, faults, lengths, ..run(2, 1.2) };
    run.service.row_share = 0.3;
    run.settings.batch.max_size = BatchSize::Auto;
    let jobs = recorded(&run).jobs;
    let rows = jobs.iter().map(|job| f64::from(job.rows)).sum::<f64>();
    (jobs.iter().map(|job| job.took).sum(), rows / jobs.len() as f64)
}

#[test]
fn batches_of_equal_lengths_save_work() {
    let [mixed, equal] = [Lengths::Mixed, Lengths::Equal].map(texts);
    assert!(equal.0 < 0.95 * mixed.0, "nothing is padded: {equal:?}, {mixed:?}");
}

#[test]
fn only_equal_lengths_share_a_batch() {
    let mut run = at_once(&[1.0, 1.0, 5.0, 1.0, 5.0, 5.0], 1);
    run.service = Service { row_share: 0.0, ..run.service };
    run.settings.batch.max_size = NonZeroU16::new(4).unwrap().into();
    run.lengths = Lengths::Equal;
    let rows: Vec<u32> = recorded(&run).jobs.iter().map(|job| job.rows).collect();
    assert_eq!(rows, [1, 2, 1, 2], "the first of each length alone, and the others of it together");
}

/// The p99.9 in ms of four servers of 20 ms that run so many jobs side by side, at 0.7 of their capacity, behind 64 slots for each.
fn tail(lanes: usize, learns: bool) -> f64 {
    let scenario = Scenario::named("clean").expect("it is built in");
    let per_second = 0.7 * 4.0 * lanes as f64 / 0.02;
    let plan = Plan { instances: 4, slots: 64, ..Plan::new(11, 40_000, &scenario, per_second) };
    let mut world = World::new(&plan).expect("the plan is valid");
    (world.lanes, world.learns) = (lanes, learns);
    for server in 0..4 {
        world.leave(server);
        world.join(server, plan.slots);
    }
    let mut latencies = Vec::new();
    while world.advance() {
        for reply in world.replies.drain(..).filter(|reply| reply.query.payload >= 10_000) {
            latencies.push(reply.at.since(reply.arrived).as_secs_f64() * 1e3);
        }
    }
    latencies.sort_by(f64::total_cmp);
    latencies[latencies.len() * 999 / 1000]
}

#[allow(clippy::print_stdout, reason = "the figures are for a person")]
#[test]
fn limit_is_learned_of_servers_that_run_one_request_at_a_time_and_of_those_that_run_many() {
    for (lanes, most) in [(1, 0.2), (16, 1.1)] {
        let [learned, open] = [true, false].map(|learns| tail(lanes, learns));
        println!("{lanes} at a time: {learned:.1} ms with learning, {open:.1} ms with 64 slots");
        assert!(learned < most * open, "{lanes} at a time: {learned} ms, and {open} ms without");
    }
}
