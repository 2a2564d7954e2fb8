//! The folder of a grid: result files and leases of cells.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{Cell, Error, Leases, Listing, Product, Record};

/// A folder of cells.
#[derive(Clone)]
pub struct Folder {
    path: PathBuf,
    grid: &'static str,
    leases: Leases,
}

/// The result file of a cell.
#[derive(Clone, Debug)]
pub enum Found {
    /// It is whole and of this cell.
    Whole(Box<Record>),
    /// It is torn, or of another cell or grid.
    Damaged {
        /// The reason.
        reason: String,
    },
    /// It does not exist.
    Nothing,
}

impl Folder {
    /// Opens the cells of a results folder; `grid` is the kind of the grid.
    pub fn open(results: &Path, grid: &'static str, limit: Duration) -> Result<Self, Error> {
        let path = results.join("cells");
        let leases = Leases::new(&path, limit).map_err(Error::file("use", &path))?;
        Ok(Self { path, grid, leases })
    }

    /// Returns its leases.
    pub fn leases(&self) -> &Leases {
        &self.leases
    }

    /// Reads which cells have results and leases.
    pub fn listing(&self) -> Result<Listing, Error> {
        Listing::read(&self.path).map_err(Error::file("read", &self.path))
    }

    /// Returns the path of a cell's result.
    pub fn result_path(&self, key: &str) -> PathBuf {
        self.path.join(format!("{key}.json"))
    }

    /// Reads the result of a cell.
    pub fn found(&self, cell: &Cell) -> Found {
        found(&self.path, self.grid, &cell.key)
    }

    pub(crate) fn keep(&self, cell: &Cell, product: Product) -> Result<(), Error> {
        let path = self.result_path(&cell.key);
        let record = Record::new(self.grid, self.leases.holder(), cell, product);
        record.map_err(|error| Error::file("write", &path)(error.into()))?.write(&path)
    }
}

/// Reads the result of a key from a folder of cells.
pub(crate) fn found(cells: &Path, grid: &str, key: &str) -> Found {
    let path = cells.join(format!("{key}.json"));
    if matches!(path.try_exists(), Ok(false)) {
        return Found::Nothing;
    }
    match Record::read(&path) {
        Err(reason) => Found::Damaged { reason },
        Ok(record) if record.key != key => Found::Damaged { reason: format!("it is of cell {}", record.key) },
        Ok(record) if record.grid != grid => Found::Damaged { reason: format!("it is of a {}", record.grid) },
        Ok(record) => Found::Whole(Box::new(record)),
    }
}
