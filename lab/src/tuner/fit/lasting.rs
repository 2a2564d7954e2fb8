//! Finds the instances that are slower or faster than the others for the whole recording.
//!
//! An instance's median is compared with that of the middle instance: the others are its reference, so fewer than half of
//! the instances may be slow. A difference counts if chance does not explain it and if it lasts, because an instance that
//! is slow for a while has an episode.

use std::collections::BTreeMap;

use parm_loadgen::statistics::bootstrap::quantile_of;

use super::episodes::Timed;

/// Fewest jobs of an instance for a factor.
const LEAST: usize = 5;
/// Standard errors of the median beyond which a difference is not chance.
const ERRORS: f64 = 5.0;
/// Smallest difference, as a factor.
const DIFFERS: f64 = 1.1;
/// Parts of the recording in which the difference must show, and the share of them that must show it.
const PARTS: usize = 10;
const LASTS: f64 = 0.8;

/// Returns the factors of the instances that differ for the whole recording.
pub(super) fn factors(jobs: &BTreeMap<u32, Vec<Timed>>) -> BTreeMap<u32, f64> {
    let known = jobs.iter().filter(|(_, jobs)| jobs.len() >= LEAST);
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
    let parts = PARTS.min(jobs.len() / LEAST).max(1);
    let part = |number: usize| &jobs[number * jobs.len() / parts..(number + 1) * jobs.len() / parts];
    let shows = |number: &usize| {
        let log = (median(part(*number)) / reference).ln();
        (log - factor.ln()).abs() < log.abs()
    };
    (0..parts).filter(shows).count() as f64 >= LASTS * parts as f64
}
