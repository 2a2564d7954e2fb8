//! The same experiment has the same result, on however many threads, and its memory does not grow with its length.

use std::num::NonZeroU64;

use parm_faults::clock::Moment;
use parm_frontend::dispatch::{PolicyKind, Role};
use parm_simulator::{
    Answered, Config, Execution, Experiment, Outcome, Quiet, Report, Run, Scenario, Witness,
};

use crate::support::{run, simulate};

fn experiment(seed: u64, threads: usize) -> Report {
    let config = Config {
        seed,
        queries: NonZeroU64::new(25_000).unwrap(),
        warm_up: 2_000,
        loads: vec![0.5],
        policies: ["equal", "hedge", "hedge+ejection"].map(str::to_owned).to_vec(),
        scenarios: ["A", "shuffles", "crash"].map(str::to_owned).to_vec(),
        ..Config::default()
    };
    Experiment::new(config).unwrap().run(threads, &Quiet).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_report_on_any_number_of_threads() {
    let one = serde_json::to_string(&experiment(7, 1)).unwrap();
    assert_eq!(one, serde_json::to_string(&experiment(7, 3)).unwrap());
    assert_ne!(one, serde_json::to_string(&experiment(8, 3)).unwrap());
}

#[test]
fn gaps_are_compared_with_those_of_equal() {
    let report = experiment(3, 2);
    for row in &report.rows {
        let ratio = row.verdict.gap_ratio.unwrap();
        assert!(ratio.low <= ratio.value && ratio.value <= ratio.high, "{row:?}");
        if row.policy == "equal" {
            assert_eq!((ratio.low, ratio.high), (1.0, 1.0), "the same blocks are drawn for both");
        }
        if row.policy == "hedge" && row.scenario == "A" {
            assert!(ratio.low > 2.0, "late work is duplicated: {ratio:?}");
        }
    }
    let table = report.to_string();
    assert_eq!(table.lines().count(), report.rows.len() + 2, "{table}");
}

#[test]
fn too_few_queries_say_nothing_about_the_far_tail() {
    let config = Config {
        queries: NonZeroU64::new(3_000).unwrap(),
        warm_up: 0,
        loads: vec![0.5],
        scenarios: vec!["clean".into()],
        ..Config::default()
    };
    let report = Experiment::new(config).unwrap().run(1, &Quiet).unwrap();
    let verdict = &report.rows[0].verdict;
    assert!(verdict.p99_ms.is_some() && verdict.p999_ms.is_none() && verdict.gap_ratio.is_none());
    assert!(report.to_string().contains("not enough data"));
}

#[test]
fn memory_does_not_grow_with_the_length_of_a_run() {
    let tally = |queries| simulate(&Run { queries, warm_up: 0, ..run(18, 0.5) });
    let (short, long) = (tally(20_000), tally(200_000));
    assert_eq!(short.bytes(), long.bytes());
    assert!(long.most_in_flight() < 100, "places are used again: {}", long.most_in_flight());
}

#[derive(Default)]
struct Watching {
    arrived: u64,
    executed: Vec<Execution>,
    answered: Vec<Answered>,
}

impl Witness for Watching {
    fn arrived(&mut self, _at: Moment) {
        self.arrived += 1;
    }

    fn executed(&mut self, execution: Execution) {
        self.executed.push(execution);
    }

    fn answered(&mut self, answered: Answered) {
        self.answered.push(answered);
    }
}

#[test]
fn watching_a_run_changes_nothing_and_shows_every_query_and_job() {
    let mut run = Run { queries: 5_000, warm_up: 1_000, ..run(18, 0.5) };
    run.faults = Scenario::named("AB").unwrap().faults;
    run.settings.policy = PolicyKind::Hedge;
    let mut watching = Watching::default();
    let watched = run.watched(&Quiet, &mut watching).unwrap();
    assert_eq!(watched.mean(), simulate(&run).mean());
    assert_eq!((watching.arrived, watching.answered.len() as u64), (5_000, watched.count()));
    let hedged = watching.answered.iter().filter(|answered| answered.outcome == Outcome::Hedged).count();
    assert_eq!(hedged as f64 / 4_000.0, watched.share(Outcome::Hedged));
    // Jobs that were overtaken may still run when the last query is answered.
    let copies = watching.executed.iter().filter(|execution| execution.role == Role::Copy).count();
    assert!(watching.executed.len() - copies > 4_980 && copies > 10, "{copies} copies");
    assert!(
        watching.executed.iter().all(|execution| execution.ended > execution.given && execution.rows == 1)
    );
}
