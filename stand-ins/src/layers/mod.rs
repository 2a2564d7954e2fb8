//! Fewer layers, where a graph repeats.
//!
//! Encoders and residual networks are the same block over and over, each adding a little to a stream. A stand-in runs the
//! first of them and guesses what the others would have added: a linear map from the stream behind the last block that runs
//! to the stream behind the last of all, fitted by least squares on the rows given ([`shortcut`]). What follows (a
//! normalisation, a pool, a head) reads the guess, and none of it has to be understood. Where the map is a product with one
//! matrix, it costs a tenth of a block.
//!
//! Blocks are not recognised by their operators, which every exporter writes in another way, but by their likeness
//! ([`repeats`](mod@repeats)): values of the same sizes, one behind the other, with the same operators between each and the next, and
//! nothing else that leads past them.
//!
//! Rejected: a refit of the head alone, which is one row of numbers for each row that is given where a stream has one for
//! each token or place, and is not there at all in models that answer with an embedding. Gradients would do more: a taught
//! head is what `parm train stand-in` is for.

mod repeats;
mod set;
mod shortcut;

pub(crate) use repeats::{Repeats, repeats};
pub(crate) use shortcut::Shortcuts;

#[cfg(test)]
mod tests;
