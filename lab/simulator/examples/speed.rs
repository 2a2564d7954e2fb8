//! Gaps of policies on profiles of slowness: PROFILES and POLICIES are comma-separated, from the environment.
#![allow(missing_docs, clippy::pedantic)]
use parm_dispatch::{PolicyKind, PoolSettings};
use parm_simulator::{Fleet, Quiet, Run, Shape, StandIn};
use parm_workload::arrivals::Arrivals;
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;
use parm_workload::{Fault, Faults, Outcome, Scenario, Targets, When};
use std::time::Duration;

fn collage() -> Distribution {
    // Quantiles: p50 1, p90 1.37, p95 1.56, 2.3 % above 2, 2.1 % above 3, 1.3 % above 5, p99.9 5.57.
    let points = [
        (0.0, 0.75),
        (0.1, 0.85),
        (0.5, 1.0),
        (0.9, 1.37),
        (0.95, 1.56),
        (0.977, 2.0),
        (0.979, 3.0),
        (0.987, 5.0),
        (0.99, 5.08),
        (0.999, 5.57),
        (1.0, 6.0),
    ];
    let values = (0..4000)
        .map(|n| {
            let p = (n as f64 + 0.5) / 4000.0;
            let at = points.iter().rposition(|(q, _)| *q <= p).unwrap().min(points.len() - 2);
            let ((a, x), (b, y)) = (points[at], points[at + 1]);
            x + (y - x) * (p - a) / (b - a)
        })
        .collect();
    Distribution::Sample { values }
}

fn profile(name: &str, n: u32) -> Faults {
    let slow = |factor, when, on| Fault::Slow { factor, when, on };
    let mut faults = Vec::new();
    for part in name.split('+') {
        match part {
            "sick" => faults.push(slow(2.4, When::Always, Targets::Only(vec![n / 2]))),
            "hosts" => faults.push(slow(
                1.6,
                When::Always,
                Targets::Only((0..(n / 6).max(1)).map(|i| i * 5 % n).collect()),
            )),
            "heal" => faults.push(slow(
                2.4,
                When::Every {
                    at: Duration::ZERO,
                    every: Duration::from_secs(60),
                    length: Duration::from_secs(30),
                },
                Targets::Only(vec![n / 2]),
            )),
            "shared" => {
                for (i, f) in [2.2, 3.0, 4.0, 5.0].into_iter().enumerate().take((n / 3).max(1) as usize) {
                    faults.push(slow(f, When::Always, Targets::Only(vec![i as u32 * 3 % n])));
                }
            }
            "measured" => faults.push(Fault::Straggle { share: 1.0, factor: collage(), on: Targets::Each }),
            other => faults.extend(Scenario::named(other).unwrap_or_else(|| panic!("{other}")).faults.0),
        }
    }
    Faults(faults)
}

fn main() {
    let var = |name: &str, default: &str| std::env::var(name).unwrap_or(default.into());
    let queries: u64 = var("QUERIES", "100000").parse().unwrap();
    let instances: u32 = var("INSTANCES", "12").parse().unwrap();
    let seeds: Vec<u64> = var("SEEDS", "1,2").split(',').map(|s| s.parse().unwrap()).collect();
    let fronts: u32 = var("FRONTS", "1").parse().unwrap();
    let cells: Vec<_> = var("PROFILES", "clean,sick,hosts,heal,shared,measured,A,B")
        .split(',')
        .map(String::from)
        .flat_map(|p| {
            var("LOADS", "0.5,0.7")
                .split(',')
                .map(|l| (p.clone(), l.parse::<f64>().unwrap()))
                .collect::<Vec<_>>()
        })
        .collect();
    let policies: Vec<String> = var("POLICIES", "equal,hedge").split(',').map(String::from).collect();
    let cell = |(name, load): &(String, f64)| {
        let mut line = format!("{name:16} {load:4} ");
        for policy in &policies {
            let (mut gap, mut p99, mut p50, mut extra, mut approx) = (0.0, 0.0, 0.0, 0.0, 0.0);
            for seed in &seeds {
                let mut settings = PoolSettings::default();
                let (kind, options) = policy.split_once(':').unwrap_or((policy, ""));
                settings.policy = serde_kind(kind);
                tweak(&mut settings, options);
                let service = Service::default();
                let rate = load * f64::from(instances) / service.mean_seconds();
                let run = Run {
                    seed: *seed,
                    queries: queries + queries / 20,
                    warm_up: queries / 20,
                    arrivals: Arrivals::Poisson { rate },
                    faults: profile(name, instances),
                    service,
                    backup_share: 0.5,
                    parity_share: 1.0,
                    stand_in: StandIn::default(),
                    shape: Shape { instances, parity_only: 0, slots: 1 },
                    fleet: Fleet { frontends: fronts, tokens: fronts > 1, ..Fleet::default() },
                    settings,
                    deadline: Duration::from_secs(60),
                    encode: Duration::from_micros(93),
                    decode: Duration::from_micros(8),
                };
                let tally = run.simulate(&Quiet).unwrap();
                let mut all: Vec<(u64, u64)> =
                    tally.blocks().flat_map(|b| b.into_iter().map(|(v, c)| (v, c as u64))).collect();
                all.sort_unstable();
                let total: u64 = all.iter().map(|(_, c)| c).sum();
                let q = |share: f64| {
                    let mut sum = 0;
                    all.iter()
                        .find(|(_, c)| {
                            sum += c;
                            sum as f64 >= share * total as f64
                        })
                        .unwrap()
                        .0 as f64
                        / 1e6
                };
                gap += q(0.999) - q(0.5);
                p99 += q(0.99);
                p50 += q(0.5);
                extra += tally.extra();
                approx += tally.share(Outcome::StandIn) + tally.share(Outcome::Reconstructed);
            }
            let n = seeds.len() as f64;
            line += &format!(
                "| {policy:8} {:6.1} ({:5.1}) p50 {:4.1} +{:4.1}% ~{:.1}% ",
                gap / n,
                p99 / n,
                p50 / n,
                100.0 * extra / n,
                100.0 * approx / n
            );
        }
        println!("{line}");
    };
    std::thread::scope(|scope| {
        let half = cells.len().div_ceil(2);
        for part in cells.chunks(half.max(1)) {
            scope.spawn(move || part.iter().for_each(cell));
        }
    });
}

fn serde_kind(name: &str) -> PolicyKind {
    *PolicyKind::ALL
        .iter()
        .find(|k| format!("{k:?}").eq_ignore_ascii_case(&name.replace('-', "").replace('+', "plus")))
        .unwrap()
}

fn tweak(settings: &mut PoolSettings, options: &str) {
    for option in options.split(':') {
        match option {
            "noeject" => settings.ejection.enabled = false,
            "" => {}
            other => panic!("{other}"),
        }
    }
}
