//! Validates a request against a model's metadata, before anything is queued or computed.
//!
//! Frontend and worker apply the same rules, so both reject a request with the same message. A model has a batch
//! dimension if the first dimension of every input and output varies (-1); then rows of different requests may share a
//! batch. Any other model takes a request as one indivisible row.

use std::str::from_utf8;

use crate::fleet::ROWS;
use crate::{
    Code, DataType, Error, InferRequest, ModelMetadata, NamedTensor, Parameter, Parameters, TensorMetadata,
};

/// The platforms of ONNX models of our engines, whose strings are UTF-8. Other servers' models may take any bytes.
const TAKE_TEXT: [&str; 2] = ["onnx_tract", "onnx_onnxruntime"];

/// The parameter of Triton that asks for an output in memory of the server's machine. A client that does so reads there, and finds
/// the bytes of another answer.
const SHARED_MEMORY: &str = "shared_memory_region";

/// Parameters that only stateful models support.
const OF_SEQUENCES: [&str; 3] = ["sequence_id", "sequence_start", "sequence_end"];

/// The rows that a model accepts in one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// A request is one row, whatever its shapes.
    Whole,
    /// The first dimension counts rows, up to this many.
    UpTo(usize),
}

impl Rows {
    /// As the model's metadata declares it.
    pub fn of(model: &ModelMetadata, most: usize) -> Self {
        if has_batch_dimension(model) { Self::UpTo(most) } else { Self::Whole }
    }
}

/// Rejects a part of a request, or several requests in one, for a model whose rows are not independent. The frontend that
/// sent it knows an older file of the model: as for an unknown model, it describes the server again.
pub fn independent(request: &InferRequest, batched: bool) -> Result<(), Error> {
    if batched || !request.parameters.contains_key(ROWS) {
        return Ok(());
    }
    let name = &request.model.name;
    let message =
        format!("rows of model '{name}' are not independent now: describe it again, and send requests whole");
    Err(Error::Remote { code: Code::NotFound, message })
}

/// Rejects sequences. Clients that always send these parameters use 0, an empty string or false for none.
pub fn reject_sequences(parameters: &Parameters) -> Result<(), Error> {
    if parameters.is_empty() {
        return Ok(());
    }
    let means_one = |value: &Parameter| match value {
        Parameter::Bool(value) => *value,
        Parameter::String(value) => !value.is_empty(),
        number => number.as_u64() != Some(0),
    };
    let named = OF_SEQUENCES.into_iter().find(|name| parameters.get(*name).is_some_and(means_one));
    named.map_or(Ok(()), |name| {
        let message = format!(
            "parameter '{name}' is for a stateful model, which needs every request of a sequence once and at one \
             instance; parm balances and repeats them: send them to the model's server itself"
        );
        Err(Error::Malformed { message })
    })
}

/// Checks names, datatypes, shapes and requested outputs; returns the number of rows.
pub fn validate(request: &InferRequest, model: &ModelMetadata, limit: Rows) -> Result<usize, Error> {
    check_names(request, model)?;
    let batched = limit != Rows::Whole;
    let takes_text = TAKE_TEXT.contains(&&*model.platform);
    let mut rows = None;
    for declared in &model.inputs {
        let input = find(request, model, declared)?;
        check_tensor(input, declared, batched)?;
        if takes_text {
            check_text(input)?;
        }
        if batched {
            let actual = input.tensor.rows();
            let expected = *rows.get_or_insert(actual);
            if actual != expected {
                let message = format!(
                    "inputs disagree on the number of rows: '{}' has {actual}, the first input {expected}: if the first \
                     dimension is not a batch, set max_batch_size to 0 in its config.pbtxt",
                    input.name
                );
                return Err(Error::Invalid { message });
            }
        }
    }
    let rows = rows.unwrap_or(1);
    match limit {
        Rows::UpTo(limit) if rows > limit => Err(Error::BatchTooLarge { rows, limit }),
        _ => Ok(rows),
    }
}

/// Whether the first dimension of every input and output is the batch.
pub fn has_batch_dimension(model: &ModelMetadata) -> bool {
    let varies = |tensor: &TensorMetadata| tensor.shape.first() == Some(&-1);
    !model.inputs.is_empty() && model.inputs.iter().chain(&model.outputs).all(varies)
}

/// Puts the inputs of a validated request into the model's order. Most clients send them in that order already.
pub fn in_model_order(mut inputs: Vec<NamedTensor>, model: &ModelMetadata) -> Vec<NamedTensor> {
    let place = |name: &str| model.inputs.iter().position(|declared| declared.name == name);
    if !inputs.is_sorted_by_key(|input| place(&input.name)) {
        inputs.sort_by_key(|input| place(&input.name));
    }
    inputs
}

fn check_names(request: &InferRequest, model: &ModelMetadata) -> Result<(), Error> {
    let (model_name, expected) = (&model.name, || names(&model.inputs));
    if request.inputs.is_empty() && !model.inputs.is_empty() {
        let message = format!("the request has no inputs: model '{model_name}' requires {:?}", expected());
        return Err(Error::Invalid { message });
    }
    for (at, input) in request.inputs.iter().enumerate() {
        let name = &input.name;
        if !model.inputs.iter().any(|declared| declared.name == *name) {
            let expected = expected();
            return Err(Error::invalid(format!(
                "input '{name}' is not an input of model '{model_name}': its inputs are {expected:?}"
            )));
        }
        if request.inputs[..at].iter().any(|earlier| earlier.name == *name) {
            return Err(Error::invalid(format!("input '{name}' is given twice: send it once")));
        }
    }
    for (at, output) in request.outputs.iter().enumerate() {
        if request.outputs[..at].iter().any(|earlier| earlier.name == output.name) {
            return Err(Error::invalid(format!("output '{}' is requested twice: name it once", output.name)));
        }
        if output.parameters.contains_key(SHARED_MEMORY) {
            let name = &output.name;
            let message = format!(
                "output '{name}' is requested in shared memory, which parm does not write: omit '{SHARED_MEMORY}'"
            );
            return Err(Error::Malformed { message });
        }
        if !model.outputs.iter().any(|declared| declared.name == output.name) {
            let (model, name, outputs) = (model.name.clone(), output.name.clone(), names(&model.outputs));
            return Err(Error::UnknownOutput { model, name, expected: outputs });
        }
    }
    Ok(())
}

fn find<'a>(
    request: &'a InferRequest,
    model: &ModelMetadata,
    declared: &TensorMetadata,
) -> Result<&'a NamedTensor, Error> {
    request.inputs.iter().find(|input| input.name == declared.name).ok_or_else(|| {
        let (name, model_name, expected) = (&declared.name, &model.name, names(&model.inputs));
        Error::invalid(format!(
            "input '{name}' of model '{model_name}' is missing: send every one of {expected:?}"
        ))
    })
}

fn check_tensor(input: &NamedTensor, declared: &TensorMetadata, batched: bool) -> Result<(), Error> {
    let (name, expected): (_, DataType) = (&input.name, declared.datatype.parse()?);
    let actual = input.tensor.datatype();
    if actual != expected {
        return Err(Error::invalid(format!(
            "input '{name}' has datatype {actual}, the model expects {expected}"
        )));
    }
    let shape = input.tensor.shape();
    let fits = shape.len() == declared.shape.len()
        && shape
            .iter()
            .zip(&declared.shape)
            .all(|(&dim, &wanted)| wanted < 0 || i64::try_from(dim) == Ok(wanted));
    let has_rows = !batched || shape.first().is_some_and(|&rows| rows > 0);
    if fits && has_rows {
        return Ok(());
    }
    if fits && !shape.is_empty() {
        return Err(Error::invalid(format!(
            "the request has no rows: input '{name}' has shape {shape:?}: send at least one row"
        )));
    }
    let expected = &declared.shape;
    Err(Error::invalid(format!(
        "input '{name}' has shape {shape:?}, the model expects {expected:?} (-1 is any size)"
    )))
}

/// Rejects strings that are not UTF-8.
fn check_text(input: &NamedTensor) -> Result<(), Error> {
    if input.tensor.datatype() != DataType::Bytes {
        return Ok(());
    }
    match input.tensor.strings().position(|text| from_utf8(text).is_err()) {
        Some(number) => Err(Error::NotText { name: input.name.clone(), number }),
        None => Ok(()),
    }
}

fn names(tensors: &[TensorMetadata]) -> Vec<String> {
    tensors.iter().map(|tensor| tensor.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ModelRef, RequestedOutput, Tensor};

    fn declared(name: &str, datatype: &str, shape: &[i64]) -> TensorMetadata {
        TensorMetadata { name: name.into(), datatype: datatype.into(), shape: shape.into() }
    }

    fn model() -> ModelMetadata {
        ModelMetadata {
            name: "m".into(),
            inputs: vec![declared("a", "FP32", &[-1, 2]), declared("b", "FP32", &[-1, -1])],
            outputs: vec![declared("y", "FP32", &[-1, 3])],
            ..ModelMetadata::default()
        }
    }

    fn tensor(name: &str, shape: &[usize]) -> NamedTensor {
        let values = vec![0.5; shape.iter().product()];
        NamedTensor::new(name, Tensor::from_f32(shape, &values).unwrap())
    }

    fn request(inputs: Vec<NamedTensor>) -> InferRequest {
        InferRequest { model: ModelRef::latest("m"), inputs, ..InferRequest::default() }
    }

    fn check(inputs: Vec<NamedTensor>, expected: Result<usize, &str>) {
        match (validate(&request(inputs), &model(), Rows::of(&model(), 8)), expected) {
            (Err(error), Err(words)) => {
                assert_eq!(error.code(), Code::InvalidArgument);
                assert!(error.to_string().contains(words), "{error} lacks {words}");
            }
            (outcome, expected) => assert_eq!(outcome.ok(), expected.ok()),
        }
    }

    #[test]
    fn part_of_a_request_is_for_independent_rows_only() {
        let mut part = request(vec![tensor("a", &[1, 2])]);
        assert_eq!(independent(&part, false), Ok(()), "a client's own request");
        part.parameters.insert(ROWS.into(), true.into());
        assert_eq!(independent(&part, true), Ok(()));
        assert_eq!(independent(&part, false).map_err(|error| error.code()), Err(Code::NotFound));
    }

    #[test]
    fn rows_are_counted_along_the_batch_dimension() {
        check(vec![tensor("a", &[3, 2]), tensor("b", &[3, 7])], Ok(3));
        check(vec![tensor("b", &[1, 0]), tensor("a", &[1, 2])], Ok(1));
    }

    #[test]
    fn every_kind_of_bad_input_has_its_own_error() {
        let (a, b) = (|| tensor("a", &[1, 2]), || tensor("b", &[1, 1]));
        check(vec![], Err("no inputs: model 'm' requires [\"a\", \"b\"]"));
        check(vec![a()], Err("input 'b' of model 'm' is missing"));
        check(vec![a(), b(), tensor("c", &[1])], Err("'c' is not an input of model 'm'"));
        check(vec![a(), a(), b()], Err("input 'a' is given twice"));
        let whole = Tensor::new(DataType::Int32, [1, 2].as_slice(), vec![0; 8].into()).unwrap();
        check(vec![NamedTensor::new("a", whole), b()], Err("datatype INT32, the model expects FP32"));
        check(vec![tensor("a", &[0, 2]), b()], Err("no rows: input 'a' has shape [0, 2]"));
        for shape in [&[1, 3][..], &[2], &[1, 2, 1], &[0, 3]] {
            let words = format!("input 'a' has shape {shape:?}, the model expects [-1, 2]");
            check(vec![tensor("a", shape), b()], Err(&words));
        }
        check(vec![a(), tensor("b", &[2, 1])], Err("'b' has 2, the first input 1"));
        check(vec![tensor("a", &[9, 2]), tensor("b", &[9, 1])], Err("exceed the limit of 8"));
    }

    #[test]
    fn string_that_is_not_text_is_rejected_for_onnx_models() {
        let mut model =
            ModelMetadata { inputs: vec![declared("t", "BYTES", &[-1])], ..ModelMetadata::default() };
        let strings = |bytes: &'static [u8]| {
            let tensor = Tensor::new(DataType::Bytes, [2].as_slice(), bytes.into()).unwrap();
            request(vec![NamedTensor::new("t", tensor)])
        };
        let (text, binary) =
            (strings(b"\x02\0\0\0\xc3\xbc\0\0\0\0"), strings(b"\x01\0\0\0a\x02\0\0\0\xff\xfe"));
        let error = Error::NotText { name: "t".into(), number: 1 };
        assert_eq!(error.code(), Code::InvalidArgument);
        for (platform, expected) in
            [("onnx_tract", Err(error.clone())), ("onnx_onnxruntime", Err(error)), ("python", Ok(2))]
        {
            model.platform = platform.into();
            assert_eq!(validate(&text, &model, Rows::UpTo(8)), Ok(2), "{platform}");
            assert_eq!(validate(&binary, &model, Rows::UpTo(8)), expected, "{platform}");
        }
    }

    #[test]
    fn every_kind_of_bad_output_has_its_own_error() {
        let mut request = request(vec![tensor("a", &[1, 2]), tensor("b", &[1, 1])]);
        let output = |name: &str| RequestedOutput { name: name.into(), parameters: Parameters::new() };
        let shared = Parameters::from([(SHARED_MEMORY.to_owned(), "r".into())]);
        for (outputs, words) in [
            (vec![output("z")], "output 'z' is not an output of model 'm'"),
            (vec![output("y"); 2], "output 'y' is requested twice"),
            (vec![RequestedOutput { parameters: shared, ..output("y") }], "shared memory"),
        ] {
            request.outputs = outputs;
            let error = validate(&request, &model(), Rows::UpTo(8)).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument);
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn a_model_with_a_fixed_first_dimension_takes_one_row() {
        let mut fixed = model();
        fixed.inputs = vec![declared("a", "FP32", &[2, -1]), declared("sr", "FP32", &[])];
        let request = request(vec![tensor("sr", &[]), tensor("a", &[2, 5])]);
        assert!(!has_batch_dimension(&fixed));
        assert_eq!(validate(&request, &fixed, Rows::of(&fixed, 1)), Ok(1));
        let ordered = in_model_order(request.inputs, &fixed);
        assert_eq!(ordered.iter().map(|input| input.name.as_str()).collect::<Vec<_>>(), ["a", "sr"]);
    }
}
