//! `parm tune`: searches a configuration of `parm serve` for the expected load and faults of a cluster.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use parm_lab::tuner::{
    Coded, Limits, MARK, Objective, Plan, Problem, Profile, Quality, Recording, Report, Search, StandInFacts,
    to_toml,
};
use parm_parity_models::bundle::Manifest;
use parm_settings::Cost;
use parm_workload::arrivals::Arrivals;
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;
use parm_workload::{Faults, Pattern, Scenario};

use crate::cli::Output;
use crate::progress::Bar;
use crate::{Failure, printer, record};

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
    #[arg(long, value_name = "THRESHOLD", value_parser = limit)]
    pub require: Vec<Limits>,
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
    /// Model, if the recording has several
    #[arg(long, value_name = "NAME", help_heading = "The cluster")]
    pub model: Option<String>,
    /// Queries per second
    #[arg(long, value_name = "N", help_heading = "The cluster")]
    pub rate: Option<f64>,
    /// Number of instances [default: that of the recording]
    #[arg(long, value_name = "N", help_heading = "The cluster")]
    pub instances: Option<u32>,
    /// Largest batch: 1, 2, 4 and 8 are tried up to it
    #[arg(long, value_name = "ROWS", default_value_t = 1, help_heading = "The cluster")]
    pub max_batch: u16,
    /// Median of assumed service times, lognormal with sigma 0.05 [default: 20]
    #[arg(long, value_name = "MS", help_heading = "The cluster")]
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
    #[arg(long, value_name = "K[,R]=A", value_parser = coded, help_heading = "Accuracies and costs")]
    pub degraded: Vec<Coded>,
    /// Backup model: its time as a share of the deployed model's, and its accuracy
    #[arg(long, value_name = "SHARE=A", value_parser = cheaper, help_heading = "Accuracies and costs")]
    pub backup: Option<(f64, f64)>,
    /// Stand-in: its time as a share of the deployed model's, and its accuracy [default: of the recording or the bundle]
    #[arg(long, value_name = "[SHARE=]A", value_parser = stand_in, help_heading = "Accuracies and costs")]
    pub stand_in: Option<StandInFacts>,
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
fn limit(text: &str) -> Result<Limits, String> {
    let value = |text: &str| text.trim().parse::<f64>().ok().filter(|value| *value >= 0.0);
    let none = Limits::default();
    let read = || match text.split_once("<=") {
        Some(("p99.9", ms)) => Some(Limits { p999_ms: Some(value(ms.trim_end_matches("ms"))?), ..none }),
        Some(("extra", share)) => Some(Limits { extra: Some(value(share)?), ..none }),
        Some(_) => None,
        None => Some(Limits { accuracy: Some(value(text.strip_prefix("accuracy>=")?)?), ..none }),
    };
    read().ok_or_else(|| "write p99.9<=40ms, extra<=0.3 or accuracy>=0.93".into())
}

/// A code and the accuracy of its reconstructions.
fn coded(text: &str) -> Result<Coded, String> {
    let read = || {
        let (code, accuracy) = text.split_once('=')?;
        let (k, r) = code.split_once(',').unwrap_or((code, "1"));
        let (k, r) = (k.trim().parse().ok()?, r.trim().parse().ok()?);
        let degraded = accuracy.trim().parse().ok()?;
        ((2..=64).contains(&k) && (1..=k).contains(&r)).then_some(Coded { k, r, code: None, degraded })
    };
    read().ok_or_else(|| {
        "write K=ACCURACY or K,R=ACCURACY, such as 2=0.91 or 4,2=0.88, with K from 2 to 64".into()
    })
}

/// The time of a cheaper model as a share of the deployed model's, and its accuracy.
fn cheaper(text: &str) -> Result<(f64, f64), String> {
    let read = || {
        let (share, accuracy) = text.split_once('=')?;
        let (share, accuracy) = (share.trim().parse::<f64>().ok()?, accuracy.trim().parse().ok()?);
        (share > 0.0 && share <= 100.0).then_some((share, accuracy))
    };
    read().ok_or_else(|| "write SHARE=ACCURACY, such as 0.25=0.88 for a model four times as fast".into())
}

fn stand_in(text: &str) -> Result<StandInFacts, String> {
    let (cost, accuracy) = match text.trim().parse() {
        Ok(accuracy) => (None, accuracy),
        Err(_) => cheaper(text).map(|(share, accuracy)| (Some(Cost::linear(share)), accuracy))?,
    };
    Ok(StandInFacts { cost, accuracy: Some(accuracy), ..StandInFacts::default() })
}

/// Runs the command. Invalid input ends with status 64.
pub fn main(flags: &Tune) -> Result<(), Failure> {
    let problem = problem(flags).map_err(Failure::Configuration)?;
    check(&flags.out).map_err(Failure::Configuration)?;
    let plan = Plan {
        seed: flags.seed,
        queries: flags.queries,
        repeats: flags.repeats,
        threads: flags.threads.or(thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get),
    };
    let search = Search::new(&problem, plan).map_err(|error| Failure::Configuration(error.into()))?;
    let bar = Bar::new(search.queries(), "queries");
    let report = search.run(&bar).map_err(|error| Failure::Run(error.into()))?;
    drop(bar);
    let written = write(&flags.out, &report).map_err(Failure::Run)?;
    printer::show(&report, flags.output).map_err(Failure::Run)?;
    eprintln!("wrote {}", written.display());
    Ok(())
}

/// Builds the problem that the flags describe.
fn problem(flags: &Tune) -> anyhow::Result<Problem> {
    let cluster = &flags.cluster;
    let recorded = match &cluster.recording {
        Some(path) => Some(recorded(path, cluster.model.as_deref())?),
        None => None,
    };
    let profile = recorded.as_ref().map(|(_, profile)| profile);
    let arrivals = arrivals(cluster, recorded.as_ref().map(|(recording, _)| recording))?;
    let faults = faults(cluster, profile)?;
    let quality = quality(&flags.worth, profile.and_then(|profile| profile.stand_in))?;
    let instances = instances(cluster, profile)?;
    let service = service(cluster, profile);
    // Of several limits of one figure the last counts.
    let limits = flags.require.iter().fold(Limits::default(), |all, one| Limits {
        p999_ms: one.p999_ms.or(all.p999_ms),
        extra: one.extra.or(all.extra),
        accuracy: one.accuracy.or(all.accuracy),
    });
    Ok(Problem {
        slo: Duration::try_from_secs_f64(flags.slo_ms / 1e3)
            .map_err(|_| anyhow!("--slo-ms {}: give milliseconds above 0", flags.slo_ms))?,
        arrivals,
        service,
        faults,
        instances,
        max_batch: cluster.max_batch.max(1),
        deadline: Duration::from_millis(cluster.deadline_ms.max(1)),
        quality,
        limits,
        objective: flags.objective,
    })
}

/// Reads a recording, derives its profile, and prints that on stderr.
pub fn recorded(path: &Path, model: Option<&str>) -> anyhow::Result<(Recording, Profile)> {
    let recording = record::read(path, model)?;
    let profile = record::profile(&recording, &path.display().to_string())?;
    Ok((recording, profile))
}

fn arrivals(cluster: &Cluster, recording: Option<&Recording>) -> anyhow::Result<Arrivals> {
    Ok(match (cluster.rate, recording) {
        (Some(rate), _) => Pattern::Poisson.at(rate),
        (None, Some(recording)) => recording.trace(),
        (None, None) => bail!("no arrivals: give --rate or --recording"),
    })
}

fn faults(cluster: &Cluster, profile: Option<&Profile>) -> anyhow::Result<Faults> {
    let Some(name) = &cluster.scenario else {
        return Ok(profile.map(Profile::faults).unwrap_or_default());
    };
    Ok(Scenario::combined(name, |_| None)?.faults)
}

fn instances(cluster: &Cluster, profile: Option<&Profile>) -> anyhow::Result<u32> {
    let known = cluster.instances.or(profile.map(|profile| profile.instances));
    known.context("unknown number of instances: give --instances")
}

fn service(cluster: &Cluster, profile: Option<&Profile>) -> Service {
    match (cluster.service_ms, profile) {
        (Some(median), _) => {
            Service { time_ms: Distribution::Lognormal { median, sigma: 0.05 }, ..Service::default() }
        }
        (None, Some(profile)) => profile.service.clone(),
        (None, None) => Service::default(),
    }
}

/// Returns the bundle's accuracies, overridden by flags. The recorded cost of a stand-in has precedence over the bundle's,
/// which may be from another machine.
fn quality(flags: &Worth, recorded: Option<Cost>) -> anyhow::Result<Quality> {
    let (mut quality, mut stand_in) = match &flags.bundle {
        Some(path) => {
            let manifest = Manifest::read(path)?;
            (Quality::of(&manifest)?, StandInFacts::of(&manifest))
        }
        None => (Quality::default(), StandInFacts::default()),
    };
    stand_in.cost = recorded.or(stand_in.cost);
    if let Some(given) = flags.stand_in {
        stand_in.cost = given.cost.or(stand_in.cost);
        stand_in.accuracy = given.accuracy;
        anyhow::ensure!(
            stand_in.cost.is_some(),
            "--stand-in: unknown cost: give SHARE=ACCURACY, or a recording made with the stand-in"
        );
    }
    quality.available = flags.available.unwrap_or(quality.available);
    quality.backup = flags.backup.or(quality.backup);
    for given in &flags.degraded {
        let known = quality.codes.iter_mut().find(|coded| (coded.k, coded.r) == (given.k, given.r));
        match known {
            Some(coded) => coded.degraded = given.degraded,
            None => quality.codes.push(*given),
        }
    }
    quality.stand_in = stand_in.worth(quality.available);
    quality.codes.sort_by_key(|coded| (coded.k, coded.r));
    quality.check()?;
    Ok(quality)
}

const CONFIGURATION: &str = "parm.toml";

/// Rejects a folder with a configuration that `parm tune` did not write, before the search starts.
fn check(folder: &Path) -> anyhow::Result<()> {
    let path = folder.join(CONFIGURATION);
    if path.exists() {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if !text.starts_with(MARK) {
            bail!("--out: {} was not written by parm tune: name another folder", path.display());
        }
    }
    Ok(())
}

/// Writes the file and returns its path.
fn write(folder: &Path, report: &Report) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make folder {}", folder.display()))?;
    let path = folder.join(CONFIGURATION);
    fs::write(&path, to_toml(report)).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_with_their_accuracy() {
        let read = |text: &str| coded(text).map(|own| (own.k, own.r, own.degraded));
        assert_eq!(read("2=0.91"), Ok((2, 1, 0.91)));
        assert_eq!(read("4, 2 = 0.88"), Ok((4, 2, 0.88)));
        for wrong in ["", "2", "1=0.9", "2,3=0.9", "two=0.9", "300=0.9"] {
            assert!(coded(wrong).unwrap_err().contains("such as"), "{wrong}");
        }
        assert_eq!(cheaper("0.25=0.8"), Ok((0.25, 0.8)));
        assert!(cheaper("0=0.8").is_err());
    }

    #[test]
    fn limits_are_read_with_their_unit() {
        let read = |text: &str| limit(text).map(|own| [own.p999_ms, own.extra, own.accuracy]);
        assert_eq!(read("p99.9<=40ms"), Ok([Some(40.0), None, None]));
        assert_eq!(read("extra<=0.3"), Ok([None, Some(0.3), None]));
        assert_eq!(read("accuracy>=0.93"), Ok([None, None, Some(0.93)]));
        for wrong in ["p99.9>=40ms", "p99<=40ms", "extra<=-1", "accuracy<=0.9", "accuracy"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }
}
