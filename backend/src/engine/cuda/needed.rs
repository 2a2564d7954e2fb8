//! Reads the names of the libraries that a shared library needs.
//!
//! The list differs between versions of ONNX Runtime: built for CUDA 12 it needs cuDNN and cuFFT, built for CUDA 13 it
//! opens them later. The file itself is therefore the only list that does not age. Reads a few kilobytes of it.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Seek, SeekFrom};
use std::path::Path;

/// Bounds against files that are damaged.
const MOST_SEGMENTS: u16 = 256;
const LONGEST_DYNAMIC: u64 = 64 * 1024;
const LONGEST_NAME: u64 = 256;

const LOADED: u64 = 1;
const DYNAMIC: u64 = 2;
const NEEDED: u64 = 1;
const NAMES: u64 = 5;

/// A part of the file, and its address in memory.
struct Segment {
    kind: u64,
    offset: u64,
    address: u64,
    length: u64,
}

/// The needed libraries of a 64-bit, little-endian ELF file, in its order.
pub(super) fn needed(path: &Path) -> Result<Vec<String>> {
    let mut file = File::open(path)?;
    let head = part(&mut file, 0, 64)?;
    if head[..6] != *b"\x7fELF\x02\x01" {
        return Err(damaged());
    }
    let (table, size, count) = (number(&head[32..40]), number(&head[54..56]), number(&head[56..58]));
    if count > u64::from(MOST_SEGMENTS) || size < 56 {
        return Err(damaged());
    }
    let table = part(&mut file, table, size * count)?;
    let segments: Vec<Segment> = table.chunks_exact(size as usize).map(segment).collect();
    let Some(dynamic) = segments.iter().find(|segment| segment.kind == DYNAMIC) else {
        return Ok(Vec::new());
    };
    let entries = part(&mut file, dynamic.offset, dynamic.length.min(LONGEST_DYNAMIC))?;
    let entries = entries.chunks_exact(16).map(|entry| (number(&entry[..8]), number(&entry[8..])));
    let entries: Vec<(u64, u64)> = entries.take_while(|(tag, _)| *tag != 0).collect();
    let names = entries.iter().find(|(tag, _)| *tag == NAMES).ok_or_else(damaged)?.1;
    let loaded = segments.iter().filter(|segment| segment.kind == LOADED);
    let holds = |segment: &&Segment| {
        (segment.address..segment.address.saturating_add(segment.length)).contains(&names)
    };
    let home = loaded.clone().find(holds).ok_or_else(damaged)?;
    let names = home.offset.saturating_add(names - home.address);
    let needed = entries.iter().filter(|(tag, _)| *tag == NEEDED);
    needed.map(|(_, at)| name(&mut file, names.saturating_add(*at))).collect()
}

fn segment(header: &[u8]) -> Segment {
    Segment {
        kind: number(&header[..4]),
        offset: number(&header[8..16]),
        address: number(&header[16..24]),
        length: number(&header[32..40]),
    }
}

fn name(file: &mut File, at: u64) -> Result<String> {
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take(LONGEST_NAME).read_to_end(&mut bytes)?;
    let end = bytes.iter().position(|&byte| byte == 0).ok_or_else(damaged)?;
    String::from_utf8(bytes[..end].to_vec()).map_err(|_| damaged())
}

fn part(file: &mut File, at: u64, length: u64) -> Result<Vec<u8>> {
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(damaged()) }
}

/// A little-endian number of up to eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn damaged() -> Error {
    Error::new(ErrorKind::InvalidData, "it is not a shared library of Linux")
}

/// The bytes of a shared library without code that needs these libraries.
#[cfg(test)]
pub(super) fn library_that_needs(names: &[&str]) -> Vec<u8> {
    // The memory is mapped 4096 bytes away from the file, as linkers do.
    let (mut strings, mut dynamic) = (vec![0u8], Vec::new());
    let base = 64 + 2 * 56;
    for name in names {
        dynamic.extend([NEEDED, strings.len() as u64]);
        strings.extend(name.bytes().chain([0]));
    }
    let length = (dynamic.len() as u64 + 4) * 8;
    dynamic.extend([NAMES, 4096 + base + length, 0, 0]);
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(32, 0);
    file.extend(64u64.to_le_bytes());
    file.resize(54, 0);
    file.extend([56, 0, 2, 0]);
    file.resize(64, 0);
    let whole = base + length + strings.len() as u64;
    for (kind, offset, length) in [(LOADED, 0, whole), (DYNAMIC, base, length)] {
        for field in [kind, offset, 4096 + offset, 0, length, length, 8] {
            file.extend(field.to_le_bytes());
        }
    }
    file.extend(dynamic.iter().flat_map(|field| field.to_le_bytes()));
    file.extend(strings);
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_libraries_are_read_in_order() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let names = ["libcublasLt.so.13", "libcuda.so.1", "libc.so.6"];
        std::fs::write(file.path(), library_that_needs(&names)).unwrap();
        assert_eq!(needed(file.path()).unwrap(), names);
        std::fs::write(file.path(), library_that_needs(&[])).unwrap();
        assert_eq!(needed(file.path()).unwrap(), [""; 0]);
    }

    #[test]
    fn this_program_needs_the_c_library() {
        let needed = needed(&std::env::current_exe().unwrap()).unwrap();
        assert!(
            cfg!(target_env = "musl") || needed.iter().any(|name| name.starts_with("libc.so")),
            "{needed:?}"
        );
    }

    #[test]
    fn damaged_library_is_an_error_at_any_length() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let whole = library_that_needs(&["libcuda.so.1"]);
        for length in 0..whole.len() {
            std::fs::write(file.path(), &whole[..length]).unwrap();
            assert!(needed(file.path()).is_err(), "{length} bytes");
        }
        let mut wrong = whole;
        for at in 0..wrong.len() {
            wrong[at] ^= 0xff;
            std::fs::write(file.path(), &wrong).unwrap();
            // Any result, but within bounds and without a panic.
            let _ = needed(file.path());
            wrong[at] ^= 0xff;
        }
    }
}
