//! Fits a profile of the instances to a recording: their service times and their faults.
//!
//! The ratio of a job's time to the usual time for its rows shows whether it was slow. An instance whose times differ from
//! the others' for the whole recording has a factor, and its jobs are compared with its own usual time. Consecutive slow
//! jobs on one instance are an episode of interference, because independent stragglers hardly ever come three in a row. A
//! job that took as long as dozens is a hang, and the remaining slow jobs are stragglers. The threshold comes from the
//! spread of the faster half, which faults do not affect. If times vary widely by nature, nothing is called slow, and the
//! sample itself has the tail; queries that ran twice show whether it follows the query.
//!
//! Rejected: a mixture or a hidden Markov model, which needs to know the shapes in advance.

mod episodes;
mod lengths;
mod rows;

use std::collections::BTreeMap;
use std::time::Duration;

use episodes::{Found, Timed};
use parm_loadgen::statistics::bootstrap::quantile_of;
use parm_settings::Cost;
use parm_settings::recording::RecordedRole;
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;
use parm_workload::{By, Fault, Faults, Targets, When};
use serde::Serialize;

use crate::Error;
use crate::tuner::{Job, Recording};
pub use episodes::{Episodes, Spell, Stragglers};
pub(crate) use lengths::LEAST as LEAST_TWICE;
pub use lengths::Lengths;

/// The instances according to a recording. They are counted from 0, in the order of their numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Service times without faults.
    pub service: Service,
    /// Instances that differ from the others for the whole recording.
    pub lasting: Vec<Lasting>,
    /// Run times that follow the query.
    pub lengths: Option<Lengths>,
    /// Number of queries that ran twice, on instances of the usual speed, which show that.
    pub ran_twice: usize,
    /// Runs that take longer, independently.
    pub stragglers: Option<Stragglers>,
    /// Instances that have many more of these than the others.
    pub stalls: BTreeMap<u32, Stragglers>,
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
    /// Their addresses.
    pub names: Vec<String>,
}

/// An instance that differs from the others for the whole recording.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lasting {
    /// The instance.
    pub instance: u32,
    /// How many times as long its jobs take.
    pub factor: f64,
}

/// Fewest jobs for a profile.
const LEAST: usize = 1000;
/// Most values that are kept of the service times.
const SAMPLE: usize = 20_000;

/// Fits a profile to a recording.
pub fn fit(recording: &Recording) -> Result<Profile, Error> {
    // Parities, backups and stand-ins run other models.
    let own = |job: &&Job| matches!(job.role, RecordedRole::Deployed | RecordedRole::Copy) && job.rows > 0;
    let (jobs, failed): (Vec<Job>, Vec<Job>) = recording.jobs.iter().filter(own).partition(|job| job.ok);
    if jobs.len() < LEAST {
        return Err(Error::FewJobs { jobs: jobs.len(), least: LEAST });
    }
    let row_share = rows::share(&jobs);
    let alone = |job: &Job| rows::alone(job, row_share);
    let mut times: Vec<f64> = jobs.iter().map(alone).collect();
    let median = quantile_of(&mut times, 0.5);
    if median <= 0.0 {
        return Err(Error::NoTime);
    }

    let mut numbers: Vec<u32> = jobs.iter().map(|job| job.instance).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut by_instance: BTreeMap<u32, Vec<Timed>> = BTreeMap::new();
    for job in &jobs {
        let (factor, copy) = (alone(job) / median, job.role == RecordedRole::Copy);
        let timed = Timed { at: job.at, took: job.took, factor, arrived: job.arrived, copy };
        let instance = numbers.partition_point(|number| *number < job.instance) as u32;
        by_instance.entry(instance).or_default().push(timed);
    }
    let lasting = lasting_factors(&by_instance);
    let usual = normalise(&mut by_instance, &lasting);
    let median = usual * median;
    let mut factors: Vec<f64> = by_instance.values().flatten().map(|job| job.factor).collect();
    let limits = episodes::SlowFrom::of(slow_from(&mut factors), &by_instance);
    let mut found = Found::default();
    by_instance.iter().for_each(|(instance, jobs)| found.look(*instance, jobs, limits));

    let others: Vec<Timed> = found.others.values().flatten().copied().collect();
    let runs =
        lengths::TimedRuns { others: &found.others, all: &by_instance, lasting: &lasting, slow: limits.slow };
    let (ran_twice, lengths) = lengths::of(&runs, &recording.arrivals);
    let (mut stragglers, mut stalls) = Stragglers::split(found.counted(limits.slow));
    let time_ms = if let Some(lengths) = &lengths {
        (stragglers, stalls) = (None, BTreeMap::new());
        Distribution::Lognormal { median: 1e3 * median, sigma: lengths.sigma }
    } else {
        let well = others.iter().filter(|job| job.factor <= limits.slow);
        let values = thinned(well.map(|job| job.factor * median * 1e3).collect(), SAMPLE);
        Distribution::Sample { values }
    };
    let (count, seconds) = (numbers.len(), recording.seconds);
    let name = |number: &u32| recording.instances.get(number).cloned().unwrap_or_default();
    Ok(Profile {
        service: Service { time_ms, row_share, ..Service::default() },
        lasting: lasting.into_iter().map(|(instance, factor)| Lasting { instance, factor }).collect(),
        lengths,
        ran_twice,
        stragglers,
        stalls,
        interference: Episodes::of(found.slow, count, seconds),
        hangs: Episodes::of(found.hung, count, seconds),
        stand_in: rows::stand_in(&recording.jobs, median),
        jobs: jobs.len(),
        failed: failed.len(),
        instances: count as u32,
        names: numbers.iter().map(name).collect(),
    })
}

/// Fewest jobs of an instance for a factor.
const LEAST_FOR_FACTOR: usize = 5;
/// Standard errors of the median beyond which a difference is not chance.
const ERRORS: f64 = 5.0;
/// Smallest difference, as a factor.
const DIFFERS: f64 = 1.1;
/// Parts of the recording in which the difference must show, and the share of them that must show it.
const PARTS: usize = 10;
const LASTS: f64 = 0.8;

/// Returns the factors of the instances that are slower or faster than the others for the whole recording.
///
/// An instance's median is compared with that of the middle instance: the others are its reference, so fewer than half of
/// the instances may be slow. A difference counts if chance does not explain it and if it lasts, because an instance that
/// is slow for a while has an episode.
fn lasting_factors(jobs: &BTreeMap<u32, Vec<Timed>>) -> BTreeMap<u32, f64> {
    let known = jobs.iter().filter(|(_, jobs)| jobs.len() >= LEAST_FOR_FACTOR);
    let medians: Vec<(u32, f64)> = known.map(|(instance, jobs)| (*instance, median(jobs))).collect();
    let mut sorted: Vec<f64> = medians.iter().map(|(_, median)| *median).collect();
    sorted.sort_by(f64::total_cmp);
    let Some(reference) = sorted.get(sorted.len().saturating_sub(1) / 2).copied() else {
        return BTreeMap::new();
    };
    let differs = |(instance, median): (u32, f64)| {
        let (factor, jobs) = (median / reference, &jobs[&instance]);
        let far = factor.max(1.0 / factor) >= DIFFERS && factor.ln().abs() > ERRORS * error(jobs);
        (far && lasts(jobs, reference, factor)).then_some((instance, factor))
    };
    medians.into_iter().filter_map(differs).collect()
}

fn median(jobs: &[Timed]) -> f64 {
    quantile_of(&mut jobs.iter().map(|job| job.factor).collect::<Vec<_>>(), 0.5)
}

/// Returns the standard error of the median's logarithm, from the middle of the values.
fn error(jobs: &[Timed]) -> f64 {
    let mut logs: Vec<f64> = jobs.iter().map(|job| job.factor.ln()).collect();
    let spread = 0.5 * (quantile_of(&mut logs, 0.84) - quantile_of(&mut logs, 0.16));
    1.2533 * spread / (jobs.len() as f64).sqrt()
}

/// Whether most parts of the recording have the factor.
fn lasts(jobs: &[Timed], reference: f64, factor: f64) -> bool {
    let parts = PARTS.min(jobs.len() / LEAST_FOR_FACTOR).max(1);
    let part = |number: usize| &jobs[number * jobs.len() / parts..(number + 1) * jobs.len() / parts];
    let shows = |number: &usize| {
        let log = (median(part(*number)) / reference).ln();
        (log - factor.ln()).abs() < log.abs()
    };
    (0..parts).filter(shows).count() as f64 >= LASTS * parts as f64
}

/// Divides the times of each instance by its own factor, and all by their median, which is returned.
fn normalise(by_instance: &mut BTreeMap<u32, Vec<Timed>>, lasting: &BTreeMap<u32, f64>) -> f64 {
    for (instance, factor) in lasting {
        by_instance.entry(*instance).or_default().iter_mut().for_each(|job| job.factor /= factor);
    }
    let mut factors: Vec<f64> = by_instance.values().flatten().map(|job| job.factor).collect();
    let usual = quantile_of(&mut factors, 0.5);
    by_instance.values_mut().flatten().for_each(|job| job.factor /= usual);
    usual
}

/// Four standard deviations of the faster half's logarithms, and at least 1.3 times the median.
fn slow_from(factors: &mut [f64]) -> f64 {
    let (low, median) = (quantile_of(factors, 0.16), quantile_of(factors, 0.5));
    (median / low).powi(4).max(1.3)
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
    /// Returns the faults, for a simulation of any length: episodes come at random.
    pub fn faults(&self) -> Faults {
        let when = |episodes: &Episodes| When::Episodes {
            share: episodes.share.min(0.99),
            length: Duration::from_millis((episodes.length_ms as u64).max(1)),
        };
        let on = |episodes: &Episodes| match &episodes.only[..] {
            [] => Targets::Each,
            only => Targets::Only(only.to_vec()),
        };
        let slow = self.interference.iter().map(|episodes| Fault::Slow {
            factor: episodes.factor,
            when: when(episodes),
            on: on(episodes),
        });
        let hang = self.hangs.iter().map(|hangs| Fault::Hang { when: when(hangs), on: on(hangs) });
        Faults(self.steady().chain(slow).chain(hang).collect())
    }

    /// Returns the faults as they happened, for a replay of the recorded arrivals.
    pub fn history(&self) -> Faults {
        let when = |spell: &Spell, seconds: f64| When::Once {
            at: Duration::from_secs_f64(spell.from.max(0.0)),
            length: Duration::from_secs_f64(seconds.max(1e-6)),
        };
        let slow = self.interference.iter().flat_map(|episodes| &episodes.spells).map(|spell| Fault::Slow {
            factor: spell.factor,
            when: when(spell, spell.seconds),
            on: Targets::Only(vec![spell.instance]),
        });
        let usual = self.service.mean_seconds();
        let hang = self.hangs.iter().flat_map(|hangs| &hangs.spells).map(|spell| Fault::Hang {
            when: when(spell, spell.seconds - usual),
            on: Targets::Only(vec![spell.instance]),
        });
        Faults(self.steady().chain(slow).chain(hang).collect())
    }

    /// Returns the faults that have no times.
    fn steady(&self) -> impl Iterator<Item = Fault> {
        let straggle = |stragglers: &Stragglers, on| Fault::Straggle {
            share: stragglers.share,
            factor: stragglers.factor.clone(),
            by: By::Run,
            on,
        };
        let everywhere = self.stragglers.iter().map(move |found| straggle(found, Targets::Each));
        let own = move |(instance, found): (&u32, _)| straggle(found, Targets::Only(vec![*instance]));
        let lasting = self.lasting.iter().map(|Lasting { instance, factor }| Fault::Slow {
            factor: *factor,
            when: When::Always,
            on: Targets::Only(vec![*instance]),
        });
        let sizes = self.lengths.iter().map(|lengths| Fault::Sizes {
            factors: lengths.factors.clone(),
            file: None,
            on: Targets::Each,
        });
        everywhere.chain(self.stalls.iter().map(own)).chain(lasting).chain(sizes)
    }
}

impl Profile {
    /// Returns the name of an instance for people.
    pub fn name(&self, instance: u32) -> String {
        match self.names.get(instance as usize) {
            Some(name) if !name.is_empty() => name.clone(),
            _ => format!("instance {instance}"),
        }
    }

    /// Returns the names before the description of their episodes; nothing for all instances.
    fn names(&self, only: &[u32]) -> String {
        let names: Vec<String> = only.iter().map(|instance| self.name(*instance)).collect();
        if names.is_empty() { String::new() } else { format!("{} ", names.join(", ")) }
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
        for Lasting { instance, factor } in &self.lasting {
            write!(f, "; {} takes {factor:.2} times that all the time", self.name(*instance))?;
        }
        if let Some(Lengths { pairs, .. }) = &self.lengths {
            write!(f, "; times follow the query, as {pairs} queries that ran twice show")?;
        }
        if let Some(Stragglers { share, median_factor, .. }) = &self.stragglers {
            write!(f, "; {:.2} % stragglers of {median_factor:.1} times that", 100.0 * share)?;
        }
        for (instance, Stragglers { share, median_factor, .. }) in &self.stalls {
            let (name, percent) = (self.name(*instance), 100.0 * share);
            write!(f, "; {name} has {percent:.2} % stragglers of {median_factor:.1} times that")?;
        }
        if let Some(Episodes { share, length_ms, factor, count, only, .. }) = &self.interference {
            let (percent, on) = (100.0 * share, self.names(only));
            write!(
                f,
                "; {on}{factor:.1} times slower {percent:.1} % of the time, {count} times for {length_ms:.0} ms"
            )?;
        }
        if let Some(Episodes { share, length_ms, count, only, .. }) = &self.hangs {
            let (percent, on) = (100.0 * share, self.names(only));
            write!(f, "; {on}hung {percent:.2} % of the time, {count} times for {length_ms:.0} ms")?;
        }
        Ok(())
    }
}
