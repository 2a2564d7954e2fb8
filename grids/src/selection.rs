//! The cells that a process runs.

use crate::{Cell, Error, Share};

/// Cells by key, or a share of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// A share.
    Share(Share),
    /// The cells with these keys.
    Keys(Vec<String>),
}

impl Selection {
    /// Returns the selected cells. An unknown key is an error.
    pub fn of(&self, cells: &[Cell]) -> Result<Vec<Cell>, Error> {
        match self {
            Self::Share(share) => {
                Ok(cells.iter().filter(|cell| share.contains(&cell.key)).cloned().collect())
            }
            Self::Keys(keys) => {
                let known = |key: &String| {
                    cells.iter().find(|cell| cell.key == *key).cloned().ok_or_else(|| key.clone())
                };
                let found: Result<Vec<_>, _> = keys.iter().map(known).collect();
                found.map_err(|key| Error::UnknownCell { key })
            }
        }
    }
}
