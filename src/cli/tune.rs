//! Flags of `parm tune`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::Output;

pub const EXAMPLES: &str = "Examples:
  parm tune --slo-ms 40 --rate 270 --instances 18 --scenario shuffles --bundle models/resnet18/parm.toml
      the paper's GPU cluster: 18 instances of 20 ms, with transfers between them
  parm tune --slo-ms 40 --recording busy-hour.jsonl --bundle models/resnet18/parm.toml
      recorded arrivals, service times and faults
  parm tune --slo-ms 40 --rate 50 --instances 4 --worker http://10.0.0.5:8000 --model resnet18 --seconds 60
      service times measured at an idle worker
  parm tune --slo-ms 40 --rate 270 --instances 18 --scenario A --available 0.93 --degraded 2=0.91 --degraded 4,2=0.88 --max-extra 0.3
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
    #[arg(long, value_enum, default_value_t = Wanted::Goodput)]
    pub objective: Wanted,
    /// Largest p99.9
    #[arg(long, value_name = "MS")]
    pub max_p999_ms: Option<f64>,
    /// Largest number of extra executions, as a share of the necessary ones
    #[arg(long, value_name = "SHARE")]
    pub max_extra: Option<f64>,
    /// Least accuracy of all answers
    #[arg(long, value_name = "SHARE")]
    pub min_accuracy: Option<f64>,
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
    /// Folder for `parm.toml` and `tradeoff.svg`, which are replaced
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
    /// Coefficient of variation of the gaps between queries: 0 is constant, 1 is Poisson [default: 1]
    #[arg(long, requires = "rate", help_heading = "The cluster")]
    pub cv: Option<f64>,
    /// File of arrivals: seconds since the start, one a line
    #[arg(long, value_name = "FILE", conflicts_with = "rate", help_heading = "The cluster")]
    pub trace: Option<PathBuf>,
    /// Number of instances [default: that of the recording or of the workers]
    #[arg(long, value_name = "N", help_heading = "The cluster")]
    pub instances: Option<u32>,
    /// Jobs that an instance may hold
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "The cluster")]
    pub slots: u16,
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
    /// Time of each further row of a batch, as a share of the first [default: as measured, otherwise 1]
    #[arg(long, value_name = "SHARE", help_heading = "The cluster")]
    pub row_share: Option<f64>,
    /// Batches of queries whose run times follow their lengths
    #[arg(long, value_enum, default_value_t = Unequal::Mixed, help_heading = "The cluster")]
    pub lengths: Unequal,
    /// Fault scenario of `parm simulate --list` or of --scenarios [default: as recorded, otherwise clean]
    #[arg(long, value_name = "NAME", help_heading = "The cluster")]
    pub scenario: Option<String>,
    /// Experiment file with your own scenarios
    #[arg(long, value_name = "FILE", requires = "scenario", help_heading = "The cluster")]
    pub scenarios: Option<PathBuf>,
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
    /// Time of a parity model, as a share of the deployed model's
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, help_heading = "Accuracies and costs")]
    pub parity_share: f64,
    /// Backup model: its time as a share of the deployed model's, and its accuracy
    #[arg(long, value_name = "SHARE=A", help_heading = "Accuracies and costs")]
    pub backup: Option<Backup>,
    /// Stand-in: its time as a share of the deployed model's, and its accuracy [default: of the recording or the bundle]
    #[arg(long, value_name = "[SHARE=]A", help_heading = "Accuracies and costs")]
    pub stand_in: Option<StandIn>,
}

/// Which queries of unequal lengths share a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Unequal {
    /// All, without regard to lengths
    Mixed,
    /// Those of equal lengths, as for a model without padding
    Equal,
    /// Those whose padding costs less than a run, as for a model with padding
    Padded,
}

/// The figure to optimize.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Wanted {
    /// Answers within the SLO, each counted at its accuracy
    Goodput,
    /// A short p99.9
    Tail,
    /// A small gap between p50 and p99.9
    Gap,
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
}
