//! Keeps one copy running: starts it, waits until it answers, and starts it again after it has ended.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use parm_transport::client::Inquiry;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Guard, PLACE};
use crate::Failure;

/// Pause before the first new start, which doubles with every end in a row: a server that ends at once must not take the
/// processors from the others.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// After this time, an end is not one of a row.
const LASTING: Duration = Duration::from_secs(30);

/// Interval of the requests to a copy that does not answer yet, and the time for one.
const INTERVAL: Duration = Duration::from_millis(50);
const ONE_CHECK: Duration = Duration::from_secs(5);

/// The advice for a copy that may not know its port.
const NO_PLACE: &str = "the command has no {port}: write it where the server's port belongs, such as --port {port}, unless \
                        the server reads the variable PORT";

/// The request that shows whether a copy answers.
#[derive(Clone, Debug)]
pub struct Check {
    pub path: String,
    /// Statuses from here on do not count.
    pub below: u16,
}

/// Hears of a copy's first answer, or why there is none.
pub type First = mpsc::Sender<Result<(), Failure>>;

/// A copy of the server.
#[derive(Debug)]
pub struct Replica {
    pub number: usize,
    pub port: u16,
    pub command: Vec<String>,
    pub check: Check,
    pub start_timeout: Duration,
    pub stop_timeout: Duration,
    pub guard: Arc<Guard>,
}

/// Why a copy is not running.
struct End {
    /// Its process, if it was started.
    pid: Option<i32>,
    reason: String,
    /// The last lines of its output.
    last: VecDeque<String>,
    /// What to do, and the kind of failure, if it has never answered.
    advice: &'static str,
    kind: fn(anyhow::Error) -> Failure,
}

impl Replica {
    /// Runs the copy until `ending` is cancelled, and then ends it. `first` hears of its first answer. If it fails before that,
    /// `first` hears why, and the copy is not started again: a wrong command would only fail again.
    pub async fn keep(self, first: First, ending: CancellationToken) {
        let (mut first, mut pause) = (Some(first), FIRST_PAUSE);
        loop {
            let started = Instant::now();
            let end = self.life(&mut first, &ending).await;
            self.guard.note(self.number, None);
            let Some(end) = end else { return };
            if let Some(first) = first.take() {
                // There is always room for one message of each copy.
                let _ = first.send(Err(self.failure(&end))).await;
                return;
            }
            if started.elapsed() > LASTING {
                pause = FIRST_PAUSE;
            }
            let End { pid, reason, last, .. } = end;
            let (url, last) = (self.url(), last.back().map(String::as_str));
            tracing::warn!(replica = self.number, url, pid, reason, last, restart_in = ?pause, "replica is down");
            tokio::select! {
                () = sleep(pause) => pause = (2 * pause).min(LONGEST_PAUSE),
                () = ending.cancelled() => return,
            }
        }
    }

    /// Starts the copy and waits for its end. `None` if it was ended because parm ends.
    async fn life(&self, first: &mut Option<First>, ending: &CancellationToken) -> Option<End> {
        let mut process = match Process::start(self.number, self.port, &self.command) {
            Ok(process) => process,
            Err(error) => {
                let reason = format!("cannot start '{}': {error}", self.command.join(" "));
                let advice = "check the program's name, or write its path";
                let last = VecDeque::new();
                return Some(End { pid: None, reason, last, advice, kind: Failure::Configuration });
            }
        };
        let pid = Some(process.group.as_raw_pid());
        self.guard.note(self.number, Some(process.group));
        let (reason, advice) = tokio::select! {
            end = self.run(&mut process, first) => end,
            () = ending.cancelled() => {
                process.end(self.number, self.stop_timeout).await;
                return None;
            }
        };
        let has_place = self.command.iter().any(|word| word.contains(PLACE));
        let advice = if has_place { advice } else { NO_PLACE };
        Some(End { pid, reason, last: process.kill().await, advice, kind: Failure::Run })
    }

    /// The address by which the frontend's log names the copy.
    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Waits until the process answers, and then until it ends. Returns why it is to be started again.
    async fn run(&self, process: &mut Process, first: &mut Option<First>) -> (String, &'static str) {
        let started = Instant::now();
        let mut tried = "nothing listens".to_owned();
        tokio::select! {
            reason = process.ended() => return (reason, "run the command alone to see why"),
            asked = timeout(self.start_timeout, self.answers(&mut tried)) => if asked.is_err() {
                let reason = format!("was killed as it did not answer in time ({tried})");
                return (reason, "check that it listens at this port of 127.0.0.1, or raise --start-timeout");
            }
        }
        let took = format!("{:.1} s", started.elapsed().as_secs_f64());
        let (url, pid) = (self.url(), process.group.as_raw_pid());
        tracing::info!(replica = self.number, url, pid, took, "replica answers");
        if let Some(first) = first.take() {
            let _ = first.send(Ok(())).await;
        }
        (process.ended().await, "")
    }

    /// Asks until the copy answers. `tried` says how the last request failed.
    async fn answers(&self, tried: &mut String) {
        let Check { path, below } = &self.check;
        loop {
            match timeout(ONE_CHECK, self.status()).await {
                Ok(Ok(status)) if (100..*below).contains(&status) => return,
                Ok(Ok(status)) => *tried = format!("GET {path} was answered with {status}"),
                Ok(Err(error)) => *tried = format!("GET {path}: {error}"),
                Err(_) => *tried = format!("GET {path} was accepted and not answered"),
            }
            sleep(INTERVAL).await;
        }
    }

    /// The status of one answer.
    async fn status(&self) -> io::Result<u16> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
        let authority = format!("127.0.0.1:{}", self.port);
        let inquiry = Inquiry { authority: &authority, path: &self.check.path, token: None };
        Ok(inquiry.ask(Box::new(stream)).await?.status())
    }

    /// The error of a copy that has never answered.
    fn failure(&self, end: &End) -> Failure {
        let (End { reason, last, advice, kind, .. }, Self { number, port, .. }) = (end, self);
        let last: String = last.iter().map(|line| format!("\n    {line}")).collect();
        let shown = if last.is_empty() { String::new() } else { format!("\nits last lines:{last}") };
        kind(anyhow!("replica {number} at port {port} {reason}: {advice}{shown}"))
    }
}

/// Longest line of output that is written whole.
const LONGEST_LINE: u64 = 8192;

/// Lines that are kept for an error.
const LAST_LINES: usize = 20;

/// Time for the rest of the output, once the group is killed.
const REST: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Process {
    child: Child,
    pub group: Pid,
    ended: Signals,
    output: JoinHandle<VecDeque<String>>,
}

impl Process {
    /// Starts the copy of this number at this port.
    pub fn start(number: usize, port: u16, command: &[String]) -> io::Result<Self> {
        // Before the process exists: its end cannot be missed then.
        let ended = signal(SignalKind::child())?;
        let (reader, writer) = io::pipe()?;
        let port = port.to_string();
        let mut words = command.iter().map(|word| word.replace(PLACE, &port));
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).env("PORT", &port);
        // Python keeps lines back for minutes if its output is not a terminal.
        command.env("PYTHONUNBUFFERED", "1");
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer).process_group(0);
        let child = command.spawn()?;
        // The command still holds the pipe, which must end with the process.
        drop(command);
        let group = Pid::from_child(&child);
        let reader = pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?;
        let output = tokio::spawn(pass_on(number, reader));
        Ok(Self { child, group, ended, output })
    }

    /// Waits until it has ended by itself, and says how.
    pub async fn ended(&mut self) -> String {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return format!("ended ({status})"),
                Ok(None) => {}
                Err(error) => return format!("ended ({error})"),
            }
            self.ended.recv().await;
        }
    }

    /// Ends it within a time: with SIGTERM, then with SIGKILL.
    pub async fn end(mut self, number: usize, patience: Duration) {
        self.signal(Signal::TERM);
        let pid = self.group.as_raw_pid();
        match timeout(patience, self.ended()).await {
            Ok(_) => tracing::info!(replica = number, pid, "replica ended"),
            Err(_) => tracing::warn!(replica = number, pid, "replica ignored SIGTERM and is killed"),
        }
        self.kill().await;
    }

    /// Kills what is left of the group, and returns the last lines of the output.
    pub async fn kill(mut self) -> VecDeque<String> {
        self.signal(Signal::KILL);
        // Its parent has to collect it.
        let _ = timeout(REST, self.ended()).await;
        timeout(REST, &mut self.output).await.ok().and_then(Result::ok).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        // Nothing may be left of the group.
        let _ = kill_process_group(self.group, signal);
    }
}

/// Writes the output with the number of its copy, and returns the last lines.
async fn pass_on(number: usize, pipe: pipe::Receiver) -> VecDeque<String> {
    let mut pipe = BufReader::new(pipe);
    let (mut line, mut last) = (Vec::new(), VecDeque::new());
    while (&mut pipe).take(LONGEST_LINE).read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        // One call, so that the lines of two copies do not mix. Nobody may be reading them.
        let _ = io::stderr().write_all(&[format!("[{number}] ").as_bytes(), text, b"\n"].concat());
        if last.len() == LAST_LINES {
            last.pop_front();
        }
        last.push_back(String::from_utf8_lossy(text).trim_end().to_owned());
        line.clear();
    }
    last
}
