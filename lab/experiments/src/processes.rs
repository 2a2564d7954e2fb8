//! How an experiment runs with real processes.

use std::path::PathBuf;
use std::time::Duration;

use parm_durations::PositiveMillis;
use serde::{Deserialize, Serialize};

/// The processes of an experiment: workers on this machine, unless others are named, and a frontend for every run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Processes {
    /// Workers that run already, in the order in which faults count instances. Default: none, `instances` are started.
    pub workers: Vec<Remote>,
    /// Folder of models for workers that are started, and of their bundles. Default: none; workers emulate a linear model
    /// that takes the time that `service` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<PathBuf>,
    /// Engine that runs them. Default `tract`.
    pub engine: String,
    /// The model that is asked. Default `emulated`.
    pub model: String,
    /// Values in a row of the emulated model's input. Default 784.
    pub input: usize,
    /// Values in a row of its output. Default 10.
    pub outputs: usize,
    /// Which of the model's codes makes groups, as `dispatch.coding.code` in the frontend's configuration. Default: its
    /// bundle's; `mds`, which is exact for a linear model, where the model is emulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Milliseconds that processes have to start. Default 30000.
    #[serde(rename = "patience_ms", with = "PositiveMillis")]
    pub patience: Duration,
    /// Keep every answered query in the results folder, one line each. Default true.
    pub raw: bool,
}

/// A worker that runs already.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remote {
    /// Its address: `http://HOST:PORT`, `grpc://HOST:PORT` or `unix:/PATH`.
    pub url: String,
    /// HOST:PORT of its metrics, where faults are injected (`parm worker --faults`). Default: none, it is spared.
    #[serde(default)]
    pub faults: Option<String>,
}

impl Default for Processes {
    fn default() -> Self {
        Self {
            workers: Vec::new(),
            models: None,
            engine: "tract".into(),
            model: "emulated".into(),
            input: 784,
            outputs: 10,
            code: None,
            patience: Duration::from_secs(30),
            raw: true,
        }
    }
}

impl Processes {
    /// Whether workers emulate the model.
    fn emulates(&self) -> bool {
        self.models.is_none() && self.workers.is_empty()
    }

    /// The model that stands in for the emulated one.
    pub(crate) fn stand_in(&self) -> String {
        format!("{}-stand-in", self.model)
    }

    /// Who stands in under the policy `stand-in`, unless a bundle says it.
    pub(crate) fn stand_in_by_name(&self) -> Option<String> {
        self.emulates().then(|| self.stand_in())
    }

    /// The code that is asked for: a model that workers emulate has no bundle, and is its own parity model.
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref().or(self.emulates().then_some("mds"))
    }
}
