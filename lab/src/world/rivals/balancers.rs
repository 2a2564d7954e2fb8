//! Rules that look at this client's own requests only: round robin, least requests, peak EWMA.

use parm_dispatcher::Time;
use parm_workload::Random;

use super::{Rule, Seen, View, distinct, least};

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

#[cfg(test)]
mod tests {
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
}
