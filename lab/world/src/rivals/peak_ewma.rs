//! Power of two choices with peak EWMA: Finagle (the default of Twitter), linkerd, tower's `PeakEwma`.
//!
//! A latency above the average becomes the average at once, a lower one pulls it down by age:
//!
//! ```text
//! observe(rtt): w = exp(-(now - stamp) / tau); cost = rtt if rtt > cost else cost * w + rtt * (1 - w)
//! load:         observe(0); 2^47 + pending if cost == 0 and pending > 0, else cost * (pending + 1)
//! ```
//!
//! The lower load of two different random servers wins. `tau` is 10 s. Source: `PeakEwma.scala` of Finagle. Requests that
//! are given up count with the time that they took, as there and in tower.

use parm_dispatcher::Time;

use super::{Rule, Seen, View, distinct, least};

const TAU_NANOS: f64 = 10e9;
/// The load of a server that has requests and no answer yet.
const PENALTY: f64 = (1u64 << 47) as f64;

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
        let drawn = distinct(view.draw, self.costs.len(), self.choices);
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
    use parm_workload::Random;

    use super::super::tests::{at, view};
    use super::*;

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
