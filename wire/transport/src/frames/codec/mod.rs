//! Encodes requests, answers and failures as frames, and decodes them without copying tensors.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use parm_protocol::bounds::Parts;
use parm_protocol::fleet::SHARE;
use parm_protocol::rest::shorten;
use parm_protocol::{
    Code, DataType, Error, InferRequest, InferResponse, ModelRef, NamedTensor, RequestedOutput, Shape, Tensor,
};

use super::frame::{self, Builder, Frame, Header, Kind, padded};
use super::wire::{Cursor, put_maybe_text, put_number, put_parameters, put_parameters_and, put_text};

/// Metadata that travels with a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Envelope {
    /// Time until the client's deadline; clocks differ, so no point in time is sent.
    pub(super) remaining: Option<Duration>,
    pub(super) traceparent: Option<String>,
    /// The share that the request is charged to; received as a parameter.
    pub(super) share: Option<Arc<str>>,
}

pub(super) fn encode_request(
    id: u64,
    request: &InferRequest,
    envelope: &Envelope,
    limit: usize,
) -> Result<Frame, Error> {
    let mut builder = Builder::new(256 + room_for(&request.inputs));
    let head = builder.head();
    let remaining = envelope.remaining.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX - 1));
    put_number(head, remaining.map_or(0, |micros| micros.saturating_add(1)));
    put_maybe_text(head, envelope.traceparent.as_deref());
    put_text(head, &request.model.name);
    put_maybe_text(head, request.model.version.as_deref());
    put_text(head, &request.id);
    match &envelope.share {
        Some(share) => put_parameters_and(head, &request.parameters, (SHARE, share)),
        None => put_parameters(head, &request.parameters),
    }
    put_tensors(head, &request.inputs);
    put_number(head, request.outputs.len() as u64);
    for output in &request.outputs {
        put_text(head, &output.name);
        put_parameters(head, &output.parameters);
    }
    builder.finish(Kind::Request, id, request.inputs.iter().map(|input| input.tensor.data()), limit)
}

pub(super) fn decode_request(body: &Bytes) -> Result<(InferRequest, Envelope), Error> {
    let (mut head, mut data) = open(body)?;
    let remaining = head.number()?.checked_sub(1).map(Duration::from_micros);
    let envelope = Envelope { remaining, traceparent: head.maybe_text()?, share: None };
    let model = ModelRef { name: head.text()?, version: head.maybe_text()? };
    let id = head.text()?;
    let parameters = head.parameters()?;
    let inputs = take_tensors(&mut head, &mut data)?;
    let count = head.count()?;
    let mut outputs = Vec::with_capacity(count.min(EXPECTED));
    for at in 0..count {
        Parts::tensor(at, "outputs")?;
        outputs.push(RequestedOutput { name: head.text()?, parameters: head.parameters()? });
    }
    head.finish()?;
    data.finish()?;
    Ok((InferRequest { model, id, parameters, inputs, outputs }, envelope))
}

pub(super) fn encode_response(id: u64, response: &InferResponse, limit: usize) -> Result<Frame, Error> {
    let mut builder = Builder::new(128 + room_for(&response.outputs));
    let head = builder.head();
    put_text(head, &response.model_name);
    put_text(head, &response.model_version);
    put_text(head, &response.id);
    put_parameters(head, &response.parameters);
    put_tensors(head, &response.outputs);
    let frame =
        builder.finish(Kind::Response, id, response.outputs.iter().map(|output| output.tensor.data()), limit);
    frame.map_err(|error| match error {
        Error::BodyTooLarge { limit } => Error::AnswerTooLarge { limit },
        error => error,
    })
}

pub(super) fn decode_response(body: &Bytes) -> Result<InferResponse, Error> {
    let (mut head, mut data) = open(body)?;
    let response = InferResponse {
        model_name: head.text()?,
        model_version: head.text()?,
        id: head.text()?,
        parameters: head.parameters()?,
        outputs: take_tensors(&mut head, &mut data)?,
    };
    head.finish()?;
    data.finish()?;
    Ok(response)
}

/// Encodes an error's class and message, cut to `limit`; its fields stay behind.
pub(super) fn encode_failure(id: u64, error: &Error, limit: usize) -> Result<Frame, Error> {
    let mut message = error.to_string();
    let longest = limit.saturating_sub(64);
    if message.len() > longest {
        message.truncate(message.floor_char_boundary(longest));
    }
    let mut builder = Builder::new(16 + message.len());
    builder.head().put_u8(error.code() as u8);
    put_text(builder.head(), &message);
    builder.finish(Kind::Failure, id, std::iter::empty(), limit)
}

pub(super) fn decode_failure(body: &Bytes) -> Result<Error, Error> {
    let (mut head, data) = open(body)?;
    let (code, mut message) = (code_of(head.byte()?), head.words()?);
    head.finish()?;
    data.finish()?;
    // It is kept for each row of the request, and may have the size of a frame.
    shorten(&mut message);
    Ok(Error::Remote { code, message })
}

/// Usual number of tensors in a message, a first guess for an allocation.
const EXPECTED: usize = 8;

fn room_for(tensors: &[NamedTensor]) -> usize {
    tensors.iter().map(|named| 64 + named.name.len() + named.tensor.data().len().min(8 << 10)).sum()
}

fn put_tensors(head: &mut BytesMut, tensors: &[NamedTensor]) {
    put_number(head, tensors.len() as u64);
    for NamedTensor { name, tensor, parameters } in tensors {
        put_text(head, name);
        head.put_u8(byte_of_datatype(tensor.datatype()));
        put_number(head, tensor.shape().len() as u64);
        for &dimension in tensor.shape() {
            put_number(head, dimension as u64);
        }
        put_number(head, tensor.data().len() as u64);
        put_parameters(head, parameters);
    }
}

fn take_tensors(head: &mut Cursor<'_>, data: &mut Data<'_>) -> Result<Vec<NamedTensor>, Error> {
    let count = head.count()?;
    let mut tensors = Vec::with_capacity(count.min(EXPECTED));
    for at in 0..count {
        Parts::tensor(at, "tensors")?;
        let name = head.text()?;
        let datatype = datatype_of(head.byte()?)?;
        let rank = head.count()?;
        let mut shape = Shape::new();
        for at in 0..rank {
            Parts::dimension(at)?;
            shape.push(head.size()?);
        }
        let bytes = data.take(head.size()?)?;
        let tensor = Tensor::new(datatype, shape, bytes)?;
        tensors.push(NamedTensor { name, tensor, parameters: head.parameters()? });
    }
    Ok(tensors)
}

/// The part of a body after its head.
pub(super) struct Data<'a> {
    body: &'a Bytes,
    at: usize,
}

impl Data<'_> {
    fn take(&mut self, length: usize) -> Result<Bytes, Error> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.body.len());
        let end = end.ok_or_else(|| Error::malformed("a tensor reaches beyond the frame"))?;
        // An empty slice would keep the whole body alive.
        let bytes = if length == 0 { Bytes::new() } else { self.body.slice(self.at..end) };
        self.at = padded(end);
        Ok(bytes)
    }

    pub(super) fn finish(self) -> Result<(), Error> {
        if self.at == self.body.len() {
            Ok(())
        } else {
            Err(Error::malformed("bytes left over after the tensors"))
        }
    }
}

pub(super) fn open(body: &Bytes) -> Result<(Cursor<'_>, Data<'_>), Error> {
    let (length, rest) =
        body.split_first_chunk::<4>().ok_or_else(|| Error::malformed("the frame has no head"))?;
    let length = u32::from_le_bytes(*length) as usize;
    let head = rest.get(..length).ok_or_else(|| Error::malformed("the head reaches beyond the frame"))?;
    Ok((Cursor::new(head), Data { body, at: padded(4 + length) }))
}

/// For fuzzing: decodes any bytes as a frame, or as a body of any kind. A decoded value must encode, and decode to the
/// same value. Returns whether something was decoded.
#[doc(hidden)]
pub fn survives(bytes: &Bytes) -> Vec<&'static str> {
    let header = bytes.first_chunk().and_then(Header::from_bytes);
    let body = if header.is_some() { bytes.slice(frame::LENGTH..) } else { bytes.clone() };
    let written = |frame: Result<Frame, Error>| {
        let whole = Bytes::from(frame.expect("a decoded value can be encoded").chunks.concat());
        let header = whole.first_chunk().and_then(Header::from_bytes).expect("a frame has a header");
        assert_eq!(header.body as usize, whole.len() - frame::LENGTH);
        whole.slice(frame::LENGTH..)
    };
    let mut read = Vec::new();
    if let Ok((request, envelope)) = decode_request(&body) {
        let once = written(encode_request(1, &request, &envelope, usize::MAX));
        let (request, envelope) = decode_request(&once).expect("an encoded value can be decoded");
        assert_eq!(written(encode_request(1, &request, &envelope, usize::MAX)), once);
        read.push("request");
    }
    if let Ok(response) = decode_response(&body) {
        let once = written(encode_response(1, &response, usize::MAX));
        let response = decode_response(&once).expect("an encoded value can be decoded");
        assert_eq!(written(encode_response(1, &response, usize::MAX)), once);
        read.push("response");
    }
    if let Ok(error) = decode_failure(&body) {
        let once = written(encode_failure(1, &error, usize::MAX));
        assert_eq!(decode_failure(&once), Ok(error));
        read.push("failure");
    }
    read
}

/// An unknown class of a newer peer is an internal error.
fn code_of(byte: u8) -> Code {
    Code::ALL.into_iter().find(|code| *code as u8 == byte).unwrap_or(Code::Internal)
}

/// Datatypes are numbered as in [`DataType::ALL`], which may only grow at its end.
fn byte_of_datatype(datatype: DataType) -> u8 {
    datatype as u8
}

fn datatype_of(byte: u8) -> Result<DataType, Error> {
    let datatype = DataType::ALL.get(usize::from(byte)).copied();
    datatype.ok_or_else(|| Error::malformed(format!("unknown datatype {byte} in the frame")))
}

#[cfg(test)]
mod tests;
