//! Asynchronous probing, as Prequal does it: answers of probes that were sent with earlier queries.
//!
//! With each query a client probes 3 random servers. The answers go into a pool of 16. With fewer than 2 in the pool a query
//! goes anywhere. An answer leaves the pool at an age of 1 s, when the pool is full (the oldest), after
//!
//! ```text
//! b = max(1, (1 + 1) / ((1 - pool / servers) * 3 - 1))
//! ```
//!
//! uses (the fraction is drawn), and with each query one more leaves, the oldest and the worst in turn. A use adds 1 to the
//! requests in flight of the answer. Source: Wydrowski et al., NSDI 2024 (arXiv 2312.10172); the added request is as its
//! reimplementations have it. With few servers the formula has no positive denominator, so the pool has at most half as
//! many answers as there are servers.

use std::time::Duration;

use super::{Probe, View, distinct};

const PROBES: usize = 3;
const REMOVED: f64 = 1.0;
const SIZE: usize = 16;
const DELTA: f64 = 1.0;
const MAX_AGE: Duration = Duration::from_secs(1);

pub(super) struct Pool {
    servers: usize,
    size: usize,
    uses: f64,
    /// The oldest first, with the uses that are left; the fraction of the last one is drawn when it is due.
    answers: Vec<(Probe, f64)>,
    worst_is_next: bool,
}

impl Pool {
    pub(super) fn new(servers: usize) -> Self {
        let size = SIZE.min(servers / 2).max(2);
        let gained = (1.0 - size as f64 / servers as f64) * PROBES as f64 - REMOVED;
        let uses = if gained > 0.0 { ((1.0 + DELTA) / gained).max(1.0) } else { SIZE as f64 };
        Self { servers, size, uses, answers: Vec::new(), worst_is_next: false }
    }

    pub(super) fn add(&mut self, probe: Probe) {
        if self.answers.len() >= self.size {
            self.answers.remove(0);
        }
        self.answers.push((probe, self.uses));
    }

    /// Sends the probes of a query, and takes the server whose answer ranks lowest.
    pub(super) fn take<R: PartialOrd>(&mut self, view: &mut View<'_>, rank: impl Fn(&Probe) -> R) -> usize {
        view.probes = distinct(view.draw, self.servers, PROBES);
        self.answers.retain(|(probe, _)| view.now.since(probe.at) < MAX_AGE);
        if self.answers.len() < 2 {
            return view.draw.below(self.servers);
        }
        let best = self.first(|one, other| rank(one) < rank(other));
        let (probe, uses) = &mut self.answers[best];
        let server = probe.server;
        probe.in_flight += 1;
        *uses -= 1.0;
        if *uses < 1.0 && view.draw.uniform() >= *uses {
            self.answers.remove(best);
        }
        let worst = self.first(|one, other| rank(one) > rank(other));
        self.answers.remove(if self.worst_is_next { worst } else { 0 });
        self.worst_is_next = !self.worst_is_next;
        server
    }

    fn first(&self, precedes: impl Fn(&Probe, &Probe) -> bool) -> usize {
        let answers = &self.answers;
        (1..answers.len()).fold(
            0,
            |first, index| {
                if precedes(&answers[index].0, &answers[first].0) { index } else { first }
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use parm_workload::Random;

    use super::super::tests::{at, view};
    use super::*;

    #[test]
    fn uses_are_those_of_the_formula() {
        // 2 / ((1 - 16 / 100) * 3 - 1).
        assert!((Pool::new(100).uses - 1.316).abs() < 0.001);
        // A pool of 6 for 12 servers: 2 / (0.5 * 3 - 1).
        assert_eq!((Pool::new(12).size, Pool::new(12).uses), (6, 4.0));
    }

    #[test]
    fn answers_leave_by_use_in_turn_and_by_age() {
        let (mut pool, mut draw) = (Pool::new(12), Random::of(1, [0]));
        for server in 0..8 {
            pool.add(Probe { server, at: at(0), in_flight: 0, latency: 0 });
        }
        let here = |pool: &Pool| pool.answers.iter().map(|(probe, _)| probe.server).collect::<Vec<_>>();
        assert_eq!(here(&pool), [2, 3, 4, 5, 6, 7], "the oldest made room");
        let mut take = |pool: &mut Pool, millis| {
            let mut view = view(millis, &[], &mut draw);
            let server = pool.take(&mut view, |probe| probe.server.abs_diff(5));
            (server, view.probes.len())
        };
        assert_eq!(take(&mut pool, 1), (5, 3));
        assert_eq!(here(&pool), [3, 4, 5, 6, 7], "then the oldest");
        assert_eq!(take(&mut pool, 1), (5, 3));
        assert_eq!(here(&pool), [4, 5, 6, 7], "then the worst, 3 and not 7, because it is the first of them");
        assert_eq!(pool.answers[1].0.in_flight, 2, "both queries");
        take(&mut pool, 1001);
        assert!(here(&pool).is_empty());
    }
}
