//! Prints the introduction and the result of the demo, with its limits and next steps.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::time::Duration;

use parm_settings::StandInSettings;
use serde::Serialize;

use super::run::DEADLINE;
use super::script;
use super::tally::{Count, Standing};

/// Largest delay of sending in a valid run; beyond it the machine was too busy.
const LATE: Duration = Duration::from_millis(2);

/// The result.
#[derive(Debug, Serialize)]
pub struct Summary {
    pub seconds: f64,
    /// Queries per second to each policy.
    pub rate: f64,
    pub seed: u64,
    /// Emulated median service time in milliseconds.
    pub service_ms: f64,
    /// Rate as a share of the capacity of six instances.
    pub load: f64,
    /// 99 % of the queries were sent at most this late.
    pub lag_p99_ms: f64,
    /// Whether the machine kept up.
    pub valid: bool,
    /// The deployed model, and its stand-in, if any.
    pub model: String,
    pub stand_in: Option<String>,
    /// Cost of a row for every other model, as a share of a query's run, measured on this machine.
    pub costs: BTreeMap<String, f64>,
    pub policies: Vec<Standing>,
}

impl Summary {
    /// Whether a run is valid if 99 % of its queries were sent at most this late.
    pub fn is_valid(lag: Duration) -> bool {
        lag <= LATE
    }

    /// Describes the run before it starts.
    pub fn introduction(model: &str, rate: f64, seed: u64, costs: &BTreeMap<String, f64>) -> String {
        let (least, most) = script::STRAGGLE;
        let named = costs.iter().map(|(model, cost)| format!("'{model}' {cost:.2}"));
        let others = match named.collect::<Vec<_>>().join(",\n") {
            none if none.is_empty() => String::new(),
            named => {
                format!("\nOther models take the share of that which this machine just measured:\n{named}.")
            }
        };
        format!(
            "Each policy has {instances} instances of its own in this process and gets the same {rate:.0} queries\n\
             a second at the same moments: images of clothes, classified by '{model}'.\n\
             Predictions are real. Service times are emulated ({service} ms), so that all\n\
             policies fit on a laptop at once.{others}\n\
             All policies get the same faults: {share:.0} % of the runs\n\
             take {least:.0} to {most:.0} times as long, instance 1 is always {sick} times slower, three others\n\
             {slow:.0} times for a while, and one hangs. Queries that take over {deadline} s are missed.\n\
             Seed {seed}; Ctrl-C ends it early.\n",
            instances = script::INSTANCES,
            service = super::SERVICE_MS,
            share = 100.0 * script::STRAGGLERS,
            sick = script::SICK,
            slow = script::SLOW,
            deadline = DEADLINE.as_secs(),
        )
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::from("\n");
        self.verdicts(&mut text)?;
        if !self.valid {
            writeln!(
                text,
                "\nThe figures are invalid, because this machine was too busy: 1 % of the queries were\nsent more than {:.1} ms late. Close other programs, or lower --rate.",
                self.lag_p99_ms
            )?;
        }
        write!(
            text,
            "\nThis was one run of {:.0} s: each p99.9 rests on a few answers. Next steps:\n\
             \u{20} parm demo --rate 400          more load: parm lacks the instances that it reserves\n\
             \u{20} parm simulate --scenario AB   longer runs of the same policies in virtual time\n\
             \u{20} parm serve --models models    serve models over HTTP and gRPC: see the README",
            self.seconds
        )?;
        to.write_str(&text)
    }
}

impl Summary {
    fn verdicts(&self, text: &mut String) -> fmt::Result {
        let Some(equal) = self.policies.iter().find(|standing| standing.policy == "equal") else {
            return Ok(());
        };
        for standing in &self.policies {
            let (Some(gap), Some(reference)) = (standing.gap_ms(), equal.gap_ms()) else {
                writeln!(text, "{:<8} too few queries for p99.9", standing.policy)?;
                continue;
            };
            write!(text, "{:<8} p99.9 is {gap:.1} ms above the median", standing.policy)?;
            if standing.policy != "equal" {
                write!(text, ", {}", compared(reference, gap, "equal"))?;
            }
            writeln!(text, "{}", paid(standing))?;
        }
        self.gain(text)
    }

    /// Compares stand-ins with hedging alone: gain and cost.
    fn gain(&self, text: &mut String) -> fmt::Result {
        let of = |policy: &str| self.policies.iter().find(|standing| standing.policy == policy);
        let (Some(own), Some(hedge)) = (of("stand-in"), of("hedge")) else { return Ok(()) };
        let (Some(gap), Some(other)) = (own.gap_ms(), hedge.gap_ms()) else { return Ok(()) };
        let more = own.work_per_query() - hedge.work_per_query();
        let approximate = own.share(own.approximate().queries);
        let usual = match (own.usual_slowest_ms(), hedge.usual_slowest_ms()) {
            (Some(own), Some(hedge)) => {
                format!(
                    "In half of the seconds no query took longer than {own:.1} ms; with hedge, {hedge:.1} ms.\n"
                )
            }
            _ => String::new(),
        };
        let most = 100.0 * StandInSettings::default().bound.get();
        write!(
            text,
            "\nGain of stand-ins over hedging alone: the gap from median to p99.9 is {}.\n{usual}\
             Cost: {:.1} % more work, and {:.1} % of the answers are approximate; in a minute\n\
             at most {most:.0} % may be. {} of all answers are right; with hedge, {}.",
            compared(other, gap, "hedge"),
            100.0 * more,
            100.0 * approximate,
            percent(own.all()),
            percent(hedge.all()),
        )?;
        if let Some((name, cost)) =
            self.stand_in.as_ref().and_then(|name| Some((name, self.costs.get(name)?)))
        {
            write!(
                text,
                "\nThe stand-in, '{name}', takes {cost:.2} of the time of '{}', as measured on this\n\
                 machine when they were loaded.",
                self.model
            )?;
        }
        writeln!(text)
    }
}

/// Returns a policy's extra work, and the share and accuracy of its approximate answers.
fn paid(standing: &Standing) -> String {
    let mut text = String::new();
    let more = 100.0 * (standing.work_per_query() - 1.0);
    if more >= 0.05 {
        text += &format!("; {more:.1} % more work");
    }
    let approximate = standing.approximate();
    if approximate.queries > 0 {
        let share = 100.0 * standing.share(approximate.queries);
        let (right, own) = (percent(approximate), percent(standing.own()));
        text += &format!("; {share:.1} % approximate, {right} of those right (own: {own})");
    }
    text
}

fn percent(count: Count) -> String {
    count.accuracy().map_or("none".into(), |share| format!("{:.1} %", 100.0 * share))
}

fn compared(reference: f64, gap: f64, whose: &str) -> String {
    if gap <= reference {
        format!("{:.1} times less than {whose}'s", reference / gap.max(0.1))
    } else {
        format!("{:.1} times more than {whose}'s", gap / reference.max(0.1))
    }
}

#[cfg(test)]
mod tests {
    use parm_loadgen::outcome::Outcome;

    use super::*;
    use crate::demo::tally::Tally;

    /// The results of 20,000 queries, of which one in a hundred is late by this much and has this outcome.
    fn standing(policy: &'static str, (late_ms, outcome): (u64, Outcome), work: f64) -> Standing {
        let mut tally = Tally::new();
        for index in 0..20_000u64 {
            let late = index % 100 == 0;
            let latency = Duration::from_millis(if late { 10 + late_ms } else { 10 });
            let outcome = if late { outcome } else { Outcome::Exact };
            tally.record(Duration::from_millis(index), latency, outcome, !late || index % 1000 != 0);
        }
        tally.standing(policy, 20_000, work)
    }

    #[test]
    fn summary_states_gain_and_cost_of_stand_ins() {
        let policies = vec![
            standing("equal", (80, Outcome::Exact), 20_000.0),
            standing("hedge", (30, Outcome::Hedged), 20_200.0),
            standing("stand-in", (10, Outcome::StandIn), 23_000.0),
        ];
        let summary = Summary {
            seconds: 60.0,
            rate: 240.0,
            seed: 1,
            service_ms: 10.0,
            load: 0.4,
            lag_p99_ms: 0.1,
            valid: true,
            model: "big".into(),
            stand_in: Some("small".into()),
            costs: [("small".to_owned(), 0.15)].into(),
            policies,
        };
        let said = summary.to_string();
        for words in [
            "hedge    p99.9 is 30.0 ms above the median, 2.7 times less than equal's; 1.0 % more work\n",
            "15.0 % more work; 1.0 % approximate, 90.0 % of those right (own: 100.0 %)",
            "3.0 times less than hedge's",
            "In half of the seconds no query took longer than 20.0 ms; with hedge, 40.0 ms.\n",
            "Cost: 14.0 % more work, and 1.0 % of the answers are approximate; in a minute\nat most 5 % may be. 99",
            "99.9 % of all answers are right",
            "'small', takes 0.15 of the time of 'big'",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
}
