//! The deployed model, as a bundle describes it.

use parm_protocol::DataType;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The model that answers queries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deployed {
    /// The version that the parity models were trained for. Another version wants new ones.
    pub version: u64,
    /// SHA-256 of that version's model file, in hexadecimal.
    pub sha256: String,
    /// Its inputs.
    pub inputs: Vec<Input>,
    /// Its outputs.
    pub outputs: Vec<Output>,
    /// What was done to raw values before they were sent; for clients and loaders, the server does none of it.
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
    /// Its dimensions, -1 for those that vary; the batch first.
    pub shape: Vec<i64>,
    /// The values that the model saw in training. A query outside is served alone: mixed into a parity it could spoil
    /// its neighbours' answers. Default: any finite value.
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
    /// Its dimensions, -1 for those that vary; the batch first.
    pub shape: Vec<i64>,
    /// What the values are: decides how a reconstruction's confidence is found. Default `logits`.
    #[serde(default)]
    pub meaning: Meaning,
    /// The answer for one query when nothing else is there by its deadline. Default: none, the query fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_answer: Option<Vec<f32>>,
}

/// What the values of an output are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Meaning {
    /// Raw scores of classes: a softmax makes probabilities of them.
    #[default]
    Logits,
    /// Probabilities of classes: the graph ends in a softmax.
    Probabilities,
    /// Anything else, such as coordinates: there is no confidence.
    Values,
    /// A vector whose direction counts, such as the embedding of a sentence: there is no confidence.
    Embedding,
}

/// Embeddings say the same if the cosine between them is this or more.
const SAME_DIRECTION: f32 = 0.95;

impl Meaning {
    /// Whether values are of classes, so that one of them is the best.
    pub fn has_classes(self) -> bool {
        matches!(self, Self::Logits | Self::Probabilities)
    }

    /// Whether two embeddings, or two lists of them that are `size` long each, point the same way. What is no number does not.
    pub fn same_directions(a: &[f32], b: &[f32], size: usize) -> bool {
        let mut pairs = a.chunks(size.max(1)).zip(b.chunks(size.max(1)));
        a.len() == b.len() && pairs.all(|(a, b)| cosine(a, b) >= SAME_DIRECTION)
    }
}

/// The cosine between two vectors; 1 between two of zeros, 0 between such a one and another.
pub fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let product =
        |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let sizes = (product(a, a) * product(b, b)).sqrt();
    match sizes {
        0.0 => f32::from(u8::from(product(a, a) == product(b, b))),
        _ => (product(a, b) / sizes) as f32,
    }
}

/// A closed range of values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The least.
    pub low: f32,
    /// The greatest.
    pub high: f32,
}

/// Normalisation: `(raw * scale - mean) / deviation`, channel by channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Preprocessing {
    /// Factor on raw values, such as 1/255 for bytes. Default 1.
    pub scale: f32,
    /// Subtracted per channel; one value serves all. Default 0.
    pub mean: Vec<f32>,
    /// Divided by per channel; one value serves all. Default 1.
    pub deviation: Vec<f32>,
}

impl Default for Preprocessing {
    fn default() -> Self {
        Self { scale: 1.0, mean: vec![0.0], deviation: vec![1.0] }
    }
}

/// Datatypes by the protocol's names.
mod text {
    use super::*;

    pub(super) fn serialize<S: Serializer>(datatype: &DataType, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(datatype.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DataType, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embeddings_are_the_same_where_they_point_the_same_way() {
        assert!(Meaning::same_directions(&[1.0, 2.0], &[10.0, 21.0], 2));
        assert!(!Meaning::same_directions(&[1.0, 2.0], &[2.0, 1.0], 2));
        assert!(!Meaning::same_directions(&[1.0, 2.0, 1.0, 0.0], &[1.0, 2.0, 0.0, 1.0], 2), "each counts");
        assert!(!Meaning::same_directions(&[1.0, 2.0], &[1.0], 2));
        assert!(!Meaning::same_directions(&[f32::NAN, 2.0], &[1.0, 2.0], 2));
        assert_eq!((cosine(&[0.0], &[0.0]), cosine(&[0.0], &[3.0])), (1.0, 0.0));
        assert_eq!((cosine(&[1e-23, 0.0], &[0.0, 1e-23]), cosine(&[3e19], &[3e19])), (0.0, 1.0));
    }
}
