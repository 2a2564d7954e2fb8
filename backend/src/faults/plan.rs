//! What an operator or an experiment asks a worker to suffer.

use std::time::Duration;

use parm_durations::Millis;
use parm_workload::distribution::Distribution;
use serde::{Deserialize, Serialize};

use super::Replay;
use crate::Error;

/// What shall go wrong. The default is nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Plan {
    /// The only instance concerned, counted from 0; all by default.
    pub instance: Option<usize>,
    /// Seed of everything drawn.
    pub seed: u64,
    /// Milliseconds added to a run, at most a minute, as experiment files say it. Default: none.
    pub delay_ms: Option<Distribution>,
    /// Share of the runs that `delay_ms` is added to, 0 to 1; all by default.
    pub delay_rate: Rate,
    /// How many times as long as the model a run shall take: 10 makes a straggler. Default 1.
    pub slowdown: Slowdown,
    /// Milliseconds for which nothing is answered, from the moment the plan is set.
    #[serde(rename = "stall_ms", with = "Millis")]
    pub stall: Duration,
    /// Share of the runs that fail, 0 to 1.
    pub error_rate: f64,
    /// How answers are falsified.
    pub wrong: Option<Wrong>,
    /// Share of the runs that `wrong` falsifies, 0 to 1; all by default.
    pub wrong_rate: Rate,
    /// End the process at the next run, as a crash would.
    pub crash: bool,
    /// A whole fault schedule, as experiments have it, on top of the rest. Default: none.
    pub schedule: Option<Replay>,
}

/// A share of runs, all by default.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(pub f64);

/// A factor on service times, 1 by default.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slowdown(pub f64);

/// A way to falsify FP32 answers; their shape stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wrong {
    /// Every row's values move by one place: a confident answer for another class.
    Permute,
    /// Every value changes its sign.
    Negate,
    /// Values drawn between the answer's least and greatest.
    Random,
}

impl Default for Rate {
    fn default() -> Self {
        Self(1.0)
    }
}

impl Default for Slowdown {
    fn default() -> Self {
        Self(1.0)
    }
}

impl Plan {
    pub(super) fn check(&self) -> Result<(), Error> {
        self.delay_ms.as_ref().map_or(Ok(()), Distribution::check)?;
        for (name, rate) in [
            ("delay_rate", self.delay_rate.0),
            ("error_rate", self.error_rate),
            ("wrong_rate", self.wrong_rate.0),
        ] {
            if !(0.0..=1.0).contains(&rate) {
                return Err(Error::Plan { message: format!("{name} is {rate}, it must lie in 0 to 1") });
            }
        }
        self.schedule.as_ref().map_or(Ok(()), Replay::check)?;
        let slowdown = self.slowdown.0;
        if !(1.0..=1e6).contains(&slowdown) {
            return Err(Error::Plan { message: format!("slowdown is {slowdown}, it must lie in 1 to 1e6") });
        }
        Ok(())
    }
}
