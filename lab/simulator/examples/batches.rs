//! Batches of automatic size next to every fixed size, on several engines and loads. Prints a Markdown table.
//!
//! `cargo run --release -p parm-simulator --example batches [SEED]`

use std::io::{self, Write};
use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use parm_settings::{BatchSize, PolicyKind, PoolSettings};
use parm_simulator::{Answered, Error, Outcome, Quiet, Run, Witness};
use parm_workload::Faults;
use parm_workload::arrivals::Arrivals;
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;

/// Engines: the time of further rows as a share of the first, and the rows that are computed at a time.
const ENGINES: [(&str, f64, u16); 5] = [
    ("free", 0.0, 1),
    ("as the first", 1.0, 1),
    ("half each", 0.5, 1),
    ("a tenth each", 0.1, 1),
    ("half for each four", 0.5, 4),
];
/// ResNet-18 on an H200 (docs/results/gpu.md): milliseconds of the sessions for these rows in the worker, and of the whole
/// way as far as the answers per second show them. Batches of 64 are extrapolated.
const CARDS: [(&str, [(u16, f64); 7]); 2] = [
    ("card", [(1, 1.12), (2, 1.29), (4, 1.64), (8, 2.47), (16, 5.05), (32, 9.74), (64, 19.4)]),
    ("card with copies", [(1, 1.53), (2, 2.18), (4, 3.48), (8, 5.21), (16, 10.7), (32, 18.5), (64, 36.9)]),
];
const SIZES: [u16; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
const LOADS: [f64; 7] = [0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 1.2];
const CARD_LOADS: [f64; 7] = [0.3, 0.5, 0.8, 0.87, 0.93, 1.0, 1.2];
const ROW_MS: f64 = 20.0;

#[derive(Default)]
struct Latencies(Vec<u64>, u64);

impl Witness for Latencies {
    fn answered(&mut self, answered: Answered) {
        match answered.outcome {
            Outcome::Exact => self.0.push(answered.latency),
            _ => self.1 += 1,
        }
    }
}

impl Latencies {
    fn quantile(&mut self, of: f64) -> f64 {
        self.0.sort_unstable();
        // Queries without an answer are the slowest.
        let at = ((self.0.len() as u64 + self.1) as f64 * of) as usize;
        self.0.get(at).map_or(f64::INFINITY, |nanos| *nanos as f64 / 1e6)
    }

    fn served(&self) -> f64 {
        self.0.len() as f64 / (self.0.len() as f64 + self.1 as f64)
    }
}

struct Case {
    service: Service,
    instances: u32,
    rate: f64,
    load: f64,
    deadline: Duration,
    seed: u64,
}

/// An engine, the numbers of instances and the loads.
struct Emulated {
    name: &'static str,
    row_ms: f64,
    service: Service,
    instances: &'static [u32],
    loads: &'static [f64],
    /// The deadline in milliseconds at loads up to 1, and beyond.
    deadlines_ms: [u64; 2],
}

fn engines() -> impl Iterator<Item = Emulated> {
    let time_ms = |median| Distribution::Lognormal { median, sigma: 0.1 };
    let shares = ENGINES.map(|(name, row_share, step)| Emulated {
        name,
        row_ms: ROW_MS,
        service: Service {
            time_ms: time_ms(ROW_MS),
            row_share,
            row_step: NonZeroU16::new(step).expect("positive"),
            ..Service::default()
        },
        instances: &[2, 12],
        loads: &LOADS,
        deadlines_ms: [20_000, 300],
    });
    let cards = CARDS.map(|(name, times)| Emulated {
        name,
        row_ms: times[0].1,
        service: Service {
            time_ms: time_ms(times[0].1),
            row_times: times.map(|(rows, ms)| (rows, ms / times[0].1)).to_vec(),
            ..Service::default()
        },
        instances: &[1, 3],
        loads: &CARD_LOADS,
        deadlines_ms: [250, 250],
    });
    shares.into_iter().chain(cards)
}

impl Case {
    fn run(&self, max_size: BatchSize) -> Result<Latencies, Error> {
        let queue_limit = NonZeroU32::new(100_000).expect("positive");
        let mut settings = PoolSettings { policy: PolicyKind::None, queue_limit, ..PoolSettings::default() };
        settings.batch.max_size = max_size;
        let counted = (self.rate * 20.0).clamp(40_000.0, 200_000.0) as u64;
        // The first twenty seconds are for learning.
        let warm_up = (self.rate * 20.0) as u64;
        let arrivals = Arrivals::Poisson { rate: self.rate };
        let run = Run {
            seed: self.seed,
            queries: warm_up + counted,
            warm_up,
            service: self.service.clone(),
            deadline: self.deadline,
            ..Run::new(arrivals, Faults::default(), self.instances, settings)
        };
        let mut seen = Latencies::default();
        run.watched(&Quiet, &mut seen)?;
        Ok(seen)
    }
}

/// The table's row of one case.
fn row(name: &str, case: &Case) -> Result<String, Error> {
    let mut auto = case.run(BatchSize::Auto)?;
    let mut fixed = Vec::new();
    for size in SIZES.into_iter().filter_map(NonZeroU16::new) {
        fixed.push((size, case.run(size.into())?));
    }
    let single = fixed[0].1.quantile(0.5);
    let overloaded = case.load > 1.0;
    // Beyond capacity the share that is served counts, not the time.
    let score = |run: &mut Latencies| if overloaded { -run.served() } else { run.quantile(0.99) };
    let own = score(&mut auto);
    let mut scored: Vec<_> = fixed.iter_mut().map(|(size, run)| (score(run), size)).collect();
    scored.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (best, size) = &scored[0];
    let shown =
        |score: f64| if overloaded { format!("{:.1} %", -100.0 * score) } else { format!("{score:.1}") };
    let Case { instances, load, .. } = case;
    let (best_shown, own_shown, ratio, median) = (shown(*best), shown(own), own / best, auto.quantile(0.5));
    Ok(format!(
        "| {name} | {instances} | {load} | {size} | {best_shown} | {own_shown} | {ratio:.3} | {median:.1}, {single:.1} |"
    ))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let seed = args.next().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let only = args.next().unwrap_or_default();
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "| further rows | instances | load | best fixed | its p99 in ms or share served | auto | ratio | p50 in ms of auto and 1 |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|")?;
    for engine in engines().filter(|engine| engine.name.starts_with(&only)) {
        let each = |rows: usize| engine.service.rows(rows) * engine.row_ms / 1e3 / rows as f64;
        let least = (1..=64).map(each).fold(f64::INFINITY, f64::min);
        for (instances, load) in
            engine.instances.iter().flat_map(|n| engine.loads.iter().map(|load| (*n, *load)))
        {
            let rate = load * f64::from(instances) / least;
            let deadline = Duration::from_millis(engine.deadlines_ms[usize::from(load > 1.0)]);
            let case = Case { service: engine.service.clone(), instances, rate, load, deadline, seed };
            writeln!(out, "{}", row(engine.name, &case)?)?;
        }
    }
    Ok(())
}
