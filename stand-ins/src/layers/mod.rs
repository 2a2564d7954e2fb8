//! Shortened networks: the first of several repeated blocks, then a linear map.
//!
//! Encoders and residual networks repeat one block, and each adds a little to a stream. A stand-in runs the first
//! blocks and estimates the rest: a linear map from the stream behind the last block that runs to the stream behind
//! the last of all, fitted by least squares on the given rows ([`shortcut`]). The rest of the network (a
//! normalisation, a pool, a head) reads the estimate and need not be understood. As a product with one matrix, the
//! map costs a tenth of a block.
//!
//! Blocks are recognised by their likeness ([`repeats`](mod@repeats)), not by their operators, which every exporter
//! writes in another way: values of equal sizes in a row, with the same operators between each and the next, and no
//! other path past them.
//!
//! Rejected: a refit of the head alone. It has one sample per row, where a stream has one per token or place, and
//! models that return an embedding have no head. A head trained with gradients would do more; that is `parm train
//! stand-in`.

mod repeats;
mod set;
mod shortcut;

pub(crate) use repeats::{Repeats, repeats};
pub(crate) use shortcut::Shortcuts;

#[cfg(test)]
mod tests;
