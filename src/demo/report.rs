//! The results, and what is shown of them: the introduction, the picture while the demo runs, and the summary.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use parm_loadgen::live::Snapshot;
use parm_loadgen::outcome::Outcome;
use parm_loadgen::recorder::Sample;
use parm_loadgen::run::Run;
use parm_loadgen::statistics::bootstrap::quantile_of;
use parm_loadgen::statistics::evidence;
use serde::Serialize;

use super::{DEADLINE, Policy, SLOW, STAND_IN, STRAGGLE, STRAGGLERS, Script};
use crate::cli;

/// Largest delay of sending in a valid run; beyond it the machine was too busy.
const LATE_MS: f64 = 2.0;

/// Confidence with which a quantile must be supported before it is shown.
const CONFIDENCE: f64 = 0.95;

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    pub seconds: f64,
    /// Queries per second to each policy.
    pub rate: f64,
    pub seed: u64,
    /// Emulated median service time in milliseconds.
    pub service_ms: f64,
    /// 99 % of the queries were sent at most this late.
    pub lag_p99_ms: f64,
    /// Whether the machine kept up.
    pub valid: bool,
    pub stand_in: &'static str,
    /// The cost of a run of each loaded model, as a share of the deployed model's, measured on this machine.
    pub costs: BTreeMap<String, f64>,
    pub policies: Vec<Standing>,
}

/// The results of a policy.
#[derive(Clone, Debug, Serialize)]
pub struct Standing {
    pub policy: &'static str,
    pub servers: usize,
    /// While servers were slow, and while one was frozen.
    pub slow: Act,
    pub frozen: Act,
    /// Queries of both acts, by outcome.
    pub queries: u64,
    pub outcomes: BTreeMap<&'static str, Count>,
    pub missed: u64,
    /// Work of the servers, including parities, duplicates and stand-ins: 1 is a run of the deployed model.
    pub work: f64,
    /// 99 % of the queries were sent at most this late.
    #[serde(skip)]
    pub lag_p99_ms: f64,
    /// From the end of the warm-up to the last query.
    #[serde(skip)]
    pub seconds: f64,
}

/// The latencies of one act.
#[derive(Clone, Debug, Serialize)]
pub struct Act {
    pub queries: u64,
    /// Milliseconds; `None` if there are too few queries.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub p999_ms: Option<f64>,
    /// Queries without an answer by their deadline.
    pub missed: u64,
}

/// Answers of one kind.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Count {
    pub queries: u64,
    /// Number of queries with the right class.
    pub right: u64,
}

impl Standing {
    /// Returns the results of a run.
    pub fn of(policy: &Policy, run: &Run, work: f64, script: &Script) -> Self {
        let act =
            |number| Act::of(run.samples.iter().filter(|sample| script.act(sample.intended) == Some(number)));
        let (slow, frozen) = (act(0), act(1));
        let answers = Outcome::ALL.into_iter().filter(|outcome| outcome.is_answer());
        let outcomes = answers.map(|outcome| {
            let count = run.tally.of(outcome);
            (outcome.name(), Count { queries: count.requests, right: count.right })
        });
        let mut lags: Vec<f64> = run.samples.iter().map(|sample| sample.lag.as_secs_f64() * 1e3).collect();
        Self {
            policy: policy.name,
            servers: policy.servers,
            queries: slow.queries + frozen.queries,
            missed: slow.missed + frozen.missed,
            slow,
            frozen,
            outcomes: outcomes.collect(),
            work,
            lag_p99_ms: if lags.is_empty() { 0.0 } else { quantile_of(&mut lags, 0.99) },
            seconds: run.length.as_secs_f64(),
        }
    }

    /// Returns the share of the queries with the right class. One without an answer counts as wrong.
    fn right(&self) -> f64 {
        self.share(self.outcomes.values().map(|count| count.right).sum())
    }

    /// Returns the share of the queries whose answer is approximate.
    fn approximate(&self) -> f64 {
        let approximate =
            [Outcome::Reconstructed, Outcome::StandIn].map(|outcome| self.outcomes[outcome.name()].queries);
        self.share(approximate.iter().sum())
    }

    /// Returns the work beyond one run for each query, as a share.
    fn more_work(&self) -> f64 {
        (self.work / self.queries.max(1) as f64 - 1.0).max(0.0)
    }

    fn share(&self, queries: u64) -> f64 {
        queries as f64 / self.queries.max(1) as f64
    }
}

impl Act {
    fn of<'a>(samples: impl Iterator<Item = &'a Sample>) -> Self {
        let (mut times, mut missed) = (Vec::new(), 0);
        for sample in samples {
            missed += u64::from(!sample.outcome.is_answer());
            times.push(sample.latency.as_secs_f64() * 1e3);
        }
        let queries = times.len() as u64;
        let mut quantile = |share| {
            let enough = queries >= evidence::needed(0, share, CONFIDENCE);
            enough.then(|| quantile_of(&mut times, share))
        };
        Self { queries, p50_ms: quantile(0.5), p99_ms: quantile(0.99), p999_ms: quantile(0.999), missed }
    }
}

/// Describes the run before it starts.
pub fn introduction(policies: &[Policy], rate: f64, script: &Script) -> String {
    let ((least, most), [first, second]) = (STRAGGLE, SLOW);
    let described = policies.iter().map(|policy| format!("  {:<15}{}\n", policy.name, policy.what));
    format!(
        "Each of these classifies the same {rate:.0} pictures a second, on servers of its own:\n{}\
         Predictions are real, run times emulated: {:.0} ms, {:.0} % of them {least:.0} to {most:.0} times as\n\
         long. From second {:.1} on, servers 1 and 2 are {first:.0} and {second:.0} times slower; from second\n\
         {:.1} on they are well again, and server 3 is frozen: it takes requests and\n\
         answers none. Ctrl-C ends the demo early.\n",
        described.collect::<String>(),
        super::SERVICE_MS,
        100.0 * STRAGGLERS,
        script.warm_up.as_secs_f64(),
        script.middle.as_secs_f64(),
    )
}

/// Returns the results as a table with a line for each policy.
fn table(policies: &[Standing]) -> String {
    let queries = policies.first().map_or(0, |standing| standing.queries);
    let mut lines = vec![
        format!(
            "{:<22}{:>12}{:>14}{:>22}",
            format!("{queries} requests each"),
            "2 are slow",
            "1 is frozen",
            "cost"
        ),
        format!(
            "{:<14}{:>8}{:>6}{:>6}{:>8}{:>6}{:>7}{:>7}{:>8}{:>7}",
            "", "servers", "p99", "p99.9", "p99", "p99.9", "failed", "work", "approx.", "right"
        ),
    ];
    lines.extend(policies.iter().map(|own| {
        let Standing { policy, servers, slow, frozen, .. } = own;
        let approximate = match own.approximate() {
            0.0 => "-".to_owned(),
            share => format!("{:.1} %", 100.0 * share),
        };
        format!(
            "{policy:<14}{servers:>8}{:>6}{:>6}{:>8}{:>6}{:>7}{:>7}{approximate:>8}{:>7}",
            milliseconds(slow.p99_ms),
            milliseconds(slow.p999_ms),
            milliseconds(frozen.p99_ms),
            milliseconds(frozen.p999_ms),
            frozen.missed,
            format!("+{:.0} %", 100.0 * own.more_work()),
            format!("{:.1} %", 100.0 * own.right()),
        )
    }));
    lines.join("\n")
}

/// Returns the picture while the demo runs: the figures of the last second, and of the whole run so far.
pub fn picture(policies: &[(&str, Snapshot)], elapsed: Duration, trouble: &str) -> String {
    let mut text = format!(
        "{}  {trouble}\n{:<16}{:>12}{:>20}{:>8}",
        clock(elapsed),
        "",
        "p99 now",
        "p99.9 so far",
        "failed"
    );
    for (name, seen) in policies {
        let (now, so_far) = (shown(seen.recent.known(0.99)), shown(seen.counted.known(0.999)));
        let failed = seen.tally.of(Outcome::Failed).requests;
        text += &format!("\n{name:<16}{now:>9} ms{so_far:>17} ms{failed:>8}");
    }
    text
}

/// Returns one line, for outputs that cannot be redrawn.
pub fn line(policies: &[(&str, Snapshot)], elapsed: Duration, trouble: &str) -> String {
    let figures = policies.iter().map(|(name, seen)| format!("{name} {}", shown(seen.recent.known(0.99))));
    let figures = figures.collect::<Vec<_>>().join(", ");
    format!("{}  p99 now in ms: {figures}; {trouble}", clock(elapsed)).trim_end_matches("; ").to_owned()
}

fn clock(elapsed: Duration) -> String {
    format!("{}:{:02}", elapsed.as_secs() / 60, elapsed.as_secs() % 60)
}

fn shown(time: Option<Duration>) -> String {
    milliseconds(time.map(|time| time.as_secs_f64() * 1e3))
}

impl Report {
    pub fn of(flags: &cli::Demo, policies: Vec<Standing>, costs: BTreeMap<String, f64>) -> Self {
        let worst = |of: fn(&Standing) -> f64| policies.iter().map(of).fold(0.0, f64::max);
        let lag_p99_ms = worst(|own| own.lag_p99_ms);
        Self {
            seconds: worst(|own| own.seconds),
            rate: flags.rate,
            seed: flags.seed,
            service_ms: super::SERVICE_MS,
            lag_p99_ms,
            valid: lag_p99_ms <= LATE_MS,
            stand_in: STAND_IN,
            costs,
            policies,
        }
    }

    /// Says how the policies fared with a frozen server, if there is room for it and enough data.
    fn verdict(&self) -> Option<String> {
        let most = DEADLINE.as_secs_f64() * 1e3;
        let took =
            |own: &Standing| Some(format!("{:.0} ms with {}", own.frozen.p999_ms?.min(most), own.policy));
        let took: Option<Vec<_>> = self.policies.iter().map(took).collect();
        let took = took.filter(|took| took.len() < 4)?.join(", ");
        Some(format!("While a server was frozen, 1 request in 1,000 took longer than\n{took}."))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(verdict) = self.verdict() {
            writeln!(to, "{verdict}")?;
        }
        writeln!(
            to,
            "{}\n\
             p99, p99.9: ms until 99 % and 99.9 % had their answer. failed: none within {} s.\n\
             work: runs beyond one each. approx.: not by the model itself. right: correct.",
            table(&self.policies),
            DEADLINE.as_secs(),
        )?;
        match self.valid {
            true => write!(to, "Next: parm run --replicas 3 -- YOUR-SERVER --port {{port}}"),
            false => write!(
                to,
                "Next: parm demo --rate {:.0} (this run is invalid: 1 % was sent {:.1} ms late)",
                (self.rate / 2.0).max(1.0),
                self.lag_p99_ms
            ),
        }
    }
}

/// A missed query counts as its deadline, so a quantile that reaches it is larger.
fn milliseconds(ms: Option<f64>) -> String {
    let most = DEADLINE.as_secs_f64() * 1e3;
    match ms {
        None => "-".into(),
        Some(ms) if ms >= most => format!(">{most:.0}"),
        Some(ms) => format!("{ms:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use parm_loadgen::failures::Failures;
    use parm_loadgen::outcome::Tally;

    use super::*;

    /// The results of 20,000 queries, of which one in a hundred is late by this much and has this outcome.
    fn standing(policy: &'static str, late: (u64, Outcome), work: f64) -> Standing {
        let script = Script::of(Duration::from_secs(20));
        let mut run = Run {
            samples: Vec::new(),
            offered: 0,
            dropped: 0,
            tally: Tally::default(),
            length: script.length,
            failures: Failures::default(),
            chats: None,
        };
        for index in 0..20_000u64 {
            let (ms, outcome) = if index % 100 == 7 { late } else { (10, Outcome::Exact) };
            let at = if index < 10_000 { script.warm_up } else { script.middle };
            let latency = Duration::from_millis(ms);
            run.samples.push(Sample { intended: at, latency, lag: Duration::ZERO, outcome });
            run.tally.request(outcome);
            run.tally.row(outcome, index % 10 != 0);
        }
        let mut own: Policy = "hedge".parse().unwrap();
        own.name = policy;
        Standing::of(&own, &run, work, &script)
    }

    fn report(policies: Vec<Standing>) -> Report {
        Report {
            seconds: 17.0,
            rate: 480.0,
            seed: 1,
            service_ms: 10.0,
            lag_p99_ms: 0.1,
            valid: true,
            stand_in: "small",
            costs: BTreeMap::new(),
            policies,
        }
    }

    #[test]
    fn summary_of_any_policies_has_at_most_twelve_lines_and_ends_with_a_command() {
        let own = || standing("hedge", (1000, Outcome::Failed), 20_000.0);
        for (policies, valid) in [(1, true), (3, true), (7, true), (7, false)] {
            let report = Report { valid, ..report((0..policies).map(|_| own()).collect()) };
            let text = report.to_string();
            assert!(text.lines().count() <= 12, "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            assert!(text.lines().last().unwrap().starts_with("Next: parm "), "{text}");
        }
    }

    #[test]
    fn summary_states_latency_failures_and_cost() {
        let said = report(vec![
            standing("least-requests", (1000, Outcome::Failed), 20_000.0),
            standing("hedge", (30, Outcome::Hedged), 20_200.0),
            standing("stand-in", (16, Outcome::StandIn), 23_000.0),
        ])
        .to_string();
        let verdict = "longer than\n1000 ms with least-requests, 30 ms with hedge, 16 ms with stand-in.\n20000 requests each ";
        assert!(said.contains(verdict), "{said}");
        let row = |name: &str| {
            let line = said.lines().find(|line| line.starts_with(name));
            line.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        assert_eq!(row("least-requests").unwrap(), "least-requests 12 10 >1000 10 >1000 100 +0 % - 89.0 %");
        assert_eq!(row("stand-in").unwrap(), "stand-in 12 10 16 10 16 0 +15 % 1.0 % 90.0 %");
    }
}
