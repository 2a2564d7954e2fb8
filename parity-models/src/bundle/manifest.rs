//! The manifest of a bundle, the file `NAME/parm.toml`.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Deployed, Parity, StandIn};
use crate::Error;

/// The manifest format of this version.
pub const FORMAT: u32 = 1;

/// Largest manifest, in bytes: default answers of large outputs need the most space.
const LARGEST: u64 = 16 << 20;

/// A bundle's manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The format: 1.
    pub format: u32,
    /// The model that answers queries.
    pub deployed: Deployed,
    /// The codes of its groups, each with its parity models; several let the policy choose k.
    #[serde(default, rename = "parity")]
    pub parities: Vec<Parity>,
    /// Cheaper models that answer queries by themselves.
    #[serde(default, rename = "stand_in", skip_serializing_if = "Vec::is_empty")]
    pub stand_ins: Vec<StandIn>,
}

impl Manifest {
    /// A manifest of the current format.
    pub fn new(deployed: Deployed) -> Self {
        Self { format: FORMAT, deployed, parities: Vec::new(), stand_ins: Vec::new() }
    }

    /// Reads a manifest.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let unreadable = |message: String| Error::Read { path: path.into(), message };
        let metadata = fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
        if !metadata.is_file() {
            // Others may have no end, or wait for a writer.
            return Err(unreadable("it is not a plain file: name one".into()));
        }
        let mut text = String::new();
        let file = fs::File::open(path).map_err(|error| unreadable(error.to_string()))?;
        let read = file.take(LARGEST + 1).read_to_string(&mut text);
        read.map_err(|error| unreadable(error.to_string()))?;
        if text.len() as u64 > LARGEST {
            return Err(unreadable(format!("it has more than {LARGEST} bytes, which no manifest has")));
        }
        Self::parse(&text, path)
    }

    /// Parses a manifest's text; `path` is for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Error> {
        /// The one field of every format.
        #[derive(Deserialize)]
        struct Header {
            format: u32,
        }
        let malformed = |error: toml::de::Error| Error::Manifest {
            path: path.into(),
            message: error.to_string().trim_end().to_owned(),
        };
        let version: Header = toml::from_str(text).map_err(malformed)?;
        if version.format != FORMAT {
            return Err(Error::ManifestFormat { path: path.into(), format: version.format, known: FORMAT });
        }
        toml::from_str(text).map_err(malformed)
    }

    /// The manifest as text.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every field has a form in TOML")
    }

    /// Writes the manifest atomically: a reader never sees a partial file.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let failed = |error: std::io::Error| Error::Write { path: path.into(), message: error.to_string() };
        let draft = path.with_extension(format!("toml.{}.part", std::process::id()));
        let written = fs::File::create(&draft).and_then(|mut file| {
            file.write_all(self.to_toml().as_bytes())?;
            file.sync_all()
        });
        let moved = written.and_then(|()| fs::rename(&draft, path));
        moved.inspect_err(|_| _ = fs::remove_file(&draft)).map_err(failed)
    }

    /// The stand-in of the lowest cost; of those with equal cost, the one that agrees most often.
    pub fn cheapest(&self) -> Option<&StandIn> {
        let key = |stand_in: &StandIn| {
            (stand_in.cost().unwrap_or(f64::INFINITY), -stand_in.agreement.unwrap_or(0.0))
        };
        let order = |a: &(f64, f64), b: &(f64, f64)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1));
        self.stand_ins.iter().min_by(|a, b| order(&key(a), &key(b)))
    }

    /// The parity for `k` with the best measured accuracy.
    pub fn best(&self, k: usize) -> Option<&Parity> {
        let degraded = |parity: &&Parity| parity.accuracy.as_ref().map_or(0.0, |accuracy| accuracy.degraded);
        let candidates = self.parities.iter().filter(|parity| parity.code.k == k);
        candidates.max_by(|a, b| degraded(a).total_cmp(&degraded(b)))
    }
}
