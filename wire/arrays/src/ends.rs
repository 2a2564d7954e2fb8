//! The input of file-type models: a kilobyte from either end of a file.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::{Error, Problem};

const SIDE: usize = 1024;
/// Bytes read at either end; white space within them is stripped.
const BLOCK: usize = 4096;
const PADDING: u16 = 256;
/// Shorter files are rejected.
const SHORTEST: usize = 8;
/// Tokens of a file.
pub const TOKENS: usize = 2 * SIDE;

/// The bytes at a file's ends as [`TOKENS`] tokens; `None` if the file is too short.
pub fn tokens(path: &Path) -> Result<Option<Vec<u16>>, Error> {
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut block = |from: u64| {
            let mut bytes = Vec::new();
            file.seek(SeekFrom::Start(from))?;
            file.by_ref().take(BLOCK as u64).read_to_end(&mut bytes)?;
            Ok::<_, io::Error>(bytes)
        };
        Ok((block(0)?, block(length.saturating_sub(BLOCK as u64))?))
    };
    let (first, last) =
        read().map_err(|error: io::Error| Error::new(path, Problem::Read(error.to_string())))?;
    Ok(of_ends(&first, &last))
}

/// Tokens of a file's first and last block, which are the same block in a short file.
fn of_ends(first: &[u8], last: &[u8]) -> Option<Vec<u16>> {
    let start = &first[first.iter().position(|byte| !is_space(byte))?..];
    let end = &last[..last.iter().rposition(|byte| !is_space(byte)).map_or(0, |last| last + 1)];
    if start.len() < SHORTEST {
        return None;
    }
    let (start, end) = (&start[..start.len().min(SIDE)], &end[end.len().saturating_sub(SIDE)..]);
    let mut tokens = vec![PADDING; TOKENS];
    // Padding follows a short start, and precedes a short end.
    tokens.iter_mut().zip(start).for_each(|(token, &byte)| *token = byte.into());
    tokens[TOKENS - end.len()..].iter_mut().zip(end).for_each(|(token, &byte)| *token = byte.into());
    Some(tokens)
}

/// White space as in the training of such models: ASCII's, the vertical tab included.
fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// All plain files below some folders, at most `limit`. A named folder must exist; one below it may be unreadable.
/// Links are not followed.
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

    fn tokens(content: &[u8]) -> Option<Vec<u16>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, content).unwrap();
        super::tokens(&path).unwrap()
    }

    #[test]
    fn a_short_file_stands_at_both_ends_with_padding_between() {
        let tokens = tokens(b" \x0b\nabcdefgh\t\r\n").unwrap();
        assert_eq!(tokens[..9], [97, 98, 99, 100, 101, 102, 103, 104, 9]);
        assert_eq!(tokens[11..2037], [PADDING; 2026]);
        assert_eq!(tokens[2037..], [32, 11, 10, 97, 98, 99, 100, 101, 102, 103, 104]);
    }

    #[test]
    fn only_a_block_on_either_side_is_stripped() {
        let mut content = vec![b' '; 10_000];
        content[4_090..4_099].copy_from_slice(b"abcdefghi");
        // Six letters are within the first block, none within the last.
        assert_eq!(tokens(&content), None);
        content[4_000..4_008].copy_from_slice(b"12345678");
        let tokens = tokens(&content).unwrap();
        assert_eq!((tokens[0], tokens[95], tokens[96]), (b'1'.into(), b'f'.into(), PADDING));
        assert_eq!(tokens[SIDE..], [PADDING; SIDE]);
    }

    #[test]
    fn short_content_has_no_tokens_and_a_missing_file_fails() {
        for content in [&b""[..], b"1234567", b"\n        1234567"] {
            assert_eq!(tokens(content), None);
        }
        let missing = super::tokens(Path::new("no/such/file")).unwrap_err().to_string();
        assert!(missing.starts_with("no/such/file: "), "{missing}");
    }

    #[test]
    fn named_folder_must_exist_and_the_limit_holds() {
        let folder = tempfile::tempdir().unwrap();
        (0..3).for_each(|at| fs::write(folder.path().join(at.to_string()), "x").unwrap());
        let named = [folder.path().to_owned()];
        assert_eq!(walk(&named, 10).unwrap().len(), 3);
        assert_eq!(walk(&named, 2).unwrap_err().problem, Problem::TooManyFiles { limit: 2 });
        assert!(walk(&[folder.path().join("none")], 10).is_err());
    }
}
