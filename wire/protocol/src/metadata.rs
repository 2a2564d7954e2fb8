//! Metadata of servers and models. The shapes of serde are those of the protocol over REST, and those of prost are its messages of
//! gRPC.

use std::collections::BTreeMap;

use prost::Message;
use serde::{Deserialize, Deserializer, Serialize};

use crate::Place;

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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelParameter {
    /// Its value as text.
    pub string_value: String,
}

impl ModelConfig {
    /// The same, with the SHA-256 of the model's file.
    pub fn with_digest(mut self, digest: &str) -> Self {
        self.parameters.insert("sha256".into(), ModelParameter { string_value: digest.into() });
        self
    }

    /// The SHA-256 of the model's file, if the server reports it.
    pub fn digest(&self) -> Option<&str> {
        self.parameters.get("sha256").map(|parameter| &*parameter.string_value)
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
}
