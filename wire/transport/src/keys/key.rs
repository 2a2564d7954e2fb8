//! Keys: their text, which clients send as `authorization: Bearer KEY` and nobody stores, and their digests, which are all that a
//! server stores.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::str::FromStr;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// Prefix of keys, so that secret scanners find them in sources and logs.
const PREFIX: &str = "parm_";

/// A key, which appears neither in logs nor in a dumped configuration. It does not implement `Serialize`, so a
/// configuration with a token must skip its field explicitly.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Token(String);

impl Token {
    /// Wraps a key.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// A new key: 256 bits from the kernel. It is shown once and stored nowhere.
    pub fn draw() -> io::Result<Self> {
        let mut bytes = [0u8; 32];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(format!("{PREFIX}{}", Digest(bytes))))
    }

    /// The digest that a server keeps of a key.
    pub fn digest(&self) -> Digest {
        Digest::of(self.0.as_bytes())
    }

    /// The key itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The value of the `authorization` header.
    pub(crate) fn header(&self) -> Result<HeaderValue, &'static str> {
        let value = HeaderValue::from_str(&format!("Bearer {}", self.0));
        let mut value = value.map_err(|_| "the token has characters that a header cannot contain")?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

/// The SHA-256 digest of a key. How long a comparison takes may show how many of its bytes match, which helps nobody to find a key
/// with that digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of a key.
    pub fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }

    pub(super) fn given(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(AUTHORIZATION)?.as_bytes();
        let end = value.iter().position(|byte| *byte == b' ')?;
        let (kind, rest) = (&value[..end], value[end..].trim_ascii());
        (kind.eq_ignore_ascii_case(b"bearer") && !rest.is_empty()).then(|| Self::of(rest))
    }
}

impl FromStr for Digest {
    type Err = String;

    /// Parses 64 hexadecimal digits. The error does not repeat the input, which may be a key.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut bytes = [0; 32];
        match hex::decode_to_slice(text, &mut bytes) {
            Ok(()) => Ok(Self(bytes)),
            Err(_) => Err("a digest has 64 hexadecimal digits: parm keys new prints one".to_owned()),
        }
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// Only the first bytes: a log line must not help a search.
impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({}..)", hex::encode(&self.0[..2]))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Config;

    #[test]
    fn a_key_is_found_in_its_header() {
        let cases = [
            ("Bearer hush", Some("hush")),
            ("bearer   hush ", Some("hush")),
            ("BEARER hush", Some("hush")),
            ("Basic dXNlcjpodXNo", None),
            ("Bearer", None),
            ("Bearer ", None),
            ("hush", None),
            ("Digest hush", None),
        ];
        for (header, key) in cases {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, header.parse().unwrap())]);
            assert_eq!(Digest::given(&headers), key.map(|key| Digest::of(key.as_bytes())), "{header}");
        }
        assert_eq!(Digest::given(&HeaderMap::new()), None);
    }

    #[test]
    fn invalid_digest_is_not_repeated_in_the_error() {
        let digest = Digest::of(b"abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), text);
        assert!(text.parse::<Digest>().unwrap() == digest && Digest::of(b"abd") != digest);
        assert!(text.to_uppercase().parse::<Digest>().unwrap() == digest);
        for wrong in [
            "",
            "parm_hush",
            &text[1..],
            &text.replace('b', "g"),
            &format!("+{}", &text[1..]),
            &"é".repeat(32),
        ] {
            let told = wrong.parse::<Digest>().unwrap_err();
            assert!(told.contains("64") && !told.contains("hush"), "{told}");
        }
    }

    #[test]
    fn keys_are_new_and_hidden_everywhere() {
        let (one, other) = (Token::draw().unwrap(), Token::draw().unwrap());
        assert_ne!(one.reveal(), other.reveal());
        assert_eq!(one.reveal().len(), PREFIX.len() + 64);
        let config = Config { token: Some(one.clone()), ..Config::default() };
        let shown = format!("{config:?} {} {:?}", serde_json::to_string(&config).unwrap(), one.digest());
        assert!(!shown.contains(&one.reveal()[PREFIX.len()..]), "{shown}");
        let read: Token = serde_json::from_str("\"hush\"").unwrap();
        assert_eq!(read.header().unwrap(), "Bearer hush");
    }
}
