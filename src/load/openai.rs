//! `parm load --openai`: chats for servers of language models, over HTTP/1.1 with kept connections.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use hyper::body::Bytes;
use parm_loadgen::chat::{Chats, Incoming, Maker, PATH, Wire};
use parm_loadgen::report::ChatSetting;
use parm_protocol::client::BoxFuture;
use parm_transport::client::{Arriving, Endpoint, Posts};
use parm_workload::arrivals::Arrivals;
use parm_workload::chat::Tokens;

use super::config;
use super::flags::{Load, Scenario};

/// Most requests of a trace.
const MOST_REQUESTS: usize = 1_000_000;

/// Connections to the server under load.
struct Line(Posts);

/// A response of the server.
struct Response(Arriving);

/// When requests are sent, and their sizes.
pub struct Traffic {
    pub arrivals: Arrivals,
    pub sizes: Arc<[Tokens]>,
    pub length: Duration,
    pub setting: ChatSetting,
}

/// The requests and their times, from the trace or from the flags.
pub fn traffic(flags: &Load) -> anyhow::Result<Traffic> {
    if flags.scenario != Scenario::Server {
        bail!("--scenario {}: --openai sends on a schedule only: leave it out", flags.scenario.name());
    }
    let options = &flags.openai;
    let (prompt_tokens, output_tokens, speed) = (options.prompt_tokens, options.output_tokens, options.speed);
    if let Some(requests) = flags.arrivals.requests(MOST_REQUESTS)? {
        let requests = requests.faster(speed)?;
        // A trace without a given length is replayed to its end, its last request included.
        let whole = requests.length().saturating_add(Duration::from_nanos(1));
        let length = if flags.seconds.is_some() { flags.length().min(whole) } else { whole };
        let (arrivals, sizes) = (Arrivals::Trace { seconds: requests.seconds }, requests.sizes.into());
        return Ok(Traffic { arrivals, sizes, length, setting: ChatSetting::Recorded { speed } });
    }
    if speed != 1.0 {
        bail!("--speed {speed}: only a trace can be replayed faster: use --rate");
    }
    Ok(Traffic {
        arrivals: flags.arrivals.at(flags.rate)?,
        sizes: [Tokens { prompt: prompt_tokens, output: output_tokens }].into(),
        length: flags.length(),
        setting: ChatSetting::Steady { prompt_tokens, output_tokens },
    })
}

/// Chats of these sizes. Call it within the runtime of the connections.
pub fn chats(flags: &Load, endpoint: &Endpoint, sizes: Arc<[Tokens]>) -> anyhow::Result<Chats> {
    let extra = flags.openai.extra_body.clone().unwrap_or_default().0;
    let maker = Maker { model: flags.model.clone(), sizes, seed: flags.seed, extra };
    Ok(Chats { wire: Arc::new(Line(Posts::new(endpoint, &config(flags)?)?)), maker })
}

impl Wire for Line {
    fn post(&self, body: Bytes) -> BoxFuture<'_, Result<Box<dyn Incoming>, String>> {
        Box::pin(async move {
            let answer = self.0.post(PATH, body).await.map_err(|error| error.to_string())?;
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
