//! A request's message with a bound on its tensors, which holds while it is read.
//!
//! An empty tensor takes two bytes on the wire and some three hundred in memory, so a body well within its limit could
//! fill the machine before anybody has looked at it. What is beyond the bound is skipped, not kept, and the request is
//! refused afterwards in our own words.

use bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType, skip_field};
use prost::{DecodeError, Message};

use super::inference::ModelInferRequest;
use crate::Error;

/// Inputs, requested outputs and raw contents that one request may have, each; models have a handful.
pub const MOST_TENSORS: usize = 4096;

/// A [`ModelInferRequest`] as it is read from the wire.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bounded {
    message: ModelInferRequest,
    /// Parts that were skipped.
    beyond: usize,
}

impl Bounded {
    /// The message, if all of it was kept.
    pub fn into_message(self) -> Result<ModelInferRequest, Error> {
        match self.beyond {
            0 => Ok(self.message),
            beyond => Err(Error::Malformed {
                message: format!(
                    "{beyond} inputs, outputs or raw contents beyond the {MOST_TENSORS} that one request may have"
                ),
            }),
        }
    }
}

impl Message for Bounded {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        self.message.encode_raw(buf);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        // The tags of the three lists in the `.proto`.
        let count = match tag {
            5 => self.message.inputs.len(),
            6 => self.message.outputs.len(),
            7 => self.message.raw_input_contents.len(),
            _ => 0,
        };
        if count < MOST_TENSORS {
            return self.message.merge_field(tag, wire_type, buf, ctx);
        }
        self.beyond += 1;
        skip_field(wire_type, tag, buf, ctx)
    }

    fn encoded_len(&self) -> usize {
        self.message.encoded_len()
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::inference::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};

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

    fn read(message: &ModelInferRequest) -> Bounded {
        Bounded::decode(&message.encode_to_vec()[..]).unwrap()
    }

    #[test]
    fn a_message_within_the_bound_is_read_as_it_was_sent() {
        for sent in [message(0, 0, 0), message(2, 1, 2), message(MOST_TENSORS, MOST_TENSORS, MOST_TENSORS)] {
            assert_eq!(read(&sent).encode_to_vec(), sent.encode_to_vec());
            assert_eq!(read(&sent).into_message(), Ok(sent));
        }
    }

    #[test]
    fn what_is_beyond_the_bound_is_not_kept_and_is_refused() {
        let most = MOST_TENSORS;
        for (sent, kept) in [
            (message(most + 3, 1, 0), message(most, 1, 0)),
            (message(1, most + 3, 0), message(1, most, 0)),
            (message(1, 1, most + 3), message(1, 1, most)),
        ] {
            let read = read(&sent);
            assert_eq!(read.message, kept);
            let message =
                "3 inputs, outputs or raw contents beyond the 4096 that one request may have".into();
            assert_eq!(read.into_message(), Err(Error::Malformed { message }));
        }
    }

    #[test]
    fn the_tags_of_the_bound_are_those_of_the_message() {
        for (message, tag) in [(message(1, 0, 0), 5u8), (message(0, 1, 0), 6), (message(0, 0, 1), 7)] {
            let bare = ModelInferRequest { model_name: String::new(), id: String::new(), ..message };
            assert_eq!(bare.encode_to_vec()[0], tag << 3 | 2);
        }
    }
}
