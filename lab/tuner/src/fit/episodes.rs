//! Finds the stretches of time in which an instance is slow or hangs, from its jobs.

use parm_loadgen::statistics::bootstrap::quantile_of;
use serde::Serialize;

/// A kind of episode, over all instances.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Episodes {
    /// Share of an instance's time.
    pub share: f64,
    /// Mean length.
    pub length_ms: f64,
    /// How many times as long jobs take meanwhile; for hangs, as long as they seem to take.
    pub factor: f64,
    /// Number of observed episodes.
    pub count: usize,
}

/// A job of one instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    /// When it was given, in seconds.
    pub(super) at: f64,
    /// How long it took.
    pub(super) took: f64,
    /// Its time as a multiple of the usual time for its rows.
    pub(super) factor: f64,
}

/// The findings on all instances.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) slow: Vec<Episode>,
    pub(super) hung: Vec<Episode>,
    /// Factors of the jobs outside of episodes.
    pub(super) others: Vec<f64>,
}

/// One episode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Episode {
    seconds: f64,
    factor: f64,
    /// Whether its start and its end were both observed.
    whole: bool,
}

/// Consecutive slow jobs that make an episode: with one straggler in a hundred they occur once in a million jobs.
const IN_A_ROW: usize = 3;
/// Multiple of the usual time from which a single job is a hang.
const HANG: f64 = 50.0;
/// Fewest episodes for a finding: fewer can be chance.
const LEAST: usize = 3;

impl Found {
    /// Searches the jobs of one instance, in order.
    pub(super) fn look(&mut self, jobs: &[Timed], slow: f64) {
        let mut at = 0;
        while at < jobs.len() {
            let run = jobs[at..].iter().take_while(|job| job.factor > slow).count();
            if run >= IN_A_ROW {
                self.slow.push(Episode::over(jobs, at, at + run));
            } else {
                // The job after the run is not slow.
                let alone = &jobs[at..(at + run + 1).min(jobs.len())];
                alone.iter().for_each(|job| self.alone(job));
            }
            at += run + usize::from(run < IN_A_ROW);
        }
    }

    fn alone(&mut self, job: &Timed) {
        if job.factor >= HANG {
            self.hung.push(Episode { seconds: job.took, factor: job.factor, whole: true });
        } else {
            self.others.push(job.factor);
        }
    }
}

impl Episode {
    /// Spans from the middle of the pause before the first job to that of the pause after the last.
    fn over(jobs: &[Timed], first: usize, end: usize) -> Self {
        let ends = |job: &Timed| job.at + job.took;
        let (from, to) = (jobs[first].at, ends(&jobs[end - 1]));
        let before = first.checked_sub(1).map(|index| 0.5 * (from - ends(&jobs[index])).max(0.0));
        let after = jobs.get(end).map(|next| 0.5 * (next.at - to).max(0.0));
        // The first and the last job may have been slow for only a part of their time.
        let mut inner: Vec<f64> = jobs[first + 1..end - 1].iter().map(|job| job.factor).collect();
        Self {
            seconds: to - from + before.unwrap_or(0.0) + after.unwrap_or(0.0),
            factor: quantile_of(&mut inner, 0.5),
            whole: before.is_some() && after.is_some(),
        }
    }
}

impl Episodes {
    /// Summarises episodes, given the total recorded time of all instances in seconds.
    pub(super) fn of(episodes: &[Episode], span: f64) -> Option<Self> {
        if episodes.len() < LEAST {
            return None;
        }
        let total: f64 = episodes.iter().map(|episode| episode.seconds).sum();
        let whole: Vec<&Episode> = episodes.iter().filter(|episode| episode.whole).collect();
        let seen: f64 = whole.iter().map(|episode| episode.seconds).sum();
        let mean = if whole.is_empty() { total / episodes.len() as f64 } else { seen / whole.len() as f64 };
        let mut factors: Vec<f64> = episodes.iter().map(|episode| episode.factor).collect();
        Some(Self {
            share: total / span,
            length_ms: 1e3 * mean,
            factor: quantile_of(&mut factors, 0.5),
            count: episodes.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Jobs of 20 ms every 50 ms; the listed ones are slow by a factor.
    fn jobs(slow: &[(usize, f64)]) -> Vec<Timed> {
        let factor =
            |number| slow.iter().find(|(other, _)| *other == number).map_or(1.0, |(_, factor)| *factor);
        (0..100)
            .map(|number| {
                let factor = factor(number);
                Timed { at: number as f64 * 0.05, took: 0.02 * factor, factor }
            })
            .collect()
    }

    fn found(slow: &[(usize, f64)]) -> (usize, usize, usize) {
        let mut found = Found::default();
        found.look(&jobs(slow), 1.5);
        (found.slow.len(), found.hung.len(), found.others.len())
    }

    #[test]
    fn consecutive_slow_jobs_are_an_episode() {
        assert_eq!(found(&[]), (0, 0, 100));
        assert_eq!(found(&[(3, 2.0), (4, 2.0)]), (0, 0, 100));
        assert_eq!(found(&[(3, 2.0), (4, 2.0), (5, 2.0)]), (1, 0, 97));
        assert_eq!(found(&[(3, 2.0), (4, 2.0), (5, 2.0), (97, 2.0), (98, 2.0), (99, 2.0)]), (2, 0, 94));
        assert_eq!(found(&[(3, 90.0), (9, 7.0)]), (0, 1, 99));
    }

    #[test]
    fn episode_extends_into_the_pauses_around_it() {
        let mut found = Found::default();
        found.look(&jobs(&[(10, 2.0), (11, 2.5), (12, 2.0)]), 1.5);
        // From 0.5 to 0.64 s, half of the pause of 30 ms before and half of the 10 ms after.
        let episode = found.slow[0];
        assert!((episode.seconds - 0.16).abs() < 1e-9 && episode.whole, "{episode:?}");
        assert_eq!(episode.factor, 2.5);
    }
}
