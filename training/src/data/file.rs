//! Reads whole files into memory within a limit, and unpacks gzip.

use std::path::Path;

use super::Unusable;

/// Maximum size of an unpacked file: a wrong path or a hostile archive must not exhaust memory. Default 4 GiB; larger
/// data sets are read in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(pub u64);

impl Default for Limit {
    fn default() -> Self {
        Self(4 << 30)
    }
}

/// A file's bytes; gzip is recognised by its first two.
pub(super) fn read(path: &Path, limit: Limit) -> Result<Vec<u8>, Unusable> {
    Ok(parm_arrays::content(path, limit.0)?)
}
