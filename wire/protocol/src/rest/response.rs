//! Inference responses as bodies.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::Wanted;
use super::body::{Blobs, Encoded};
use super::parameters::{Joined, Split, Text};
use super::tensor::{self, Few};
use crate::bounds::Room;
use crate::{Error, InferResponse};

#[derive(Serialize)]
struct WrittenResponse<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    id: &'a str,
    model_name: &'a str,
    model_version: &'a str,
    #[serde(skip_serializing_if = "Joined::is_empty")]
    parameters: Joined<'a>,
    outputs: Vec<tensor::Written<'a>>,
}

/// Writes a response with each output in the form that the client requested.
pub fn encode(response: &InferResponse, wanted: &Wanted) -> Result<Encoded, Error> {
    let mut blobs = Vec::new();
    let outputs = response.outputs.iter().map(|output| match wanted.is_binary(&output.name) {
        true => tensor::Written::binary(output, &mut blobs),
        false => tensor::Written::json(output),
    });
    let written = WrittenResponse {
        id: &response.id,
        model_name: &response.model_name,
        model_version: &response.model_version,
        parameters: Joined::new(&response.parameters),
        outputs: outputs.collect(),
    };
    let json = serde_json::to_vec(&written)
        .map_err(|error| Error::malformed(format!("the response cannot be encoded as requested: {error}")))?;
    Ok(Encoded::new(json, &blobs))
}

#[derive(Deserialize)]
struct ReadResponse<'a> {
    #[serde(default, borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    model_name: Text<'a>,
    #[serde(default, borrow)]
    model_version: Option<Text<'a>>,
    #[serde(default)]
    parameters: Split,
    #[serde(borrow)]
    outputs: Few<tensor::Read<'a>>,
}

/// Reads a body whose first `json_length` bytes (all of it without that) are JSON. Tensors are slices of the body.
pub fn decode(json_length: Option<usize>, body: Bytes) -> Result<InferResponse, Error> {
    let (json, mut blobs) = Blobs::split(body, json_length)?;
    let read: ReadResponse<'_> = serde_json::from_slice(&json).map_err(|error| {
        Error::malformed(format!("the body is not an inference response in JSON: {error}"))
    })?;
    let mut room = Room::default();
    let outputs = read.outputs.0.into_iter().map(|output| output.finish(&mut blobs, &mut room));
    let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
    blobs.finish()?;
    Ok(InferResponse {
        model_name: read.model_name.0.into_owned(),
        model_version: read.model_version.map(|version| version.0.into_owned()).unwrap_or_default(),
        id: read.id.map(|id| id.0.into_owned()).unwrap_or_default(),
        parameters: read.parameters.others,
        outputs,
    })
}
