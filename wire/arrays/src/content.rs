//! Whole files in memory, unpacked, within a size limit.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::{Error, Problem};

/// The bytes of a file, unpacked, at most `limit`: a wrong path or a hostile archive must not fill the memory. gzip is
/// recognised by its first two bytes, and may have several parts.
pub fn content(path: &Path, limit: u64) -> Result<Vec<u8>, Error> {
    let bytes = unpacked(path, limit).map_err(|error| Error::new(path, Problem::Read(error.to_string())))?;
    if bytes.len() as u64 > limit {
        return Err(Error::new(path, Problem::TooLarge { limit }));
    }
    Ok(bytes)
}

fn unpacked(path: &Path, limit: u64) -> std::io::Result<Vec<u8>> {
    let mut file = BufReader::new(File::open(path)?);
    let packed = file.fill_buf()?.starts_with(&[0x1F, 0x8B]);
    let mut bytes = Vec::new();
    // One byte more than allowed, to detect larger files.
    let most = limit.saturating_add(1);
    match packed {
        true => MultiGzDecoder::new(file).take(most).read_to_end(&mut bytes)?,
        false => file.take(most).read_to_end(&mut bytes)?,
    };
    Ok(bytes)
}
