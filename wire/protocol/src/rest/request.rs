//! Inference requests as bodies.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::Wanted;
use super::body::{Blobs, Encoded};
use super::parameters::{Joined, Split, Text};
use super::tensor::{self, Counted, Few};
use crate::bounds::{Parts, Room};
use crate::{Error, InferRequest, ModelRef, RequestedOutput};

/// The form of a request's tensors and of its outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Raw bytes after the JSON: the binary tensor extension.
    Binary,
    /// Everything in JSON.
    Json,
}

#[derive(Deserialize)]
struct ReadRequest<'a> {
    #[serde(default, borrow)]
    id: Option<Text<'a>>,
    #[serde(default)]
    parameters: Split,
    #[serde(borrow)]
    inputs: Few<tensor::Read<'a>>,
    #[serde(default, borrow)]
    outputs: Option<Few<ReadOutput<'a>>>,
}

impl ReadRequest<'_> {
    /// Checks all lists together against the bounds that each list met.
    fn check(&self) -> Result<(), Error> {
        let mut parts = Parts::default();
        parts.text(self.id.as_ref().map_or(0, |id| id.0.len()))?;
        self.parameters.count(&mut parts)?;
        self.inputs.0.iter().try_for_each(|input| input.count(&mut parts))?;
        self.outputs.iter().flat_map(|outputs| &outputs.0).try_for_each(|output| output.count(&mut parts))
    }
}

#[derive(Deserialize)]
struct ReadOutput<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(default)]
    parameters: Split,
}

impl Counted for ReadOutput<'_> {
    const WHAT: &'static str = "outputs";

    fn count(&self, parts: &mut Parts) -> Result<(), Error> {
        parts.text(self.name.0.len())?;
        self.parameters.count(parts)
    }
}

/// Reads a body whose first `json_length` bytes (all of it without that) are JSON. Tensors are slices of the body.
pub fn decode(
    model: ModelRef,
    json_length: Option<usize>,
    body: Bytes,
) -> Result<(InferRequest, Wanted), Error> {
    decode_within(model, json_length, body, Room::default())
}

const NOT_FINITE: &str = ": JSON has no NaN and no Infinity: send finite numbers, or binary tensors";

/// Whether an error is at a number that is not finite: some clients write those into JSON.
fn is_not_finite(json: &[u8], error: &serde_json::Error) -> bool {
    let line = json.split(|&byte| byte == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let from = line.get(error.column().saturating_sub(2)..).unwrap_or_default();
    ["NaN", "Infinity"]
        .iter()
        .any(|word| from[..from.len().min(9)].windows(word.len()).any(|at| at == word.as_bytes()))
}

/// [`decode`] with a limit on the bytes that JSON values decode into.
pub fn decode_within(
    model: ModelRef,
    json_length: Option<usize>,
    body: Bytes,
    mut room: Room,
) -> Result<(InferRequest, Wanted), Error> {
    let (json, mut blobs) = Blobs::split(body, json_length)?;
    let read: ReadRequest<'_> = serde_json::from_slice(&json).map_err(|error| {
        let hint = if is_not_finite(&json, &error) { NOT_FINITE } else { "" };
        Error::malformed(format!("the body is not an inference request in JSON: {error}{hint}"))
    })?;
    read.check()?;
    let mut wanted =
        Wanted { binary: read.parameters.binary_data_output.unwrap_or(false), outputs: Vec::new() };
    let inputs = read.inputs.0.into_iter().map(|input| input.finish(&mut blobs, &mut room));
    let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
    blobs.finish()?;
    let outputs = read.outputs.unwrap_or_default().0.into_iter().map(|output| {
        let name = output.name.0.into_owned();
        if let Some(binary) = output.parameters.binary_data {
            wanted.outputs.push((name.clone(), binary));
        }
        RequestedOutput { name, parameters: output.parameters.others }
    });
    let outputs = outputs.collect();
    let id = read.id.map(|id| id.0.into_owned()).unwrap_or_default();
    Ok((InferRequest { model, id, parameters: read.parameters.others, inputs, outputs }, wanted))
}

#[derive(Serialize)]
struct WrittenRequest<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    id: &'a str,
    #[serde(skip_serializing_if = "Joined::is_empty")]
    parameters: Joined<'a>,
    inputs: Vec<tensor::Written<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<WrittenOutput<'a>>,
}

#[derive(Serialize)]
struct WrittenOutput<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Joined::is_empty")]
    parameters: Joined<'a>,
}

/// Writes a request; the model goes into the path.
pub fn encode(request: &InferRequest, form: Form) -> Result<Encoded, Error> {
    let mut blobs = Vec::new();
    let inputs = request.inputs.iter().map(|input| match form {
        Form::Binary => tensor::Written::binary(input, &mut blobs),
        Form::Json => tensor::Written::json(input),
    });
    let inputs = inputs.collect();
    let binary = (form == Form::Binary).then_some(true);
    let outputs = request.outputs.iter().map(|output| WrittenOutput {
        name: &output.name,
        // In addition to the setting for all outputs, as some servers read only this one.
        parameters: Joined { binary_data: binary, ..Joined::new(&output.parameters) },
    });
    let written = WrittenRequest {
        id: &request.id,
        parameters: Joined { binary_data_output: binary, ..Joined::new(&request.parameters) },
        inputs,
        outputs: outputs.collect(),
    };
    let json = serde_json::to_vec(&written)
        .map_err(|error| Error::malformed(format!("request cannot be written: {error}")))?;
    Ok(Encoded::new(json, &blobs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_that_is_not_finite_is_named_in_the_error() {
        let said = |value: &str| {
            let body =
                format!("{{\"inputs\": [\n {{\"name\": \"x\", \"shape\": [2], \"data\": [1, {value}]}}]}}");
            decode(ModelRef::latest("m"), None, Bytes::from(body)).unwrap_err().to_string()
        };
        for value in ["NaN", "Infinity", "-Infinity"] {
            assert!(said(value).contains("JSON has no NaN and no Infinity"), "{}", said(value));
        }
        assert!(!said("nothing").contains("NaN"), "{}", said("nothing"));
    }

    /// A request read from a body and written again shares the body's bytes.
    #[test]
    fn large_tensors_are_not_copied_from_body_to_body() {
        let values = vec![7; 4 * 150_528];
        let json = br#"{"inputs":[{"name":"x","shape":[1,150528],"datatype":"FP32","parameters":{"binary_data_size":602112}}]}"#;
        let body = Bytes::from([&json[..], &values].concat());
        let came = body.as_ptr_range();
        let (request, _) = decode(ModelRef::latest("m"), Some(json.len()), body).unwrap();
        assert_eq!(request.inputs[0].tensor.data().as_ptr(), came.start.wrapping_add(json.len()));
        let sent = encode(&request, Form::Binary).unwrap();
        assert_eq!(sent.chunks().last().unwrap().as_ptr(), came.start.wrapping_add(json.len()));
    }

    #[test]
    fn parts_beyond_the_bounds_are_refused() {
        let read = |json: String| decode(ModelRef::latest("m"), None, Bytes::from(json));
        let list = |one: &str, count: usize| vec![one; count].join(",");
        let parameters = |count: usize| {
            let all: Vec<String> = (0..count).map(|key| format!(r#""{key}":1"#)).collect();
            all.join(",")
        };
        let input = r#"{"name":"x","datatype":"FP32","shape":[0],"data":[]}"#;
        let output = r#"{"name":"y"}"#;
        let whole = |parameters: &str, inputs: &str, outputs: &str| {
            format!(r#"{{"parameters":{{{parameters}}},"inputs":[{inputs}],"outputs":[{outputs}]}}"#)
        };
        assert!(read(whole(&parameters(1024), &list(input, 4096), &list(output, 4096))).is_ok());
        let half = format!(r#"{{"name":"y","parameters":{{{}}}}}"#, parameters(513));
        let long = format!(r#"{{"name":"{}"}}"#, "y".repeat(600_000));
        let flat = format!(r#"{{"name":"x","datatype":"FP32","shape":[{}],"data":[]}}"#, list("1", 65));
        for (json, words) in [
            (whole("", &list(input, 4097), ""), "4096 tensors"),
            (whole("", "", &list(output, 4097)), "4096 outputs"),
            (whole(&parameters(1025), "", ""), "1024 parameters"),
            (whole(&parameters(512), "", &half), "1024 parameters"),
            (whole("", "", &list(&half, 2)), "1024 parameters"),
            (whole("", "", &list(&long, 2)), "bytes of names"),
            (whole(&format!(r#""p":"{}""#, "v".repeat((1 << 20) + 1)), "", ""), "bytes of names"),
            (whole("", &flat, ""), "64 dimensions"),
        ] {
            let error = read(json).unwrap_err().to_string();
            assert!(error.contains("more than the") && error.contains(words), "{error} lacks {words}");
        }
    }

    #[test]
    fn json_values_are_limited_by_the_room() {
        let read = |datatype: &str, data: &str, count: usize, room| {
            let json = format!(
                r#"{{"inputs":[{{"name":"x","datatype":"{datatype}","shape":[{count}],"data":[{data}]}}]}}"#
            );
            decode_within(ModelRef::latest("m"), None, Bytes::from(json), Room::of(room)).map(drop)
        };
        assert_eq!(read("FP64", "1,1", 2, 16), Ok(()));
        let refused = Error::TensorsTooLarge { bytes: 16, limit: 15 };
        assert_eq!(read("FP64", "1,1", 2, 15), Err(refused));
        assert_eq!(read("BYTES", r#""ab","""#, 2, 11), Ok(()));
        assert!(matches!(read("BYTES", r#""ab","""#, 2, 9), Err(Error::TensorsTooLarge { .. })));
        // A shape that lies is rejected as such: the text limits the allocation.
        assert!(matches!(read("FP64", "1,1", 1 << 40, 1000), Err(Error::Malformed { .. })));
    }

    #[test]
    fn size_beyond_i64_is_rejected() {
        let body = |size: u64| {
            let json =
                format!(r#"{{"inputs":[{{"name":"x","datatype":"FP32","shape":[0,{size}],"data":[]}}]}}"#);
            decode(ModelRef::latest("m"), None, Bytes::from(json))
        };
        assert!(body(i64::MAX as u64).is_ok());
        let error = body(i64::MAX as u64 + 1).unwrap_err().to_string();
        assert!(error.contains("a size in a shape is out of range"), "{error}");
    }
}
