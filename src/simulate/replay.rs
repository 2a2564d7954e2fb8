//! `parm simulate --requests`: a trace of requests over emulated replicas of a language model, in virtual time.
//!
//! Each row is a way to choose the replica. The baselines are what proxies do; the copies after a fixed time have the time
//! that serves them best among a few. The worlds are those in which one replica of all is slow or stands still.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use parm_dispatch::{BudgetSettings, Fraction, HedgeSettings, PolicyKind, PoolSettings};
use parm_simulator::chat::{Balancing, FirstTokens, Replay};
use parm_workload::chat::{Costs, Requests};
use parm_workload::{Fault, Faults, Targets, When};
use serde::Serialize;

use crate::Failure;
use crate::cli::{Output, Simulate};

/// Most requests of a trace.
const MOST: usize = 1_000_000;

/// Requests at the beginning that do not count.
const WARM_UP: usize = 200;

/// Replicas without `--instances`.
const REPLICAS: u32 = 4;

/// The most requests at a replica before their first token; the best number is learned.
const CONCURRENCY: u16 = 256;

/// The budget of copies of the known routes of language models.
const COPIES: Fraction = Fraction::billionths(3_000_000);

/// Fixed times after which a proxy sends a copy, and the share of requests that it may copy.
const DELAYS_MS: [u64; 4] = [500, 1000, 2000, 4000];
const FIXED_COPIES: f64 = 0.05;

/// Fewest requests beyond a quantile; with fewer it depends on single requests.
const BEYOND: f64 = 10.0;

/// A row of the output. A quantile is `None` if there is not enough data.
#[derive(Serialize)]
struct Row {
    world: &'static str,
    balancing: String,
    requests: usize,
    p50_s: Option<f64>,
    p99_s: Option<f64>,
    p999_s: Option<f64>,
    /// Tokens of prompts that copies read, as a share of all others.
    extra: f64,
    failed: u64,
}

/// Replays the trace in each world under each way to choose the replica.
pub(super) fn main(path: &Path, flags: &Simulate) -> Result<(), Failure> {
    let requests = read(path, flags).map_err(Failure::Configuration)?;
    let warm_up = WARM_UP.min(requests.all().len() / 2);
    let mut rows = Vec::new();
    for (world, faults) in worlds() {
        let replay = Replay {
            requests: requests.all().to_vec(),
            warm_up,
            replicas: flags.instances.map_or(REPLICAS, |replicas| replicas.get()),
            costs: Costs::default(),
            faults: Faults(faults),
            seed: flags.seed.unwrap_or(1),
        };
        let run = |balancing| replay.run(&balancing).map_err(|error| Failure::Configuration(error.into()));
        let mut row = |balancing: String, tokens: &FirstTokens| {
            rows.push(Row {
                world,
                balancing,
                requests: tokens.seconds.len() + tokens.failed as usize,
                p50_s: quantile(tokens, 0.5),
                p99_s: quantile(tokens, 0.99),
                p999_s: quantile(tokens, 0.999),
                extra: tokens.extra,
                failed: tokens.failed,
            });
        };
        row("round robin".into(), &run(Balancing::RoundRobin)?);
        row("least requests".into(), &run(Balancing::LeastRequests)?);
        let (after, fixed) = best_fixed(run)?;
        row(format!("copy after {after} ms"), &fixed);
        for kind in [PolicyKind::None, PolicyKind::Hedge] {
            let name = if kind == PolicyKind::None { "none" } else { "hedge" };
            row(name.into(), &run(dispatched(kind))?);
        }
    }
    print(&rows, [warm_up, requests.all().len()], flags.output).map_err(Failure::Run)
}

fn read(path: &Path, flags: &Simulate) -> anyhow::Result<Requests> {
    let named = || path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", named()))?;
    let requests = Requests::parse(&text, MOST).with_context(named)?;
    Ok(requests.spread(flags.seed.unwrap_or(1)).faster(flags.speed)?)
}

/// The faults of the first replica.
fn worlds() -> [(&'static str, Vec<Fault>); 3] {
    let seconds = Duration::from_secs;
    let first = || Targets::Only(vec![0]);
    let every = When::Every { at: seconds(60), every: seconds(360), length: seconds(30) };
    [
        ("healthy", Vec::new()),
        ("sick", vec![Fault::Slow { factor: 2.4, when: When::Always, on: first() }]),
        ("still", vec![Fault::Hang { when: every, on: first() }]),
    ]
}

/// The fixed time with the shortest tail.
fn best_fixed(
    run: impl Fn(Balancing) -> Result<FirstTokens, Failure>,
) -> Result<(u64, FirstTokens), Failure> {
    let mut best: Option<(u64, FirstTokens)> = None;
    for after in DELAYS_MS {
        let tokens = run(Balancing::FixedHedge(Duration::from_millis(after), FIXED_COPIES))?;
        if best.as_ref().is_none_or(|(_, known)| tokens.quantile(0.999) < known.quantile(0.999)) {
            best = Some((after, tokens));
        }
    }
    Ok(best.unwrap_or_default())
}

/// A quantile in seconds; `None` if there is not enough data.
fn quantile(tokens: &FirstTokens, share: f64) -> Option<f64> {
    let all = tokens.seconds.len() as f64 + tokens.failed as f64;
    ((1.0 - share) * all >= BEYOND).then(|| tokens.quantile(share))
}

fn dispatched(policy: PolicyKind) -> Balancing {
    let usual = HedgeSettings::default();
    let hedge = HedgeSettings { budget: BudgetSettings { ratio: COPIES, ..usual.budget }, ..usual };
    Balancing::Dispatched(Box::new(PoolSettings { policy, hedge, ..PoolSettings::default() }), CONCURRENCY)
}

fn print(rows: &[Row], [warm_up, all]: [usize; 2], output: Output) -> anyhow::Result<()> {
    let mut out = crate::printer::stdout();
    if output == Output::Json {
        writeln!(out, "{}", serde_json::to_string_pretty(rows)?)?;
        return Ok(());
    }
    writeln!(
        out,
        "time to first token in seconds; warm-up, not counted: the first {warm_up} of {all} requests"
    )?;
    let head = ["world", "replica by", "p50", "p99", "p99.9", "extra %", "failed", "N"];
    writeln!(
        out,
        "{:<8} {:<18} {:>8} {:>8} {:>8} {:>8} {:>7} {:>8}",
        head[0], head[1], head[2], head[3], head[4], head[5], head[6], head[7]
    )?;
    for Row { world, balancing, requests, p50_s, p99_s, p999_s, extra, failed } in rows {
        let extra = 100.0 * extra;
        let shown = |seconds: &Option<f64>, digits: usize| {
            seconds.map_or("n/a".to_owned(), |seconds| format!("{seconds:.digits$}"))
        };
        let (p50, p99, p999) = (shown(p50_s, 3), shown(p99_s, 2), shown(p999_s, 2));
        writeln!(
            out,
            "{world:<8} {balancing:<18} {p50:>8} {p99:>8} {p999:>8} {extra:>8.2} {failed:>7} {requests:>8}"
        )?;
    }
    if rows.iter().any(|row| row.p50_s.is_none() || row.p99_s.is_none() || row.p999_s.is_none()) {
        writeln!(out, "n/a: not enough data, fewer than {BEYOND} requests are beyond the quantile")?;
    }
    Ok(())
}
