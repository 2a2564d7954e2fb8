//! The fault plan that an operator or an experiment sends to a worker.

use std::time::Duration;

use parm_durations::Millis;
use parm_workload::distribution::Distribution;
use serde::{Deserialize, Serialize};

use super::Replay;
use crate::Error;

/// The faults to inject. Default: none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Plan {
    /// The only affected instance, counted from 0. Default: all.
    pub instance: Option<usize>,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Milliseconds added to a run, at most a minute, as in experiment files. Default: none.
    pub delay_ms: Option<Distribution>,
    /// Share of the runs to which `delay_ms` is added, 0 to 1. Default: all.
    pub delay_rate: Rate,
    /// Factor on the run time of the model: 10 makes a straggler. Default 1.
    pub slowdown: Slowdown,
    /// Milliseconds without any answer, from the moment the plan is set.
    #[serde(rename = "stall_ms", with = "Millis")]
    pub stall: Duration,
    /// Share of the runs that fail, 0 to 1.
    pub error_rate: f64,
    /// Falsifies answers. Default: no.
    pub wrong: Option<Wrong>,
    /// Share of the runs that `wrong` falsifies, 0 to 1. Default: all.
    pub wrong_rate: Rate,
    /// Ends the process at the next run, as in a crash.
    pub crash: bool,
    /// A complete fault schedule of an experiment, in addition to the rest. Default: none.
    pub schedule: Option<Replay>,
}

/// A share of runs. Default: all.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(pub f64);

/// A factor on service times. Default 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slowdown(pub f64);

/// A way to falsify FP32 answers; their shape stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wrong {
    /// Moves every row's values by one place: a confident answer for another class.
    Permute,
    /// Negates every value.
    Negate,
    /// Draws values between the answer's smallest and largest.
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
                return Err(Error::Plan { message: format!("{name} is {rate}: give a number from 0 to 1") });
            }
        }
        self.schedule.as_ref().map_or(Ok(()), Replay::check)?;
        let slowdown = self.slowdown.0;
        if !(1.0..=1e6).contains(&slowdown) {
            return Err(Error::Plan {
                message: format!("slowdown is {slowdown}: give a number from 1 to 1e6"),
            });
        }
        Ok(())
    }
}
