//! Whole files in memory, unpacked if they are gzipped, within a bound.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::GzDecoder;
use md5::{Digest, Md5};

use super::Error;

/// The most bytes that one file may unpack to. A wrong path or a hostile archive must not take the machine's memory.
/// Default 4 GiB: ImageNet-sized sets are read in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(pub u64);

impl Default for Limit {
    fn default() -> Self {
        Self(4 << 30)
    }
}

/// A file's bytes; gzip is recognised by its first two.
pub(super) fn read(path: &Path, limit: Limit) -> Result<Vec<u8>, Error> {
    let failed = |error: std::io::Error| Error::Read { path: path.into(), message: error.to_string() };
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let packed = file.fill_buf().map_err(failed)?.starts_with(&[0x1f, 0x8b]);
    let mut bytes = Vec::new();
    // One byte more than allowed, to see whether there is more.
    let most = limit.0.saturating_add(1);
    match packed {
        true => GzDecoder::new(file).take(most).read_to_end(&mut bytes),
        false => file.take(most).read_to_end(&mut bytes),
    }
    .map_err(failed)?;
    if bytes.len() as u64 > limit.0 {
        return Err(Error::TooLarge { path: path.into(), limit: limit.0 });
    }
    Ok(bytes)
}

/// The MD5 sum of a file's unpacked content, in hexadecimal, as publishers of data sets state it.
pub fn md5(path: &Path, limit: Limit) -> Result<String, Error> {
    let digest = Md5::digest(read(path, limit)?);
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}
