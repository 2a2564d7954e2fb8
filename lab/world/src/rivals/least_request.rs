//! Least requests: the server with the fewest open requests of this client.
//!
//! Envoy with equal weights draws `choice_count` hosts (2), with replacement, and keeps the one with fewer active requests,
//! the first of two equal ones; `selection_method: FULL_SCAN` looks at all and draws among equal ones, as `least_conn` of
//! nginx does in effect. Source: `least_request_lb.cc` of Envoy 1.35 and its documentation. A client counts only its own
//! requests, so one of many sees little.

use super::{Rule, View, least};

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

#[cfg(test)]
mod tests {
    use parm_workload::Random;

    use super::super::tests::view;
    use super::*;

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
}
