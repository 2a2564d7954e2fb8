//! The rivals in their own published experiments and on our profiles, beside parm.
//!
//! `cargo run --release -p parm-lab --example rivals -- prequal|prequal-calm|p1|t1|t2|h1 [seeds] [queries]`
//! `cargo run --release -p parm-lab --example rivals -- profiles [seeds] [queries] [sick,hosts] [0.5,0.7] [1,3] ["hedge;C3"]
//! [microseconds of a message] [parm's slots]`
//! `cargo run --release -p parm-lab --example rivals -- frontends [seeds] [queries] [8001] [3] [100]` (seed, frontends, microseconds
//! of a message): gaps between p99.9 and p50 of one frontend and of several, and messages of asks and grants for each query.

#![allow(clippy::print_stdout, reason = "the tables are the output")]

use std::time::Duration;

use parm_dispatcher::{BudgetSettings, Policy};
use parm_lab::world::Plan;
use parm_lab::world::rivals::{CONTENDERS, Contender, Delay, Placing, Report, Setup, named};
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;
use parm_workload::{By, Fault, Faults, Pattern, Scenario, Targets, When};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const US: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut next = |default: &str| args.next().unwrap_or_else(|| default.to_owned());
    let experiment = next("p1");
    let seeds: u64 = next("3").parse()?;
    let queries: u64 = next("100000").parse()?;
    match experiment.as_str() {
        "prequal" => prequal(seeds, queries, true),
        "prequal-calm" => prequal(seeds, queries, false),
        "p1" => two_of_sixteen(seeds, queries),
        "t1" => ten_endpoints(seeds, queries),
        "t2" => half_are_slow(seeds, queries),
        "h1" => stragglers(seeds, queries),
        "profiles" => {
            let (names, loads) = (next("sick,hosts,shared,measured,A,B,AB,hang"), next("0.5,0.7,0.9"));
            let clients = next("1,3");
            let only = next("");
            let (micros, slots) = (next("100").parse::<u32>()?, next("1").parse()?);
            let mut setup = setup(queries, 12, 1.0, Service::default().time_ms);
            (setup.network, setup.plan.slots) = (micros * US, slots);
            profiles(seeds, &setup, [&names, &loads, &clients, &only])
        }
        "frontends" => {
            let (seed, clients) = (next("8001").parse()?, next("3").parse()?);
            frontends(seeds, queries, seed, clients, next("100").parse::<u32>()? * US)
        }
        other => {
            let known = "prequal, prequal-calm, p1, t1, t2, h1, profiles, frontends";
            Err(format!("there is no experiment '{other}': {known}").into())
        }
    }
}

/// What most experiments share: so many queries a second.
fn setup(queries: u64, servers: u32, rate: f64, time_ms: Distribution) -> Setup {
    let plan = Plan {
        warm_up: queries / 20,
        service: Service { time_ms, ..Service::default() },
        instances: servers,
        stand_in_cost: Some(0.25),
        ..Plan::new(7201, queries + queries / 20, &Scenario::default(), rate)
    };
    Setup { network: 100 * US, ..Setup::new(plan) }
}

/// The same with servers that run so many queries at a time, of parm as well.
fn wide(setup: Setup, lanes: u16) -> Setup {
    Setup { lanes: lanes.into(), plan: Plan { slots: lanes, ..setup.plan }, ..setup }
}

fn slower(factor: f64, on: Targets) -> Fault {
    Fault::Slow { factor, when: When::Always, on }
}

/// The reports of several seeds.
fn reports(setup: &Setup, contender: Contender, seeds: u64) -> Result<Vec<Report>> {
    let seeds = setup.plan.seed..setup.plan.seed + seeds;
    let of = |seed| Setup { plan: Plan { seed, ..setup.plan.clone() }, ..setup.clone() };
    seeds.map(|seed| Ok(of(seed).run(contender)?)).collect()
}

fn mean(reports: &[Report], of: impl Fn(&Report) -> f64) -> f64 {
    reports.iter().map(of).sum::<f64>() / reports.len() as f64
}

/// Quantiles, the deadline as `TO`.
fn quantiles(reports: &[Report], quantiles: &[f64], deadline: Duration) -> String {
    let cells = quantiles.iter().map(|quantile| {
        let millis = mean(reports, |report| report.millis(*quantile));
        match millis {
            _ if millis >= 999.0 * deadline.as_secs_f64() => "TO".to_owned(),
            _ if millis < 10.0 => format!("{millis:.2}"),
            _ if millis < 100.0 => format!("{millis:.1}"),
            _ => format!("{millis:.0}"),
        }
    });
    cells.collect::<Vec<_>>().join(" / ")
}

/// A table with published figures: a row is a contender by name, and what was published.
fn table(seeds: u64, setup: &Setup, at: &[f64], rows: &[(&str, Contender, &str)]) -> Result<()> {
    println!("| contender | published | here | extra work, % |\n|---|---|---|---|");
    for (name, contender, published) in rows {
        let reports = reports(setup, *contender, seeds)?;
        let extra = 100.0 * mean(&reports, |report| report.extra);
        println!("| {name} | {published} | {} | {extra:.1} |", quantiles(&reports, at, setup.plan.deadline));
    }
    Ok(())
}

fn rows<'a>(listed: &[(&'a str, &'a str)]) -> Result<Vec<(&'a str, Contender, &'a str)>> {
    let of = |name: &str| named(name).ok_or(format!("there is no contender '{name}'"));
    listed.iter().map(|(name, published)| Ok((*name, of(name)?, *published))).collect()
}

/// Prequal's table of rules: 100 servers, each with an allocation of a tenth of a machine, ten runs at a time here. Where
/// neighbours leave capacity, a server may use half as much again; on a fifth of the machines they make it three times
/// slower, so that round robin fails at 70 % as published, and in `episodes` they make each server twice as slow. Query
/// sizes are normal with a standard deviation as large as the mean, cut off at 0.
fn prequal(seeds: u64, queries: u64, episodes: bool) -> Result<()> {
    let published = [
        ("round robin", "4984 / TO", "TO / TO"),
        ("least request, all", "343 / 1804", "940 / 2654"),
        ("least request, 2", "(210 / 2642)", "(213 / 1169)"),
        ("peak EWMA", "", ""),
        ("C3", "", ""),
        ("C3 on probes", "161 / 299", "164 / 304"),
        ("Prequal 0.84", "149 / 281", "152 / 286"),
        ("Prequal 0.6", "", ""),
        ("none", "", ""),
        ("hedge", "", ""),
    ];
    let mean_ms = 80.0;
    let sizes: Vec<f64> =
        (0..2000).map(|rank| (1.0 + normal((f64::from(rank) + 0.5) / 2000.0)).max(0.001)).collect();
    let size = sizes.iter().sum::<f64>() / sizes.len() as f64;
    let neighbours = When::Episodes { share: 0.1, length: Duration::from_secs(1) };
    let mut faults = vec![
        Fault::Straggle {
            share: 1.0,
            factor: Distribution::Sample { values: sizes },
            by: By::Query,
            on: Targets::Each,
        },
        slower(3.0, Targets::Some(0.2)),
    ];
    if episodes {
        faults.push(Fault::Slow { factor: 2.0, when: neighbours, on: Targets::Each });
    }
    let (servers, allocation, lanes) = (100, 10.0, 15);
    println!("p90 / p99 in ms");
    println!(
        "| rule | published, 70 % | 100 clients | 10 clients | 1 | published, 90 % | 100 clients | 10 clients | 1 |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (name, at_70, at_90) in published {
        let contender = named(name).ok_or("there is no such contender")?;
        let mut line = format!("| {name} |");
        for (load, published) in [(0.7, at_70), (0.9, at_90)] {
            line += &format!(" {published} |");
            for clients in [100, 10, 1] {
                let rate = load * f64::from(servers) * allocation / (size * mean_ms / 1e3);
                let time_ms = Distribution::Constant { value: mean_ms };
                let mut setup = wide(setup(queries, servers, rate, time_ms), lanes);
                (setup.clients, setup.grants) = (clients, clients > 1);
                (setup.plan.faults, setup.plan.deadline) = (Faults(faults.clone()), Duration::from_secs(5));
                let reports = reports(&setup, contender, seeds)?;
                line += &format!(" {} |", quantiles(&reports, &[0.9, 0.99], setup.plan.deadline));
            }
        }
        println!("{line}");
    }
    Ok(())
}

/// The quantile of the standard normal distribution, by bisection of its integral.
fn normal(share: f64) -> f64 {
    let below = |x: f64| {
        let steps = 400;
        let width = (x + 8.0) / f64::from(steps);
        let density = |at: f64| (-0.5 * at * at).exp() / std::f64::consts::TAU.sqrt();
        (0..steps).map(|step| density((f64::from(step) + 0.5).mul_add(width, -8.0)) * width).sum::<f64>()
    };
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..40 {
        let middle = 0.5 * (low + high);
        if below(middle) < share { low = middle } else { high = middle }
    }
    low
}

/// P1: 16 servers of 50 ms, two of them 16 times slower, 500 queries a second, any number at a time.
fn two_of_sixteen(seeds: u64, queries: u64) -> Result<()> {
    let time_ms = Distribution::Lognormal { median: 50.0, sigma: 0.02 };
    let mut setup = wide(setup(queries, 16, 500.0, time_ms), 64);
    setup.plan.faults = Faults(vec![slower(16.0, Targets::Count(2))]);
    println!("P1, p50 / p99 / p99.9 in ms");
    table(
        seeds,
        &setup,
        &[0.5, 0.99, 0.999],
        &rows(&[
            ("round robin", "807 / 888"),
            ("least request, all", "803 / 1007"),
            ("least request, 2", ""),
            ("Prequal 0.84", "94 / 272"),
            ("Prequal 0.6", ""),
            ("peak EWMA", ""),
            ("C3", ""),
            ("peak EWMA, p90 hedge", ""),
            ("none", ""),
            ("hedge", ""),
        ])?,
    )
}

/// T1: tower's demo. Ten endpoints with latencies up to 1, 10 (4), 100 (4) and 1,000 ms, 50 queries at a time.
fn ten_endpoints(seeds: u64, queries: u64) -> Result<()> {
    let factors = [1.0, 10.0, 10.0, 10.0, 10.0, 100.0, 100.0, 100.0, 100.0, 1000.0];
    let faults = factors.iter().enumerate().skip(1);
    let faults = faults.map(|(server, factor)| slower(*factor, Targets::Only(vec![server as u32])));
    let mut setup = wide(setup(queries, 10, 1.0, Distribution::Uniform { min: 0.0, max: 1.0 }), 50);
    (setup.closed, setup.network) = (Some(50), Duration::ZERO);
    setup.plan.faults = Faults(faults.collect());
    println!("T1, p50 / p99 / p99.9 in ms; published: p99.9");
    table(
        seeds,
        &setup,
        &[0.5, 0.99, 0.999],
        &rows(&[
            ("round robin", "988"),
            ("least request, 2", "857"),
            ("peak EWMA", "105"),
            ("least request, all", ""),
            ("C3", ""),
            ("Prequal 0.84", ""),
            ("none", ""),
            ("hedge", ""),
        ])?,
    )
}

/// T2: brpc's four servers, of which one or two take 5 ms longer, 4,000 queries a second.
fn half_are_slow(seeds: u64, queries: u64) -> Result<()> {
    for (slow, published) in [
        (1, [("round robin", "6.47 / 9.45"), ("peak EWMA", "0.34 / 0.40"), ("peak EWMA of 4", "")]),
        (2, [("round robin", ""), ("peak EWMA", "7.68 / 7.74"), ("peak EWMA of 4", "0.31 / 0.39")]),
    ] {
        let time_ms = Distribution::Lognormal { median: 0.15, sigma: 0.2 };
        let mut setup = wide(setup(queries, 4, 4000.0, time_ms), 64);
        setup.network = 20 * US;
        setup.plan.faults = Faults(vec![slower(5.15 / 0.15, Targets::Count(slow))]);
        println!("\nT2, {slow} of 4 slow, p50 / p99 / p99.9 in ms; published: p99 / p99.9");
        let mut rows = rows(&published)?;
        for name in ["least request, 2", "least request, all", "C3", "Prequal 0.84", "none", "hedge"] {
            rows.push((name, named(name).ok_or("there is no such contender")?, ""));
        }
        table(seeds, &setup, &[0.5, 0.99, 0.999], &rows)?;
    }
    Ok(())
}

/// H1: lognormal with a mean of 5 and a deviation of 2 ms, 5 % of the runs ten times longer, 20 at a time.
fn stragglers(seeds: u64, queries: u64) -> Result<()> {
    let straggle = Fault::Straggle {
        share: 0.05,
        factor: Distribution::Constant { value: 10.0 },
        by: By::Run,
        on: Targets::Each,
    };
    let time_ms = Distribution::Lognormal { median: 4.642, sigma: 0.3853 };
    let mut setup = wide(setup(queries, 64, 1.0, time_ms), 64);
    (setup.closed, setup.network, setup.cancels) = (Some(20), Duration::ZERO, true);
    setup.plan.faults = Faults(vec![straggle]);
    let turns = |delay| Contender::Rival(Placing::RoundRobin, delay);
    let fixed = |millis: u32| turns(Some(Delay::Fixed(millis * MS)));
    let at = [0.5, 0.9, 0.95, 0.99, 0.999];
    println!("H1, p50 / p90 / p95 / p99 / p99.9 in ms, extra work");
    let p90 = turns(Some(Delay::Learned { quantile: 0.9, ratio: 0.1, burst: 552.0 }));
    table(
        seeds,
        &setup,
        &at,
        &[
            ("no hedge", turns(None), "5.1 / 9.0 / 18.8 / 65.0 / 103.8, 0 %"),
            ("after 10 ms", fixed(10), "5.0 / 9.0 / 13.3 / 17.5 / 61.2, 7.7 %"),
            ("after 50 ms", fixed(50), "- / - / - / 54.9 / 59.7, 2.1 %"),
            ("p90, 10 %", p90, "5.0 / 8.9 / 12.3 / 17.3 / 63.5, 8.9 %"),
            ("`none`", Contender::Parm(Policy::NONE), ""),
            ("`hedge`", Contender::Parm(Policy::HEDGE), ""),
        ],
    )?;
    for (name, ratio, burst) in [("10 %, saves 552", 0.1, 552), ("30 %, saves 552", 0.3, 552)] {
        println!("\n`hedge` with a budget of {name}:");
        setup.plan.settings.hedges = BudgetSettings { ratio, burst };
        table(seeds, &setup, &at, &[("`hedge`", Contender::Parm(Policy::HEDGE), "")])?;
    }
    Ok(())
}

/// Our profiles on twelve servers of 20 ms: a row for each contender and cell, then tables of p99 and p99.9.
fn profiles(seeds: u64, setup: &Setup, [names, loads, clients, only]: [&str; 4]) -> Result<()> {
    let wanted = |name: &str| match only {
        "" => !matches!(name, "peak EWMA of 4" | "C3 on probes"),
        only => only.split(';').any(|wanted| wanted == name),
    };
    let contenders: Vec<_> = CONTENDERS.iter().filter(|(name, _)| wanted(name)).collect();
    println!(
        "{seeds} seeds from 7201, {} queries; means, the range of p99.9 in brackets",
        setup.plan.queries - setup.plan.warm_up
    );
    for clients in clients.split(',') {
        let clients: u32 = clients.parse()?;
        let mut tables = [(0.99, String::new()), (0.999, String::new())];
        for name in names.split(',') {
            for load in loads.split(',') {
                let scenario = Scenario::named(name).ok_or(format!("there is no profile '{name}'"))?;
                let rate = load.parse::<f64>()? * 12.0 / setup.plan.service.mean_seconds();
                let mut setup = Setup { clients, grants: clients > 1, ..setup.clone() };
                setup.plan.arrivals = scenario.at(Pattern::Poisson, rate);
                setup.plan.faults = scenario.faults.clone();
                tables.iter_mut().for_each(|(_, table)| *table += &format!("| {name} {load} |"));
                for (contender, of) in &contenders {
                    let reports = reports(&setup, *of, seeds)?;
                    let seen = reports.iter().map(|report| report.millis(0.999));
                    let (least, most) = seen.fold((f64::MAX, 0.0f64), |(l, m), x| (l.min(x), m.max(x)));
                    println!(
                        "{name} {load} frontends {clients} {contender}: p50 {} p99 {} p99.9 {} ({least:.1} to {most:.1}) \
                         failed {:.2} % extra {:.1} % approximate {:.2} %",
                        quantiles(&reports, &[0.5], setup.plan.deadline),
                        quantiles(&reports, &[0.99], setup.plan.deadline),
                        quantiles(&reports, &[0.999], setup.plan.deadline),
                        100.0 * mean(&reports, |report| report.failed),
                        100.0 * mean(&reports, |report| report.extra),
                        100.0 * mean(&reports, |report| report.approximate),
                    );
                    for (quantile, table) in &mut tables {
                        *table += &format!(" {} |", quantiles(&reports, &[*quantile], setup.plan.deadline));
                    }
                }
                tables.iter_mut().for_each(|(_, table)| *table += "\n");
            }
        }
        for (quantile, table) in tables {
            let names: Vec<_> = contenders.iter().map(|(name, _)| *name).collect();
            println!("\np{} in ms, {clients} frontends\n", 100.0 * quantile);
            println!("| | {} |\n|{}\n{table}", names.join(" | "), "---|".repeat(names.len() + 1));
        }
    }
    Ok(())
}

fn frontends(seeds: u64, queries: u64, seed: u64, clients: u32, network: Duration) -> Result<()> {
    println!("hedge, 12 servers, {seeds} seeds from {seed}, {queries} queries, network {network:?} each way");
    println!("profile load | one | {clients} with grants | times | without | messages | p50 | extra %");
    for name in ["clean", "sick", "A", "hosts"] {
        for load in [0.5, 0.7] {
            let scenario = Scenario::named(name).ok_or("there is no such profile")?;
            let rate = load * 12.0 / 0.02;
            let mut setup = setup(queries, 12, rate, Service::default().time_ms);
            setup.network = network;
            setup.plan = Plan { seed, faults: scenario.faults, stand_in_cost: None, ..setup.plan };
            let of = |clients, grants| {
                let setup = Setup { clients, grants, ..setup.clone() };
                reports(&setup, Contender::Parm(Policy::HEDGE), seeds)
            };
            let all = [of(1, false)?, of(clients, true)?, of(clients, false)?];
            let gap =
                |reports: &Vec<Report>| mean(reports, |report| report.millis(0.999) - report.millis(0.5));
            let [one, several, apart] = all.each_ref().map(gap);
            let [p50, own] = [0, 1].map(|at| mean(&all[at], |report| report.millis(0.5)));
            println!(
                "{name} {load} | {one:.1} | {several:.1} | {:.2} | {apart:.1} | {:.1} | {p50:.1} -> {own:.1} | {:.1}",
                several / one,
                mean(&all[1], |report| report.messages),
                100.0 * mean(&all[1], |report| report.extra),
            );
        }
    }
    Ok(())
}
