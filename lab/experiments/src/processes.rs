//! The settings of an experiment with real processes.

use std::path::PathBuf;
use std::time::Duration;

use parm_durations::PositiveMillis;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// The processes of an experiment: workers on this machine, unless others are named, and a frontend for every run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Processes {
    /// Workers that already run, in the order in which faults count instances. Default: none, `instances` are started.
    pub workers: Vec<Remote>,
    /// Folder of models for workers that are started, and of their bundles. Default: none; workers emulate a linear model
    /// with the service time of `service`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<PathBuf>,
    /// Engine that runs them. Default `tract`.
    pub engine: String,
    /// The model that receives the queries. Default `emulated`.
    pub model: String,
    /// Values in a row of the emulated model's input. Default 784.
    #[serde(deserialize_with = "size")]
    pub input: usize,
    /// Values in a row of its output. Default 10.
    #[serde(deserialize_with = "size")]
    pub outputs: usize,
    /// The code of groups, as `dispatch.coding.code` in the frontend's configuration. Default: that of the model's
    /// bundle; `mds`, which is exact for a linear model, if the model is emulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Milliseconds that processes have to start. Default 30000.
    #[serde(rename = "patience_ms", with = "PositiveMillis")]
    pub patience: Duration,
    /// Keep every answered query in the results folder, one line each. Default true.
    pub raw: bool,
}

/// Reads a number of values. Other commands expect a file with this name.
fn size<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    let expected = "expected a whole number: the values in a row of the emulated model's input or output";
    usize::deserialize(from).map_err(|_| D::Error::custom(expected))
}

/// A worker that already runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remote {
    /// Its address: `http://HOST:PORT`, `grpc://HOST:PORT` or `unix:/PATH`.
    pub url: String,
    /// HOST:PORT of its metrics, through which faults are injected (`parm worker --faults`). Default: none, it has no
    /// faults.
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
    pub(crate) fn emulates(&self) -> bool {
        self.models.is_none() && self.workers.is_empty()
    }

    /// Returns the name of the emulated model's stand-in.
    pub(crate) fn stand_in(&self) -> String {
        format!("{}-stand-in", self.model)
    }

    /// Returns the stand-in of the policy `stand-in`, unless a bundle defines it.
    pub(crate) fn stand_in_by_name(&self) -> Option<String> {
        self.emulates().then(|| self.stand_in())
    }

    /// Returns the configured code: an emulated model has no bundle and is its own parity model.
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref().or(self.emulates().then_some("mds"))
    }
}
