//! Fits the cost of a further row of a batch to jobs of several sizes.

use std::collections::BTreeMap;

use parm_loadgen::statistics::bootstrap::quantile_of;

use crate::Job;

/// Fewest jobs of one size for a median.
const LEAST: usize = 50;

/// Returns the share of one row's time that each further row adds: a line through the medians of each size, weighted by
/// their number of jobs. Returns 1 if all jobs have one size.
pub(super) fn share(jobs: &[Job]) -> f64 {
    let mut sizes: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for job in jobs {
        sizes.entry(job.rows).or_default().push(job.took);
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

#[cfg(test)]
mod tests {
    use parm_dispatch::recording::RecordedRole;

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
}
