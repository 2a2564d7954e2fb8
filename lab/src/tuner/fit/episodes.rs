//! Finds the stretches of time in which an instance is slow or hangs, from its jobs, and the single slow jobs outside of them: on
//! all instances alike, or many more on one of them.

use std::collections::BTreeMap;

use parm_loadgen::statistics::bootstrap::quantile_of;
use parm_workload::distribution::Distribution;
use serde::Serialize;

use super::thinned;

/// A kind of episode.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Episodes {
    /// Share of the time of the affected instances.
    pub share: f64,
    /// Mean length.
    pub length_ms: f64,
    /// How many times as long jobs take meanwhile; for hangs, as long as they seem to take.
    pub factor: f64,
    /// Number of observed episodes.
    pub count: usize,
    /// The affected instances, if these are few; otherwise empty, for all.
    pub only: Vec<u32>,
    /// The episodes as they happened.
    #[serde(skip)]
    pub spells: Vec<Spell>,
}

/// One episode of an instance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spell {
    /// The instance.
    pub instance: u32,
    /// When it began, in seconds.
    pub from: f64,
    /// How long it lasted.
    pub seconds: f64,
    /// How many times as long jobs took.
    pub factor: f64,
    /// Number of its jobs.
    pub jobs: usize,
    /// Whether its start and its end were both observed.
    pub whole: bool,
}

/// A job of one instance.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timed {
    /// When it was given, in seconds.
    pub(super) at: f64,
    pub(super) took: f64,
    /// Its time as a multiple of the usual time for its rows.
    pub(super) factor: f64,
    /// When its query arrived.
    pub(super) arrived: Option<f64>,
    /// Whether its query already had a job.
    pub(super) copy: bool,
}

#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) slow: Vec<Spell>,
    pub(super) hung: Vec<Spell>,
    /// Jobs outside of episodes, by instance.
    pub(super) others: BTreeMap<u32, Vec<Timed>>,
}

/// The least that makes jobs an episode.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlowFrom {
    /// Multiple of the usual time from which a job is slow.
    pub(super) slow: f64,
    /// Consecutive slow jobs that make an episode.
    pub(super) in_a_row: usize,
}

/// Fewest consecutive slow jobs of an episode: with one straggler in a hundred they occur once in a million jobs.
const IN_A_ROW: usize = 3;
/// The probability that stragglers look like an episode.
const CHANCE: f64 = 1e-6;
/// Multiple of the usual time from which a single job is a hang.
const HANG: f64 = 50.0;
/// Fewest episodes for a finding: fewer can be chance, unless one has many jobs.
const LEAST: usize = 3;
const MANY: usize = 20;
/// The affected instances have this share of the time of all episodes.
const AFFECTED: f64 = 0.9;

impl SlowFrom {
    /// The limits, given the multiple from which a job is slow. Frequent stragglers make longer rows by chance.
    pub(super) fn of(slow: f64, instances: &BTreeMap<u32, Vec<Timed>>) -> Self {
        let share = |jobs: &Vec<Timed>| {
            jobs.iter().filter(|job| job.factor > slow).count() as f64 / jobs.len().max(1) as f64
        };
        let usual = quantile_of(&mut instances.values().map(share).collect::<Vec<_>>(), 0.5);
        let in_a_row = if usual > 0.0 { (CHANCE.ln() / usual.min(0.5).ln()).round() as usize } else { 0 };
        Self { slow, in_a_row: in_a_row.max(IN_A_ROW) }
    }
}

impl Found {
    /// Searches the jobs of one instance, in order.
    pub(super) fn look(&mut self, instance: u32, jobs: &[Timed], limits: SlowFrom) {
        let mut at = 0;
        while at < jobs.len() {
            let run = jobs[at..].iter().take_while(|job| job.factor > limits.slow).count();
            let episode = run >= limits.in_a_row;
            if episode {
                self.slow.push(Spell::over(instance, jobs, at, at + run));
            } else {
                // The job after the run is not slow.
                let alone = &jobs[at..(at + run + 1).min(jobs.len())];
                alone.iter().for_each(|job| self.alone(instance, job));
            }
            at += run + usize::from(!episode);
        }
    }

    fn alone(&mut self, instance: u32, job: &Timed) {
        if job.factor >= HANG {
            let (from, seconds, factor) = (job.at, job.took, job.factor);
            self.hung.push(Spell { instance, from, seconds, factor, jobs: 1, whole: true });
        } else {
            self.others.entry(instance).or_default().push(*job);
        }
    }

    /// Counts the slow ones among the jobs outside of episodes.
    pub(super) fn counted(&self, slow: f64) -> BTreeMap<u32, Counted> {
        let count = |jobs: &Vec<Timed>| {
            let factors = jobs.iter().map(|job| job.factor).filter(|factor| *factor > slow);
            Counted { slow: factors.collect(), of: jobs.len() }
        };
        self.others.iter().map(|(instance, jobs)| (*instance, count(jobs))).collect()
    }
}

impl Spell {
    /// Spans from the middle of the pause before the first job to that of the pause after the last.
    fn over(instance: u32, jobs: &[Timed], first: usize, end: usize) -> Self {
        let ends = |job: &Timed| job.at + job.took;
        let (from, to) = (jobs[first].at, ends(&jobs[end - 1]));
        let before = first.checked_sub(1).map(|index| 0.5 * (from - ends(&jobs[index])).max(0.0));
        let after = jobs.get(end).map(|next| 0.5 * (next.at - to).max(0.0));
        // The first and the last job may have been slow for only a part of their time.
        let mut inner: Vec<f64> = jobs[first + 1..end - 1].iter().map(|job| job.factor).collect();
        Self {
            instance,
            from: from - before.unwrap_or(0.0),
            seconds: to - from + before.unwrap_or(0.0) + after.unwrap_or(0.0),
            factor: quantile_of(&mut inner, 0.5),
            jobs: end - first,
            whole: before.is_some() && after.is_some(),
        }
    }
}

impl Episodes {
    /// Summarises episodes on this many instances, which were recorded for some seconds.
    pub(super) fn of(spells: Vec<Spell>, instances: usize, seconds: f64) -> Option<Self> {
        if spells.len() < LEAST && !spells.iter().any(|spell| spell.jobs >= MANY) {
            return None;
        }
        let total: f64 = spells.iter().map(|spell| spell.seconds).sum();
        let affected = affected(&spells, total);
        // A third of the instances, at least one. A single episode each can be chance.
        let few = affected.len() <= (instances / 3).max(1) && 2 * affected.len() <= spells.len();
        let few = instances > 1 && (few || affected.len() == 1);
        let only = if few { affected } else { Vec::new() };
        let span = seconds * if few { only.len() } else { instances } as f64;

        let whole: Vec<&Spell> = spells.iter().filter(|spell| spell.whole).collect();
        let seen: f64 = whole.iter().map(|spell| spell.seconds).sum();
        let mean = if whole.is_empty() { total / spells.len() as f64 } else { seen / whole.len() as f64 };
        let mut factors: Vec<f64> = spells.iter().map(|spell| spell.factor).collect();
        Some(Self {
            share: total / span,
            length_ms: 1e3 * mean,
            factor: quantile_of(&mut factors, 0.5),
            count: spells.len(),
            only,
            spells,
        })
    }
}

/// Returns the fewest instances that have most of the total time.
fn affected(spells: &[Spell], total: f64) -> Vec<u32> {
    let mut times: BTreeMap<u32, f64> = BTreeMap::new();
    spells.iter().for_each(|spell| *times.entry(spell.instance).or_default() += spell.seconds);
    let mut times: Vec<(u32, f64)> = times.into_iter().collect();
    times.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut left = AFFECTED * total;
    let mut affected = Vec::new();
    for (instance, time) in times {
        if left > 0.0 {
            affected.push(instance);
        }
        left -= time;
    }
    affected.sort_unstable();
    affected
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

/// The slow jobs of an instance among all its jobs.
#[derive(Debug, Default)]
pub(super) struct Counted {
    slow: Vec<f64>,
    of: usize,
}

/// Fewest slow jobs of an instance that stalls, and how many times as many as expected from the others.
const LEAST_STALLS: usize = 8;
const MORE: f64 = 5.0;
/// Most values that are kept.
const SAMPLE: usize = 1000;

impl Stragglers {
    /// Summarises the slow jobs among some jobs.
    pub(super) fn of(counted: Counted) -> Option<Self> {
        if counted.slow.is_empty() {
            return None;
        }
        let share = counted.slow.len() as f64 / counted.of as f64;
        let values = thinned(counted.slow, SAMPLE);
        let median_factor = quantile_of(&mut values.clone(), 0.5);
        Some(Self { share, median_factor, factor: Distribution::Sample { values } })
    }

    /// Separates the instances that stall from the others, which are taken together.
    pub(super) fn split(mut all: BTreeMap<u32, Counted>) -> (Option<Self>, BTreeMap<u32, Self>) {
        let count = |of: fn(&Counted) -> usize| all.values().map(of).sum::<usize>() as f64;
        let (slow, jobs) = (count(|counted| counted.slow.len()), count(|counted| counted.of));
        let stalls = |counted: &Counted| {
            let (own, of) = (counted.slow.len(), counted.of as f64);
            let expected = of * (slow - own as f64) / (jobs - of).max(1.0);
            own >= LEAST_STALLS && jobs > of && own as f64 > MORE * expected.max(1.0)
        };
        let stalling: Vec<u32> =
            all.iter().filter(|(_, counted)| stalls(counted)).map(|(instance, _)| *instance).collect();
        let own =
            stalling.into_iter().filter_map(|instance| Some((instance, Self::of(all.remove(&instance)?)?)));
        let own = own.collect();
        let rest = all.into_values().fold(Counted::default(), |mut sum, counted| {
            sum.slow.extend(counted.slow);
            Counted { of: sum.of + counted.of, ..sum }
        });
        (Self::of(rest), own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stalling(slow: [usize; 4]) -> Vec<u32> {
        let counted = |slow| Counted { slow: vec![10.0; slow], of: 1000 };
        let all = (0..).zip(slow.map(counted)).collect();
        Stragglers::split(all).1.into_keys().collect()
    }

    #[test]
    fn instance_stalls_if_its_slow_jobs_are_many_more() {
        assert_eq!(stalling([10, 12, 9, 11]), [0; 0]);
        assert_eq!(stalling([0, 7, 0, 0]), [0; 0], "seven can be chance");
        assert_eq!(stalling([1, 30, 0, 1]), [1]);
    }

    /// Jobs of 20 ms every 50 ms; the listed ones are slow by a factor.
    fn jobs(slow: &[(usize, f64)]) -> Vec<Timed> {
        let factor =
            |number| slow.iter().find(|(other, _)| *other == number).map_or(1.0, |(_, factor)| *factor);
        (0..100)
            .map(|number| {
                let factor = factor(number);
                Timed { at: number as f64 * 0.05, took: 0.02 * factor, factor, ..Timed::default() }
            })
            .collect()
    }

    fn looked(slow: &[(usize, f64)]) -> Found {
        let mut found = Found::default();
        found.look(4, &jobs(slow), SlowFrom { slow: 1.5, in_a_row: 3 });
        found
    }

    fn found(slow: &[(usize, f64)]) -> (usize, usize, usize) {
        let found = looked(slow);
        (found.slow.len(), found.hung.len(), found.others[&4].len())
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
        let found = looked(&[(10, 2.0), (11, 2.5), (12, 2.0)]);
        // From 0.5 to 0.64 s, half of the pause of 30 ms before and half of the 10 ms after.
        let episode = found.slow[0];
        assert!((episode.seconds - 0.16).abs() < 1e-9 && episode.whole, "{episode:?}");
        assert_eq!(episode.factor, 2.5);
    }

    #[test]
    fn more_slow_jobs_make_an_episode_where_stragglers_are_frequent() {
        let limits = |every: usize| {
            let slow: Vec<(usize, f64)> = (0..100).step_by(every).map(|number| (number, 2.0)).collect();
            SlowFrom::of(1.5, &BTreeMap::from([(0, jobs(&slow))])).in_a_row
        };
        assert_eq!([100, 10, 4].map(limits), [3, 6, 10]);
    }

    #[test]
    fn episodes_of_few_instances_name_them() {
        let spell =
            |instance, jobs| Spell { instance, from: 1.0, seconds: 2.0, factor: 5.0, jobs, whole: true };
        let only = |spells: Vec<Spell>| Episodes::of(spells, 6, 60.0).map(|found| (found.only, found.share));
        assert_eq!(only((0..6).map(|instance| spell(instance, 9)).collect()), Some((vec![], 12.0 / 360.0)));
        assert_eq!(only((0..6).map(|_| spell(3, 9)).collect()), Some((vec![3], 0.2)));
        assert_eq!(only(vec![spell(3, 9)]), None, "one short episode can be chance");
        assert_eq!(only(vec![spell(3, 40)]), Some((vec![3], 2.0 / 60.0)));
    }
}
