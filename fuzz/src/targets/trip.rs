//! Assertions of the protocol targets: a decoded value can be written, and reads back as the same value.

use bytes::Bytes;
use parm_protocol::rest::{self, Wanted, request::Form};
use parm_protocol::{InferRequest, InferResponse, ModelRef, NamedTensor, Parameter, Parameters, Tensor};

/// Returns the model of all requests: over HTTP the path names it, so no body does.
pub(super) fn model() -> ModelRef {
    ModelRef::latest("m")
}

/// Asserts that a request is the same after a round trip in the given form.
pub(super) fn request_survives(request: &InferRequest, form: Form) {
    assert_eq!(&after_a_trip(request, form), request);
}

/// Asserts that a request from another transport is the same after a round trip in the binary form, except for values
/// that JSON cannot represent.
pub(super) fn request_passes_on(request: InferRequest) {
    assert_eq!(after_a_trip(&request, Form::Binary), as_json_spells(request));
}

fn after_a_trip(request: &InferRequest, form: Form) -> InferRequest {
    let body = rest::request::encode(request, form).expect("a decoded request can be written");
    let (length, len) = (body.json_length(), body.len());
    let bytes = body.into_bytes();
    assert_eq!(bytes.len(), len, "the length that is announced is the length that is sent");
    let (back, wanted) =
        rest::request::decode(request.model.clone(), length, bytes).expect("what we write can be read");
    assert_eq!(wanted.binary, form == Form::Binary);
    back
}

/// Asserts that a response is the same after a round trip in the form that `wanted` requests.
pub(super) fn response_survives(response: &InferResponse, wanted: &Wanted) {
    let body = rest::response::encode(response, wanted).expect("a decoded response can be written");
    let back =
        rest::response::decode(body.json_length(), body.into_bytes()).expect("what we write can be read");
    assert_eq!(&back, response);
}

/// Asserts that written JSON can be read. JSON cannot represent everything (infinities, bytes that are not text).
pub(super) fn json_is_readable(request: &InferRequest) {
    if let Ok(body) = rest::request::encode(request, Form::Json) {
        rest::request::decode(request.model.clone(), None, body.into_bytes())
            .expect("what we write can be read");
    }
}

/// Asserts that rows split anywhere and joined again are the original tensor.
pub(super) fn rows_survive(tensors: &[NamedTensor]) {
    for NamedTensor { tensor, .. } in tensors.iter().filter(|named| !named.tensor.shape().is_empty()) {
        let (rows, middle) = (tensor.rows(), tensor.rows() / 2);
        let parts = [(0, middle), (middle, rows - middle)]
            .map(|(start, count)| tensor.slice_rows(start, count).expect("these rows are there"));
        for part in &parts {
            Tensor::new(part.datatype(), part.shape(), Bytes::clone(part.data())).expect("a slice is whole");
        }
        assert_eq!(&Tensor::concat_rows(&parts).expect("slices fit together"), tensor);
    }
}

/// Returns a request with its parameters as JSON represents them: one kind of whole number until it needs the 64th bit,
/// and without the parameters of the binary extension.
fn as_json_spells(mut request: InferRequest) -> InferRequest {
    spell(&mut request.parameters);
    request.inputs.iter_mut().for_each(|input| spell(&mut input.parameters));
    request.outputs.iter_mut().for_each(|output| spell(&mut output.parameters));
    request
}

fn spell(parameters: &mut Parameters) {
    for codecs_own in ["binary_data", "binary_data_size", "binary_data_output"] {
        parameters.remove(codecs_own);
    }
    for value in parameters.values_mut() {
        if let Parameter::Uint64(number) = *value {
            *value = i64::try_from(number).map_or(Parameter::Uint64(number), Parameter::Int64);
        }
    }
}
