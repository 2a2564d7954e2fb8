//! The dispatcher beside the one that it replaces, on the profiles of the slowness experiment: the gap between p99.9 and p50.
//!
//! `cargo run --release -p parm-world --example against -- hedge 3001 3 100000 sick,hosts 0.5,0.7`

#![allow(clippy::print_stdout, reason = "the table is the output")]

use std::time::Duration;

use parm_dispatch::{PolicyKind, PoolSettings};
use parm_dispatcher::{BudgetSettings, ModelSettings, Policy};
use parm_simulator::{Quiet, Run};
use parm_workload::service::Service;
use parm_workload::{Pattern, Scenario};
use parm_world::Plan;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut next = |default: &str| args.next().unwrap_or_else(|| default.to_owned());
    let (name, seed) = (next("hedge"), next("3001").parse::<u64>()?);
    let (seeds, queries) = (next("3").parse::<u64>()?, next("100000").parse::<u64>()?);
    let profiles = next("clean,sick,hosts,heal,shared,measured,A,B,AB,hang,correlated");
    let loads = next("0.5,0.7");
    let instances: u32 = next("12").parse()?;
    let (policy, kind) = match name.as_str() {
        "none" => (Policy::NONE, PolicyKind::None),
        "equal" => (Policy::EQUAL, PolicyKind::Equal),
        "replicate" => (Policy::REPLICATE, PolicyKind::Replicate),
        "hedge" => (Policy::HEDGE, PolicyKind::Hedge),
        "stand-in" => (Policy::STAND_IN, PolicyKind::StandIn),
        other => return Err(format!("there is no policy '{other}' here").into()),
    };
    let warm_up = queries / 20;
    println!(
        "{name}, {instances} instances, {seeds} seeds from {seed}, {queries} queries; gaps p99.9 - p50 in ms"
    );
    println!("profile load | old | new | change % (seeds) | p50 | extra % | approximate %");
    let mut changes = Vec::new();
    for profile in profiles.split(',') {
        for load in loads.split(',') {
            let load: f64 = load.parse()?;
            let scenario = Scenario::named(profile).ok_or("there is no such profile")?;
            let service = Service::default();
            let rate = load * f64::from(instances) / service.mean_seconds();
            let (mut gaps, mut p50, mut extra, mut approximate) = ([0.0; 2], [0.0; 2], [0.0; 2], [0.0; 2]);
            let mut own = Vec::new();
            for seed in seed..seed + seeds {
                let settings = PoolSettings { policy: kind, ..PoolSettings::default() };
                let run = Run {
                    seed,
                    queries: queries + warm_up,
                    warm_up,
                    arrivals: scenario.at(Pattern::Poisson, rate),
                    faults: scenario.faults.clone(),
                    service: service.clone(),
                    backup_share: 0.1,
                    parity_share: 1.0,
                    stand_in: parm_simulator::StandIn::default(),
                    shape: parm_simulator::Shape { instances, parity_only: 0, slots: 1 },
                    fleet: parm_simulator::Fleet::default(),
                    settings,
                    deadline: Duration::from_secs(10),
                    lengths: parm_simulator::Lengths::Mixed,
                    encode: Duration::ZERO,
                    decode: Duration::ZERO,
                };
                let old = run.simulate(&Quiet)?;
                let mut counts: Vec<(u64, u32)> = old.blocks().flatten().collect();
                counts.sort_unstable();
                let millis = |quantile: f64| {
                    let mut left = (quantile * old.count() as f64) as i64;
                    let at = counts.iter().find(|(_, count)| {
                        left -= i64::from(*count);
                        left <= 0
                    });
                    at.map_or(0.0, |(nanos, _)| *nanos as f64 / 1e6)
                };
                let plan = Plan {
                    seed,
                    queries: queries + warm_up,
                    warm_up,
                    arrivals: run.arrivals.clone(),
                    faults: run.faults.clone(),
                    service: service.clone(),
                    instances,
                    slots: 1,
                    settings: ModelSettings {
                        policy,
                        hedges: BudgetSettings { ratio: 0.1, burst: 10 },
                        ..ModelSettings::default()
                    },
                    stand_in_cost: policy.stand_in.map(|_| 0.25),
                    deadline: run.deadline,
                };
                let new = plan.run()?;
                let before = millis(0.999) - millis(0.5);
                let after = new.millis(0.999) - new.millis(0.5);
                own.push((after / before).ln());
                for (sum, value) in gaps.iter_mut().zip([before, after]) {
                    *sum += value / seeds as f64;
                }
                p50[0] += millis(0.5) / seeds as f64;
                p50[1] += new.millis(0.5) / seeds as f64;
                extra[0] += 100.0 * old.extra() / seeds as f64;
                extra[1] += 100.0 * new.extra / seeds as f64;
                approximate[1] +=
                    100.0 * new.counters.approximate as f64 / new.counters.submitted as f64 / seeds as f64;
            }
            let percent = |log: f64| 100.0 * (log.exp() - 1.0);
            let mean = own.iter().sum::<f64>() / seeds as f64;
            changes.push(mean);
            let (least, most) = own.iter().fold((f64::MAX, f64::MIN), |(l, m), x| (x.min(l), x.max(m)));
            println!(
                "{profile} {load} | {:.1} | {:.1} | {:+.1} ({:+.0}..{:+.0}) | {:.1} -> {:.1} | {:.1} -> {:.1} | {:.2}",
                gaps[0],
                gaps[1],
                percent(mean),
                percent(least),
                percent(most),
                p50[0],
                p50[1],
                extra[0],
                extra[1],
                approximate[1],
            );
        }
    }
    let mean = changes.iter().sum::<f64>() / changes.len() as f64;
    println!("mean of {} cells: {:+.1} %", changes.len(), 100.0 * (mean.exp() - 1.0));
    Ok(())
}
