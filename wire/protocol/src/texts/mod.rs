//! Requests of embedding servers, as requests of the protocol: OpenAI's `/v1/embeddings`, `/v1/rerank`, and `/embed` and
//! `/rerank` of Text Embeddings Inference.
//!
//! They go to models with one input of strings: a text in each row, or a query and a text to score. The model may be one
//! of parm's own text models or any other of this form.

mod embeddings;
mod packed;
mod rerank;

use std::borrow::Cow;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use embeddings::{Embed, Embeddings};
pub use packed::Packed;
pub use rerank::{Rerank, ScoreDocuments};

use crate::bounds::Room;
use crate::{
    DataType, Error, InferRequest, InferResponse, ModelMetadata, ModelRef, NamedTensor, Parameter,
    Parameters, Shape, Tensor,
};

/// A request of an embedding server, and the form of its answer.
pub trait Exchange: DeserializeOwned + Send {
    /// Texts in a row of the model.
    const IN_ROW: usize;
    /// Whether errors have OpenAI's form.
    const OPENAI: bool;

    /// The model's name, if the body has one.
    fn model(&self) -> Option<&str> {
        None
    }

    /// The rows of the model's input.
    fn rows(&mut self, room: &mut Room) -> Result<Packed, Error>;

    /// The body of the answer for so many rows.
    fn answer(&self, response: &InferResponse, rows: usize) -> Result<Bytes, Error>;
}

/// The texts in a row of a model: 1, or 2 if it scores pairs. `None` if it does not take texts.
pub fn texts_in_row(metadata: &ModelMetadata) -> Option<usize> {
    match &metadata.inputs[..] {
        [only] if only.datatype == DataType::Bytes.to_string() => match only.shape[..] {
            [-1] | [-1, 1] => Some(1),
            [-1, 2] => Some(2),
            _ => None,
        },
        _ => None,
    }
}

/// The request for rows of texts.
pub fn request(
    model: ModelRef,
    metadata: &ModelMetadata,
    texts: Packed,
    parameters: Parameters,
) -> Result<InferRequest, Error> {
    let rank = metadata.inputs.first().map_or(1, |input| input.shape.len());
    let in_row = texts_in_row(metadata).unwrap_or(1);
    let rows = texts.count() / in_row;
    let shape = if rank == 1 { Shape::from_slice(&[rows]) } else { Shape::from_slice(&[rows, in_row]) };
    let tensor = Tensor::new(DataType::Bytes, shape, texts.into_data())?;
    let name = metadata.inputs.first().map(|input| input.name.clone()).unwrap_or_default();
    let inputs = vec![NamedTensor::new(name, tensor)];
    Ok(InferRequest { model, parameters, inputs, ..InferRequest::default() })
}

/// The rows of the first output: floats, as many for each row. JSON has no form for numbers that are not finite.
fn output(response: &InferResponse, rows: usize) -> Result<(Cow<'_, [f32]>, usize), Error> {
    let tensor = response.outputs.first().map(|output| &output.tensor);
    let floats = tensor.filter(|tensor| matches!(tensor.shape().len(), 1 | 2) && tensor.shape()[0] == rows);
    let unusable = || Error::Malformed {
        message: format!(
            "model '{}' answers with no vector or score of finite FP32 for each text",
            response.model_name
        ),
    };
    let tensor = floats.ok_or_else(unusable)?;
    let width = tensor.shape().get(1).copied().unwrap_or(1);
    let values = tensor.as_f32().map_err(|_| unusable())?;
    let is_usable = width > 0 && values.iter().all(|value| value.is_finite());
    if is_usable { Ok((values, width)) } else { Err(unusable()) }
}

/// A vector of the same direction and length 1.
fn normalised(vector: &[f32]) -> Vec<f32> {
    let norm = vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    let scale = if norm > 0.0 { 1.0 / norm } else { 0.0 };
    vector.iter().map(|value| (f64::from(*value) * scale) as f32).collect()
}

fn written(body: &impl Serialize) -> Result<Bytes, Error> {
    let written = serde_json::to_vec(body).map_err(|error| Error::Internal { message: error.to_string() })?;
    Ok(written.into())
}

/// The response parameter with the tokens that a text model read: numbers in row order, with commas. A worker lists the tokens of each
/// row, special ones included and padding not. A frontend lists those of a request's rows from the jobs that answered them, which may
/// be of different instances and of stand-ins.
const TOKENS: &str = "parm_tokens";

/// Sets the tokens of each row.
pub fn set_tokens(parameters: &mut Parameters, rows: impl Iterator<Item = u64>) {
    let listed = rows.map(|tokens| tokens.to_string()).collect::<Vec<_>>().join(",");
    parameters.insert(TOKENS.into(), Parameter::String(listed));
}

/// The tokens of each row; `None` if the server did not count them.
pub fn tokens(parameters: &Parameters) -> Option<Vec<u64>> {
    parameters.get(TOKENS)?.as_str()?.split(',').map(|number| number.parse().ok()).collect()
}

/// The tokens of all rows, 0 if the server did not count them.
fn total_tokens(response: &InferResponse) -> u64 {
    tokens(&response.parameters).into_iter().flatten().fold(0, u64::saturating_add)
}

/// Reads a body.
pub fn read<E: Exchange>(body: &[u8]) -> Result<E, Error> {
    serde_json::from_slice(body)
        .map_err(|error| Error::Malformed { message: format!("the body is invalid: {error}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TensorMetadata;

    pub(super) fn answer(shape: &[usize], values: &[f32]) -> InferResponse {
        let tensor = Tensor::from_f32(Shape::from_slice(shape), values).unwrap();
        InferResponse {
            model_name: "m".into(),
            model_version: "1".into(),
            outputs: vec![NamedTensor::new("out", tensor)],
            ..Default::default()
        }
    }

    pub(super) fn body<E: Exchange>(request: &str, response: &InferResponse) -> serde_json::Value {
        let exchange: E = read(request.as_bytes()).unwrap();
        serde_json::from_slice(&exchange.answer(response, response.outputs[0].tensor.shape()[0]).unwrap())
            .unwrap()
    }

    #[test]
    fn answer_without_a_finite_vector_for_each_text_is_an_error() {
        let embed: Embed = read(br#"{"inputs": ["a", "b"]}"#).unwrap();
        let rank: Rerank = read(br#"{"query": "q", "texts": ["a", "b"]}"#).unwrap();
        for (shape, values) in [
            (&[1, 1][..], &[1.0][..]),
            (&[3, 1], &[1.0; 3]),
            (&[1], &[1.0]),
            (&[2, 0], &[]),
            (&[2, 1], &[1.0, f32::NAN]),
            (&[2, 1], &[1.0, f32::INFINITY]),
        ] {
            let response = answer(shape, values);
            for error in [embed.answer(&response, 2).unwrap_err(), rank.answer(&response, 2).unwrap_err()] {
                assert!(
                    error.to_string().contains("no vector or score of finite FP32"),
                    "{shape:?}: {error}"
                );
            }
        }
    }

    fn model(datatype: &str, shape: &[i64]) -> ModelMetadata {
        let input = TensorMetadata { name: "text".into(), datatype: datatype.into(), shape: shape.into() };
        ModelMetadata { name: "m".into(), inputs: vec![input], ..ModelMetadata::default() }
    }

    #[test]
    fn only_models_of_strings_take_texts() {
        let rows = [
            ("BYTES", &[-1][..]),
            ("BYTES", &[-1, 1]),
            ("BYTES", &[-1, 2]),
            ("BYTES", &[-1, 3]),
            ("INT64", &[-1, 1]),
        ];
        let in_row = rows.map(|(datatype, shape)| texts_in_row(&model(datatype, shape)));
        assert_eq!(in_row, [Some(1), Some(1), Some(2), None, None]);
    }

    #[test]
    fn rows_have_the_rank_of_the_models_input() {
        for (dims, shape) in [(&[-1][..], &[2][..]), (&[-1, 1], &[2, 1]), (&[-1, 2], &[1, 2])] {
            let texts: Packed = serde_json::from_str(r#"["a", "b"]"#).unwrap();
            let request =
                request(ModelRef::latest("m"), &model("BYTES", dims), texts, Parameters::new()).unwrap();
            assert_eq!(request.inputs[0].tensor.shape(), shape);
        }
    }

    #[test]
    fn tokens_are_read_as_they_were_listed() {
        let mut parameters = Parameters::new();
        assert_eq!(tokens(&parameters), None);
        set_tokens(&mut parameters, [5, 0, 7].into_iter());
        assert_eq!(parameters[TOKENS].as_str(), Some("5,0,7"));
        assert_eq!(tokens(&parameters), Some(vec![5, 0, 7]));
        for invalid in ["", "5,", "-1", "many"] {
            parameters.insert(TOKENS.into(), invalid.into());
            assert_eq!(tokens(&parameters), None, "{invalid}");
        }
    }
}
