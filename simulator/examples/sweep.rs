//! Scratch.
use parm_dispatch::{Cost, PolicyKind, PoolSettings};
use parm_simulator::{Answered, Outcome, Quiet, Run, Shape, StandIn, Witness};
use parm_workload::{Scenario, service::Service};
use std::num::NonZeroU8;
use std::time::Duration;

#[derive(Default)]
struct Tail {
    ms: Vec<f32>,
    all: Vec<(f32, Outcome)>,
    approx: u64,
    rejected: u64,
}
impl Witness for Tail {
    fn answered(&mut self, a: Answered) {
        self.ms.push(a.latency as f32 / 1e6);
        if std::env::var("STATS").is_ok() {
            self.all.push((a.latency as f32 / 1e6, a.outcome));
        }
        self.approx += u64::from(a.outcome.is_approximate());
        self.rejected += u64::from(a.outcome == Outcome::Rejected);
    }
}
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let get = |name: &str, default: &str| -> String {
        args.iter()
            .find_map(|a| a.strip_prefix(&format!("{name}=")).map(str::to_owned))
            .unwrap_or(default.into())
    };
    let list = |name: &str, default: &str| -> Vec<String> {
        get(name, default).split(',').map(str::to_owned).collect()
    };
    let num = |name: &str, default: &str| -> f64 { get(name, default).parse().unwrap() };
    let instances = num("n", "18") as u32;
    let deployed = num("deployed", &format!("{}", f64::from(instances) * 12.0 / 18.0));
    let queries = num("q", "100000") as u64;
    let mut jobs = Vec::new();
    for scenario in list("s", "A,B,AB,hang,clean,correlated") {
        for load in list("l", ".5,.7,.85") {
            for policy in list("p", "equal,hedge,spare,late") {
                jobs.push((scenario.clone(), load.parse::<f64>().unwrap(), policy));
            }
        }
    }
    let next = std::sync::atomic::AtomicUsize::new(0);
    let results = std::sync::Mutex::new(std::collections::BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some((scenario, load, policy)) = jobs.get(at) else { break };
                    let mut tail = Tail::default();
                    let (mut extra, mut suspects) = (0.0, 0);
                    let seeds = list("seeds", "1,2");
                    for seed in &seeds {
                        let what = Scenario::named(scenario).unwrap();
                        let service = Service::default();
                        let rate = load * deployed / service.mean_seconds();
                        let mut settings = PoolSettings::default();
                        settings.ejection.enabled = policy != "equal";
                        settings.coding.k_choices = (3..=4).filter_map(NonZeroU8::new).collect();
                        settings.stand_in.spare = policy != "late";
                        settings.stand_in.bound_window =
                            std::num::NonZeroU32::new(num("w", "50000") as u32).unwrap();
                        settings.stand_in.late_budget.burst = num("b", "100") as u32;
                        settings.stand_in.late_factor = num("lf", "1.15");
                        settings.stand_in.hedge = num("h", "1") > 0.0;
                        settings.policy = match policy.as_str() {
                            "equal" => PolicyKind::Equal,
                            "hedge" => PolicyKind::Hedge,
                            "parm+" => PolicyKind::ParmPlus,
                            _ => PolicyKind::StandIn,
                        };
                        let cost = Cost::linear(num("c", ".25"));
                        let run = Run {
                            seed: seed.parse().unwrap(),
                            queries,
                            warm_up: queries / 20,
                            arrivals: what.at(Default::default(), rate),
                            faults: what.faults.clone(),
                            service,
                            backup_share: 0.5,
                            parity_share: 1.0,
                            stand_in: StandIn { cost, agreement: 0.97 },
                            shape: Shape { instances, parity_only: 0, slots: 1 },
                            settings,
                            deadline: Duration::from_secs(10),
                            encode: Duration::from_micros(93),
                            decode: Duration::from_micros(8),
                        };
                        let tally = run.watched(&Quiet, &mut tail).unwrap();
                        extra += tally.extra() / seeds.len() as f64;
                        suspects += tally.suspects().values().sum::<u64>();
                    }
                    let total = tail.ms.len();
                    if std::env::var("STATS").is_ok() {
                        let mut bins = std::collections::BTreeMap::new();
                        for (at, (ms, outcome)) in tail.all.iter().enumerate() {
                            if *ms > 28.0 {
                                *bins.entry((outcome.name(), (*ms / 4.0) as u32 * 4)).or_insert(0) += 1;
                                let _ = at;
                            }
                        }
                        eprintln!("{bins:?}");
                        let mut by = std::collections::BTreeMap::new();
                        for (at, (ms, _)) in tail.all.iter().enumerate() {
                            if *ms > 36.0 {
                                *by.entry(at / 2000).or_insert(0) += 1;
                            }
                        }
                        eprintln!("{by:?}");
                    }
                    tail.ms.sort_by(f32::total_cmp);
                    let q = |s: f64| tail.ms[((total as f64 * s) as usize).min(total - 1)];
                    let text = format!(
                        "{:>6.1} ({:>4.1};{:>4.1}{}{})",
                        q(0.999) - q(0.5),
                        100.0 * extra,
                        100.0 * tail.approx as f64 / total as f64,
                        if tail.rejected > 0 {
                            format!("; {} rejected", tail.rejected)
                        } else {
                            String::new()
                        },
                        if suspects > 0 { format!("; {suspects} suspects") } else { String::new() }
                    );
                    results.lock().unwrap().insert(at, text);
                }
            });
        }
    });
    let results = results.into_inner().unwrap();
    let policies = list("p", "equal,hedge,spare,late");
    println!("{:<16} {}", "", policies.iter().map(|p| format!("{p:<26}")).collect::<String>());
    for (at, (scenario, load, _)) in jobs.iter().enumerate() {
        if at % policies.len() == 0 {
            print!("{:<16} ", format!("{scenario} {load}"));
        }
        print!("{:<26}", results[&at]);
        if at % policies.len() == policies.len() - 1 {
            println!();
        }
    }
}
