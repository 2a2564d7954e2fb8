//! The frontend of a run: a separate process, so that no run inherits what another learned.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use parm_settings::PolicyKind;
use parm_simulator::Run;
use serde_json::{Value, json};

use crate::Processes;

use crate::Error;
use crate::page::{Page, metric};
use crate::process::{Addresses, Launch, Process};

/// A frontend over the workers of a run.
#[derive(Debug)]
pub(crate) struct Frontend {
    process: Process,
    addresses: Addresses,
}

/// The binary, the folder and the purpose of a frontend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<'a> {
    pub(crate) binary: &'a Path,
    pub(crate) folder: &'a Path,
    /// The name of its files.
    pub(crate) name: &'a str,
    pub(crate) processes: &'a Processes,
    pub(crate) workers: &'a [&'a str],
}

/// The work of a frontend's workers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Work {
    /// Jobs that ended.
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
        let launch = Launch {
            name: order.name.into(),
            binary: order.binary.into(),
            arguments: vec!["serve".into(), "--config".into(), config.display().to_string()],
            folder,
        };
        let patience = order.processes.patience;
        let until = Instant::now() + patience;
        let log = launch.log();
        let mut process = launch.start(None)?;
        let addresses = process.ready(until)?;
        let mut frontend = Self { process, addresses };
        let wanted = order.workers.len() as u32;
        loop {
            let ready = metric(&frontend.page()?, "parm_instances", &["state=\"ready\""]) as u32;
            if ready == wanted {
                return Ok(frontend);
            }
            frontend.process.check()?;
            if Instant::now() > until {
                let waited_ms = patience.as_millis() as u64;
                return Err(Error::NotReady { ready, wanted, waited_ms, log });
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns its address for clients.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addresses.http)
    }

    /// Returns the work so far.
    pub(crate) fn work(&self) -> Result<Work, Error> {
        let page = self.page()?;
        let jobs = metric(&page, "parm_instance_service_seconds_count", &[]) as u64;
        Ok(Work { jobs, busy: metric(&page, "parm_instance_service_seconds_sum", &[]) })
    }

    /// Fails if it ended.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        self.process.check()
    }

    fn page(&self) -> Result<String, Error> {
        Page { address: &self.addresses.metrics.to_string(), path: "/metrics" }.get()
    }
}

/// Returns the configuration of `parm serve`.
fn configuration(run: &Run, order: Order<'_>) -> Result<String, Error> {
    let deadline_ms = run.deadline.as_millis() as u64;
    let unwritable = |reason: String| Error::Process { what: "configure", name: order.name.into(), reason };
    let mut dispatch = serde_json::to_value(&run.settings).map_err(|error| unwritable(error.to_string()))?;
    let codes = run.settings.policy.is_coded();
    if let Some(code) = order.processes.code().filter(|_| codes && dispatch["coding"]["code"].is_null()) {
        dispatch["coding"]["code"] = code.into();
    }
    let stands_in = run.settings.policy == PolicyKind::StandIn;
    if let Some(model) = order.processes.stand_in_by_name().filter(|_| stands_in) {
        dispatch["stand_in"]["model"] = model.into();
    }
    let mut config = json!({
        "frontend": {
            "workers": order.workers,
            "bundles": order.processes.models,
            "requests": {"default_deadline_ms": deadline_ms.max(1)},
            "instances": {"slots": run.shape.slots},
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
