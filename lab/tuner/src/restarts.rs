//! Counts an instance that restarted as one instance over a recording.
//!
//! A frontend numbers an instance anew when it comes back. Numbers with one address are one instance, unless they served
//! at the same moment: several instances can share an address, as the pods of a Kubernetes Service do.

use std::collections::BTreeMap;

use crate::Job;

/// Gives the jobs of an instance that restarted its first number, and removes its other numbers.
pub(crate) fn join(instances: &mut BTreeMap<u32, String>, jobs: &mut [Job]) {
    let first = first_numbers(instances, jobs);
    for job in jobs {
        job.instance = first.get(&job.instance).copied().unwrap_or(job.instance);
    }
    instances.retain(|number, _| !first.contains_key(number));
}

/// Returns the numbers of restarted instances, with their first number.
fn first_numbers(instances: &BTreeMap<u32, String>, jobs: &[Job]) -> BTreeMap<u32, u32> {
    let mut served: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    // A failed job ends when its loss is noticed, which can be after the restart.
    for job in jobs.iter().filter(|job| job.ok) {
        let (from, to) = served.entry(job.instance).or_insert((job.at, job.at));
        *from = f64::min(*from, job.at);
        *to = f64::max(*to, job.at + job.took);
    }
    let mut spans: Vec<(f64, f64, u32)> =
        served.into_iter().map(|(number, (from, to))| (from, to, number)).collect();
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    // The first number of each instance of an address, and the time until which it served.
    let mut known: BTreeMap<&str, Vec<(u32, f64)>> = BTreeMap::new();
    let mut first = BTreeMap::new();
    for (from, to, number) in spans {
        let Some(name) = instances.get(&number).filter(|name| !name.is_empty()) else { continue };
        let same = known.entry(name.as_str()).or_default();
        match same.iter_mut().find(|(_, until)| *until <= from) {
            Some((one, until)) => {
                first.insert(number, *one);
                *until = to;
            }
            None => same.push((number, to)),
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use parm_settings::recording::RecordedRole;

    use super::*;

    /// Joins jobs of 10 ms, given as number, time and success. Numbers 1 to 4 have one address, and 0 another.
    fn joined(jobs: &[(u32, f64, bool)]) -> (Vec<u32>, Vec<u32>) {
        let role = RecordedRole::Deployed;
        let job = |&(instance, at, ok): &(u32, f64, bool)| Job {
            instance,
            at,
            took: 0.01,
            rows: 1,
            role,
            ok,
            arrived: None,
        };
        let mut jobs: Vec<Job> = jobs.iter().map(job).collect();
        let name = |number: u32| (number, if number == 0 { "http://a" } else { "http://b" }.to_owned());
        let mut instances: BTreeMap<u32, String> = (0..5).map(name).collect();
        join(&mut instances, &mut jobs);
        (jobs.iter().map(|job| job.instance).collect(), instances.into_keys().collect())
    }

    #[test]
    fn restarted_instance_is_one_instance() {
        let jobs =
            [(0, 0.0, true), (1, 0.0, true), (0, 5.0, true), (2, 6.0, true), (3, 8.0, true), (4, 9.0, true)];
        assert_eq!(joined(&jobs), (vec![0, 1, 0, 1, 1, 1], vec![0, 1]));
        // The job that a kill interrupted is known to be lost only after the restart.
        let late = [(1, 0.0, true), (2, 6.0, true), (1, 6.005, false), (3, 8.0, true), (4, 9.0, true)];
        assert_eq!(joined(&late), (vec![1; 5], vec![0, 1]));
    }

    #[test]
    fn instances_of_one_address_that_overlap_stay_apart() {
        let jobs =
            [(1, 0.0, true), (2, 0.5, true), (1, 1.0, true), (2, 1.5, true), (3, 2.0, true), (4, 3.0, true)];
        assert_eq!(joined(&jobs), (vec![1, 2, 1, 2, 1, 1], vec![0, 1, 2]));
    }
}
