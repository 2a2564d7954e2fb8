//! The processes of an experiment: workers, and a frontend for every run.
//!
//! No process outlives the experiment. Dropping one kills it. If the experiment itself is killed, the kernel kills the process:
//! every process requests that signal, which even a stopped one obeys. The signal comes when the thread that started the
//! process ends, so only the thread that runs the experiment starts processes. They are in their own process group: an
//! interrupt from the terminal reaches only the experiment, which then ends them in order.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use parm_settings::PolicyKind;
use parm_workload::Time;
use parm_workload::distribution::Distribution;
use parm_workload::{Faults, Schedule, State};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::experiments::{Config, Processes};
use crate::simulator::Run;

#[derive(Debug)]
pub(crate) struct Fleet {
    workers: Vec<Worker>,
}

/// The longest time in which a process starts.
const STARTS: Duration = Duration::from_secs(30);
/// The longest time of a restart.
const RESTART: Duration = Duration::from_secs(10);
/// The longest time between two checks of the workers.
const WATCH: Duration = Duration::from_millis(20);

impl Fleet {
    /// Starts as many workers as an experiment needs.
    pub(crate) fn start(config: &Config, count: u32, binary: &Path, folder: &Path) -> Result<Self, Error> {
        let processes = &config.processes;
        let folder = folder.join("processes");
        fs::create_dir_all(&folder).map_err(Error::file("create", &folder))?;
        let models = match &processes.models {
            Some(models) => vec!["--models".to_owned(), models.display().to_string()],
            None => {
                let path = emulated(&folder, config)?;
                vec!["--config".to_owned(), path.display().to_string()]
            }
        };
        let launch = |number: u32| {
            let mut arguments =
                vec!["worker".to_owned(), "--faults".into(), "--instances".into(), "1".into()];
            arguments.extend(["--engine".to_owned(), processes.engine.clone()]);
            arguments.extend(models.iter().cloned());
            if processes.models.is_none() {
                // Otherwise all would draw the same service times.
                let seed = config.seed.wrapping_mul(1000).wrapping_add(u64::from(number)) >> 1;
                for model in [processes.model.clone(), processes.stand_in()] {
                    arguments.extend(["--set".into(), format!("backend.emulated.{model}.seed={seed}")]);
                }
            }
            Process::start(format!("worker-{number}"), binary, arguments, &folder)
        };
        let until = Instant::now() + STARTS;
        let processes: Result<Vec<_>, _> = (0..count).map(launch).collect();
        let workers = processes?.into_iter().map(|process| Worker::started(process, until));
        Ok(Self { workers: workers.collect::<Result<_, _>>()? })
    }

    /// Returns the addresses of the first `count` workers.
    pub(crate) fn urls(&self, count: u32) -> Vec<String> {
        let url = |worker: &Worker| format!("http://{}", worker.process.addresses.http);
        self.workers.iter().take(count as usize).map(url).collect()
    }

    /// Sends the fault schedule of a run to its workers.
    pub(crate) fn tell(&self, script: Script<'_>) -> Result<(), Error> {
        let mut concerned = (0..script.instances).zip(&self.workers);
        concerned.try_for_each(|(number, worker)| worker.tell(number, Some(script)))
    }

    /// Stops, continues, kills and restarts workers by the schedule, and checks that no other dies, until `over` is true.
    pub(crate) fn play(
        &mut self,
        script: Script<'_>,
        stop: &CancellationToken,
        over: impl Fn() -> bool,
    ) -> Result<(), Error> {
        let mut schedule = Schedule::new(script.faults, script.seed, script.instances)?;
        while !over() {
            if stop.is_cancelled() {
                return Err(Error::Interrupted);
            }
            let now = Time::ZERO + Instant::now().saturating_duration_since(script.start);
            let mut next = Time::MAX;
            for (number, worker) in (0..script.instances).zip(&mut self.workers) {
                let condition = schedule.condition(number, now);
                worker.follow(condition.state, number, script)?;
                schedule.forget(number, now);
                next = next.min(condition.until);
            }
            thread::sleep(next.since(now).clamp(Duration::from_micros(200), WATCH));
        }
        Ok(())
    }

    /// Ends the faults of all workers.
    pub(crate) fn recover(&mut self) -> Result<(), Error> {
        self.workers.iter_mut().try_for_each(Worker::recover)
    }
}

/// A frontend over the workers of a run.
#[derive(Debug)]
pub(crate) struct Frontend(Process);

/// The binary, the folder and the purpose of a frontend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<'a> {
    pub(crate) binary: &'a Path,
    pub(crate) folder: &'a Path,
    /// The name of its files.
    pub(crate) name: &'a str,
    pub(crate) processes: &'a Processes,
    pub(crate) workers: &'a [String],
}

/// The work of a frontend's workers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Work {
    pub(crate) jobs: u64,
    /// Total seconds of these jobs.
    pub(crate) busy: f64,
}

impl Frontend {
    /// Starts it and waits until every worker has joined.
    pub(crate) fn start(run: &Run, order: Order<'_>) -> Result<Self, Error> {
        let folder = order.folder.join("processes");
        let config = folder.join(format!("{}.toml", order.name));
        fs::write(&config, configuration(run, order)?).map_err(Error::file("write", &config))?;
        let arguments = vec!["serve".into(), "--config".into(), config.display().to_string()];
        let until = Instant::now() + STARTS;
        let mut frontend = Self(Process::start(order.name.into(), order.binary, arguments, &folder)?);
        frontend.0.ready(until)?;
        let wanted = order.workers.len() as u32;
        loop {
            let ready = metric(&frontend.page()?, "parm_instances", &["state=\"ready\""]) as u32;
            if ready == wanted {
                return Ok(frontend);
            }
            frontend.check()?;
            if Instant::now() > until {
                let waited_ms = STARTS.as_millis() as u64;
                return Err(Error::NotReady { ready, wanted, waited_ms, log: frontend.0.log() });
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.0.addresses.http)
    }

    pub(crate) fn work(&self) -> Result<Work, Error> {
        let page = self.page()?;
        let jobs = metric(&page, "parm_instance_service_seconds_count", &[]) as u64;
        Ok(Work { jobs, busy: metric(&page, "parm_instance_service_seconds_sum", &[]) })
    }

    pub(crate) fn check(&mut self) -> Result<(), Error> {
        self.0.check()
    }

    fn page(&self) -> Result<String, Error> {
        self.0.page("GET", "/metrics", b"")
    }
}

fn configuration(run: &Run, order: Order<'_>) -> Result<String, Error> {
    let deadline_ms = run.deadline.as_millis() as u64;
    let unwritable = |reason: String| Error::Process { what: "configure", name: order.name.into(), reason };
    let mut dispatch = serde_json::to_value(&run.settings).map_err(|error| unwritable(error.to_string()))?;
    // An emulated model has no bundle: it is its own parity model, for which this code is exact, and has a stand-in by name.
    if order.processes.emulates() {
        if run.settings.policy.is_coded() && dispatch["coding"]["code"].is_null() {
            dispatch["coding"]["code"] = "mds".into();
        }
        if run.settings.policy == PolicyKind::StandIn {
            dispatch["stand_in"]["model"] = order.processes.stand_in().into();
        }
    }
    let mut config = json!({
        "frontend": {
            "workers": order.workers,
            "bundles": order.processes.models,
            "requests": {"default_deadline_ms": deadline_ms.max(1)},
            "instances": {"slots": run.slots},
            "dispatch": dispatch,
        },
    });
    leave_out_nulls(&mut config);
    toml::to_string(&config).map_err(|error| unwritable(error.to_string()))
}

/// Removes unset values: TOML has no null.
fn leave_out_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(leave_out_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(leave_out_nulls),
        _ => {}
    }
}

/// A worker.
#[derive(Debug)]
struct Worker {
    process: Process,
    /// The state that was applied last.
    state: State,
}

/// A fault schedule for workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script<'a> {
    pub(crate) faults: &'a Faults,
    pub(crate) seed: u64,
    pub(crate) instances: u32,
    pub(crate) start: Instant,
}

impl Worker {
    /// Waits until its process is ready.
    fn started(mut process: Process, until: Instant) -> Result<Self, Error> {
        process.ready(until)?;
        Ok(Self { process, state: State::Works })
    }

    /// Sends the worker its fault schedule, or the end of all faults.
    fn tell(&self, number: u32, script: Option<Script<'_>>) -> Result<(), Error> {
        let plan = match script {
            None => json!({}),
            Some(Script { faults, seed, instances, start }) => {
                let now = Instant::now();
                let away = start.saturating_duration_since(now).as_millis() as i64;
                let ago = now.saturating_duration_since(start).as_millis() as i64;
                let starts_in_ms = away - ago;
                json!({"schedule": {
                    "faults": faults, "seed": seed, "first": number, "instances": instances,
                    "starts_in_ms": starts_in_ms,
                }})
            }
        };
        self.process.page("POST", "/faults", plan.to_string().as_bytes()).map(drop)
    }

    /// Applies the part of the schedule that a process cannot apply to itself.
    fn follow(&mut self, state: State, number: u32, script: Script<'_>) -> Result<(), Error> {
        let process = &mut self.process;
        // A partitioned worker runs and delays its answers itself.
        let state = if state == State::CutOff { State::Works } else { state };
        match (self.state, state) {
            (before, state) if before == state => {
                return if state == State::Down { Ok(()) } else { process.check() };
            }
            (_, State::Down) => process.kill(),
            (State::Down, _) => process.restart()?,
            (_, state) => process.stop(state == State::Hangs)?,
        }
        if std::mem::replace(&mut self.state, state) == State::Down {
            process.ready(Instant::now() + RESTART)?;
            self.tell(number, Some(script))?;
        }
        Ok(())
    }

    /// Ends its fault.
    fn recover(&mut self) -> Result<(), Error> {
        let process = &mut self.process;
        match std::mem::replace(&mut self.state, State::Works) {
            State::Hangs => process.stop(false)?,
            State::Down => {
                process.restart()?;
                process.ready(Instant::now() + RESTART)?;
            }
            State::Works | State::CutOff => process.check()?,
        }
        self.tell(0, None)
    }
}

/// Writes the configuration of workers that emulate a model and its stand-in.
fn emulated(folder: &Path, config: &Config) -> Result<PathBuf, Error> {
    let (processes, service) = (&config.processes, &config.service);
    if !service.row_times.is_empty() {
        let reason = "`row_times` is for simulations: give `row_share` for real processes, or --simulate";
        return Err(Error::ConfigFile(reason.into()));
    }
    let mean = service.time_ms.mean();
    let model = |time_ms: Distribution, per_row_ms: f64| {
        json!({
            "input": [784],
            "outputs": 10,
            "time_ms": time_ms,
            "per_row_ms": per_row_ms,
        })
    };
    // The emulated stand-in computes the same in less time: agreement is for real models.
    let [one, .., eight] = config.stand_in_cost.cost().rows;
    let models = json!({
        processes.model.clone(): model(service.time_ms.clone(), service.row_share * mean),
        processes.stand_in(): model(service.time_ms.scaled(one), mean * (eight - one) / 7.0),
    });
    let path = folder.join("worker.toml");
    let text = toml::to_string(&json!({"backend": {"emulated": models}})).map_err(|error| Error::File {
        what: "write",
        path: path.clone(),
        reason: error.to_string(),
    })?;
    fs::write(&path, text).map_err(Error::file("write", &path))?;
    Ok(path)
}

/// The addresses that a process listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
struct Addresses {
    http: SocketAddr,
    grpc: SocketAddr,
    metrics: SocketAddr,
}

#[derive(Debug)]
struct Process {
    name: String,
    binary: PathBuf,
    /// Without addresses and readiness.
    arguments: Vec<String>,
    /// The folder of its log and readiness file.
    folder: PathBuf,
    /// Free ports until it is ready for the first time.
    addresses: Addresses,
    child: Option<Child>,
}

impl Process {
    fn start(name: String, binary: &Path, arguments: Vec<String>, folder: &Path) -> Result<Self, Error> {
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        let addresses = Addresses { http: free, grpc: free, metrics: free };
        let (binary, folder) = (binary.into(), folder.into());
        let mut process = Self { name, binary, arguments, folder, addresses, child: None };
        process.restart()?;
        Ok(process)
    }

    /// Starts it on its previous addresses, where the frontend expects it.
    fn restart(&mut self) -> Result<(), Error> {
        let _ = fs::remove_file(self.ready_file());
        let log = File::options().create(true).append(true).open(self.log());
        let log = log.map_err(Error::file("write", &self.log()))?;
        let Addresses { http, grpc, metrics } = self.addresses;
        let mut command = Command::new(&self.binary);
        command.args(&self.arguments);
        for (flag, address) in [("--http", http), ("--grpc", grpc), ("--metrics", metrics)] {
            command.arg(flag).arg(address.to_string());
        }
        command.arg("--ready-file").arg(self.ready_file());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        die_with_this_thread(&mut command);
        self.child = Some(command.spawn().map_err(|error| self.failed(error.to_string()))?);
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.folder.join(format!("{}.log", self.name))
    }

    fn ready_file(&self) -> PathBuf {
        self.folder.join(format!("{}.ready", self.name))
    }

    fn failed(&self, reason: String) -> Error {
        Error::Start { name: self.name.clone(), reason, log: self.log() }
    }

    /// Waits until it reports that it is ready, and its addresses.
    fn ready(&mut self, until: Instant) -> Result<(), Error> {
        let file = self.ready_file();
        loop {
            // The file is written atomically.
            if let Ok(text) = fs::read_to_string(&file) {
                let read = serde_json::from_str(&text).map_err(|error| self.failed(error.to_string()));
                self.addresses = read?;
                return Ok(());
            }
            if let Some(status) = self.ended()? {
                return Err(self.failed(format!("it ended with {status}{}", last_words(&self.log()))));
            }
            if Instant::now() > until {
                return Err(self.failed("it was not ready in time".into()));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn check(&mut self) -> Result<(), Error> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => Err(Error::Died { name: self.name.clone(), status, log: self.log() }),
        }
    }

    fn troubled(&self, what: &'static str, reason: &dyn std::error::Error) -> Error {
        Error::Process { what, name: self.name.clone(), reason: reason.to_string() }
    }

    /// Stops it with a signal, or lets it continue.
    fn stop(&self, stop: bool) -> Result<(), Error> {
        let (what, signal) = if stop { ("stop", Signal::STOP) } else { ("continue", Signal::CONT) };
        let Some(child) = &self.child else { return Ok(()) };
        kill_process(Pid::from_child(child), signal).map_err(|error| self.troubled(what, &error))
    }

    /// Asks for a page outside the protocol: the metrics, or the faults of a worker. Each request has its own connection, which
    /// is read to the end: HTTP/1.0 has no chunks.
    fn page(&self, method: &str, path: &'static str, body: &[u8]) -> Result<String, Error> {
        let address = self.addresses.metrics;
        let failed = |answer: String| Error::Page { address: address.to_string(), path, answer };
        let exchange = || -> std::io::Result<Vec<u8>> {
            let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            let length = body.len();
            write!(
                stream,
                "{method} {path} HTTP/1.0\r\nhost: {address}\r\ncontent-length: {length}\r\n\r\n"
            )?;
            stream.write_all(body)?;
            let mut answer = Vec::new();
            stream.take(LONGEST).read_to_end(&mut answer)?;
            Ok(answer)
        };
        let answer = exchange().map_err(|error| failed(error.to_string()))?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        match head.split(' ').nth(1).unwrap_or("nothing") {
            "200" => Ok(body.to_owned()),
            status => Err(failed(format!("{status}: {}", body.trim()))),
        }
    }

    fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn ended(&mut self) -> Result<Option<String>, Error> {
        let status = self.child.as_mut().map(Child::try_wait).transpose();
        Ok(status.map_err(|error| self.troubled("watch", &error))?.flatten().map(|status| status.to_string()))
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

/// The longest time and the largest size of an answer.
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST: u64 = 8 << 20;

/// Returns the sum of a metric's samples over all label sets that contain every one of `labels`.
fn metric(page: &str, name: &str, labels: &[&str]) -> f64 {
    page.lines()
        .filter_map(|line| line.strip_prefix(name))
        .filter(|rest| rest.starts_with(['{', ' ']) && labels.iter().all(|label| rest.contains(label)))
        .filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_is_summed_over_matching_labels() {
        let page = "# HELP a b\njobs{model=\"m\"} 3\njobs{model=\"n\"} 4\njobs_total 9\njobs 1\n";
        assert_eq!(metric(page, "jobs", &[]), 8.0);
        assert_eq!(metric(page, "jobs", &["model=\"n\""]), 4.0);
        assert_eq!(metric(page, "none", &[]), 0.0);
    }
}
