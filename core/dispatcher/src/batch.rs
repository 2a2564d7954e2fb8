//! Batches: how many waiting rows a free instance takes in one job.
//!
//! Problem: large batches save work, and make each of their queries wait for the others. The best size depends on the load,
//! on the queue and on how the time of a batch grows with its rows. A fixed size fits one load.
//!
//! Choice: with a free instance for each waiting query nothing is batched. Otherwise an instance takes the number of rows for
//! which the mean finish of the waiting queries, at one batch of this size after the other on all instances, plus a price for
//! the work is least. The price of a row's work is the wait that it causes for later queries: by queueing theory utilisation
//! over idleness, where utilisation is what the present arrivals need at this size. A size at which the first row would miss
//! its deadline is not made. While more rows wait than batches of the best size take at a time, a row that would only be in
//! time in a smaller one is given up: otherwise the first in line, which is always the latest, would make all batches small.
//!
//! Rejected: all waiting rows (a burst that a dozen instances would share makes one long batch: p99.9 up to 231 % longer);
//! no price (p99 up to 67 times as long near capacity); a wait for further rows (within 4 % in all but one of twelve cells);
//! a latency objective as a setting (clients give deadlines, and the least finish needs no limit).
//!
//! **Only sizes that save.** Where run times vary widely, some size always looks cheap by chance, and its batches make long jobs
//! of nothing. So sizes are used whose mean saves work, and only up to twice the largest that surely does, whatever chance may
//! have added. One with few runs may save more than its mean shows.
//!
//! Cold start: one row, until its time is known. Sizes up to twice the largest known one are tried.

use crate::estimate::Times;

/// Sizes at which the load needs more than this part of the instances do not carry it.
const FULL: f64 = 0.99;
/// The price of such a size, in its utilisation.
const TOO_SMALL: f64 = 1000.0;
/// A batch must do a row in less than this part of the time of a single one.
const SAVES: f64 = 0.95;
/// Standard errors by which a measured time may be wrong.
const DOUBT: f64 = 3.0;
/// Runs of a size after which it is no longer tried in the hope that it saves more than measured.
const TRIED: f64 = 100.0;
/// A larger batch must lower the cost to less than this part: measured times are not exact.
const BETTER: f64 = 0.99;
/// The time that the first row must have left for a batch, in expected times of it.
const MARGIN: f64 = 1.25;
/// Batches in a row that fail as a whole before smaller ones are made.
const BROKEN: u8 = 3;
/// Good batches at the limit before a lowered limit doubles.
const SOUND: u16 = 1024;

/// What decides the size of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Rows that wait, and the work of one of them.
    pub(crate) waiting: u32,
    pub(crate) size: u32,
    /// Arrivals in a nanosecond.
    pub(crate) arrivals: f64,
    /// Usual instances' worth of slots.
    pub(crate) slots: f64,
    /// Nanoseconds until the first row's deadline, and from its arrival to it.
    pub(crate) left: f64,
    pub(crate) span: f64,
}

/// The rows of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rows {
    pub(crate) best: u32,
    /// The best that the first row's deadline permits.
    pub(crate) in_time: u32,
}

/// The best batches, of at most so many rows. `factor` is how much slower than usual its instance is.
pub(crate) fn rows(load: &Load, times: &Times, most: u32, factor: f64) -> Rows {
    let nanos = |rows: u32| times.usual(1.0, rows * load.size);
    let most = most.min(load.waiting).min((2 * times.sizes.largest() / load.size.max(1)).max(1));
    let mut found = Rows { best: 1, in_time: 1 };
    let Some(one) = nanos(1) else { return found };
    let (mut least, mut saves) = (f64::INFINITY, 1);
    let mut rows = 1;
    while rows <= most.min(2 * saves) {
        let Some(time) = nanos(rows) else { break };
        let each = time / f64::from(rows);
        let runs = f64::from(times.sizes.weight(rows * load.size));
        let doubt = (DOUBT * f64::from(times.deviation) / runs.sqrt()).exp();
        let is_sure = runs > 0.0 && each * doubt < SAVES * one;
        if is_sure {
            saves = rows;
        }
        let hope = if runs < TRIED { doubt } else { 1.0 };
        if rows == 1 || is_sure || each < SAVES * one * hope {
            let used = load.arrivals * each / load.slots;
            let price = if used < FULL { used / (1.0 - used) } else { TOO_SMALL * used };
            let others = f64::from(load.waiting.div_ceil(rows) - 1);
            let cost = time * (1.0 + others / (2.0 * load.slots)) + price * each / load.slots;
            // Half of the time is for the wait until a batch before it has ended.
            let has_time = rows == 1 || MARGIN * factor * time <= load.left.max(load.span / 2.0);
            if cost < least * BETTER && has_time {
                (found.best, least) = (rows, cost);
                if MARGIN * factor * time <= load.left {
                    found.in_time = rows;
                }
            }
        }
        rows += (rows / 8).max(1);
    }
    found
}

/// The largest batch that a model's servers are believed to take: a server may refuse batches as a whole.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limit {
    /// None while no batch was refused.
    most: Option<u32>,
    broken: u8,
    sound: u16,
}

impl Limit {
    pub(crate) fn of(&self, most: u32) -> u32 {
        self.most.map_or(most, |limit| limit.min(most))
    }

    /// A job of several rows was answered, or failed as a whole.
    pub(crate) fn note(&mut self, rows: u32, answered: bool) {
        if !answered {
            (self.broken, self.sound) = (self.broken + 1, 0);
            if self.broken == BROKEN {
                (self.most, self.broken) = (Some((rows / 2).max(1)), 0);
            }
            return;
        }
        self.broken = 0;
        // While the limit is one row, single runs count.
        if let Some(most) = self.most.filter(|most| rows >= *most) {
            self.sound += 1;
            if self.sound == SOUND {
                (self.most, self.sound) = (Some(2 * most), 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A known engine, on which each further row costs this part of the first.
    fn engine(part: f64) -> Times {
        let mut times = Times::default();
        for rows in (1..=64).cycle().take(64 * 100) {
            let nanos = 1e7 * (1.0 + part * f64::from(rows - 1));
            times.sizes.learn(rows, nanos.ln() as f32, 0.0);
        }
        times
    }

    fn best(load: &Load, times: &Times, most: u32, factor: f64) -> u32 {
        let rows = rows(load, times, most, factor);
        assert_eq!(rows.best, rows.in_time, "there is time");
        rows.best
    }

    #[test]
    fn size_follows_queue_load_and_engine() {
        // 12 instances of 10 ms run 1,200 single rows a second.
        let load = |waiting, per_second: f64| Load {
            waiting,
            size: 1,
            arrivals: per_second / 1e9,
            slots: 12.0,
            left: 1e9,
            span: 2e9,
        };
        let cheap = engine(0.1);
        assert_eq!(best(&load(1, 600.0), &cheap, 64, 1.0), 1);
        assert!((1..4).contains(&best(&load(12, 600.0), &cheap, 64, 1.0)), "a burst is shared");
        assert!(best(&load(64, 4000.0), &cheap, 64, 1.0) > 4, "single rows do not carry the load");
        assert_eq!(best(&load(64, 4000.0), &cheap, 4, 1.0), 4);
        assert_eq!(best(&load(64, 1100.0), &engine(1.0), 64, 1.0), 1, "a batch saves nothing");
        let short = Load { left: 2e7, ..load(64, 4000.0) };
        assert!(rows(&short, &cheap, 64, 1.0).in_time <= 7, "16 ms and a quarter");
        assert_eq!(best(&load(64, 4000.0), &Times::default(), 64, 1.0), 1);
    }

    #[test]
    fn refused_batches_become_smaller_until_they_are_taken() {
        let mut limit = Limit::default();
        (0..3).for_each(|_| limit.note(8, false));
        assert_eq!((limit.of(64), limit.of(2)), (4, 2));
        limit.note(4, true);
        (0..2).for_each(|_| limit.note(4, false));
        assert_eq!(limit.of(64), 4, "one was taken between");
        (0..1024).for_each(|_| limit.note(4, true));
        assert_eq!(limit.of(64), 8);
    }
}
