//! How the time of a run grows with its work: the rows of a batch, or the length of a body.
//!
//! Problem: on one engine a batch of eight takes as long as one row, on another eight times as long, on a third it steps at
//! each multiple of four. A long text takes longer than a short one.
//!
//! Choice: a mean for each class of work. The work of a job is its rows times the size of the largest; classes are exact up to
//! eight and then four for each power of two. Between two known classes the time lies on a line, below them it is that of the
//! least known one.
//! Beyond the largest known class a further unit is assumed to cost as little as between the two known classes that differ
//! least, so that larger batches are tried where they may pay, and a tenth of a run while only one class is known.
//!
//! Rejected: joining the means of neighbouring classes, and doubts about means of few runs: they made no difference.

use smallvec::SmallVec;

/// Runs that a mean remembers.
const WINDOW: f32 = 256.0;

/// The first run of a class counts as at most so many times longer or shorter than was expected: a cache may have answered it at once, and
/// the runs after it would make their instance seem a million times slower.
const ODD: f32 = 4.0;

/// The assumed cost of a further unit of work while one class is known, as a part of its time.
const HOPED: f64 = 0.1;

/// Mean times by work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sizes(SmallVec<[Mean; 1]>);

/// The mean of ln(nanoseconds); unknown without a weight.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    log: f32,
    weight: f32,
    /// The exponential of the mean.
    nanos: f64,
}

/// Works that begin a class, without the exact ones.
const EXACT: u32 = 8;
const PARTS: u32 = 4;

/// The class of so much work.
fn class(work: u32) -> usize {
    let work = work.max(1);
    if work <= EXACT {
        return work as usize - 1;
    }
    let power = work.ilog2();
    let part = (work - (1 << power)) / (1 << (power - PARTS.ilog2()));
    (EXACT - 1 + PARTS * (power - EXACT.ilog2()) + part) as usize
}

/// The least work of a class.
fn work(class: usize) -> f64 {
    let class = class as u32;
    if class < EXACT {
        return f64::from(class + 1);
    }
    let (power, part) = ((class + 1 - EXACT) / PARTS, (class + 1 - EXACT) % PARTS);
    f64::from(EXACT << power) * (1.0 + f64::from(part) / f64::from(PARTS))
}

impl Sizes {
    /// Whether the time of anything is known.
    pub(crate) fn is_known(&self) -> bool {
        !self.0.is_empty()
    }

    /// The largest work that has been seen.
    pub(crate) fn largest(&self) -> u32 {
        self.0.len().checked_sub(1).map_or(0, |class| work(class) as u32)
    }

    /// The runs in the mean of a class.
    pub(crate) fn weight(&self, work: u32) -> f32 {
        self.0.get(class(work)).map_or(0.0, |mean| mean.weight)
    }

    /// Learns: `log` is the first value of a new class, `residual` the difference from the mean of a known one.
    pub(crate) fn learn(&mut self, work: u32, log: f32, residual: f32) {
        let expected = self.nanos(work).map(|nanos| nanos.ln() as f32);
        let class = class(work);
        if self.0.len() <= class {
            self.0.resize(class + 1, Mean::default());
        }
        let mean = &mut self.0[class];
        mean.weight = (mean.weight + 1.0).min(WINDOW);
        mean.log = match expected {
            _ if mean.weight > 1.0 => mean.log + residual / mean.weight,
            Some(expected) => log.clamp(expected - ODD.ln(), expected + ODD.ln()),
            None => log,
        };
        mean.nanos = f64::from(mean.log).exp();
    }

    /// The nanoseconds that so much work takes.
    pub(crate) fn nanos(&self, work: u32) -> Option<f64> {
        let class = class(work);
        match self.0.get(class) {
            Some(mean) if mean.weight > 0.0 => Some(mean.nanos),
            _ => self.between(class, f64::from(work)),
        }
    }

    /// Their logarithm, if runs of this class have ended.
    pub(crate) fn log(&self, work: u32) -> Option<f32> {
        self.0.get(class(work)).filter(|mean| mean.weight > 0.0).map(|mean| mean.log)
    }

    /// The nanoseconds of a class without runs.
    fn between(&self, class: usize, amount: f64) -> Option<f64> {
        let known = |(at, mean): (usize, &Mean)| (mean.weight > 0.0).then(|| (work(at), mean.nanos));
        let mut all = self.0.iter().enumerate().filter_map(known);
        let (below, above) = self.0.split_at(class.min(self.0.len()));
        let below = below.iter().enumerate().rev().find_map(known);
        let above = above.iter().enumerate().find_map(|(at, mean)| known((at + class, mean)));
        match (below, above) {
            (Some((from, less)), Some((to, more))) => {
                Some(less + (more - less).max(0.0) * (amount - from) / (to - from))
            }
            (Some((from, nanos)), None) => {
                let (mut flattest, mut last) = (f64::INFINITY, all.next()?);
                for next in all {
                    flattest = flattest.min((next.1 - last.1).max(0.0) / (next.0 - last.0));
                    last = next;
                }
                let slope = if flattest.is_finite() { flattest } else { HOPED * nanos / from };
                Some(nanos + slope * (amount - from))
            }
            (None, above) => above.map(|(_, nanos)| nanos),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_begin_where_they_say() {
        for at in 0..60 {
            assert_eq!(class(work(at) as u32), at, "{}", work(at));
        }
        assert_eq!([9, 10, 11, 12, 16, 19, 20].map(class), [7, 8, 8, 9, 11, 11, 12]);
    }

    #[test]
    fn unknown_sizes_lie_between_known_ones() {
        let mut sizes = Sizes::default();
        assert_eq!(sizes.nanos(1), None);
        let time = |sizes: &Sizes, work| sizes.nanos(work).expect("it is known").round();
        sizes.learn(2, 100_f32.ln(), 0.0);
        assert_eq!([1, 2, 4].map(|work| time(&sizes, work)), [100.0, 100.0, 110.0], "a tenth of a run more");
        sizes.learn(6, 180_f32.ln(), 0.0);
        assert_eq!([4, 7].map(|work| time(&sizes, work)), [140.0, 200.0]);
        sizes.learn(8, 184_f32.ln(), 0.0);
        assert_eq!(time(&sizes, 10), 188.0, "the flattest slope");
    }
}
