//! Metadata of servers and models. The shapes of serde are those of the protocol over REST, and those of prost are its messages of
//! gRPC.

use std::collections::BTreeMap;
use std::time::Duration;

use prost::Message;
use serde::{Deserialize, Deserializer, Serialize};

use crate::Place;

/// The parameter of a configuration: microseconds of a run of 1, 2, 4 and 8 rows, separated by commas; fewer if larger runs took
/// too long.
const RUN_TIMES: &str = "parm_run_us";

/// The processor on which the times were measured.
const PROCESSOR: &str = "parm_processor";

/// Why requests stay whole.
const UNBATCHED: &str = "parm_unbatched";

/// Rows of the measured runs.
pub const MEASURED_ROWS: [usize; 4] = [1, 2, 4, 8];

/// `GET /v2`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerMetadata {
    /// Server name.
    pub name: String,
    /// Server version.
    pub version: String,
    /// Protocol extensions that the server supports.
    #[serde(default, deserialize_with = "or_default")]
    pub extensions: Vec<String>,
    /// The server's node, zone and card, an extension of the protocol; other servers do not send it.
    #[serde(flatten)]
    pub place: Place,
}

/// A tensor of a model; -1 marks a dimension that varies.
#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
pub struct TensorMetadata {
    /// The tensor's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The protocol's datatype name.
    #[prost(string, tag = "2")]
    pub datatype: String,
    /// Dimensions, the batch first if the model has one.
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
}

/// `GET /v2/models/M`.
#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
pub struct ModelMetadata {
    /// The model's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Versions that are ready.
    #[serde(default, deserialize_with = "or_default")]
    #[prost(string, repeated, tag = "2")]
    pub versions: Vec<String>,
    /// Platform, such as `onnx_tract`.
    #[serde(default, deserialize_with = "or_default")]
    #[prost(string, tag = "3")]
    pub platform: String,
    /// Inputs.
    #[prost(message, repeated, tag = "4")]
    pub inputs: Vec<TensorMetadata>,
    /// Outputs.
    #[prost(message, repeated, tag = "5")]
    pub outputs: Vec<TensorMetadata>,
}

/// A tensor in a [`ModelConfig`]: dimensions without the batch, datatype with Triton's `TYPE_` prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelConfigTensor {
    /// The tensor's name.
    pub name: String,
    /// `TYPE_FP32` and so on; strings are `TYPE_STRING`.
    pub data_type: String,
    /// Dimensions; without the batch when `max_batch_size` > 0.
    pub dims: Vec<i64>,
}

/// `GET /v2/models/M/config`: the part of Triton's model configuration that clients read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// The model's name.
    pub name: String,
    /// Platform.
    pub platform: String,
    /// Largest batch; 0 when the model has no batch dimension.
    pub max_batch_size: i32,
    /// Inputs.
    pub input: Vec<ModelConfigTensor>,
    /// Outputs.
    pub output: Vec<ModelConfigTensor>,
    /// Further parameters of the server, by name. Those of other servers count if they have Triton's form.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "in_tritons_form")]
    pub parameters: BTreeMap<String, ModelParameter>,
}

/// A parameter in a [`ModelConfig`].
#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
pub struct ModelParameter {
    /// Its value as text.
    #[prost(string, tag = "1")]
    pub string_value: String,
}

/// The parameters that parm's servers state, in Triton's form, so that they travel wherever configurations do.
impl ModelConfig {
    /// The value of a further parameter.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(|parameter| &*parameter.string_value)
    }

    /// Sets a further parameter; `None` removes it.
    pub(crate) fn set_parameter(&mut self, name: &str, value: Option<String>) {
        match value {
            Some(string_value) => {
                self.parameters.insert(name.into(), ModelParameter { string_value });
            }
            None => {
                self.parameters.remove(name);
            }
        }
    }

    /// The same, with the SHA-256 of the model's file.
    pub fn with_digest(mut self, digest: &str) -> Self {
        self.set_parameter("sha256", Some(digest.into()));
        self
    }

    /// The SHA-256 of the model's file, if the server reports it.
    pub fn digest(&self) -> Option<&str> {
        self.parameter("sha256")
    }

    /// Sets the reason why the server does not take the first dimension for a batch.
    pub fn set_unbatched(&mut self, reason: Option<&str>) {
        self.set_parameter(UNBATCHED, reason.map(str::to_owned));
    }

    /// The reason that the server reports.
    pub fn unbatched(&self) -> Option<&str> {
        self.parameter(UNBATCHED)
    }

    /// Sets the run times of [`MEASURED_ROWS`], which the server measures when it loads the model.
    pub fn set_run_times(&mut self, times: &[Duration]) {
        let micros: Vec<String> = times.iter().map(|time| time.as_micros().max(1).to_string()).collect();
        self.set_parameter(RUN_TIMES, (!times.is_empty()).then(|| micros.join(",")));
    }

    /// The run times of [`MEASURED_ROWS`] that the server reports; invalid values are ignored.
    pub fn run_times(&self) -> Vec<Duration> {
        let Some(said) = self.parameter(RUN_TIMES) else { return Vec::new() };
        let times = said.split(',').take(MEASURED_ROWS.len());
        let times = times.map(|micros| micros.trim().parse().ok().filter(|micros| *micros > 0));
        let times: Option<Vec<u64>> = times.collect();
        times.unwrap_or_default().into_iter().map(Duration::from_micros).collect()
    }

    /// Sets the processor on which the run times were measured.
    pub fn set_processor(&mut self, processor: &str) {
        self.set_parameter(PROCESSOR, Some(processor.into()));
    }

    /// The processor on which the server measured the run times.
    pub fn processor(&self) -> Option<&str> {
        self.parameter(PROCESSOR)
    }
}

/// Ignores `parameters` of another form: the server's models are served nevertheless.
fn in_tritons_form<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, ModelParameter>, D::Error> {
    let serde_json::Value::Object(all) = serde_json::Value::deserialize(from)? else {
        return Ok(BTreeMap::new());
    };
    let read = |(name, value)| Some((name, serde_json::from_value(value).ok()?));
    Ok(all.into_iter().filter_map(read).collect())
}

/// A count and a total duration.
#[derive(Clone, Copy, PartialEq, Eq, Message, Serialize)]
pub struct DurationStatistics {
    /// Events.
    #[prost(uint64, tag = "1")]
    pub count: u64,
    /// Nanoseconds over all events.
    #[prost(uint64, tag = "2")]
    pub ns: u64,
}

/// Statistics of the executions of one batch size.
#[derive(Clone, Copy, PartialEq, Eq, Message, Serialize)]
pub struct BatchStatistics {
    /// Rows in a batch.
    #[prost(uint64, tag = "1")]
    pub batch_size: u64,
    /// Time spent preparing inputs.
    #[prost(message, required, tag = "2")]
    pub compute_input: DurationStatistics,
    /// Time spent in the model.
    #[prost(message, required, tag = "3")]
    pub compute_infer: DurationStatistics,
    /// Time spent extracting outputs.
    #[prost(message, required, tag = "4")]
    pub compute_output: DurationStatistics,
}

/// The durations of a model's requests.
#[derive(Clone, Copy, PartialEq, Eq, Message, Serialize)]
pub struct RequestStatistics {
    /// Requests answered.
    #[prost(message, required, tag = "1")]
    pub success: DurationStatistics,
    /// Requests failed.
    #[prost(message, required, tag = "2")]
    pub fail: DurationStatistics,
    /// Waiting.
    #[prost(message, required, tag = "3")]
    pub queue: DurationStatistics,
    /// Preparing inputs.
    #[prost(message, required, tag = "4")]
    pub compute_input: DurationStatistics,
    /// In the model.
    #[prost(message, required, tag = "5")]
    pub compute_infer: DurationStatistics,
    /// Extracting outputs.
    #[prost(message, required, tag = "6")]
    pub compute_output: DurationStatistics,
}

/// `GET /v2/models/M/stats`, one entry, as Triton's clients read it.
#[derive(Clone, PartialEq, Eq, Message, Serialize)]
pub struct ModelStatistics {
    /// The model's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The version.
    #[prost(string, tag = "2")]
    pub version: String,
    /// Milliseconds since the epoch of the last inference; 0 before the first.
    #[serde(rename = "last_inference")]
    #[prost(uint64, tag = "3")]
    pub last_inference_ms: u64,
    /// Rows inferred.
    #[prost(uint64, tag = "4")]
    pub inference_count: u64,
    /// Batches executed.
    #[prost(uint64, tag = "5")]
    pub execution_count: u64,
    /// Durations.
    #[prost(message, required, tag = "6")]
    pub inference_stats: RequestStatistics,
    /// Statistics by batch size.
    #[prost(message, repeated, tag = "7")]
    pub batch_stats: Vec<BatchStatistics>,
}

/// `POST /v2/repository/index`, one entry.
#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
pub struct ModelIndex {
    /// The model's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The version.
    #[serde(default, deserialize_with = "or_default")]
    #[prost(string, tag = "2")]
    pub version: String,
    /// `READY`, `LOADING`, `UNAVAILABLE`; empty if the server does not state it, as Triton for a model that was never
    /// loaded.
    #[serde(default, deserialize_with = "or_default")]
    #[prost(string, tag = "3")]
    pub state: String,
    /// Why it is not ready.
    #[serde(default, deserialize_with = "or_default")]
    #[prost(string, tag = "4")]
    pub reason: String,
}

/// Reads null as a missing field: many servers in Python write fields without a value.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, from_value, json};

    use super::*;

    fn read<T: DeserializeOwned>(from: Value) -> T {
        from_value(from).unwrap()
    }

    #[test]
    fn optional_fields_may_be_missing_or_null() {
        let absent: Vec<ModelIndex> = read(json!([
            {"name": "m"},
            {"name": "m", "version": null, "state": null, "reason": null},
        ]));
        let named = ModelIndex { name: "m".into(), ..ModelIndex::default() };
        assert_eq!(absent, [named.clone(), named]);
        let null: ModelMetadata =
            read(json!({"name": "m", "versions": null, "platform": null, "inputs": [], "outputs": []}));
        assert_eq!(null, ModelMetadata { name: "m".into(), ..ModelMetadata::default() });
        let null: ServerMetadata = read(json!({"name": "s", "version": "1", "extensions": null}));
        assert_eq!(null.extensions, Vec::<String>::new());
    }

    #[test]
    fn run_times_are_read_as_they_were_set() {
        let mut config = ModelConfig::default();
        assert_eq!(config.run_times(), []);
        let times = [900, 1500, 2800, 5600].map(Duration::from_micros);
        config.set_run_times(&times);
        assert_eq!(config.run_times(), times);
        config.set_run_times(&times[..1]);
        assert_eq!(config.run_times(), times[..1]);
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<ModelConfig>(&text).unwrap(), config);
    }

    #[test]
    fn invalid_run_times_are_ignored_and_the_model_is_kept() {
        for parameters in [
            r#"{"parm_run_us": {"string_value": "fast"}}"#,
            r#"{"parm_run_us": {"string_value": "5,0"}}"#,
            r#"{"parm_run_us": 7, "other": [1]}"#,
            "null",
        ] {
            let text = format!(
                r#"{{"name": "m", "platform": "p", "max_batch_size": 8, "input": [], "output": [], "parameters": {parameters}}}"#
            );
            let config: ModelConfig = serde_json::from_str(&text).unwrap();
            assert_eq!(config.run_times(), [], "{parameters}");
        }
    }
}
