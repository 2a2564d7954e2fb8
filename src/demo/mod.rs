//! `parm demo`: compares policies live, on the same traffic with slow servers and then a frozen one.
//!
//! A [`Policy`] is compared under the faults of a [`Script`]. A `cluster` is a policy's frontend or balancer over paced servers,
//! whose runs take the models' measured costs. The load generator sends to all clusters at once, and `report` formats what is
//! shown.

mod cluster;
mod report;

use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use cluster::{Cluster, Models, Pace};
use parm_encoder::Kind;
use parm_loadgen::run::{Plan, Queries, Target, Work};
use parm_settings::{BatchSize, PolicyKind, PoolSettings};
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;
use parm_workload::{By, Fault, Faults, Pattern, Schedule, State, Targets, Time, When};
use report::{Report, Standing};
use tokio::runtime::Handle;

use crate::cli::{self, Output};
use crate::example::Example;
use crate::progress::Page;
use crate::{Failure, printer, shutdown};

/// Median service time in milliseconds; sigma is 5 %.
const SERVICE_MS: f64 = 10.0;

/// What twelve servers can do, in queries per second.
const CAPACITY: f64 = 12.0 * 1e3 / SERVICE_MS;

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
        "--rate {}: 12 servers of {SERVICE_MS} ms answer {CAPACITY:.0} requests a second: give 1 to {CAPACITY:.0}",
        flags.rate,
    );
    ensure!(!flags.policies.is_empty(), "--policies: name at least one of {}", Policy::names());
    Ok(())
}

async fn demonstrate(flags: &cli::Demo, example: &Example) -> anyhow::Result<()> {
    let stop = shutdown::token()?;
    let script = Script::of(Duration::from_secs_f64(flags.seconds));
    let mut schedule = Schedule::new(&script.faults(), flags.seed, Policy::MOST_SERVERS)?;
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
        let (inputs, grader) = models.traffic(policy.model()).await?;
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
            let trouble = troubled(&mut schedule, elapsed);
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
    printer::show(&Report::of(flags, standings, models.costs(flags.policies[0].model())), flags.output)
}

/// The deployed model, and the linear one of `exact`, which is its own parity model.
const MODEL: &str = "fashion-lenet";
const LINEAR: &str = "fashion-linear";
/// The stand-in, and the deployed model's parity models.
pub const STAND_IN: &str = "fashion-perceptron";
const PARITIES: [&str; 4] =
    ["fashion-lenet-slots-k2", "fashion-lenet-slots-k3", "fashion-lenet-slots-k4", "fashion-lenet-sum-k2"];
const CODED: &[&str] = &[MODEL, PARITIES[0], PARITIES[1], PARITIES[2], PARITIES[3]];

/// A policy of the demo.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    pub name: &'static str,
    /// What it does, for people who have never heard of it.
    pub what: &'static str,
    /// The frontend's policy; `None` is a usual load balancer instead of a frontend.
    kind: Option<PolicyKind>,
    pub servers: usize,
    /// The deployed model first, then the others that its servers load.
    pub models: &'static [&'static str],
}

/// All policies; the first three are the default.
const ALL: [Policy; 7] = [
    Policy {
        name: "least-requests",
        what: "a usual balancer: the server with the fewest open requests",
        kind: None,
        servers: 12,
        models: &[MODEL],
    },
    Policy {
        name: "hedge",
        what: "parm's default: a late request runs twice, the first answer wins",
        kind: Some(PolicyKind::Hedge),
        servers: 12,
        models: &[MODEL],
    },
    Policy {
        name: "stand-in",
        what: "a cheaper model may answer late requests, approximately",
        kind: Some(PolicyKind::StandIn),
        servers: 12,
        models: &[MODEL, STAND_IN],
    },
    Policy {
        name: "parm+",
        what: "idle servers run combined requests to restore late answers",
        kind: Some(PolicyKind::ParmPlus),
        servers: 12,
        models: CODED,
    },
    Policy {
        name: "exact",
        what: "parm+ with a linear model: restored answers are exact",
        kind: Some(PolicyKind::ParmPlus),
        servers: 12,
        models: &[LINEAR],
    },
    Policy {
        name: "parm",
        what: "as in the paper: 6 of 18 servers run only combined requests",
        kind: Some(PolicyKind::Parm),
        servers: 18,
        models: CODED,
    },
    Policy {
        name: "equal",
        what: "the paper's baseline: 18 servers run each request once",
        kind: Some(PolicyKind::Equal),
        servers: 18,
        models: &[MODEL],
    },
];

impl Policy {
    /// The most servers of a policy.
    pub const MOST_SERVERS: u32 = 18;

    /// The names, for messages.
    pub fn names() -> String {
        ALL.map(|policy| policy.name).join(", ")
    }

    /// Returns the deployed model.
    pub fn model(&self) -> &'static str {
        self.models[0]
    }

    /// Returns the dispatcher's settings; `None` for a policy without a frontend.
    pub fn settings(&self) -> Option<PoolSettings> {
        let policy = self.kind?;
        let mut settings = PoolSettings { policy, ..PoolSettings::default() };
        // The paper's policies do not eject instances.
        settings.ejection.enabled = !matches!(policy, PolicyKind::Equal | PolicyKind::Parm);
        // A job for each query: the work per query is counted in jobs, and the policies are compared by late jobs alone.
        settings.batch.max_size = BatchSize::ONE;
        settings.coding.code = self.is_linear().then_some(Kind::Mds);
        Some(settings)
    }

    /// Whether the model is linear, and needs no bundle.
    pub fn is_linear(&self) -> bool {
        self.model() == LINEAR
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = ALL.into_iter().find(|policy| policy.name == text);
        named.ok_or_else(|| format!("unknown policy '{text}': use one of {}", Self::names()))
    }
}

/// Share of the runs that are stragglers, and the range of the factors by which they are slower.
pub const STRAGGLERS: f64 = 0.01;
pub const STRAGGLE: (f64, f64) = (5.0, 10.0);
/// Factors by which the first servers are slower in the first act.
pub const SLOW: [f64; 2] = [3.0, 5.0];
/// The server that freezes in the second act.
const FROZEN: u32 = 2;
/// Longest warm-up, whose queries are not counted.
const WARM_UP: Duration = Duration::from_millis(1500);

/// The acts of a demo.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    /// The end of the warm-up.
    pub warm_up: Duration,
    /// The end of the first act.
    pub middle: Duration,
    pub length: Duration,
}

impl Script {
    pub fn of(length: Duration) -> Self {
        let warm_up = WARM_UP.min(length / 10);
        Self { warm_up, middle: warm_up + (length - warm_up) / 2, length }
    }

    /// Returns the number of the act at a time, if it counts.
    pub fn act(&self, at: Duration) -> Option<usize> {
        (at >= self.warm_up).then_some(usize::from(at >= self.middle))
    }

    /// Returns the faults of all servers.
    pub fn faults(&self) -> Faults {
        let (min, max) = STRAGGLE;
        let first = When::Once { at: self.warm_up, length: self.middle - self.warm_up };
        // The last answers are awaited, so it is frozen beyond the end.
        let second = When::Once { at: self.middle, length: 2 * self.length };
        let slow = (0..).zip(SLOW).map(|(server, factor)| Fault::Slow {
            factor,
            when: first.clone(),
            on: Targets::Only(vec![server]),
        });
        let others = [
            Fault::Straggle {
                share: STRAGGLERS,
                factor: Distribution::Uniform { min, max },
                by: By::Run,
                on: Targets::Each,
            },
            Fault::Hang { when: second, on: Targets::Only(vec![FROZEN]) },
        ];
        Faults(slow.chain(others).collect())
    }
}

/// Returns the conditions of the servers that are slow or frozen, in words.
pub fn troubled(schedule: &mut Schedule, at: Duration) -> String {
    let servers = 0..(SLOW.len() as u32).max(FROZEN + 1);
    let words = servers.filter_map(|server| {
        let now = schedule.condition(server, Time::ZERO + at);
        match now.state {
            State::Hangs => Some(format!("server {} is FROZEN", server + 1)),
            _ if now.slowdown > 1.0 => Some(format!("server {} is slow", server + 1)),
            _ => None,
        }
    });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::Policy;

    #[test]
    fn servers_are_slow_and_then_one_is_frozen_at_every_length() {
        for seconds in [5, 20, 3600] {
            let script = Script::of(Duration::from_secs(seconds));
            let mut schedule = Schedule::new(&script.faults(), 1, Policy::MOST_SERVERS).unwrap();
            let mut seen = |share: f64| {
                let at = script.length.mul_f64(share);
                (script.act(at), troubled(&mut schedule, at))
            };
            assert_eq!(seen(0.0), (None, String::new()), "{seconds} s");
            assert_eq!(seen(0.3), (Some(0), "server 1 is slow, server 2 is slow".into()), "{seconds} s");
            assert_eq!(seen(0.7), (Some(1), "server 3 is FROZEN".into()), "{seconds} s");
            assert_eq!(seen(1.0), (Some(1), "server 3 is FROZEN".into()), "{seconds} s");
        }
    }
}
