//! Checkpoints: a run's state in a file, written atomically and verified by a digest.
//!
//! The format: the length of an index (little endian) and its JSON, the elements of all arrays, SHA-256 of all that. A
//! fingerprint in the index identifies the run: another model, other data or other settings must not continue from it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::file;

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

#[derive(Serialize, Deserialize)]
struct Index {
    fingerprint: String,
    header: String,
    /// The number of elements of each array.
    lengths: Vec<usize>,
}

impl Checkpoint {
    pub(super) fn write(&self, path: &Path, fingerprint: &str) -> Result<(), crate::Error> {
        let lengths = self.arrays.iter().map(Vec::len).collect();
        let index = Index { fingerprint: fingerprint.into(), header: self.header.clone(), lengths };
        let index = serde_json::to_vec(&index).expect("plain values");
        let mut bytes = (index.len() as u64).to_le_bytes().to_vec();
        bytes.extend(index);
        bytes.extend(self.arrays.iter().flatten().flat_map(|value| value.to_le_bytes()));
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
        let (index, arrays) = parse(&bytes).ok_or_else(|| CheckpointError::Damaged { path: path.into() })?;
        if index.fingerprint != fingerprint {
            return Err(CheckpointError::OtherRun { path: path.into() });
        }
        Ok(Self { header: index.header, arrays })
    }
}

/// The content of a file; `None` if it is damaged.
fn parse(bytes: &[u8]) -> Option<(Index, Vec<Vec<f32>>)> {
    let (content, digest) = bytes.split_at_checked(bytes.len().checked_sub(DIGEST)?)?;
    if Sha256::digest(content)[..] != *digest {
        return None;
    }
    let (length, rest) = content.split_first_chunk::<8>()?;
    let (index, elements) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    let index: Index = serde_json::from_slice(index).ok()?;
    let (mut elements, _) = elements.as_chunks::<4>();
    let mut arrays = Vec::with_capacity(index.lengths.len());
    for &length in &index.lengths {
        let (own, others) = elements.split_at_checked(length)?;
        arrays.push(own.iter().map(|value| f32::from_le_bytes(*value)).collect());
        elements = others;
    }
    Some((index, arrays))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_is_read_only_when_intact() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.checkpoint");
        let whole = Checkpoint { header: "{}".into(), arrays: vec![vec![1.0, 2.0], vec![]] };
        whole.write(&path, "a run").unwrap();
        let read = Checkpoint::read(&path, "a run").unwrap();
        assert_eq!((read.header, read.arrays), (whole.header, whole.arrays));
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
