//! Mean latencies that have a closed form.

use std::num::NonZeroU8;
use std::time::Duration;

use parm_lab::simulator::{Outcome, Run};
use parm_settings::{BatchSize, Placement, PolicyKind};
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;

use crate::support::{SERVICE, exponential, run, simulate};

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
