//! Fits the cost of a further row of a batch, and of a stand-in, to jobs of several sizes.
//!
//! A slow instance gets larger batches, because queries wait for it longer. Medians over all instances would charge its
//! slowness to the rows, so each time is first divided by the usual time of its instance. That time depends on the cost of
//! the rows in turn: the fit alternates between the two until the cost stays the same.

use std::collections::BTreeMap;

use parm_loadgen::statistics::bootstrap::quantile_of;
use parm_settings::Cost;
use parm_settings::recording::RecordedRole;

use crate::tuner::Job;

/// Fewest jobs of one size for a median.
const LEAST: usize = 50;
/// Most rounds of the fit, and the change of the share that ends it.
const ROUNDS: usize = 50;
const CLOSE: f64 = 1e-4;
/// Shortest usual time in seconds, by which times can be divided.
const SHORTEST: f64 = 1e-9;

/// Returns the share of one row's time that each further row adds, within instances. Returns 1 if all jobs have one size.
pub(super) fn share(jobs: &[Job]) -> f64 {
    let mut times: Vec<f64> = jobs.iter().map(|job| job.took).collect();
    let mut share = slope(jobs, &times);
    for _ in 0..ROUNDS {
        let usual = usual(jobs, share);
        times = jobs.iter().map(|job| job.took / usual[&job.instance]).collect();
        let next = slope(jobs, &times);
        let change = (next - share).abs();
        share = next;
        if change < CLOSE {
            break;
        }
    }
    share
}

/// Returns the time that a job would have taken with one row.
pub(super) fn alone(job: &Job, share: f64) -> f64 {
    job.took / (1.0 + share * f64::from(job.rows - 1))
}

/// Returns the median time of each instance for one row.
fn usual(jobs: &[Job], share: f64) -> BTreeMap<u32, f64> {
    let mut times: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for job in jobs {
        times.entry(job.instance).or_default().push(alone(job, share));
    }
    let median = |mut times: Vec<f64>| quantile_of(&mut times, 0.5).max(SHORTEST);
    times.into_iter().map(|(instance, times)| (instance, median(times))).collect()
}

/// Returns the slope of a line through the medians of each size, weighted by their number of jobs, as a share of its value
/// at one row.
fn slope(jobs: &[Job], times: &[f64]) -> f64 {
    let mut sizes: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (job, time) in jobs.iter().zip(times) {
        sizes.entry(job.rows).or_default().push(*time);
    }
    let medians: Vec<(f64, f64, f64)> = sizes
        .into_iter()
        .filter(|(_, times)| times.len() >= LEAST)
        .map(|(rows, mut times)| (f64::from(rows), quantile_of(&mut times, 0.5), times.len() as f64))
        .collect();
    if medians.len() < 2 {
        return 1.0;
    }
    let weight: f64 = medians.iter().map(|(_, _, count)| count).sum();
    let mean = |of: fn(&(f64, f64, f64)) -> f64| medians.iter().map(|m| m.2 * of(m)).sum::<f64>() / weight;
    let (rows, time) = (mean(|m| m.0), mean(|m| m.1));
    let slope = medians.iter().map(|m| m.2 * (m.0 - rows) * (m.1 - time)).sum::<f64>()
        / medians.iter().map(|m| m.2 * (m.0 - rows).powi(2)).sum::<f64>();
    let alone = time - slope * (rows - 1.0);
    if alone > 0.0 { (slope / alone).clamp(0.0, 1.0) } else { 1.0 }
}

/// Numbers of rows for which the cost is computed.
const ROWS: [u32; 4] = [1, 2, 4, 8];

/// Returns the medians of a stand-in's jobs as shares of a query's time (in seconds). A size with too few jobs costs as much per
/// row as the nearest size with enough. `None` without a stand-in.
pub(super) fn stand_in(jobs: &[Job], query: f64) -> Option<Cost> {
    let seen = ROWS.map(|rows| {
        let own = |job: &&Job| job.role == RecordedRole::StandIn && job.ok && job.rows == rows;
        let mut times: Vec<f64> = jobs.iter().filter(own).map(|job| job.took).collect();
        (times.len() >= LEAST).then(|| quantile_of(&mut times, 0.5) / query)
    });
    let nearest = |at: usize| {
        let known = (0..ROWS.len()).filter_map(|other| Some((other, seen[other]?)));
        let (other, share) = known.min_by_key(|(other, _)| at.abs_diff(*other))?;
        Some(share * f64::from(ROWS[at]) / f64::from(ROWS[other]))
    };
    let [one, two, four, eight] = [0, 1, 2, 3].map(nearest);
    Some(Cost { rows: [one?, two?, four?, eight?] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(sizes: &[(u32, f64)]) -> Vec<Job> {
        let role = RecordedRole::Deployed;
        let job = |rows, took| Job { instance: 0, at: 0.0, took, rows, role, ok: true, arrived: None };
        sizes.iter().flat_map(|(rows, took)| (0..60).map(|_| job(*rows, *took))).collect()
    }

    #[test]
    fn row_share_is_the_slope_over_the_time_of_one_row() {
        assert!((share(&jobs(&[(1, 0.020), (2, 0.025), (8, 0.055)])) - 0.25).abs() < 1e-9);
        assert!((share(&jobs(&[(2, 0.020), (4, 0.020)])) - 0.0).abs() < 1e-9);
        assert_eq!(share(&jobs(&[(4, 0.020)])), 1.0);
    }

    #[test]
    fn slow_instance_with_larger_batches_keeps_its_factor() {
        let role = RecordedRole::Deployed;
        // The last of four instances takes 2.5 times as long, and most of its batches have four rows.
        let job = |instance: u32, number: u32| {
            let is_slow = instance == 3;
            let rows = if (number % 10 < 8) == is_slow { 4 } else { 1 };
            let spread = 0.9 + 0.02 * f64::from(number * 7 % 11);
            let own = if is_slow { 2.5 } else { 1.0 };
            let took = 0.02 * own * spread * (1.0 + 0.05 * f64::from(rows - 1));
            Job { instance, at: 0.0, took, rows, role, ok: true, arrived: None }
        };
        let of = |instance: u32| (0..330).map(move |number| job(instance, number));
        let jobs: Vec<Job> = (0..4).flat_map(of).collect();
        let share = share(&jobs);
        assert!((share - 0.05).abs() < 0.01, "{share}");
        let usual = usual(&jobs, share);
        assert!((usual[&3] / usual[&0] - 2.5).abs() < 0.1, "{usual:?}");
    }
}
