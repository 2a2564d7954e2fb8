use std::fs;
use std::path::Path;

use super::*;
use crate::failures::Failure;
use crate::outcome::Tally;

fn run(count: u64, slow_every: u64, failed_every: u64) -> Run {
    let sample = |i: u64| Sample {
        intended: Duration::from_millis(i),
        latency: Duration::from_millis(if i.is_multiple_of(slow_every) { 50 } else { 5 + i % 3 }),
        lag: Duration::ZERO,
        outcome: if i % failed_every == 1 { Outcome::Failed } else { Outcome::Exact },
    };
    let samples: Vec<Sample> = (0..count).map(sample).collect();
    let mut tally = Tally::default();
    for sample in &samples {
        tally.request(sample.outcome);
        tally.row(sample.outcome, sample.intended.as_millis() % 10 < 9);
    }
    let length = Duration::from_millis(count);
    Run { samples, offered: count as usize, tally, length, ..Run::default() }
}

fn setting() -> Setting {
    Setting {
        url: "http://127.0.0.1:8000".into(),
        model: "m".into(),
        scenario: "server".into(),
        arrivals: Some("poisson".into()),
        rows: 2,
        allow_failed: 0.01,
        ..Setting::default()
    }
}

#[test]
fn quantile_without_enough_samples_is_not_printed() {
    let report = Report::of(&run(5_000, 100, u64::MAX), setting(), &[]);
    let known: Vec<bool> = report.latency.iter().map(|quantile| quantile.ms.is_some()).collect();
    assert_eq!(known, [true, true, true, false, false]);
    assert!(report.to_string().contains("p99.9       not enough data"), "{report}");
    assert!(report.is_valid());
}

#[test]
fn overloaded_server_answers_no_more_than_it_can() {
    let mut late = run(1_000, 100, u64::MAX);
    // A server that answers 500 requests per second gets 1,000, after a warm-up of a second.
    for (i, sample) in (1..).zip(&mut late.samples) {
        sample.intended += Duration::from_secs(1);
        sample.latency = Duration::from_millis(i);
    }
    let report = Report::of(&late, Setting { warm_up_seconds: 1.0, ..setting() }, &[]);
    assert_eq!((report.seconds, report.offered_per_second), (1.0, 1000.0));
    let rate = report.answered_per_second;
    assert!((rate - 500.0).abs() < 1.0, "{rate} answers per second");
    assert!((report.rows_per_second - 2.0 * rate).abs() < 1e-9);
}

#[test]
fn report_prints_rates_outcomes_and_accuracies() {
    let mut run = run(20_000, 100, 200);
    run.failures.add(&Failure { reason: "busy".into(), message: "later".into() });
    let report = Report::of(&run, setting(), &[]);
    assert!(report.to_string().contains("failed      1 busy, the first: later\n"), "{report}");
    assert_eq!((report.sent, report.offered_per_second), (20_000, 1000.0));
    let answered = 19_900.0 / 20.005;
    assert_eq!((report.answered_per_second, report.rows_per_second), (answered, 2.0 * answered));
    let [exact, failed] = report.outcomes.as_slice() else { panic!("{:?}", report.outcomes) };
    assert_eq!((exact.outcome.as_str(), exact.requests), ("exact", 19_900));
    assert_eq!((failed.outcome.as_str(), failed.share), ("failed", 0.005));
    assert_eq!(report.accuracy, Some(0.9));
    assert!(report.is_valid(), "{report}");
}

#[test]
fn threshold_without_evidence_is_missed() {
    let requirements = ["p50<=10ms", "p99.99<=60ms", "p99<=1ms"].map(|text| text.parse().unwrap());
    let report = Report::of(&run(5_000, 100, u64::MAX), setting(), &requirements);
    let missed: Vec<&str> = report.missed().map(|threshold| threshold.finding.as_str()).collect();
    assert_eq!(missed, ["not enough data", "missed"]);
    let line = "p99.99<=60ms: not enough data (29956 requests may be enough)";
    assert!(report.to_string().contains(line), "{report}");
}

#[test]
fn documented_schema_matches_the_report() {
    let schema = serde_json::to_string_pretty(&schemars::schema_for!(Report)).unwrap() + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/load.schema.json");
    #[allow(clippy::disallowed_methods)] // a switch for the people who run the tests, not configuration
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &schema).unwrap();
    }
    assert!(fs::read_to_string(&path).unwrap_or_default() == schema, "run this test with UPDATE_DOCS=1");
}
