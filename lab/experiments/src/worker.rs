//! The workers of an experiment: started here, or already running elsewhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use parm_workload::distribution::Distribution;
use parm_workload::{Faults, State};
use serde_json::json;

use crate::Remote;

use crate::Error;
use crate::page::Page;
use crate::process::{Addresses, Launch, Process};

/// A worker.
#[derive(Debug)]
pub(crate) struct Worker {
    /// The address for the frontend.
    pub(crate) url: String,
    /// The address for injecting faults.
    faults: Option<String>,
    local: Option<Local>,
}

/// A worker on this machine.
#[derive(Debug)]
struct Local {
    process: Process,
    addresses: Addresses,
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
    /// A worker that already runs.
    pub(crate) fn remote(remote: &Remote) -> Self {
        Self { url: remote.url.clone(), faults: remote.faults.clone(), local: None }
    }

    /// Starts workers and waits until all are ready.
    pub(crate) fn start(launches: Vec<Launch>, until: Instant) -> Result<Vec<Self>, Error> {
        let processes: Result<Vec<_>, _> = launches.into_iter().map(|launch| launch.start(None)).collect();
        let ready = |mut process: Process| {
            let addresses = process.ready(until)?;
            Ok(Self {
                url: format!("http://{}", addresses.http),
                faults: Some(addresses.metrics.to_string()),
                local: Some(Local { process, addresses, state: State::Works }),
            })
        };
        processes?.into_iter().map(ready).collect()
    }

    /// Sends the worker its fault schedule, or the end of all faults.
    pub(crate) fn tell(&self, number: u32, script: Option<Script<'_>>) -> Result<(), Error> {
        let Some(address) = &self.faults else { return Ok(()) };
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
        Page { address, path: "/faults" }.post(plan.to_string().as_bytes()).map(drop)
    }

    /// Applies the part of the schedule that a process cannot apply to itself.
    pub(crate) fn follow(&mut self, state: State, number: u32, script: Script<'_>) -> Result<(), Error> {
        let Some(local) = &mut self.local else { return Ok(()) };
        // A partitioned worker runs and delays its answers itself.
        let state = if state == State::CutOff { State::Works } else { state };
        match (local.state, state) {
            (before, state) if before == state => {
                if state != State::Down {
                    local.process.check()?;
                }
                return Ok(());
            }
            (_, State::Down) => local.process.kill(),
            (State::Down, _) => local.restart()?,
            (_, state) => local.process.stop(state == State::Hangs)?,
        }
        let came_back = local.state == State::Down;
        local.state = state;
        if came_back {
            local.ready()?;
            self.tell(number, Some(script))?;
        }
        Ok(())
    }

    /// Ends its fault.
    pub(crate) fn recover(&mut self) -> Result<(), Error> {
        if let Some(local) = &mut self.local {
            match local.state {
                State::Hangs => local.process.stop(false)?,
                State::Down => {
                    local.restart()?;
                    local.ready()?;
                }
                State::Works | State::CutOff => local.process.check()?,
            }
            local.state = State::Works;
        }
        self.tell(0, None)
    }
}

impl Local {
    /// Restarts it on its previous addresses, where the frontend expects it.
    fn restart(&mut self) -> Result<(), Error> {
        self.process = self.process.launch().start(Some(self.addresses))?;
        Ok(())
    }

    fn ready(&mut self) -> Result<(), Error> {
        self.process.ready(Instant::now() + RESTART).map(drop)
    }
}

/// The longest time of a restart.
const RESTART: std::time::Duration = std::time::Duration::from_secs(10);

/// Writes the configuration of workers that emulate a model and its stand-in.
pub(crate) fn emulated(folder: &Path, config: &crate::Config) -> Result<PathBuf, Error> {
    let (processes, service) = (&config.processes, &config.service);
    if !service.row_times.is_empty() {
        let reason = "`row_times` is for simulations: give `row_share` for real processes, or --simulate";
        return Err(Error::ConfigFile(reason.into()));
    }
    let mean = service.time_ms.mean();
    let model = |time_ms: Distribution, per_row_ms: f64| {
        json!({
            "input": [processes.input],
            "outputs": processes.outputs,
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
