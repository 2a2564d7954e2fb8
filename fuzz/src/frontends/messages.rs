//! A second, strict reading of HTTP/1.1 (RFC 9112), which the targets compare with parm's.
//!
//! Bytes that it does not understand are not an error: parm may be more lenient, and the targets then expect less.

/// Most headers that are read, below the limits of parm's own reader.
const MOST_HEADERS: usize = 60;

/// Most bytes of trailers that are read.
const MOST_TRAILERS: usize = 8 << 10;

/// Headers of one connection, which are never passed on.
pub(super) const OF_A_CONNECTION: [&str; 8] = [
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A request or a response.
#[derive(Debug, PartialEq)]
pub(super) struct Message {
    /// The three parts of the first line.
    pub(super) start: [String; 3],
    /// Names in lower case, and values without the spaces around them.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// Bytes that it takes.
    pub(super) length: usize,
}

/// The outcome of reading one message.
#[derive(Debug, PartialEq)]
pub(super) enum Reading {
    Whole(Box<Message>),
    /// More bytes have to come.
    Part,
    /// No two readers may be trusted to agree.
    Unclear,
    /// Its length is stated in two ways, so every reader has to stop here.
    Ambiguous,
}

impl Message {
    pub(super) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }

    /// Whether a comma-separated header has this item.
    pub(super) fn lists(&self, name: &str, item: &str) -> bool {
        self.values(name).any(|value| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(item)))
    }

    /// The status of a response.
    pub(super) fn status(&self) -> u16 {
        self.start[1].parse().expect("it was checked")
    }

    /// Whether a header is for the other end, not for one connection, and not set anew by each proxy.
    pub(super) fn is_end_to_end(&self, name: &str) -> bool {
        let anew = ["connection", "content-length", "date"].contains(&name) || name.starts_with("parm-");
        !(anew || OF_A_CONNECTION.contains(&name) || self.lists("connection", name))
    }
}

/// Reads a request.
pub(super) fn request(bytes: &[u8]) -> Reading {
    let mut message = match head(bytes) {
        Reading::Whole(message) => message,
        other => return other,
    };
    let [method, target, version] = &message.start;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/?&=%:@-._~".contains(&byte);
    let is_clear = method.bytes().all(|byte| byte.is_ascii_uppercase())
        && (1..=20).contains(&method.len())
        && method != "CONNECT"
        && target.starts_with('/')
        && target.bytes().all(is_plain)
        && version == "HTTP/1.1";
    if !is_clear {
        return Reading::Unclear;
    }
    let framing = Framing::of(&message);
    finish(&mut message, bytes, framing.unwrap_or(Framing::Length(0)))
        .map_or_else(|reading| reading, |()| Reading::Whole(message))
}

/// Reads the response to a request of this method, of which no more will come.
pub(super) fn response(bytes: &[u8], method: &str) -> Reading {
    let mut message = match head(bytes) {
        Reading::Whole(message) => message,
        other => return other,
    };
    let [version, status, _] = &message.start;
    let Some(status) = status.parse::<u16>().ok().filter(|_| status.len() == 3) else {
        return Reading::Unclear;
    };
    if version != "HTTP/1.1" || status < 100 {
        return Reading::Unclear;
    }
    let framing = match status {
        100..200 | 204 | 304 => Framing::Length(0),
        _ if method == "HEAD" => Framing::Length(0),
        _ => Framing::of(&message).unwrap_or(Framing::Length(bytes.len() - message.length)),
    };
    finish(&mut message, bytes, framing).map_or_else(|reading| reading, |()| Reading::Whole(message))
}

enum Framing {
    Length(usize),
    Chunks,
    Unclear,
    Ambiguous,
}

impl Framing {
    /// The stated length of a body, if any.
    fn of(message: &Message) -> Option<Self> {
        let mut codings = message.values("transfer-encoding");
        if let Some(coding) = codings.next() {
            let is_alone = codings.next().is_none() && coding.eq_ignore_ascii_case("chunked");
            return Some(if is_alone { Self::Chunks } else { Self::Unclear });
        }
        let mut lengths = message.values("content-length");
        let first = lengths.next()?;
        if lengths.any(|other| other != first) || !first.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some(Self::Ambiguous);
        }
        Some(first.parse().map_or(Self::Ambiguous, Self::Length))
    }
}

/// Adds the body to a head.
fn finish(message: &mut Message, bytes: &[u8], framing: Framing) -> Result<(), Reading> {
    let rest = &bytes[message.length..];
    match framing {
        Framing::Length(length) => {
            message.body = rest.get(..length).ok_or(Reading::Part)?.to_vec();
            message.length += length;
        }
        Framing::Chunks => {
            let (body, length) = chunks(rest)?;
            (message.body, message.length) = (body, message.length + length);
        }
        Framing::Unclear => return Err(Reading::Unclear),
        Framing::Ambiguous => return Err(Reading::Ambiguous),
    }
    Ok(())
}

/// The body in these chunks, and the bytes that they take.
fn chunks(bytes: &[u8]) -> Result<(Vec<u8>, usize), Reading> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line = line(&bytes[at..])?;
        let is_size = (1..=6).contains(&line.len()) && line.iter().all(u8::is_ascii_hexdigit);
        let text = std::str::from_utf8(line).ok().filter(|_| is_size).ok_or(Reading::Unclear)?;
        let size = usize::from_str_radix(text, 16).expect("it has six digits");
        at += line.len() + 2;
        if size == 0 {
            break;
        }
        let chunk = bytes.get(at..at + size + 2).ok_or(Reading::Part)?;
        let (data, end) = chunk.split_at(size);
        if end != b"\r\n" {
            return Err(Reading::Unclear);
        }
        body.extend_from_slice(data);
        at += size + 2;
    }
    let end = at + MOST_TRAILERS;
    for _ in 0..MOST_HEADERS {
        let trailer = line(&bytes[at..])?;
        if at > end {
            break;
        }
        at += trailer.len() + 2;
        if trailer.is_empty() {
            return Ok((body, at));
        }
        header(trailer)?;
    }
    Err(Reading::Unclear)
}

/// Reads up to the empty line.
fn head(bytes: &[u8]) -> Reading {
    let mut message =
        Box::new(Message { start: Default::default(), headers: Vec::new(), body: Vec::new(), length: 0 });
    let read = (|| {
        let first = line(bytes)?;
        message.length = first.len() + 2;
        let text = std::str::from_utf8(first).map_err(|_| Reading::Unclear)?;
        let parts: Vec<&str> = text.splitn(3, ' ').collect();
        let [a, b, c] = parts[..] else { return Err(Reading::Unclear) };
        message.start = [a, b, c].map(str::to_owned);
        loop {
            let next = line(&bytes[message.length..])?;
            message.length += next.len() + 2;
            if next.is_empty() {
                return Ok(());
            }
            if message.headers.len() == MOST_HEADERS {
                return Err(Reading::Unclear);
            }
            message.headers.push(header(next)?);
        }
    })();
    read.map_or_else(|reading| reading, |()| Reading::Whole(message))
}

/// The first line, of printable ASCII.
fn line(bytes: &[u8]) -> Result<&[u8], Reading> {
    let is_plain = |byte: &u8| (b' '..=b'~').contains(byte) || *byte == b'\t';
    let end = bytes.iter().position(|byte| !is_plain(byte)).ok_or(Reading::Part)?;
    match &bytes[end..] {
        [b'\r', b'\n', ..] => Ok(&bytes[..end]),
        [b'\r'] => Err(Reading::Part),
        _ => Err(Reading::Unclear),
    }
}

fn header(line: &[u8]) -> Result<(String, String), Reading> {
    let colon = line.iter().position(|byte| *byte == b':').filter(|colon| *colon > 0);
    let (name, value) = line.split_at(colon.ok_or(Reading::Unclear)?);
    if !name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte)) {
        return Err(Reading::Unclear);
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((text(name).to_ascii_lowercase(), text(value[1..].trim_ascii())))
}
