//! Settings of a worker and of embedded instances.
//!
//! Fields with `skip` are constants outside of tests: no operator has a reason to choose them, so files reject their names.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use parm_durations::Whole;
use parm_protocol::place;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::chat;
use crate::engine::Spec;

/// Models, and the instances that run them in this process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Name of the machine, such as a Kubernetes node. Redundant jobs avoid the node that already runs the query. Default:
    /// none, the address.
    // Frontends receive it with the server's metadata.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "place::setting")]
    pub node: Option<String>,
    /// Zone of the machine; the machines of a zone may fail together. Default: none.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "place::setting")]
    pub zone: Option<String>,
    /// Name of the graphics card, unique among all machines. Redundant jobs avoid the card that already runs the query. Default:
    /// none.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "place::setting")]
    pub card: Option<String>,
    /// Folder of models, as `NAME/VERSION/model.onnx`. Default: none, only emulated models.
    pub models: Option<PathBuf>,
    /// Models to load at start. Default: none, which means all.
    pub load: Vec<String>,
    /// Versions of a model to serve. Default `latest`.
    pub versions: VersionPolicy,
    /// Emulated models by name, for experiments. They are served next to those of the folder. Default: none.
    pub emulated: BTreeMap<String, Spec>,
    /// An emulated server of a language model, next to the models.
    pub chat: chat::Config,
    /// The engine that runs the models.
    pub engine: EngineConfig,
    /// Number of instances: threads that each run one batch at a time. Default 1.
    #[serde(with = "Whole::<1, 1_024>")]
    pub instances: NonZeroUsize,
    /// Requests that may wait in the queue. More are rejected with 503 (load shedding). Default 256.
    // A share with less than its part of the queue may exceed it.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub queue: NonZeroUsize,
    /// Configured shares, next to those of models.
    #[serde(skip)]
    pub shares: parm_shares::Settings,
    /// Largest number of rows in a request. Default 1024.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub max_rows: NonZeroUsize,
    /// Batching across requests. A model that is slower per row in batches is not batched, as measured when it is loaded.
    pub batching: Batching,
    /// Runs of a model on zeros before it is ready. Set 0, which turns batching off as well, for models that cannot run on
    /// zeros. Default 3.
    #[serde(with = "Whole::<0, 1_000>")]
    pub warm_up_runs: u32,
    /// Time to measure a model with 2, 4 and 8 rows when it is loaded; 0 measures one row only. Frontends use the result as its
    /// cost as a stand-in, and a second is enough for it.
    #[serde(skip)]
    pub measure: Duration,
    /// Interval of checks for changes in the folder of models; 0 turns them off. Changes apply after two identical checks, which read
    /// no files but their dates. A check that finds no model at all unloads none.
    #[serde(skip)]
    pub reload: Duration,
    /// Allows fault injection at run time, for experiments. Default false.
    pub faults: bool,
}

/// The versions of a model that are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VersionPolicy {
    /// The one with the highest number.
    #[default]
    Latest,
    /// All; requests without a version get the highest.
    All,
}

/// The engine that runs the models.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    /// Engine: `ort` (ONNX Runtime), `tract` (built in), or `auto`, which is `ort` if its library is found. Default `auto`.
    pub name: String,
    /// Device: `cpu`, or `cuda:N` with ONNX Runtime. With `cuda:N,cpu` models run on the CPU if the card cannot be used. Default
    /// `cpu`.
    pub device: String,
    /// Largest memory of a model on a card in MB, for each instance (`gpu_mem_limit` of ONNX Runtime). 0 sets no limit. Default 0.
    #[serde(with = "Whole::<0, 16_777_216>")]
    pub card_memory_mb: u64,
    /// Threads of one run. More than 1 helps only with `ort` and idle cores. Default 1.
    #[serde(with = "Whole::<1, 1_024>")]
    pub threads: NonZeroUsize,
    /// Path of ONNX Runtime's shared library. Default: that of ORT_DYLIB_PATH, of a Python environment (`pip install
    /// onnxruntime`), or of the system's loader.
    // The folder of the program is searched as well.
    pub onnxruntime: Option<PathBuf>,
    /// Compiled plans that engine `tract` keeps for a model, one for each set of input shapes. Each takes memory of about the
    /// model's size; a model with more than 16 sizes of batches is rare.
    #[serde(skip)]
    pub plans: NonZeroUsize,
}

/// Batching across requests. A model that is slower per row in batches is not batched, as measured when it is loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Batching {
    /// Largest number of rows in a batch. 1 turns batching off. Default 1.
    #[serde(with = "Whole::<1, 65_535>")]
    pub max_batch: NonZeroUsize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            node: None,
            zone: None,
            card: None,
            models: None,
            load: Vec::new(),
            versions: VersionPolicy::default(),
            emulated: BTreeMap::new(),
            chat: chat::Config::default(),
            engine: EngineConfig::default(),
            instances: NonZeroUsize::MIN,
            queue: const { NonZeroUsize::new(256).unwrap() },
            shares: parm_shares::Settings::default(),
            max_rows: const { NonZeroUsize::new(1024).unwrap() },
            batching: Batching::default(),
            warm_up_runs: 3,
            measure: Duration::from_secs(1),
            reload: Duration::from_secs(5),
            faults: false,
        }
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        let plans = const { NonZeroUsize::new(16).unwrap() };
        let threads = NonZeroUsize::MIN;
        Self {
            name: "auto".into(),
            device: "cpu".into(),
            card_memory_mb: 0,
            threads,
            onnxruntime: None,
            plans,
        }
    }
}

impl EngineConfig {
    /// Largest memory of a model on a card, for each instance, in bytes.
    pub(crate) fn card_memory(&self) -> Option<usize> {
        usize::try_from(self.card_memory_mb << 20).ok().filter(|&memory| memory > 0)
    }
}

impl Default for Batching {
    fn default() -> Self {
        Self { max_batch: NonZeroUsize::MIN }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_may_be_empty_and_unknown_or_fixed_fields_are_rejected() {
        assert_eq!(toml::from_str::<Config>("").unwrap(), Config::default());
        let written = toml::to_string(&Config::default()).unwrap();
        assert_eq!(toml::from_str::<Config>(&written).unwrap(), Config::default());
        let error = toml::from_str::<Config>("[batching]\nmax_bach = 2").unwrap_err();
        assert!(error.to_string().contains("max_bach"), "{error}");
        assert!(toml::from_str::<Config>("instances = 0").is_err());
        for fixed in ["measure_ms = 5", "[engine]\nplans = 2", "[tokens]\nenabled = true"] {
            let unknown = toml::from_str::<Config>(fixed).unwrap_err().to_string();
            assert!(unknown.contains("unknown field"), "{fixed}: {unknown}");
        }
        // Variables of the environment may be numbers or empty.
        let read = |text| toml::from_str::<Config>(text).map(|config| config.node);
        assert_eq!(read("node = 12"), Ok(Some("12".into())));
        assert_eq!(read("node = \"\""), Ok(None));
        assert!(read("node = \"two words\"").unwrap_err().to_string().contains("one word"));
    }
}
