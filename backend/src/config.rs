//! Settings of a worker and of embedded instances.

use std::collections::BTreeMap;
use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use parm_durations::{Micros, Millis, PositiveMillis, Whole};
use parm_protocol::{Place, place};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::{Options, Spec, Upstream};

/// Settings of the models and the instances that run them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The machine that this process stands on, such as the name of a Kubernetes node. Frontends are told it with the server's
    /// metadata: they keep copies, parities and stand-ins of a query away from the node that holds it, and say which node
    /// is slow. Default: none, which leaves them the address.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "place::setting")]
    pub node: Option<String>,
    /// The zone of that machine: those of one zone fail together. Default: none.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "place::setting")]
    pub zone: Option<String>,
    /// Folder of models, `NAME/VERSION/model.onnx`. Default: none, which leaves the emulated models.
    pub models: Option<PathBuf>,
    /// Names of the models to load at start. Default: empty, which means all.
    pub load: Vec<String>,
    /// Versions of a model to serve: `latest` (default) or `all`.
    pub versions: VersionPolicy,
    /// Models whose first dimension is no batch though it varies, such as a number of tokens: their requests are never put
    /// together. Default: none.
    pub unbatched: Vec<String>,
    /// Emulated models by name, for experiments; served beside the folder's models. Default: none.
    pub emulated: BTreeMap<String, Spec>,
    /// Another server whose models are served, instead of a folder's.
    pub upstream: Upstream,
    /// What runs the models.
    pub engine: EngineConfig,
    /// Instances: threads that each run one batch at a time. Default 1.
    #[serde(with = "Whole::<1, 1_024>")]
    pub instances: NonZeroUsize,
    /// Requests that may wait in a queue; one more is refused with 503, as it would wait too long anyway, unless its share has
    /// less than its part of the queue. Default 256.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub queue: NonZeroUsize,
    /// So many times the instances' time of a model of weight 1, by model, while requests of both wait. What a model does
    /// not use others may. A model that is in a share of `[share.NAME]` has that one's weight. Default: every model has weight 1.
    pub weights: BTreeMap<String, NonZeroU16>,
    /// Shares that are set up, beside those of models.
    #[serde(skip)]
    pub shares: parm_shares::Settings,
    /// Rows that one request may have; bounds the memory that a request can ask for. Default 1024.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub max_rows: NonZeroUsize,
    /// Milliseconds that a request without a `timeout` may take; also the most that a `timeout` can ask for.
    /// Default 60000.
    #[serde(rename = "max_wait_ms", with = "Millis")]
    pub max_wait: Duration,
    /// Batching across requests. Off by default.
    pub batching: Batching,
    /// Tokens for frontends that share this worker.
    pub tokens: Tokens,
    /// Runs of a model on blank inputs before it counts as ready; 0 turns warm-up (and with it batching) off, for
    /// models that cannot run on zeros. Default 3.
    #[serde(with = "Whole::<0, 1_000>")]
    pub warm_up_runs: u32,
    /// Milliseconds that a model may be measured for with 2, 4 and 8 rows when it is loaded, so that frontends know what it
    /// costs as a stand-in; 0 measures one row only. Default 1000.
    #[serde(rename = "measure_ms", with = "Millis")]
    pub measure: Duration,
    /// Milliseconds between looks for changes in the folder; 0 turns reloading off. A change counts once two looks in a row
    /// saw it. A model is unloaded once two looks in a row missed its folder, and never by a look that finds no model at all.
    /// Default 5000.
    #[serde(rename = "reload_ms", with = "Millis")]
    pub reload: Duration,
    /// Allow fault injection at run time, for experiments. Default false.
    pub faults: bool,
}

/// Tokens: an idle instance is promised to one frontend at a time, so that those that share it do not meet there. Given to
/// frontends over frames, where requests are not batched here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tokens {
    /// Give tokens. Default true.
    pub enabled: bool,
    /// Milliseconds after which a frontend gives back a token that it does not use, where there are others. Default 100.
    #[serde(rename = "lease_ms", with = "PositiveMillis")]
    pub lease: Duration,
    /// Microseconds before which a token is not called back for another frontend: it may be on its way. Default 1000.
    #[serde(rename = "young_us", with = "Micros")]
    pub young: Duration,
    /// Milliseconds after which a token that was called back is void, whether its frontend answers or not. Default 5.
    #[serde(rename = "recall_ms", with = "PositiveMillis")]
    pub recall: Duration,
    /// Reservations that are noted, of all frontends; more are ignored, and made again. Default 1024.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub most_reservations: NonZeroUsize,
}

impl Tokens {
    pub(crate) fn settings(&self) -> parm_tokens::Settings {
        let Self { lease, young, recall, .. } = *self;
        parm_tokens::Settings { lease, young, recall, most_reservations: self.most_reservations.get() }
    }
}

impl Default for Tokens {
    fn default() -> Self {
        let parm_tokens::Settings { lease, young, recall, .. } = parm_tokens::Settings::default();
        let most_reservations = const { NonZeroUsize::new(1024).unwrap() };
        Self { enabled: true, lease, young, recall, most_reservations }
    }
}

/// Which versions of a model are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VersionPolicy {
    /// The one with the highest number.
    #[default]
    Latest,
    /// Every one; a request that names none gets the highest.
    All,
}

/// What runs the models.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    /// `auto` (default), `ort` (ONNX Runtime) or `tract` (built in). `auto` is `ort` where its library is found, and `tract`
    /// elsewhere.
    pub name: String,
    /// `cpu` (default), or `cuda:N` with engine `ort`.
    pub device: String,
    /// Threads that one run may use; more than 1 pays only with `ort` and idle cores. Default 1.
    #[serde(with = "Whole::<1, 1_024>")]
    pub threads: NonZeroUsize,
    /// Path of ONNX Runtime's shared library. Default: the one that ORT_DYLIB_PATH names, or one beside this program, in its
    /// Python environment or the active one (`pip install onnxruntime`), or that the system's loader finds.
    pub onnxruntime: Option<PathBuf>,
    /// Compiled plans that engine `tract` keeps for a model, one for each set of input shapes. Each costs memory of
    /// about the model's size. Default 16.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub plans: NonZeroUsize,
}

/// Batching across requests. Whatever is set here, a model that a batch makes slower per row is not batched: each is
/// measured when it is loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Batching {
    /// Rows in a batch at most. Default 1: no batching.
    #[serde(with = "Whole::<1, 65_535>")]
    pub max_batch: NonZeroUsize,
    /// Microseconds that a request may wait for others to join its batch. Default 0: only those already waiting join.
    #[serde(rename = "max_delay_us", with = "Micros")]
    pub max_delay: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            node: None,
            zone: None,
            models: None,
            load: Vec::new(),
            versions: VersionPolicy::default(),
            unbatched: Vec::new(),
            emulated: BTreeMap::new(),
            upstream: Upstream::default(),
            engine: EngineConfig::default(),
            instances: NonZeroUsize::MIN,
            queue: const { NonZeroUsize::new(256).unwrap() },
            weights: BTreeMap::new(),
            shares: parm_shares::Settings::default(),
            max_rows: const { NonZeroUsize::new(1024).unwrap() },
            max_wait: Duration::from_secs(60),
            batching: Batching::default(),
            tokens: Tokens::default(),
            warm_up_runs: 3,
            measure: Duration::from_secs(1),
            reload: Duration::from_secs(5),
            faults: false,
        }
    }
}

impl Config {
    /// The place of this process.
    pub(crate) fn place(&self) -> Place {
        Place { node: self.node.clone(), zone: self.zone.clone() }
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        let Options { threads, device, onnxruntime, plans } = Options::default();
        Self { name: "auto".into(), device, threads, onnxruntime, plans }
    }
}

impl EngineConfig {
    /// The settings in the form that engines read.
    pub fn options(&self) -> Options {
        let (device, onnxruntime) = (self.device.clone(), self.onnxruntime.clone());
        Options { threads: self.threads, device, onnxruntime, plans: self.plans }
    }
}

impl Default for Batching {
    fn default() -> Self {
        Self { max_batch: NonZeroUsize::MIN, max_delay: Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_file_is_valid_and_a_misspelt_field_is_not() {
        assert_eq!(toml::from_str::<Config>("").unwrap(), Config::default());
        let written = toml::to_string(&Config::default()).unwrap();
        assert_eq!(toml::from_str::<Config>(&written).unwrap(), Config::default());
        let error = toml::from_str::<Config>("[batching]\nmax_bach = 2").unwrap_err();
        assert!(error.to_string().contains("max_bach"), "{error}");
        assert!(toml::from_str::<Config>("instances = 0").is_err());
        // Environment variables give numbers as strings.
        let read = |text| toml::from_str::<Config>(text).map(|config| config.node);
        assert_eq!(read("node = 12"), Ok(Some("12".into())));
        assert_eq!(read("node = \"\""), Ok(None));
        assert!(read("node = \"two words\"").unwrap_err().to_string().contains("one word"));
    }
}
