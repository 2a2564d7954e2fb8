//! Reads the files of measurements that an experiment file names.

use std::fs;
use std::path::Path;

use crate::Error;

/// Most bytes of a file: a million numbers.
const LARGEST: u64 = 16 << 20;

/// Reads a file, relative to a folder, with a parser.
pub(crate) fn read<T>(
    folder: &Path,
    path: &Path,
    parser: impl Fn(&str) -> Result<T, Error>,
) -> Result<T, Error> {
    let refused = |reason: String| Error::File { path: path.into(), reason };
    let full = folder.join(path);
    let size = fs::metadata(&full).map_err(|error| refused(error.to_string()))?.len();
    if size > LARGEST {
        return Err(refused(format!("it has {size} bytes, at most {LARGEST} are read: cut it")));
    }
    let text = fs::read_to_string(&full).map_err(|error| refused(error.to_string()))?;
    parser(&text).map_err(|error| Error::Content { path: path.into(), error: Box::new(error) })
}
