//! Bodies of the largest size that try to become much larger in memory.

use bytes::Bytes;

/// The largest body that the server accepts.
pub(crate) const LARGEST: usize = 8 << 20;

pub(crate) enum Body {
    Json(Vec<u8>),
    /// Without an announced length.
    Chunked(Vec<u8>),
    /// So many bytes of JSON, followed by tensors.
    Binary(usize, Vec<u8>),
    Grpc(Bytes),
    Frame(Vec<u8>),
}

impl Body {
    pub(crate) fn len(&self) -> usize {
        match self {
            Body::Json(body) | Body::Chunked(body) | Body::Binary(_, body) | Body::Frame(body) => body.len(),
            Body::Grpc(body) => body.len(),
        }
    }
}

type Recipe = (&'static str, fn() -> Body);

pub(crate) const ALL: &[Recipe] = &[
    ("JSON: as many numbers as fit", || json(&tensor("FP64", "1", "1", ","))),
    ("JSON: numbers that take as much as a body may", || {
        tensor_of("FP64", LARGEST / 8, &format!("1{}", " ".repeat(6)))
    }),
    ("JSON: a list for every number", || json(&tensor("INT64", "1,1", "[1]", ","))),
    ("JSON: empty strings that take as much as a body may", || tensor_of("BYTES", LARGEST / 4, "\"\"")),
    ("JSON: a string of escapes that takes as much as a body may", || {
        let text = input("[1]", "BYTES", &format!("[\"{}\\n\"]", "s".repeat(LARGEST / 2 - 200)));
        json(&format!("{text}{}", " ".repeat(LARGEST - text.len())))
    }),
    ("JSON: one string", || json(&input("[1]", "BYTES", &format!("[\"{}\"]", "s".repeat(LARGEST - 200))))),
    ("JSON: dimensions", || json(&input(&format!("[1{}]", ",1".repeat(LARGEST / 2 - 100)), "FP32", "[1]"))),
    ("JSON: inputs", || json(&inputs(r#"{"name":"x","datatype":"FP32","shape":[0],"data":[]}"#))),
    ("JSON: parameters", || json(&parameters(LARGEST))),
    ("JSON: a name", || json(&named(&"n".repeat(LARGEST - 200)))),
    ("JSON: numbers in pieces of unknown length", || {
        let Body::Json(body) = json(&tensor("FP32", "1", "1", ",")) else { unreachable!("made above") };
        let mut chunked = format!("{:x}\r\n", body.len()).into_bytes();
        chunked.extend(body);
        chunked.extend(b"\r\n0\r\n\r\n");
        Body::Chunked(chunked)
    }),
    ("binary: one tensor", || {
        let size = LARGEST - 300;
        let json = binary_input(size, &format!("[{size}]"));
        let json = format!(r#"{{"inputs":[{json}]}}"#).into_bytes();
        let length = json.len();
        Body::Binary(length, [json, vec![0; size]].concat())
    }),
    ("binary: empty tensors", || {
        let Body::Json(body) = json(&inputs(&binary_input(0, "[0]"))) else { unreachable!("made above") };
        Body::Binary(body.len(), body)
    }),
    ("gRPC: one tensor", || grpc(&field(7, &vec![0; LARGEST - 100]))),
    ("gRPC: empty inputs", || grpc(&field(5, b"").repeat(LARGEST / 2 - 100))),
    ("gRPC: dimensions", || grpc(&field(5, &field(3, &vec![1; LARGEST - 200])))),
    ("gRPC: wide numbers that take as much as a body may", || {
        let (numbers, rest) = (vec![1; LARGEST / 8], vec![0; LARGEST * 7 / 8 - 500]);
        grpc(&[typed("INT64", LARGEST / 8, &field(3, &numbers)), field(15, &rest)].concat())
    }),
    ("gRPC: empty strings", || grpc(&field(5, &field(5, &field(8, b"").repeat(LARGEST / 2 - 100))))),
    ("gRPC: parameters", || {
        grpc(&field(4, &[field(1, b"p"), field(2, &[8, 1])].concat()).repeat(LARGEST / 9 - 9))
    }),
    ("frames: one tensor", || {
        let size = LARGEST - 200;
        let size = size - size % 8;
        let tensor = [&text("x")[..], &[1], &number(1), &number(size), &number(size), &number(0)].concat();
        frame_with(&request_head(&[number(1), tensor, number(0)].concat()), size)
    }),
    ("frames: empty inputs", || {
        let one = [&text("")[..], &[1], &number(0), &number(0), &number(0)].concat();
        let count = LARGEST / one.len() - 20;
        frame(&request_head(&[number(count), one.repeat(count)].concat()))
    }),
    ("frames: empty outputs", || {
        let count = LARGEST / 2 - 200;
        frame(&request_head(&[number(0), number(count), [0, 0].repeat(count)].concat()))
    }),
    ("frames: dimensions", || {
        let count = LARGEST - 200;
        let tensor = [&text("x")[..], &[1], &number(count), &vec![0; count], &number(0), &number(0)].concat();
        frame(&request_head(&[number(1), tensor, number(0)].concat()))
    }),
    ("frames: parameters", || {
        let one = |key: usize| [&text(&format!("{key:06x}"))[..], &[1]].concat();
        let count = LARGEST / 8 - 100;
        let all: Vec<u8> = (0..count).flat_map(one).collect();
        frame(&[&[0, 0][..], &text("m"), &[0], &text(""), &number(count), &all, &[0, 0]].concat())
    }),
];

fn json(text: &str) -> Body {
    Body::Json(text.as_bytes().to_vec())
}

fn input(shape: &str, datatype: &str, data: &str) -> String {
    format!(r#"{{"inputs":[{{"name":"x","datatype":"{datatype}","shape":{shape},"data":{data}}}]}}"#)
}

fn named(name: &str) -> String {
    format!(r#"{{"inputs":[{{"name":"{name}","datatype":"FP32","shape":[1],"data":[1]}}]}}"#)
}

fn binary_input(size: usize, shape: &str) -> String {
    format!(r#"{{"name":"x","datatype":"UINT8","shape":{shape},"parameters":{{"binary_data_size":{size}}}}}"#)
}

/// A tensor with as many elements as fit, and the matching shape.
fn tensor(datatype: &str, shape: &str, element: &str, comma: &str) -> String {
    let count = (LARGEST - 200) / (element.len() + comma.len());
    let data = format!("[{element}{}]", format!("{comma}{element}").repeat(count - 1));
    input(&format!("[{}{}]", count, shape.strip_prefix('1').unwrap_or_default()), datatype, &data)
}

/// A tensor of so many elements, each spelled like this, padded with spaces to the largest size.
fn tensor_of(datatype: &str, count: usize, element: &str) -> Body {
    let count = count - 200;
    let text = input(
        &format!("[{count}]"),
        datatype,
        &format!("[{element}{}]", format!(",{element}").repeat(count - 1)),
    );
    json(&format!("{text}{}", " ".repeat(LARGEST - text.len())))
}

fn inputs(one: &str) -> String {
    let count = (LARGEST - 200) / (one.len() + 1);
    format!(r#"{{"inputs":[{one}{}]}}"#, format!(",{one}").repeat(count - 1))
}

fn parameters(size: usize) -> String {
    let all: String = (0..(size - 50) / 10).map(|key| format!(r#","{key:05x}":1"#)).collect();
    format!(r#"{{"parameters":{{"first":1{all}}},"inputs":[]}}"#)
}

/// A field of a message, of text, bytes or another message.
fn field(tag: u8, value: &[u8]) -> Vec<u8> {
    [&[tag << 3 | 2][..], &number(value.len()), value].concat()
}

fn typed(datatype: &str, count: usize, contents: &[u8]) -> Vec<u8> {
    let shape = field(3, &number(count));
    field(5, &[field(1, b"x"), field(2, datatype.as_bytes()), shape, field(5, contents)].concat())
}

pub(crate) fn grpc(message: &[u8]) -> Body {
    let length = (message.len() as u32).to_be_bytes();
    Body::Grpc([&[0][..], &length, message].concat().into())
}

fn number(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn text(text: &str) -> Vec<u8> {
    [&number(text.len())[..], text.as_bytes()].concat()
}

/// No deadline and no trace, the model, no version, no id, no parameters, and the rest of a request's head.
fn request_head(rest: &[u8]) -> Vec<u8> {
    [&[0, 0][..], &text("m"), &[0], &text(""), &[0], rest].concat()
}

/// A request's frame that consists of its head.
pub(crate) fn frame(head: &[u8]) -> Body {
    frame_with(head, 0)
}

fn frame_with(head: &[u8], data: usize) -> Body {
    let padded = (4 + head.len()).next_multiple_of(8);
    let mut frame = Vec::with_capacity(16 + padded + data);
    frame.extend(((padded + data) as u32).to_le_bytes());
    frame.extend(*b"\x01prm");
    frame.extend(1u64.to_le_bytes());
    frame.extend((head.len() as u32).to_le_bytes());
    frame.extend(head);
    frame.resize(16 + padded + data, 0);
    Body::Frame(frame)
}
