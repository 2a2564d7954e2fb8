//! Files of any kind as a file-type model sees them: a kilobyte from either end, without the white space around it.
//!
//! A machine's own files are data without labels, for a deployed model that knows what they are. Folders are walked in
//! the order of names, links are not followed. Most files of a machine are of a few kinds, so at most so many of each
//! ending are taken; which ones, a hash of their names and a seed decides, so that neighbours from one folder do not
//! crowd others out. Two files that look the same to the model are taken once: rows to test on must not be known.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use md5::{Digest, Md5};
use parm_arrays::{TOKENS, tokens, walk};

use super::file::Limit;
use super::folder::{MOST_FILES, Rows};
use super::options::Options;
use super::{Samples, Unusable};

/// Which files are taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    /// Files of one ending at most.
    each: usize,
    seed: u64,
}

impl Draw {
    pub(super) fn read(options: &Options) -> Result<Self, Unusable> {
        Ok(Self {
            each: options.get("each", "a whole number above 0")?.map_or(100, NonZeroUsize::get),
            seed: options.get("draw", "a whole number")?.unwrap_or(1),
        })
    }
}

/// Rows of the files below `folders`, in the order of their names. What cannot be read is passed over: a machine has
/// files that nobody may open and files that go away.
pub(super) fn read(folders: &[PathBuf], draw: Draw, limit: Limit) -> Result<Samples, Unusable> {
    let mut by_ending: BTreeMap<String, Vec<(u64, PathBuf)>> = BTreeMap::new();
    for path in walk(folders, MOST_FILES)? {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        by_ending.entry(ending.to_ascii_lowercase()).or_default().push((rank(&path, draw.seed), path));
    }
    let mut taken = Vec::new();
    for mut files in by_ending.into_values() {
        files.sort_unstable();
        taken.extend(files.into_iter().take(draw.each).map(|(_, path)| path));
    }
    taken.sort_unstable();
    let (mut rows, mut seen) = (Rows::new(limit), BTreeSet::new());
    for path in taken {
        let Ok(Some(tokens)) = tokens(&path) else { continue };
        let tokens: Vec<f32> = tokens.into_iter().map(f32::from).collect();
        if seen.insert(digest(&tokens)) {
            rows.add(&path, &[TOKENS], &tokens)?;
        }
    }
    Samples::new(rows.array(), None)
}

/// A number that looks random and is always the same for a name and a seed.
fn rank(path: &Path, seed: u64) -> u64 {
    let mut digest = Md5::new();
    digest.update(seed.to_le_bytes());
    digest.update(path.as_os_str().as_encoded_bytes());
    let digest = digest.finalize();
    digest.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn digest(tokens: &[f32]) -> [u8; 16] {
    Md5::digest(bytemuck::cast_slice::<f32, u8>(tokens)).into()
}
