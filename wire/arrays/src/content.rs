//! Whole files in memory, unpacked if they are gzipped, within a bound.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::GzDecoder;

use crate::{Error, Problem};

/// A file's bytes, unpacked at most `limit` of them: a wrong path or a hostile archive must not take the machine's memory.
/// gzip is recognised by its first two bytes.
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
    // One byte more than allowed, to see whether there is more.
    let most = limit.saturating_add(1);
    match packed {
        true => GzDecoder::new(file).take(most).read_to_end(&mut bytes)?,
        false => file.take(most).read_to_end(&mut bytes)?,
    };
    Ok(bytes)
}
