//! Digests of keys, which are all that a server stores, and new keys.

use std::fmt;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::{self, Read};
use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

/// Prefix of keys, so that secret scanners find them in sources and logs.
const PREFIX: &str = "parm_";

/// The SHA-256 digest of a key.
#[derive(Clone, Copy, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of a key.
    pub fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }
}

/// Constant time: the duration must not reveal how many bytes match.
impl PartialEq for Digest {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Hash for Digest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
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

/// A new key. It is shown once and stored nowhere.
pub struct Secret(String);

impl Secret {
    /// 256 bits from the kernel.
    pub fn draw() -> io::Result<Self> {
        let mut bytes = [0u8; 32];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(format!("{PREFIX}{}", Digest(bytes))))
    }

    /// The digest that the server stores.
    pub fn digest(&self) -> Digest {
        Digest::of(self.0.as_bytes())
    }

    /// The key itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn new_keys_differ_and_are_hidden_from_debug() {
        let (one, other) = (Secret::draw().unwrap(), Secret::draw().unwrap());
        assert_ne!(one.reveal(), other.reveal());
        assert_eq!(one.reveal().len(), PREFIX.len() + 64);
        assert!(!format!("{one:?} {:?}", one.digest()).contains(&one.reveal()[PREFIX.len()..]));
    }
}
