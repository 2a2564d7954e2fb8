//! The flags of `parm tune`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::Output;

pub const EXAMPLES: &str = "Examples:
  parm tune --slo-ms 40 --rate 270 --instances 18 --scenario shuffles --bundle models/resnet18/parm.toml
      the paper's GPU cluster: 18 instances of 20 ms, transfers between them, accuracies as the bundle was measured
  parm record --frontend http://127.0.0.1:8003 --seconds 600 --file busy-hour.jsonl
  parm tune --slo-ms 40 --recording busy-hour.jsonl --bundle models/resnet18/parm.toml
      arrivals, service times and faults as a frontend saw them
  parm tune --slo-ms 40 --rate 50 --instances 4 --worker http://10.0.0.5:8000 --model resnet18 --seconds 60
      service times measured at a worker that nobody else uses
  parm tune --slo-ms 40 --rate 270 --instances 18 --scenario A --available 0.93 --degraded 2=0.91 --degraded 4,2=0.88 --max-extra 0.3
      accuracies of your own, and at most 30 % more executions";

/// `parm tune`.
#[derive(Debug, Args)]
pub struct Tune {
    #[command(flatten)]
    pub cluster: Cluster,
    #[command(flatten)]
    pub worth: Worth,
    /// The objective: milliseconds within which an answer must come
    #[arg(long, value_name = "MS")]
    pub slo_ms: f64,
    /// What is wanted
    #[arg(long, value_enum, default_value_t = Wanted::Goodput)]
    pub objective: Wanted,
    /// Longest p99.9 that is allowed
    #[arg(long, value_name = "MS")]
    pub max_p999_ms: Option<f64>,
    /// Most extra executions that are allowed, as a share of the necessary ones
    #[arg(long, value_name = "SHARE")]
    pub max_extra: Option<f64>,
    /// Least accuracy of all answers that is allowed
    #[arg(long, value_name = "SHARE")]
    pub min_accuracy: Option<f64>,
    /// Queries of the longest runs
    #[arg(long, value_name = "N", default_value_t = 400_000)]
    pub queries: u64,
    /// Runs of each finalist at full length, each with a seed of its own
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeats: u32,
    /// Candidates that the search begins with
    #[arg(long, value_name = "N", default_value_t = 72)]
    pub candidates: usize,
    /// Seed of arrivals, service times, faults and of what is tried: the same seed gives the same answer
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Runs at a time [default: one per core]; the result does not depend on it
    #[arg(long, value_name = "N")]
    pub threads: Option<std::num::NonZeroUsize>,
    /// Folder for `parm.toml` (for `parm serve --config`) and `tradeoff.svg`; earlier ones are replaced
    #[arg(long, value_name = "FOLDER", default_value = "tuned")]
    pub out: PathBuf,
    /// `text` for people, `json` for programs
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// What the cluster is to expect.
#[derive(Debug, Args)]
pub struct Cluster {
    /// A recording of `parm record`: its arrivals, service times, faults and number of instances are used where no flag says
    /// otherwise
    #[arg(long, value_name = "FILE", help_heading = "The cluster")]
    pub recording: Option<PathBuf>,
    /// The model, where the recording has several or a worker is measured
    #[arg(long, value_name = "NAME", help_heading = "The cluster")]
    pub model: Option<String>,
    /// Queries per second
    #[arg(long, value_name = "N", help_heading = "The cluster")]
    pub rate: Option<f64>,
    /// Burstiness: the standard deviation of the gaps between queries over their mean. 0 is evenly spaced, 1 is Poisson
    /// [default: 1]
    #[arg(long, requires = "rate", help_heading = "The cluster")]
    pub cv: Option<f64>,
    /// Arrivals to replay: seconds since the start, one a line
    #[arg(long, value_name = "FILE", conflicts_with = "rate", help_heading = "The cluster")]
    pub trace: Option<PathBuf>,
    /// Number of instances [default: that of the recording or of the workers]
    #[arg(long, value_name = "N", help_heading = "The cluster")]
    pub instances: Option<u32>,
    /// Jobs that an instance may hold
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "The cluster")]
    pub slots: u16,
    /// Largest batch that instances take: 1, 2, 4 and 8 are tried up to it
    #[arg(long, value_name = "ROWS", default_value_t = 1, help_heading = "The cluster")]
    pub max_batch: u16,
    /// A worker to measure service times at (repeat); nobody else should use it meanwhile
    #[arg(long, value_name = "URL", requires = "model", help_heading = "The cluster")]
    pub worker: Vec<String>,
    /// Seconds to measure for
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600), help_heading = "The cluster")]
    pub seconds: u64,
    /// A file of measured service times: milliseconds for one row, one a line
    #[arg(long, value_name = "FILE", conflicts_with = "worker", help_heading = "The cluster")]
    pub service: Option<PathBuf>,
    /// Median service time, where none is measured: lognormal with sigma 0.05 [default: 20]
    #[arg(long, value_name = "MS", conflicts_with_all = ["worker", "service"], help_heading = "The cluster")]
    pub service_ms: Option<f64>,
    /// Time that each further row of a batch adds, as a share of the time for one [default: as measured, else 1]
    #[arg(long, value_name = "SHARE", help_heading = "The cluster")]
    pub row_share: Option<f64>,
    /// What goes wrong: a scenario of `parm simulate --list`, or of the file of --scenarios [default: as recorded, else
    /// clean]
    #[arg(long, value_name = "NAME", help_heading = "The cluster")]
    pub scenario: Option<String>,
    /// Experiment file with scenarios of your own
    #[arg(long, value_name = "FILE", requires = "scenario", help_heading = "The cluster")]
    pub scenarios: Option<PathBuf>,
    /// Milliseconds that clients wait at most
    #[arg(long, value_name = "MS", default_value_t = 10_000, help_heading = "The cluster", value_parser = clap::value_parser!(u64).range(1..=31_536_000_000))]
    pub deadline_ms: u64,
}

/// What answers are worth.
#[derive(Debug, Args)]
pub struct Worth {
    /// Manifest of a bundle (`NAME/parm.toml`) with measured accuracies
    #[arg(long, value_name = "FILE", help_heading = "What answers are worth")]
    pub bundle: Option<PathBuf>,
    /// Accuracy of predictions, 0 to 1 [default: the bundle's, else 1]
    #[arg(long, value_name = "SHARE", help_heading = "What answers are worth")]
    pub available: Option<f64>,
    /// Accuracy of reconstructions of a code: K=A or K,R=A (repeat) [default: the bundle's, else no coded policy is tried]
    #[arg(long, value_name = "K[,R]=A", help_heading = "What answers are worth")]
    pub degraded: Vec<Degraded>,
    /// Time of a parity model for a group, as a share of the deployed model's time for a query
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, help_heading = "What answers are worth")]
    pub parity_share: f64,
    /// A backup model: its time as a share of the deployed model's, and its accuracy
    #[arg(long, value_name = "SHARE=A", help_heading = "What answers are worth")]
    pub backup: Option<Backup>,
    /// A stand-in: its time as a share of the deployed model's, and its accuracy. ACCURACY alone where the cost is known
    /// [default: what a recording made with one, or the bundle, says]
    #[arg(long, value_name = "[SHARE=]A", help_heading = "What answers are worth")]
    pub stand_in: Option<StandIn>,
}

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Wanted {
    /// Answers within the SLO, each counted at its accuracy
    Goodput,
    /// A short p99.9
    Tail,
    /// A short way from p50 to p99.9
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
