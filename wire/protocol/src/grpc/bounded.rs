//! A request message that is checked against the bounds before it is decoded.
//!
//! An empty tensor takes 2 bytes on the wire and about 300 in memory, so a body within its limit could fill the memory
//! while it is decoded. [`scan`] therefore counts the parts in the raw bytes first.

use bytes::{Buf, BufMut, Bytes};
use prost::encoding::{DecodeContext, WireType, skip_field};
use prost::{DecodeError, Message};

use super::inference::ModelInferRequest;
use super::scan;
use crate::Error;
use crate::bounds::Room;

/// A [`ModelInferRequest`] as raw bytes, not decoded yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bounded(Bytes);

impl Bounded {
    /// Decodes the message if it is within the bounds, typed contents within `room`.
    pub fn into_message(self, mut room: Room) -> Result<ModelInferRequest, Error> {
        scan::request(&self.0, &mut room)?;
        ModelInferRequest::decode(self.0).map_err(scan::malformed)
    }
}

impl Message for Bounded {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        buf.put_slice(&self.0);
    }

    /// Takes all bytes, without a copy if they are contiguous.
    fn merge(&mut self, mut buf: impl Buf) -> Result<(), DecodeError> {
        self.0 = buf.copy_to_bytes(buf.remaining());
        Ok(())
    }

    /// Never called: the message is not a field of another message.
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        skip_field(wire_type, tag, buf, ctx)
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
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
        Bounded::decode(&message.encode_to_vec()[..]).unwrap().into_message(Room::of(room))
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
