//! Writes files atomically.

use std::fs;
use std::path::Path;

use crate::Error;

/// Writes `bytes` to a temporary file in the folder of `path`, syncs it and renames it: readers never see a partial
/// file, and a full disk leaves the old file.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::Write { path: path.into(), message: error.to_string() };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    parm_grids::write(path, bytes).map_err(failed)
}
