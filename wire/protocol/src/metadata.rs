//! Metadata of servers and models. The serde shapes are the protocol's REST shapes.

use std::collections::BTreeMap;

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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorMetadata {
    /// The tensor's name.
    pub name: String,
    /// The protocol's datatype name.
    pub datatype: String,
    /// Dimensions, the batch first if the model has one.
    pub shape: Vec<i64>,
}

/// `GET /v2/models/M`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelMetadata {
    /// The model's name.
    pub name: String,
    /// Versions that are ready.
    #[serde(default, deserialize_with = "or_default")]
    pub versions: Vec<String>,
    /// Platform, such as `onnx_tract`.
    #[serde(default, deserialize_with = "or_default")]
    pub platform: String,
    /// Inputs.
    pub inputs: Vec<TensorMetadata>,
    /// Outputs.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurationStatistics {
    /// Events.
    pub count: u64,
    /// Nanoseconds over all events.
    pub ns: u64,
}

/// Statistics of the executions of one batch size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchStatistics {
    /// Rows in a batch.
    pub batch_size: u64,
    /// Time spent preparing inputs.
    pub compute_input: DurationStatistics,
    /// Time spent in the model.
    pub compute_infer: DurationStatistics,
    /// Time spent extracting outputs.
    pub compute_output: DurationStatistics,
}

/// `GET /v2/models/M/stats`, one entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelStatistics {
    /// The model's name.
    pub name: String,
    /// The version.
    pub version: String,
    /// Milliseconds since the epoch of the last inference; 0 before the first.
    pub last_inference_ms: u64,
    /// Rows inferred.
    pub inference_count: u64,
    /// Batches executed.
    pub execution_count: u64,
    /// Requests answered.
    pub success: DurationStatistics,
    /// Requests failed.
    pub fail: DurationStatistics,
    /// Waiting.
    pub queue: DurationStatistics,
    /// Preparing inputs.
    pub compute_input: DurationStatistics,
    /// In the model.
    pub compute_infer: DurationStatistics,
    /// Extracting outputs.
    pub compute_output: DurationStatistics,
    /// Statistics by batch size.
    pub batch_stats: Vec<BatchStatistics>,
}

/// `POST /v2/repository/index`, one entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelIndex {
    /// The model's name.
    pub name: String,
    /// The version.
    #[serde(default, deserialize_with = "or_default")]
    pub version: String,
    /// `READY`, `LOADING`, `UNAVAILABLE`; empty if the server does not state it, as Triton for a model that was never
    /// loaded.
    #[serde(default, deserialize_with = "or_default")]
    pub state: String,
    /// Why it is not ready.
    #[serde(default, deserialize_with = "or_default")]
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
