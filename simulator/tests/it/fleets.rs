//! Several frontends that share instances are as good as one, within the bounds that docs/fleet.md states.

use std::time::Duration;

use parm_simulator::{Fleet, Run, Tally};
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;

use super::support::{run, simulate};

const DELAY: Duration = Duration::from_micros(75);

/// p99.9 less p50, in milliseconds.
fn gap(tally: &Tally) -> f64 {
    let mut all: Vec<(u64, u32)> = tally.blocks().flatten().collect();
    all.sort_unstable();
    let count: u64 = all.iter().map(|(_, count)| u64::from(*count)).sum();
    let at = |share: f64| {
        let mut left = (count as f64 * share) as u64;
        let found = all.iter().find(|(_, count)| {
            let here = u64::from(*count) >= left;
            left = left.saturating_sub(u64::from(*count));
            here
        });
        found.unwrap().0 as f64 / 1e6
    };
    at(0.999) - at(0.5)
}

/// `load` is a share of what two thirds of the instances could do.
fn fleet(instances: u32, frontends: u32, load: f64, tokens: bool) -> Tally {
    let time_ms = Distribution::Lognormal { median: 20.0, sigma: 0.05 };
    let fleet = Fleet { frontends, tokens, delay: DELAY, loss: 0.0 };
    let service = Service { time_ms, ..Service::default() };
    simulate(&Run { queries: 120_000, fleet, service, ..run(instances, load * 2.0 / 3.0) })
}

#[test]
fn several_frontends_have_the_tail_of_one_queue() {
    for (instances, frontends) in [(18, 3), (180, 10)] {
        for load in [0.5, 0.7, 0.85] {
            let [one, blind, shared] = [(1, false), (frontends, false), (frontends, true)]
                .map(|(frontends, tokens)| fleet(instances, frontends, load, tokens));
            let messages = shared.messages();
            let gaps = [&one, &blind, &shared].map(gap);
            eprintln!("{instances} {frontends} {load}: {gaps:?} {messages}");
        }
    }
}
