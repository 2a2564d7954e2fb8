//! A `parm` process of an experiment. It never outlives the experiment.
//!
//! Dropping it kills it. If the experiment itself is killed, the kernel kills the process: every process requests that
//! signal, which even a stopped one obeys. The signal comes when the thread that started the process ends, so only the
//! thread that runs the experiment starts processes. They are in their own process group: an interrupt from the terminal
//! reaches only the experiment, which then ends them in order.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use crate::Error;

/// How a process is started.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// Its name in messages.
    pub(crate) name: String,
    /// The `parm` binary.
    pub(crate) binary: PathBuf,
    /// Its arguments without addresses and readiness.
    pub(crate) arguments: Vec<String>,
    /// The folder of its log and readiness file.
    pub(crate) folder: PathBuf,
}

/// The addresses that a process listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Addresses {
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    pub(crate) metrics: SocketAddr,
}

/// A process that was started.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    launch: Launch,
}

impl Launch {
    /// Starts it, on its previous addresses or on free ports.
    pub(crate) fn start(self, before: Option<Addresses>) -> Result<Process, Error> {
        let _ = fs::remove_file(self.ready_file());
        let log = File::options().create(true).append(true).open(self.log());
        let log = log.map_err(Error::file("write", &self.log()))?;
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        let at = |of: fn(Addresses) -> SocketAddr| before.map_or(free, of).to_string();
        let mut command = Command::new(&self.binary);
        command
            .args(&self.arguments)
            .args([
                "--http",
                &at(|it| it.http),
                "--grpc",
                &at(|it| it.grpc),
                "--metrics",
                &at(|it| it.metrics),
            ])
            .arg("--ready-file")
            .arg(self.ready_file())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0);
        die_with_this_thread(&mut command);
        let child = command.spawn().map_err(|error| self.failed(error.to_string()))?;
        Ok(Process { child, launch: self })
    }

    /// Returns the path of its log.
    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join(format!("{}.log", self.name))
    }

    fn ready_file(&self) -> PathBuf {
        self.folder.join(format!("{}.ready", self.name))
    }

    fn failed(&self, reason: String) -> Error {
        Error::Start { name: self.name.clone(), reason, log: self.log() }
    }
}

impl Process {
    /// Waits until it reports that it is ready.
    pub(crate) fn ready(&mut self, until: Instant) -> Result<Addresses, Error> {
        let file = self.launch.ready_file();
        loop {
            // The file is written atomically.
            if let Ok(text) = fs::read_to_string(&file) {
                return serde_json::from_str(&text).map_err(|error| self.launch.failed(error.to_string()));
            }
            if let Some(status) = self.ended()? {
                return Err(self
                    .launch
                    .failed(format!("it ended with {status}{}", last_words(&self.launch.log()))));
            }
            if Instant::now() > until {
                return Err(self.launch.failed("it was not ready in time".into()));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Fails if it ended.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => {
                let (name, log) = (self.launch.name.clone(), self.launch.log());
                Err(Error::Died { name, status, log })
            }
        }
    }

    /// Stops it with a signal, or lets it continue.
    pub(crate) fn stop(&self, stop: bool) -> Result<(), Error> {
        let (what, signal) = if stop { ("stop", Signal::STOP) } else { ("continue", Signal::CONT) };
        let name = &self.launch.name;
        kill_process(Pid::from_child(&self.child), signal).map_err(|error| Error::Process {
            what,
            name: name.clone(),
            reason: error.to_string(),
        })
    }

    /// Kills it and waits for its end.
    pub(crate) fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Returns the launch with which to start it again.
    pub(crate) fn launch(&self) -> Launch {
        self.launch.clone()
    }

    fn ended(&mut self) -> Result<Option<String>, Error> {
        let failed = |error: std::io::Error| Error::Process {
            what: "watch",
            name: self.launch.name.clone(),
            reason: error.to_string(),
        };
        Ok(self.child.try_wait().map_err(failed)?.map(|status| status.to_string()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the last line of a log, which says why a process ended.
fn last_words(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .map_or_else(String::new, |line| format!(": {line}"))
}

#[allow(unsafe_code)] // what runs between fork and exec has no safe interface
fn die_with_this_thread(command: &mut Command) {
    #[cfg(target_os = "linux")]
    // SAFETY: the closure makes one system call, which allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?));
    }
    #[cfg(not(target_os = "linux"))]
    let _ = command;
}
