//! A CPU quota: an instance may run for a part of each period, and stands still once that is used up.
//!
//! Linux enforces the CPU limit of a container this way, with periods of 100 ms. A run that meets the end of the quota
//! continues in the next period, so a short run can take nearly a whole period longer. Only time in which a run makes
//! progress counts, so an instance with little work is never throttled. The stalls therefore depend on the runs, and
//! the quota remembers the time used in the current period: its runs must be requested in the order of time.

use std::time::Duration;

use crate::clock::Moment;

/// The quota of one instance.
#[derive(Clone, Debug)]
pub(crate) struct Quota {
    /// Nanoseconds that it may run in a period.
    run: u64,
    /// Nanoseconds of a period.
    period: u64,
    /// Nanoseconds by which periods begin earlier than those of an instance without a shift.
    shift: u64,
    /// The current period.
    current: u64,
    /// Nanoseconds that are used in it.
    used: u64,
}

/// The result of running for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Spent {
    /// All work is done at this moment.
    Done(Moment),
    /// The time is up, and this many nanoseconds of work are done.
    Stopped(f64),
}

impl Quota {
    /// Creates an unused quota. `phase`, from 0 to 1, shifts its periods.
    pub(crate) fn new(run: Duration, period: Duration, phase: f64) -> Self {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).max(1);
        let period = nanos(period);
        let shift = (phase * period as f64) as u64;
        Self { run: nanos(run).min(period), period, shift, current: 0, used: 0 }
    }

    /// Returns the share of the time that it may run.
    pub(crate) fn share(&self) -> f64 {
        self.run as f64 / self.period as f64
    }

    /// Works for this many nanoseconds from a moment on, and stops at another one if that comes first.
    pub(crate) fn spend(&mut self, from: Moment, work: f64, until: Moment) -> Spent {
        let (mut at, end) = (from.as_nanos(), until.as_nanos());
        let work = work as u64;
        let mut left = work;
        loop {
            if left == 0 {
                return Spent::Done(Moment::from_nanos(at));
            }
            if at >= end {
                return Spent::Stopped((work - left) as f64);
            }
            let current = at.saturating_add(self.shift) / self.period;
            if current != self.current {
                (self.current, self.used) = (current, 0);
            }
            let next = (current + 1).saturating_mul(self.period).saturating_sub(self.shift);
            let slice = left.min(self.run.saturating_sub(self.used)).min(next - at).min(end - at);
            (self.used, left) = (self.used + slice, left - slice);
            at += slice;
            if left > 0 && self.used >= self.run && at < next {
                at = self.skip(next, end, &mut left);
            }
        }
    }

    /// Passes the periods that the work takes up completely, from the start of one on.
    fn skip(&self, next: u64, end: u64, left: &mut u64) -> u64 {
        let whole = ((*left - 1) / self.run).min(end.saturating_sub(next) / self.period);
        *left -= whole * self.run;
        next.saturating_add(whole.saturating_mul(self.period))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: f64 = 1e6;

    fn at(ms: u64) -> Moment {
        Moment::after(Duration::from_millis(ms))
    }

    fn quota(run_ms: u64) -> Quota {
        Quota::new(Duration::from_millis(run_ms), Duration::from_millis(100), 0.0)
    }

    fn done(ms: u64) -> Spent {
        Spent::Done(at(ms))
    }

    #[test]
    fn run_stalls_to_the_end_of_the_period_when_its_quota_is_spent() {
        let mut quota = quota(50);
        let mut run = |start, work: f64| quota.spend(at(start), work * MS, Moment::NEVER);
        assert_eq!(run(0, 20.0), done(20));
        assert_eq!(run(30, 20.0), done(50));
        assert_eq!(run(60, 20.0), done(110), "10 ms are left, the other 10 wait for the next period");
        assert_eq!(run(110, 40.0), done(150), "they count there");
        assert_eq!(run(150, 20.0), done(220));
        assert_eq!(run(390, 20.0), done(410), "an idle instance has all of its quota");
    }

    #[test]
    fn long_run_gets_its_quota_in_each_period() {
        assert_eq!(quota(15).spend(at(0), 40.0 * MS, Moment::NEVER), done(210));
        assert_eq!(quota(10).spend(at(95), 1000.0 * MS, Moment::NEVER), done(10_005));
        assert_eq!(quota(100).spend(at(7), 1234.0 * MS, Moment::NEVER), done(1241), "a whole core");
        assert_eq!(quota(1).spend(at(0), 1e15, Moment::NEVER), done(99_999_999_901), "in few steps");
    }

    #[test]
    fn work_stops_in_time() {
        let mut half = quota(50);
        assert_eq!(half.spend(at(0), 200.0 * MS, at(130)), Spent::Stopped(80.0 * MS));
        assert_eq!(half.spend(at(130), 120.0 * MS, Moment::NEVER), done(350));
        assert_eq!(quota(50).spend(at(0), 200.0 * MS, at(90)), Spent::Stopped(50.0 * MS));
    }

    #[test]
    fn phase_shifts_the_periods() {
        let mut quota = Quota::new(Duration::from_millis(50), Duration::from_millis(100), 0.25);
        assert_eq!(quota.spend(at(0), 60.0 * MS, Moment::NEVER), done(85));
        assert!((quota.share() - 0.5).abs() < 1e-12);
    }
}
