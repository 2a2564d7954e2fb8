//! Prequal: hot and cold servers, by the answers of probes.
//!
//! A server is hot if its requests in flight exceed the quantile `Q_RIF` of those in the 64 latest answers of probes. A query
//! goes to the cold server of least latency in the [pool](Pool) of answers, or if all are hot to that of fewest
//! requests in flight. The worst answer, which leaves the pool, is the reverse. Source: Wydrowski et al., NSDI 2024 (arXiv
//! 2312.10172), asynchronous mode; `Q_RIF` is 0.84 on their testbed, and 0.6 in prequal-rs. Servers that fail are not avoided,
//! because none fail here.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Probe, Rule, View, distinct};

const RECENT: usize = 64;

pub(super) struct Prequal {
    quantile: f64,
    pool: Pool,
    recent: VecDeque<u32>,
}

impl Prequal {
    pub(super) fn new(servers: usize, quantile: f64) -> Self {
        Self { quantile, pool: Pool::new(servers), recent: VecDeque::new() }
    }

    /// The most requests in flight of a cold server.
    fn limit(&self) -> u32 {
        let mut recent: Vec<u32> = self.recent.iter().copied().collect();
        let rank = (self.quantile * recent.len() as f64).ceil() as usize;
        let last = recent.len().checked_sub(1);
        last.map_or(u32::MAX, |last| *recent.select_nth_unstable(rank.max(1).min(last + 1) - 1).1)
    }
}

/// Cold before hot; cold ones by latency, hot ones by requests.
fn rank(probe: &Probe, limit: u32) -> (bool, u64) {
    let hot = probe.in_flight > limit;
    (hot, if hot { u64::from(probe.in_flight) } else { probe.latency })
}

impl Rule for Prequal {
    fn pick(&mut self, view: &mut View<'_>) -> usize {
        let limit = self.limit();
        self.pool.take(view, |probe| rank(probe, limit))
    }

    fn probed(&mut self, probe: Probe) {
        self.pool.add(probe);
        self.recent.push_back(probe.in_flight);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }
}

/// What a server tells probes: how long recent requests took that met as many others at the server as there are now.
#[derive(Default)]
pub(super) struct Latencies {
    /// Requests in flight at the arrival, and nanoseconds until the answer; the newest last.
    recent: VecDeque<(u32, u64)>,
}

const KEPT: usize = 64;
/// At most so many of the newest count.
const COUNTED: usize = 9;

impl Latencies {
    pub(super) fn add(&mut self, in_flight: u32, nanos: u64) {
        self.recent.push_back((in_flight, nanos));
        if self.recent.len() > KEPT {
            self.recent.pop_front();
        }
    }

    /// The median latency of those that met the nearest number of others; 0 if nothing is known.
    pub(super) fn at(&self, in_flight: u32) -> u64 {
        let distance = |seen: &(u32, u64)| seen.0.abs_diff(in_flight);
        let Some(nearest) = self.recent.iter().map(distance).min() else { return 0 };
        let near = self.recent.iter().rev().filter(|seen| distance(seen) == nearest);
        let mut nanos: Vec<u64> = near.map(|(_, nanos)| *nanos).take(COUNTED).collect();
        let middle = nanos.len() / 2;
        *nanos.select_nth_unstable(middle).1
    }
}

const PROBES: usize = 3;
const REMOVED: f64 = 1.0;
const SIZE: usize = 16;
const DELTA: f64 = 1.0;
const MAX_AGE: Duration = Duration::from_secs(1);

/// Asynchronous probing, as Prequal does it: answers of probes that were sent with earlier queries.
///
/// With each query a client probes 3 random servers. The answers go into a pool of 16. With fewer than 2 in the pool a query
/// goes anywhere. An answer leaves the pool at an age of 1 s, when the pool is full (the oldest), after
///
/// ```text
/// b = max(1, (1 + 1) / ((1 - pool / servers) * 3 - 1))
/// ```
///
/// uses (the fraction is drawn), and with each query one more leaves, the oldest and the worst in turn. A use adds 1 to the
/// requests in flight of the answer. Source: Wydrowski et al., NSDI 2024 (arXiv 2312.10172); the added request is as its
/// reimplementations have it. With few servers the formula has no positive denominator, so the pool has at most half as
/// many answers as there are servers.
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

    fn probe(server: usize, in_flight: u32, latency: u64) -> Probe {
        Probe { server, at: at(0), in_flight, latency }
    }

    #[test]
    fn cold_servers_go_by_latency_and_hot_ones_by_requests() {
        let (mut rule, mut draw) = (Prequal::new(100, 0.6), Random::of(1, [0]));
        for told in [probe(1, 2, 50), probe(2, 9, 10), probe(3, 1, 70), probe(4, 2, 40), probe(5, 8, 5)] {
            rule.probed(told);
        }
        // Requests 1, 2, 2, 8, 9: the 0.6 quantile is the third of five.
        assert_eq!(rule.limit(), 2);
        assert_eq!(rule.pick(&mut view(1, &[], &mut draw)), 4, "cold, 40 ns");
        // Server 4 has one more request now, so it is hot or gone; the oldest, server 1, went with the query.
        assert_eq!(rule.pick(&mut view(1, &[], &mut draw)), 3);
        let ranks =
            [(9, 1), (8, 2), (2, 95), (1, 90)].map(|(in_flight, nanos)| rank(&probe(0, in_flight, nanos), 2));
        assert!(ranks.is_sorted_by(|one, other| one > other), "{ranks:?}");
    }

    #[test]
    fn estimate_is_the_median_at_the_nearest_number_of_requests() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.at(3), 0);
        for (in_flight, nanos) in [(0, 20), (0, 22), (0, 60), (4, 100)] {
            latencies.add(in_flight, nanos);
        }
        assert_eq!([0, 1, 3, 9].map(|in_flight| latencies.at(in_flight)), [22, 22, 100, 100]);
    }

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
