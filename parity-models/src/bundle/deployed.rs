//! The deployed model, as described by a bundle.

use parm_protocol::DataType;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Meaning;

/// The model that answers queries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deployed {
    /// The version for which the parity models were trained. Another version requires new ones.
    pub version: u64,
    /// SHA-256 of that version's model file, in hexadecimal.
    pub sha256: String,
    /// Its inputs.
    pub inputs: Vec<Input>,
    /// Its outputs.
    pub outputs: Vec<Output>,
    /// The preprocessing of raw values before they are sent, for clients and loaders; the server does none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preprocessing: Option<Preprocessing>,
}

/// An input tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Its name.
    pub name: String,
    /// Its element type, such as `FP32`.
    #[serde(with = "text")]
    pub datatype: DataType,
    /// Its dimensions, the batch first; -1 for dynamic ones.
    pub shape: Vec<i64>,
    /// The range of values in training. A query outside it is served alone, since it could spoil the answers of its
    /// group. Default: any finite value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
}

/// An output tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// Its name.
    pub name: String,
    /// Its element type, such as `FP32`.
    #[serde(with = "text")]
    pub datatype: DataType,
    /// Its dimensions, the batch first; -1 for dynamic ones.
    pub shape: Vec<i64>,
    /// The meaning of the values, which decides how confidence is computed. Default `logits`.
    #[serde(default)]
    pub meaning: Meaning,
    /// The answer for one query that has no other answer by its deadline. Default: none, the query fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_answer: Option<Vec<f32>>,
}

/// A closed range of values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The smallest value.
    pub low: f32,
    /// The largest value.
    pub high: f32,
}

/// Normalisation: `(raw * scale - mean) / deviation`, channel by channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Preprocessing {
    /// Factor on raw values, such as 1/255 for bytes. Default 1.
    pub scale: f32,
    /// Subtracted per channel; a single value applies to all. Default 0.
    pub mean: Vec<f32>,
    /// Divisor per channel; a single value applies to all. Default 1.
    pub deviation: Vec<f32>,
}

impl Default for Preprocessing {
    fn default() -> Self {
        Self { scale: 1.0, mean: vec![0.0], deviation: vec![1.0] }
    }
}

/// Serialises datatypes by their names in the protocol.
mod text {
    use super::*;

    pub(super) fn serialize<S: Serializer>(datatype: &DataType, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(datatype.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DataType, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
