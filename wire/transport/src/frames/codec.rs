//! Encodes requests, answers and failures as frames, and decodes them without copying tensors.
//!
//! All have one head, of numbers in LEB128 and text after its length. An answer has the form of a request, and of a failure only
//! the first two fields are used:
//!
//! ```text
//! head    number | note | model | version | id | parameters | tensors | outputs
//! number  of a request, microseconds until the client's deadline, plus one; of a failure, its class
//! note    of a request, its traceparent; of a failure, its message
//! ```

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use parm_protocol::bounds::{MOST_TEXT_BYTES, Parts};
use parm_protocol::fleet::SHARE;
use parm_protocol::rest::shorten;
use parm_protocol::{
    Code, DataType, Error, InferRequest, InferResponse, ModelRef, NamedTensor, Parameter, Parameters,
    RequestedOutput, Shape, Tensor,
};
use prost::encoding::{decode_varint, encode_varint};
use smallvec::SmallVec;

use super::frame::{Frame, Header, Kind, LENGTH, padded};

/// Metadata that travels with a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Envelope<'a> {
    /// Time until the client's deadline; clocks differ, so no point in time is sent.
    pub(super) remaining: Option<Duration>,
    pub(super) traceparent: Option<&'a str>,
    /// The share that the request is charged to; received as a parameter.
    pub(super) share: Option<&'a str>,
}

pub(super) fn encode_request(
    id: u64,
    request: &InferRequest,
    envelope: Envelope<'_>,
    limit: usize,
) -> Result<Frame, Error> {
    let micros =
        |time: Duration| u64::try_from(time.as_micros()).map_or(u64::MAX, |all| all.saturating_add(1));
    let message = Message {
        number: envelope.remaining.map_or(0, micros),
        note: envelope.traceparent.unwrap_or_default(),
        name: &request.model.name,
        version: request.model.version.as_deref().unwrap_or_default(),
        id: &request.id,
        parameters: &request.parameters,
        share: envelope.share,
        tensors: &request.inputs,
        outputs: &request.outputs,
    };
    message.frame(Kind::Request, id, limit)
}

/// The request, the time until its deadline, and its traceparent.
pub(super) fn decode_request(
    body: &Bytes,
) -> Result<(InferRequest, Option<Duration>, Option<String>), Error> {
    let (number, note, request) = decode(body)?;
    let remaining = number.checked_sub(1).map(Duration::from_micros);
    Ok((request, remaining, Some(note).filter(|note| !note.is_empty())))
}

pub(super) fn encode_response(id: u64, response: &InferResponse, limit: usize) -> Result<Frame, Error> {
    let message = Message {
        number: 0,
        note: "",
        name: &response.model_name,
        version: &response.model_version,
        id: &response.id,
        parameters: &response.parameters,
        share: None,
        tensors: &response.outputs,
        outputs: &[],
    };
    message.frame(Kind::Response, id, limit).map_err(|error| match error {
        Error::BodyTooLarge { limit } => Error::AnswerTooLarge { limit },
        error => error,
    })
}

pub(super) fn decode_response(body: &Bytes) -> Result<InferResponse, Error> {
    let (_, _, InferRequest { model, id, parameters, inputs, .. }) = decode(body)?;
    let (model_name, model_version) = (model.name, model.version.unwrap_or_default());
    Ok(InferResponse { model_name, model_version, id, parameters, outputs: inputs })
}

/// Encodes an error's class and message, cut to `limit`; its fields stay behind.
pub(super) fn encode_failure(id: u64, error: &Error, limit: usize) -> Result<Frame, Error> {
    let mut note = error.to_string();
    note.truncate(note.floor_char_boundary(limit.saturating_sub(64).min(MOST_TEXT_BYTES)));
    let message = Message {
        number: error.code() as u64,
        note: &note,
        name: "",
        version: "",
        id: "",
        parameters: &Parameters::new(),
        share: None,
        tensors: &[],
        outputs: &[],
    };
    message.frame(Kind::Failure, id, limit)
}

pub(super) fn decode_failure(body: &Bytes) -> Result<Error, Error> {
    let (number, mut message, _) = decode(body)?;
    // It is kept for each row of the request, and may have the size of a frame.
    shorten(&mut message);
    // An unknown class of a newer peer is an internal error.
    let code = Code::ALL.into_iter().find(|code| *code as u64 == number).unwrap_or(Code::Internal);
    Ok(Error::Remote { code, message })
}

/// The content of a frame's body.
struct Message<'a> {
    number: u64,
    note: &'a str,
    name: &'a str,
    version: &'a str,
    id: &'a str,
    parameters: &'a Parameters,
    share: Option<&'a str>,
    tensors: &'a [NamedTensor],
    outputs: &'a [RequestedOutput],
}

/// Tensors up to this size are copied after the head, which costs less than another slice for the system call.
const INLINE: usize = 8 << 10;

/// The offset of the head, after its length as u32.
const HEAD_AT: usize = LENGTH + 4;

impl Message<'_> {
    /// The frame; `limit` is the largest body that the peer accepts.
    fn frame(&self, kind: Kind, id: u64, limit: usize) -> Result<Frame, Error> {
        let room = |named: &NamedTensor| 64 + named.name.len() + named.tensor.data().len().min(INLINE);
        let room = self.tensors.iter().map(room).sum::<usize>() + self.note.len() + 256;
        let mut bytes = BytesMut::with_capacity(HEAD_AT + room);
        bytes.resize(HEAD_AT, 0);
        self.put_head(&mut bytes);

        let head = bytes.len() - HEAD_AT;
        let data = || self.tensors.iter().map(|named| named.tensor.data());
        let body = data().fold(padded(4 + head), |sum, data| sum.saturating_add(padded(data.len())));
        let length =
            u32::try_from(body).ok().filter(|_| body <= limit).ok_or(Error::BodyTooLarge { limit })?;
        bytes[..LENGTH].copy_from_slice(&Header { kind, id, body: length }.to_bytes());
        bytes[LENGTH..HEAD_AT].copy_from_slice(&(head as u32).to_le_bytes());
        bytes.resize(LENGTH + padded(4 + head), 0);

        let mut chunks = SmallVec::new();
        for data in data() {
            if data.len() <= INLINE {
                bytes.extend_from_slice(data);
            } else {
                chunks.push(bytes.split().freeze());
                chunks.push(data.clone());
            }
            bytes.resize(bytes.len() + padded(data.len()) - data.len(), 0);
        }
        if !bytes.is_empty() {
            chunks.push(bytes.freeze());
        }
        Ok(Frame { chunks })
    }

    fn put_head(&self, out: &mut BytesMut) {
        encode_varint(self.number, out);
        for text in [self.note, self.name, self.version, self.id] {
            put_text(out, text);
        }
        put_parameters(out, self.parameters, self.share);
        encode_varint(self.tensors.len() as u64, out);
        for NamedTensor { name, tensor, parameters } in self.tensors {
            put_text(out, name);
            out.put_u8(tensor.datatype() as u8);
            encode_varint(tensor.shape().len() as u64, out);
            for &dimension in tensor.shape() {
                encode_varint(dimension as u64, out);
            }
            encode_varint(tensor.data().len() as u64, out);
            put_parameters(out, parameters, None);
        }
        encode_varint(self.outputs.len() as u64, out);
        for RequestedOutput { name, parameters } in self.outputs {
            put_text(out, name);
            put_parameters(out, parameters, None);
        }
    }
}

fn put_text(out: &mut BytesMut, text: &str) {
    encode_varint(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

/// Parameters, and the share as another one.
fn put_parameters(out: &mut BytesMut, parameters: &Parameters, share: Option<&str>) {
    const TEXT: u8 = 5;
    encode_varint(parameters.len() as u64 + u64::from(share.is_some()), out);
    for (name, value) in parameters {
        put_text(out, name);
        match value {
            Parameter::Bool(value) => out.put_u8((*value).into()),
            Parameter::Int64(value) => {
                out.put_u8(2);
                out.put_i64_le(*value);
            }
            Parameter::Uint64(value) => {
                out.put_u8(3);
                out.put_u64_le(*value);
            }
            Parameter::Double(value) => {
                out.put_u8(4);
                out.put_f64_le(*value);
            }
            Parameter::String(text) => {
                out.put_u8(TEXT);
                put_text(out, text);
            }
        }
    }
    if let Some(share) = share {
        put_text(out, SHARE);
        out.put_u8(TEXT);
        put_text(out, share);
    }
}

/// Reads a body. For any bytes it neither panics nor trusts a length that exceeds the remaining bytes.
fn decode(body: &Bytes) -> Result<(u64, String, InferRequest), Error> {
    let split = body.split_first_chunk::<4>();
    let head = split.and_then(|(length, rest)| rest.get(..u32::from_le_bytes(*length) as usize));
    let head = head.ok_or_else(|| Error::malformed("the head reaches beyond the frame"))?;
    let mut data = Data { body, at: padded(4 + head.len()) };
    let mut head = Cursor { rest: head, parts: Parts::default() };
    let (number, note) = (head.number()?, head.text()?);
    let (name, version) = (head.text()?, Some(head.text()?).filter(|version| !version.is_empty()));
    let (id, parameters) = (head.text()?, head.parameters()?);
    let count = head.count()?;
    let mut inputs = Vec::with_capacity(count.min(EXPECTED));
    for at in 0..count {
        Parts::tensor(at, "tensors")?;
        inputs.push(head.tensor(&mut data)?);
    }
    let count = head.count()?;
    let mut outputs = Vec::with_capacity(count.min(EXPECTED));
    for at in 0..count {
        Parts::tensor(at, "outputs")?;
        outputs.push(RequestedOutput { name: head.text()?, parameters: head.parameters()? });
    }
    if !head.rest.is_empty() || data.at != body.len() {
        return Err(Error::malformed("the frame has bytes left over"));
    }
    let model = ModelRef { name, version };
    Ok((number, note, InferRequest { model, id, parameters, inputs, outputs }))
}

/// Usual number of tensors in a message, a first guess for an allocation.
const EXPECTED: usize = 8;

/// The part of a body after its head.
struct Data<'a> {
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
}

/// The rest of a head.
struct Cursor<'a> {
    rest: &'a [u8],
    parts: Parts,
}

impl<'a> Cursor<'a> {
    fn number(&mut self) -> Result<u64, Error> {
        decode_varint(&mut self.rest)
            .map_err(|error| Error::malformed(format!("a number in the frame is invalid: {error}")))
    }

    fn size(&mut self) -> Result<usize, Error> {
        usize::try_from(self.number()?)
            .map_err(|_| Error::malformed("a size in the frame cannot be addressed"))
    }

    /// A count of items that follow, each of at least one byte.
    fn count(&mut self) -> Result<usize, Error> {
        let count = self.size()?;
        if count <= self.rest.len() { Ok(count) } else { Err(too_short()) }
    }

    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], Error> {
        let (array, rest) = self.rest.split_first_chunk().ok_or_else(too_short)?;
        self.rest = rest;
        Ok(array)
    }

    fn text(&mut self) -> Result<String, Error> {
        let length = self.count()?;
        self.parts.text(length)?;
        let (text, rest) = self.rest.split_at(length);
        self.rest = rest;
        String::from_utf8(text.to_vec()).map_err(|_| Error::malformed("text in the frame is not UTF-8"))
    }

    fn parameters(&mut self) -> Result<Parameters, Error> {
        let count = self.count()?;
        self.parts.parameters(count)?;
        let mut parameters = Parameters::new();
        for _ in 0..count {
            let name = self.text()?;
            let value = match self.array()? {
                [0] => Parameter::Bool(false),
                [1] => Parameter::Bool(true),
                [2] => Parameter::Int64(i64::from_le_bytes(*self.array()?)),
                [3] => Parameter::Uint64(u64::from_le_bytes(*self.array()?)),
                [4] => Parameter::Double(f64::from_le_bytes(*self.array()?)),
                [5] => Parameter::String(self.text()?),
                [other] => {
                    return Err(Error::malformed(format!("unknown kind of parameter {other} in the frame")));
                }
            };
            parameters.insert(name, value);
        }
        Ok(parameters)
    }

    fn tensor(&mut self, data: &mut Data<'_>) -> Result<NamedTensor, Error> {
        let (name, [byte]) = (self.text()?, *self.array()?);
        // Datatypes are numbered as in [`DataType::ALL`], which may only grow at its end.
        let datatype = DataType::ALL.get(usize::from(byte)).copied();
        let datatype =
            datatype.ok_or_else(|| Error::malformed(format!("unknown datatype {byte} in the frame")))?;
        let mut shape = Shape::new();
        for at in 0..self.count()? {
            Parts::dimension(at)?;
            shape.push(self.size()?);
        }
        let tensor = Tensor::new(datatype, shape, data.take(self.size()?)?)?;
        Ok(NamedTensor { name, tensor, parameters: self.parameters()? })
    }
}

fn too_short() -> Error {
    Error::malformed("the frame is shorter than it announces")
}

/// The header and the body of a whole frame.
fn split(frame: &Frame) -> (Header, Bytes) {
    let whole = Bytes::from(frame.chunks.concat());
    let header = whole.first_chunk().and_then(Header::from_bytes).expect("a frame has a header");
    assert_eq!(header.body as usize, whole.len() - LENGTH);
    (header, whole.slice(LENGTH..))
}

/// For fuzzing: decodes any bytes as a frame, or as a body of any kind. A decoded value must encode, and decode to the
/// same value. Returns the kind of what was decoded.
#[doc(hidden)]
pub fn survives(bytes: &Bytes) -> Option<&'static str> {
    let header = bytes.first_chunk().and_then(Header::from_bytes);
    let body = if header.is_some() { bytes.slice(LENGTH..) } else { bytes.clone() };
    let written = |frame: Result<Frame, Error>| split(&frame.expect("a decoded value can be encoded")).1;
    let request = |body: &Bytes| {
        let (request, remaining, traceparent) = decode_request(body).ok()?;
        let envelope = Envelope { remaining, traceparent: traceparent.as_deref(), share: None };
        Some(written(encode_request(1, &request, envelope, usize::MAX)))
    };
    let response = |body: &Bytes| Some(written(encode_response(1, &decode_response(body).ok()?, usize::MAX)));
    let once = [request(&body)?, response(&body)?];
    assert_eq!([request(&once[0]), response(&once[1])], once.map(Some));
    let error = decode_failure(&body).expect("a failure has the form of a request");
    assert_eq!(decode_failure(&written(encode_failure(1, &error, usize::MAX))), Ok(error));
    Some(match header.map(|header| header.kind) {
        Some(Kind::Response) => "response",
        Some(Kind::Failure) => "failure",
        _ => "request",
    })
}

#[cfg(test)]
#[path = "../../../protocol/tests/support/values.rs"]
mod values;

/// Properties of the codec. Fuzzing (`tests/fuzz.rs`) covers that no input causes a panic.
#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::values::{request, response};
    use super::*;

    const LIMIT: usize = 1 << 20;

    proptest! {
        #[test]
        fn requests_survive_the_wire(
            request in request(),
            id in any::<u64>(),
            micros in proptest::option::of(0..u64::MAX / 2),
            traceparent in proptest::option::of(".{1,60}"),
        ) {
            let remaining = micros.map(Duration::from_micros);
            let envelope = Envelope { remaining, traceparent: traceparent.as_deref(), share: None };
            let (header, body) = split(&encode_request(id, &request, envelope, LIMIT).unwrap());
            prop_assert_eq!((header.kind, header.id), (Kind::Request, id));
            prop_assert_eq!(decode_request(&body), Ok((request, remaining, traceparent)));
        }

        #[test]
        fn responses_survive_the_wire(response in response(), id in any::<u64>()) {
            let (header, body) = split(&encode_response(id, &response, LIMIT).unwrap());
            prop_assert_eq!((header.kind, header.id), (Kind::Response, id));
            prop_assert_eq!(decode_response(&body), Ok(response));
        }

        #[test]
        fn a_body_cut_anywhere_is_an_error(request in request(), at in any::<prop::sample::Index>()) {
            let (_, body) = split(&encode_request(1, &request, Envelope::default(), LIMIT).unwrap());
            let cut = body.slice(..at.index(body.len()));
            prop_assert!(decode_request(&cut).is_err());
        }
    }

    #[test]
    fn every_class_of_error_keeps_its_class_and_words() {
        for code in Code::ALL {
            let error = Error::Remote { code, message: format!("words about {code:?}") };
            let (header, body) = split(&encode_failure(9, &error, LIMIT).unwrap());
            assert_eq!((header.kind, header.id), (Kind::Failure, 9));
            assert_eq!(decode_failure(&body), Ok(error));
        }
        assert_eq!((Code::ALL[0] as u8, Code::ALL[10] as u8), (1, 11));
    }

    #[test]
    fn an_error_too_long_for_a_frame_is_cut() {
        let error = Error::Internal { message: "é".repeat(500) };
        let (_, body) = split(&encode_failure(1, &error, 256).unwrap());
        assert!(body.len() <= 256);
        let Ok(Error::Remote { message, .. }) = decode_failure(&body) else { panic!("unreadable") };
        assert!(message.starts_with("ééé") && message.len() > 150, "{message}");
    }

    #[test]
    fn long_message_of_a_server_is_cut() {
        let error = Error::Internal { message: "x".repeat(1 << 19) };
        let (_, body) = split(&encode_failure(1, &error, LIMIT).unwrap());
        assert!(body.len() > 1 << 19);
        let read = decode_failure(&body).unwrap().to_string();
        assert!(read.len() < 3000, "{} bytes", read.len());
    }

    #[test]
    fn floats_of_a_large_tensor_are_read_in_place() {
        let values: Vec<f32> = (0..5000u16).map(f32::from).collect();
        let response = InferResponse {
            model_name: "odd name".into(),
            model_version: "1".into(),
            outputs: vec![NamedTensor::new("y", Tensor::from_f32([5000].as_slice(), &values).unwrap())],
            ..Default::default()
        };
        let (_, body) = split(&encode_response(1, &response, LIMIT).unwrap());
        let decoded = decode_response(&body).unwrap();
        let data = decoded.outputs[0].tensor.data();
        assert!(body.as_ptr_range().contains(&data.as_ptr()), "copied");
        assert_eq!(data.as_ptr() as usize % 8, body.as_ptr() as usize % 8);
        assert_eq!(decoded.outputs[0].tensor.as_f32().unwrap(), values);
    }

    #[test]
    fn every_seed_of_the_fuzzer_decodes_as_the_kind_in_its_name() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/frames");
        let seeds: Vec<_> = std::fs::read_dir(folder).unwrap().map(|seed| seed.unwrap().path()).collect();
        for path in &seeds {
            let name = path.file_name().unwrap().to_str().unwrap();
            assert_eq!(survives(&std::fs::read(path).unwrap().into()), Some(name));
        }
        assert!(!seeds.is_empty());
    }
}
