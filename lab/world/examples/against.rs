//! The dispatcher beside the one that it replaces, on the profiles of the slowness experiment: the gap between p99.9 and p50.
//!
//! `cargo run --release -p parm-world --example against -- hedge 3001 3 100000 sick,hosts 0.5,0.7 12 1`
//!
//! The last two are the instances and the time that a further row of a batch adds, as a share of the first; below 1 both make batches.

#![allow(clippy::print_stdout, reason = "the table is the output")]

use std::num::NonZeroU8;
use std::time::Duration;

use parm_dispatcher::{BudgetSettings, CodingSettings, ModelSettings, Policy, parity_instances};
use parm_encoder::{Needs, Recovery};
use parm_settings::{PolicyKind, PoolSettings};
use parm_simulator::{Outcome, Quiet, Run};
use parm_workload::service::Service;
use parm_workload::{Pattern, Scenario};
use parm_world::Plan;

/// Outcomes of the old dispatcher that are approximate.
const APPROXIMATE: [Outcome; 3] = [Outcome::Reconstructed, Outcome::StandIn, Outcome::Backup];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut next = |default: &str| args.next().unwrap_or_else(|| default.to_owned());
    let (name, seed) = (next("hedge"), next("3001").parse::<u64>()?);
    let (seeds, queries) = (next("3").parse::<u64>()?, next("100000").parse::<u64>()?);
    let profiles = next("clean,sick,hosts,heal,shared,measured,A,B,AB,hang,correlated");
    let loads = next("0.5,0.7");
    let instances: u32 = next("12").parse()?;
    let row_share: f64 = next("1").parse()?;
    let (policy, kind) = match name.as_str() {
        "none" => (Policy::NONE, PolicyKind::None),
        "equal" => (Policy::EQUAL, PolicyKind::Equal),
        "replicate" => (Policy::REPLICATE, PolicyKind::Replicate),
        "hedge" => (Policy::HEDGE, PolicyKind::Hedge),
        "stand-in" => (Policy::STAND_IN, PolicyKind::StandIn),
        "parm" => (Policy::PARM, PolicyKind::Parm),
        "parm+" => (Policy::PARM_PLUS, PolicyKind::ParmPlus),
        "approximate-backup" => (Policy::APPROXIMATE_BACKUP, PolicyKind::ApproximateBackup),
        other => return Err(format!("there is no policy '{other}' here").into()),
    };
    // Groups of two; under `parm+` up to four, as the load is.
    let sizes: &[u8] = match kind {
        PolicyKind::Parm => &[2],
        PolicyKind::ParmPlus => &[2, 3, 4],
        _ => &[],
    };
    let code = |k: &u8| Recovery { k: usize::from(*k), parities: 1, needs: Needs::AsManyAsMissing };
    let coding = (!sizes.is_empty()).then(|| CodingSettings {
        codes: sizes.iter().map(code).collect(),
        follows_load: kind == PolicyKind::ParmPlus,
        max_age: Duration::from_millis(20),
    });
    let has_apart = [PolicyKind::Parm, PolicyKind::ApproximateBackup].contains(&kind);
    let apart = if has_apart { parity_instances(instances as usize, 2) as u32 } else { 0 };
    let cost = if kind == PolicyKind::ApproximateBackup { 0.1 } else { 0.25 };
    let warm_up = queries / 20;
    println!(
        "{name}, {instances} instances, {seeds} seeds from {seed}, {queries} queries; gaps p99.9 - p50 in ms"
    );
    println!("profile load | old | new | change % (seeds) | p50 | extra % | approximate % | decoded %");
    let mut changes = Vec::new();
    for profile in profiles.split(',') {
        for load in loads.split(',') {
            let load: f64 = load.parse()?;
            let scenario = Scenario::named(profile).ok_or("there is no such profile")?;
            let service = Service { row_share, ..Service::default() };
            let rate = load * f64::from(instances) / service.mean_seconds();
            let (mut gaps, mut p50, mut extra, mut approximate) = ([0.0; 2], [0.0; 2], [0.0; 2], [0.0; 2]);
            let (mut own, mut decoded) = (Vec::new(), 0.0);
            for seed in seed..seed + seeds {
                let mut settings = PoolSettings { policy: kind, ..PoolSettings::default() };
                settings.coding.k_choices = sizes.iter().filter_map(|k| NonZeroU8::new(*k)).collect();
                let run = Run {
                    seed,
                    queries: queries + warm_up,
                    warm_up,
                    arrivals: scenario.at(Pattern::Poisson, rate),
                    faults: scenario.faults.clone(),
                    service: service.clone(),
                    backup_share: cost,
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
                        max_rows: if row_share < 1.0 { 64 } else { 1 },
                        queue_limit: run.settings.queue_limit.get(),
                        hedges: BudgetSettings { ratio: 0.1, burst: 10 },
                        ..ModelSettings::default()
                    },
                    second: None,
                    stand_in_cost: policy.stand_in.map(|_| cost),
                    coding: coding.clone(),
                    apart,
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
                let submitted = new.counters.submitted as f64;
                approximate[0] +=
                    100.0 * APPROXIMATE.map(|of| old.share(of)).iter().sum::<f64>() / seeds as f64;
                approximate[1] += 100.0 * new.counters.approximate as f64 / submitted / seeds as f64;
                decoded += 100.0 * new.decoded as f64 / submitted / seeds as f64;
            }
            let percent = |log: f64| 100.0 * (log.exp() - 1.0);
            let mean = own.iter().sum::<f64>() / seeds as f64;
            changes.push(mean);
            let (least, most) = own.iter().fold((f64::MAX, f64::MIN), |(l, m), x| (x.min(l), x.max(m)));
            println!(
                "{profile} {load} | {:.1} | {:.1} | {:+.1} ({:+.0}..{:+.0}) | {:.1} -> {:.1} | {:.1} -> {:.1} | {:.2} -> {:.2} | {:.2}",
                gaps[0],
                gaps[1],
                percent(mean),
                percent(least),
                percent(most),
                p50[0],
                p50[1],
                extra[0],
                extra[1],
                approximate[0],
                approximate[1],
                decoded,
            );
        }
    }
    let mean = changes.iter().sum::<f64>() / changes.len() as f64;
    println!("mean of {} cells: {:+.1} %", changes.len(), 100.0 * (mean.exp() - 1.0));
    Ok(())
}
