//! `parm load --openai`: load for servers of language models, over HTTP/1.1 with kept connections.

use std::io::BufWriter;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use hyper::body::Bytes;
use parm_loadgen::chat::api::{Api, Maker};
use parm_loadgen::chat::report::{ChatReport, ChatSetting};
use parm_loadgen::chat::run::{ChatPlan, ChatTarget, Traffic};
use parm_loadgen::chat::{self, Incoming, Wire};
use parm_loadgen::live::Live;
use parm_protocol::client::BoxFuture;
use parm_transport::client::{Arriving, Endpoint, Posts};
use parm_workload::chat::Tokens;

use super::flags::{Load, Scenario};
use super::view::LiveView;
use super::{config, create, print, runtime, stop_when_asked, verdict};

/// Connections to the server under load.
struct Line(Posts);

/// A response of the server.
struct Response(Arriving);

/// Runs the command. A run that is invalid, is interrupted or misses a requirement ends with status 1.
pub fn main(flags: &Load, api: Api, endpoint: &Endpoint) -> anyhow::Result<()> {
    if flags.scenario != Scenario::Server {
        bail!("--scenario {}: --openai sends on a schedule only: leave it out", flags.scenario.name());
    }
    let traffic = traffic(flags)?;
    let runtime = runtime(flags)?;
    let posts = {
        let _inside = runtime.enter();
        Posts::new(endpoint, &config(flags)?)?
    };
    let live = Arc::new(Live::default());
    let extra = flags.openai.extra_body.clone().unwrap_or_default().0;
    let maker = Maker { api, model: flags.model.clone(), seed: flags.seed, extra };
    let target = ChatTarget {
        wire: Arc::new(Line(posts)),
        maker,
        runtime: runtime.handle().clone(),
        live: live.clone(),
    };
    let samples = flags.samples.as_deref().map(create).transpose()?;
    stop_when_asked(&runtime, live.clone())?;
    let view = LiveView::start(live.clone(), flags, length(flags, &traffic));
    let recorded = matches!(traffic, Traffic::Recorded(_));
    let run = target.open(&ChatPlan {
        // A trace without a given length is replayed to its end.
        length: (!recorded || flags.seconds.is_some()).then(|| flags.length()),
        traffic,
        seed: flags.seed,
        warm_up: flags.warm_up(),
        requests: flags.openai.requests.get(),
        deadline: flags.deadline(),
        in_flight: flags.in_flight.get() as usize,
    })?;
    view.end();
    if let Some(file) = samples {
        chat::write(&run.samples, BufWriter::new(file)).context("cannot write the samples")?;
    }
    let report = ChatReport::of(&run, setting(flags, api, recorded), &flags.require);
    print(flags, &report)?;
    let interrupted = live.is_stopped().then_some(run.firsts.length);
    verdict(&report.validity, report.missed(), interrupted)
}

/// The requests and their times, from the trace or from the flags.
fn traffic(flags: &Load) -> anyhow::Result<Traffic> {
    let options = &flags.openai;
    if let Some(requests) = flags.arrivals.requests(options.requests.get())? {
        return Ok(Traffic::Recorded(requests.spread(flags.seed).faster(options.speed)?));
    }
    if options.speed != 1.0 {
        bail!("--speed {}: only a trace can be replayed faster: use --rate", options.speed);
    }
    let arrivals = flags.arrivals.at(flags.rate)?;
    arrivals.schedule(flags.seed)?;
    Ok(Traffic::Steady(arrivals, Tokens { prompt: options.prompt_tokens, output: options.output_tokens }))
}

/// The length of the run that a viewer sees.
fn length(flags: &Load, traffic: &Traffic) -> Duration {
    match traffic {
        Traffic::Recorded(requests) if flags.seconds.is_none() => requests.length(),
        Traffic::Recorded(requests) => flags.length().min(requests.length()),
        Traffic::Steady(..) => flags.length(),
    }
}

fn setting(flags: &Load, api: Api, recorded: bool) -> ChatSetting {
    let options = &flags.openai;
    ChatSetting {
        url: flags.url.clone(),
        model: flags.model.clone(),
        api: api.name().to_owned(),
        arrivals: flags.arrivals.to_string(),
        prompt_tokens: (!recorded).then_some(options.prompt_tokens),
        output_tokens: (!recorded && api.streams()).then_some(options.output_tokens),
        speed: recorded.then_some(options.speed),
        seed: flags.seed,
        warm_up_seconds: flags.warm_up().as_secs_f64(),
        deadline_ms: flags.deadline().as_secs_f64() * 1e3,
        allow_failed: flags.allow_failed / 100.0,
    }
}

impl Wire for Line {
    fn post(&self, path: &'static str, body: Bytes) -> BoxFuture<'_, Result<Box<dyn Incoming>, String>> {
        Box::pin(async move {
            let answer = self.0.post(path, body).await.map_err(|error| error.to_string())?;
            Ok(Box::new(Response(answer)) as Box<dyn Incoming>)
        })
    }

    fn repeated(&self) -> u64 {
        self.0.repeated()
    }
}

impl Incoming for Response {
    fn status(&self) -> u16 {
        self.0.status()
    }

    fn chunk(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, String>> {
        Box::pin(async { self.0.chunk().await.map_err(|error| error.to_string()) })
    }
}
