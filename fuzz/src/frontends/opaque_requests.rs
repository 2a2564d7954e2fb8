//! Any bytes from a client whose requests are passed on.
//!
//! The connection ends, each request of HTTP/1.1 that has only one reading is answered, and the server gets no other request than
//! these: in this order, with this body and with one framing.

use super::messages::{self, Message, OF_A_CONNECTION, Reading};
use super::passage::Passage;

/// Most bytes that come back for each request, and for the end of a connection.
const MOST: usize = 4 << 10;

/// The connection preface of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Runs the target.
pub fn run(data: &[u8]) {
    thread_local!(static PASSAGE: Passage = Passage::start());
    let (came, heard) = PASSAGE.with(|passage| passage.send(data, None));
    let heard: Vec<Message> = heard.iter().map(|request| read(request)).collect();
    if let Some(frames) = data.strip_prefix(PREFACE) {
        assert!(came.is_empty() || came.get(3) == Some(&4), "settings come first");
        let heads = heads(frames);
        assert!(heard.len() <= heads, "{heads} heads became {heard:?}");
        assert!(
            came.len() <= (heads + 2) * MOST + 2 * data.len(),
            "{} bytes became {}",
            data.len(),
            came.len()
        );
        return;
    }
    let (sent, rest) = requests(data);
    assert!(came.len() <= (lines(data) + 2) * MOST, "{} bytes became {}", data.len(), came.len());
    let (mut left, mut is_closed, mut may_close) = (came.as_slice(), false, false);
    for (number, request) in sent.iter().enumerate() {
        if is_closed || (may_close && left.is_empty()) {
            break;
        }
        let (answer, length) = answer(left, &request.start[0])
            .unwrap_or_else(|| panic!("request {number} of {sent:?}: {:?}", String::from_utf8_lossy(&came)));
        left = &left[length..];
        is_closed = answer.lists("connection", "close");
        // An answer that does not wait for the request's body may end the connection.
        may_close = !request.body.is_empty() || request.lists("connection", "close");
    }
    assert!(left.is_empty() || left.starts_with(b"HTTP/1."), "{:?}", String::from_utf8_lossy(&came));
    assert!(!is_closed || left.is_empty(), "more than was asked: {:?}", String::from_utf8_lossy(&came));
    // The server's requests are some of the client's, in their order. Parm answers the others.
    let mut asked = sent.iter();
    let mut unknown = 0;
    for request in &heard {
        if !asked.any(|sent| is_same(sent, request)) {
            unknown += 1;
        }
    }
    let may_follow = if is_closed { 0 } else { rest.map_or(0, lines) };
    assert!(unknown <= may_follow, "{sent:?} became {heard:?}");
}

/// A request that the server got, which has one framing and no header of the client's connection.
fn read(bytes: &[u8]) -> Message {
    let shown = String::from_utf8_lossy(bytes);
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let head = &bytes[..end.unwrap_or_else(|| panic!("half a request: {shown:?}"))];
    let mut lines = head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let first = text(lines.next().unwrap_or_default());
    let start = first.splitn(3, ' ').map(str::to_owned).collect::<Vec<_>>();
    let start = start.try_into().unwrap_or_else(|_| panic!("{shown:?}"));
    let header = |line: &[u8]| {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or_else(|| panic!("{shown:?}"));
        (text(&line[..colon]).to_ascii_lowercase(), text(line[colon + 1..].trim_ascii()))
    };
    let headers = lines.map(header).collect();
    let request = Message { start, headers, body: bytes[head.len() + 4..].to_vec(), length: bytes.len() };
    for name in OF_A_CONNECTION.into_iter().chain(["connection"]) {
        assert!(!request.has(name), "{name} in {shown:?}");
    }
    let lengths: Vec<&str> = request.values("content-length").collect();
    assert!(lengths.len() <= 1, "{shown:?}");
    let length = lengths.first().map_or(0, |length| length.parse().expect("a length"));
    assert_eq!(length, request.body.len(), "half a request: {shown:?}");
    assert_eq!(request.values("host").count(), 1, "{shown:?}");
    request
}

/// The requests that have only one reading, and what follows if it may have one.
fn requests(mut data: &[u8]) -> (Vec<Message>, Option<&[u8]>) {
    let mut sent = Vec::new();
    loop {
        match messages::request(data) {
            Reading::Whole(request) => {
                data = &data[request.length..];
                sent.push(*request);
            }
            Reading::Part | Reading::Ambiguous => return (sent, None),
            Reading::Unclear => return (sent, Some(data)),
        }
    }
}

/// Most requests that these bytes may be.
fn lines(bytes: &[u8]) -> usize {
    bytes.windows(8).filter(|eight| eight.eq_ignore_ascii_case(b" HTTP/1.")).count()
}

/// The next answer and its length, with interim answers before it.
fn answer(mut bytes: &[u8], method: &str) -> Option<(Box<Message>, usize)> {
    let mut before = 0;
    loop {
        let Reading::Whole(answer) = messages::response(bytes, method) else { return None };
        if answer.status() >= 200 {
            let length = before + answer.length;
            return Some((answer, length));
        }
        before += answer.length;
        bytes = &bytes[answer.length..];
    }
}

fn is_same(sent: &Message, heard: &Message) -> bool {
    // Each proxy sets or joins these.
    let own = ["cookie", "expect", "host", "traceparent"];
    let kept = |(name, _): &&(String, String)| sent.is_end_to_end(name) && !own.contains(&&**name);
    sent.start[..2] == heard.start[..2]
        && sent.body == heard.body
        && sent
            .headers
            .iter()
            .filter(kept)
            .all(|(name, value)| heard.values(name).any(|other| other == value))
}

/// Frames of HTTP/2 that begin a request.
fn heads(mut frames: &[u8]) -> usize {
    let mut heads = 0;
    while let [a, b, c, kind, ..] = *frames {
        heads += usize::from(kind == 1);
        let length = 9 + u32::from_be_bytes([0, a, b, c]) as usize;
        frames = frames.get(length..).unwrap_or_default();
    }
    heads
}
