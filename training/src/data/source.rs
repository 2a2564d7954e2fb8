//! A data set in one line of text: `KIND:PATH,PATH?setting=value&setting`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::part::{Options, Part};
use super::{Samples, Unusable, bytes, csv};

/// The kinds of sources, with a help text for each.
pub const KINDS: &[(&str, &str)] = &[
    ("idx", "IMAGES,LABELS: MNIST and its family, plain or gzipped"),
    ("npy", "ROWS,LABELS: arrays that numpy saved; labels are classes, or a matrix of numbers to predict"),
    (
        "csv",
        "FILE: target=COLUMN [the last], as=class or value; text columns become one column for each word",
    ),
    (
        "bytes",
        "FOLDER,FOLDER..: files of any kind below them as a file-type model sees them, 1024 bytes from either end, no \
             labels; each=100 of every ending at most, drawn with draw=1",
    ),
];

/// Help text of the settings for every kind.
const GENERAL: &str = "rows=FROM..TO takes some rows only, sample=1000 so many random ones; part=train or part=test the random halves that hold=0.2 \
                       (the share of the test rows) and seed=1 make";

/// A parsed source: the files of a data set, and how to read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    text: String,
    kind: &'static str,
    paths: Vec<PathBuf>,
    settings: String,
}

impl Source {
    /// Reads all rows. `limit` applies to each file and to the values of all rows together.
    pub fn read(&self, limit: Limit) -> Result<Samples, Unusable> {
        self.read_for(1, limit)
    }

    /// Reads all rows for a model with this many inputs.
    pub fn read_for(&self, inputs: usize, limit: Limit) -> Result<Samples, Unusable> {
        if inputs > 1 && self.kind != "npy" {
            return Err(
                self.problem(&format!("the model has {inputs} inputs: use npy: with one array per input"))
            );
        }
        let options = Options::parse(&self.settings)?;
        let part = Part::read(&options)?;
        let samples = self.samples(inputs, &options, limit)?;
        options.finish()?;
        if samples.is_empty() {
            return Err(Unusable::NoRows { source_text: self.text.clone() });
        }
        part.of(samples)
    }

    /// Describes all kinds, for help texts.
    pub fn help() -> String {
        let kinds = KINDS.iter().map(|(kind, rest)| format!("  {kind}:{rest}\n"));
        format!("{}  any kind: {GENERAL}", kinds.collect::<String>())
    }

    fn samples(&self, inputs: usize, options: &Options, limit: Limit) -> Result<Samples, Unusable> {
        match self.kind {
            "idx" => {
                let [images, labels] = self.one_or_two()?;
                Samples::idx(images.unwrap_or(Path::new("")), labels, limit)
            }
            "npy" => {
                let paths: Vec<&Path> = self.paths.iter().map(PathBuf::as_path).collect();
                let Some((arrays, [] | [_])) = paths.split_at_checked(inputs) else {
                    let wanted = format!("give {inputs} paths, or one more for labels, separated by commas");
                    return Err(self.problem(&wanted));
                };
                Samples::npys(arrays, paths.get(inputs).copied(), limit)
            }
            "csv" => csv::read(self.one()?, &csv::TargetColumn::read(options)?, limit),
            _ => bytes::read(&self.paths, bytes::Draw::read(options)?, limit),
        }
    }

    fn one(&self) -> Result<&Path, Unusable> {
        match &self.paths[..] {
            [path] => Ok(path),
            _ => Err(self.problem("give one path")),
        }
    }

    fn one_or_two(&self) -> Result<[Option<&Path>; 2], Unusable> {
        match &self.paths[..] {
            [rows] => Ok([Some(rows), None]),
            [rows, labels] => Ok([Some(rows), Some(labels)]),
            _ => Err(self.problem("give one or two paths, separated by a comma")),
        }
    }

    fn problem(&self, message: &str) -> Unusable {
        Unusable::Source { text: self.text.clone(), message: message.into() }
    }
}

impl FromStr for Source {
    type Err = Unusable;

    fn from_str(text: &str) -> Result<Self, Unusable> {
        let known = || KINDS.iter().map(|(kind, _)| *kind).collect::<Vec<_>>().join(", ");
        let problem = |message: String| Unusable::Source { text: text.into(), message };
        let (kind, rest) = text
            .split_once(':')
            .ok_or_else(|| problem(format!("start with a kind and a colon: {}", known())))?;
        let found = KINDS.iter().find(|(name, _)| *name == kind);
        let (kind, _) = found.ok_or_else(|| problem(format!("unknown kind '{kind}': use {}", known())))?;
        let (paths, settings) = rest.split_once('?').unwrap_or((rest, ""));
        let paths: Vec<PathBuf> = paths.split(',').map(PathBuf::from).collect();
        if paths.iter().any(|path| path.as_os_str().is_empty()) {
            return Err(problem("a path is empty".into()));
        }
        Options::parse(settings)?;
        Ok(Self { text: text.into(), kind, paths, settings: settings.into() })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Maximum size of an unpacked file: a wrong path or a hostile archive must not exhaust memory. Default 4 GiB; larger
/// data sets are read in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(pub u64);

impl Default for Limit {
    fn default() -> Self {
        Self(4 << 30)
    }
}

/// A file's bytes; gzip is recognised by its first two.
pub(super) fn content(path: &Path, limit: Limit) -> Result<Vec<u8>, Unusable> {
    Ok(parm_arrays::content(path, limit.0)?)
}
