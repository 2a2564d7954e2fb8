//! Headers that a proxy must not pass on (RFC 9110, section 7.6.1).
//!
//! They concern one connection, and each side of a proxy has its own. Passing on two framings of one body would let a
//! client smuggle a second request, so the length is stated anew on each side.

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue};

/// Those of every connection, named or not.
const OF_A_CONNECTION: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Removes the headers of a request's connection, and those that the next connection sets itself.
pub(crate) fn of_request(headers: &mut HeaderMap) {
    of_connection(headers);
    for name in [HOST, CONTENT_LENGTH, EXPECT] {
        headers.remove(name);
    }
}

/// Removes the headers of an answer's connection. Next to an encoding for transfer a length means nothing (RFC 9112, section
/// 6.3), and a client that believed it would read the rest of the body as its next answer.
pub(crate) fn of_answer(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    join_lengths(headers);
    of_connection(headers);
}

/// The transfer coding of a body other than chunks, if it has one. Its bytes are not those of the content, and without the header
/// nothing would say so.
pub(crate) fn other_coding(headers: &HeaderMap) -> Option<String> {
    let codings = headers.get_all(TRANSFER_ENCODING).iter();
    let codings: Vec<_> = codings.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    let all = codings.join(", ");
    (!all.is_empty() && !all.trim().eq_ignore_ascii_case("chunked")).then_some(all)
}

/// Makes a repeated length one (RFC 9110, section 8.6). The reader of the answer checked that all are equal.
fn join_lengths(headers: &mut HeaderMap) {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else { return };
    let one = first.as_bytes().split(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
    if (lengths.next().is_some() || one != first.as_bytes())
        && let Ok(one) = HeaderValue::from_bytes(one)
    {
        headers.insert(CONTENT_LENGTH, one);
    }
}

fn of_connection(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers.get_all(CONNECTION).iter().flat_map(listed).collect();
    for name in named.into_iter().chain(OF_A_CONNECTION) {
        headers.remove(name);
    }
}

/// The names in a `Connection` header. A name that is not one of a header is ignored.
fn listed(value: &HeaderValue) -> impl Iterator<Item = HeaderName> {
    let names = value.to_str().unwrap_or_default().split(',');
    names.filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_a_connection_are_removed_with_those_named() {
        let all = [
            ("connection", "close, X-Mine"),
            ("connection", "x-other"),
            ("x-mine", "1"),
            ("x-other", "2"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("host", "a"),
            ("expect", "100-continue"),
            ("upgrade", "websocket"),
            ("keep-alive", "timeout=5"),
            ("content-type", "text/plain"),
            ("authorization", "Bearer k"),
        ];
        let all = || {
            let header = |(name, value): (&str, &str)| {
                (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap())
            };
            let mut headers = HeaderMap::new();
            all.map(header).into_iter().for_each(|(name, value)| {
                headers.append(name, value);
            });
            headers
        };
        let left = |headers: &HeaderMap| {
            let mut names: Vec<_> = headers.keys().map(|name| name.as_str().to_owned()).collect();
            names.sort();
            names
        };
        let mut headers = all();
        of_request(&mut headers);
        assert_eq!(left(&headers), ["authorization", "content-type"]);
        let mut headers = all();
        of_answer(&mut headers);
        assert_eq!(left(&headers), ["authorization", "content-type", "expect", "host"]);
        let mut headers = HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from_static("5"))]);
        of_answer(&mut headers);
        assert_eq!(left(&headers), ["content-length"]);
    }

    #[test]
    fn repeated_length_of_an_answer_becomes_one() {
        for lengths in [["5", "5"].as_slice(), &["5, 5"], &["5,5", "5"], &["5"]] {
            let mut headers = HeaderMap::new();
            for length in lengths {
                headers.append(CONTENT_LENGTH, HeaderValue::from_static(length));
            }
            of_answer(&mut headers);
            assert_eq!(headers.get_all(CONTENT_LENGTH).iter().collect::<Vec<_>>(), ["5"], "{lengths:?}");
        }
    }
}
