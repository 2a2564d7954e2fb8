//! Expected rest of a run: how much longer a run of this age takes.
//!
//! Problem: a threshold for late runs takes all of them alike. But a run of a slow instance that needs 7 ms more
//! should not have a copy of 20 ms, and one of a hung instance should.
//!
//! Choice: one histogram of all runs of a pool, each divided by its expected time at its instance. The mean of what
//! is left of the runs that reach an age (mean residual life) is the expected rest at that age. If nearly all
//! runs take as long, it falls with age to nothing; if few take ten times as long, it rises at the age at which
//! the others have ended. Samples are weighted: their weights are halved when they sum to 4096.
//!
//! A run that is cancelled, because its copy answered first, has at least its age. It counts as its age and the
//! expected rest. Otherwise the slowest runs would be missing, and the rest of late ones would seem short.
//!
//! A run is not late while half of the runs of its age end within a sixteenth of a run: a short wait then tells the
//! stragglers from the others, and saves most of the copies.
//!
//! An age that no run reached is infinitely late: that instance hangs.
//!
//! Rejected: the time of the whole pool without the division (the runs of a slow instance would be the tail, and
//! every run of it would be late); a fitted distribution (the tails that were measured have two or three modes).
//!
//! Cold start: below 64 runs nothing is known, and the callers use quantiles of all times.

use std::array;
use std::sync::LazyLock;

const SUB_BITS: u32 = 5;
const SUBS: usize = 1 << SUB_BITS;
/// Ratios from 2^-4 to 2^7. Others count at the ends.
const OCTAVES: usize = 11;
const LOWEST: f64 = 0.0625;
const BUCKETS: usize = OCTAVES * SUBS;
const FADE_AT: f64 = 4096.0;
const REFRESH_EVERY: u32 = 256;
const COLD_UNTIL: u64 = 64;

/// A run that is likely to end within this part of its expected time is not late yet.
const SOON: f64 = 1.0 / 16.0;

/// The weight of a bucket that counts as reached: a single run is forgotten after two halvings.
const SEEN: f32 = 0.25;

/// The histogram, and the expected rest by age.
pub(crate) struct Rest {
    weights: Box<[f32; BUCKETS]>,
    total: f64,
    seen: u64,
    stale: u32,
    /// The expected rest at the lower end of each bucket; infinite beyond the last run.
    rests: Box<[f32; BUCKETS]>,
    /// Half of the runs that reach the lower end of a bucket end soon.
    soon: Box<[bool; BUCKETS]>,
    /// The mean of all runs.
    mean: f64,
    /// The first age at which the rest exceeds a new run at an equal instance.
    late: f64,
}

impl Default for Rest {
    fn default() -> Self {
        Self {
            weights: Box::new([0.0; BUCKETS]),
            total: 0.0,
            seen: 0,
            stale: 0,
            rests: Box::new([0.0; BUCKETS]),
            soon: Box::new([false; BUCKETS]),
            mean: 1.0,
            late: f64::INFINITY,
        }
    }
}

impl Rest {
    /// Adds a run, in multiples of its expected time.
    pub(crate) fn add(&mut self, ratio: f64) {
        self.weights[bucket(ratio)] += 1.0;
        self.total += 1.0;
        self.seen += 1;
        self.stale += 1;
        if self.total >= FADE_AT {
            self.weights.iter_mut().for_each(|weight| *weight /= 2.0);
            self.total /= 2.0;
        }
        if self.seen >= COLD_UNTIL && (self.stale >= REFRESH_EVERY || self.seen.is_power_of_two()) {
            self.stale = 0;
            self.refresh();
        }
    }

    /// Adds a run that was cancelled at this age.
    pub(crate) fn add_cancelled(&mut self, age: f64) {
        let rest = self.after(age).unwrap_or_default();
        self.add(age + if rest.is_finite() { rest } else { age });
    }

    /// Whether enough runs are known.
    pub(crate) fn is_known(&self) -> bool {
        self.seen >= COLD_UNTIL
    }

    /// The mean of all runs, in multiples of the expected time.
    pub(crate) fn mean(&self) -> f64 {
        self.mean
    }

    /// The expected rest at an age; `None` while too few runs are known.
    pub(crate) fn after(&self, age: f64) -> Option<f64> {
        if !self.is_known() {
            return None;
        }
        let at = bucket(age);
        let (here, end) = (f64::from(self.rests[at]), lower(at + 1));
        let Some(next) = self.rests.get(at + 1).copied().map(f64::from).filter(|rest| rest.is_finite())
        else {
            // The last bucket with runs: the rest of its width is left.
            return Some(if here.is_finite() && age < end { end - age } else { f64::INFINITY });
        };
        let part = ((age - lower(at)) / (end - lower(at))).clamp(0.0, 1.0);
        Some(here + (next - here) * part)
    }

    /// The share of runs that take at least this long; 1 while too few are known.
    pub(crate) fn longer_than(&self, age: f64) -> f64 {
        if !self.is_known() {
            return 1.0;
        }
        let longer: f32 = self.weights[bucket(age)..].iter().sum();
        f64::from(longer) / self.total
    }

    /// The first age from `from` on at which the rest exceeds so much.
    pub(crate) fn exceeds(&self, much: f64, from: f64) -> f64 {
        if !self.is_known() {
            return f64::INFINITY;
        }
        if from <= 0.0 && much == self.mean {
            return self.late;
        }
        self.find(much, from)
    }

    fn find(&self, much: f64, from: f64) -> f64 {
        let first = bucket(from.max(0.0));
        let Some(at) = (first..BUCKETS).find(|at| f64::from(self.rests[*at]) > much && !self.soon[*at])
        else {
            return lower(BUCKETS).max(from);
        };
        let (Some(before), after) = (at.checked_sub(1), f64::from(self.rests[at])) else {
            return from.max(0.0);
        };
        if after.is_infinite() {
            // Runs that take nearly as long as the longest one are no reason for a timer.
            return (lower(at) + SOON).max(from);
        }
        let rest = f64::from(self.rests[before]);
        // Between runs that end and stragglers there is nothing to interpolate.
        let is_gap = 2.0 * rest < much && after > 2.0 * much;
        let part = if is_gap || rest >= much { 1.0 } else { (much - rest) / (after - rest).max(1e-9) };
        (lower(before) + (lower(at) - lower(before)) * part.clamp(0.0, 1.0)).max(from)
    }

    fn refresh(&mut self) {
        let (mut weight, mut sum, mut mean) = (0.0, 0.0, 1.0);
        let mut reached = false;
        let mut reaching = 0.0;
        let mut survivors = [0.0; BUCKETS + 1];
        for (at, bin) in BINS.iter().enumerate().rev() {
            let own = self.weights[at];
            reaching += f64::from(own);
            survivors[at] = reaching;
            reached |= own >= SEEN;
            if !reached {
                self.rests[at] = f32::INFINITY;
                continue;
            }
            if own > 0.0 {
                weight += f64::from(own);
                sum += f64::from(own) * bin.middle;
                mean = sum / weight;
            }
            self.rests[at] = (mean - bin.lower).max(0.0) as f32;
        }
        self.mean = mean;
        for (at, bin) in BINS.iter().enumerate() {
            let left = survivors[bin.soon] + (survivors[bin.soon + 1] - survivors[bin.soon]) * bin.part;
            self.soon[at] = left < survivors[at] / 2.0 && self.rests[at].is_finite();
        }
        self.late = self.find(self.mean, self.mean / 2.0);
    }
}

/// A bucket's ends, and the place of its lower end a little later.
struct Bin {
    lower: f64,
    middle: f64,
    /// The bucket of that place, and the part of it before the place.
    soon: usize,
    part: f64,
}

static BINS: LazyLock<[Bin; BUCKETS]> = LazyLock::new(|| {
    array::from_fn(|at| {
        let then = lower(at) + SOON;
        let soon = bucket(then);
        let part = (then - lower(soon)) / (lower(soon + 1) - lower(soon));
        Bin { lower: lower(at), middle: (lower(at) + lower(at + 1)) / 2.0, soon, part }
    })
});

/// The bucket of a ratio: its exponent and the first bits of its fraction.
fn bucket(ratio: f64) -> usize {
    if ratio.is_nan() || ratio <= LOWEST {
        return 0;
    }
    let above = (ratio.to_bits() >> (52 - SUB_BITS)) - (LOWEST.to_bits() >> (52 - SUB_BITS));
    // Infinite if the expected time is 0.
    (above as usize).min(BUCKETS - 1)
}

/// The lower end of a bucket.
fn lower(index: usize) -> f64 {
    if index == 0 {
        return 0.0;
    }
    f64::from_bits(LOWEST.to_bits() + ((index as u64) << (52 - SUB_BITS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(runs: impl IntoIterator<Item = f64>) -> Rest {
        let mut rest = Rest::default();
        runs.into_iter().for_each(|ratio| rest.add(ratio));
        rest
    }

    #[test]
    fn rest_of_equal_runs_falls_to_nothing_and_is_endless_beyond() {
        let rest = of((0..640).map(|n| 0.95 + 0.1 * f64::from(n % 10) / 10.0));
        let at = |age| rest.after(age).unwrap();
        assert!((at(0.0) - 1.0).abs() < 0.05 && at(0.5) < 0.55, "{} {}", at(0.0), at(0.5));
        assert!(at(1.0) < 0.1, "{}", at(1.0));
        assert_eq!(at(1.5), f64::INFINITY);
        let late = rest.exceeds(rest.mean(), 0.0);
        assert!((1.04..1.25).contains(&late), "{late}");
    }

    #[test]
    fn rest_rises_where_only_stragglers_are_left() {
        let rest = of((0..2000).map(|n| if n % 100 == 0 { 7.5 } else { 1.0 }));
        let late = rest.exceeds(rest.mean(), 0.0);
        assert!((1.0..1.2).contains(&late), "{late}");
        assert!((rest.after(1.5).unwrap() - 6.0).abs() < 0.5);
        assert!(rest.after(7.3).unwrap() < 0.6);
    }

    #[test]
    fn cancelled_runs_count_as_long_as_others_of_their_age() {
        let mut rest = of((0..640).map(|n| if n % 20 == 0 { 8.0 } else { 1.0 }));
        (0..640).for_each(|n| if n % 20 == 0 { rest.add_cancelled(2.0) } else { rest.add(1.0) });
        assert!((rest.after(2.0).unwrap() - 6.0).abs() < 0.5, "{:?}", rest.after(2.0));
    }

    #[test]
    fn ratios_out_of_range_count_at_the_ends() {
        let mut rest = of([0.0, 1e-9, 1e9, f64::INFINITY, f64::NAN].repeat(20));
        rest.add_cancelled(f64::INFINITY);
        assert!(rest.after(f64::INFINITY).is_some_and(|rest| !rest.is_nan()));
        assert!(rest.after(0.0).is_some_and(f64::is_finite));
    }

    #[test]
    fn nothing_is_known_of_few_runs() {
        assert_eq!(of([1.0; 63]).after(1.0), None);
        assert!(of([1.0; 64]).after(0.5).is_some());
    }
}
