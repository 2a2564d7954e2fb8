//! Fits a profile of the instances to a recording: their service times and their faults.
//!
//! The ratio of a job's time to the usual time for its rows shows whether it was slow. Consecutive slow jobs on one
//! instance are an episode of interference, because independent stragglers hardly ever come three in a row. A job that
//! took as long as dozens is a hang, and the remaining slow jobs are stragglers. The threshold comes from the spread of
//! the faster half, which faults do not affect. If times vary widely by nature, nothing is called slow, and the sample
//! itself has the tail.
//!
//! Rejected: a mixture or a hidden Markov model, which needs to know the shapes in advance.

mod episodes;
mod rows;
mod stand_in;

use std::collections::BTreeMap;
use std::time::Duration;

use episodes::{Found, Timed};
use parm_dispatch::Cost;
use parm_dispatch::recording::RecordedRole;
use parm_loadgen::statistics::bootstrap::quantile_of;
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;
use parm_workload::{By, Fault, Faults, Targets, When};
use serde::Serialize;

use crate::{Error, Job, Recording};
pub use episodes::Episodes;

/// The instances according to a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Service times without faults.
    pub service: Service,
    /// Runs that take longer, independently.
    pub stragglers: Option<Stragglers>,
    /// Episodes in which an instance is slow.
    pub interference: Option<Episodes>,
    /// Episodes in which an instance makes no progress.
    pub hangs: Option<Episodes>,
    /// The stand-in's time as a share of a query's, if there was one.
    pub stand_in: Option<Cost>,
    /// Number of jobs behind the profile.
    pub jobs: usize,
    /// Failed jobs, which are left out.
    pub failed: usize,
    /// Instances that ran them.
    pub instances: u32,
}

/// Runs that take longer, independently.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stragglers {
    /// Share of the runs.
    pub share: f64,
    /// The median factor of their times.
    pub median_factor: f64,
    /// The distribution of their factors.
    pub factor: Distribution,
}

/// Fewest jobs for a profile.
const LEAST: usize = 1000;
/// Most values that are kept of the service times, and of the stragglers.
const SAMPLE: usize = 20_000;
const STRAGGLERS: usize = 1000;

/// Fits a profile to a recording.
pub fn fit(recording: &Recording) -> Result<Profile, Error> {
    // Parities, backups and stand-ins run other models.
    let own = |job: &&Job| matches!(job.role, RecordedRole::Deployed | RecordedRole::Copy) && job.rows > 0;
    let (jobs, failed): (Vec<Job>, Vec<Job>) = recording.jobs.iter().filter(own).partition(|job| job.ok);
    if jobs.len() < LEAST {
        return Err(Error::FewJobs { jobs: jobs.len(), least: LEAST });
    }
    let row_share = rows::share(&jobs);
    let alone = |job: &Job| job.took / (1.0 + row_share * f64::from(job.rows - 1));
    let mut times: Vec<f64> = jobs.iter().map(alone).collect();
    let median = quantile_of(&mut times, 0.5);
    if median <= 0.0 {
        return Err(Error::NoTime);
    }
    let usual = Usual { median, slow: slow_from(&mut times) };

    let mut by_instance: BTreeMap<u32, Vec<Timed>> = BTreeMap::new();
    for job in &jobs {
        let timed = Timed { at: job.at, took: job.took, factor: alone(job) / usual.median };
        by_instance.entry(job.instance).or_default().push(timed);
    }
    let mut found = Found::default();
    by_instance.values().for_each(|jobs| found.look(jobs, usual.slow));
    let span = recording.seconds * by_instance.len() as f64;

    let (slow, well): (Vec<f64>, Vec<f64>) = found.others.iter().partition(|factor| **factor > usual.slow);
    let values = thinned(well.iter().map(|factor| factor * usual.median * 1e3).collect(), SAMPLE);
    Ok(Profile {
        service: Service { time_ms: Distribution::Sample { values }, row_share },
        stragglers: stragglers(slow, found.others.len()),
        interference: Episodes::of(&found.slow, span),
        hangs: Episodes::of(&found.hung, span),
        stand_in: stand_in::cost(&recording.jobs, usual.median),
        jobs: jobs.len(),
        failed: failed.len(),
        instances: by_instance.len() as u32,
    })
}

#[derive(Clone, Copy)]
struct Usual {
    /// Seconds for one row.
    median: f64,
    /// Multiple of the median beyond which a job is slow.
    slow: f64,
}

/// Four standard deviations of the faster half's logarithms, and at least 1.5 times the median.
fn slow_from(times: &mut [f64]) -> f64 {
    let (low, median) = (quantile_of(times, 0.16), quantile_of(times, 0.5));
    (median / low).powi(4).max(1.5)
}

fn stragglers(slow: Vec<f64>, of: usize) -> Option<Stragglers> {
    if slow.is_empty() {
        return None;
    }
    let share = slow.len() as f64 / of as f64;
    let values = thinned(slow, STRAGGLERS);
    let median_factor = quantile_of(&mut values.clone(), 0.5);
    Some(Stragglers { share, median_factor, factor: Distribution::Sample { values } })
}

/// Keeps at most this many of the values, from all over their range.
fn thinned(mut values: Vec<f64>, most: usize) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    if values.len() <= most {
        return values;
    }
    let last = (values.len() - 1) as f64;
    (0..most).map(|n| values[(n as f64 / (most - 1) as f64 * last).round() as usize]).collect()
}

impl Profile {
    /// Returns the faults, for a simulation.
    pub fn faults(&self) -> Faults {
        let when = |episodes: &Episodes| When::Episodes {
            share: episodes.share.min(0.99),
            length: Duration::from_millis((episodes.length_ms as u64).max(1)),
        };
        let straggle = self.stragglers.iter().map(|stragglers| Fault::Straggle {
            share: stragglers.share,
            factor: stragglers.factor.clone(),
            by: By::Run,
            on: Targets::Each,
        });
        let slow = self.interference.iter().map(|episodes| Fault::Slow {
            factor: episodes.factor,
            when: when(episodes),
            on: Targets::Each,
        });
        let hang = self.hangs.iter().map(|hangs| Fault::Hang { when: when(hangs), on: Targets::Each });
        Faults(straggle.chain(slow).chain(hang).collect())
    }
}

impl std::fmt::Display for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mean_ms = self.service.time_ms.mean();
        write!(f, "{} jobs on {} instances: {mean_ms:.2} ms without faults", self.jobs, self.instances)?;
        if self.service.row_share < 1.0 {
            write!(f, ", {:.0} % of it for each further row", 100.0 * self.service.row_share)?;
        }
        if let Some(cost) = &self.stand_in {
            write!(f, "; its stand-in takes {:.0} % of it", 100.0 * cost.of(1))?;
        }
        if let Some(Stragglers { share, median_factor, .. }) = &self.stragglers {
            write!(f, "; {:.2} % stragglers of {median_factor:.1} times that", 100.0 * share)?;
        }
        if let Some(Episodes { share, length_ms, factor, count }) = &self.interference {
            let percent = 100.0 * share;
            write!(
                f,
                "; {factor:.1} times slower {percent:.1} % of the time, {count} times for {length_ms:.0} ms"
            )?;
        }
        if let Some(Episodes { share, length_ms, count, .. }) = &self.hangs {
            write!(f, "; hung {:.2} % of the time, {count} times for {length_ms:.0} ms", 100.0 * share)?;
        }
        Ok(())
    }
}
