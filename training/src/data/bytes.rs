//! Files of any kind as a file-type model sees them: a kilobyte from each end, without surrounding white space.
//!
//! The files of a machine are data without labels for a deployed model that recognises their type. Folders are walked
//! in order of names; links are not followed. Most files belong to a few kinds, so the number per file extension is
//! limited. A hash of name and seed chooses among them, so that one folder's files do not displace others. Two files
//! that look equal to the model are read once: test rows must not occur in training.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use md5::{Digest, Md5};
use parm_arrays::{TOKENS, tokens, walk};

use super::Limit;
use super::part::Options;
use super::{Samples, Unusable};
use crate::Array;

/// Maximum number of files of a data set.
const MOST_FILES: usize = 4_000_000;

/// Limits on the files to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    /// Maximum number of files per extension.
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

/// Rows of the files below `folders`, in order of names. Unreadable files are skipped: on a machine, some lack
/// permission and some disappear.
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
    let (mut rows, mut seen) = (Vec::new(), BTreeSet::new());
    for path in taken {
        let Ok(Some(tokens)) = tokens(&path) else { continue };
        let tokens: Vec<f32> = tokens.into_iter().map(f32::from).collect();
        if seen.insert(digest(&tokens)) {
            if 4 * (rows.len() + tokens.len()) as u64 > limit.0 {
                return Err(Unusable::TooLarge { path, limit: limit.0 });
            }
            rows.extend(tokens);
        }
    }
    let rows = Array::new(vec![rows.len() / TOKENS, TOKENS], rows).expect("rows of one length");
    Samples::new(rows, None)
}

/// A pseudo-random number that depends on the name and the seed only.
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
