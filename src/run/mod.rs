//! `parm run`: starts copies of a server and serves them.
//!
//! Problem: a balancer helps only those who have several servers, and most people have a command that starts one. Choice: the
//! copies are children of this process, and the frontend of `parm serve` runs in it over their addresses. A copy keeps its
//! port when it is started again, so that the frontend, which has ejected it meanwhile, finds it by its own reconnects.
//!
//! The order at the end is that of a rollout: the frontend stops listening and answers what it has accepted, and only then
//! the copies get SIGTERM.

mod guard;
mod port;
mod process;
mod replica;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::guard::Guard;
use self::replica::{Check, Replica};
use crate::cli::{self, Common, Serve};
use crate::settings::Settings;
use crate::{Failure, runtime, serve, shutdown};

pub const EXAMPLES: &str = "Examples:
  parm run --replicas 3 -- uvicorn app:app --port {port}
      three copies of a FastAPI application behind http://127.0.0.1:8000
  parm run --replicas 2 -- python server.py
      the same for a server that listens on the port of the variable PORT
  parm run --replicas 2 --worker -- parm worker --http 127.0.0.1:{port} --grpc 127.0.0.1:0 --metrics 127.0.0.1:0
      servers of the Open Inference Protocol, whose requests parm can batch; here workers with the models of ./models";

/// `parm run`.
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub common: Common,
    /// Copies of the server
    #[arg(long, short = 'n', value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub replicas: u16,
    /// The copies speak the Open Inference Protocol (V2, KServe) over HTTP: use them as `parm serve --worker` does, which batches
    /// requests and gives stand-ins and codes. Without it requests pass unread, as with `parm serve --upstream`
    #[arg(long)]
    pub worker: bool,
    /// Path that a copy may run twice (repeat), such as '/api/*': its requests are hedged and retried
    #[arg(long, value_name = "PATH", conflicts_with = "worker")]
    pub repeatable: Vec<String>,
    /// Policy: none, once, equal, replicate, hedge and, with --worker, those with approximate answers [default: hedge]
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Address of the admin API [default: off]
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<String>,
    /// Time in which a started copy must answer, at `frontend.upstreams.probe` (`/health`) or, with --worker, `/v2/health/ready`
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    pub start_timeout: Duration,
    /// Time in which a copy must end after SIGTERM, before it is killed with all its processes
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub stop_timeout: Duration,
    /// Command of one copy, with `{port}` for its port, which the variable PORT names too
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

impl Run {
    /// The flags of `parm serve` over copies at these addresses.
    pub fn serve(&self, urls: Vec<String>) -> Serve {
        let (worker, upstream) = if self.worker { (urls, Vec::new()) } else { (Vec::new(), urls) };
        Serve {
            common: self.common.clone(),
            worker,
            upstream,
            repeatable: self.repeatable.clone(),
            policy: self.policy.clone(),
            admin: self.admin.clone(),
            ..Serve::default()
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let read = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    read.filter(|time| !time.is_zero()).ok_or_else(|| "write a number of seconds above 0".to_owned())
}

/// Runs the command.
pub fn main(flags: &Run) -> Result<(), Failure> {
    let ports = port::free(flags.replicas).map_err(Failure::Run)?;
    let served = flags.serve(ports.iter().map(|port| format!("http://127.0.0.1:{port}")).collect());
    let settings = Settings::for_serve(&served).map_err(Failure::Configuration)?;
    if runtime::dumped(&flags.common, &settings)? {
        return Ok(());
    }
    // Otherwise an address in use would be reported only after models have loaded for minutes.
    for address in [settings.server.http, settings.server.grpc, settings.server.metrics] {
        port::check(address.0).map_err(runtime::server_failure)?;
    }
    let command = run(flags, &served, settings.clone(), ports);
    runtime::run(&settings, ("parm-run", settings.embeds()), command)
}

async fn run(flags: &Run, served: &cli::Serve, settings: Settings, ports: Vec<u16>) -> Result<(), Failure> {
    let stop = shutdown::token()?;
    if !flags.command.iter().any(|word| word.contains(port::PLACE)) {
        tracing::info!("the command has no {{port}}: each copy must listen on the port of its variable PORT");
    }
    let guard = Arc::new(Guard::start());
    pass_signals(guard.clone())?;
    let check = match flags.worker {
        true => Check { path: "/v2/health/ready".to_owned(), below: 300 },
        false => Check { path: settings.frontend.upstreams.probe.clone(), below: 500 },
    };
    let ending = CancellationToken::new();
    let (first, mut answers) = mpsc::channel(ports.len());
    let mut copies = JoinSet::new();
    for (number, port) in (1..).zip(ports) {
        let (start_timeout, stop_timeout) = (flags.start_timeout, flags.stop_timeout);
        let (command, check, guard) = (flags.command.clone(), check.clone(), guard.clone());
        let replica = Replica { number, port, command, check, start_timeout, stop_timeout, guard };
        copies.spawn(replica.keep(first.clone(), ending.clone()));
    }
    // Once all copies have told of their start, there is nothing more to receive.
    drop(first);
    let served = tokio::select! {
        started = all(&mut answers) => match started {
            Ok(()) => serve::serve(served, settings, stop).await,
            Err(failure) => Err(failure),
        },
        () = stop.cancelled() => Ok(()),
    };
    ending.cancel();
    while copies.join_next().await.is_some() {}
    served
}

/// Waits until every copy has answered for the first time; the first failure ends the wait.
async fn all(answers: &mut mpsc::Receiver<Result<(), Failure>>) -> Result<(), Failure> {
    while let Some(answer) = answers.recv().await {
        answer?;
    }
    Ok(())
}

/// Passes the signals on that have a meaning only for the servers. SIGHUP is the frontend's: it reads its configuration again.
fn pass_signals(guard: Arc<Guard>) -> anyhow::Result<()> {
    let (mut first, mut second) =
        (signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = first.recv() => guard.pass(Signal::USR1),
                _ = second.recv() => guard.pass(Signal::USR2),
            }
        }
    });
    Ok(())
}
