//! Several frontends that share instances perform like one, within the bounds that docs/fleet.md states.

use std::time::Duration;

use parm_settings::PolicyKind;
use parm_simulator::{Fleet, Run, Tally};
use parm_workload::Scenario;
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;

use super::support::{run, simulate};

const DELAY: Duration = Duration::from_micros(75);
const SEEDS: u64 = 4;

/// p99.9 less p50, in milliseconds.
fn gap(tally: &Tally) -> f64 {
    let mut times: Vec<(u64, u32)> = tally.blocks().flatten().collect();
    times.sort_unstable();
    let at = |share: f64| {
        let mut below = (tally.count() as f64 * share) as u64;
        let is_past = |(_, count): &&(u64, u32)| {
            let past = u64::from(*count) > below;
            below = below.saturating_sub(u64::from(*count));
            past
        };
        times.iter().find(is_past).unwrap().0 as f64 / 1e6
    };
    at(0.999) - at(0.5)
}

/// `load` is a share of what two thirds of the instances could do.
fn fleet(instances: u32, frontends: u32, load: f64, tokens: bool) -> Tally {
    let time_ms = Distribution::Lognormal { median: 20.0, sigma: 0.05 };
    let fleet = Fleet { frontends, tokens, delay: DELAY, ..Fleet::default() };
    let service = Service { time_ms, ..Service::default() };
    simulate(&Run { queries: 120_000, fleet, service, ..run(instances, load * 2.0 / 3.0) })
}

/// One frontend, several without tokens, and several with them.
fn compared(instances: u32, frontends: u32, load: f64) -> [Tally; 3] {
    [(1, false), (frontends, false), (frontends, true)]
        .map(|(frontends, tokens)| fleet(instances, frontends, load, tokens))
}

#[test]
fn frontends_with_tokens_have_the_tail_of_one() {
    for (instances, frontends, load) in [(18, 3, 0.5), (18, 3, 0.7), (180, 10, 0.5), (180, 10, 0.7)] {
        let [one, blind, shared] = compared(instances, frontends, load);
        let messages = shared.messages();
        let [one, blind, shared] = [one, blind, shared].map(|tally| gap(&tally));
        let said = format!("{instances} {frontends} {load}: {one} {blind} {shared}, {messages} messages");
        assert!(shared <= 1.3 * one, "{said}");
        assert!(blind > 3.0 * shared, "{said}");
        assert!(messages > 0.0 && messages <= 1.2, "{said}");
    }
}

#[test]
fn messages_are_bounded_near_the_capacity() {
    let [one, _, shared] = compared(18, 3, 0.85);
    assert!(shared.messages() < 2.5, "{}", shared.messages());
    assert!(gap(&shared) <= 1.3 * gap(&one), "{} {}", gap(&shared), gap(&one));
}

#[test]
fn lost_messages_delay_queries_and_lose_none() {
    let time_ms = Distribution::Lognormal { median: 20.0, sigma: 0.05 };
    let fleet = Fleet { frontends: 3, tokens: true, delay: DELAY, loss: 0.02, ..Fleet::default() };
    let service = Service { time_ms, ..Service::default() };
    let tally = simulate(&Run { queries: 120_000, fleet, service, ..run(18, 0.5 * 2.0 / 3.0) });
    assert_eq!(tally.count(), tally.expected());
    assert!(gap(&tally) < 8.0, "{}", gap(&tally));
}

/// The same without tokens: frontends report their jobs to each other, at most once per millisecond.
#[test]
fn neighbours_that_report_jobs_nearly_match_tokens() {
    for (instances, frontends, load) in [(18, 2, 0.5), (18, 3, 0.7), (180, 10, 0.5)] {
        let [one, blind, _] = compared(instances, frontends, load).map(|tally| gap(&tally));
        let neighbours = Some(Duration::from_millis(1));
        let fleet = Fleet { frontends, neighbours, delay: DELAY, ..Fleet::default() };
        let time_ms = Distribution::Lognormal { median: 20.0, sigma: 0.05 };
        let service = Service { time_ms, ..Service::default() };
        let told = simulate(&Run { queries: 120_000, fleet, service, ..run(instances, load * 2.0 / 3.0) });
        let said = format!(
            "{instances} {frontends} {load}: {one} {blind} {}, {} messages",
            gap(&told),
            told.messages()
        );
        assert!(gap(&told) <= 1.4 * one && blind > 5.0 * one, "{said}");
    }
}

/// One instance of twelve is slow, for good or now and then, and each frontend has to learn that itself.
#[test]
fn frontends_with_tokens_avoid_a_slow_instance_like_one() {
    for (profile, load, most) in
        [("sick", 0.5, 1.2), ("heal", 0.5, 1.3), ("sick", 0.7, 1.2), ("hosts", 0.7, 1.2)]
    {
        let gap_with = |frontends, seed| {
            let fleet = Fleet { frontends, tokens: true, delay: DELAY, ..Fleet::default() };
            let faults = Scenario::named(profile).unwrap().faults;
            let mut run = Run { seed, fleet, faults, ..run(12, load) };
            run.settings.policy = PolicyKind::Hedge;
            gap(&simulate(&run))
        };
        // The ratio of a single seed has a standard deviation of 0.03 (docs/results/raw/slowness.txt).
        let gap_of =
            |frontends| (1..=SEEDS).map(|seed| gap_with(frontends, seed)).sum::<f64>() / SEEDS as f64;
        let (one, three) = (gap_of(1), gap_of(3));
        assert!(three <= most * one, "{profile} {load}: {three} ms with three frontends, {one} ms with one");
    }
}
