//! The expected rest of a run: how much longer a run of some age lasts.
//!
//! Problem: one threshold for late runs treats all of them alike. But a run that needs 7 ms more should not get a copy of
//! 20 ms, and a run at a hung instance should.
//!
//! Choice: one histogram of all runs of a model, each divided by the time that was expected at its instance. The mean of
//! what is left of the runs that reach an age (mean residual life) is the expected rest at that age. If nearly all runs
//! take equally long, it falls with age to nothing; if few runs take ten times as long, it rises at the age at which the
//! other runs have ended. Beyond anything seen it is infinite: that run hangs. All weights are halved when they sum to
//! 4096.
//!
//! Rejected: runs without the division (the runs of a slow instance would be the tail, and each of its runs late); a
//! fitted distribution (the tails that were measured have two or three modes).

use std::sync::LazyLock;

const SUB_BITS: u32 = 5;
const SUBS: usize = 1 << SUB_BITS;
/// Ratios from 2^-4 to 2^7. Others count at the ends.
const BUCKETS: usize = 11 * SUBS;
const LOWEST: f64 = 0.0625;
const FADE_AT: f32 = 4096.0;
const REFRESH_EVERY: u32 = 256;
const COLD_UNTIL: u32 = 64;

/// The weight of a bucket that counts as reached: a single run is forgotten after two halvings.
const SEEN: f32 = 0.25;

/// A run that is likely to end within this part of a run is not late yet: a short wait tells the stragglers from the other
/// runs. It saves two thirds of the copies where one run in a hundred straggles (profile A at half load: 1.8 % extra work
/// instead of 5.8 %), and costs 5 % of the gap there.
const SOON: f64 = 1.0 / 16.0;

/// The histogram, and the expected rest by age, both in multiples of the expected time.
#[derive(Debug)]
pub(crate) struct Rest {
    weights: Box<[f32; BUCKETS]>,
    total: f32,
    seen: u32,
    stale: u32,
    /// The expected rest at the lower end of each bucket; infinite beyond the longest run.
    rests: Box<[f32; BUCKETS]>,
    /// Whether half of the runs that reach the lower end of a bucket end soon.
    soon: Box<[bool; BUCKETS]>,
    /// The part of all runs that reach the lower end of a bucket.
    parts: Box<[f32; BUCKETS]>,
    /// The mean of all runs.
    pub(crate) mean: f64,
    /// The first age at which a run's rest exceeds a new run at an equal instance.
    pub(crate) late: f64,
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
            parts: Box::new([1.0; BUCKETS]),
            mean: 1.0,
            late: f64::INFINITY,
        }
    }
}

impl Rest {
    /// Adds a run.
    pub(crate) fn add(&mut self, ratio: f64) {
        self.weights[bucket(ratio)] += 1.0;
        self.total += 1.0;
        self.seen = self.seen.saturating_add(1);
        self.stale += 1;
        if self.total >= FADE_AT {
            self.weights.iter_mut().for_each(|weight| *weight /= 2.0);
            self.total /= 2.0;
        }
        if self.is_known() && (self.stale >= REFRESH_EVERY || self.seen.is_power_of_two()) {
            self.stale = 0;
            self.refresh();
        }
    }

    /// Adds a run that was cancelled at this age. It counts as its age and its expected rest: otherwise the slowest runs
    /// would be missing, because their copies answer first.
    pub(crate) fn add_cancelled(&mut self, age: f64) {
        if self.is_known() {
            let rest = self.after(age);
            self.add(age + if rest.is_finite() { rest } else { age });
        }
    }

    pub(crate) fn is_known(&self) -> bool {
        self.seen >= COLD_UNTIL
    }

    /// The age at which this part of the runs has ended.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let at = self.parts.partition_point(|reach| f64::from(*reach) > 1.0 - part).max(1) - 1;
        (EDGES[at] + EDGES[at + 1]) / 2.0
    }

    /// The expected rest at an age.
    pub(crate) fn after(&self, age: f64) -> f64 {
        let at = bucket(age);
        let (here, end) = (f64::from(self.rests[at]), EDGES[at + 1]);
        let next = self.rests.get(at + 1).map_or(f64::INFINITY, |next| f64::from(*next));
        if next.is_finite() {
            let part = ((age - EDGES[at]) / (end - EDGES[at])).clamp(0.0, 1.0);
            here + (next - here) * part
        } else if here.is_finite() && age < end {
            // The last bucket with runs: the rest of its width is left.
            end - age
        } else {
            f64::INFINITY
        }
    }

    /// The part of all runs that last at least so long; the whole while too few are known.
    pub(crate) fn above(&self, age: f64) -> f64 {
        if age <= self.mean { 1.0 } else { f64::from(self.parts[bucket(age)]) }
    }

    /// The first age from `from` on at which the rest exceeds so much.
    pub(crate) fn exceeds(&self, much: f64, from: f64) -> f64 {
        let first = bucket(from);
        let Some(at) = (first..BUCKETS).find(|at| f64::from(self.rests[*at]) > much && !self.soon[*at])
        else {
            return EDGES[BUCKETS].max(from);
        };
        if at == 0 {
            return from;
        }
        let (before, after) = (f64::from(self.rests[at - 1]), f64::from(self.rests[at]));
        if after.is_infinite() {
            return (EDGES[at] + SOON).max(from);
        }
        // Between the runs that end and the stragglers there is nothing to interpolate.
        let is_gap = 2.0 * before < much && after > 2.0 * much;
        let part = if is_gap || before >= much { 1.0 } else { (much - before) / (after - before) };
        (EDGES[at - 1] + (EDGES[at] - EDGES[at - 1]) * part).max(from)
    }

    fn refresh(&mut self) {
        let (mut weight, mut sum, mut reached) = (0.0, 0.0, false);
        let mut reaching = [0.0_f32; BUCKETS + 1];
        for at in (0..BUCKETS).rev() {
            let own = self.weights[at];
            reaching[at] = reaching[at + 1] + own;
            self.parts[at] = reaching[at].max(SEEN) / self.total;
            reached |= own >= SEEN;
            if !reached {
                self.rests[at] = f32::INFINITY;
                continue;
            }
            weight += f64::from(own);
            sum += f64::from(own) * (EDGES[at] + EDGES[at + 1]) / 2.0;
            self.mean = sum / weight;
            self.rests[at] = (self.mean - EDGES[at]).max(0.0) as f32;
        }
        for at in 0..BUCKETS {
            let then = EDGES[at] + SOON;
            let bin = bucket(then);
            let part = ((then - EDGES[bin]) / (EDGES[bin + 1] - EDGES[bin])) as f32;
            let left = reaching[bin] + (reaching[bin + 1] - reaching[bin]) * part;
            self.soon[at] = self.rests[at].is_finite() && left < reaching[at] / 2.0;
        }
        self.late = self.exceeds(self.mean, self.mean / 2.0);
    }
}

/// The lower ends of the buckets, and the upper end of the last.
static EDGES: LazyLock<[f64; BUCKETS + 1]> = LazyLock::new(|| {
    std::array::from_fn(|at| match at {
        0 => 0.0,
        _ => f64::from_bits(LOWEST.to_bits() + ((at as u64) << (52 - SUB_BITS))),
    })
});

/// The bucket of a ratio: its exponent and the first bits of its fraction.
fn bucket(ratio: f64) -> usize {
    if ratio.is_nan() || ratio <= LOWEST {
        return 0;
    }
    let above = (ratio.to_bits() >> (52 - SUB_BITS)) - (LOWEST.to_bits() >> (52 - SUB_BITS));
    (above as usize).min(BUCKETS - 1)
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
        let at = |age| rest.after(age);
        assert!((at(0.0) - 1.0).abs() < 0.05 && at(0.5) < 0.55 && at(1.0) < 0.1);
        assert_eq!(at(1.5), f64::INFINITY);
        assert!((1.04..1.25).contains(&rest.late), "{}", rest.late);
    }

    #[test]
    fn straggler_is_late_once_the_others_have_ended() {
        let rest = of((0..2048).map(|n| if n % 50 == 0 { 8.0 } else { 1.0 }));
        assert!((1.0..1.2).contains(&rest.late), "{}", rest.late);
        assert!(rest.after(1.2) > 6.0 && rest.after(0.5) < 1.0);
    }

    #[test]
    fn cancelled_runs_count_as_long_as_they_would_have_been() {
        let mut rest = of((0..2048).map(|n| if n % 50 == 0 { 8.0 } else { 1.0 }));
        let before = rest.after(1.2);
        (0..600).for_each(|n| if n % 50 == 0 { rest.add_cancelled(1.2) } else { rest.add(1.0) });
        assert!((rest.after(1.2) - before).abs() < 1.0, "{} {before}", rest.after(1.2));
    }
}
