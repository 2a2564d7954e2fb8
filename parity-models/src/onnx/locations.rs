//! Finds the external files that a model names, without reading its weights into memory.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::{Component, Path};

use super::census::{Kind, MOST_DEEP};

/// The longest location, in bytes: that of Linux's paths.
const LONGEST: u64 = 4096;

/// The external files of tensors in all graphs of the file, sorted. None for a file that is not ONNX: its engine says so.
pub fn locations(path: &Path) -> io::Result<BTreeSet<String>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut walk = Walk { file: BufReader::new(file), at: 0, found: BTreeSet::new() };
    match walk.message(Kind::Model, length, 0) {
        Ok(()) => Ok(walk.found),
        Err(error) if matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) => {
            Ok(BTreeSet::new())
        }
        Err(error) => Err(error),
    }
}

/// Whether a location stays in the model's folder.
pub fn is_inside(location: &str) -> bool {
    let is_plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    !location.is_empty() && Path::new(location).components().all(is_plain)
}

struct Walk {
    file: BufReader<File>,
    at: u64,
    found: BTreeSet<String>,
}

impl Walk {
    /// Walks through the message that ends at `end`.
    fn message(&mut self, kind: Kind, end: u64, depth: usize) -> io::Result<()> {
        let (mut is_external, mut named) = (false, Vec::<String>::new());
        while self.at < end {
            let tag = self.varint()?;
            let (number, is_tensor) = (tag >> 3, matches!(kind, Kind::Tensor));
            match tag & 7 {
                0 => {
                    let value = self.varint()?;
                    if is_tensor && number == 14 {
                        is_external = value == 1;
                    }
                }
                1 => self.skip(8, end)?,
                2 => {
                    let length = self.varint()?;
                    let part = self.at.checked_add(length).filter(|part| *part <= end).ok_or_else(invalid)?;
                    match kind.within(number) {
                        Some(within) if depth < MOST_DEEP => self.message(within, part, depth + 1)?,
                        None if is_tensor && number == 13 => named.extend(self.location(part)?),
                        _ => self.skip(length, end)?,
                    }
                }
                5 => self.skip(4, end)?,
                _ => return Err(invalid()),
            }
        }
        if is_external {
            self.found.extend(named);
        }
        if self.at == end { Ok(()) } else { Err(invalid()) }
    }

    /// The value of an entry whose key is `location`.
    fn location(&mut self, end: u64) -> io::Result<Option<String>> {
        let (mut key, mut value) = (String::new(), String::new());
        while self.at < end {
            let tag = self.varint()?;
            let length = if tag & 7 == 2 { self.varint()? } else { return Err(invalid()) };
            match tag >> 3 {
                1 => key = self.text(length, end)?,
                2 => value = self.text(length, end)?,
                _ => self.skip(length, end)?,
            }
        }
        if self.at == end { Ok(Some(value).filter(|_| key == "location")) } else { Err(invalid()) }
    }

    fn text(&mut self, length: u64, end: u64) -> io::Result<String> {
        if length > LONGEST || length > end.saturating_sub(self.at) {
            return Err(invalid());
        }
        let mut bytes = vec![0; length as usize];
        self.file.read_exact(&mut bytes)?;
        self.at += length;
        String::from_utf8(bytes).map_err(|_| invalid())
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let mut byte = [0];
            self.file.read_exact(&mut byte)?;
            self.at += 1;
            value |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] < 0x80 {
                return Ok(value);
            }
        }
        Err(invalid())
    }

    fn skip(&mut self, length: u64, end: u64) -> io::Result<()> {
        if length > end.saturating_sub(self.at) {
            return Err(invalid());
        }
        self.at += length;
        self.file.seek_relative(i64::try_from(length).map_err(|_| invalid())?)
    }
}

fn invalid() -> io::Error {
    ErrorKind::InvalidData.into()
}
