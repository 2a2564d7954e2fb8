//! Cells of a grid: independent runs of minutes to hours, divided into shares that separate processes run.
//!
//! A matrix of trainings and a simulated experiment are grids. Each cell has a stable key and a result file of its own. This
//! crate is not a scheduler, because Slurm, Kubernetes and Ray already number the processes of an array and start a lost one
//! again: a process runs the cells of its [`Share`] that have no result yet, and [`join`] reads the results of all.
//!
//! Rejected: cells that processes take from a common list. That balances them better, but needs leases, and then a lost
//! process must be told from a paused one, which the engine knows already.

mod results;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sha2::{Digest, Sha256};

pub use results::{Folder, Joined, Problem, Product, Record, join, records, write};

/// A cell of a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The stable key: it changes with every setting that the result depends on.
    pub key: String,
    /// Its name in messages.
    pub name: String,
    /// The digest of each input by its name. Empty: any digest is accepted that all results share.
    pub inputs: BTreeMap<String, String>,
}

/// Returns the SHA-256 of bytes as hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the key of a cell with these settings: 16 hexadecimal digits.
pub fn key(settings: &[u8]) -> String {
    digest(settings)[..16].to_owned()
}

/// Share number `index` of `of` shares, counted from 0: every `of`-th cell, so that the sizes of shares differ by one at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    index: usize,
    of: usize,
}

impl Share {
    /// Returns the cells of this share.
    pub fn of<T: Clone>(self, cells: &[T]) -> Vec<T> {
        cells.iter().skip(self.index).step_by(self.of).cloned().collect()
    }
}

impl FromStr for Share {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts =
            text.split_once('/').and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
        match parts {
            Some((index, of)) if index < of => Ok(Self { index, of }),
            _ => Err(Error::BadShare { given: text.into() }),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

/// An error of a grid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("cannot {what} '{}': {reason}", path.display())]
    File { what: &'static str, path: PathBuf, reason: String },
    #[error("invalid share '{given}': give I/N with I from 0 to N - 1, such as 0/4")]
    BadShare { given: String },
    #[error(
        "cell {name} has a result from other inputs ({input}) in '{}': use another folder for results",
        path.display()
    )]
    OtherInputs { name: String, input: String, path: PathBuf },
    #[error(
        "cell {name} has a result of parm {version} in '{}', this is {own}: use another folder for results",
        path.display(), own = env!("CARGO_PKG_VERSION")
    )]
    OtherVersion { name: String, version: String, path: PathBuf },
}

impl Error {
    /// Builds the error of a file operation.
    fn file(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::File { what, path: path.into(), reason: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_in_exactly_one_share() {
        let cell = |number: u32| Cell {
            key: key(&number.to_le_bytes()),
            name: number.to_string(),
            inputs: BTreeMap::new(),
        };
        let cells: Vec<Cell> = (0..10).map(cell).collect();
        let shares = (0..4).map(|index| format!("{index}/4").parse::<Share>().unwrap().of(&cells));
        let names = |share: Vec<Cell>| share.into_iter().map(|cell| cell.name).collect::<Vec<_>>().join(" ");
        assert_eq!(shares.map(names).collect::<Vec<_>>(), ["0 4 8", "1 5 9", "2 6", "3 7"]);
        assert_eq!("10/11".parse::<Share>().unwrap().of(&cells), []);
    }

    #[test]
    fn invalid_share_error_shows_expected_form() {
        for given in ["4/4", "1", "1/0", "-1/4", "a/b", ""] {
            let error = given.parse::<Share>().unwrap_err().to_string();
            assert!(error.contains("0/4"), "{given}: {error}");
        }
    }
}
