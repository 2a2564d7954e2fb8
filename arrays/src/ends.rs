//! Files of any kind as a file-type model sees them: a kilobyte from either end, without the white space around it.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::{Error, Problem};

/// Tokens from either end.
const SIDE: usize = 1024;
/// What is looked at on either side; white space within it is stripped.
const BLOCK: usize = 4096;
/// Stands where a file has no byte.
const PADDING: u16 = 256;
/// Files with fewer bytes say too little.
const SHORTEST: usize = 8;
/// Tokens of a file.
pub const TOKENS: usize = 2 * SIDE;

/// The bytes at a file's ends as [`TOKENS`] tokens; `None` where there is too little or the file cannot be read.
pub fn tokens(path: &Path) -> Option<Vec<u16>> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    let mut block = |from: u64| {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(from)).ok()?;
        file.by_ref().take(BLOCK as u64).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    };
    let (first, last) = (block(0)?, block(length.saturating_sub(BLOCK as u64))?);
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c);
    let start = &first[first.iter().position(|byte| !is_space(byte))?..];
    let end = &last[..last.iter().rposition(|byte| !is_space(byte)).map_or(0, |last| last + 1)];
    if start.len() < SHORTEST {
        return None;
    }
    let (start, end) = (&start[..start.len().min(SIDE)], &end[end.len().saturating_sub(SIDE)..]);
    let mut tokens = vec![PADDING; TOKENS];
    // Padding comes after a short start, and before a short end.
    tokens.iter_mut().zip(start).for_each(|(token, &byte)| *token = byte.into());
    tokens[TOKENS - end.len()..].iter_mut().zip(end).for_each(|(token, &byte)| *token = byte.into());
    Some(tokens)
}

/// All plain files below some folders, at most `limit`. A folder that is named must be there; one below it may be closed
/// to us. Links are not followed.
pub fn walk(folders: &[PathBuf], limit: usize) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    let mut left: Vec<(PathBuf, bool)> = folders.iter().map(|folder| (folder.clone(), true)).collect();
    while let Some((folder, is_named)) = left.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if is_named => return Err(Error::new(&folder, Problem::Read(error.to_string()))),
            Err(_) => continue,
        };
        for entry in entries.filter_map(Result::ok) {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => left.push((entry.path(), false)),
                Ok(kind) if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
            if files.len() + left.len() > limit {
                return Err(Error::new(&folder, Problem::TooManyFiles { limit }));
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_taken_without_white_space_and_filled_up_in_the_middle() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"  0123456789\n").unwrap();
        let tokens = tokens(&path).unwrap();
        assert_eq!((tokens[0], tokens[9], tokens[10], tokens[11]), (48, 57, 10, PADDING));
        assert_eq!((tokens[TOKENS - 13], tokens[TOKENS - 12], tokens[TOKENS - 1]), (PADDING, 32, 57));
        fs::write(&path, b"  0123\n").unwrap();
        assert_eq!(super::tokens(&path), None);
    }

    #[test]
    fn a_folder_that_is_named_must_be_there_and_a_bound_holds() {
        let folder = tempfile::tempdir().unwrap();
        (0..3).for_each(|at| fs::write(folder.path().join(at.to_string()), "x").unwrap());
        let named = [folder.path().to_owned()];
        assert_eq!(walk(&named, 10).unwrap().len(), 3);
        assert_eq!(walk(&named, 2).unwrap_err().problem, Problem::TooManyFiles { limit: 2 });
        assert!(walk(&[folder.path().join("none")], 10).is_err());
    }
}
