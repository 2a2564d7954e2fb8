//! Pace of a pool: the expected time of a run by its size and its instance, and the rest of a run of some age.
//!
//! The size of a run is its number of rows. For requests whose bodies are not read it is the length of the body.
//!
//! Problem: to place a query where it ends first, and to call a run late, the dispatcher must know how long a run
//! takes there. That depends on the instance, on the size of the run, and on chance.
//!
//! Choice: three parts that multiply. The time of a run of such a size at an average instance is a running mean of
//! logarithms for each power of two, in which a run counts two standard deviations at most. The speed of the
//! instance is in [`Speed`]; it counts relative to the median instance, so that a load that slows all of them down
//! makes none of them slow. Chance is in [`Rest`].
//!
//! A size's mean begins with its first run alone. If that one was far too short, the runs after it make every instance
//! seem slow, and runs of all other sizes seem to take for ever: a hung one is then never late. So the mean is the median of
//! the first few runs if they contradict each other, and no run is expected to take more than a few times the longest one,
//! or in proportion to its size.
//!
//! Rejected: a cost of rows that is configured (it differs between engines and machines by more than the speeds
//! do); the size of variable tensors (with run times that follow the input, log-normal of sigma 0.35, it gained less
//! than a tenth of the tail).
//!
//! Cold start: [`Rest`] says whether enough runs are known; until then callers use quantiles of all times.

use std::time::Duration;

use crate::api::times;
use crate::measure::rest::Rest;
use crate::measure::speed::Speed;

/// Powers of two of sizes that are told apart.
const SIZES: usize = 16;

/// Runs that the mean of a size remembers.
const WINDOW: f32 = 256.0;

/// The standard deviation that is assumed before the first run, and the runs that it counts for.
const ASSUMED: (f32, f32) = (0.5, 4.0);

/// The least standard deviation.
const LEAST: f32 = 0.02;

/// A run counts so many standard deviations at most.
const STEP: f32 = 2.0;

/// Variance of a normal number over that of the same number cut at two standard deviations.
const CUT: f32 = 1.086;

/// Runs between two comparisons of all instances, at least.
const COMPARE_EVERY: u32 = 32;

/// A size within this logarithm of the mean of its class has the mean's time.
const EXACT: f32 = 0.01;

/// The highest power of the size with which a run's time grows outside the known sizes.
const STEEPEST: f32 = 1.0;

/// The logarithm of how many times as long as the longest run a run may be expected to take, at a slow instance.
const REACH: f32 = 2.1;

/// The first runs of a size. Their median is its mean if they are further apart than [`REACH`].
const FIRST: usize = 5;

/// Runs for which the longest one counts, twice that at most.
const REMEMBERED: u32 = 256;

/// Instances within this logarithm of a factor count as equally fast.
const SAME: f32 = 0.05;

/// Expected times of the runs of one pool.
pub(crate) struct Pace {
    /// One class for each power of two of the size.
    sizes: [Class; SIZES],
    variance: f32,
    runs: f32,
    /// The mean over runs of the mean of their sizes.
    usual: f32,
    /// The mean of the median instance.
    median: f32,
    /// The rest of runs by their age.
    pub(crate) rest: Rest,
    /// Runs since all instances were compared.
    stale: u32,
    /// The lowest and the highest logarithm of the instances' factors.
    span: (f32, f32),
    /// The mean of their inverses.
    capacity: f32,
    longest: Longest,
}

/// The longest run of the latest ones.
#[derive(Clone, Copy, Debug, Default)]
struct Longest {
    /// Logarithms of its nanoseconds and its size, in this period and the one before.
    runs: [Option<(f32, f32)>; 2],
    /// Runs in this period.
    count: u32,
}

impl Longest {
    fn note(&mut self, run: (f32, f32)) {
        if self.count == REMEMBERED {
            (self.runs, self.count) = ([None, self.runs[0]], 0);
        }
        self.count += 1;
        self.runs[0] = self.runs[0].filter(|longest| longest.0 >= run.0).or(Some(run));
    }

    /// The longest that a run of a size may be expected to take.
    fn most(&self, size: f32) -> f32 {
        let most = |(log, of): (f32, f32)| log + (size - of).max(0.0) * STEEPEST + REACH;
        self.runs.iter().flatten().map(|run| most(*run)).reduce(f32::max).unwrap_or(f32::INFINITY)
    }
}

/// Runs of similar sizes.
#[derive(Clone, Copy, Debug, Default)]
struct Class {
    /// The mean of the logarithm of their nanoseconds.
    mean: f32,
    /// Their number, as far as the mean remembers.
    runs: f32,
    /// The mean of the logarithm of their size.
    size: f32,
    /// The logarithms of the first runs.
    first: [f32; FIRST],
}

impl Class {
    /// Notes one of the first runs. Returns their median if they contradict each other; of two, it is the longer.
    fn begin(&mut self, log: f32) -> Option<f32> {
        let count = self.runs as usize;
        *self.first.get_mut(count)? = log;
        let mut first = self.first;
        let first = &mut first[..=count];
        first.sort_unstable_by(f32::total_cmp);
        (first[count] - first[0] > REACH).then(|| first[first.len() / 2])
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            sizes: [Class::default(); SIZES],
            variance: ASSUMED.0 * ASSUMED.0,
            runs: ASSUMED.1,
            usual: 0.0,
            median: 0.0,
            rest: Rest::default(),
            stale: 0,
            span: (0.0, 0.0),
            capacity: 1.0,
            longest: Longest::default(),
        }
    }
}

impl Pace {
    /// Notes a run. Returns whether the difference of its instance to the others changed.
    pub(crate) fn note(&mut self, speed: &mut Speed, size: u32, took: Duration) -> bool {
        if let Some(expected) = self.expected(speed, size) {
            self.rest.add(nanos(took) / expected);
        }
        self.longest.note((log(took), log_of(size)));
        self.learn(speed, size, took)
    }

    /// Notes a run that was cancelled at this age. Returns the same.
    pub(crate) fn note_cancelled(&mut self, speed: &mut Speed, size: u32, age: Duration) -> bool {
        let Some(expected) = self.expected(speed, size) else { return false };
        let ratio = nanos(age) / expected;
        self.rest.add_cancelled(ratio);
        // A short age says nothing about the speed.
        ratio > 1.0 && self.learn(speed, size, age)
    }

    fn learn(&mut self, speed: &mut Speed, size: u32, took: Duration) -> bool {
        let log = log(took);
        let deviation = self.deviation();
        let of = &mut self.sizes[class(size)];
        if of.runs == 0.0 {
            (of.mean, of.size) = (log - self.median, log_of(size));
        }
        let usual = self.of_size(size).unwrap_or_default();
        let of = &mut self.sizes[class(size)];
        let residual = log - usual - speed.mean().unwrap_or(self.median);
        let own = if of.runs == 0.0 { of.mean } else { of.mean + residual };
        let contradiction = of.begin(own);
        of.runs = (of.runs + 1.0).min(WINDOW);
        of.size += (log_of(size) - of.size) / of.runs;
        of.mean =
            contradiction.unwrap_or(of.mean + residual.clamp(-STEP * deviation, STEP * deviation) / of.runs);
        let of_size = self.of_size(size).unwrap_or_default();
        let log = log - of_size;
        let residual = speed.note(log, deviation).clamp(-STEP * deviation, STEP * deviation);
        self.runs = (self.runs + 1.0).min(WINDOW);
        self.usual += (of_size - self.usual) / (self.runs - ASSUMED.1).max(1.0);
        self.variance += (CUT * residual * residual - self.variance) / self.runs;
        self.stale += 1;
        speed.compare(self.median, deviation)
    }

    /// The logarithm of a run's time over the expected one; `None` if no run of this size is known.
    pub(crate) fn residual(&self, speed: &Speed, size: u32, took: Duration) -> Option<f32> {
        Some((nanos(took).max(1.0) / self.expected(speed, size)?).ln() as f32)
    }

    /// How many times as long as a run of usual size one of this size takes.
    pub(crate) fn of_usual(&self, size: u32) -> f64 {
        self.of_size(size).map_or(1.0, |mean| f64::from((mean - self.usual).exp()))
    }

    /// The time of a run as it would be for a run of usual size. More rows are not expected to take less time than one:
    /// a size's first runs may be short by chance, and all later runs of this size would seem slow.
    pub(crate) fn as_usual(&self, size: u32, took: Duration) -> Duration {
        times(took, self.of_usual(size).max(self.of_usual(1)).recip())
    }

    /// Whether all instances should be compared now.
    pub(crate) fn is_stale(&self, instances: u32) -> bool {
        self.stale >= (2 * instances).max(COMPARE_EVERY)
    }

    /// Takes the means of all instances, and their median as the speed of an average one. The lower of two counts:
    /// with one slow instance of two, the other is the average.
    pub(crate) fn compare(&mut self, means: &mut [f32]) {
        self.stale = 0;
        if !means.is_empty() {
            let middle = (means.len() - 1) / 2;
            self.median = *means.select_nth_unstable_by(middle, f32::total_cmp).1;
        }
    }

    pub(crate) fn median(&self) -> f32 {
        self.median
    }

    /// The standard deviation of the logarithm of run times at one instance.
    pub(crate) fn deviation(&self) -> f32 {
        self.variance.sqrt().max(LEAST)
    }

    /// Takes the lowest and the highest logarithm of the instances' factors, and the mean of their inverses.
    pub(crate) fn span(&mut self, lowest: f32, highest: f32, capacity: f32) {
        (self.span, self.capacity) = ((lowest, highest), capacity);
    }

    /// The work that the instances do, as a share of what as many average ones would.
    pub(crate) fn capacity(&self) -> f64 {
        f64::from(self.capacity)
    }

    /// Whether some instances are slower than others.
    pub(crate) fn is_uneven(&self) -> bool {
        self.span.1 > self.span.0 + SAME
    }

    /// Whether an instance is as fast as the fastest.
    pub(crate) fn is_fast(&self, speed: &Speed) -> bool {
        speed.slower() <= self.span.0 + SAME
    }

    /// How many times as long as at the fastest instance a run takes.
    pub(crate) fn slower_than_fastest(&self, speed: &Speed) -> f32 {
        (speed.slower() - self.span.0).exp()
    }

    /// The expected nanoseconds of a run without its chance, so that [`Rest::mean`] times it is the mean; `None`
    /// if no run of this size is known.
    pub(crate) fn expected(&self, speed: &Speed, size: u32) -> Option<f64> {
        self.of_size(size).map(|mean| self.bounded(mean + self.median + speed.slower(), size))
    }

    /// The same for a run of usual size.
    pub(crate) fn usual(&self, speed: &Speed) -> f64 {
        self.bounded(self.usual + self.median + speed.slower(), 1)
    }

    /// The time of a run of usual size at the average instance, in the terms of [`as_usual`](Self::as_usual): hung runs may
    /// have made both long.
    pub(crate) fn usual_run(&self) -> Duration {
        Duration::from_nanos(f64::from(self.usual + self.median).exp() as u64)
    }

    /// The expected nanoseconds at the fastest instance.
    pub(crate) fn fastest(&self, size: u32) -> Option<f64> {
        self.of_size(size).map(|mean| self.bounded(mean + self.median + self.span.0, size))
    }

    /// The nanoseconds of a logarithm, within reach of the longest run.
    fn bounded(&self, log: f32, size: u32) -> f64 {
        f64::from(log.min(self.longest.most(log_of(size))).exp())
    }

    /// The mean of a size: on the line between its class and the next one in its direction, or that of the nearest
    /// known class. A size outside of all classes lies on the line through the two nearest ones, which grows no faster
    /// than the size: with means of 7 and 8 rows, chance alone can make it steep.
    fn of_size(&self, size: u32) -> Option<f32> {
        let at = class(size);
        let below = || self.sizes[..at].iter().rev().find(|of| of.runs > 0.0);
        let above = || self.sizes[at + 1..].iter().find(|of| of.runs > 0.0);
        let own = self.sizes[at];
        if own.runs == 0.0 {
            return below().or_else(above).map(|of| of.mean);
        }
        let off = log_of(size) - own.size;
        if off.abs() < EXACT {
            return Some(own.mean);
        }
        let (next, other) = if off > 0.0 { (above(), below()) } else { (below(), above()) };
        let slope = |to: &Class| (to.mean - own.mean) / (to.size - own.size);
        let slope = next.map(slope).or_else(|| other.map(|other| slope(other).clamp(0.0, STEEPEST)));
        Some(own.mean + off * slope.unwrap_or_default())
    }
}

/// The class of a size: its power of two.
fn class(size: u32) -> usize {
    (u32::BITS - size.max(1).leading_zeros()).min(SIZES as u32) as usize - 1
}

fn log_of(size: u32) -> f32 {
    (size.max(1) as f32).ln()
}

/// The logarithm of a run's nanoseconds.
fn log(time: Duration) -> f32 {
    (nanos(time).max(1.0) as f32).ln()
}

fn nanos(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn near(is: Option<f64>, ms: f64) {
        let is = is.expect("known") / 1e6;
        assert!((is / ms - 1.0).abs() < 0.05, "{is} ms, not {ms} ms");
    }

    #[test]
    fn expected_time_follows_rows_and_instance() {
        let (mut pace, mut fast, mut slow) = (Pace::default(), Speed::default(), Speed::default());
        for _ in 0..100 {
            pace.note(&mut fast, 1, 20 * MS);
            pace.note(&mut fast, 4, 35 * MS);
            pace.note(&mut slow, 1, 40 * MS);
        }
        pace.compare(&mut [fast.mean().unwrap(), fast.mean().unwrap(), slow.mean().unwrap()]);
        fast.compare(pace.median(), pace.deviation());
        slow.compare(pace.median(), pace.deviation());
        near(pace.expected(&fast, 1), 20.0);
        near(pace.expected(&slow, 1), 40.0);
        // On the line through the logarithms of 20 ms for 1 and 35 ms for 4.
        near(pace.expected(&fast, 5), 38.3);
        near(pace.expected(&fast, 64), 35.0);
    }

    #[test]
    fn time_of_an_unknown_size_stays_near_that_of_known_ones() {
        let (mut pace, mut speed) = (Pace::default(), Speed::default());
        for _ in 0..100 {
            pace.note(&mut speed, 7, 20 * MS);
            pace.note(&mut speed, 8, 200 * MS);
        }
        let of = |size: u32| pace.expected(&speed, size).expect("known") / 1e6;
        let (below, above) = (of(4), of(15));
        assert!((11.0..=20.5).contains(&below), "{below} ms for 4 rows, 20 ms for 7");
        assert!((195.0..=400.0).contains(&above), "{above} ms for 15 rows, 200 ms for 8");
    }

    #[test]
    fn expected_time_stays_near_the_longest_run() {
        let (mut pace, mut speed) = (Pace::default(), Speed::default());
        (0..40).for_each(|_| _ = pace.note(&mut speed, 1, 3 * MS));
        pace.note(&mut speed, 2, Duration::ZERO);
        (0..3).for_each(|_| _ = pace.note(&mut speed, 2, 2 * MS));
        pace.compare(&mut [speed.mean().unwrap()]);
        let of = |pace: &Pace, size| pace.expected(&Speed::default(), size).unwrap() / 1e6;
        assert!(of(&pace, 1) < 30.0, "{} ms for runs of 3 ms", of(&pace, 1));
        assert!(of(&pace, 100) < 3000.0, "{} ms for a hundred times the size", of(&pace, 100));
        // The bound follows the runs.
        (0..2 * REMEMBERED).for_each(|_| _ = pace.note(&mut speed, 1, MS / 10));
        assert!(of(&pace, 1) < 1.0, "{} ms for runs of 0.1 ms", of(&pace, 1));
    }

    #[test]
    fn first_runs_that_contradict_count_by_their_median() {
        let (mut pace, mut speed) = (Pace::default(), Speed::default());
        (0..40).for_each(|_| _ = pace.note(&mut speed, 1, 3 * MS));
        // A run without a time, and later a straggler.
        for (takes, expected) in [(0, 0), (6, 6), (6, 6), (90, 6), (6, 6), (6, 6)] {
            pace.note(&mut speed, 4, takes * MS);
            let log = pace.of_size(4).unwrap() + speed.mean().unwrap();
            assert!((log.exp() - (expected * MS).as_nanos().max(1) as f32).abs() < 0.5e6, "{takes} ms");
        }
    }

    #[test]
    fn short_first_run_of_two_rows_makes_later_ones_no_slower() {
        let (mut pace, mut speed) = (Pace::default(), Speed::default());
        (0..40).for_each(|_| _ = pace.note(&mut speed, 1, 3 * MS));
        pace.note(&mut speed, 2, MS);
        let (one, two) = (pace.as_usual(1, 3 * MS), pace.as_usual(2, 3 * MS));
        assert!(two < one * 5 / 4, "{two:?} against {one:?}");
        // Runs that are known to take longer are compared with their own kind.
        (0..200).for_each(|_| _ = pace.note(&mut speed, 4, 12 * MS));
        let four = pace.as_usual(4, 12 * MS);
        assert!(four < pace.as_usual(1, 12 * MS) / 2, "{four:?}");
    }

    #[test]
    fn no_instance_is_slow_when_all_become_slower() {
        let mut pace = Pace::default();
        let mut speeds = [Speed::default(); 3];
        for round in 0..200 {
            for speed in &mut speeds {
                pace.note(speed, 1, if round < 100 { 20 * MS } else { 60 * MS });
            }
            let mut means: Vec<f32> = speeds.iter().filter_map(Speed::mean).collect();
            pace.compare(&mut means);
        }
        for speed in &mut speeds {
            speed.compare(pace.median(), pace.deviation());
            assert_eq!(speed.factor(), 1.0);
            near(pace.expected(speed, 1), 60.0);
        }
    }
}
