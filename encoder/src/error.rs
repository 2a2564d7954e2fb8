//! What can be wrong with a code, a group or a loss pattern, with the numbers that say so.

use crate::Kind;

/// Why a code could not be built, or why it did not encode or decode.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // what the fields are, the messages say
pub enum Error {
    /// `k` is outside what the code can do.
    #[error("{kind} takes {min} to {max} queries per group, not {k}: change k")]
    Queries { kind: Kind, k: usize, min: usize, max: usize },
    /// `r` is outside what the code can do.
    #[error("{kind} with k = {k} takes {min} to {max} parities per group, not {r}: change r")]
    Parities { kind: Kind, k: usize, r: usize, min: usize, max: usize },
    /// No code has this name.
    #[error("'{name}' is no code: use one of {}", names())]
    UnknownCode { name: String },
    /// The spec sets something that this code does not have.
    #[error("{kind} has no {field}: remove it from the code spec")]
    UnusedField { kind: Kind, field: &'static str },
    /// No coefficients were designed for these sizes.
    #[error(
        "no coefficients are built in for k = {k}, r = {r}: give them in the code spec, or use k <= 8 and r <= 3"
    )]
    NotDesigned { k: usize, r: usize },
    /// There is not one row of coefficients per parity.
    #[error("coefficients: {actual} rows given where r = {expected} are needed")]
    CoefficientRows { expected: usize, actual: usize },
    /// A row of coefficients does not hold k numbers.
    #[error("coefficients: row {row} has {actual} numbers where {expected} are needed (r rows of k)")]
    CoefficientShape { row: usize, expected: usize, actual: usize },
    /// Some losses could not be solved for, or only with large errors.
    #[error(
        "coefficients: the worst {size}x{size} sub-matrix has condition number {condition:.1}, over {limit:.0}: \
         leave them out for well conditioned ones"
    )]
    IllConditioned { size: usize, condition: f64, limit: f64 },
    /// A coefficient is NaN or infinite, or smoothing is negative.
    #[error("{field} holds {value}, which is not a usable number")]
    NotANumber { field: &'static str, value: f64 },
    /// The grid has fewer cells than there are queries.
    #[error("a grid of {rows} x {columns} holds {} tiles, fewer than k = {k}: enlarge the grid", rows * columns)]
    Grid { rows: usize, columns: usize, k: usize },
    /// The slot order is not a permutation of 0..k.
    #[error("slot order {order:?} is not a permutation of 0..{k}")]
    Order { order: Vec<usize>, k: usize },
    /// The code's encoder and decoder are models: give it an engine.
    #[error("a learned code is run by an engine: build it with Learned::new")]
    NeedsNets,
    /// Sums of these elements mean nothing.
    #[error(
        "{kind} adds queries up, which needs f32 elements: use slots or replicate for elements of {bytes} bytes"
    )]
    NotArithmetic { kind: Kind, bytes: usize },
    /// The input is no image that the grid can cut.
    #[error("tiles need an image of at least {rows} x {columns} pixels, not dims {dims:?}: use slots or sum")]
    NotAnImage { dims: Vec<usize>, rows: usize, columns: usize },
    /// The input has no axis to put queries side by side on.
    #[error("an input of dims {dims:?} has no channel axis: give each query at least one dimension")]
    NoChannels { dims: Vec<usize> },
    /// The wrong number of slices was handed over.
    #[error("{what}: {actual} slices given where the code has {expected}")]
    Count { what: Part, expected: usize, actual: usize },
    /// A slice has the wrong length.
    #[error("{what} {index} has {actual} elements where {expected} are needed")]
    Length { what: Part, index: usize, expected: usize, actual: usize },
    /// Every slot is blank.
    #[error("the group has no member: there is nothing to encode")]
    EmptyGroup,
    /// The code needs full groups.
    #[error("{kind} needs a full group of {k}, but {members} members are there: serve them uncoded")]
    PartialGroup { kind: Kind, members: usize, k: usize },
    /// The slot does not exist or holds no member.
    #[error("slot {slot} holds no member of this group of {k}")]
    BlankSlot { slot: usize, k: usize },
    /// Not enough has arrived. Never answered with a guess.
    #[error(
        "slot {slot} cannot be reconstructed: {missing} predictions are missing and {parities} parity outputs are in"
    )]
    Unrecoverable { slot: usize, missing: usize, parities: usize },
    /// The engine of a learned code failed.
    #[error("the learned code's model failed: {reason}")]
    Nets { reason: String },
}

fn names() -> String {
    Kind::ALL.map(Kind::name).join(", ")
}

/// What a slice stood for.
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
