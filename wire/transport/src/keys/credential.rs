//! Reads the key of a request, over HTTP and from gRPC metadata.
//!
//! The header is `authorization: Bearer KEY`, or Basic with the key as password, for clients that support only that.

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::Digest;

/// The digest of the key in a request.
pub(super) fn given(headers: &HeaderMap) -> Option<Digest> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let end = value.iter().position(|byte| *byte == b' ')?;
    let (kind, rest) = (&value[..end], value[end..].trim_ascii());
    if kind.eq_ignore_ascii_case(b"bearer") {
        return (!rest.is_empty()).then(|| Digest::of(rest));
    }
    if !kind.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let pair = decoded(rest)?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    let password = &pair[colon + 1..];
    (!password.is_empty()).then(|| Digest::of(password))
}

/// Decodes standard base64, padded or not.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    if text.len() - end > 2 || end % 4 == 1 {
        return None;
    }
    let (mut bytes, mut bits, mut held) = (Vec::with_capacity(end * 3 / 4), 0u32, 0u32);
    for digit in &text[..end] {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_in_its_header() {
        let cases = [
            ("Bearer hush", Some("hush")),
            ("bearer   hush ", Some("hush")),
            ("BEARER hush", Some("hush")),
            ("Basic dXNlcjpodXNo", Some("hush")),
            ("basic OmE6Yg==", Some("a:b")),
            ("Basic OmE6Yg", Some("a:b")),
            ("Basic dXNlcjo=", None),
            ("Basic dXNlcg==", None),
            ("Basic dXNlcjpodXN*", None),
            ("Basic d", None),
            ("Bearer", None),
            ("Bearer ", None),
            ("hush", None),
            ("Digest hush", None),
        ];
        for (header, key) in cases {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, header.parse().unwrap())]);
            assert_eq!(given(&headers), key.map(|key| Digest::of(key.as_bytes())), "{header}");
        }
        assert_eq!(given(&HeaderMap::new()), None);
    }

    #[test]
    fn base64_of_every_length_is_read() {
        let words = ["", "f", "fo", "foo", "foob", "fooba", "foobar"];
        let codes = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (word, code) in words.iter().zip(codes) {
            assert_eq!(decoded(code.as_bytes()).as_deref(), Some(word.as_bytes()), "{code}");
        }
        assert_eq!(decoded(b"Zm9v===="), None);
    }
}
