//! One reading of a folder of cells: which have a result, and the newest lease of each.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

/// The entries of a folder at one moment.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    leases: BTreeMap<String, BTreeSet<u32>>,
    results: Vec<String>,
}

impl Listing {
    /// Reads a folder. One that does not exist is empty.
    pub fn read(folder: &Path) -> io::Result<Self> {
        let mut listing = Self::default();
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(listing),
            entries => entries?,
        };
        for entry in entries {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            if let Some(key) = name.strip_suffix(".json") {
                listing.results.push(key.to_owned());
            } else if let Some((key, generation)) = name.split_once(".lease.")
                && let Ok(generation) = generation.parse::<u32>()
            {
                listing.leases.entry(key.to_owned()).or_default().insert(generation);
            }
        }
        listing.results.sort_unstable();
        Ok(listing)
    }

    /// Returns the generation of the newest lease of a cell; 0 if it has none.
    pub fn generation(&self, key: &str) -> u32 {
        self.generations(key).last().unwrap_or_default()
    }

    /// Returns the generations of all leases of a cell, in order.
    pub(crate) fn generations(&self, key: &str) -> impl Iterator<Item = u32> {
        self.leases.get(key).into_iter().flatten().copied()
    }

    /// Whether a cell has a result file.
    pub fn has_result(&self, key: &str) -> bool {
        self.results.binary_search_by(|found| found.as_str().cmp(key)).is_ok()
    }

    /// Returns the keys of all result files.
    pub fn results(&self) -> &[String] {
        &self.results
    }
}
