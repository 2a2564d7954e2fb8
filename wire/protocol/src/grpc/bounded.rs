//! Decodes a request message that is within the bounds.
//!
//! An empty tensor takes 2 bytes on the wire and about 300 in memory, and decoding allocates lists as it meets them and cannot be
//! stopped from outside: 64 MB of empty tensors become 20 GB. So the parts are counted in the raw bytes first. The walk over the
//! tags allocates nothing, takes a fraction of the time of decoding, and skips raw contents in one step.

use bytes::{Buf, Bytes};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost::{DecodeError, Message};

use super::inference::ModelInferRequest;
use crate::Error;
use crate::bounds::{Parts, Room};

/// Decodes a message if it is within the bounds, typed contents within `room`. Raw contents share its bytes.
pub fn decode_bounded(message: Bytes, mut room: Room) -> Result<ModelInferRequest, Error> {
    check(&message, &mut room)?;
    ModelInferRequest::decode(message).map_err(malformed)
}

/// The value of one field, as far as counting needs it.
enum Field<'a> {
    /// A number; how many bytes does not matter.
    Number,
    /// Text, bytes, a message, or numbers one after another.
    Bytes(&'a [u8]),
    Other,
}

fn check(message: &[u8], room: &mut Room) -> Result<(), Error> {
    let (mut parts, mut inputs, mut outputs, mut raw) = (Parts::default(), 0, 0, 0);
    each(message, |tag, field| match (tag, field) {
        (1..=3, Field::Bytes(text)) => parts.text(text.len()),
        (4, Field::Bytes(entry)) => parameter(entry, &mut parts),
        (5, Field::Bytes(input)) => {
            next(&mut inputs, "inputs")?;
            self::input(input, &mut parts, room)
        }
        (6, Field::Bytes(output)) => {
            next(&mut outputs, "outputs")?;
            self::output(output, &mut parts)
        }
        (7, Field::Bytes(_)) => next(&mut raw, "raw contents"),
        _ => Ok(()),
    })
}

fn next(count: &mut usize, what: &str) -> Result<(), Error> {
    Parts::tensor(*count, what)?;
    *count += 1;
    Ok(())
}

fn parameter(entry: &[u8], parts: &mut Parts) -> Result<(), Error> {
    parts.parameters(1)?;
    parts.text(entry.len())
}

fn output(message: &[u8], parts: &mut Parts) -> Result<(), Error> {
    each(message, |tag, field| match (tag, field) {
        (1, Field::Bytes(name)) => parts.text(name.len()),
        (2, Field::Bytes(entry)) => parameter(entry, parts),
        _ => Ok(()),
    })
}

fn input(message: &[u8], parts: &mut Parts, room: &mut Room) -> Result<(), Error> {
    let mut dimensions = 0;
    let mut dimension = |more: usize| {
        dimensions += more;
        if more == 0 { Ok(()) } else { Parts::dimension(dimensions - 1) }
    };
    each(message, |tag, field| match (tag, field) {
        (1 | 2, Field::Bytes(text)) => parts.text(text.len()),
        (3, Field::Number) => dimension(1),
        (3, Field::Bytes(packed)) => dimension(numbers(packed)),
        (4, Field::Bytes(entry)) => parameter(entry, parts),
        (5, Field::Bytes(contents)) => self::contents(contents, room),
        _ => Ok(()),
    })
}

/// Typed contents cost as much as the lists they decode into, which exceed the final bytes.
fn contents(message: &[u8], room: &mut Room) -> Result<(), Error> {
    each(message, |tag, field| {
        let size = match tag {
            1 => size_of::<bool>(),
            2 | 4 | 6 => size_of::<u32>(),
            3 | 5 | 7 => size_of::<u64>(),
            8 => size_of::<bytes::Bytes>(),
            _ => return Ok(()),
        };
        let count = match (tag, field) {
            (6 | 7, Field::Bytes(packed)) => packed.len() / size,
            (8, Field::Bytes(_)) => 1,
            (_, Field::Bytes(packed)) => numbers(packed),
            _ => 1,
        };
        room.take(count.saturating_mul(size))
    })
}

/// Counts varints: each ends with a byte whose highest bit is clear.
fn numbers(packed: &[u8]) -> usize {
    packed.iter().filter(|byte| **byte < 0x80).count()
}

fn each(mut message: &[u8], mut see: impl FnMut(u32, Field<'_>) -> Result<(), Error>) -> Result<(), Error> {
    while message.has_remaining() {
        let (tag, wire_type) = decode_key(&mut message).map_err(malformed)?;
        let field = match wire_type {
            WireType::LengthDelimited => {
                let length = decode_varint(&mut message).map_err(malformed)?;
                let split = usize::try_from(length).ok().and_then(|length| message.split_at_checked(length));
                let Some((value, rest)) = split else {
                    return Err(Error::malformed("a field of the message reaches beyond its end"));
                };
                message = rest;
                Field::Bytes(value)
            }
            WireType::Varint => decode_varint(&mut message).map(|_| Field::Number).map_err(malformed)?,
            WireType::ThirtyTwoBit | WireType::SixtyFourBit => {
                skip(wire_type, tag, &mut message)?;
                Field::Number
            }
            WireType::StartGroup | WireType::EndGroup => {
                skip(wire_type, tag, &mut message)?;
                Field::Other
            }
        };
        see(tag, field)?;
    }
    Ok(())
}

fn skip(wire_type: WireType, tag: u32, message: &mut &[u8]) -> Result<(), Error> {
    skip_field(wire_type, tag, message, DecodeContext::default()).map_err(malformed)
}

fn malformed(error: DecodeError) -> Error {
    Error::malformed(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::{MOST_DIMENSIONS, MOST_PARAMETERS, MOST_TENSORS, MOST_TEXT_BYTES};
    use crate::grpc::inference::infer_parameter::ParameterChoice;
    use crate::grpc::inference::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
    use crate::grpc::inference::{InferParameter, InferTensorContents};

    fn message(inputs: usize, outputs: usize, raw: usize) -> ModelInferRequest {
        ModelInferRequest {
            model_name: "m".into(),
            id: "7".into(),
            inputs: vec![InferInputTensor { name: "x".into(), ..Default::default() }; inputs],
            outputs: vec![InferRequestedOutputTensor { name: "y".into(), ..Default::default() }; outputs],
            raw_input_contents: vec!["z".into(); raw],
            ..Default::default()
        }
    }

    fn with(input: InferInputTensor) -> ModelInferRequest {
        ModelInferRequest { inputs: vec![input], ..message(0, 0, 0) }
    }

    fn read(message: &ModelInferRequest, room: usize) -> Result<ModelInferRequest, Error> {
        decode_bounded(message.encode_to_vec().into(), Room::of(room))
    }

    fn parameters(count: usize) -> std::collections::BTreeMap<String, InferParameter> {
        let value = InferParameter { parameter_choice: Some(ParameterChoice::Int64Param(1)) };
        (0..count).map(|number| (number.to_string(), value.clone())).collect()
    }

    #[test]
    fn message_within_the_bounds_is_read_as_sent() {
        let everything = InferInputTensor {
            name: "x".into(),
            datatype: "FP32".into(),
            shape: vec![-1; MOST_DIMENSIONS],
            parameters: parameters(MOST_PARAMETERS / 2),
            contents: Some(InferTensorContents {
                bool_contents: vec![true; 3],
                int_contents: vec![-1; 3],
                int64_contents: vec![i64::MIN; 3],
                uint_contents: vec![300; 3],
                uint64_contents: vec![u64::MAX; 3],
                fp32_contents: vec![0.5; 3],
                fp64_contents: vec![0.5; 3],
                bytes_contents: vec!["ab".into(); 3],
            }),
        };
        let full = ModelInferRequest { parameters: parameters(MOST_PARAMETERS / 2), ..with(everything) };
        let most = MOST_TENSORS;
        for sent in [message(0, 0, 0), message(2, 1, 2), message(most, most, most), full] {
            assert_eq!(read(&sent, usize::MAX), Ok(sent));
        }
    }

    #[test]
    fn message_beyond_a_bound_is_rejected_undecoded() {
        let input = || InferInputTensor { name: "x".into(), ..Default::default() };
        let text = "t".repeat(MOST_TEXT_BYTES);
        let many = parameters(MOST_PARAMETERS / 2 + 1);
        for (sent, words) in [
            (message(MOST_TENSORS + 1, 1, 0), "4096 inputs"),
            (message(1, MOST_TENSORS + 1, 0), "4096 outputs"),
            (message(1, 1, MOST_TENSORS + 1), "4096 raw contents"),
            (with(InferInputTensor { shape: vec![1; MOST_DIMENSIONS + 1], ..input() }), "64 dimensions"),
            (with(InferInputTensor { datatype: text.clone(), ..input() }), "bytes of names"),
            (ModelInferRequest { id: text, ..message(1, 0, 0) }, "bytes of names"),
            (
                ModelInferRequest {
                    parameters: many.clone(),
                    ..with(InferInputTensor { parameters: many, ..input() })
                },
                "1024 parameters",
            ),
        ] {
            let error = read(&sent, usize::MAX).unwrap_err().to_string();
            assert!(error.contains("more than the") && error.contains(words), "{error} lacks {words}");
        }
    }

    #[test]
    fn typed_contents_count_as_the_lists_that_they_are_read_into() {
        let empty = InferTensorContents::default;
        for (contents, bytes) in [
            (InferTensorContents { bool_contents: vec![true; 10], ..empty() }, 10),
            (InferTensorContents { int_contents: vec![-1; 10], ..empty() }, 40),
            (InferTensorContents { int64_contents: vec![1; 10], ..empty() }, 80),
            (InferTensorContents { uint_contents: vec![300; 10], ..empty() }, 40),
            (InferTensorContents { uint64_contents: vec![u64::MAX; 10], ..empty() }, 80),
            (InferTensorContents { fp32_contents: vec![0.5; 10], ..empty() }, 40),
            (InferTensorContents { fp64_contents: vec![0.5; 10], ..empty() }, 80),
            (InferTensorContents { bytes_contents: vec!["".into(); 10], ..empty() }, 320),
        ] {
            let sent = with(InferInputTensor { contents: Some(contents), ..Default::default() });
            assert_eq!(read(&sent, bytes).as_ref(), Ok(&sent));
            assert_eq!(read(&sent, bytes - 1), Err(Error::TensorsTooLarge { bytes, limit: bytes - 1 }));
        }
    }
}
