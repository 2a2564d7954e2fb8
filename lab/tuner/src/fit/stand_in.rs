//! Fits the cost of a stand-in to its jobs.

use parm_loadgen::statistics::bootstrap::quantile_of;
use parm_settings::Cost;
use parm_settings::recording::RecordedRole;

use crate::Job;

/// Fewest jobs of one size for a median.
const LEAST: usize = 50;
/// Numbers of rows for which the cost is computed.
const ROWS: [u32; 4] = [1, 2, 4, 8];

/// Returns the medians of its jobs as shares of a query's time (in seconds). A size with too few jobs costs as much per
/// row as the nearest size with enough. `None` without a stand-in.
pub(super) fn cost(jobs: &[Job], query: f64) -> Option<Cost> {
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

    fn jobs(of: &[(RecordedRole, u32, f64)]) -> Vec<Job> {
        let job = |&(role, rows, took): &(RecordedRole, u32, f64)| {
            (0..60).map(move |_| Job { instance: 0, at: 0.0, took, rows, role, ok: true, arrived: None })
        };
        of.iter().flat_map(job).collect()
    }

    #[test]
    fn stand_in_cost_is_fitted_to_its_jobs() {
        let seen = jobs(&[
            (RecordedRole::Deployed, 1, 0.02),
            (RecordedRole::StandIn, 1, 0.005),
            (RecordedRole::StandIn, 4, 0.01),
        ]);
        assert_eq!(cost(&seen, 0.02).unwrap().rows, [0.25, 0.5, 0.5, 1.0]);
        assert_eq!(cost(&jobs(&[(RecordedRole::Deployed, 1, 0.02)]), 0.02), None);
    }
}
