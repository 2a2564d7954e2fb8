//! C3: replicas are ranked by the queue that servers report and the client's own requests, cubed.
//!
//! ```text
//! score = R + (1 + q + clients * open)^3 * S
//! ```
//!
//! `R` is the time of an answer less the run, `S` the run and `q` the queue that the server reported with the answer, each a
//! moving average with a weight of 0.9 for the new value; the least score wins. A server without an answer has a score of
//! 0, so it is tried first. Source: Suresh et al., NSDI 2015, as in `ScoreTracker.java` of their Cassandra. The control of
//! rates is left out, as in Prequal's comparison.
//!
//! **On probes.** Prequal's authors compare rules on their testbed with its pool of probes. There `q` is the number of
//! requests in flight and `T` the latency that a probe tells, and the score is the paper's, `R - T + q^3 * T`. That they
//! compared C3 so is an inference: only so does it come as close to Prequal as they report.

use super::prequal::Pool;
use super::{Probe, Rule, Seen, View, least};

const NEW: f64 = 0.9;

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

#[cfg(test)]
mod tests {
    use parm_workload::Random;

    use super::super::Told;
    use super::super::tests::{at, view};
    use super::*;

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
}
