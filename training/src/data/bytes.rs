//! Files of any kind as a file-type model sees them: a kilobyte from either end, without the white space around it.
//!
//! A machine's own files are data without labels, for a deployed model that knows what they are. Folders are walked in
//! the order of names, links are not followed. Most files of a machine are of a few kinds, so at most so many of each
//! ending are taken; which ones, a hash of their names and a seed decides, so that neighbours from one folder do not
//! crowd others out. Two files that look the same to the model are taken once: rows to test on must not be known.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use md5::{Digest, Md5};

use super::file::Limit;
use super::folder::{MOST_FILES, Rows};
use super::options::Options;
use super::{Samples, Unusable};

/// Tokens from either end.
const SIDE: usize = 1024;
/// What is looked at on either side; white space within it is stripped.
const BLOCK: usize = 4096;
/// Stands where a file has no byte.
const PADDING: f32 = 256.0;
/// Files with fewer bytes say too little.
const SHORTEST: usize = 8;

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
    for path in walk(folders)? {
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
        let Some(tokens) = ends(&path).ok().and_then(|ends| ends.tokens()) else { continue };
        if seen.insert(digest(&tokens)) {
            rows.add(&path, &[2 * SIDE], &tokens)?;
        }
    }
    Samples::new(rows.array(), None)
}

/// All plain files below some folders. A folder that is named must be there; one below it may be closed to us.
fn walk(folders: &[PathBuf]) -> Result<Vec<PathBuf>, Unusable> {
    let mut files = Vec::new();
    let mut left: Vec<(PathBuf, bool)> = folders.iter().map(|folder| (folder.clone(), true)).collect();
    while let Some((folder, is_named)) = left.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if is_named => {
                return Err(Unusable::Read { path: folder, message: error.to_string() });
            }
            Err(_) => continue,
        };
        for entry in entries.filter_map(Result::ok) {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => left.push((entry.path(), false)),
                Ok(kind) if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
            if files.len() + left.len() > MOST_FILES {
                return Err(Unusable::TooManyFiles { path: folder, limit: MOST_FILES });
            }
        }
    }
    Ok(files)
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

/// The blocks at the ends of a file.
struct Ends {
    first: Vec<u8>,
    last: Vec<u8>,
}

fn ends(path: &Path) -> std::io::Result<Ends> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut block = |from: u64| {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(from))?;
        file.by_ref().take(BLOCK as u64).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(bytes)
    };
    Ok(Ends { first: block(0)?, last: block(length.saturating_sub(BLOCK as u64))? })
}

impl Ends {
    /// What the model is given; `None` where there is too little.
    fn tokens(&self) -> Option<Vec<f32>> {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c);
        let start = self.first.iter().position(|byte| !is_space(byte))?;
        let start = &self.first[start..];
        let end = self.last.iter().rposition(|byte| !is_space(byte)).map_or(0, |last| last + 1);
        let end = &self.last[..end];
        if start.len() < SHORTEST {
            return None;
        }
        let (start, end) = (&start[..start.len().min(SIDE)], &end[end.len().saturating_sub(SIDE)..]);
        let mut tokens = vec![PADDING; 2 * SIDE];
        // Padding comes after a short start, and before a short end.
        tokens.iter_mut().zip(start).for_each(|(token, &byte)| *token = byte.into());
        tokens[2 * SIDE - end.len()..].iter_mut().zip(end).for_each(|(token, &byte)| *token = byte.into());
        Some(tokens)
    }
}
