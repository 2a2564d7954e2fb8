//! `parm demo`: compares four policies live, on the same traffic with stragglers and a hung instance.
//!
//! Reading order: `policy` lists the policies, `script` the faults, `served` the models and `traffic` the queries; `files`
//! has both for use outside of the source folder. A `cluster` is a policy's frontend over six `paced` instances, whose runs
//! take the models' `costs`. `run` sends to all clusters at once and `tally` counts. `view` draws a picture, and `summary`
//! prints the result.

mod cluster;
mod costs;
mod files;
mod paced;
mod policy;
mod run;
mod script;
mod served;
mod summary;
mod tally;
mod traffic;
mod view;

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use cluster::PolicyCluster;
use files::Folders;
use paced::Pace;
use parm_workload::Schedule;
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;
use run::{DemoRun, Running};
use served::Served;
use summary::Summary;
use tally::Standing;
use tokio::runtime::Handle;
use traffic::Traffic;
use view::{Ink, Scene};

use crate::cli::{self, Output};
use crate::progress::Page;
use crate::{Failure, environment, runtime, shutdown};

pub use policy::Policy;

/// Median service time in milliseconds; sigma is 5 %.
const SERVICE_MS: f64 = 10.0;

/// Time between two pictures.
const FRAME: Duration = Duration::from_millis(200);

/// Runs the command.
pub fn main(flags: &cli::Demo) -> Result<(), Failure> {
    check(flags).map_err(Failure::Configuration)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(anyhow::Error::from)?;
    runtime::raise_open_files();
    let folders = Folders::of(flags)?;
    let outcome = runtime.block_on(demonstrate(flags, &folders));
    // Instances that still emulate a run need not finish it.
    runtime.shutdown_background();
    Ok(outcome?)
}

fn check(flags: &cli::Demo) -> anyhow::Result<()> {
    let able = capacity();
    ensure!((5.0..=3600.0).contains(&flags.seconds), "--seconds {}: give 5 to 3600", flags.seconds);
    ensure!(
        flags.rate >= 1.0 && flags.rate <= able,
        "--rate {}: {} instances of {SERVICE_MS} ms serve {able:.0} queries a second: give 1 to {able:.0}",
        flags.rate,
        script::INSTANCES
    );
    ensure!(!flags.policies.is_empty(), "--policies: name at least one of {}", policy::NAMES);
    Ok(())
}

/// The capacity of a policy's instances in queries per second.
fn capacity() -> f64 {
    f64::from(script::INSTANCES) * 1e3 / SERVICE_MS
}

async fn demonstrate(flags: &cli::Demo, folders: &Folders) -> anyhow::Result<()> {
    let stop = shutdown::token()?;
    let length = Duration::from_secs_f64(flags.seconds);
    let began = Arc::new(OnceLock::new());
    let schedule = Schedule::new(&script::faults(length), flags.seed, script::INSTANCES)?;
    let time_ms = Distribution::Lognormal { median: SERVICE_MS, sigma: 0.05 };
    let service = Service { time_ms, ..Service::default() };
    let pace = Pace {
        service,
        schedule: schedule.clone(),
        seed: flags.seed,
        instance: 0,
        began: began.clone(),
        costs: Arc::default(),
        spent: Arc::default(),
    };
    let served = Served::read(&folders.models, &flags.model)?;
    ensure!(
        folders.models.join(&flags.model).is_dir(),
        "no model '{}' in {}: give --models FOLDER that has it, and --images FOLDER for it",
        flags.model,
        folders.models.display()
    );
    ensure!(
        served.stand_in.is_some() || !flags.policies.contains(&Policy::StandIn),
        "the bundle of '{}' has no stand-in: leave stand-in out of --policies, or give another --model",
        flags.model
    );
    let mut clusters = Vec::new();
    for policy in &flags.policies {
        clusters.push(Arc::new(PolicyCluster::start(*policy, &served, &pace).await?));
    }
    let model = clusters.first().ok_or_else(|| anyhow!("no policy to compare"))?.model(&flags.model)?;
    let traffic = Arc::new(Traffic::read(&folders.images, &model)?);
    let page = match flags.output {
        Output::Text => {
            let costs = costs(&clusters, &flags.model);
            let introduction = Summary::introduction(&flags.model, flags.rate, flags.seed, &costs);
            writeln!(crate::printer::stdout(), "{introduction}")?;
            Some(Page::of_stdout())
        }
        Output::Json => None,
    };
    let arrivals = DemoRun::arrivals(flags.rate, flags.seed)?;
    let run = DemoRun { clusters: clusters.clone(), traffic, arrivals, length, began };
    let running = run.start(Handle::current())?;
    let width = page.as_ref().map_or(0, |page| page.width);
    let mut stage = Stage { schedule, clusters: &clusters, length, width };
    let ended = watch(&mut stage, &running, &stop, page).await?;
    let summary = stage.summary(flags, &running, ended, served.stand_in);
    match flags.output {
        Output::Text => writeln!(crate::printer::stdout(), "{summary}")?,
        Output::Json => writeln!(crate::printer::stdout(), "{}", serde_json::to_string_pretty(&summary)?)?,
    }
    Ok(())
}

/// Returns the cost of a row for each model that a policy loads, except the deployed one.
fn costs(clusters: &[Arc<PolicyCluster>], model: &str) -> BTreeMap<String, f64> {
    let all = clusters.iter().flat_map(|cluster| cluster.costs().rows());
    all.filter(|(name, _)| *name != model).map(|(name, cost)| (name.to_owned(), cost)).collect()
}

/// Shows the run until it ends or is interrupted. Returns its length.
async fn watch(
    stage: &mut Stage<'_>,
    running: &Running,
    stop: &tokio_util::sync::CancellationToken,
    mut page: Option<Page>,
) -> anyhow::Result<Duration> {
    let is_drawn = page.as_ref().is_some_and(Page::is_drawn);
    let ink = if is_drawn && !environment::no_color() { Ink::Coloured } else { Ink::Plain };
    let mut ended = None;
    loop {
        let elapsed = Instant::now().saturating_duration_since(running.began);
        let end = running.is_sent() || stop.is_cancelled();
        if end && ended.is_none() {
            running.stop();
            ended = Some(elapsed.min(stage.length));
        }
        let standings = stage.standings();
        let shown = ended.unwrap_or(elapsed);
        // One deadline later the last queries are answered or missed.
        if let Some(ended) = ended
            && elapsed > ended + run::DEADLINE + 2 * FRAME
        {
            if let Some(page) = page {
                page.clear();
                let last = |scene: &Scene<'_>| if is_drawn { scene.lines(ink) } else { scene.table(ink) };
                let last = stage.scene(&standings, shown, last).join("\n");
                writeln!(crate::printer::stdout(), "{last}")?;
            }
            return Ok(ended);
        }
        if let Some(page) = page.as_mut().filter(|page| page.is_due()) {
            let picture = |scene: &Scene<'_>| page.show(|| scene.lines(ink).join("\n"), || scene.line());
            if let Some(line) = stage.scene(&standings, shown, picture) {
                let mut out = crate::printer::stdout();
                writeln!(out, "{line}")?;
                out.flush()?;
            }
        }
        tokio::time::sleep(FRAME).await;
    }
}

/// The parts of a picture.
struct Stage<'a> {
    schedule: Schedule,
    clusters: &'a [Arc<PolicyCluster>],
    length: Duration,
    width: usize,
}

impl Stage<'_> {
    fn standings(&self) -> Vec<Standing> {
        self.clusters.iter().map(|cluster| cluster.standing()).collect()
    }

    fn scene<T>(
        &mut self,
        standings: &[Standing],
        elapsed: Duration,
        show: impl FnOnce(&Scene<'_>) -> T,
    ) -> T {
        let instances: Vec<_> = (0..script::INSTANCES)
            .map(|instance| script::condition(&mut self.schedule, instance, elapsed))
            .collect();
        let Self { length, width, .. } = *self;
        show(&Scene { standings, instances: &instances, elapsed, length, usual_ms: SERVICE_MS, width })
    }

    fn summary(
        &self,
        flags: &cli::Demo,
        running: &Running,
        ended: Duration,
        stand_in: Option<String>,
    ) -> Summary {
        let lag = running.lag(0.99);
        Summary {
            seconds: ended.as_secs_f64(),
            rate: flags.rate,
            seed: flags.seed,
            service_ms: SERVICE_MS,
            load: flags.rate / capacity(),
            lag_p99_ms: lag.as_secs_f64() * 1e3,
            valid: Summary::is_valid(lag),
            model: flags.model.clone(),
            stand_in,
            costs: costs(self.clusters, &flags.model),
            policies: self.standings(),
        }
    }
}
