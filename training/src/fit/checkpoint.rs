//! Checkpoints: a run's state in a file, written atomically and verified by a digest.
//!
//! The format: magic, length and text of a header, lengths and elements of the arrays (little endian), SHA-256 of all
//! that. A fingerprint identifies the run: another model, other data or other settings must not continue from it.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::file;

const MAGIC: &[u8; 8] = b"parmrun1";
const DIGEST: usize = 32;
/// Maximum size of a checkpoint: four times a gigabyte of weights.
const LARGEST: u64 = 4 << 30;

/// An error of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum CheckpointError {
    #[error("cannot read the checkpoint '{}': {message}", path.display())]
    Read { path: PathBuf, message: String },
    #[error("'{}' is not a complete checkpoint: remove it to start again", path.display())]
    Damaged { path: PathBuf },
    #[error(
        "the checkpoint '{}' belongs to another run (other data, model or settings): remove it, or give another path",
        path.display()
    )]
    OtherRun { path: PathBuf },
}

/// The content of a checkpoint.
pub(super) struct Checkpoint {
    pub(super) header: String,
    pub(super) arrays: Vec<Vec<f32>>,
}

impl Checkpoint {
    pub(super) fn write(
        path: &Path,
        fingerprint: &str,
        header: &str,
        arrays: &[Vec<f32>],
    ) -> Result<(), crate::Error> {
        let mut bytes = MAGIC.to_vec();
        for text in [fingerprint, header] {
            bytes.extend((text.len() as u64).to_le_bytes());
            bytes.extend(text.as_bytes());
        }
        bytes.extend((arrays.len() as u64).to_le_bytes());
        for array in arrays {
            bytes.extend((array.len() as u64).to_le_bytes());
            bytes.extend(array.iter().flat_map(|value| value.to_le_bytes()));
        }
        let digest = Sha256::digest(&bytes);
        bytes.extend(digest);
        file::write(path, &bytes)
    }

    pub(super) fn read(path: &Path, fingerprint: &str) -> Result<Self, CheckpointError> {
        let unreadable = |message: String| CheckpointError::Read { path: path.into(), message };
        let size = fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
        if size > LARGEST {
            return Err(unreadable(format!("it has {size} bytes, the limit is {LARGEST}")));
        }
        let bytes = fs::read(path).map_err(|error| unreadable(error.to_string()))?;
        let damaged = || CheckpointError::Damaged { path: path.into() };
        let (content, digest) =
            bytes.len().checked_sub(DIGEST).map(|at| bytes.split_at(at)).ok_or_else(damaged)?;
        if Sha256::digest(content)[..] != *digest {
            return Err(damaged());
        }
        let mut reader = Reader(content.strip_prefix(MAGIC).ok_or_else(damaged)?);
        if reader.text().ok_or_else(damaged)? != fingerprint {
            return Err(CheckpointError::OtherRun { path: path.into() });
        }
        let header = reader.text().ok_or_else(damaged)?;
        let count = reader.number().ok_or_else(damaged)?;
        let arrays = (0..count).map(|_| reader.array()).collect::<Option<_>>().ok_or_else(damaged)?;
        Ok(Self { header, arrays })
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<usize> {
        usize::try_from(u64::from_le_bytes(self.take(8)?.try_into().ok()?)).ok()
    }

    fn text(&mut self) -> Option<String> {
        let length = self.number()?;
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }

    fn array(&mut self) -> Option<Vec<f32>> {
        let length = self.number()?;
        let bytes = self.take(length.checked_mul(4)?)?;
        let (values, _) = bytes.as_chunks::<4>();
        Some(values.iter().map(|value| f32::from_le_bytes(*value)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_is_read_only_when_intact() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.checkpoint");
        Checkpoint::write(&path, "a run", "{}", &[vec![1.0, 2.0], vec![]]).unwrap();
        let read = Checkpoint::read(&path, "a run").unwrap();
        assert_eq!((read.header.as_str(), read.arrays), ("{}", vec![vec![1.0, 2.0], vec![]]));
        assert_eq!(
            Checkpoint::read(&path, "b run").err(),
            Some(CheckpointError::OtherRun { path: path.clone() })
        );
        let bytes = fs::read(&path).unwrap();
        for cut in 0..bytes.len() {
            fs::write(&path, &bytes[..cut]).unwrap();
            assert_eq!(
                Checkpoint::read(&path, "a run").err(),
                Some(CheckpointError::Damaged { path: path.clone() })
            );
        }
    }
}
