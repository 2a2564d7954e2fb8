//! The jobs that an instance of unknown kind runs best at a time.
//!
//! Problem: some servers run one request at a time and queue the others, some run hundreds side by side. Behind a
//! server's own queue a query can no longer go elsewhere; with too few at a time a parallel server idles.
//!
//! Choice: run times are told apart by the number of jobs that the instance held, in steps ([`STEPS`]). The throughput of
//! a step is its jobs divided by their run time. If jobs did not slow each other, it would grow as the jobs do; a step is
//! worth it if it grows by at least a quarter of that from the step before. The limit is the last step before the first
//! one that is not worth it. One step beyond those that are known is allowed, so a growing load shows whether it is worth
//! it. A step that was not seen for a while counts as unknown again, so the limit follows a server that changes.
//!
//! Rejected: a setting (operators do not know the number, and a wrong one costs either the tail or the capacity); the
//! largest throughput (servers with a queue of their own reach it with a queue that is never empty); the run time alone
//! (servers that batch become slower and much more productive).
//!
//! Cold start: two jobs at a time.

/// Numbers of jobs that are told apart; others count as the next lower one.
const STEPS: [u16; 16] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];

/// The limit while nothing is known.
const COLD: u16 = 2;

/// A step is known from so many runs on, and its mean is over the last so many.
const KNOWN: f32 = 8.0;
const WINDOW: f32 = 64.0;

/// The share of its runs that a step keeps with each run of another one.
const FADES: f32 = 1.0 - 1.0 / 2048.0;

/// The part of the ideal gain of throughput that a step must have.
const WORTH: f32 = 0.25;

/// Run times by the number of jobs.
#[derive(Clone, Debug)]
pub(crate) struct Concurrency {
    most: u16,
    limit: u16,
    steps: [Crowd; STEPS.len()],
}

#[derive(Clone, Copy, Debug, Default)]
struct Crowd {
    /// The mean of the logarithm of run times over the expected ones.
    mean: f32,
    runs: f32,
}

impl Concurrency {
    /// With at most so many jobs.
    pub(crate) fn new(most: u16) -> Self {
        let most = most.max(1);
        Self { most, limit: most.min(COLD), steps: Default::default() }
    }

    /// The jobs at a time.
    pub(crate) fn limit(&self) -> u16 {
        self.limit
    }

    /// Changes the most jobs at a time.
    pub(crate) fn change(&mut self, most: u16) {
        self.most = most.max(1);
        self.limit = self.decide();
    }

    /// Notes the logarithm of a run's time over the expected time. The instance held so many jobs when it began and when
    /// it ended, itself included.
    pub(crate) fn note(&mut self, began: usize, ended: usize, log: f32) {
        let at = step(began);
        if at != step(ended) || !log.is_finite() {
            return;
        }
        // Runs among fewer than allowed show nothing about more: a quiet time must not forget what a burst needs.
        if at >= step(self.limit.into()) {
            self.steps.iter_mut().for_each(|step| step.runs *= FADES);
            self.steps[at].runs /= FADES;
        }
        let own = &mut self.steps[at];
        own.runs = (own.runs + 1.0).min(WINDOW);
        own.mean += (log - own.mean) / own.runs;
        self.limit = self.decide();
    }

    /// The run time of a job that began as one of so many, relative to that among the fewest.
    pub(crate) fn slower(&self, began: u16) -> f64 {
        let mut known = self.steps.iter().filter(|step| step.runs >= KNOWN);
        let own = self.steps[step(began.into())];
        match known.next() {
            Some(fewest) if own.runs >= KNOWN => f64::from((own.mean - fewest.mean).exp().max(1.0)),
            _ => 1.0,
        }
    }

    fn decide(&self) -> u16 {
        let mut known = (0..STEPS.len()).filter(|at| self.steps[*at].runs >= KNOWN);
        let Some(mut last) = known.next() else { return self.most.min(COLD) };
        for next in known {
            let jobs = f32::from(STEPS[next]) / f32::from(STEPS[last]);
            let gain = jobs / (self.steps[next].mean - self.steps[last].mean).exp();
            if gain < 1.0 + WORTH * (jobs - 1.0) {
                return STEPS[last].min(self.most);
            }
            last = next;
        }
        // The next step is unknown, and allowed.
        STEPS.get(last + 1).copied().unwrap_or(u16::MAX).max(COLD).min(self.most)
    }
}

fn step(jobs: usize) -> usize {
    STEPS.iter().rposition(|own| usize::from(*own) <= jobs).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit of a server on which a run takes so many times as long among so many jobs.
    fn learned(most: u16, slower: impl Fn(u16) -> f32) -> u16 {
        let mut concurrency = Concurrency::new(most);
        for round in 0..20_000u16 {
            // The load goes up and down.
            let jobs = (1 + round % 200).min(concurrency.limit());
            concurrency.note(jobs.into(), jobs.into(), slower(jobs).ln());
        }
        concurrency.limit()
    }

    #[test]
    fn limit_is_that_of_the_server() {
        assert!(learned(256, f32::from) <= 2, "one at a time");
        assert_eq!(learned(256, |_| 1.0), 256, "no job slows another");
        let four = learned(256, |jobs| (f32::from(jobs) / 4.0).max(1.0));
        assert!((4..=6).contains(&four), "four at a time, not {four}");
        let batches = learned(256, |jobs| 1.0 + 0.1 * f32::from(jobs));
        assert!(batches >= 12, "a batch of ten takes twice as long as one: {batches}");
        assert_eq!(learned(3, |_| 1.0), 3);
    }

    #[test]
    fn limit_follows_a_server_that_changes() {
        let mut concurrency = Concurrency::new(64);
        let mut serve = |slower: fn(f32) -> f32| {
            for round in 0..20_000u16 {
                let jobs = (1 + round % 200).min(concurrency.limit());
                concurrency.note(jobs.into(), jobs.into(), slower(f32::from(jobs)).ln());
            }
            concurrency.limit()
        };
        assert!(serve(|jobs| jobs) <= 2);
        assert_eq!(serve(|_| 1.0), 64);
        assert!(serve(|jobs| jobs) <= 2);
    }

    #[test]
    fn quiet_time_forgets_nothing() {
        let mut concurrency = Concurrency::new(256);
        for _ in 0..20_000 {
            let jobs = concurrency.limit().min(100);
            concurrency.note(jobs.into(), jobs.into(), 0.0);
        }
        let busy = concurrency.limit();
        (0..20_000).for_each(|_| concurrency.note(1, 1, 0.0));
        assert!(busy >= 96 && concurrency.limit() == busy, "{busy}, then {}", concurrency.limit());
    }

    #[test]
    fn runs_with_changing_company_do_not_count() {
        let mut concurrency = Concurrency::new(64);
        (0..1000).for_each(|_| concurrency.note(1, 8, 3.0));
        assert_eq!(concurrency.limit(), COLD);
        concurrency.note(1, 1, f32::NAN);
        assert_eq!(concurrency.limit(), COLD);
    }
}
