//! What the demonstration showed, what it did not, and what to try next.

use std::fmt::{self, Write as _};
use std::time::Duration;

use serde::Serialize;

use super::run::DEADLINE;
use super::script;
use super::tally::Standing;

/// A run's sending is late beyond this: the machine was too busy to be believed.
const LATE: Duration = Duration::from_millis(2);

/// The result.
#[derive(Debug, Serialize)]
pub struct Summary {
    pub seconds: f64,
    /// Queries per second to each policy.
    pub rate: f64,
    pub seed: u64,
    /// Milliseconds that a run usually takes; emulated.
    pub service_ms: f64,
    /// Share of what six instances could do that the queries ask for.
    pub load: f64,
    /// 99 % of the queries were sent at most this late.
    pub lag_p99_ms: f64,
    /// Whether the machine kept up.
    pub valid: bool,
    pub policies: Vec<Standing>,
}

impl Summary {
    /// Whether queries that were this late at most in 99 % of all cases say anything.
    pub fn is_valid(lag: Duration) -> bool {
        lag <= LATE
    }

    /// What was done, before it is done.
    pub fn introduction(model: &str, rate: f64, seed: u64) -> String {
        let (least, most) = script::STRAGGLE;
        format!(
            "Each policy has {instances} instances of its own in this process and gets the same {rate:.0} queries\n\
             a second at the same moments: images of clothes, classified by '{model}'.\n\
             Predictions are real. How long they take is emulated ({service} ms), so that all\n\
             policies fit on a laptop at once. One script of faults for all: {share:.0} % of the runs\n\
             take {least:.0} to {most:.0} times as long, instances turn {slow:.0} times slower for a while, and\n\
             one hangs. What takes more than {deadline} s is missed. Seed {seed}; ctrl-C ends it early.\n",
            instances = script::INSTANCES,
            service = super::SERVICE_MS,
            share = 100.0 * script::STRAGGLERS,
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
                "\nThis machine was too busy for the figures to be believed: 1 % of the queries were\nsent more than {:.1} ms late. Close other programs, or lower --rate.",
                self.lag_p99_ms
            )?;
        }
        write!(
            text,
            "\nOne run of {:.0} s: p99.9 rests on a few answers each. To go on:\n\
             \u{20} parm demo --rate 400          more load: parm's instances for parities are missed\n\
             \u{20} parm simulate --scenario AB   the same policies in virtual time, at length\n\
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
                writeln!(text, "{:<6} too few queries for p99.9", standing.policy)?;
                continue;
            };
            write!(text, "{:<6} p99.9 is {gap:.1} ms above the median", standing.policy)?;
            if standing.policy != "equal" {
                write!(text, ", {}", compared(reference, gap))?;
            }
            if let Some(accuracy) = standing.reconstructed.accuracy() {
                let share = 100.0 * standing.share(standing.reconstructed.queries);
                let own = 100.0 * standing.own().accuracy().unwrap_or_default();
                write!(
                    text,
                    "; {share:.1} % reconstructed, {:.1} % of those right (own answers: {own:.1} %)",
                    100.0 * accuracy
                )?;
            }
            writeln!(text)?;
        }
        Ok(())
    }
}

fn compared(reference: f64, gap: f64) -> String {
    if gap <= reference {
        format!("{:.1} times less than equal's", reference / gap.max(0.1))
    } else {
        format!("{:.1} times more than equal's", gap / reference.max(0.1))
    }
}
