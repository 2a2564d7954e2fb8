//! Requests for embeddings.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Exchange, Packed, normalised, output, total_tokens, written};
use crate::bounds::Room;
use crate::{Error, InferResponse};

/// `POST /v1/embeddings`, as OpenAI's.
#[derive(Debug, Deserialize)]
pub struct Embeddings {
    model: String,
    input: Packed,
    encoding_format: Option<Encoding>,
    dimensions: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    #[default]
    Float,
    Base64,
}

#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    data: Vec<Item>,
    model: &'a str,
    usage: Usage,
}

#[derive(Serialize)]
struct Item {
    object: &'static str,
    index: usize,
    embedding: Vector,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Vector {
    Float(Vec<f32>),
    Base64(String),
}

/// The tokens that the model read.
#[derive(Serialize)]
struct Usage {
    prompt_tokens: u64,
    total_tokens: u64,
}

impl Encoding {
    fn of(self, vector: Vec<f32>) -> Vector {
        match self {
            Self::Float => Vector::Float(vector),
            Self::Base64 => {
                let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
                Vector::Base64(BASE64_STANDARD.encode(bytes))
            }
        }
    }
}

impl Exchange for Embeddings {
    const IN_ROW: usize = 1;
    const OPENAI: bool = true;

    fn model(&self) -> Option<&str> {
        Some(&self.model)
    }

    fn rows(&mut self, _room: &mut Room) -> Result<Packed, Error> {
        Ok(std::mem::take(&mut self.input))
    }

    fn answer(&self, response: &InferResponse, rows: usize) -> Result<Bytes, Error> {
        let (values, width) = output(response, rows)?;
        if let Some(wanted) = self.dimensions.filter(|wanted| *wanted != width) {
            let message =
                format!("the model's vectors have {width} dimensions, not {wanted}: omit 'dimensions'");
            return Err(Error::Malformed { message });
        }
        let item = |(index, vector): (usize, &[f32])| {
            let embedding = self.encoding_format.unwrap_or_default().of(normalised(vector));
            Item { object: "embedding", index, embedding }
        };
        let data = values.chunks(width).enumerate().map(item).collect();
        let tokens = total_tokens(response);
        let usage = Usage { prompt_tokens: tokens, total_tokens: tokens };
        written(&List { object: "list", data, model: &self.model, usage })
    }
}

/// `POST /embed` of Text Embeddings Inference. Its other fields change nothing here: long texts are always cut.
#[derive(Debug, Deserialize)]
pub struct Embed {
    inputs: Packed,
    normalize: Option<bool>,
}

impl Exchange for Embed {
    const IN_ROW: usize = 1;
    const OPENAI: bool = false;

    fn rows(&mut self, _room: &mut Room) -> Result<Packed, Error> {
        Ok(std::mem::take(&mut self.inputs))
    }

    fn answer(&self, response: &InferResponse, rows: usize) -> Result<Bytes, Error> {
        let (values, width) = output(response, rows)?;
        let vector = |row: &[f32]| if self.normalize != Some(false) { normalised(row) } else { row.to_vec() };
        written(&values.chunks(width).map(vector).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::read;
    use super::super::tests::{answer, body};
    use super::*;

    #[test]
    fn vectors_are_normalised_and_in_the_order_of_the_texts() {
        let response = answer(&[2, 2], &[3.0, 4.0, 0.0, 0.0]);
        let list = body::<Embeddings>(r#"{"model": "m", "input": ["a", "b"], "user": "u"}"#, &response);
        assert_eq!(list["data"][0]["embedding"], json!([0.6, 0.8]));
        assert_eq!(list["data"][1], json!({ "object": "embedding", "index": 1, "embedding": [0.0, 0.0] }));
        assert_eq!((&list["object"], &list["model"]), (&json!("list"), &json!("m")));
        let base64 =
            body::<Embeddings>(r#"{"model": "m", "input": "a", "encoding_format": "base64"}"#, &response);
        assert_eq!(base64["data"][0]["embedding"], "mpkZP83MTD8=");
        assert_eq!(body::<Embed>(r#"{"inputs": "a"}"#, &response), json!([[0.6, 0.8], [0.0, 0.0]]));
        let raw = body::<Embed>(r#"{"inputs": ["a", "b"], "normalize": false, "truncate": true}"#, &response);
        assert_eq!(raw, json!([[3.0, 4.0], [0.0, 0.0]]));
    }

    #[test]
    fn usage_is_the_sum_of_the_rows_tokens() {
        let mut response = answer(&[2, 2], &[3.0, 4.0, 0.0, 0.0]);
        let usage = |response: &InferResponse| {
            body::<Embeddings>(r#"{"model": "m", "input": ["a", "b"]}"#, response)["usage"].take()
        };
        assert_eq!(usage(&response), json!({ "prompt_tokens": 0, "total_tokens": 0 }), "not counted");
        crate::texts::set_tokens(&mut response.parameters, [5, 7].into_iter());
        assert_eq!(usage(&response), json!({ "prompt_tokens": 12, "total_tokens": 12 }));
    }

    #[test]
    fn absent_options_may_be_null() {
        let response = answer(&[1, 2], &[3.0, 4.0]);
        let request =
            r#"{"model": "m", "input": "a", "encoding_format": null, "dimensions": null, "user": null}"#;
        assert_eq!(body::<Embeddings>(request, &response)["data"][0]["embedding"], json!([0.6, 0.8]));
        assert_eq!(body::<Embed>(r#"{"inputs": "a", "normalize": null}"#, &response), json!([[0.6, 0.8]]));
    }

    #[test]
    fn other_dimensions_are_rejected() {
        let response = answer(&[1, 2], &[3.0, 4.0]);
        let request: Embeddings = read(br#"{"model": "m", "input": "a", "dimensions": 8}"#).unwrap();
        let error = request.answer(&response, 1).unwrap_err().to_string();
        assert!(error.contains("have 2 dimensions, not 8: omit 'dimensions'"), "{error}");
        let same: Embeddings = read(br#"{"model": "m", "input": "a", "dimensions": 2}"#).unwrap();
        assert!(same.answer(&response, 1).is_ok());
    }
}
