//! The errors of codes, groups and loss patterns, with the numbers that explain them.

use crate::Kind;

/// A failure to build a code, to encode or to decode.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages explain the fields
pub enum Error {
    /// `k` is outside the code's limits.
    #[error("{kind} takes {min} to {max} queries per group, not {k}: change k")]
    Queries { kind: Kind, k: usize, min: usize, max: usize },
    /// `r` is outside the code's limits.
    #[error("{kind} with k = {k} takes {min} to {max} parities per group, not {r}: change r")]
    Parities { kind: Kind, k: usize, r: usize, min: usize, max: usize },
    /// No code has this name.
    #[error("unknown code '{name}': use one of {}", names())]
    UnknownCode { name: String },
    /// The spec sets a field that this code does not have.
    #[error("{kind} has no {field}: remove it from the code spec")]
    UnusedField { kind: Kind, field: &'static str },
    /// No coefficients were designed for these sizes.
    #[error(
        "no built-in coefficients for k = {k}, r = {r}: set them in the code spec, or use k <= 8 and r <= 3"
    )]
    NotDesigned { k: usize, r: usize },
    /// The number of rows of coefficients is not the number of parities.
    #[error("invalid coefficients: {actual} rows, expected r = {expected}: give one row per parity")]
    CoefficientRows { expected: usize, actual: usize },
    /// A row of coefficients does not have k numbers.
    #[error("invalid coefficients: row {row} has {actual} numbers, expected {expected}: give r rows of k")]
    CoefficientShape { row: usize, expected: usize, actual: usize },
    /// Some losses could not be recovered, or only with large errors.
    #[error(
        "invalid coefficients: a {size}x{size} sub-matrix has condition number {condition:.1}, over {limit:.0}: \
         omit them to use the built-in ones"
    )]
    IllConditioned { size: usize, condition: f64, limit: f64 },
    /// A coefficient is NaN or infinite.
    #[error("invalid coefficients: {value} is not finite: replace it")]
    NotANumber { value: f64 },
    /// The grid has fewer cells than there are queries.
    #[error("a grid of {rows} x {columns} has {} cells, fewer than k = {k}: enlarge the grid", rows * columns)]
    Grid { rows: usize, columns: usize, k: usize },
    /// The slot order is not a permutation of 0..k.
    #[error("invalid slot order {order:?}: it is not a permutation of 0..{k}: list each slot once")]
    Order { order: Vec<usize>, k: usize },
    /// An engine must run the code's encoder and decoder.
    #[error("learned code not built: its encoder and decoder are models: use Learned::new")]
    NeedsNets,
    /// The code computes with elements that are not floats.
    #[error("{kind} adds queries up, which needs f32 elements: use slots for elements of {bytes} bytes")]
    NotArithmetic { kind: Kind, bytes: usize },
    /// The grid cannot divide the input.
    #[error("tiles need an image of at least {rows} x {columns} pixels, not dims {dims:?}: use slots or sum")]
    NotAnImage { dims: Vec<usize>, rows: usize, columns: usize },
    /// The input has no axis on which to concatenate queries.
    #[error("an input of dims {dims:?} has no channel axis: give each query at least one dimension")]
    NoChannels { dims: Vec<usize> },
    /// The number of slices is wrong.
    #[error("wrong number of {what} slices: {actual} given, {expected} expected")]
    Count { what: Part, expected: usize, actual: usize },
    /// A slice has the wrong length.
    #[error("{what} {index} has {actual} elements, expected {expected}")]
    Length { what: Part, index: usize, expected: usize, actual: usize },
    /// Every slot is blank.
    #[error("cannot encode an empty group: every slot is blank: add a query")]
    EmptyGroup,
    /// The code requires full groups.
    #[error("{kind} needs a full group of {k}, but it has {members} members: serve them uncoded")]
    PartialGroup { kind: Kind, members: usize, k: usize },
    /// The slot does not exist or holds no member.
    #[error("cannot reconstruct slot {slot}: it is blank or outside the group of {k}")]
    BlankSlot { slot: usize, k: usize },
    /// Too few outputs have arrived.
    #[error(
        "cannot reconstruct slot {slot}: {missing} predictions are missing and {parities} parity outputs have arrived"
    )]
    Unrecoverable { slot: usize, missing: usize, parities: usize },
    /// A model of a learned code failed.
    #[error("a model of the learned code failed: {reason}")]
    Nets { reason: String },
}

fn names() -> String {
    Kind::ALL.map(Kind::name).join(", ")
}

/// The role of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A query of the group.
    Query,
    /// A parity query.
    ParityQuery,
    /// A prediction of the deployed model.
    Prediction,
    /// An output of a parity model.
    ParityOutput,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Part::Query => "query",
            Part::ParityQuery => "parity query",
            Part::Prediction => "prediction",
            Part::ParityOutput => "parity output",
        })
    }
}
