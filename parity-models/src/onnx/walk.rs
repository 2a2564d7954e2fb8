//! Walks through the messages of a file without decoding them: counts its parts, and finds the external files that it
//! names.
//!
//! Two bytes of a file can be an empty node, which takes 240 bytes once it is decoded: a file within its limit could take a
//! hundred times its size. So [`check`] rejects a file of too many parts before it is decoded. [`locations`] reads a file
//! from disk, and skips its weights.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Cursor, ErrorKind, Read, Seek};
use std::path::{Component, Path};

use super::Defect;

/// Messages, strings and other parts with a length, at most. A graph of 100,000 nodes has about 1.5 million.
const MOST_PARTS: usize = 4_000_000;
/// Graphs within graphs. The decoder stops at a hundred messages.
const MOST_DEEP: usize = 100;
/// The longest location, in bytes: that of Linux's paths.
const LONGEST: u64 = 4096;

/// A message whose parts are walked through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Model,
    Graph,
    Node,
    Attribute,
    Sparse,
    Tensor,
    Value,
    Type,
    TensorType,
    Shape,
}

impl Kind {
    /// The message in field `number`, if it is one of these.
    fn within(self, number: u64) -> Option<Self> {
        Some(match (self, number) {
            (Self::Model, 7) | (Self::Attribute, 6 | 11) => Self::Graph,
            (Self::Graph, 1) => Self::Node,
            (Self::Node, 5) => Self::Attribute,
            (Self::Graph, 5) | (Self::Attribute, 5 | 10) | (Self::Sparse, 1 | 2) => Self::Tensor,
            (Self::Graph, 15) | (Self::Attribute, 22 | 23) => Self::Sparse,
            (Self::Graph, 11..=13) => Self::Value,
            (Self::Value, 2) | (Self::Attribute, 14 | 15) => Self::Type,
            (Self::Type, 1 | 8) => Self::TensorType,
            (Self::TensorType, 2) => Self::Shape,
            _ => return None,
        })
    }
}

/// Rejects a file of too many parts. The decoder reports malformed files, and stops at the same place.
pub(super) fn check(file: &[u8]) -> Result<(), Defect> {
    let mut walk = Walk { file: Cursor::new(file), at: 0, left: MOST_PARTS, found: BTreeSet::new() };
    let _ = walk.message(Kind::Model, file.len() as u64, 0);
    if walk.left > 0 { Ok(()) } else { Err(Defect::TooManyParts { limit: MOST_PARTS }) }
}

/// The external files of tensors in all graphs of the file, sorted. None for a file that is not ONNX: its engine says so.
pub fn locations(path: &Path) -> io::Result<BTreeSet<String>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut walk = Walk { file: BufReader::new(file), at: 0, left: usize::MAX, found: BTreeSet::new() };
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

struct Walk<R> {
    file: R,
    at: u64,
    /// Parts that may follow.
    left: usize,
    found: BTreeSet<String>,
}

impl<R: Read + Seek> Walk<R> {
    /// Walks through the message that ends at `end`.
    fn message(&mut self, kind: Kind, end: u64, depth: usize) -> io::Result<()> {
        let (mut is_external, mut named, is_tensor) = (false, Vec::<String>::new(), kind == Kind::Tensor);
        while self.at < end {
            let tag = self.varint()?;
            match (tag & 7, tag >> 3) {
                (0, number) => {
                    let value = self.varint()?;
                    is_external |= is_tensor && number == 14 && value == 1;
                }
                (1, _) => self.skip(8, end)?,
                (2, number) => {
                    self.left = self.left.saturating_sub(1);
                    let length = self.varint()?;
                    let part = self.at.checked_add(length).filter(|part| *part <= end && self.left > 0);
                    let part = part.ok_or_else(invalid)?;
                    match kind.within(number) {
                        Some(within) if depth < MOST_DEEP => self.message(within, part, depth + 1)?,
                        None if is_tensor && number == 13 => named.extend(self.location(part)?),
                        _ => self.skip(length, end)?,
                    }
                }
                (5, _) => self.skip(4, end)?,
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
        let is_named = key == "location" && !value.is_empty();
        if self.at == end { Ok(is_named.then_some(value)) } else { Err(invalid()) }
    }

    /// A text, which is empty if no path is as long.
    fn text(&mut self, length: u64, end: u64) -> io::Result<String> {
        if length > LONGEST {
            return self.skip(length, end).map(|()| String::new());
        }
        if length > end.saturating_sub(self.at) {
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
