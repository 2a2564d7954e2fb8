//! Weighted fair shares of instances' time: who is served next where several wait.
//!
//! Problem: instances that serve whoever came first belong to whoever asks most. Four instances, a model of 100 ms that 64
//! clients ask without a pause, and one of 5 ms that is asked now and then: each of the latter's queries waits behind 64
//! others, for 1.6 s.
//!
//! Choice: start-time fair queueing, in measured time. Every share has a place on a clock of its own making: each job
//! moves it on by what the job took, divided by the share's weight. The share that is farthest back is served next, and
//! the clock follows it. A share that had nothing to ask for does not save up what it did not use: when it comes back it
//! stands where the clock is, before all that are ahead of it. What a job takes is not known when it starts; so what the
//! share's jobs usually take is charged first, and put right when the job ends, within a bound: an instance that hangs is no
//! use of time that anybody asked for.
//!
//! Rejected: turns, which give a model of 100 ms twenty times what one of 5 ms gets; deficit round robin, which needs to
//! know what a job takes before it starts; reserved instances, which are idle when their owner is.
//!
//! Cold start: the first jobs of a share are charged nothing until one of them ends, so they are served in order of arrival.

use std::cmp::Ordering;
use std::time::Duration;

/// How much of what the last job took goes into what jobs usually take.
const SMOOTHING: f64 = 0.125;

/// A job counts for at most so many usual ones: an instance that hangs must not cost its model the others as well.
const MOST: f64 = 10.0;

/// Seconds that a usual job counts for at least in that bound, so that a model of which jobs failed at once is still measured.
const LEAST: f64 = 1e-4;

/// The clock that shares are compared by: it goes on with the service that is given.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    now: f64,
}

/// One of those that are served.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    weight: f64,
    /// Its place on the clock: when its next job is due.
    due: f64,
    /// What its jobs take, in seconds; unknown before the first has ended.
    usual: Option<f64>,
}

/// What a job was charged when it began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[must_use = "a job that ends puts its charge right"]
pub struct Charge {
    seconds: f64,
}

/// A share's turn: the least is served next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Due(f64);

impl Share {
    /// A share of this weight: beside one of weight 1 it gets so many times its time, while both want more.
    pub fn new(weight: f64) -> Self {
        Self { weight: usable(weight), due: 0.0, usual: None }
    }

    /// Another weight from now on.
    pub fn weigh(&mut self, weight: f64) {
        self.weight = usable(weight);
    }

    /// When it is to be served.
    pub fn due(&self, clock: &Clock) -> Due {
        Due(self.due.max(clock.now))
    }

    /// Whether it has had no more than its part: forgetting it changes nothing but what is known of its jobs.
    pub fn is_even(&self, clock: &Clock) -> bool {
        self.due <= clock.now
    }

    /// A job of its starts.
    pub fn begin(&mut self, clock: &mut Clock) -> Charge {
        clock.now = self.due.max(clock.now);
        let seconds = self.usual.unwrap_or(0.0);
        self.due = clock.now + seconds / self.weight;
        Charge { seconds }
    }

    /// The job ended. What it held an instance for beyond `MOST` times the usual was hardly its own doing.
    pub fn end(&mut self, charge: Charge, took: Duration) {
        let most = self.usual.map_or(f64::INFINITY, |usual| MOST * usual.max(LEAST));
        let took = took.as_secs_f64().min(most);
        self.due += (took - charge.seconds) / self.weight;
        self.usual = Some(self.usual.map_or(took, |usual| usual + SMOOTHING * (took - usual)));
    }
}

/// Weights come from settings, which refuse what is none.
fn usable(weight: f64) -> f64 {
    if weight.is_finite() && weight > 0.0 { weight } else { 1.0 }
}

impl Eq for Due {}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use parm_random::Random;

    use super::*;

    struct Job {
        ends: u64,
        share: usize,
        nanos: u64,
        charge: Charge,
    }

    /// What shares that always want more were given, in seconds: each has a weight and the mean seconds of its jobs.
    fn given(shares: &[(f64, f64)], instances: usize, jobs: usize, seed: u64) -> Vec<f64> {
        let mut crowd: Vec<Share> = shares.iter().map(|(weight, _)| Share::new(*weight)).collect();
        let (mut clock, mut draw, mut now) = (Clock::default(), Random::of(seed, [0]), 0);
        let (mut given, mut running) = (vec![0.0; shares.len()], Vec::<Job>::new());
        for _ in 0..jobs {
            if running.len() == instances {
                let first = (0..instances).min_by_key(|index| running[*index].ends).unwrap();
                let Job { ends, share, nanos, charge } = running.swap_remove(first);
                now = ends;
                crowd[share].end(charge, Duration::from_nanos(nanos));
                given[share] += nanos as f64 / 1e9;
            }
            let share = (0..crowd.len()).min_by_key(|share| crowd[*share].due(&clock)).unwrap();
            let nanos = (shares[share].1 * draw.exponential() * 1e9) as u64;
            let charge = crowd[share].begin(&mut clock);
            running.push(Job { ends: now + nanos, share, nanos, charge });
        }
        given
    }

    #[test]
    fn time_is_shared_by_weight_however_long_jobs_are() {
        for instances in [1, 4] {
            let shares = [(1.0, 0.1), (1.0, 0.005), (2.0, 0.02)];
            let given = given(&shares, instances, 40_000, 1);
            let all: f64 = given.iter().sum();
            let parts: Vec<f64> = given.iter().map(|given| given / all).collect();
            for (part, wanted) in parts.iter().zip([0.25, 0.25, 0.5]) {
                assert!((part - wanted).abs() < 0.02, "{instances}: {parts:?}");
            }
        }
    }

    #[test]
    fn who_asks_now_and_then_is_next_and_has_saved_nothing_up() {
        let (mut clock, mut flood, mut light) = (Clock::default(), Share::new(1.0), Share::new(1.0));
        for _ in 0..100 {
            let charge = flood.begin(&mut clock);
            flood.end(charge, Duration::from_millis(100));
        }
        assert!(light.due(&clock) < flood.due(&clock));
        let mut turns = 0;
        while light.due(&clock) <= flood.due(&clock) {
            let charge = light.begin(&mut clock);
            light.end(charge, Duration::from_millis(5));
            turns += 1;
        }
        assert!((19..=21).contains(&turns), "{turns}: as much as one job of the flood, not as a hundred");
    }

    #[test]
    fn an_instance_that_hangs_costs_a_share_no_more_than_a_few_jobs() {
        let (mut clock, mut share) = (Clock::default(), Share::new(1.0));
        let mut run = |millis: u64| {
            let charge = share.begin(&mut clock);
            share.end(charge, Duration::from_millis(millis));
            share.due
        };
        let before = run(10);
        let hung = run(30_000) - before;
        assert!((0.09..0.11).contains(&hung), "{hung} s were charged");
        // What jobs take from now on is learned all the same.
        let steps: Vec<f64> = (0..20).map(|_| run(1000)).collect();
        assert!((steps[19] - steps[18] - 1.0).abs() < 0.01, "{steps:?}");
    }

    #[test]
    fn a_weight_that_is_none_counts_as_one() {
        let (mut clock, mut none, mut one) = (Clock::default(), Share::new(0.0), Share::new(1.0));
        for share in [&mut none, &mut one] {
            let charge = share.begin(&mut clock);
            share.end(charge, Duration::from_millis(10));
        }
        assert_eq!(none.due(&clock), one.due(&clock));
    }
}
