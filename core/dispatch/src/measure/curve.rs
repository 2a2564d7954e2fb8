//! Times of batches by their number of rows.
//!
//! Problem: whether larger batches pay depends on the model, the engine and the machine. On one a batch of eight takes
//! as long as one row, on another eight times as long, on a third it steps at each multiple of four.
//!
//! Choice: a running mean of the times of each size, up to 8 rows exactly, then four sizes for each power of two. A run
//! counts at most twice the mean, so that a straggler does not decide. A time is never below that of a smaller batch.
//! The times of other sizes lie on a line between those of known ones. Sizes up to twice the largest known one are tried
//! as long as the last doubling lowered the time per row. Until they are known, a further row is assumed to cost a tenth
//! of an earlier one. Sizes that were not seen for a long while are forgotten and so tried again.
//!
//! Few runs are uncertain, and a size that seemed slow by chance would never be used again. So a mean counts less two of
//! its standard errors.
//!
//! A server may refuse batches. Three batches in a row that failed as a whole halve the limit, which doubles again
//! after many runs.
//!
//! Rejected: [`Pace`](super::pace::Pace), which has one class for each power of two (a step at 5 rows would spoil the
//! time of 4); a straight line through all sizes (it hides steps); times measured by workers at load (foreign servers
//! report none).
//!
//! Cold start: before the time of one row is known nothing is batched.

use std::time::Duration;

/// The sizes of which times are kept.
const ROWS: [u16; 20] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64];

/// Runs after which the time of a size is known, which is then their median: the first one may warm up.
const KNOWN: u32 = 8;

/// Runs that a mean remembers.
const WINDOW: u32 = 256;

/// A run counts so many means at most.
const CLIP: f32 = 2.0;

/// The assumed cost of each further row of an unknown size, in those of the rows before it.
const HOPED: f32 = 0.1;

/// Standard errors by which a mean may be too high.
const DOUBT: f32 = 2.0;

/// The relative variance of run times that is assumed at first.
const ASSUMED: f32 = 0.01;

/// A doubling pays if it lowers the time per row to less than this part.
const PAYS: f32 = 0.99;

/// Runs after which sizes without runs are forgotten and a lowered limit doubles.
const SWEEP: u32 = 32_768;

/// Batches in a row that fail as a whole before the limit is halved.
const BROKEN: u8 = 3;

/// Times of batches by their number of rows.
pub(crate) struct Curve {
    classes: [Timed; ROWS.len()],
    /// The expected nanoseconds of each size.
    times: [f32; ROWS.len()],
    /// The number of sizes that may be used.
    open: usize,
    /// The largest size that the server is believed to take.
    limit: u16,
    broken: u8,
    runs: u32,
    /// The relative variance of run times.
    variance: f32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Timed {
    /// The times of the first runs.
    first: [f32; KNOWN as usize],
    mean: f32,
    runs: u32,
    /// Seen since the last sweep.
    seen: bool,
}

impl Default for Curve {
    fn default() -> Self {
        let (classes, times) = ([Timed::default(); ROWS.len()], [0.0; ROWS.len()]);
        Self { classes, times, open: 0, limit: u16::MAX, broken: 0, runs: 0, variance: ASSUMED }
    }
}

impl Curve {
    /// Notes a run on an instance of average speed.
    pub(crate) fn note(&mut self, rows: usize, took: Duration) {
        let at = class(rows);
        let Some(of) = self.classes.get_mut(at) else { return };
        // Twice the mean is more than the mean only if that is not zero.
        let nanos = ((took.as_secs_f64() * 1e9) as f32).max(1.0);
        let off = of.note(nanos).unwrap_or(ASSUMED.sqrt());
        self.variance += (off * off - self.variance) / WINDOW as f32;
        self.broken = if rows > 1 { 0 } else { self.broken };
        self.runs += 1;
        if self.runs == SWEEP {
            self.sweep();
        }
        self.draw();
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
        self.runs = 0;
        self.limit = self.limit.saturating_mul(2);
        for class in &mut self.classes[1..] {
            class.runs = if class.seen { class.runs } else { 0 };
            class.seen = false;
        }
    }

    /// Computes the expected time of each size.
    fn draw(&mut self) {
        self.open = 0;
        if !self.is_known(0) {
            return;
        }
        let mut last = 0;
        self.times[0] = self.least(0);
        for at in (1..ROWS.len()).filter(|at| self.classes[*at].runs >= KNOWN) {
            let time = self.least(at).max(self.times[last]);
            let slope = (time - self.times[last]) / rows(last, at);
            for between in last + 1..=at {
                self.times[between] = self.times[last] + slope * rows(last, between);
            }
            last = at;
        }
        let half = (0..last).rev().find(|at| self.is_known(*at) && 2 * ROWS[*at] <= ROWS[last]).unwrap_or(0);
        let each = |at: usize| self.classes[at].mean / f32::from(ROWS[at]);
        let pays = last == 0 || each(last) < PAYS * each(half);
        let before =
            if last == 0 { self.times[0] } else { (self.times[last] - self.times[half]) / rows(half, last) };
        let tried = ROWS[last..].iter().take_while(|size| pays && **size <= 2 * ROWS[last]).count();
        for at in last + 1..last + tried {
            self.times[at] = self.times[last] + HOPED * before * rows(last, at);
        }
        self.open = last + tried.max(1);
    }

    /// The mean time of a size, if chance made it seem long.
    fn least(&self, at: usize) -> f32 {
        let Timed { mean, runs, .. } = self.classes[at];
        mean * (1.0 - DOUBT * (self.variance / runs as f32).sqrt()).max(0.5)
    }

    fn is_known(&self, at: usize) -> bool {
        self.classes[at].runs >= KNOWN
    }
}

impl Timed {
    /// Notes a run. Returns how far it is off the mean, in means, if that is known.
    fn note(&mut self, nanos: f32) -> Option<f32> {
        self.seen = true;
        if let Some(first) = self.first.get_mut(self.runs as usize) {
            *first = nanos;
            self.runs += 1;
            if self.runs == KNOWN {
                self.first.sort_unstable_by(f32::total_cmp);
                self.mean = self.first[KNOWN as usize / 2];
            }
            return None;
        }
        self.runs = (self.runs + 1).min(WINDOW);
        let counted = nanos.min(CLIP * self.mean);
        let off = counted / self.mean - 1.0;
        self.mean += (counted - self.mean) / self.runs as f32;
        Some(off)
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
