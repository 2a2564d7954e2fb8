//! Result files: the result of a cell with everything that a join checks.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{Cell, Error, digest};

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
        let size = fs::metadata(path).map_err(|error| error.to_string())?.len();
        if size > LARGEST {
            return Err(format!("it has {size} bytes"));
        }
        let bytes = fs::read(path).map_err(|error| error.to_string())?;
        let record: Self = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        let content = record.content().map_err(|error| error.to_string())?;
        if content != record.digest { Err("its digest differs".into()) } else { Ok(record) }
    }

    /// Writes it to a temporary file in the same folder, syncs it and renames it.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Error> {
        let holder: String =
            self.holder.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let draft = path.with_extension(format!("part-{holder}"));
        let text = serde_json::to_vec(self).map_err(|error| Error::file("write", path)(error.into()))?;
        let written = fs::File::create(&draft).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()
        });
        let moved = written.and_then(|()| fs::rename(&draft, path));
        moved.inspect_err(|_| _ = fs::remove_file(&draft)).map_err(Error::file("write", path))
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
