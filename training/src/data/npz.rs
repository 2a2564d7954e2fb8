//! Archives of numpy arrays.

use std::io::{Cursor, Read};
use std::path::Path;

use parm_arrays::Format;
use zip::ZipArchive;

use super::file::{self, Limit};
use super::options::Options;
use super::samples::{self, Samples};
use super::{Unusable, sequence};
use crate::Array;

/// The names of the arrays.
pub(super) struct Names {
    rows: String,
    labels: Option<String>,
    /// Lengths of sequences, whose rows are stored one after the other.
    lengths: Option<String>,
    /// Number of rows that every sequence is resampled to.
    frames: usize,
    /// Whether each feature of a sequence is scaled to mean 0 and deviation 1.
    standard: bool,
}

impl Names {
    pub(super) fn read(options: &Options) -> Result<Self, Unusable> {
        Ok(Self {
            rows: options.text("inputs").unwrap_or_else(|| "x".into()),
            labels: options.text("labels"),
            lengths: options.text("lengths"),
            frames: options.get("frames", "a whole number above 0")?.map_or(20, std::num::NonZeroUsize::get),
            standard: options.flag("standard")?,
        })
    }
}

pub(super) fn samples(path: &Path, names: &Names, limit: Limit) -> Result<Samples, Unusable> {
    let content = file::read(path, limit)?;
    let format = |detail: String| Unusable::Format { path: path.into(), expected: "an npz archive", detail };
    let mut archive = ZipArchive::new(Cursor::new(content)).map_err(|error| format(error.to_string()))?;
    let mut array = |name: &str| array(&mut archive, path, name, limit);
    let mut rows = array(&names.rows)?;
    if let Some(lengths) = &names.lengths {
        let lengths = array(lengths)?;
        if names.standard {
            sequence::standardise(&mut rows);
        }
        rows = sequence::stretched(path, &rows, lengths.data(), names.frames, limit)?;
    }
    let labels = names.labels.as_deref().map(&mut array).transpose()?;
    Samples::labelled(rows.map(|&value| value as f32), labels.map(|labels| (path, labels)))
}

fn array(
    archive: &mut ZipArchive<Cursor<Vec<u8>>>,
    path: &Path,
    name: &str,
    limit: Limit,
) -> Result<Array<f64>, Unusable> {
    let available: Vec<String> = archive
        .file_names()
        .filter_map(|name| Some(name.ok()?.trim_end_matches(".npy").to_owned()))
        .collect();
    let member = archive.by_name(&format!("{name}.npy"));
    let member = member.map_err(|_| Unusable::NoArray { path: path.into(), name: name.into(), available })?;
    let mut content = Vec::new();
    let read = member.take(limit.0.saturating_add(1)).read_to_end(&mut content);
    read.map_err(|error| Unusable::Read { path: path.into(), message: error.to_string() })?;
    if content.len() as u64 > limit.0 {
        return Err(Unusable::TooLarge { path: path.into(), limit: limit.0 });
    }
    samples::floats(path, &Format::Npy.parse(path, content)?)
}
