//! Prequal: hot and cold servers, by the answers of probes.
//!
//! A server is hot if its requests in flight exceed the quantile `Q_RIF` of those in the 64 latest answers of probes. A query
//! goes to the cold server of least latency in the [pool](super::pool) of answers, or if all are hot to that of fewest
//! requests in flight. The worst answer, which leaves the pool, is the reverse. Source: Wydrowski et al., NSDI 2024 (arXiv
//! 2312.10172), asynchronous mode; `Q_RIF` is 0.84 on their testbed, and 0.6 in prequal-rs. Servers that fail are not avoided,
//! because none fail here.

use std::collections::VecDeque;

use super::pool::Pool;
use super::{Probe, Rule, View};

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
}
