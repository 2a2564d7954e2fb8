//! `parm demo`: compares policies live, on the same traffic with slow servers and then a frozen one.
//!
//! Reading order: `policy` lists the policies, `script` the faults, and `models` has the models and the queries. A `cluster` is
//! a policy's frontend or balancer over `paced` servers, whose runs take the models' measured costs. The load generator sends
//! to all clusters at once, and `report` formats what is shown.

mod cluster;
mod models;
mod paced;
mod policy;
mod report;
mod script;

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use cluster::Cluster;
use models::Models;
use paced::Pace;
use parm_loadgen::run::{Plan, Queries, Target, Work};
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;
use parm_workload::{Pattern, Schedule};
use policy::SERVERS;
use report::{Report, Standing};
use script::Script;
use tokio::runtime::Handle;

use crate::cli::{self, Output};
use crate::example::Example;
use crate::progress::Page;
use crate::{Failure, printer, shutdown};

pub use policy::Policy;

/// Median service time in milliseconds; sigma is 5 %.
const SERVICE_MS: f64 = 10.0;

/// What the servers of a policy can do, in queries per second.
const CAPACITY: f64 = SERVERS as f64 * 1e3 / SERVICE_MS;

/// Timeout of a query.
const DEADLINE: Duration = Duration::from_secs(1);

/// Time between two pictures, whose figures are of this time.
const FRAME: Duration = Duration::from_secs(1);

/// Runs the command.
pub fn main(flags: &cli::Demo) -> Result<(), Failure> {
    check(flags).map_err(Failure::Configuration)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(anyhow::Error::from)?;
    let example = Example::of_demo()?;
    let outcome = runtime.block_on(demonstrate(flags, &example));
    // Servers that still emulate a run need not finish it.
    runtime.shutdown_background();
    Ok(outcome?)
}

fn check(flags: &cli::Demo) -> anyhow::Result<()> {
    ensure!((5.0..=3600.0).contains(&flags.seconds), "--seconds {}: give 5 to 3600", flags.seconds);
    ensure!(
        (1.0..=CAPACITY).contains(&flags.rate),
        "--rate {}: {SERVERS} servers of {SERVICE_MS} ms answer {CAPACITY:.0} requests a second: give 1 to {CAPACITY:.0}",
        flags.rate,
    );
    ensure!(!flags.policies.is_empty(), "--policies: name at least one of {}", Policy::names());
    Ok(())
}

async fn demonstrate(flags: &cli::Demo, example: &Example) -> anyhow::Result<()> {
    let stop = shutdown::token()?;
    let script = Script::of(Duration::from_secs_f64(flags.seconds));
    let mut schedule = Schedule::new(&script.faults(), flags.seed, SERVERS)?;
    let time_ms = Distribution::Lognormal { median: SERVICE_MS, sigma: 0.05 };
    let pace = Pace {
        service: Service { time_ms, ..Service::default() },
        schedule: schedule.clone(),
        seed: flags.seed,
        instance: 0,
        began: Arc::new(OnceLock::new()),
        costs: Arc::default(),
        warm_up: script.warm_up,
        work: Arc::default(),
    };
    let models = Models::load(example, &flags.policies).await?;
    let (mut clusters, mut targets) = (Vec::new(), Vec::new());
    for policy in &flags.policies {
        let cluster = Arc::new(Cluster::start(*policy, &models, &pace).await?);
        let (inputs, grader) = models.traffic().await?;
        let queries = Queries { client: cluster.clone(), inputs, grader: Some(grader) };
        let (work, runtime) = (Work::Queries(queries), Handle::current());
        targets.push(Target { work, runtime, live: Arc::default() });
        clusters.push(cluster);
    }
    let mut page = (flags.output == Output::Text).then(Page::of_stdout);
    if page.is_some() {
        printer::say(&report::introduction(&flags.policies, flags.rate, &script))?;
    }
    let plan = Plan {
        arrivals: Pattern::Poisson.at(flags.rate),
        seed: flags.seed,
        length: script.length,
        warm_up: script.warm_up,
        deadline: DEADLINE,
        in_flight: 10_000,
    };
    // Each has a thread of its own, and begins within a millisecond of the others.
    let began = *pace.began.get_or_init(Instant::now);
    let run = |target: &Target| {
        let (target, plan) = (target.clone(), plan.clone());
        thread::spawn(move || target.open(&plan))
    };
    let runs: Vec<_> = targets.iter().map(run).collect();
    let mut next = Instant::now() + FRAME;
    while !runs.iter().all(thread::JoinHandle::is_finished) {
        tokio::time::sleep(FRAME / 20).await;
        if stop.is_cancelled() {
            targets.iter().for_each(|target| target.live.stop());
        }
        let elapsed = began.elapsed().min(script.length);
        if let Some(page) = page.as_mut().filter(|page| page.is_due() && Instant::now() >= next) {
            next += FRAME;
            let trouble = script::troubled(&mut schedule, elapsed);
            let seen = targets.iter().map(|target| target.live.look());
            let seen: Vec<_> = flags.policies.iter().map(|policy| policy.name).zip(seen).collect();
            let picture = || report::picture(&seen, elapsed, &trouble);
            if let Some(line) = page.show(picture, || report::line(&seen, elapsed, &trouble)) {
                printer::say(&line)?;
            }
        }
    }
    let mut standings = Vec::new();
    for (run, cluster) in runs.into_iter().zip(&clusters) {
        let run = run.join().map_err(|_| anyhow!("the load generator failed: please report it"))??;
        standings.push(Standing::of(&cluster.policy, &run, *cluster.work.lock(), &script));
    }
    page.into_iter().for_each(Page::clear);
    printer::show(&Report::of(flags, standings, models.costs()), flags.output)
}
