//! Flags of `parm tune`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use parm_tuner::Objective;

use super::Output;

pub const EXAMPLES: &str = "Examples:
  parm tune --slo-ms 40 --rate 270 --instances 18 --scenario shuffles --bundle models/resnet18/parm.toml
      the paper's GPU cluster: 18 instances of 20 ms, with transfers between them
  parm tune --slo-ms 40 --recording busy-hour.jsonl --bundle models/resnet18/parm.toml
      recorded arrivals, service times and faults
  parm tune --slo-ms 40 --rate 270 --instances 18 --scenario A --available 0.93 --degraded 2=0.91 --degraded 4,2=0.88 --require 'extra<=0.3'
      your own accuracies, and at most 30 % more executions";

/// `parm tune`.
#[derive(Debug, Args)]
pub struct Tune {
    #[command(flatten)]
    pub cluster: Cluster,
    #[command(flatten)]
    pub worth: Worth,
    /// Latency objective in milliseconds
    #[arg(long, value_name = "MS")]
    pub slo_ms: f64,
    /// Figure to optimize
    #[arg(long, default_value = "goodput", value_parser = objective())]
    pub objective: Objective,
    /// Limit that the winner keeps (repeat): p99.9<=40ms, extra<=0.3 (executions, as a share of the necessary ones),
    /// accuracy>=0.93 (of all answers)
    #[arg(long, value_name = "THRESHOLD")]
    pub require: Vec<Required>,
    /// Queries of the longest runs
    #[arg(long, value_name = "N", default_value_t = 400_000)]
    pub queries: u64,
    /// Runs of each finalist, with different seeds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeats: u32,
    /// Seed of arrivals, service times and faults
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Runs at a time, without effect on the result [default: one per core]
    #[arg(long, value_name = "N")]
    pub threads: Option<std::num::NonZeroUsize>,
    /// Folder for `parm.toml`, which is replaced
    #[arg(long, value_name = "FOLDER", default_value = "tuned")]
    pub out: PathBuf,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// The cluster and its load.
#[derive(Debug, Args)]
pub struct Cluster {
    /// Recording of `parm record` with arrivals, service times, faults and instances; flags override it
    #[arg(long, value_name = "FILE", help_heading = "The cluster")]
    pub recording: Option<PathBuf>,
    /// Model, if the recording has several or a worker is measured
    #[arg(long, value_name = "NAME", help_heading = "The cluster")]
    pub model: Option<String>,
    /// Queries per second
    #[arg(long, value_name = "N", help_heading = "The cluster")]
    pub rate: Option<f64>,
    /// File of arrivals: seconds since the start, one a line
    #[arg(long, value_name = "FILE", conflicts_with = "rate", help_heading = "The cluster")]
    pub trace: Option<PathBuf>,
    /// Number of instances [default: that of the recording or of the workers]
    #[arg(long, value_name = "N", help_heading = "The cluster")]
    pub instances: Option<u32>,
    /// Largest batch: 1, 2, 4 and 8 are tried up to it
    #[arg(long, value_name = "ROWS", default_value_t = 1, help_heading = "The cluster")]
    pub max_batch: u16,
    /// Idle worker to measure service times at (repeat)
    #[arg(long, value_name = "URL", requires = "model", help_heading = "The cluster")]
    pub worker: Vec<String>,
    /// Length of the measurement in seconds
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600), help_heading = "The cluster")]
    pub seconds: u64,
    /// File of service times of one row in milliseconds, one a line
    #[arg(long, value_name = "FILE", conflicts_with = "worker", help_heading = "The cluster")]
    pub service: Option<PathBuf>,
    /// Median of assumed service times, lognormal with sigma 0.05 [default: 20]
    #[arg(long, value_name = "MS", conflicts_with_all = ["worker", "service"], help_heading = "The cluster")]
    pub service_ms: Option<f64>,
    /// Fault scenario of `parm simulate --list` [default: as recorded, otherwise clean]
    #[arg(long, value_name = "NAME", help_heading = "The cluster")]
    pub scenario: Option<String>,
    /// Timeout of clients in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 10_000, help_heading = "The cluster", value_parser = clap::value_parser!(u64).range(1..=31_536_000_000))]
    pub deadline_ms: u64,
}

/// Accuracies and costs of answers.
#[derive(Debug, Args)]
pub struct Worth {
    /// Bundle with measured accuracies (`NAME/parm.toml`)
    #[arg(long, value_name = "FILE", help_heading = "Accuracies and costs")]
    pub bundle: Option<PathBuf>,
    /// Accuracy of predictions [default: the bundle's, otherwise 1]
    #[arg(long, value_name = "SHARE", help_heading = "Accuracies and costs")]
    pub available: Option<f64>,
    /// Accuracy of reconstructions of a code: K=A or K,R=A (repeat) [default: the bundle's, otherwise no coded policies]
    #[arg(long, value_name = "K[,R]=A", help_heading = "Accuracies and costs")]
    pub degraded: Vec<Degraded>,
    /// Backup model: its time as a share of the deployed model's, and its accuracy
    #[arg(long, value_name = "SHARE=A", help_heading = "Accuracies and costs")]
    pub backup: Option<Backup>,
    /// Stand-in: its time as a share of the deployed model's, and its accuracy [default: of the recording or the bundle]
    #[arg(long, value_name = "[SHARE=]A", help_heading = "Accuracies and costs")]
    pub stand_in: Option<StandIn>,
}

/// The figures to optimize.
fn objective() -> impl TypedValueParser<Value = Objective> {
    PossibleValuesParser::new(["goodput", "tail", "gap"]).map(|name| match name.as_str() {
        "tail" => Objective::Tail,
        "gap" => Objective::Gap,
        _ => Objective::Goodput,
    })
}

/// A limit of the winner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Required {
    P999Ms(f64),
    Extra(f64),
    Accuracy(f64),
}

impl std::str::FromStr for Required {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let value = |text: &str| text.trim().parse::<f64>().ok().filter(|value| *value >= 0.0);
        let read = || match text.split_once("<=") {
            Some(("p99.9", ms)) => value(ms.trim_end_matches("ms")).map(Self::P999Ms),
            Some(("extra", share)) => value(share).map(Self::Extra),
            Some(_) => None,
            None => text.strip_prefix("accuracy>=").and_then(value).map(Self::Accuracy),
        };
        read().ok_or_else(|| "write p99.9<=40ms, extra<=0.3 or accuracy>=0.93".into())
    }
}

/// A code and the accuracy of its reconstructions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Degraded {
    pub k: u8,
    pub r: u8,
    pub accuracy: f64,
}

/// A backup model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backup {
    pub share: f64,
    pub accuracy: f64,
}

/// A stand-in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StandIn {
    pub share: Option<f64>,
    pub accuracy: f64,
}

impl std::str::FromStr for StandIn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(accuracy) = text.trim().parse() {
            return Ok(Self { share: None, accuracy });
        }
        let Backup { share, accuracy } = text.parse()?;
        Ok(Self { share: Some(share), accuracy })
    }
}

impl std::str::FromStr for Degraded {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (code, accuracy) = text.split_once('=')?;
            let (k, r) = code.split_once(',').unwrap_or((code, "1"));
            let (k, r, accuracy) =
                (k.trim().parse().ok()?, r.trim().parse().ok()?, accuracy.trim().parse().ok()?);
            ((2..=64).contains(&k) && (1..=k).contains(&r)).then_some(Self { k, r, accuracy })
        };
        read().ok_or_else(|| {
            "write K=ACCURACY or K,R=ACCURACY, such as 2=0.91 or 4,2=0.88, with K from 2 to 64".into()
        })
    }
}

impl std::str::FromStr for Backup {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (share, accuracy) = text.split_once('=')?;
            let (share, accuracy) = (share.trim().parse::<f64>().ok()?, accuracy.trim().parse().ok()?);
            (share > 0.0 && share <= 100.0).then_some(Self { share, accuracy })
        };
        read().ok_or_else(|| "write SHARE=ACCURACY, such as 0.25=0.88 for a model four times as fast".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_with_their_accuracy() {
        assert_eq!("2=0.91".parse(), Ok(Degraded { k: 2, r: 1, accuracy: 0.91 }));
        assert_eq!("4, 2 = 0.88".parse(), Ok(Degraded { k: 4, r: 2, accuracy: 0.88 }));
        for wrong in ["", "2", "1=0.9", "2,3=0.9", "two=0.9", "300=0.9"] {
            assert!(wrong.parse::<Degraded>().unwrap_err().contains("such as"), "{wrong}");
        }
        assert_eq!("0.25=0.8".parse(), Ok(Backup { share: 0.25, accuracy: 0.8 }));
        assert!("0=0.8".parse::<Backup>().is_err());
    }

    #[test]
    fn limits_are_read_with_their_unit() {
        assert_eq!("p99.9<=40ms".parse(), Ok(Required::P999Ms(40.0)));
        assert_eq!("extra<=0.3".parse(), Ok(Required::Extra(0.3)));
        assert_eq!("accuracy>=0.93".parse(), Ok(Required::Accuracy(0.93)));
        for wrong in ["p99.9>=40ms", "p99<=40ms", "extra<=-1", "accuracy<=0.9", "accuracy"] {
            assert!(wrong.parse::<Required>().is_err(), "{wrong}");
        }
    }
}
