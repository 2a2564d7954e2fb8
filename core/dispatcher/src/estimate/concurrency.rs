//! The jobs that a server of unknown kind runs best at a time.
//!
//! Problem: some servers run one request at a time and queue the others, some run hundreds side by side. Behind a server's own queue a
//! query can no longer go elsewhere; with too few at a time a parallel server idles.
//!
//! Choice: run times are told apart by the number of jobs that the instance held, in [`STEPS`]. The throughput of a step is its
//! jobs divided by their run time. If jobs did not slow each other, it would grow as the jobs do; a step is worth it if it grows by
//! at least a quarter of that from the step before. The limit is the last step before the first one that is not worth it. One step
//! beyond those that are known is allowed, so a growing load shows whether it is worth it. A step that was not seen for a while
//! counts as unknown again, so the limit follows a server that changes.
//!
//! Rejected: a setting (operators do not know the number, and a wrong one costs either the tail or the capacity); the largest
//! throughput (servers with a queue of their own reach it with a queue that is never empty); the run time alone (servers that batch
//! become slower and much more productive).
//!
//! A run among more jobs than are known counts for this only, and others are compared as if they had run alone. Otherwise an instance with
//! more jobs than its peers seems slower while the first burst shows what it can do, and the limits of four servers that run 16
//! settle between 12 and 64 instead of at 16.
//!
//! Cold start: two jobs at a time.

/// Numbers of jobs that are told apart; others count as the next lower one.
const STEPS: [usize; 16] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];

/// The limit while nothing is known.
const COLD: usize = 2;

/// A step is known from so many runs on, and its mean is over the last so many.
const KNOWN: f32 = 8.0;
const WINDOW: f32 = 64.0;

/// The share of its runs that a step keeps with each run of another one.
const FADES: f32 = 1.0 - 1.0 / 2048.0;

/// The part of the ideal gain of throughput that a step must have.
const WORTH: f32 = 0.25;

/// Run times by the number of jobs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Concurrency([Crowd; STEPS.len()]);

#[derive(Clone, Copy, Debug, Default)]
struct Crowd {
    /// The mean of ln(run / expected).
    mean: f32,
    runs: f32,
}

impl Concurrency {
    /// Learns from a run that took `times` as long as expected. The instance held so many jobs when it began and when it ended,
    /// itself included, and may hold so many.
    pub(crate) fn learn(&mut self, began: usize, ended: usize, limit: u16, times: f64) {
        let at = step(began);
        if at != step(ended) {
            return;
        }
        // Runs among fewer than allowed show nothing about more: a quiet time must not forget what a burst needs.
        if at >= step(limit.into()) {
            self.0.iter_mut().for_each(|step| step.runs *= FADES);
            self.0[at].runs /= FADES;
        }
        let own = &mut self.0[at];
        own.runs = (own.runs + 1.0).min(WINDOW);
        own.mean += (times.max(1e-9).ln() as f32 - own.mean) / own.runs;
    }

    /// How many times as long as among the fewest a run takes among so many.
    pub(crate) fn slower(&self, jobs: usize) -> f32 {
        let mut known = self.0[..=step(jobs)].iter().filter(|step| step.runs >= KNOWN).map(|step| step.mean);
        let Some(fewest) = known.next() else { return 1.0 };
        known.next_back().map_or(1.0, |own| (own - fewest).exp().max(1.0))
    }

    /// The same for a run that began as one of so many and ended as one of so many. `None` beyond what is known: such a run must not
    /// count as one of a slower instance.
    pub(crate) fn between(&self, began: usize, ended: usize) -> Option<f32> {
        let last = self.0.iter().rposition(|step| step.runs >= KNOWN);
        let is_known = last.is_none_or(|last| step(began.max(ended)) <= last);
        is_known.then(|| (self.slower(began) * self.slower(ended)).sqrt())
    }

    /// The jobs at a time, at most so many.
    pub(crate) fn limit(&self, most: u16) -> u16 {
        (self.best() as u16).min(most)
    }

    fn best(&self) -> usize {
        let mut known = (0..STEPS.len()).filter(|at| self.0[*at].runs >= KNOWN);
        let Some(mut last) = known.next() else { return COLD };
        for next in known {
            let jobs = STEPS[next] as f32 / STEPS[last] as f32;
            let gain = jobs / (self.0[next].mean - self.0[last].mean).exp();
            if gain < 1.0 + WORTH * (jobs - 1.0) {
                return STEPS[last];
            }
            last = next;
        }
        // The next step is unknown, and allowed.
        STEPS.get(last + 1).copied().unwrap_or(u16::MAX.into()).max(COLD)
    }
}

fn step(jobs: usize) -> usize {
    STEPS.iter().rposition(|own| *own <= jobs).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves under a load that goes up and down, where a run takes so many times as long among so many jobs. Returns the limit.
    fn serve(concurrency: &mut Concurrency, most: u16, slower: impl Fn(f64) -> f64) -> u16 {
        for round in 0..20_000 {
            let limit = concurrency.limit(most);
            let jobs = (1 + round % 200).min(usize::from(limit));
            concurrency.learn(jobs, jobs, limit, slower(jobs as f64));
        }
        concurrency.limit(most)
    }

    #[test]
    fn limit_is_that_of_the_server() {
        let learned = |most, slower: fn(f64) -> f64| serve(&mut Concurrency::default(), most, slower);
        assert!(learned(256, |jobs| jobs) <= 2, "one at a time");
        assert_eq!(learned(256, |_| 1.0), 256, "no job slows another");
        let four = learned(256, |jobs| (jobs / 4.0).max(1.0));
        assert!((4..=6).contains(&four), "four at a time, not {four}");
        let batches = learned(256, |jobs| 1.0 + 0.1 * jobs);
        assert!(batches >= 12, "a batch of ten takes twice as long as one: {batches}");
        assert_eq!(learned(3, |_| 1.0), 3);
    }

    #[test]
    fn limit_follows_a_server_that_changes() {
        let mut concurrency = Concurrency::default();
        assert!(serve(&mut concurrency, 64, |jobs| jobs) <= 2);
        assert_eq!(serve(&mut concurrency, 64, |_| 1.0), 64);
        assert!(serve(&mut concurrency, 64, |jobs| jobs) <= 2);
    }

    #[test]
    fn quiet_time_forgets_nothing() {
        let mut concurrency = Concurrency::default();
        let busy = serve(&mut concurrency, 256, |_| 1.0);
        (0..20_000).for_each(|_| concurrency.learn(1, 1, busy, 1.0));
        assert_eq!((busy, concurrency.limit(256)), (256, 256));
    }

    #[test]
    fn run_among_more_than_are_known_is_not_compared() {
        let mut concurrency = Concurrency::default();
        assert_eq!(concurrency.between(1, 9), Some(1.0), "nothing is known");
        for jobs in [1, 2, 2, 4, 8] {
            (0..8).for_each(|_| concurrency.learn(jobs, jobs, 64, jobs as f64));
        }
        let slower = [(1, 1), (8, 8), (9, 11), (2, 8), (8, 12)]
            .map(|(began, ended)| concurrency.between(began, ended));
        let slower = slower.map(|slower| slower.map(|times| times.round()));
        assert_eq!(slower, [Some(1.0), Some(8.0), Some(8.0), Some(4.0), None]);
    }

    #[test]
    fn runs_with_changing_company_do_not_count() {
        let mut concurrency = Concurrency::default();
        (0..1000).for_each(|_| concurrency.learn(1, 8, 2, 20.0));
        assert_eq!(concurrency.limit(64), COLD as u16);
    }
}
