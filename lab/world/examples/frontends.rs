//! Several frontends over twelve servers beside one: gaps between p99.9 and p50, and messages of asks and grants for each query.
//!
//! `cargo run --release -p parm-world --example frontends -- 8001 3 100000 3 0.1` (seed, seeds, queries, frontends, network in ms)

#![allow(clippy::print_stdout, reason = "the table is the output")]

use std::time::Duration;

use parm_dispatcher::Policy;
use parm_workload::Scenario;
use parm_world::Plan;
use parm_world::rivals::{Contender, Setup};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut next = |default: &str| args.next().unwrap_or_else(|| default.to_owned());
    let (seed, seeds): (u64, u64) = (next("8001").parse()?, next("3").parse()?);
    let (queries, frontends): (u64, u32) = (next("100000").parse()?, next("3").parse()?);
    let network = Duration::from_secs_f64(next("0.1").parse::<f64>()? / 1e3);
    println!("hedge, 12 servers, {seeds} seeds from {seed}, {queries} queries, network {network:?} each way");
    println!("profile load | one | {frontends} with grants | times | without | messages | p50 | extra %");
    for profile in ["clean", "sick", "A", "hosts"] {
        for load in [0.5, 0.7] {
            let scenario = Scenario::named(profile).ok_or("there is no such profile")?;
            let (mut gaps, mut p50, mut messages, mut extra) = ([0.0; 3], [0.0; 2], 0.0, 0.0);
            for seed in seed..seed + seeds {
                let plan = Plan::new(seed, queries + queries / 20, &scenario, load * 12.0 / 0.02);
                let plan = Plan { warm_up: queries / 20, ..plan };
                let run = |clients, grants| {
                    let setup = Setup { clients, network, grants, ..Setup::new(plan.clone()) };
                    setup.run(Contender::Parm(Policy::HEDGE))
                };
                let all = [run(1, false)?, run(frontends, true)?, run(frontends, false)?];
                for (gap, report) in gaps.iter_mut().zip(&all) {
                    *gap += (report.millis(0.999) - report.millis(0.5)) / seeds as f64;
                }
                p50[0] += all[0].millis(0.5) / seeds as f64;
                p50[1] += all[1].millis(0.5) / seeds as f64;
                messages += all[1].messages / seeds as f64;
                extra += 100.0 * all[1].extra / seeds as f64;
            }
            println!(
                "{profile} {load} | {:.1} | {:.1} | {:.2} | {:.1} | {messages:.1} | {:.1} -> {:.1} | {extra:.1}",
                gaps[0],
                gaps[1],
                gaps[1] / gaps[0],
                gaps[2],
                p50[0],
                p50[1]
            );
        }
    }
    Ok(())
}
