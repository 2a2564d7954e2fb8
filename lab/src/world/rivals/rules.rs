//! The rules by which rivals pick a server, each with its formula and where that is published.

use std::collections::VecDeque;
use std::time::Duration;

use parm_dispatcher::Time;
use parm_workload::Random;

use super::{Probe, Rule, Seen, View, distinct, least};

/// Round robin: nginx without a directive, and the default of Envoy, gRPC's `round_robin` and most service meshes.
///
/// Each client begins at a server of its own, because clients that start together would otherwise march in step.
pub(super) struct RoundRobin {
    servers: usize,
    next: usize,
}

impl RoundRobin {
    pub(super) fn new(servers: usize, draw: &mut Random) -> Self {
        Self { servers, next: draw.below(servers) }
    }
}

impl Rule for RoundRobin {
    fn pick(&mut self, _: &mut View<'_>) -> usize {
        self.next = (self.next + 1) % self.servers;
        self.next
    }
}

/// Least requests: the server with the fewest open requests of this client.
///
/// Envoy with equal weights draws `choice_count` hosts (2), with replacement, and keeps the one with fewer active requests,
/// the first of two equal ones; `selection_method: FULL_SCAN` looks at all and draws among equal ones, as `least_conn` of
/// nginx does in effect. Source: `least_request_lb.cc` of Envoy 1.35 and its documentation. A client counts only its own
/// requests, so one of many sees little.
pub(super) struct LeastRequest {
    /// How many are compared; `None` for all.
    pub(super) choices: Option<usize>,
}

impl Rule for LeastRequest {
    fn pick(&mut self, view: &mut View<'_>) -> usize {
        let open = view.open;
        let Some(choices) = self.choices else {
            return least(open.iter().map(|count| f64::from(*count)).enumerate(), view.draw);
        };
        let drawn = (0..choices.max(1)).map(|_| view.draw.below(open.len()));
        drawn.min_by_key(|server| open[*server]).unwrap_or_default()
    }
}

const TAU_NANOS: f64 = 10e9;
/// The load of a server that has requests and no answer yet.
const PENALTY: f64 = (1u64 << 47) as f64;

/// Power of two choices with peak EWMA: Finagle (the default of Twitter), linkerd, tower's `PeakEwma`.
///
/// A latency above the average becomes the average at once, a lower one pulls it down by age:
///
/// ```text
/// observe(rtt): w = exp(-(now - stamp) / tau); cost = rtt if rtt > cost else cost * w + rtt * (1 - w)
/// load:         observe(0); 2^47 + pending if cost == 0 and pending > 0, else cost * (pending + 1)
/// ```
///
/// The lower load of two different random servers wins. `tau` is 10 s. Source: `PeakEwma.scala` of Finagle. Requests that
/// are given up count with the time that they took, as there and in tower.
pub(super) struct PeakEwma {
    choices: usize,
    costs: Vec<Cost>,
}

#[derive(Clone, Copy, Default)]
struct Cost {
    nanos: f64,
    stamp: Time,
}

impl PeakEwma {
    pub(super) fn new(servers: usize, choices: usize) -> Self {
        Self { choices, costs: vec![Cost::default(); servers] }
    }
}

impl Cost {
    fn observe(&mut self, now: Time, nanos: f64) {
        let age = now.since(self.stamp).as_nanos() as f64;
        let weight = (-age / TAU_NANOS).exp();
        self.nanos = if nanos > self.nanos { nanos } else { self.nanos * weight + nanos * (1.0 - weight) };
        self.stamp = now;
    }

    fn load(&mut self, now: Time, open: u32) -> f64 {
        self.observe(now, 0.0);
        if self.nanos == 0.0 && open > 0 {
            return PENALTY + f64::from(open);
        }
        self.nanos * f64::from(open + 1)
    }
}

impl Rule for PeakEwma {
    fn pick(&mut self, view: &mut View<'_>) -> usize {
        let drawn = distinct(view.draw, self.costs.len(), self.choices.max(1));
        let (now, open) = (view.now, view.open);
        let loads = drawn.into_iter().map(|server| (server, self.costs[server].load(now, open[server])));
        least(loads, view.draw)
    }

    fn ended(&mut self, seen: &Seen) {
        self.costs[seen.server].observe(seen.now, seen.took);
    }
}

const NEW: f64 = 0.9;

/// C3: replicas are ranked by the queue that servers report and the client's own requests, cubed.
///
/// ```text
/// score = R + (1 + q + clients * open)^3 * S
/// ```
///
/// `R` is the time of an answer less the run, `S` the run and `q` the queue that the server reported with the answer, each a
/// moving average with a weight of 0.9 for the new value; the least score wins. A server without an answer has a score of
/// 0, so it is tried first. Source: Suresh et al., NSDI 2015, as in `ScoreTracker.java` of their Cassandra. The control of
/// rates is left out, as in Prequal's comparison.
pub(super) struct C3 {
    clients: f64,
    servers: Vec<Option<Averages>>,
}

#[derive(Clone, Copy)]
struct Averages {
    /// Nanoseconds of an answer besides the run.
    rest: f64,
    /// Nanoseconds of a run.
    run: f64,
    queue: f64,
}

impl C3 {
    pub(super) fn new(servers: usize, clients: usize) -> Self {
        Self { clients: clients as f64, servers: vec![None; servers] }
    }

    fn score(&self, server: usize, open: u32) -> f64 {
        let Some(of) = self.servers[server] else { return 0.0 };
        of.rest + (1.0 + of.queue + self.clients * f64::from(open)).powi(3) * of.run
    }
}

impl Rule for C3 {
    fn pick(&mut self, view: &mut View<'_>) -> usize {
        let scores = view.open.iter().enumerate().map(|(server, open)| (server, self.score(server, *open)));
        least(scores, view.draw)
    }

    fn ended(&mut self, seen: &Seen) {
        let Some(told) = seen.told else { return };
        let run = told.run as f64;
        let new = Averages { rest: seen.took - run, run, queue: f64::from(told.in_flight) };
        let old = self.servers[seen.server].unwrap_or(new);
        let mean = |old: f64, new: f64| NEW * new + (1.0 - NEW) * old;
        self.servers[seen.server] = Some(Averages {
            rest: mean(old.rest, new.rest),
            run: mean(old.run, new.run),
            queue: mean(old.queue, new.queue),
        });
    }
}

/// The score on answers of probes.
///
/// Prequal's authors compare rules on their testbed with its pool of probes. There `q` is the number of
/// requests in flight and `T` the latency that a probe tells, and the score is the paper's, `R - T + q^3 * T`. That they
/// compared C3 so is an inference: only so does it come as close to Prequal as they report.
pub(super) struct OnProbes {
    clients: f64,
    /// Nanoseconds of answers from each server, as this client sees them.
    took: Vec<Option<f64>>,
    pool: Pool,
}

impl OnProbes {
    pub(super) fn new(servers: usize, clients: usize) -> Self {
        Self { clients: clients as f64, took: vec![None; servers], pool: Pool::new(servers) }
    }
}

impl Rule for OnProbes {
    fn pick(&mut self, view: &mut View<'_>) -> usize {
        let (open, took, clients) = (view.open, &self.took, self.clients);
        self.pool.take(view, |probe| {
            let there = probe.latency as f64;
            let queue = 1.0 + f64::from(probe.in_flight) + clients * f64::from(open[probe.server]);
            took[probe.server].unwrap_or(there) - there + queue.powi(3) * there
        })
    }

    fn ended(&mut self, seen: &Seen) {
        let took = &mut self.took[seen.server];
        *took = Some(NEW * seen.took + (1.0 - NEW) * took.unwrap_or(seen.took));
    }

    fn probed(&mut self, probe: Probe) {
        self.pool.add(probe);
    }
}

const RECENT: usize = 64;

/// Prequal: hot and cold servers, by the answers of probes.
///
/// A server is hot if its requests in flight exceed the quantile `Q_RIF` of those in the 64 latest answers of probes. A query
/// goes to the cold server of least latency in the [pool](Pool) of answers, or if all are hot to that of fewest
/// requests in flight. The worst answer, which leaves the pool, is the reverse. Source: Wydrowski et al., NSDI 2024 (arXiv
/// 2312.10172), asynchronous mode; `Q_RIF` is 0.84 on their testbed, and 0.6 in prequal-rs. Servers that fail are not avoided,
/// because none fail here.
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
    use super::super::Told;
    use super::super::tests::{at, view};
    use super::*;

    #[test]
    fn servers_take_turns() {
        let mut draw = Random::of(1, [0]);
        let mut rule = RoundRobin { servers: 3, next: 1 };
        let picks = [(); 5].map(|()| rule.pick(&mut view(0, &[9, 0, 0], &mut draw)));
        assert_eq!(picks, [2, 0, 1, 2, 0], "busy or not");
    }

    #[test]
    fn two_choices_are_blind_to_other_servers_and_a_scan_is_not() {
        let mut draw = Random::of(1, [0]);
        let open = [3, 2, 0, 2];
        let mut picks = [0; 4];
        let mut rule = LeastRequest { choices: Some(2) };
        (0..16_000).for_each(|_| picks[rule.pick(&mut view(0, &open, &mut draw))] += 1);
        // Of 16 pairs, one has the busiest server twice, and 7 have the idle one.
        for (server, expected) in [(0, 1000.0), (2, 7000.0)] {
            let share = f64::from(picks[server]) / expected;
            assert!((share - 1.0).abs() < 0.15, "{picks:?}");
        }
        let mut scan = LeastRequest { choices: None };
        assert!((0..100).all(|_| scan.pick(&mut view(0, &open, &mut draw)) == 2));
    }

    #[test]
    fn peaks_count_at_once_and_fade_within_ten_seconds() {
        let mut cost = Cost::default();
        assert_eq!(cost.load(at(0), 0), 0.0);
        assert_eq!(cost.load(at(0), 3), PENALTY + 3.0);
        cost.observe(at(0), 20e6);
        cost.observe(at(0), 80e6);
        assert_eq!(cost.load(at(0), 1), 160e6, "the peak of 80 ms for itself and one open request");
        // 80 * e^-1 + 20 * (1 - e^-1) = 42.07 ms.
        cost.observe(at(10_000), 20e6);
        assert!((cost.nanos - 42.07e6).abs() < 0.01e6, "{}", cost.nanos);
        // Only looking at it fades it: 42.07 * e^-1 = 15.48 ms.
        assert!((cost.load(at(20_000), 0) - 15.48e6).abs() < 0.01e6, "{}", cost.nanos);
    }

    #[test]
    fn lower_load_of_two_wins() {
        let mut rule = PeakEwma::new(2, 2);
        let mut draw = Random::of(1, [0]);
        for (server, took) in [(0, 20e6), (1, 50e6)] {
            rule.ended(&Seen { server, now: at(1), took, told: None });
        }
        // 20 ms * (1 + 1) < 50 ms * (0 + 1) < 20 ms * (2 + 1).
        assert_eq!(rule.pick(&mut view(1, &[1, 0], &mut draw)), 0);
        assert_eq!(rule.pick(&mut view(1, &[2, 0], &mut draw)), 1);
    }

    fn answer(server: usize, took: f64, run: u64, in_flight: u32) -> Seen {
        Seen { server, now: at(1), took, told: Some(Told { run, in_flight }) }
    }

    #[test]
    fn score_is_that_of_the_formula() {
        let mut rule = C3::new(2, 3);
        assert_eq!(rule.score(0, 5), 0.0, "unknown");
        rule.ended(&answer(0, 30e6, 20_000_000, 1));
        // 10 + (1 + 1 + 3 * 1)^3 * 20 ms.
        assert_eq!(rule.score(0, 1), 10e6 + 125.0 * 20e6);
        rule.ended(&answer(0, 20e6, 20_000_000, 0));
        // R = 0.9 * 0 + 0.1 * 10 = 1 ms, q = 0.1: 1 + 1.1^3 * 20 = 27.62 ms.
        assert!((rule.score(0, 0) - 27.62e6).abs() < 1.0, "{}", rule.score(0, 0));
    }

    #[test]
    fn own_requests_outweigh_a_slower_server() {
        let (mut rule, mut draw) = (C3::new(2, 1), Random::of(1, [0]));
        rule.ended(&answer(0, 20e6, 20_000_000, 0));
        assert_eq!(rule.pick(&mut view(1, &[0, 0], &mut draw)), 1, "the unknown one");
        rule.ended(&answer(1, 100e6, 100_000_000, 0));
        assert_eq!(rule.pick(&mut view(1, &[0, 0], &mut draw)), 0);
        assert_eq!(rule.pick(&mut view(1, &[1, 0], &mut draw)), 1, "2^3 * 20 > 100 ms");
    }

    #[test]
    fn score_on_probes_weighs_requests_and_latency() {
        let (mut rule, mut draw) = (OnProbes::new(100, 2), Random::of(1, [0]));
        let probe = |server, in_flight, latency| Probe { server, at: at(0), in_flight, latency };
        rule.ended(&answer(2, 900.0, 1, 0));
        // (1 + 1)^3 * 100 = 800; 900 - 10 + (1 + 0 + 2 * 1)^3 * 10 = 1160; (1 + 4)^3 * 10 = 1250.
        [probe(3, 4, 10), probe(2, 0, 10), probe(1, 1, 100)].into_iter().for_each(|probe| rule.probed(probe));
        let open = [0, 0, 1, 0];
        assert_eq!(rule.pick(&mut view(1, &open, &mut draw)), 1);
    }

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
