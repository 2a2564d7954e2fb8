//! `parm load`: sends load to a server and reports its tail latency; `openai` makes chats for servers of language models.

mod flags;
mod openai;

use std::fs::File;
use std::io::BufWriter;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use flags::Scenario;
use parm_loadgen::grader::Grader;
use parm_loadgen::inputs::{Column, Inputs, Recorded};
use parm_loadgen::live::{Live, Snapshot};
use parm_loadgen::outcome::Outcome;
use parm_loadgen::report::{Report, Setting};
use parm_loadgen::run::{Closed, Plan, Queries, Target, Work};
use parm_loadgen::{chat, recorder};
use parm_protocol::{Error, ModelMetadata, ModelRef};
use parm_transport::client::{self, Endpoint, Prefer, Token};
use tokio::runtime::Runtime;

use crate::printer;
use crate::progress::Page;

pub use flags::Load;

/// Most requests in flight of an open loop; more are dropped and counted.
const IN_FLIGHT: u32 = 10_000;

/// Runs the command. A run that is invalid, is interrupted or misses a requirement ends with status 1.
pub fn main(flags: &Load) -> anyhow::Result<()> {
    let endpoint: Endpoint = flags.url.parse().map_err(|error| match error {
        // The message is about the flag, and no request was sent.
        Error::Malformed { message } => anyhow!(message),
        error => error.into(),
    })?;
    let traffic = if flags.openai.chat { Some(openai::traffic(flags)?) } else { None };
    let (arrivals, length) = match &traffic {
        Some(traffic) => (traffic.arrivals.clone(), traffic.length),
        None => (flags.arrivals.at(flags.rate)?, flags.length()),
    };
    arrivals.schedule(flags.seed)?;
    let runtime = runtime(flags)?;
    let work = {
        let _inside = runtime.enter();
        match &traffic {
            Some(traffic) => Work::Chats(openai::chats(flags, &endpoint, traffic.sizes.clone())?),
            None => Work::Queries(queries(flags, &endpoint, &runtime)?),
        }
    };
    let target = Target { work, runtime: runtime.handle().clone(), live: Arc::default() };
    let samples = flags.samples.as_deref().map(create).transpose()?;
    stop_when_asked(&runtime, target.live.clone())?;
    let view = LiveView::start(target.live.clone(), flags, length);
    let outcome = match flags.scenario {
        Scenario::Server => target.open(&Plan {
            arrivals,
            seed: flags.seed,
            length,
            warm_up: flags.warm_up(),
            deadline: flags.deadline(),
            in_flight: IN_FLIGHT as usize,
        })?,
        Scenario::SingleStream | Scenario::MultiStream | Scenario::Offline => target.closed(&Closed {
            streams: flags.streams(),
            length,
            warm_up: flags.warm_up(),
            deadline: flags.deadline(),
        }),
    };
    view.end();
    if let Some(file) = samples {
        let file = BufWriter::new(file);
        let written = match &outcome.chats {
            Some(_) => chat::write(&outcome, file),
            None => recorder::write(&outcome.samples, file),
        };
        written.context("cannot write the samples")?;
    }
    let setting = Setting { chats: traffic.map(|traffic| traffic.setting), ..setting(flags) };
    let report = Report::of(&outcome, setting, &flags.require);
    printer::show(&report, flags.output)?;
    let interrupted = target.live.is_stopped().then_some(outcome.length);
    verdict(&report, interrupted)
}

fn runtime(flags: &Load) -> anyhow::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(flags.threads.get()).enable_all().build()?)
}

/// The connections of a run.
fn config(flags: &Load) -> anyhow::Result<client::Config> {
    Ok(client::Config {
        // The address decides the transport that is measured: frames only for `frames://`.
        transport: Prefer::Http,
        token: flags.key.clone().map(Token::new),
        tls: flags.identity.tls()?,
        max_connections: NonZeroU32::new(IN_FLIGHT.max(flags.streams() as u32)).unwrap_or(NonZeroU32::MIN),
        ..client::Config::default()
    })
}

fn queries(flags: &Load, endpoint: &Endpoint, runtime: &Runtime) -> anyhow::Result<Queries> {
    let client = client::connect(endpoint, &config(flags)?)?;
    let model = runtime
        .block_on(client.model_metadata(&ModelRef::latest(&flags.model)))
        .with_context(|| format!("cannot get the metadata of model '{}' from {}", flags.model, flags.url))?;
    let grader = match &flags.labels {
        Some(_) => Some(Grader::new(&model, flags.label_output.as_deref())?),
        None => None,
    };
    let inputs = inputs(flags, &model)?;
    if let (Some(grader), Inputs::Recorded(Recorded { labels: Some(labels), .. })) = (&grader, &inputs) {
        grader.check(labels)?;
    }
    Ok(Queries { client, inputs, grader })
}

fn inputs(flags: &Load, model: &ModelMetadata) -> anyhow::Result<Inputs> {
    if flags.input.is_empty() {
        return Ok(Inputs::generate(model, flags.rows(), flags.seed)?);
    }
    let columns: Vec<Column> = flags.input.iter().map(|text| Column::from(text.as_str())).collect();
    let recorded = Recorded::read(model, &columns, flags.rows())?;
    Ok(Inputs::Recorded(match &flags.labels {
        Some(path) => recorded.with_labels(path)?,
        None => recorded,
    }))
}

/// Creates the file before the run, so that an invalid path does not waste it.
fn create(path: &std::path::Path) -> anyhow::Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

fn stop_when_asked(runtime: &Runtime, live: Arc<Live>) -> anyhow::Result<()> {
    let _inside = runtime.enter();
    let token = crate::shutdown::token()?;
    runtime.spawn(async move {
        token.cancelled().await;
        live.stop();
    });
    Ok(())
}

fn setting(flags: &Load) -> Setting {
    let open = flags.scenario == Scenario::Server;
    Setting {
        url: flags.url.clone(),
        model: flags.model.clone(),
        scenario: flags.scenario.name(),
        arrivals: open.then(|| flags.arrivals.to_string()),
        streams: (!open).then(|| flags.streams()),
        rows: flags.rows(),
        seed: flags.seed,
        warm_up_seconds: flags.warm_up().as_secs_f64(),
        deadline_ms: flags.deadline().as_secs_f64() * 1e3,
        allow_failed: flags.allow_failed / 100.0,
        chats: None,
    }
}

fn verdict(report: &Report, interrupted: Option<Duration>) -> anyhow::Result<()> {
    if let Some(length) = interrupted {
        bail!("interrupted: the report covers {:.1} s", length.as_secs_f64());
    }
    if !report.is_valid() {
        bail!("the run is invalid: {}", report.validity.faults.join("; "));
    }
    let missed = report.missed().map(|missed| format!("{} ({})", missed.requirement, missed.finding));
    let missed: Vec<String> = missed.collect();
    if !missed.is_empty() {
        bail!("requirements not shown to hold: {}", missed.join(", "));
    }
    Ok(())
}

/// Time between two looks at the run.
const EVERY: Duration = Duration::from_secs(1);

/// The view of a run in progress, until [`LiveView::end`].
pub struct LiveView(Option<(SyncSender<()>, JoinHandle<()>)>);

impl LiveView {
    pub fn start(live: Arc<Live>, flags: &Load, length: Duration) -> Self {
        if flags.quiet {
            return Self(None);
        }
        let (end, ended) = sync_channel(0);
        let clock = Clock { start: Instant::now(), warm_up: flags.warm_up(), length };
        let watch = move || {
            let (mut shown, mut last) = (Page::of_stderr(), clock.start);
            while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                if !shown.is_due() {
                    continue;
                }
                // A look begins the next period.
                let (snapshot, now) = (live.look(), Instant::now());
                let (elapsed, period) = (now - clock.start, now - std::mem::replace(&mut last, now));
                let line = || line(&clock, elapsed, &snapshot, period);
                if let Some(line) = shown.show(line, line) {
                    eprintln!("{line}");
                }
            }
            shown.clear();
        };
        Self(Some((end, std::thread::spawn(watch))))
    }

    pub fn end(self) {
        if let Some((end, watch)) = self.0 {
            drop(end);
            // A failed view does not make the run fail.
            let _ = watch.join();
        }
    }
}

struct Clock {
    start: Instant,
    warm_up: Duration,
    length: Duration,
}

fn line(clock: &Clock, elapsed: Duration, snapshot: &Snapshot, period: Duration) -> String {
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| match snapshot.recent.known(share) {
        Some(time) => format!("{:.3}", time.as_secs_f64() * 1e3),
        None => "-".to_owned(),
    });
    let rate = snapshot.recent.count() as f64 / period.as_secs_f64();
    let (time, outcomes) = (time(clock, elapsed), outcomes(snapshot));
    format!("{time}: {rate:.0} requests/s, p50 {p50}, p99 {p99}, p99.9 {p999} ms  {outcomes}")
}

fn time(clock: &Clock, elapsed: Duration) -> String {
    let phase = match elapsed {
        elapsed if elapsed < clock.warm_up => ", warming up",
        elapsed if elapsed > clock.length => ", waiting for the last answers",
        _ => "",
    };
    format!("{:.0} of {:.0} s{phase}", elapsed.as_secs_f64(), clock.length.as_secs_f64())
}

fn outcomes(snapshot: &Snapshot) -> String {
    let total = snapshot.tally.total().requests.max(1) as f64;
    let seen = Outcome::ALL.into_iter().map(|outcome| (outcome, snapshot.tally.of(outcome).requests));
    let shares = seen
        .filter(|(_, requests)| *requests > 0)
        .map(|(outcome, requests)| format!("{} {:.2} %", outcome.name(), 100.0 * requests as f64 / total));
    shares.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use parm_loadgen::outcome::Tally;

    use super::*;

    fn seen() -> (Clock, Snapshot) {
        let second = Duration::from_secs(1);
        let clock = Clock { start: Instant::now(), warm_up: second, length: 11 * second };
        let mut tally = Tally::default();
        (0..3).for_each(|_| tally.request(Outcome::Exact));
        tally.request(Outcome::Reconstructed);
        let mut snapshot = Snapshot { tally, ..Snapshot::default() };
        (0..4).for_each(|_| snapshot.recent.record(Duration::from_micros(1500)));
        (clock, snapshot)
    }

    #[test]
    fn line_has_rate_quantiles_and_outcomes() {
        let (clock, snapshot) = seen();
        let second = Duration::from_secs(1);
        assert_eq!(
            line(&clock, 3 * second, &snapshot, 2 * second),
            "3 of 11 s: 2 requests/s, p50 1.500, p99 -, p99.9 - ms  exact 75.00 %, reconstructed 25.00 %"
        );
        for (at, phase) in [(0, "warming up"), (5, "5 of 11 s:"), (12, "waiting for the last answers")] {
            assert!(line(&clock, at * second, &snapshot, second).contains(phase));
        }
    }
}
