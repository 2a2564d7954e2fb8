//! Joins the results of several folders: checks every file, and reports what is missing or does not fit.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::folder::found;
use crate::{Cell, Error, Found, Listing, Record};

/// The results of a grid.
#[derive(Clone, Debug, Default)]
pub struct Joined {
    /// The results by key.
    pub records: BTreeMap<String, Record>,
    /// Reasons why results are missing, in order.
    pub problems: Vec<Problem>,
    /// Result files of other grids or settings, which were ignored.
    pub foreign: Vec<PathBuf>,
}

/// The reason why a file was not joined, or a cell has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the messages say it
pub enum Problem {
    NoFolder { path: PathBuf },
    Missing { name: String, key: String },
    Damaged { path: PathBuf, reason: String },
    OtherVersion { path: PathBuf, version: String },
    OtherInputs { path: PathBuf, input: String },
    Differs { path: PathBuf, from: PathBuf },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFolder { path } => {
                write!(f, "not joined: no folder '{}': name folders that --results named", path.display())
            }
            Self::Missing { name, key } => write!(f, "missing: {name}: run it with --cell {key}"),
            Self::Damaged { path, reason } => {
                write!(f, "not joined: {}: {reason}: run its cell again", path.display())
            }
            Self::OtherVersion { path, version } => {
                let (path, own) = (path.display(), env!("CARGO_PKG_VERSION"));
                write!(
                    f,
                    "not joined: {path}: parm {version} wrote it, this is {own}: run its cell in another folder"
                )
            }
            Self::OtherInputs { path, input } => {
                write!(
                    f,
                    "not joined: {}: its input differs ({input}): give every machine the same",
                    path.display()
                )
            }
            Self::Differs { path, from } => {
                let (path, from) = (path.display(), from.display());
                write!(f, "not joined: {path} and {from} have different results: run the cell again")
            }
        }
    }
}

/// Reads the results of these cells from results folders.
pub fn join(folders: &[PathBuf], grid: &str, cells: &[Cell]) -> Result<Joined, Error> {
    let mut joined = Joined::default();
    let keys: BTreeSet<&str> = cells.iter().map(|cell| cell.key.as_str()).collect();
    let folders: Vec<PathBuf> = folders.iter().map(|folder| folder.join("cells")).collect();
    for folder in &folders {
        if matches!(folder.try_exists(), Ok(false)) {
            joined.problems.push(Problem::NoFolder { path: folder.clone() });
        }
        let listing = Listing::read(folder).map_err(Error::file("read", folder))?;
        let others = listing.results().iter().filter(|key| !keys.contains(key.as_str()));
        joined.foreign.extend(others.map(|key| folder.join(format!("{key}.json"))));
    }
    let mut inputs = BTreeMap::new();
    for cell in cells {
        match one(&folders, grid, cell, &mut inputs, &mut joined.problems) {
            Some(record) => _ = joined.records.insert(cell.key.clone(), record),
            None => joined.problems.push(Problem::Missing { name: cell.name.clone(), key: cell.key.clone() }),
        }
    }
    Ok(joined)
}

/// Reads all whole results of a kind and of this version in a results folder, which may still be filled.
pub fn records(results: &Path, grid: &str) -> Result<Vec<Record>, Error> {
    let folder = results.join("cells");
    let listing = Listing::read(&folder).map_err(Error::file("read", &folder))?;
    let whole = |key: &String| match found(&folder, grid, key) {
        Found::Whole(record) if record.is_of_this_version() => Some(*record),
        _ => None,
    };
    Ok(listing.results().iter().filter_map(whole).collect())
}

/// Returns the result of a cell if all folders that have one agree. `inputs` are the digests so far.
fn one(
    folders: &[PathBuf],
    grid: &str,
    cell: &Cell,
    inputs: &mut BTreeMap<String, String>,
    problems: &mut Vec<Problem>,
) -> Option<Record> {
    let mut first: Option<(PathBuf, Record)> = None;
    for folder in folders {
        let path = folder.join(format!("{}.json", cell.key));
        let record = match found(folder, grid, &cell.key) {
            Found::Nothing => continue,
            Found::Damaged { reason } => {
                problems.push(Problem::Damaged { path, reason });
                continue;
            }
            Found::Whole(record) => *record,
        };
        if let Some(problem) = unfit(&path, &record, cell, inputs) {
            problems.push(problem);
            continue;
        }
        if cell.inputs.is_empty() {
            inputs.extend(record.inputs.clone());
        }
        match &first {
            None => first = Some((path, record)),
            Some((from, one)) if one.result.get() != record.result.get() => {
                problems.push(Problem::Differs { path, from: from.clone() });
                return None;
            }
            Some(_) => {}
        }
    }
    first.map(|(_, record)| record)
}

fn unfit(path: &Path, record: &Record, cell: &Cell, inputs: &BTreeMap<String, String>) -> Option<Problem> {
    let path = path.to_owned();
    if !record.is_of_this_version() {
        return Some(Problem::OtherVersion { path, version: record.version.clone() });
    }
    let differs =
        |(name, digest): &(&String, &String)| inputs.get(*name).is_some_and(|known| known != *digest);
    let other = match cell.inputs.is_empty() {
        true => record.inputs.iter().find(differs).map(|(name, _)| name.clone()),
        false => record.other_input(cell),
    };
    other.map(|input| Problem::OtherInputs { path, input })
}
