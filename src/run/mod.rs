//! `parm run`: starts copies of a server and serves them.
//!
//! Problem: a balancer helps only those who have several servers, and most people have a command that starts one. Choice: the
//! copies are children of this process, and the frontend of `parm serve` runs in it over their addresses. A copy keeps its
//! port when it is started again, so that the frontend, which has ejected it meanwhile, finds it by its own reconnects.
//!
//! The order at the end is that of a rollout: the frontend stops listening and answers what it has accepted, and only then
//! the copies get SIGTERM.

mod replica;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use parking_lot::Mutex;
use parm_protocol::Error;
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

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
    let ports = free(flags.replicas).map_err(Failure::Run)?;
    let served = flags.serve(ports.iter().map(|port| format!("http://127.0.0.1:{port}")).collect());
    let settings = Settings::for_serve(&served).map_err(Failure::Configuration)?;
    if runtime::dumped(&flags.common, &settings)? {
        return Ok(());
    }
    // Otherwise an address in use would be reported only after models have loaded for minutes.
    for address in [settings.server.http, settings.server.grpc, settings.server.metrics] {
        check(address.0).map_err(runtime::server_failure)?;
    }
    let command = run(flags, &served, settings.clone(), ports);
    runtime::run(&settings, ("parm-run", settings.embeds()), command)
}

async fn run(flags: &Run, served: &cli::Serve, settings: Settings, ports: Vec<u16>) -> Result<(), Failure> {
    let stop = shutdown::token()?;
    if !flags.command.iter().any(|word| word.contains(PLACE)) {
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

/// What stands for the port in a command.
pub const PLACE: &str = "{port}";

/// The first port, and the number of them. Linux gives 32768 and above to outgoing connections: one to a copy that has ended
/// could get the copy's own port as its source, and would then be connected to itself.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// Attempts to find a row of free ports. A machine on which all fail has thousands of servers.
const ATTEMPTS: u64 = 100;

/// Finds this many free ports in a row. The row begins at random, because another `parm run` may be about to use what it has
/// just found free.
pub fn free(count: u16) -> anyhow::Result<Vec<u16>> {
    let random = RandomState::new();
    for attempt in 0..ATTEMPTS {
        let begin = random.hash_one(attempt) % u64::from(COUNT - count);
        let begin = FIRST + u16::try_from(begin).unwrap_or(0);
        let ports: Vec<u16> = (begin..begin + count).collect();
        if ports.iter().all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()) {
            return Ok(ports);
        }
    }
    Err(anyhow!("no {count} free ports in a row between {FIRST} and {}: end other servers", FIRST + COUNT))
}

/// Whether an address can be listened on, or the error.
pub fn check(address: SocketAddr) -> Result<(), Error> {
    let failed =
        |error: io::Error| Error::Listen { address: address.to_string(), message: error.to_string() };
    TcpListener::bind(address).map(drop).map_err(failed)
}

const SCRIPT: &str = r#"
while read -r line; do groups=$line; done
[ -n "$groups" ] || exit 0
for group in $groups; do kill -s TERM -- "-$group"; done
sleep 2
for group in $groups; do kill -s KILL -- "-$group"; done
"#;

/// Ends the copies if parm itself ends without doing so: killed, out of memory, or by a second Ctrl-C.
///
/// Problem: a copy that outlives parm holds its memory, often a graphics card's, and nobody knows of it. The kernel's signal at
/// the death of a parent reaches only the child itself, not the processes that it has started. Choice: a shell reads the
/// process groups of the copies from a pipe whose other end only parm has. When parm ends, for whatever reason, the kernel
/// closes the pipe, and the shell ends the groups of the last line.
#[derive(Debug)]
pub struct Guard(Mutex<State>);

#[derive(Debug)]
struct State {
    groups: BTreeMap<usize, Pid>,
    shell: Option<Child>,
}

impl Guard {
    pub fn start() -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // In a group of its own, so that Ctrl-C does not end it before it is needed.
        let shell = shell.process_group(0).spawn();
        if let Err(error) = &shell {
            tracing::warn!(%error, "no shell watches over the copies: they will outlive parm if it is killed");
        }
        Self(Mutex::new(State { groups: BTreeMap::new(), shell: shell.ok() }))
    }

    /// Notes the process group of a copy, or that it has none any more.
    pub fn note(&self, number: usize, group: Option<Pid>) {
        let State { groups, shell } = &mut *self.0.lock();
        match group {
            Some(group) => groups.insert(number, group),
            None => groups.remove(&number),
        };
        let listed: Vec<String> = groups.values().map(|group| group.as_raw_nonzero().to_string()).collect();
        if let Some(pipe) = shell.as_mut().and_then(|shell| shell.stdin.as_mut()) {
            // Without the shell the copies are only less guarded.
            let _ = writeln!(pipe, "{}", listed.join(" "));
        }
    }

    /// Sends a signal to each copy.
    pub fn pass(&self, signal: Signal) {
        for group in self.0.lock().groups.values() {
            // It may have ended just now.
            let _ = kill_process(*group, signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_in_a_row_and_below_those_of_outgoing_connections() {
        for count in [1, 3, 256] {
            let ports = free(count).unwrap();
            assert_eq!(ports.len(), usize::from(count));
            assert!(ports.windows(2).all(|pair| pair[1] == pair[0] + 1) && ports[0] >= FIRST);
            assert!(*ports.last().unwrap() < 32_768);
        }
    }
}
