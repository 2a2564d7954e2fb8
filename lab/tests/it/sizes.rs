//! Run times that follow the query: each job of a query takes as long, on every instance.

use std::num::{NonZeroU16, NonZeroU32};

use parm_lab::simulator::{Lengths, Run};
use parm_settings::recording::RecordedRole;
use parm_settings::{BatchSize, PolicyKind};
use parm_workload::arrivals::Arrivals;
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;
use parm_workload::{By, Fault, Faults, Targets};

use crate::support::{run, simulate, watched};
use crate::transcript::recorded;

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
