//! The key file, a table of TOML for each key:
//!
//! ```toml
//! [[key]]
//! name = "search"
//! sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
//! role = "infer"
//! rate = 500.0       # requests a second; no limit if missing
//! burst = 1000       # requests at once after a pause; default: the requests of one second
//! concurrency = 64   # requests at a time; no limit if missing
//! ```
//!
//! `sha256` may be a list while a key is being replaced. Errors name the line but never repeat a digest: a key may have
//! been written in its place.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::limit::Allowance;
use super::{Digest, Role};
use crate::settling::read_regular;

const MAX_BYTES: u64 = 4 << 20;

/// The smallest rate, in requests a second: about one a day. A smaller one is a typing error, as no client could work
/// with it.
const LEAST_RATE: f64 = 1e-5;

/// The longest name, in bytes: names appear in logs and metrics.
const LONGEST_NAME: usize = 64;

/// The content of a key file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyFile {
    /// The keys.
    #[serde(default, rename = "key")]
    pub keys: Vec<Entry>,
}

/// A key in the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The holder's name, for logs.
    pub name: String,
    /// Its digest, or the digests of all keys with this name.
    pub sha256: Digests,
    /// Its role.
    pub role: Role,
    /// Requests a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Requests at once after a pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<NonZeroU32>,
    /// Requests at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<NonZeroU32>,
}

/// One digest or several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a digest has 64 hexadecimal digits: parm keys new prints one")]
pub enum Digests {
    /// A single digest.
    One(Digest),
    /// Several digests.
    Several(Vec<Digest>),
}

impl Entry {
    /// A key without limits.
    pub fn new(name: impl Into<String>, role: Role, digest: Digest) -> Self {
        let sha256 = Digests::One(digest);
        Self { name: name.into(), sha256, role, rate: None, burst: None, concurrency: None }
    }

    pub(super) fn digests(&self) -> &[Digest] {
        match &self.sha256 {
            Digests::One(digest) => std::slice::from_ref(digest),
            Digests::Several(digests) => digests,
        }
    }

    pub(super) fn allowance(&self) -> Allowance {
        let second = self.rate.map_or(1.0, |rate| rate.ceil().max(1.0));
        Allowance {
            rate: self.rate,
            burst: self.burst.map_or(second, |burst| f64::from(burst.get())),
            concurrency: self.concurrency.map(NonZeroU32::get),
        }
    }

    fn check(&self) -> Result<(), String> {
        let Self { name, rate, .. } = self;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
        if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(plain) {
            return Err(format!(
                "invalid key name: use up to {LONGEST_NAME} letters, digits, '-', '_', '.' and '@'"
            ));
        }
        if rate.is_some_and(|rate| !(rate.is_finite() && rate >= LEAST_RATE)) {
            return Err(format!(
                "key '{name}': rate must be {LEAST_RATE} requests a second or more: raise it, or leave it out for no limit"
            ));
        }
        if rate.is_none() && self.burst.is_some() {
            return Err(format!("key '{name}': burst requires a rate: set both, or neither"));
        }
        if self.digests().is_empty() {
            return Err(format!("key '{name}': sha256 is empty: remove the key instead"));
        }
        Ok(())
    }
}

impl KeyFile {
    /// Reads a file's text, whole.
    pub fn text(path: &Path) -> Result<String, String> {
        String::from_utf8(read_regular(path, MAX_BYTES)?)
            .map_err(|_| "stream did not contain valid UTF-8".into())
    }

    /// Reads a file.
    pub fn open(path: &Path) -> Result<Self, String> {
        Self::read(&Self::text(path)?)
    }

    /// Parses and checks a file's text.
    pub fn read(text: &str) -> Result<Self, String> {
        let file: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| text[..span.start].matches('\n').count() + 1);
            let line = line.map(|line| format!("line {line}: ")).unwrap_or_default();
            format!("{line}{}", error.message())
        })?;
        file.check()?;
        Ok(file)
    }

    fn check(&self) -> Result<(), String> {
        if self.keys.is_empty() {
            return Err("the file has no keys: make one with parm keys new".into());
        }
        let (mut names, mut digests) = (BTreeSet::new(), BTreeSet::new());
        for entry in &self.keys {
            entry.check()?;
            let name = &entry.name;
            if !names.insert(name) {
                return Err(format!("two keys are called '{name}': put both digests into one"));
            }
            if !entry.digests().iter().all(|digest| digests.insert(digest.to_string())) {
                return Err(format!(
                    "key '{name}' repeats the digest of another key: give each client its own key"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_parsed_into_roles_and_limits() {
        let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));
        let text = format!(
            "# comment\n[[key]]\nname = \"a\"\nsha256 = \"{one}\"\nrole = \"infer\"\nrate = 2.5\nconcurrency = 4\n\
             [[key]]\nname = \"b\"\nsha256 = [\"{other}\"]\nrole = \"control\"\n"
        );
        let file = KeyFile::read(&text).unwrap();
        assert_eq!(file.keys[0].allowance(), Allowance { rate: Some(2.5), burst: 3.0, concurrency: Some(4) });
        assert_eq!(file.keys[1].digests(), [other]);
        assert_eq!(file.keys[1].allowance().rate, None);
        assert_eq!(KeyFile::read(&toml::to_string(&file).unwrap()), Ok(file));
    }

    #[test]
    fn pipe_and_folder_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("keys.toml");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let path = folder.path().to_owned();
        std::thread::spawn(move || tell.send([KeyFile::text(&pipe), KeyFile::text(&path)]));
        let read = told.recv_timeout(std::time::Duration::from_secs(60)).expect("it waits for a writer");
        assert_eq!(read, [(); 2].map(|()| Err("it is not a regular file".to_owned())));
    }

    #[test]
    fn errors_do_not_repeat_the_digest() {
        let key = |name: &str, digest: &str, rest: &str| {
            format!("[[key]]\nname = \"{name}\"\nsha256 = {digest}\nrole = \"infer\"\n{rest}\n")
        };
        let digest = format!("\"{}\"", Digest::of(b"hush"));
        let good = key("a", &digest, "");
        KeyFile::read(&good).unwrap();
        let cases = [
            (String::new(), "no key"),
            (key("a", "\"parm_hush\"", ""), "line 3"),
            (key("a", "[\"parm_hush\"]", ""), "64 hexadecimal digits"),
            (key("a", "hush", ""), "line 3"),
            (key("a", "[]", ""), "empty"),
            (key("a b", &digest, ""), "invalid key name"),
            (key("", &digest, ""), "invalid key name"),
            (key("a", &digest, "rate = 0"), "rate"),
            (key("a", &digest, "rate = inf"), "rate"),
            (key("a", &digest, "rate = 1e-20"), "rate"),
            (key("a", &digest, "rate = 0.0000099"), "rate"),
            (key("a", &digest, "burst = 4"), "burst"),
            (key("a", &digest, "rate = 4\nburst = 0"), "line"),
            (key("a", &digest, "concurrency = 0"), "line"),
            (key("a", &digest, "hush = 0"), "unknown field"),
            (format!("{good}{good}"), "two keys"),
            (format!("{good}{}", key("b", &digest, "")), "repeats the digest"),
            (good.replace("infer", "root"), "infer"),
            (good.replace("key]]", "keys]]"), "unknown field"),
        ];
        for (text, word) in cases {
            let told = KeyFile::read(&text).unwrap_err();
            assert!(told.contains(word), "{told} does not say {word}: {text}");
            assert!(!told.contains("parm_hush") && !told.contains(digest.trim_matches('"')), "{told}");
        }
    }
}
