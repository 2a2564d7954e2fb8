//! One process of a copy, with the processes that it starts: they share a process group.

use std::collections::VecDeque;
use std::io;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::timeout;

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
        let mut words = command.iter().map(|word| word.replace(super::port::PLACE, &port));
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
