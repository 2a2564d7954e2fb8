//! Counts the parts of a file before it is decoded.
//!
//! Two bytes of a file can be an empty node, which takes 240 bytes once it is decoded: a file within its limit could take a
//! hundred times its size. `check` walks through the messages without keeping anything and rejects a file of too many parts.

use prost::encoding::decode_varint;

use super::Defect;

/// Messages, strings and other parts with a length, at most. A graph of 100,000 nodes has about 1.5 million.
const MOST_PARTS: usize = 4_000_000;

/// Graphs within graphs. The decoder stops at a hundred messages.
pub(super) const MOST_DEEP: usize = 100;

/// A message whose parts are counted.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Model,
    Training,
    Function,
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
    /// The message in field `number`, if its parts are counted as well.
    pub(super) fn within(self, number: u64) -> Option<Self> {
        Some(match (self, number) {
            (Self::Model, 7) | (Self::Training, 1 | 2) | (Self::Attribute, 6 | 11) => Self::Graph,
            (Self::Model, 20) => Self::Training,
            (Self::Model, 25) => Self::Function,
            (Self::Function, 7) | (Self::Graph, 1) => Self::Node,
            (Self::Function, 11) | (Self::Node, 5) => Self::Attribute,
            (Self::Graph, 5) | (Self::Attribute, 5 | 10) | (Self::Sparse, 1 | 2) => Self::Tensor,
            (Self::Graph, 15) | (Self::Attribute, 22 | 23) => Self::Sparse,
            (Self::Graph, 11..=13) | (Self::Function, 12) => Self::Value,
            (Self::Value, 2) | (Self::Attribute, 14 | 15) => Self::Type,
            (Self::Type, 1 | 8) => Self::TensorType,
            (Self::TensorType, 2) => Self::Shape,
            _ => return None,
        })
    }
}

/// Rejects a file of too many parts. The decoder reports malformed files, and stops at the same place.
pub(super) fn check(file: &[u8]) -> Result<(), Defect> {
    let mut left = MOST_PARTS;
    let _ = walk(file, Kind::Model, 0, &mut left);
    if left > 0 { Ok(()) } else { Err(Defect::TooManyParts { limit: MOST_PARTS }) }
}

/// Counts down for each part; `None` where the message is malformed or too many are counted.
fn walk(message: &[u8], kind: Kind, depth: usize, left: &mut usize) -> Option<()> {
    let mut rest = message;
    while !rest.is_empty() {
        let tag = decode_varint(&mut rest).ok()?;
        let skipped = match tag & 7 {
            0 => {
                decode_varint(&mut rest).ok()?;
                0
            }
            1 => 8,
            2 => {
                *left = left.saturating_sub(1);
                if *left == 0 {
                    return None;
                }
                let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
                let part = rest.get(..length)?;
                if let Some(within) = kind.within(tag >> 3).filter(|_| depth < MOST_DEEP) {
                    walk(part, within, depth + 1, left)?;
                }
                length
            }
            5 => 4,
            _ => return None,
        };
        rest = rest.get(skipped..)?;
    }
    Some(())
}
