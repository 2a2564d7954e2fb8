//! Builds the tuner's problem from flags, files and a recording.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use parm_lab::tuner::{Limits, Problem, Profile, Recording};
use parm_workload::Faults;
use parm_workload::Pattern;
use parm_workload::arrivals::Arrivals;
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;
use parm_workload::{Scenario, numbers};

use super::worth;
use crate::cli::tune::{Cluster, Tune};
use crate::record;

/// Builds the problem that the flags describe.
pub fn of(flags: &Tune) -> anyhow::Result<Problem> {
    let cluster = &flags.cluster;
    let recorded = recorded(cluster)?;
    let profile = recorded.as_ref().map(|(_, profile)| profile);
    let arrivals = arrivals(cluster, recorded.as_ref().map(|(recording, _)| recording))?;
    let faults = faults(cluster, profile)?;
    let quality = worth::of(&flags.worth, profile.and_then(|profile| profile.stand_in))?;
    let instances = instances(cluster, profile)?;
    let service = service(cluster, profile)?;
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

fn recorded(cluster: &Cluster) -> anyhow::Result<Option<(Recording, Profile)>> {
    let Some(path) = &cluster.recording else { return Ok(None) };
    Ok(Some(read(path, cluster.model.as_deref())?))
}

/// Reads a recording, derives its profile, and prints that on stderr.
pub fn read(path: &Path, model: Option<&str>) -> anyhow::Result<(Recording, Profile)> {
    let recording = record::read(path, model)?;
    let profile = record::profile(&recording, &path.display().to_string())?;
    Ok((recording, profile))
}

fn arrivals(cluster: &Cluster, recording: Option<&Recording>) -> anyhow::Result<Arrivals> {
    if let Some(path) = &cluster.trace {
        return Arrivals::trace(&text(path)?).with_context(|| path.display().to_string());
    }
    Ok(match (cluster.rate, recording) {
        (Some(rate), _) => Pattern::Poisson.at(rate),
        (None, Some(recording)) => recording.trace(),
        (None, None) => bail!("no arrivals: give --rate, --trace or --recording"),
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

fn service(cluster: &Cluster, profile: Option<&Profile>) -> anyhow::Result<Service> {
    if let Some(path) = &cluster.service {
        let values = numbers(&text(path)?).with_context(|| path.display().to_string())?;
        return Ok(Service { time_ms: Distribution::Sample { values }, ..Service::default() });
    }
    if let Some(median) = cluster.service_ms {
        return Ok(Service {
            time_ms: Distribution::Lognormal { median, sigma: 0.05 },
            ..Service::default()
        });
    }
    Ok(profile.map(|profile| profile.service.clone()).unwrap_or_default())
}

/// Largest trace or sample that is read, in bytes.
const LARGEST: u64 = 1 << 30;

fn text(path: &Path) -> anyhow::Result<String> {
    let named = || format!("cannot read {}", path.display());
    let size = std::fs::metadata(path).with_context(named)?.len();
    if size > LARGEST {
        bail!("{} has {size} bytes, more than the limit of {LARGEST}: shorten it", path.display());
    }
    std::fs::read_to_string(path).with_context(named)
}
