//! Writes files atomically.

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::Error;

/// Writes `bytes` to a temporary file in the folder of `path`, syncs it and renames it: readers never see a partial
/// file, and a full disk leaves the old file.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::Write { path: path.into(), message: error.to_string() };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let draft = path.with_file_name(name);
    let written = fs::File::create(&draft).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let moved = written.and_then(|()| fs::rename(&draft, path));
    moved.inspect_err(|_| _ = fs::remove_file(&draft)).map_err(failed)
}
