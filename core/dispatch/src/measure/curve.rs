//! Times of batches by their number of rows.
//!
//! Problem: whether larger batches pay depends on the model, the engine and the machine. On one a batch of eight takes
//! as long as one row, on another eight times as long, on a third it steps at each multiple of four.
//!
//! Choice: the mean time of each size ([`Timed`]), up to 8 rows exactly, then four sizes for each power of two. A time is
//! never below that of a smaller batch. Sizes up to twice the largest known one are tried as long as the last doubling
//! lowered the time per row. On a graphics card one doubling may save nothing and the next one much. So where batches
//! clearly pay, sizes up to four times the best one are tried after a while, too.
//!
//! Until a size is known, a further row is assumed to cost as little as it does between the two known sizes that differ
//! least. This also holds between known sizes: on a line between the steps of an engine the best size would seem bad, and
//! never be tried. An engine without steps shows its line early, and large sizes are not tried for nothing. Sizes that
//! were not seen for a long while are forgotten and so tried again. A size is tried only when so many queries wait.
//!
//! Few runs are uncertain, and a size that seemed slow by chance would never be used again. So an estimate counts less two
//! of its standard errors, at most a quarter of it. If run times vary by more than half of their mean, a sign that larger
//! sizes pay must in turn be beyond chance. Otherwise each size would seem cheap one day, and a batch of sixty rows delays
//! sixty queries. With steady times that would be late: near capacity larger sizes are needed soon.
//!
//! A server may refuse batches. Three batches in a row that failed as a whole halve the limit, which doubles again
//! after many runs.
//!
//! Rejected: [`Pace`](super::pace::Pace), which has one class for each power of two (a step at 5 rows would spoil the
//! time of 4); a straight line through all sizes (it hides steps); times measured by workers at load (foreign servers
//! report none); giving up an unknown size after the shorter one of two runs (the times of padded batches vary more, and
//! their batches stayed small).
//!
//! Cold start: before the time of one row is known nothing is batched.

use std::time::Duration;

use crate::measure::timed::{Estimate, Timed, WINDOW};

/// The sizes of which times are kept.
const ROWS: [u16; 20] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64];

/// The assumed cost of further rows while only single ones are known, in runs of one.
const HOPED: f32 = 0.1;

/// Standard errors by which a mean may be too high.
const DOUBT: f32 = 2.0;

/// The relative variance of run times up to which sizes are tried on any sign that they pay: they are soon known.
const USUAL: f32 = 0.25;

/// The least part of an estimate that counts.
const LEAST: f32 = 0.75;

/// The relative variance of run times that is assumed at first, and the runs for which the assumption counts.
const ASSUMED: Variance = Variance { value: 0.01, runs: 16 };

/// A doubling pays if it lowers the time per row to less than this part.
const PAYS: f32 = 0.99;

/// Batches clearly pay if they lower the time per row to less than this part.
const GAINS: f32 = 0.9;

/// Runs before sizes beyond a doubling that saved nothing are tried: on most engines they only delay their queries.
const PATIENCE: u64 = 256;

/// Runs after which sizes without runs are forgotten and a lowered limit doubles.
const SWEEP: u64 = 32_768;

/// Batches in a row that fail as a whole before the limit is halved.
const BROKEN: i8 = 3;

/// Times of batches by their number of rows.
pub(crate) struct Curve {
    classes: [Timed; ROWS.len()],
    /// The expected nanoseconds of each size.
    times: [f32; ROWS.len()],
    /// The number of sizes that may be used.
    open: usize,
    /// The largest size that the server is believed to take.
    limit: u16,
    /// Those in a row, less those that a bad row explains.
    broken: i8,
    /// All runs.
    runs: u64,
    /// The relative variance of run times.
    variance: Variance,
    /// The same of runs that no padding lengthens.
    chance: Variance,
}

/// A relative variance of run times.
#[derive(Clone, Copy)]
struct Variance {
    value: f32,
    /// The runs that it rests on.
    runs: u32,
}

impl Variance {
    fn note(&mut self, off: f32) {
        self.runs = (self.runs + 1).min(WINDOW);
        self.value += (off * off - self.value) / self.runs as f32;
    }
}

impl Default for Curve {
    fn default() -> Self {
        let (classes, times) = ([Timed::default(); ROWS.len()], [0.0; ROWS.len()]);
        Self {
            classes,
            times,
            open: 0,
            limit: u16::MAX,
            broken: 0,
            runs: 0,
            variance: ASSUMED,
            chance: ASSUMED,
        }
    }
}

impl Curve {
    /// Notes a run on an instance of average speed.
    pub(crate) fn note(&mut self, rows: usize, took: Duration) {
        if let Some(off) = self.note_padded(rows, took) {
            self.chance.note(off);
        }
    }

    /// Notes a run of padded rows, whose times vary with their lengths and not only by chance. Returns how far it is off the
    /// mean, in means, if that is known.
    pub(crate) fn note_padded(&mut self, rows: usize, took: Duration) -> Option<f32> {
        let at = class(rows);
        let of = self.classes.get_mut(at)?;
        // Twice the mean is more than the mean only if that is not zero.
        let nanos = ((took.as_secs_f64() * 1e9) as f32).max(1.0);
        let off = of.note(nanos);
        if let Some(off) = off {
            self.variance.note(off);
        }
        self.broken = if rows > 1 { 0 } else { self.broken };
        self.runs += 1;
        if self.runs.is_multiple_of(SWEEP) {
            self.sweep();
        }
        self.draw();
        off
    }

    /// Notes a batch that failed as a whole.
    pub(crate) fn note_broken(&mut self, rows: usize) {
        self.broken += 1;
        if self.broken == BROKEN {
            self.limit = u16::try_from(rows / 2).unwrap_or(u16::MAX).max(1);
            self.broken = 0;
            self.draw();
        }
    }

    /// Notes that one bad row broke a batch: the server takes batches of its size.
    pub(crate) fn note_explained(&mut self) {
        self.broken -= 1;
        if self.broken == -BROKEN {
            self.limit = self.limit.saturating_mul(2);
            self.broken = 0;
            self.draw();
        }
    }

    /// The expected nanoseconds of a batch, as far as sizes are known.
    pub(crate) fn time(&self, rows: u16) -> Option<f64> {
        self.sizes(rows).last().map(|(_, time)| time)
    }

    /// The sizes of batches that may be made of so many rows, with their expected nanoseconds. None is known at first.
    pub(crate) fn sizes(&self, most: u16) -> impl Iterator<Item = (u16, f64)> {
        let open = self.times.iter().take(self.open).zip(ROWS);
        let sizes = open.scan(0, move |below, (time, rows)| {
            let size = (*below < most).then(|| (rows.min(most), f64::from(*time)));
            *below = rows;
            size
        });
        let limit = self.limit;
        sizes.filter(move |(rows, _)| *rows <= limit)
    }

    fn sweep(&mut self) {
        self.limit = self.limit.saturating_mul(2);
        for class in &mut self.classes[1..] {
            class.runs = if class.seen { class.runs } else { 0 };
            class.seen = false;
        }
    }

    /// Computes the expected time of each size.
    fn draw(&mut self) {
        self.open = 0;
        if !self.classes[0].is_known() {
            return;
        }
        let mut known = (1..ROWS.len()).filter(|at| self.classes[*at].is_known()).peekable();
        let flattest = self.flattest();
        let (mut times, mut last) = ([0.0; ROWS.len()], 0);
        times[0] = least(self.own(0));
        while let Some(at) = known.next() {
            let own = self.own(at);
            let estimate = known.peek().map_or(own, |next| {
                own.between(self.own(last), self.own(*next), rows(last, at) / rows(last, *next))
            });
            let time = least(estimate).max(times[last]);
            let row = (time - times[last]) / rows(last, at);
            hope(&mut times[last..at], last, row.min(flattest));
            (times[at], last) = (time, at);
        }
        let is_half = |at: &usize| self.classes[*at].is_known() && 2 * ROWS[*at] <= ROWS[last];
        let half = (0..last).rev().find(is_half).unwrap_or(0);
        let pays = last == 0 || self.is_cheaper(last, half, PAYS);
        let row = if last == 0 { HOPED * times[0] } else { (times[last] - times[half]) / rows(half, last) };
        let most = self.beyond().max(if pays { 2 * ROWS[last] } else { 0 });
        self.open = ROWS.partition_point(|size| *size <= most).max(last + 1);
        hope(&mut times[last..self.open], last, row.min(flattest));
        self.times = times;
    }

    /// The least time that a further row adds between two neighbouring known sizes, with what chance may have taken off.
    fn flattest(&self) -> f32 {
        let known = |at: &usize| self.classes[*at].is_known();
        let pairs = (0..ROWS.len()).filter(known).zip((0..ROWS.len()).filter(known).skip(1));
        let slope = |(less, more): (usize, usize)| {
            let chance = DOUBT * (self.excess(less) + self.excess(more)).sqrt();
            ((self.classes[more].mean - self.classes[less].mean).max(0.0) + chance) / rows(less, more)
        };
        pairs.map(slope).fold(f32::INFINITY, f32::min)
    }

    /// The largest size that is tried even if a doubling saved nothing: two doublings beyond the best size.
    fn beyond(&self) -> u16 {
        let known = (1..ROWS.len()).filter(|at| self.classes[*at].is_known());
        let best = known.fold(0, |best, at| if self.is_cheaper(at, best, PAYS) { at } else { best });
        if self.is_cheaper(best, 0, GAINS) && self.runs >= PATIENCE { 4 * ROWS[best] } else { 0 }
    }

    /// Whether a row of a known size takes less than this part of its time in another one, beyond chance.
    fn is_cheaper(&self, at: usize, other: usize, part: f32) -> bool {
        let chance = |at: usize| self.excess(at) / f32::from(ROWS[at]).powi(2);
        let chance = DOUBT * (chance(at) + part * part * chance(other)).sqrt();
        self.each(at) + chance < part * self.each(other)
    }

    /// The mean time for a row of a known size.
    fn each(&self, at: usize) -> f32 {
        self.classes[at].mean / f32::from(ROWS[at])
    }

    /// The variance of a known size's mean, as far as run times vary more than usual.
    fn excess(&self, at: usize) -> f32 {
        self.classes[at].estimate((self.chance.value - USUAL).max(0.0)).variance
    }

    /// The estimate of a known size from its own runs.
    fn own(&self, at: usize) -> Estimate {
        self.classes[at].estimate(self.variance.value)
    }
}

/// The time of a size, if chance made it seem long.
fn least(Estimate { time, variance }: Estimate) -> f32 {
    (time - DOUBT * variance.sqrt()).max(LEAST * time)
}

/// Sets the assumed times of unknown sizes after a known one, if a further row costs so much.
fn hope(times: &mut [f32], known: usize, row: f32) {
    let first = times[0];
    for (further, time) in times.iter_mut().enumerate().skip(1) {
        *time = first + row * rows(known, known + further);
    }
}

/// The class of a batch: the first size that is not smaller.
fn class(rows: usize) -> usize {
    ROWS.partition_point(|size| usize::from(*size) < rows)
}

/// The rows between two sizes.
fn rows(from: usize, to: usize) -> f32 {
    f32::from(ROWS[to] - ROWS[from])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::timed::KNOWN;

    /// A curve that learned from an engine until it tries nothing new.
    fn learned(time: impl Fn(u16) -> f64) -> Curve {
        let mut curve = Curve::default();
        for rows in (1..=64u16).chain(1..=64) {
            for _ in 0..WINDOW {
                if rows == 1 || curve.sizes(rows).any(|(size, _)| size == rows) {
                    curve.note(usize::from(rows), Duration::from_secs_f64(time(rows) / 1e3));
                }
            }
        }
        curve
    }

    fn largest(curve: &Curve) -> u16 {
        curve.sizes(u16::MAX).last().expect("one row").0
    }

    fn ms(curve: &Curve, rows: u16) -> f64 {
        curve.sizes(rows).last().expect("one row").1 / 1e6
    }

    #[test]
    fn times_of_tried_sizes_are_known() {
        let stepped = learned(|rows| if rows <= 4 { 20.0 } else { 30.0 });
        for (rows, time) in [(1, 20.0), (4, 20.0), (5, 30.0), (8, 30.0), (9, 30.0)] {
            assert!((ms(&stepped, rows) / time - 1.0).abs() < 0.02, "{rows}: {} ms", ms(&stepped, rows));
        }
        assert_eq!(largest(&stepped), 64);
    }

    #[test]
    fn sizes_that_do_not_pay_are_not_used() {
        let linear = learned(|rows| 20.0 * f64::from(rows));
        assert_eq!(largest(&linear), 2, "two rows were tried, and nothing after them");
        assert!((ms(&linear, 2) / 40.0 - 1.0).abs() < 0.02);
    }

    #[test]
    fn sizes_beyond_a_flat_doubling_are_tried() {
        // Sessions of a card for 1, 2, 4, ... rows: 16 take as long for each row as 8, and 32 less.
        let card = |rows: u16| match rows.next_power_of_two() {
            rows @ ..=8 => 1.0 + 0.5 * f64::from(rows),
            16 => 10.4,
            rows => 0.55 * f64::from(rows),
        };
        assert_eq!(largest(&learned(card)), 64);
        let flat = learned(|rows| 20.0 * f64::from(rows.div_ceil(4)));
        assert_eq!(largest(&flat), 16, "two doublings beyond four rows");
    }

    #[test]
    fn size_between_known_ones_is_tried() {
        let mut curve = Curve::default();
        for (rows, time) in [(1, 10), (8, 20), (16, 60)] {
            (0..WINDOW).for_each(|_| curve.note(rows, Duration::from_millis(time)));
        }
        assert!(ms(&curve, 12) < 27.0, "a row may cost as little as it does up to 8: {} ms", ms(&curve, 12));
        (0..KNOWN).for_each(|_| curve.note(12, Duration::from_millis(60)));
        assert!(ms(&curve, 12) > 50.0, "it does not: {} ms", ms(&curve, 12));
    }

    #[test]
    fn size_that_seems_slow_by_chance_is_on_the_line() {
        let mut curve = Curve::default();
        for rows in [1, 8, 10, 12] {
            for run in 0..WINDOW {
                let off = if run % 2 == 0 { 0.9 } else { 1.1 };
                let took = (10.0 + 10.0 * rows as f64) * off;
                let runs = if rows == 10 { KNOWN } else { WINDOW };
                if run < runs {
                    curve.note(rows, Duration::from_secs_f64(took / 1e3));
                }
            }
        }
        // The upper one of two middle runs: ten percent too long.
        assert!((ms(&curve, 10) / 110.0 - 1.0).abs() < 0.03, "{} ms", ms(&curve, 10));
    }

    #[test]
    fn nothing_is_batched_before_one_row_is_known() {
        let mut curve = Curve::default();
        (1..KNOWN).for_each(|_| curve.note(1, Duration::from_millis(20)));
        assert_eq!(curve.sizes(64).count(), 0);
        curve.note(1, Duration::from_millis(20));
        assert_eq!(curve.sizes(64).map(|(rows, _)| rows).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn first_runs_that_warm_up_or_take_no_time_do_not_count() {
        for first in [5.0, 0.0] {
            let mut curve = Curve::default();
            for rows in (1..=64u16).chain(1..=64) {
                for run in 0..32 {
                    if rows == 1 || curve.sizes(rows).any(|(size, _)| size == rows) {
                        let took = if run == 0 { first } else { 0.02 };
                        curve.note(usize::from(rows), Duration::from_secs_f64(took));
                    }
                }
            }
            assert_eq!(largest(&curve), 64, "after {first} s");
            assert!((ms(&curve, 1) / 20.0 - 1.0).abs() < 0.2, "{} ms after {first} s", ms(&curve, 1));
        }
    }

    #[test]
    fn times_of_nothing_are_forgotten() {
        let mut curve = Curve::default();
        (0..10).for_each(|_| curve.note(1, Duration::ZERO));
        (0..10_000).for_each(|_| curve.note(1, Duration::from_millis(20)));
        assert!((ms(&curve, 1) / 20.0 - 1.0).abs() < 0.2, "{} ms", ms(&curve, 1));
    }

    #[test]
    fn servers_that_refuse_batches_get_smaller_ones() {
        let mut flat = learned(|_| 20.0);
        (0..BROKEN).for_each(|_| flat.note_broken(8));
        assert_eq!(largest(&flat), 4);
        (0..2).for_each(|_| flat.note_broken(4));
        flat.note(4, Duration::from_millis(20));
        flat.note_broken(4);
        assert_eq!(largest(&flat), 4, "one of them worked in between");
        (0..6 * SWEEP).for_each(|_| flat.note(1, Duration::from_millis(20)));
        assert!(flat.limit > 64, "a lowered limit rises again");
        assert_eq!(flat.sizes(64).count(), 2, "sizes without runs are forgotten");
    }
}
