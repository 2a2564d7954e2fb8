//! The errors of codes, groups and loss patterns, with the numbers that explain them.

use crate::Kind;

/// A failure to build a code, to encode or to decode.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages explain the fields
pub enum Error {
    #[error("{kind} takes {min} to {max} queries per group, not {k}: change k")]
    Queries { kind: Kind, k: usize, min: usize, max: usize },
    #[error("{kind} with k = {k} takes {min} to {max} parities per group, not {r}: change r")]
    Parities { kind: Kind, k: usize, r: usize, min: usize, max: usize },
    #[error("unknown code '{name}': use one of {}", names())]
    UnknownCode { name: String },
    #[error("{kind} has no head: remove it from the code spec")]
    UnusedHead { kind: Kind },
    #[error("no coefficients for k = {k}, r = {r}: use k <= 8 and r <= 3")]
    NotDesigned { k: usize, r: usize },
    #[error("learned code not built: its encoder and decoder are models: use Learned::new")]
    NeedsNets,
    #[error("{kind} adds queries up, which needs f32 elements: use slots for elements of {bytes} bytes")]
    NotArithmetic { kind: Kind, bytes: usize },
    #[error("tiles need an image of at least {rows} x {columns} pixels, not dims {dims:?}: use slots or sum")]
    NotAnImage { dims: Vec<usize>, rows: usize, columns: usize },
    #[error("an input without dimensions has no channel axis: give each query at least one")]
    NoChannels,
    #[error("wrong number of {what} slices: {actual} given, {expected} expected")]
    Count { what: &'static str, expected: usize, actual: usize },
    #[error("{what} {index} has {actual} elements, expected {expected}")]
    Length { what: &'static str, index: usize, expected: usize, actual: usize },
    #[error("cannot encode an empty group: every slot is blank: add a query")]
    EmptyGroup,
    #[error("{kind} needs a full group of {k}, but it has {members} members: serve them uncoded")]
    PartialGroup { kind: Kind, members: usize, k: usize },
    #[error("cannot reconstruct slot {slot}: it is blank or outside the group of {k}")]
    BlankSlot { slot: usize, k: usize },
    #[error(
        "cannot reconstruct slot {slot}: {missing} predictions are missing and {parities} parity outputs have arrived"
    )]
    Unrecoverable { slot: usize, missing: usize, parities: usize },
    #[error("a model of the learned code failed: {reason}")]
    Nets { reason: String },
}

fn names() -> String {
    Kind::ALL.map(Kind::name).join(", ")
}
