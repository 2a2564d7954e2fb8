//! Result files: the result of a cell with everything that a join checks.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{Cell, Error, digest, draft};

/// The result of a run. Only its timings differ between runs of the cell.
#[derive(Clone, Debug)]
pub struct Product {
    /// The result as JSON. Equal cells of equal inputs have equal results.
    pub result: String,
    /// Measured times as JSON, which differ from run to run.
    pub timings: String,
    /// Milliseconds of the run.
    pub took_ms: u64,
}

/// A result file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The key of the cell.
    pub key: String,
    /// The kind of grid.
    pub grid: String,
    /// The name of the cell.
    pub name: String,
    /// The program that ran it.
    pub version: String,
    /// The process that ran it.
    pub holder: String,
    /// Milliseconds of the run.
    pub took_ms: u64,
    /// The digest of each input by its name.
    pub inputs: BTreeMap<String, String>,
    /// Measured times.
    pub timings: Box<RawValue>,
    /// The result.
    pub result: Box<RawValue>,
    /// The digest of all other fields.
    digest: String,
}

/// Largest result file that is read.
const LARGEST: u64 = 256 << 20;

impl Record {
    pub(crate) fn new(
        grid: &str,
        holder: &str,
        cell: &Cell,
        product: Product,
    ) -> Result<Self, serde_json::Error> {
        let mut record = Self {
            key: cell.key.clone(),
            grid: grid.into(),
            name: cell.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            holder: holder.into(),
            took_ms: product.took_ms,
            inputs: cell.inputs.clone(),
            timings: RawValue::from_string(product.timings)?,
            result: RawValue::from_string(product.result)?,
            digest: String::new(),
        };
        record.digest = record.content()?;
        Ok(record)
    }

    /// Reads a file. The error says why it is not a whole result.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let bytes = bytes(path).map_err(|error| error.to_string())?;
        if bytes.len() as u64 > LARGEST {
            return Err(format!("it has more than {LARGEST} bytes"));
        }
        let record: Self = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        let content = record.content().map_err(|error| error.to_string())?;
        if content != record.digest { Err("its digest differs".into()) } else { Ok(record) }
    }

    /// Writes it atomically.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Error> {
        let text = serde_json::to_vec(self).map_err(|error| Error::file("write", path)(error.into()))?;
        draft::write(path, &text).map_err(Error::file("write", path))
    }

    /// Whether this version of the program wrote it.
    pub(crate) fn is_of_this_version(&self) -> bool {
        self.version == env!("CARGO_PKG_VERSION")
    }

    /// Returns the input whose digest is not that of the cell, if there is one.
    pub(crate) fn other_input(&self, cell: &Cell) -> Option<String> {
        let differs = |(name, digest): (&String, &String)| self.inputs.get(name) != Some(digest);
        cell.inputs.iter().find(|input| differs(*input)).map(|(name, _)| name.clone())
    }

    fn content(&self) -> Result<String, serde_json::Error> {
        let Self { key, grid, name, version, holder, took_ms, inputs, timings, result, .. } = self;
        let content = (key, grid, name, version, holder, took_ms, inputs, timings, result);
        Ok(digest(&serde_json::to_vec(&content)?))
    }
}

/// Reads a regular file up to one byte more than the limit. A pipe would block, and a device may be endless.
fn bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
